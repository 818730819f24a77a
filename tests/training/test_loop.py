import itertools

import pytest
import torch

from gedikit import GEDI
from gedikit.data.toy import moons
from gedikit.methods import methods
from gedikit.model import frozen
from gedikit.objectives import objectives
from gedikit.training.loop import History
from gedikit.training.state import flatten

WITHOUT_EXAMPLES = [m.name for m in methods.values() if not m.needs_examples and "-as-printed" not in m.name]


def test_history_keeps_evenly_spaced_rows_in_bounded_memory():
    history = History()
    for i in range(10_000):
        history.add({"iteration": i})
    kept = [row["iteration"] for row in history.rows]
    assert len(kept) < 1024
    assert kept[0] == 0
    assert {b - a for a, b in itertools.pairwise(kept)} == {16}


def test_parameters_are_views_of_the_flat_weights():
    network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    x = torch.randn(4, 2)
    before = network(x)
    flat = flatten(network)
    assert torch.equal(network(x), before)
    with torch.no_grad():
        flat.zero_()
    assert (network(x) == 0).all()


def test_freezing_is_undone_even_after_an_error():
    network = torch.nn.Linear(2, 2)
    with pytest.raises(RuntimeError), frozen(network):
        assert not any(p.requires_grad for p in network.parameters())
        raise RuntimeError
    assert all(p.requires_grad for p in network.parameters())


@pytest.mark.parametrize("name", WITHOUT_EXAMPLES)
def test_every_method_reports_exactly_its_terms(name):
    """Where invariance and prior are minimised together, so are pseudo-labels of the starting partition."""
    model = GEDI(2, method=name, max_iter=40, random_state=0, config={"execution.log_every": 1})
    model.fit(moons(100, 0)[0])
    seen = {key for row in model.history_ for key in row} & {"generative", *objectives}
    aligned = any({"invariance", "prior"} <= {*stage.terms} for stage in methods[name].stages)
    assert seen == {*methods[name].terms, *(["pseudo-labels"] if aligned else [])} == {*model.plan_.terms}
    assert aligned == (name in ("gedi", "gedi-no-gen", "gedi-two-stage"))


@pytest.mark.parametrize("name", ["gedi", "gedi-no-gen", "gedi-two-stage"])
def test_with_a_uniform_prior_a_method_has_its_own_terms_only(name):
    config = {"execution.log_every": 1}
    model = GEDI(2, method=name, prior="uniform", max_iter=40, random_state=0, config=config)
    model.fit(moons(100, 0)[0])
    assert {key for row in model.history_ for key in row} & {"generative", *objectives} == {*methods[name].terms}


def test_training_leaves_the_number_of_threads_as_it_was():
    torch.set_num_threads(2)
    try:
        GEDI(2, max_iter=2, random_state=0).fit(moons(50, 0)[0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
