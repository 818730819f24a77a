"""Clusters that rules give their names."""

import numpy as np
import pytest
import torch

from gedikit import GEDI
from gedikit.errors import DataError, UsageError
from gedikit.symbolic import Constraint
from gedikit.training.rules import Rules

SUM = Constraint(lambda a, b, c: a + b == c, domains=(3, 3, 3))
ALLOWED = np.array([(a, b, a + b) for a in range(3) for b in range(3 - a)])
OPTIONS = {"batch_size": 60, "negatives": 100, "bank": 2000, "hidden": (32, 32), "features": 16}
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds, the middle one of which is the 2: where they lie says nothing about their names."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    centers = np.array([[-4.0, 0.0], [4.0, 1.0], [0.0, 0.0]])
    return centers[labels] + rng.normal(scale=0.4, size=(n, 2)), labels


def sums(labels: np.ndarray, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    wanted = ALLOWED[rng.integers(len(ALLOWED), size=n)]
    rows = [[rng.choice(np.flatnonzero(labels == d)) for d in example] for example in wanted]
    kept = [row for row in rows if len(set(row)) == 3]
    return np.array(kept)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("device", DEVICES)
def test_clusters_get_the_names_that_satisfy_the_rule(seed, device):
    x, labels = blobs(300, seed)
    model = GEDI(3, method="gedi-symbols", max_iter=300, random_state=seed, device=device, options=OPTIONS)
    model.fit_examples(x, SUM, sums(labels, 200, seed))
    assert np.mean(model.predict(x) == labels) > 0.98
    last = model.history_[-1]
    assert last["constraint"] < 0.1
    assert {"generative", "invariance", "prior", "constraint"} <= set(last)


def test_the_rule_alone_is_satisfied_by_zero_for_everything():
    x, labels = blobs(300, 0)
    model = GEDI(3, method="nesy", max_iter=300, random_state=0, options=OPTIONS)
    model.fit_examples(x, SUM, sums(labels, 200, 0))
    assert model.history_[-1]["constraint"] < 0.1  # satisfied
    assert model.diagnose(x).numbers["largest_cluster"] > 0.3  # whatever it means


def test_rows_of_an_example_stay_together():
    from gedikit.methods import get_method
    from gedikit.training.fit import prepare

    x, labels = blobs(300, 0)
    examples = sums(labels, 100, 0)
    method = get_method("gedi-symbols")
    ready = prepare(x, method, method.settings(**OPTIONS), n_clusters=3, rules=Rules(SUM, examples), device="cpu")
    state = ready.new_state()
    rows = ready.step.views.batch(60, 0, 0, state.generator)[0].reshape(-1, 3).numpy()
    known = {tuple(example) for example in examples}
    assert len(rows) == 20
    assert all(tuple(row) in known for row in rows)


@pytest.mark.parametrize(
    ("method", "examples", "options", "error", "words"),
    [
        ("gedi", [[0, 1, 2]], {}, UsageError, "'gedi' has no term for rules"),
        ("nesy", [[0, 1]], {}, UsageError, "one number for each of a, b, c"),
        ("nesy", [[0, 1, 300]], {}, DataError, "rows from 0 to 299, not 300"),
        ("nesy", [[0, 1, 1]], {}, DataError, "the same row twice"),
    ],
)
def test_wrong_rules_are_a_sentence(method, examples, options, error, words):
    x, _ = blobs(300, 0)
    with pytest.raises(error, match=words):
        GEDI(3, method=method, max_iter=2, options={**OPTIONS, **options}).fit_examples(x, SUM, examples)


def test_batches_hold_whole_examples():
    x, labels = blobs(300, 0)
    model = GEDI(3, method="nesy", max_iter=3, options={**OPTIONS, "batch_size": 64})
    model.fit_examples(x, SUM, sums(labels, 200, 0))
    assert model.fitted_.settings.batch_size == 63
    rules = Rules(SUM, sums(labels, 5, 0))
    assert [rules.whole(size) for size in (1, 3, 400)] == [3, 3, 399]


def test_values_that_never_occur_keep_a_trace_of_the_prior():
    even = Constraint(lambda a, b: a == b and a != 2, domains=(3, 3))
    prior = Rules(even, np.array([[0, 1]])).prior()
    assert prior[2] < 1e-3 and prior[0] == prior[1] and prior.sum() == pytest.approx(1)


def test_a_method_that_learns_from_rules_needs_some():
    with pytest.raises(UsageError, match="give a constraint and examples"):
        GEDI(3, method="gedi-symbols", max_iter=2).fit(blobs(50, 0)[0])


def test_variables_with_other_values_are_refused():
    x, _ = blobs(30, 0)
    mixed = Constraint(lambda a, b: a != b, domains=(["x", "y", "z"], ["u", "v", "w"]))
    with pytest.raises(UsageError, match="different values"):
        GEDI(3, method="nesy", max_iter=1).fit_examples(x, mixed, [[0, 1]])


def test_clusters_and_values_must_be_as_many():
    with pytest.raises(UsageError, match="a has 3 values and the model 4 clusters"):
        GEDI(4, method="nesy", max_iter=2, options=OPTIONS).fit_examples(blobs(50, 0)[0], SUM, [[0, 1, 2]])
