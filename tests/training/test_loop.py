import itertools

import pytest
import torch

from gedikit import GEDI
from gedikit.data.toy import moons
from gedikit.methods import METHODS, Method, Stage
from gedikit.model import frozen
from gedikit.training.loop import History
from gedikit.training.state import flatten
from gedikit.training.step import learning_rate
from gedikit.training.terms import TERMS


def test_history_keeps_evenly_spaced_rows_in_bounded_memory():
    history = History()
    for i in range(10_000):
        history.add({"iteration": i})
    kept = [row["iteration"] for row in history.rows]
    assert len(kept) < 1024
    assert kept[0] == 0
    assert {b - a for a, b in itertools.pairwise(kept)} == {16}


def test_learning_rate_warms_up_stays_and_decays():
    s = METHODS["gedi"].settings(iterations=1000, warmup=100, decay_from=0.5, decay_to=0.01, learning_rate=2.0)
    assert learning_rate(s, 0) == pytest.approx(0.02)
    assert learning_rate(s, 49) == pytest.approx(1.0)
    assert learning_rate(s, 300) == 2.0
    assert learning_rate(s, 750) == pytest.approx(0.2)
    assert learning_rate(s, 1000) == pytest.approx(0.02)


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


def test_stages_follow_each_other():
    method = Method("m", "", (Stage(0.25, ("generative",)), Stage(1, ("prior",))), "")
    assert [method.terms_at(p) for p in (0.0, 0.2, 0.25, 0.99, 1.0)] == [("generative",)] * 2 + [("prior",)] * 3
    assert method.terms == ("generative", "prior")


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.needs_rules])
def test_every_method_reports_exactly_its_terms(name):
    model = GEDI(2, method=name, max_iter=40, random_state=0, options={"log_every": 1}).fit(moons(100, 0)[0])
    seen = {key for row in model.history_ for key in row} & {"generative", *TERMS}
    assert seen == set(METHODS[name].terms)


def test_training_leaves_the_number_of_threads_as_it_was():
    torch.set_num_threads(2)
    try:
        GEDI(2, max_iter=2, random_state=0).fit(moons(50, 0)[0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
