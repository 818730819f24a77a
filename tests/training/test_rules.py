"""Clusters that rules give their names."""

import numpy as np
import pytest
import torch

from gedikit import GEDI
from gedikit.config import Execution
from gedikit.errors import DataError, UsageError
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.symbolic import Constraint
from gedikit.training.fit import prepare
from gedikit.training.rules import Rules
from gedikit.training.step import _Training

SUM = Constraint(lambda a, b, c: a + b == c, domains=(3, 3, 3))
ALLOWED = np.array([(a, b, a + b) for a in range(3) for b in range(3 - a)])
ALONE = {"optimiser.batch_size": 60, "encoder.hidden": (32, 32), "encoder.features": 16}
CONFIG = {**ALONE, "sampler.samples": 100, "sampler.bank": 2000}
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
    model = GEDI(3, method="gedi-symbols", max_iter=300, random_state=seed, device=device, config=CONFIG)
    model.fit_examples(x, SUM, sums(labels, 200, seed))
    assert np.mean(model.predict(x) == labels) > 0.98
    last = model.history_[-1]
    assert last["constraint"] < 0.1
    assert {"generative", "invariance", "prior", "constraint"} <= set(last)


def test_the_rule_alone_is_satisfied_by_zero_for_everything():
    x, labels = blobs(300, 0)
    model = GEDI(3, method="nesy", max_iter=300, random_state=0, config=ALONE)
    model.fit_examples(x, SUM, sums(labels, 200, 0))
    assert model.history_[-1]["constraint"] < 0.1  # satisfied
    assert model.diagnose(x).numbers["largest_cluster"] > 0.95  # whatever it means


def prepared(constraint: Constraint, n_clusters: int, examples: np.ndarray, x: np.ndarray, **changes):
    rules = Rules.of(constraint, examples)
    asked = Asked(n_clusters, "gedi-symbols", config={**CONFIG, **changes}, examples=rules.profile())
    return prepare(plan(DataProfile.of(x), asked), x, execution=Execution(device="cpu"), rules=rules)


def test_the_optimum_of_a_weighted_rule_is_the_best_it_can_be():
    x, labels = blobs(300, 0)
    weighted = Constraint.from_table(ALLOWED, (3, 3, 3), weights=[0.8] * len(ALLOWED))
    ready = prepared(weighted, 3, sums(labels, 50, 0), x)
    assert ready.optima["constraint"] == pytest.approx(-np.log(0.8))


def test_rows_of_an_example_stay_together():
    x, labels = blobs(300, 0)
    examples = sums(labels, 100, 0)
    ready = prepared(SUM, 3, examples, x)
    state = ready.new_state()
    rows = ready.step.views.batch(60, 0, 0, state.generator)[0].reshape(-1, 3).numpy()
    known = {tuple(example) for example in examples}
    assert len(rows) == 20
    assert all(tuple(row) in known for row in rows)


@pytest.mark.parametrize(
    ("method", "examples", "error", "words"),
    [
        ("gedi", [[0, 1, 2]], UsageError, "'gedi' has no objective for rules: use one of nesy, gedi-nesy,"),
        ("nesy", [[0, 1]], UsageError, "one number for each of a, b, c"),
        ("nesy", [[0, 1, 300]], DataError, "row 0 of examples names row 300 for c: X has rows from 0 to 299"),
        ("nesy", [[0, 1, 2], [0, -2, 2]], DataError, "row 1 of examples names row -2 for b"),
        ("nesy", [[0, 1, 2], [-1, -1, -1]], DataError, "row 1 of examples has no image"),
        ("nesy", [[0.9, 1.9, 2.9]], UsageError, "type float64: give whole numbers"),
        ("nesy", [[0, 1, 2], [3, 4]], UsageError, "rows of different lengths"),
        ("nesy", [["a", "b", "c"]], UsageError, "give whole numbers"),
    ],
)
def test_wrong_rules_are_a_sentence(method, examples, error, words):
    x, _ = blobs(300, 0)
    with pytest.raises(error, match=words):
        GEDI(3, method=method, max_iter=2, config=ALONE).fit_examples(x, SUM, examples)


