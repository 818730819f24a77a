"""Build each failure, and see that it is told apart from the others."""

import copy
import dataclasses
import re

import pytest
import torch

from gedikit.config import EXECUTION, OBJECTIVES, SECTIONS, all_settings
from gedikit.diagnosis import _ADVICE, diagnose


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
        fitted.network.encoder = torch.nn.Sequential(fitted.network.encoder, torch.nn.Softplus())
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
    c = fitted.network.centers
    third = torch.nn.Parameter(torch.cat([c, c.mean(1, keepdim=True) - 0.2 * c.abs().sum(1, keepdim=True)], 1))
    fitted.network.centers = third
    fitted.plan = dataclasses.replace(fitted.plan, n_clusters=3, prior=(1 / 3,) * 3)
    assert diagnose(fitted, x).numbers["least_used_cluster"] < 0.1
    assert diagnose(fitted, x).verdict == "unused clusters"


def test_a_density_that_was_not_learned(broken):
    result = diagnose(*broken, {"energy_gap": 31.0, "generative": 2.0, "prior": 1.0})
    assert result.verdict == "density not learned"
    assert result.numbers["training_energy_gap"] == 31.0
    assert "training_prior" not in result.numbers
    assert diagnose(*broken, {"energy_gap": 0.1, "acceptance": 0.01}).verdict == "density not learned"


def test_advice_names_settings_that_there_are():
    known = {f"{place}.{name}" for place, name in all_settings()}
    sections = "|".join((*SECTIONS, EXECUTION, OBJECTIVES))
    named = {
        name for text in _ADVICE.values() for name in re.findall(rf"\b(?:{sections})\.[a-z0-9_.-]*[a-z0-9]", text)
    }
    assert named
    assert named <= known


def test_a_diagnosis_reads_as_text_and_as_a_table(broken):
    result = diagnose(*broken)
    assert str(result).startswith("healthy: the clusters carry")
    assert result.as_dict()["numbers"] == result.numbers
    assert set(result.as_dict()) == {"verdict", "explanation", "advice", "numbers"}
