"""The page: self-contained, complete for each kind of data, and safe with any name."""

import dataclasses
import re

import numpy as np
import pytest
from markupsafe import escape
from sklearn.datasets import load_iris, make_moons

from gedikit.config import Config
from gedikit.diagnosis import Diagnosis
from gedikit.report import charts, plots, render
from gedikit.report.charts import Drawing
from gedikit.report.findings import find, plotted_rows
from gedikit.report.plane import Plane
from gedikit.report.style import png_uri

CURVES = 4  # invariance, prior, pseudo-labels, mutual information
OF_DENSITY = 1  # generative
OF_SAMPLER = 2  # energy gap, and one sign of the sampler
OF_ROWS = 2  # where they lie, and how many there are in each cluster
OF_SECOND = 1  # the partition that came second


@pytest.fixture(scope="module")
def moons(report_of):
    x, y = make_moons(200, noise=0.05, random_state=0)
    return report_of(x, y)


@pytest.fixture(scope="module")
def iris(report_of):
    bunch = load_iris()
    columns = ("<b>sepal</b> & $x", "sepal width", "$\\petal", "petal width")
    return report_of(bunch.data, bunch.target_names[bunch.target], 3, columns=columns, title="<i>iris</i>")


@pytest.fixture(scope="module")
def without_density(report_of):
    x, _ = make_moons(200, noise=0.05, random_state=0)
    return report_of(x, method="gedi-no-gen")


_PAGES: dict[int, str] = {}


def page(data):
    """Rendered once for all tests of one module-wide fixture."""
    if id(data) not in _PAGES:
        _PAGES[id(data)] = render(data)
    return _PAGES[id(data)]


def n_images(html):
    """But for those of what a verdict is about."""
    return html.count("<img ") - html.split('id="clusters"')[0].count("<img ")


@pytest.mark.parametrize("name", ["moons", "iris", "without_density"])
def test_nothing_points_outside_the_file(name, request):
    html = page(request.getfixturevalue(name))
    references = re.findall(r'(?:src|href)\s*=\s*["\']?([^"\'> ]+)', html) + re.findall(r"url\(([^)]*)\)", html)
    assert references
    assert all(reference.startswith("data:") for reference in references)
    assert "@import" not in html and "<script" not in html


def test_the_same_model_gives_the_same_page(moons):
    assert render(moons) == page(moons)


def test_plane_page_shows_clusters_density_and_strangest_rows(moons):
    html = page(moons)
    assert n_images(html) == CURVES + OF_DENSITY + OF_SAMPLER + OF_ROWS + OF_SECOND + 1, "and the density"
    assert "Density and generated samples" in html
    log_density = moons.fitted.log_density(moons.x)
    strangest = int(log_density.argmin())
    row = f"<tr><td>{strangest}</td><td>{moons.fitted.labels(moons.x)[strangest]}</td>"
    strange = moons.fitted.outlier_score(moons.x)[strangest]
    assert f"{row}<td>{log_density.min():.2f}</td><td>{strange:.3f}</td>" in html


def test_table_page_shows_projection_sizes_density_and_medians(iris):
    html = page(iris)
    assert n_images(html) == CURVES + OF_DENSITY + OF_ROWS + OF_SECOND + 1, "four columns: no sampler"
    clusters = iris.fitted.labels(iris.x)
    parts = [iris.x[clusters == k, 1] for k in np.unique(clusters)] + [iris.x[:, 1]]
    told = [np.quantile(part, [0.5, 0.25, 0.75], method="inverted_cdf") for part in parts]
    line = re.search(r"<tr><td>sepal width</td>(.*?)</tr>", html).group(1)
    cells = re.findall(r'<td[^>]*>([^<]+)<br><span class="detail">([^<]+)</span></td>', line)
    assert cells == [(f"{m:.4g}", f"{low:.4g} to {high:.4g}") for m, low, high in told]


