import sys

import numpy as np
import pytest
import torch

from gedikit.densities.flow import SplineFlow
from gedikit.errors import UsageError


def test_flow_integrates_to_one_and_its_samples_follow_it(generator):
    flow = SplineFlow(1, 2, (16,), generator)
    axis = torch.linspace(-12, 12, 20_001)[:, None]
    with torch.no_grad():
        density = flow.log_prob(axis).exp()
        assert float(density.sum() * (axis[1] - axis[0])) == pytest.approx(1, abs=1e-3)
        samples = flow.sample(20_000, torch.Generator().manual_seed(1))[:, 0].sort().values
        below = torch.cumsum(density, 0) * (axis[1] - axis[0])
    wanted = np.interp(samples.numpy(), axis[:, 0].numpy(), below.numpy())
    assert np.abs(wanted - np.linspace(0, 1, len(wanted))).max() < 0.02  # Kolmogorov–Smirnov


def test_the_same_seed_gives_the_same_flow_and_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    flows = [SplineFlow(2, 2, (8,), torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(before, torch.get_rng_state())
    for a, b in zip(*(f.parameters() for f in flows), strict=True):
        assert torch.equal(a, b)


def test_a_missing_library_is_named(generator, monkeypatch):
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(UsageError, match=r"pip install 'gedikit\[flow\]'"):
        SplineFlow(2, 2, (8,), generator)
