"""Build each failure, and see that it is told apart from the others."""

import copy

import pytest
import torch

from gedikit.diagnosis import diagnose


@pytest.fixture
def broken(fitted_moons):
    """A copy of a healthy model, to be broken; and data it was not trained on."""
    from gedikit.data.toy import moons

    return copy.deepcopy(fitted_moons.fitted_), moons(500, 5)[0]


def test_a_good_fit_is_healthy(broken):
    result = diagnose(*broken)
    assert result.healthy
    assert result.numbers["mutual_information"] == pytest.approx(result.numbers["prior_optimum"], abs=0.03)


def test_representation_collapse(broken):
    fitted, x = broken
    with torch.no_grad():
        fitted.network.centers.zero_()
    assert diagnose(fitted, x).verdict == "representation collapse"


def test_cluster_collapse(broken):
    fitted, x = broken
    with torch.no_grad():  # one logit far above the other, whatever x
        fitted.network.centers[:, 0] = fitted.network.centers.abs().sum(1)
        fitted.network.centers[:, 1] = -fitted.network.centers[:, 0]
        fitted.network.encoder.append(torch.nn.Softplus())
    result = diagnose(fitted, x)
    assert result.verdict == "cluster collapse"
    assert result.numbers["largest_cluster"] > 0.99


def test_the_posterior_ignores_x(broken):
    """Logits a(x) + const: the density varies, the posterior does not."""
    fitted, x = broken
    with torch.no_grad():
        fitted.network.centers[:, 1] = fitted.network.centers[:, 0]
    result = diagnose(fitted, x)
    assert result.verdict == "posterior ignores x"
    assert result.numbers["spread_of_log_density"] > 0.1
    assert result.numbers["mutual_information"] < 1e-3


def test_label_inconsistency(broken):
    """Labels that change within a bandwidth."""
    fitted, x = broken

    class Stripes(torch.nn.Module):
        def forward(self, z):
            wave = 20 * torch.sin(z.sum(-1, keepdim=True) * 20 / fitted.bandwidth)
            return torch.cat([wave, -wave], -1)

    fitted.network.encoder, fitted.network.centers = Stripes(), torch.nn.Parameter(torch.eye(2))
    result = diagnose(fitted, x)
    assert result.verdict == "label inconsistency"
    assert "invariance" in result.advice


def test_unused_clusters(broken):
    """All points of both moons in cluster 0 or 1, a third never used."""
    fitted, x = broken
    import numpy as np

    c = fitted.network.centers
    third = torch.nn.Parameter(torch.cat([c, c.mean(1, keepdim=True) - 0.2 * c.abs().sum(1, keepdim=True)], 1))
    fitted.network.centers, fitted.prior = third, np.full(3, 1 / 3)
    assert diagnose(fitted, x).numbers["least_used_cluster"] < 0.1
    assert diagnose(fitted, x).verdict == "unused clusters"
