"""Build each failure, and see that it is told apart from the others."""

import copy
import dataclasses
import re

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from gedikit import GEDI
from gedikit.config import EXECUTION, OBJECTIVES, SECTIONS, all_settings
from gedikit.diagnosis import _ADVICE, diagnose
from gedikit.planning import ASKED, Decision
from gedikit.training.islands import Concern


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
    assert set(result.as_dict()) == {"verdict", "explanation", "advice", "numbers", "concerns"}


def told(broken, *concerns, **numbers):
    """A diagnosis of a healthy fit about which this was found."""
    fitted, x = broken
    fitted.info["concerns"] = [concern.tree() for concern in concerns]
    fitted.info["evidence"] = {**fitted.info["evidence"], **numbers}
    return diagnose(fitted, x)


def islands(cluster=0, sure=True, share=0.2):
    return Concern("several islands", (cluster,), sure, 9.0, share, (1, 2))


def cut(sure=True):
    return Concern("cut island", (0, 1), sure, 0.7, 0.4, (3, 4))


@pytest.mark.parametrize(
    ("concerns", "verdict", "word"),
    [
        ([islands()], "too few clusters", "cluster 0 is several islands, one with 20.0% of the rows"),
        ([cut()], "too many clusters", "clusters 0 and 1 are one island"),
        ([islands(), cut()], "clusters across groups", "several islands"),
        (
            [Concern("outliers", (1,), True, 1.0, 0.01, (7,))],
            "a cluster of outliers",
            r"cluster 1 \(1.0% of the rows",
        ),
        ([islands(sure=False)], "uncertain", "cluster 0 may be several islands"),
        ([cut(sure=False)], "uncertain", "clusters 0 and 1 may be one island"),
        ([islands(sure=False, share=0.005)], "healthy", "carry"),
    ],
)
def test_clusters_are_held_against_islands(broken, concerns, verdict, word):
    result = told(broken, *concerns, agreement_with_islands=0.6, start_agreement=0.59)
    if verdict in ("healthy", "uncertain"):
        result = told(broken, *concerns, agreement_with_islands=0.6, start_agreement=0.7)
    assert result.verdict == verdict
    assert re.search(word, result.explanation)
    assert result.concerns == tuple(concerns)


@pytest.mark.parametrize(
    ("agreement", "islands", "verdict"),
    [(0.5, 2.0, "too many clusters"), (0.7, 2.0, "uncertain"), (0.9, 1.0, "uncertain"), (0.9, 2.0, "healthy")],
)
def test_a_cut_that_other_methods_make_too_is_less_of_a_failure(broken, agreement, islands, verdict):
    """Groups that touch are cut by all; where one group is cut in two, each method does it elsewhere."""
    result = told(broken, cut(), agreement_with_islands=0.6, start_agreement=agreement, islands=islands)
    assert result.verdict == verdict
    assert result.concerns == (cut(),)


def test_groups_that_touch_may_be_one_and_nobody_knows(broken):
    result = told(broken, cut(), agreement_with_islands=0.0, islands=1.0)
    assert result.verdict == "uncertain"
    assert "may be a single group, or groups that touch" in result.explanation


def test_what_concerns_few_rows_is_shown_and_not_held_against_a_fit(broken):
    result = told(broken, islands(), agreement_with_islands=0.97)
    assert result.verdict == "healthy"
    assert result.concerns[0].rows == (1, 2)


def test_shares_that_were_asked_for_are_blamed_where_clusters_have_them(broken):
    fitted, _ = broken
    asked = Decision("prior", "uniform", ASKED)
    fitted.plan = dataclasses.replace(fitted.plan, shares="uniform", prior=(0.5, 0.5), decisions=(asked,))
    assert told(broken, cut(), agreement_with_islands=0.6).verdict == "shares pinned to the prior"
    fitted.training_labels = np.repeat([0, 1], [300, 100])
    assert told(broken, cut(), agreement_with_islands=0.6).verdict == "too many clusters"
    fitted.plan = dataclasses.replace(fitted.plan, decisions=())
    assert told(broken, cut(), agreement_with_islands=0.6, start_agreement=0.0).verdict == "uncertain"


def test_the_runner_up_is_named_where_the_number_is_close(broken):
    result = told(broken, number_margin=0.05, other_number=3.0)
    assert result.verdict == "uncertain"
    assert "another number of clusters, 3, is about as well founded" in result.explanation
    assert told(broken, number_margin=0.4, other_number=3.0).verdict == "healthy"


def test_a_density_below_one_gaussian_is_not_learned(broken):
    result = told(broken, gain_over_gaussian=-0.5, gain_error=0.1)
    assert result.verdict == "density not learned"
    assert "by 0.5 nats a row" in result.explanation
    assert told(broken, gain_over_gaussian=-0.01, gain_error=0.0).verdict == "healthy"
    assert told(broken, gain_over_gaussian=-0.5, gain_error=0.3).verdict == "healthy", "within the error"


@pytest.mark.parametrize("method", ["gedi-no-inv", "jem"])
def test_failure_mode_3_is_seen_where_labels_do_not_follow_the_data(method, moons_xy):
    """As in the paper: without invariance a smooth posterior ignores the shapes."""
    model = GEDI(2, method=method, max_iter=150, random_state=1, config={"encoder.hidden": [32]}).fit(moons_xy[0])
    assert adjusted_rand_score(moons_xy[1], model.labels_) < 0.7
    assert not model.diagnose().healthy
    assert model.diagnose().verdict != "uncertain"
