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


def test_a_column_of_nearly_one_value_is_scaled_by_the_others():
    x = np.full((500, 1), 0.1 + 0.2)
    x[::2] = 0.3  # the same but for rounding
    x[:3, 0] = [1, 2, 3]
    scaled = Scaler.fit(x, "features").transform(x)
    assert 1 < np.abs(scaled).max() < 30


def test_codes_are_centred_and_keep_their_size_beside_numbers():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(200, 2)) * [3.0, 5000.0]
    codes = (rng.random((200, 3)) < [0.5, 0.1, 0.01]) * 0.7
    x = np.c_[codes[:, 0], numbers, codes[:, 1:]]
    scaler = Scaler.fit(x, codes=(0, 3, 4))
    alone = Scaler.fit(numbers)
    assert scaler.scale[[0, 3, 4]].tolist() == [1, 1, 1], "a code that is nearly always 0 is not blown up"
    np.testing.assert_array_equal(scaler.scale[[1, 2]], alone.scale)
    np.testing.assert_array_equal(scaler.mean[[1, 2]], alone.mean)
    np.testing.assert_allclose(scaler.transform(x).mean(0), 0, atol=0.1)
    assert Scaler.fit(x, "none", codes=(0,)).scale.tolist() == [1] * 5
    np.testing.assert_array_equal(Scaler.fit(codes, codes=(0, 1, 2)).scale, np.ones(3))


def test_codes_do_not_decide_whether_columns_have_one_unit():
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=(200, 2)) * [1.0, 100.0], rng.random((200, 3)) < 0.5]
    assert len(set(Scaler.fit(x, codes=(2, 3, 4)).scale[:2])) == 2