def test_a_function_is_no_constraint_yet():
    with pytest.raises(UsageError, match="constraint is a function: state it as a Constraint"):
        GEDI(3, method="nesy").fit_examples(blobs(50, 0)[0], lambda a, b: a == b, [[0, 1]])


def test_clusters_that_never_occur_do_not_keep_the_others_from_their_names():
    """3 and 4 could exchange their names at will: the best two namings are equally good."""
    wide = Constraint(lambda a, b, c: a + b == c and c < 3, domains=(5, 5, 5))
    x, labels = blobs(300, 0)
    ready = prepared(wide, 5, sums(labels, 200, 0), x, **{"optimiser.iterations": 150})
    state = ready.new_state()
    for _ in range(150):
        ready.step(state)
    kept = {name: tensor.clone() for name, tensor in state.tensors().items()}
    state.exchange_clusters(torch.tensor([1, 2, 0, 3, 4]))
    moved = [name for name, tensor in state.tensors().items() if not torch.equal(tensor, kept[name])]
    assert moved == ["weights", "average_weights", "optimiser.exp_avg", "optimiser.exp_avg_sq"]
    objective, training = ready.step.objectives["constraint"], _Training(state, ready.views)
    objective.refresh(training, {})
    assert "exchanged their names" in state.events[-1]
    for name, tensor in state.tensors().items():
        assert torch.equal(tensor, kept[name]), name
    before = len(state.events)
    objective.refresh(training, {})
    assert len(state.events) == before  # nothing is better than what is right


def test_epochs_go_through_all_examples_however_few_rows_they_share():
    x, labels = blobs(60, 0)
    examples = sums(labels, 900, 0)
    ready = prepared(SUM, 3, examples, x, **{"optimiser.epochs": 10, "optimiser.batch_size": 400})
    optimiser = ready.plan.config.optimiser
    assert optimiser.batch_size == 399
    assert optimiser.iterations == 10 * (examples.size // 399)
    state = ready.new_state()
    assert len(ready.step.views.batch(optimiser.batch_size, 0, 0, state.generator)[0]) == 399


def test_clusters_stand_for_values_which_a_file_keeps(tmp_path):
    names = Constraint(lambda a, b, c: a + b == c + 1, domains=((1, 2, 3),) * 3, names="abc")
    x, labels = blobs(300, 0)
    model = GEDI(3, method="gedi-symbols", max_iter=200, random_state=0, config=CONFIG)
    with pytest.raises(AttributeError, match="after fit_examples"):
        GEDI(3, max_iter=2, config=CONFIG).fit(x).values_  # noqa: B018
    model.fit_examples(x, names, sums(labels, 200, 0))
    model.save(tmp_path / "model.safetensors")
    again = GEDI.load(tmp_path / "model.safetensors")
    assert np.mean(again.values_[again.predict(x)] == labels + 1) > 0.98


def test_a_fit_to_examples_can_be_watched(capfd):
    x, labels = blobs(100, 0)
    GEDI(3, method="nesy", max_iter=5, verbose=1, config=ALONE).fit_examples(x, SUM, sums(labels, 20, 0))
    assert "5/5" in capfd.readouterr().err


def test_batches_hold_whole_examples():
    x, labels = blobs(300, 0)
    examples = sums(labels, 200, 0)
    model = GEDI(3, method="nesy", max_iter=3, config={**ALONE, "optimiser.batch_size": 64})
    model.fit_examples(x, SUM, examples)
    assert model.plan_.config.optimiser.batch_size == 63
    profile = Rules.of(SUM, examples).profile()
    for size, whole in ((1, 3), (3, 3), (400, 399)):
        asked = Asked(3, "nesy", config={"optimiser.batch_size": size}, examples=profile)
        assert plan(DataProfile.of(x), asked).config.optimiser.batch_size == whole


def test_values_that_never_occur_keep_a_trace_of_the_prior():
    even = Constraint(lambda a, b: a == b and a != 2, domains=(3, 3))
    prior = Rules.of(even, np.array([[0, 1]])).prior()
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
        GEDI(4, method="nesy", max_iter=2, config=ALONE).fit_examples(blobs(50, 0)[0], SUM, [[0, 1, 2]])
