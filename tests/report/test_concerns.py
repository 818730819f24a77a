"""Pictures of what a verdict is about."""

import dataclasses

import numpy as np
import pytest

from gedikit.report import render
from gedikit.report.charts import Directions
from gedikit.training.islands import CUT_ISLAND, SEVERAL_ISLANDS, Concern

APART = 60  # rows of the smaller island


@pytest.fixture(scope="module")
def one_cluster(report_of):
    """Two islands in four columns, far apart in the third, that were asked to be one cluster."""
    x = np.random.default_rng(0).normal(size=(200, 4))
    x[-APART:, 2] += 30
    return report_of(x, n_clusters=1)


def with_concerns(data, *concerns):
    return dataclasses.replace(data, diagnosis=dataclasses.replace(data.diagnosis, concerns=concerns), history=[])


def section(html):
    return html.split('<section id="concerns">')[1].split("</section>")[0]


def test_an_island_is_shown_with_what_sets_it_apart(one_cluster):
    rows = tuple(range(200 - APART, 200 - APART + 24))
    data = with_concerns(one_cluster, Concern(SEVERAL_ISLANDS, (0,), True, 9.0, 0.3, rows))
    html = section(render(data))
    assert "Cluster 0: several islands?" in html and "has 30% of all rows" in html
    assert "Compared with the rest of the cluster: x2 higher (median" in html
    assert html.count("<img ") == 1 and "signs of it are weak" not in html


def test_weak_signs_are_called_weak_and_come_last(one_cluster):
    weak = Concern(CUT_ISLAND, (0, 0), False, 0.1, 0.5, (1, 2))
    sure = Concern(SEVERAL_ISLANDS, (0,), True, 9.0, 0.1, (3, 4))
    html = section(render(with_concerns(one_cluster, weak, sure)))
    assert html.index("several islands?") < html.index("one island?") < html.index("signs of it are weak")


def test_rows_that_were_not_looked_at_are_not_circled(one_cluster):
    concern = Concern(SEVERAL_ISLANDS, (0,), True, 9.0, 0.3, (1, 2))
    other = dataclasses.replace(with_concerns(one_cluster, concern), x=one_cluster.x + 1)
    assert 'id="concerns"' not in render(other)
    assert 'id="concerns"' not in render(with_concerns(one_cluster))


def test_the_first_direction_leads_from_some_rows_to_the_others(one_cluster):
    here, there = one_cluster.x[:-APART], one_cluster.x[-APART:]
    seen = Directions.between(one_cluster.fitted, here, there)
    np.testing.assert_allclose(seen.directions @ seen.directions.T, np.eye(2), atol=1e-9)
    assert abs(seen.directions[0, 2]) > 0.95
    assert seen.points(here)[:, 0].max() < seen.points(there)[:, 0].min()