def test_names_are_escaped(iris):
    html = page(iris)
    assert "<b>sepal" not in html and "<i>iris" not in html
    assert "&lt;b&gt;sepal&lt;/b&gt; &amp; $x" in html and "&lt;i&gt;iris&lt;/i&gt;" in html


def test_column_names_are_no_formulas_in_figures(moons):
    columns = ("price in $ or $\\alpha", "$\\bad{")
    ax = Plane(moons.fitted, columns).clusters(moons.x, np.zeros(len(moons.x), dtype=int))
    assert png_uri(ax).startswith("data:image/png;base64,")
    assert ax.get_xlabel() == columns[0]


def test_verdict_figures_and_events_are_told(moons):
    moons.fitted.info["events"] = ["iteration 25: went <back>"]
    html = render(dataclasses.replace(moons, history=[]))
    moons.fitted.info["events"] = []
    assert f'<span class="badge">{moons.diagnosis.verdict}</span>' in html
    assert str(escape(moons.diagnosis.advice)) in html
    for metric in moons.metrics:
        assert f"<td>{metric.name.upper()}</td><td>{metric.value:.3f}</td>" in html
        assert metric.protocol["definition"] in html
    assert "went &lt;back&gt;" in html


@pytest.mark.parametrize(
    ("verdict", "tone"), [("healthy", "good"), ("unused clusters", "fair"), ("cluster collapse", "bad")]
)
def test_the_badge_has_the_colour_of_the_verdict(without_density, verdict, tone):
    diagnosis = Diagnosis(verdict, "why", "what to do", {})
    assert f'<div class="verdict {tone}">' in render(
        dataclasses.replace(without_density, diagnosis=diagnosis, history=[])
    )


def test_a_method_without_density_leaves_out_what_needs_one(without_density):
    html = page(without_density)
    assert "learns clusters without a density" in html
    assert "Density and generated samples" not in html and 'id="typicality"' not in html
    assert "Generated rows" not in html
    assert n_images(html) == CURVES + OF_ROWS + OF_SECOND


def test_contingency_counts_every_row_once(iris):
    html = page(iris)
    table = html.split("Clusters against classes")[1].split("</table>")[0]
    assert "setosa" in table
    counts = [re.findall(r">(\d+)</td>", line)[1:] for line in table.split("<tbody>")[1].split("</tr>")]
    assert sum(int(n) for line in counts for n in line) == len(iris.x)


@pytest.mark.parametrize("n_features", [1, 3])
def test_odd_shapes_and_no_history(report_of, n_features):
    x = np.random.default_rng(0).normal(size=(60, n_features))
    data = report_of(x, n_clusters=1)
    html = render(dataclasses.replace(data, history=[]))
    assert "No history of the training" in html
    assert n_images(html) == OF_ROWS + 1, "one cluster has no rival"


def panel(history, name, optimum):
    return plots.loss_panel(plots.Panel("a title", "a caption", name, history, optimum))


def test_the_dashed_line_lies_at_the_optimum():
    history = [{"iteration": i, "prior": 1 / i, "energy_gap": float("nan")} for i in (1, 2, 3)]
    axes = panel(history, "prior", 0.693)
    curve, dashed = axes.get_lines()
    assert dashed.get_linestyle() == "--" and list(dashed.get_ydata()) == [0.693, 0.693]
    assert list(curve.get_xdata()) == [1, 2, 3] and curve.get_ydata()[1] == 0.5
    assert "best 0.693" in [text.get_text() for text in axes.texts]
    low, high = axes.get_ylim()
    assert low < 1 / 3 and high > 1
    assert len(panel(history, "prior", None).get_lines()) == 1
    assert panel(history, "energy_gap", 0.0).get_ylim()[0] <= 0


def test_a_curve_may_start_late():
    history = [{"iteration": 1}, {"iteration": 2, "invariance": 4.0}]
    assert list(panel(history, "invariance", 0).get_lines()[0].get_xdata()) == [2]


