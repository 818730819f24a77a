"""What objectives see of a batch: parts of one forward pass, each computed when it is asked for."""

import pytest
import torch
from step_cases import prepared
from torch import nn

from gedikit.samplers import Samples
from gedikit.training.outputs import BatchOutputs


def outputs(ready, n_views: int = 1, samples: bool = True, state=None):
    """Outputs of a batch whose parts are known."""
    state = ready.new_state() if state is None else state
    generator = torch.Generator().manual_seed(1)
    b, d = 12, ready.x.shape[1]
    x, view, *others = (torch.randn(b, d, generator=generator) for _ in range(2 + max(0, n_views - 1)))
    drawn = Samples(torch.randn(7, d, generator=generator)) if samples else None
    views = (view, *others)[:n_views]
    rows = torch.arange(b)
    step = ready.step
    out = BatchOutputs(state, rows, x, view, views, drawn, step.log_prior, step.held_out, {"swav": True})
    return out, x, view, others


@pytest.mark.parametrize("n_views", [0, 1, 3])
@pytest.mark.parametrize("samples", [True, False])
def test_every_part_of_one_pass_is_what_a_pass_of_its_own_says(n_views, samples):
    ready = prepared()
    out, x, view, others = outputs(ready, n_views, samples)
    network = out._network
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(out.z, network.embed(x), **close)
    torch.testing.assert_close(out.x_logits, network.logits(x), **close)
    torch.testing.assert_close(out.log_p, network.logits(x).log_softmax(-1), **close)
    torch.testing.assert_close(out.view_log_p, network.logits(view).log_softmax(-1), **close)
    torch.testing.assert_close(out.data_log_density, network.log_density(x), **close)
    assert len(out.all_view_z) == len(out.views) == n_views
    for part, points in zip(out.all_view_z, [view, *others], strict=False):
        torch.testing.assert_close(part, network.embed(points), **close)
    if n_views:
        torch.testing.assert_close(out.view_z, network.embed(view), **close)
        torch.testing.assert_close(out.view_logits, network.logits(view), **close)
    if samples:
        torch.testing.assert_close(out.sample_log_density, network.log_density(out.samples.points), **close)
    else:
        assert out.sample_log_density is None


def test_a_density_is_told_its_rows_which_are_held_out_and_what_proposals_were_drawn_from():
    ready = prepared()
    state = ready.new_state()
    x, view = torch.randn(3, 2), torch.randn(3, 2)
    held_out = torch.zeros(80, dtype=torch.bool)
    held_out[[7, 9]] = True
    log_q = torch.tensor([0.5, -1.0])
    rows, log_prior = torch.tensor([9, 2, 7]), ready.step.log_prior
    drawn = Samples(torch.randn(2, 2), log_q)
    out = BatchOutputs(state, rows, x, view, (view,), drawn, log_prior, held_out, {})
    assert torch.equal(out.x, x)
    assert out.held_out.tolist() == [True, False, True]
    assert out.log_q is log_q
    assert out.network is state.network and out.generator is state.generator
    assert BatchOutputs(state, rows, x, view, (view,), None, log_prior, held_out, {}).log_q is None
    assert not ready.step.held_out.any() and ready.step.held_out.shape == (80,), "an energy is checked by no rows"


def test_posteriors_are_normalised_and_carry_gradients():
    out, *_ = outputs(prepared())
    torch.testing.assert_close(out.log_p.exp().sum(-1), torch.ones(12))
    torch.testing.assert_close(out.view_log_p.exp().sum(-1), torch.ones(12))
    (gradient,) = torch.autograd.grad(out.log_p[:, 0].sum(), out._network.centers)
    assert gradient.any()


def test_a_density_of_its_own_sees_data_and_samples_but_no_views():
    ready = prepared("w-mse+contrastive-energy", **{"density.references": 9})
    out, x, _, _ = outputs(ready, 2)
    assert out.log_density.shape == (12 + 7,)
    network = out._network
    torch.testing.assert_close(out.data_log_density, network.log_density(x), rtol=1e-4, atol=1e-4)
    expected = network.log_density(out.samples.points)
    torch.testing.assert_close(out.sample_log_density, expected, rtol=1e-4, atol=1e-4)


def test_the_teacher_is_the_averaged_network_without_gradient():
    ready = prepared("protocpc")
    state = ready.new_state()
    with torch.no_grad():
        state.average_weights.mul_(0.5)
    out, x, _, _ = outputs(ready, samples=False, state=state)
    assert not out.teacher_logits(x).requires_grad
    torch.testing.assert_close(out.teacher_logits(x), state.average.logits(x))
    assert not torch.allclose(out.teacher_logits(x), out.x_logits)


def test_cluster_logits_are_those_of_any_embedding():
    out, *_ = outputs(prepared("swav"), samples=False)
    torch.testing.assert_close(out.cluster_logits(out.z), out.x_logits)
    assert out.temperature == 0.1
    torch.testing.assert_close(out.log_prior.exp(), torch.tensor([0.5, 0.5]))


def test_batch_statistics_are_of_one_view_at_a_time():
    ready = prepared("swav-as-printed")
    state = ready.new_state()
    assert state.network.batch_normalised
    out, x, view, _ = outputs(ready, samples=False, state=state)
    torch.testing.assert_close(out.z, state.network.embed(x))
    torch.testing.assert_close(out.view_z, state.network.embed(view))
    together = state.network.embed(torch.cat([x, view]))[:12]
    assert not torch.allclose(out.z, together, atol=1e-3)


def test_modules_of_objectives_and_phases_are_found_by_name():
    out, *_ = outputs(prepared("cpc"), samples=False)
    critic = out.module("cpc")
    assert isinstance(critic, nn.Module)
    torch.testing.assert_close(critic.weight, torch.eye(6) / 6**0.5)
    assert out.phases == {"swav": True}
    assert out.rows.tolist() == list(range(12))
    with pytest.raises(KeyError):
        out.module("swav")


def test_nothing_is_computed_that_nobody_asks_for():
    out, *_ = outputs(prepared())
    assert not {"_logits", "_log_sum", "_log_p", "log_density"} & vars(out).keys()
    out.log_p  # noqa: B018
    first = vars(out)["_logits"]
    out.data_log_density  # noqa: B018
    assert vars(out)["_logits"] is first, "one pass"
