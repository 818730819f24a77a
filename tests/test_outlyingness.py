"""Strange rows: told by two noise levels, whatever hides among the training rows, with their reasons."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from gedikit import GEDI
from gedikit.errors import DataError, UsageError
from gedikit.outlyingness import OutlierModel

RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=(600, 5)) @ np.diag([1, 1, 1, 0.3, 2])


def fitted(x: np.ndarray, **asked: Any) -> OutlierModel:
    return OutlierModel.fit(torch.from_numpy(x), torch.Generator().manual_seed(0), **asked)


def strangeness(model: OutlierModel, x: np.ndarray) -> np.ndarray:
    return model.strangeness(torch.from_numpy(x))


def test_far_rows_and_rows_in_a_gap_are_strange():
    ring = RNG.uniform(0, 2 * np.pi, 800)
    x = np.c_[np.cos(ring), np.sin(ring)] * 2 + 0.1 * RNG.normal(size=(800, 2))
    model = fitted(x)
    typical = np.quantile(strangeness(model, x), 0.95)
    assert (strangeness(model, np.array([[0.0, 0.0], [4.0, 4.0], [-30.0, 2.0]])) > typical).all()
    assert (np.diff(strangeness(model, np.array([[2.0, 0.0], [3.0, 0.0], [6.0, 0.0], [60.0, 0.0]]))) > 0).all()


def test_being_trained_on_makes_no_row_ordinary():
    """An outlier is as strange with itself, and with copies of itself, among the training rows as without."""
    odd = np.full((1, 5), 6.0)
    alone, once, copies = (strangeness(fitted(np.r_[NORMAL, np.repeat(odd, n, 0)]), odd)[0] for n in (0, 1, 20))
    assert once == pytest.approx(alone, rel=0.25)
    assert copies > 1.5 * np.quantile(strangeness(fitted(NORMAL), NORMAL), 0.999)


def test_a_few_outliers_side_by_side_do_not_hide_each_other():
    heap = RNG.normal(size=(6, 5)) * 0.1 + 5
    x = np.r_[NORMAL, heap]
    assert roc_auc_score(np.arange(len(x)) >= len(NORMAL), strangeness(fitted(x), x)) > 0.99


def test_columns_with_heavy_tails_are_bent_unless_they_share_a_unit():
    x = np.c_[RNG.normal(size=800), RNG.standard_cauchy(800)]
    assert fitted(x).bent.tolist() == [0, 1]
    assert fitted(x, one_unit=True).bent.tolist() == [0, 0]


def test_shares_are_those_of_the_training_rows_and_grow_beyond_them():
    model = fitted(NORMAL)
    own = model.share(strangeness(model, NORMAL))
    assert np.mean(own < 0.5) == pytest.approx(0.5, abs=0.03)
    assert np.mean(own > 0.9) == pytest.approx(0.1, abs=0.02)
    far = model.share(strangeness(model, np.outer([1, 2, 3, 4], np.full(5, 8.0))))
    assert (far > own.max() - 1e-9).all()
    assert (np.diff(far) > 0).all()
    assert (far < 1).all()


def test_reasons_name_the_column_and_add_up():
    model = fitted(NORMAL)
    odd = np.zeros((2, 5))
    odd[0, 3], odd[1, 1] = 5.0, -7.0
    reasons = model.reasons(torch.from_numpy(odd))
    assert reasons.argmax(1).tolist() == [3, 1]
    assert (reasons.max(1) > 0.8 * reasons.sum(1)).all()
    assert reasons.sum(1) == pytest.approx(strangeness(model, odd), rel=0.35)


def test_what_is_saved_says_the_same():
    model = fitted(NORMAL)
    again = OutlierModel.from_tensors({name: t.clone() for name, t in model.tensors().items()})
    assert np.array_equal(strangeness(again, NORMAL[:50]), strangeness(model, NORMAL[:50]))


def test_rows_that_are_not_finite_are_refused():
    with pytest.raises(DataError, match="not finite"):
        strangeness(fitted(NORMAL), np.full((1, 5), np.inf))


def test_a_fit_tells_outliers_with_reasons(tmp_path):
    """In the units and for the columns of the data, and from a file."""
    x = NORMAL * [1, 10, 100, 1, 1] + 50
    x[:4, 2] += 3000
    model = GEDI(1, random_state=0, max_iter=20).fit(x)
    score = model.outlier_score(x)
    assert set(np.argsort(-score)[:4]) == {0, 1, 2, 3}
    assert (model.outlier_reasons(x[:4]).argmax(1) == 2).all()
    model.save(tmp_path / "model.safetensors")
    assert np.array_equal(GEDI.load(tmp_path / "model.safetensors").outlier_score(x), score)
    without = GEDI(1, method="gedi-no-gen", random_state=0, max_iter=5).fit(x)
    with pytest.raises(UsageError, match="density was learned"):
        without.outlier_reasons(x)


def test_codes_of_gaps_and_categories_are_not_bent():
    gap = (RNG.random(800) < 0.03) * 0.5
    x = np.c_[RNG.normal(size=(800, 4)), gap]
    assert fitted(x).bent[4] == 1
    model = fitted(x, codes=(4,))
    assert model.bent[4] == 0
    odd = np.array([[9.0, 0, 0, 0, 0], [0, 0, 0, 0, 0.5]])
    far, with_gap = strangeness(model, odd)
    assert far > with_gap
