import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_wine

from gedikit.errors import UsageError
from gedikit.modalities.scaling import Scaler


@given(st.floats(1e-3, 1e3), st.floats(-1e4, 1e4))
def test_scaled_data_does_not_know_its_units(factor, shift):
    x = np.random.default_rng(0).normal(size=(50, 3)) * [1, 5, 20]
    plain, moved = Scaler.fit(x), Scaler.fit(x * factor + shift)
    np.testing.assert_allclose(plain.transform(x), moved.transform(x * factor + shift), atol=1e-4)
    np.testing.assert_allclose(
        moved.inverse(moved.transform(x * factor + shift)),
        x * factor + shift,
        rtol=1e-4,
        atol=1e-4 * factor * 60,
    )


def test_pixels_share_one_scale_and_table_columns_do_not():
    assert len(np.unique(Scaler.fit(load_digits().data).scale)) == 1
    assert len(np.unique(Scaler.fit(load_wine().data).scale)) == 13


def test_constant_columns_are_left_alone():
    x = np.c_[np.full(20, 1e6), np.arange(20.0)]
    scaler = Scaler.fit(x)
    assert scaler.scale[0] == 1.0
    assert np.all(scaler.transform(x)[:, 0] == 0)


def test_log_jacobian_changes_units_of_a_density():
    scaler = Scaler(np.zeros(2), np.array([2.0, 5.0]))
    assert scaler.log_jacobian == pytest.approx(-np.log(10.0))


def test_unknown_mode_is_named():
    with pytest.raises(UsageError, match="'robust'"):
        Scaler.fit(np.eye(3), "robust")


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_numbers_at_the_edge_of_floats(size):
    x = np.random.default_rng(0).normal(size=(50, 2))
    np.testing.assert_allclose(Scaler.fit(size * x).transform(size * x), Scaler.fit(x).transform(x), atol=1e-5)


def test_one_outlier_does_not_squeeze_the_rest():
    x = np.random.default_rng(0).normal(size=(500, 2))
    spoilt = np.r_[x, [[1e4, 0.0]]]
    assert Scaler.fit(spoilt).scale[0] == pytest.approx(Scaler.fit(x).scale[0], rel=0.05)


def test_transformed_numbers_stay_finite_squared():
    z = Scaler.fit(np.eye(3)).transform(np.full((1, 3), 1e300))
    assert np.isfinite(z.astype(np.float32) ** 2).all()
