"""Profiles, pictures and the page of an estimator: of the rows it has, and after it was saved."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import make_moons

from gedikit import GEDI
from gedikit.errors import DataError, UsageError

FAR = 3
N = 300


def customers():
    """Two kinds of customers with columns of every type, and three incomes that are far too large."""
    r = np.random.default_rng(0)
    kind = np.repeat([0, 1], [200, 100])
    frame = pd.DataFrame(
        {
            "customer": [f"c{i:04d}" for i in range(N)],
            "income": np.round(np.where(kind, 81_000, 34_000) + 2_000 * r.normal(size=N), 2),
            "age": (40 + 12 * kind + r.integers(-4, 5, N)).astype(int),
            "visits": np.where(kind, 9.0, 2.0) + r.integers(0, 3, N),
            "region": np.where(r.random(N) < 0.2 + 0.6 * kind, "south", "north"),
            "active": r.random(N) < 0.1 + 0.8 * kind,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(900 * kind + r.integers(0, 99, N), unit="D"),
        }
    )
    frame.loc[frame.index[:FAR], "income"] = [4e6, 5e6, 6e6]
    frame.loc[frame.index[50:80], "visits"] = np.nan
    return frame


@pytest.fixture(scope="module")
def frame():
    return customers()


@pytest.fixture(scope="module")
def model(frame):
    columns = {"ids": "customer"}
    return GEDI(2, max_iter=60, columns=columns, random_state=0, device="cpu").fit(frame)


@pytest.fixture(scope="module")
def loaded(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    model.save(path)
    return GEDI.load(path, device="cpu")


@pytest.fixture(scope="module")
def moons():
    x, _ = make_moons(200, noise=0.05, random_state=0)
    return GEDI(2, max_iter=30, random_state=0, device="cpu").fit(x), x


def n_drawn(ax):
    return sum(len(collection.get_offsets()) for collection in ax.collections if hasattr(collection, "get_sizes"))


def notes(ax):
    return " ".join(text.get_text() for text in ax.texts)


def test_the_profile_describes_each_cluster(model, frame):
    told = model.profile_
    own = [frame[model.labels_ == k] for k in (0, 1)]
    assert told["cluster", "rows"].tolist() == [len(part) for part in own]
    for k, part in enumerate(own):
        assert told.loc[k, ("income", "median")] == part["income"].quantile(0.5, interpolation="lower")
        assert told.loc[k, ("region", "south")] == pytest.approx((part["region"] == "south").mean())
        assert told.loc[k, ("active", "true")] == pytest.approx(part["active"].mean())
        assert told.loc[k, ("since", "latest")] == part["since"].max()
        assert told.loc[k, ("visits", "missing")] == pytest.approx(part["visits"].isna().mean())
    poorer = int(told["income", "median"].argmin())
    assert "income lower (median" in told.loc[poorer, ("cluster", "apart")]
    assert "customer" not in told.columns.get_level_values(0), "ids describe nothing"


def test_the_profile_is_saved_with_the_model(model, loaded):
    pd.testing.assert_frame_equal(loaded.profile_, model.profile_)


def test_columns_of_an_array_are_numbered(moons):
    model, x = moons
    assert list(model.profile_.columns.get_level_values(0).unique()) == ["cluster", "x0", "x1"]
    own = x[model.labels_ == 1, 0]
    assert model.profile_.loc[1, ("x0", "75%")] == pytest.approx(np.quantile(own, 0.75, method="inverted_cdf"))


def test_models_from_before_profiles_say_so(moons):
    model, _ = moons
    kept = model.fitted_.info.pop("groups")
    with pytest.raises(AttributeError, match="saved before profiles"):
        _ = model.profile_
    model.fitted_.info["groups"] = kept


def test_all_rows_are_drawn_and_far_ones_stand_at_the_edge(model, frame):
    ax = model.plot_clusters()
    assert n_drawn(ax) == N
    assert f"{FAR} rows lie beyond the edge" in notes(ax)
    rings = ax.collections[1].get_offsets()
    assert len(rings) == FAR
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    assert all(left < x < right and low < y < high for x, y in rings)
    near = model.plot_clusters(frame.iloc[FAR:])
    assert n_drawn(near) == N - FAR and "beyond" not in notes(near)


def test_pyplot_knows_nothing_of_the_figure(model, moons):
    for ax in (model.plot_clusters(), model.plot_density(), model.plot_training(), moons[0].plot_density()):
        assert isinstance(ax.figure, Figure) and ax.figure.canvas.manager is None


def test_axes_that_are_given_are_drawn_on(model, moons):
    figure = Figure()
    first, second, third, fourth = figure.subplots(1, 4)
    assert model.plot_clusters(ax=first) is first and n_drawn(first) == N
    assert model.plot_density(ax=second) is second and len(second.patches) > 10
    assert moons[0].plot_density(ax=third) is third and third.get_xlabel() == "x0"
    assert model.plot_training(ax=fourth) is fourth and not fourth.axison
    assert figure.axes == [first, second, third, fourth]


def test_training_has_a_panel_for_each_loss(model):
    panels = {panel.get_title(loc="left"): panel for panel in model.plot_training().child_axes}
    assert {"Invariance loss", "Prior loss", "Mutual information"} <= panels.keys()
    curve, best = panels["Prior loss"].get_lines()
    rows = [row for row in model.history_ if "prior" in row]
    assert list(curve.get_ydata()) == [row["prior"] for row in rows]
    assert best.get_ydata()[0] == model.fitted_.info["optima"]["prior"]


def test_a_loaded_model_draws_the_rows_it_keeps(loaded):
    assert loaded.fitted_.training_rows is None
    assert n_drawn(loaded.plot_clusters()) == len(loaded.fitted_.reference)
    assert loaded.plot_density().get_xlabel() == "log-density", "categories have no log-likelihood"


def test_what_was_not_learned_is_not_drawn():
    x, _ = make_moons(60, noise=0.05, random_state=0)
    model = GEDI(2, method="gedi-no-gen", max_iter=3, random_state=0, device="cpu").fit(x)
    with pytest.raises(UsageError, match="learns no density to plot"):
        model.plot_density()
    model.history_ = []
    with pytest.raises(UsageError, match="no history"):
        model.plot_training()


def test_a_density_of_one_column_is_a_curve_of_area_one():
    x = np.random.default_rng(0).normal(50, 10, (200, 1))
    model = GEDI(1, max_iter=60, random_state=0, device="cpu").fit(x)
    ax = model.plot_density()
    at, density = ax.get_lines()[0].get_data()
    np.testing.assert_allclose(density, np.exp(model.score_samples(at[:, None])))
    assert density.sum() * (at[1] - at[0]) == pytest.approx(1, abs=0.1)


def test_the_page_tells_of_the_training_rows(model, frame, tmp_path):
    path = tmp_path / "customers.html"
    model.report(path, frame, np.repeat(["poor", "rich"], [200, 100]))
    html = path.read_text()
    assert "<h1>customers</h1>" in html
    sizes = sorted(np.bincount(model.labels_), reverse=True)
    assert f"2 groups: {sizes[0]}, {sizes[1]} rows" in html
    poorer = int(model.profile_["income", "median"].argmin())
    for words in model.profile_.loc[poorer, ("cluster", "apart")].split("; ", 1)[:1]:
        assert words in html
    strange = html.split("The strangest rows")[1].split("</table>")[0]
    assert "c0002" in strange and "income = 6,000,000 (cluster median" in strange
    generated = html.split("Generated rows")[1].split("</table>")[0]
    assert [name in generated for name in ("since", "active", "customer")] == [True, True, False]
    assert "Clusters against classes" in html and "poor" in html
    model.report(path)
    assert "c0002" not in path.read_text(), "ids come with the table"


def test_the_page_of_a_loaded_model_has_the_profiles_of_all_rows(model, loaded, tmp_path):
    path = tmp_path / "again.html"
    model.report(path, title="the same")
    fresh = path.read_text()
    loaded.report(path, title="the same")
    again = path.read_text()
    cards = [html.split('<div class="cards">')[1].split("</section>")[0] for html in (fresh, again)]
    assert cards[0] == cards[1] and "income" in cards[0]
    assert "of 300 training rows" in again and "of 300 training rows" not in fresh


def test_labels_of_other_rows_are_refused(model, tmp_path):
    with pytest.raises(DataError, match=r"there are 2 labels y of 300 rows"):
        model.report(tmp_path / "page.html", y=[0, 1])
    assert not list(tmp_path.iterdir())