def test_the_density_map_covers_the_domain_and_integrates_to_one(moons):
    plane = Plane(moons.fitted, moons.table.features)
    low = moons.fitted.scaler.inverse(moons.fitted.box.low.numpy())
    np.testing.assert_allclose([plane.xs[0], plane.ys[0]], low)
    cell = (plane.xs[1] - plane.xs[0]) * (plane.ys[1] - plane.ys[0])
    assert np.exp(plane.log_density).sum() * cell == pytest.approx(1, abs=0.1)


def test_the_grid_has_x_across_and_y_upwards(moons):
    plane = Plane(moons.fitted, moons.table.features)
    point = np.array([[plane.xs[200], plane.ys[30]]])
    expected = moons.fitted.log_density(point)
    assert plane.log_density[30, 200] == pytest.approx(expected[0], abs=1e-4)


def test_plots_show_a_bounded_number_of_distinct_rows():
    rows = plotted_rows(20_000)
    assert len(np.unique(rows)) == 5000 and rows.max() < 20_000
    np.testing.assert_array_equal(plotted_rows(7), np.arange(7))


def test_looks_at_labelled_rows_are_curves_of_their_own(moons):
    assert "on the test set" not in render(moons)
    looks = ({"iteration": 10, "nmi": 0.2, "acc": 0.5}, {"iteration": 20, "nmi": 0.4})
    page = render(dataclasses.replace(moons, evaluations=looks))
    assert "NMI on the test set" in page and "Accuracy on the test set" in page


def test_the_plan_is_told_with_its_reasons(moons, iris):
    for data in (moons, iris):
        html = page(data)
        table = html.split("<summary>The plan</summary>")[1].split("</table>")[0]
        rows = [re.findall(r"<td>(.*?)</td>", line) for line in table.split("<tbody>")[1].split("</tr>")[:-1]]
        decisions = data.fitted.plan.decisions
        assert len(decisions) >= 3
        assert rows == [[str(escape(text)) for text in (d.what, d.choice, d.reason)] for d in decisions]


def test_all_settings_are_listed_as_they_are_typed(moons):
    text = page(moons).split("<summary>All settings</summary>")[1].split("</details>")[0]
    listed = dict(re.findall(r"<li><span>(.*?)</span> (.*?)</li>", text))
    assert listed["encoder.hidden"] == "128,128"
    assert listed["objectives.prior.weight"] == "30" and listed["objectives.prior.symmetric"] == "false"
    tree: dict = {}
    for name, value in listed.items():
        *sections, last = name.split(".")
        at = tree
        for section in sections:
            at = at.setdefault(section, {})
        at[last] = value
    assert Config.from_tree(tree) == moons.fitted.plan.config


def test_far_points_do_not_squeeze_the_plane(report_of):
    x, _ = make_moons(200, noise=0.05, random_state=0)
    data = report_of(np.concatenate([x, [[60.0, -40.0]]]))
    drawing = Drawing(data.fitted, data.table, data.x, find(data.fitted, data.predictions))
    assert drawing.in_plane
    assert np.ptp(drawing.plane.xs) < 1.5 * np.ptp(x[:, 0]) and np.ptp(drawing.plane.ys) < 1.5 * np.ptp(x[:, 1])
    ax = charts.clusters(drawing)
    assert "1 row lies beyond the edge" in [text.get_text().removeprefix("○ ") for text in ax.texts]


def test_principal_axes_are_not_turned_by_a_few_far_rows(report_of):
    r = np.random.default_rng(0)
    x = r.normal(size=(300, 4)) * [10, 1, 0.1, 0.1]
    data = report_of(x, n_clusters=1, config={"data.scaling": "none"})
    far = np.concatenate([x, [[0, 0, 500, 0], [0, 0, 0, 900]]])
    axes = charts.Directions.of(data.fitted, data.table, far)
    np.testing.assert_allclose(np.abs(axes.directions), np.eye(4)[:2], atol=0.05)
    assert axes.points(far)[-1] == pytest.approx(-axes.center @ axes.directions.T + 900 * axes.directions[:, 3])
