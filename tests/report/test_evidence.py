"""What the page says about how else the rows could be divided."""

import re

import numpy as np
import pytest
from sklearn.datasets import make_moons

from gedikit import GEDI
from gedikit.groups import Rivals
from gedikit.groups.rivals import NumberEvidence
from gedikit.report import plots


@pytest.fixture(scope="module")
def found():
    r = np.random.default_rng(0)
    x = np.concatenate([r.normal(size=(n, 4)) + centre for n, centre in ((90, 0), (60, 12), (30, -12))])
    return GEDI(max_iter=10, random_state=0, device="cpu").fit(x)


def section(model, tmp_path):
    model.report(tmp_path / "page.html")
    return (tmp_path / "page.html").read_text().split('<section id="evidence">')[1].split("</section>")[0]


def test_the_number_that_was_looked_for_is_shown_with_its_evidence(found, tmp_path):
    html = section(found, tmp_path)
    kept = Rivals.from_tree(found.fitted_.info["rivals"])
    assert found.fitted_.n_clusters == kept.number.chosen == 3
    assert "3 are parted by gaps that count" in html
    assert f"The next candidate would be {kept.number.runner_up}." in html
    assert "How many clusters" in html


def test_the_evidence_is_saved_with_the_model(found, tmp_path):
    found.save(tmp_path / "model.safetensors")
    again = GEDI.load(tmp_path / "model.safetensors", device="cpu")
    kept = [Rivals.from_tree(model.fitted_.info["rivals"]) for model in (found, again)]
    assert kept[0] == kept[1]


def test_the_partition_that_came_second_is_shown(tmp_path):
    x, _ = make_moons(200, noise=0.05, random_state=0)
    model = GEDI(2, max_iter=5, random_state=0, device="cpu").fit(x)
    html = section(model, tmp_path)
    second = Rivals.from_tree(model.fitted_.info["rivals"]).second
    assert "There are as many clusters as were asked for: 2." in html and "How many clusters" not in html
    assert f"The best different one ({second.name})" in html and "The partition that came second" in html
    table = html.split("Rows in both partitions")[1].split("<tbody>")[1].split("</tbody>")[0]
    shown = [int(n) for line in table.split("</tr>") for n in re.findall(r">(\d+)</td>", line)[1:]]
    assert sum(shown) == 200 and sorted(shown) == sorted(n for line in second.table for n in line if n)


def test_bars_end_at_the_depth_of_their_dip():
    ax = plots.number_curve(NumberEvidence(3, 4, 6.0, {2: 99.0, 3: 7.5, 4: 5.0}))
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == [18.0, 7.5, 5.0], "a dip to the ground is as high as the axis"
    assert len({bar.get_facecolor() for bar in ax.patches[:2]}) == 1
    assert ax.patches[2].get_facecolor() != ax.patches[1].get_facecolor()
    assert ax.get_lines()[0].get_ydata()[0] == 6.0
    assert [text.get_text() for text in ax.texts] == [">18", "7.5", "5.0", "counts from 6"]


def test_one_group_has_no_bars():
    assert not plots.number_curve(NumberEvidence(1, 2, 6.0, {})).patches


def test_the_evidence_does_not_depend_on_how_the_fit_came_about(found):
    x = found.fitted_.training_rows
    with_shares = GEDI(max_iter=10, prior=[0.5, 0.3, 0.2], random_state=0, device="cpu").fit(x)
    resumed = GEDI(device="cpu").fit_planned(found.plan_, x)
    numbers = [model.fitted_.info["rivals"]["number"] for model in (found, with_shares, resumed)]
    assert numbers[0] == numbers[1] == numbers[2] and numbers[0] is not None
