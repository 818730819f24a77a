import math

import numpy as np
import pytest
from scipy.stats import energy_distance as energy_distance_1d
from scipy.stats import multivariate_normal

from gedikit.errors import DataError, UsageError
from gedikit.evaluation import (
    batch_mean_nmi,
    best_kde,
    clustering_accuracy,
    clustering_metrics,
    energy_distance,
    grid_log_normaliser,
)


def test_accuracy_finds_the_best_naming():
    y = np.array([0, 0, 1, 1, 2, 2])
    assert clustering_accuracy(y, np.array([2, 2, 0, 0, 1, 0])) == pytest.approx(5 / 6)
    assert clustering_accuracy(y, np.zeros(6, int)) == pytest.approx(1 / 3)
    assert clustering_accuracy(y, np.arange(6)) == pytest.approx(3 / 6)


def test_figures_carry_value_and_protocol():
    y = np.repeat([0, 1], 50)
    figures = {f.name: f for f in clustering_metrics(y, 1 - y, "test", labels_by="hand")}
    assert [figures[k].value for k in ("nmi", "ami", "ari", "acc")] == pytest.approx([1, 1, 1, 1])
    assert figures["nmi"].protocol["n"] == 100
    assert figures["nmi"].protocol["split"] == "test"
    with pytest.raises(DataError, match="100 labels do not fit 3 rows"):
        clustering_metrics(y, y[:3], "test", labels_by="hand")


def test_single_cluster_has_no_information():
    figures = {
        f.name: f.value for f in clustering_metrics(np.arange(6) % 2, np.zeros(6, int), "all", labels_by="hand")
    }
    assert figures["nmi"] == 0.0


def test_batch_mean_nmi_is_high_by_chance_and_says_so():
    rng = np.random.default_rng(0)
    labels, clusters = rng.integers(100, size=(2, 10_050))
    figure = batch_mean_nmi(labels, clusters, 100, "test", 0)
    assert figure.value == pytest.approx(0.86, abs=0.01)
    [full] = (f.value for f in clustering_metrics(labels, clusters, "test", labels_by="hand") if f.name == "nmi")
    assert full < 0.15
    assert figure.name == "nmi_batch_mean"
    assert figure.protocol["computed_on"] == "100 batches of 100 rows, shuffled"
    assert (figure.protocol["n"], figure.protocol["split"]) == (10_000, "test")
    assert "only values averaged over batches of this size" in figure.protocol["comparable_with"]


def test_batch_mean_nmi_over_one_batch_is_the_nmi_and_shuffles_sorted_labels():
    labels = np.repeat([0, 1, 2, 3], 100)
    clusters = np.where(labels < 2, 0, 1)
    figures = {f.name: f.value for f in clustering_metrics(labels, clusters, "test", labels_by="hand")}
    assert batch_mean_nmi(labels, clusters, 400, "test", 3).value == pytest.approx(figures["nmi"])
    # in order, half of the batches would hold a single class and count as perfect
    assert batch_mean_nmi(labels, clusters, 50, "test", 3).value == pytest.approx(figures["nmi"], abs=0.02)
    with pytest.raises(UsageError, match="400 rows do not fill a batch of 401"):
        batch_mean_nmi(labels, clusters, 401, "test", 0)
    with pytest.raises(DataError, match="400 labels do not fit 3 rows"):
        batch_mean_nmi(labels, clusters[:3], 50, "test", 0)


def test_quadrature_of_a_gaussian():
    normal = multivariate_normal([0.3, -0.2], [[0.04, 0.01], [0.01, 0.09]])
    low, high = np.array([-3.0, -3.0]), np.array([3.0, 3.0])
    assert grid_log_normaliser(lambda x: normal.logpdf(x) + 5, low, high) == pytest.approx(5.0, abs=1e-6)
    with pytest.raises(UsageError, match="not 3"):
        grid_log_normaliser(lambda x: x[:, 0], np.zeros(3), np.ones(3))


def test_energy_distance_in_one_dimension_agrees_with_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(300, 1)), rng.normal(0.5, 1, size=(400, 1))
    assert energy_distance(a, b) == pytest.approx(energy_distance_1d(a[:, 0], b[:, 0]) ** 2, rel=1e-9)
    assert energy_distance(a, a) == pytest.approx(0.0, abs=1e-12)


def test_best_kde_is_best_on_the_test_data():
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(500, 2)), rng.normal(size=(500, 2))
    kde, value = best_kde(train, test)
    entropy = math.log(2 * math.pi * math.e)
    assert -entropy - 0.1 < value < -entropy + 0.1
    for factor in (0.7, 1.4):
        other = type(kde)(bandwidth=kde.bandwidth * factor).fit(train)
        assert other.score_samples(test).mean() <= value
