import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from gedikit import GEDI
from gedikit.data.toy import circles, moons
from gedikit.errors import UsageError
from gedikit.methods import DISCRIMINATIVE, GENERATIVE, GRAPHS, METHODS, PRINTED_METHODS, get_method
from gedikit.training.terms import TERMS

NAMED = (
    *("jem", "gedi", "gedi-no-gen", "gedi-no-inv", "gedi-no-prior", "gedi-two-stage"),
    *("barlow-twins", "vicreg", "w-mse", "corinfomax", "mec"),
    *("swav", "deepcluster", "sela", "infonce", "simclr", "cpc", "protocpc", "kscl", "ebclr"),
)
RULED = ("nesy", "gedi-nesy", "gedi-symbols")


def test_all_systems_of_the_paper_have_a_name():
    assert set(METHODS) == {*NAMED, *RULED}
    assert {name for name, method in METHODS.items() if method.needs_rules} == set(RULED)
    for method in METHODS.values():
        assert method.family in GRAPHS
        assert method.reference
        assert set(method.terms) <= {"generative", *TERMS}
        method.settings()  # its changes are settings with allowed values


def test_a_pair_is_both_sides_in_either_order():
    pair = get_method("swav+cluster-energy")
    assert set(pair.terms) == {"swav", "generative"}
    assert pair == get_method("cluster-energy+swav")
    assert pair.models_density
    assert pair.settings().head == "cosine"
    assert get_method("bound+cluster-energy").terms == METHODS["gedi"].terms


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gdei", "there is no method 'gdei'; there are: gedi, "),
        ("swav+energy", "'energy' in 'swav\\+energy' is neither a discriminative term .* nor a generative one"),
        ("swav+simclr", "must name one discriminative and one generative term"),
        ("flow+cluster-energy", "must name one discriminative and one generative term"),
        ("swav+swav", "must name one discriminative and one generative term"),
        ("swav+flow+simclr", "must name one discriminative and one generative term"),
        ("vicreg-as-printed", "prints no toy recipe for 'vicreg'"),
    ],
)
def test_unknown_methods_and_impossible_pairs_are_refused(name, sentence):
    with pytest.raises(UsageError, match=sentence):
        get_method(name)


@pytest.mark.parametrize("discriminative", DISCRIMINATIVE)
@pytest.mark.parametrize("generative", GENERATIVE)
def test_any_discriminative_term_trains_with_any_density(discriminative, generative):
    """Both losses move: neither side of a pair is left out."""
    name = f"{discriminative}+{generative}"
    options = {"log_every": 1, "features": 8, "hidden": (16,), "negatives": 50, "bank": 500, "flow_hidden": (16,)}
    x, _ = moons(80, 0)
    model = GEDI(2, method=name, max_iter=12, batch_size=40, random_state=0, options=options).fit(x)
    for term in get_method(name).terms:
        values = [row[term] for row in model.history_]
        assert np.isfinite(values).all()
        assert len(set(values)) == len(values)
    assert np.isfinite(model.score_samples(x)).all()
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1, atol=1e-6)
    points, clusters = model.sample(5, steps=3, random_state=0)
    assert points.shape == (5, 2)
    np.testing.assert_array_equal(clusters, model.predict(points))


@pytest.mark.parametrize("name", [*NAMED[6:], "swav+flow", "ebclr", "barlow-twins-as-printed"])
def test_a_saved_model_is_the_model(name, tmp_path):
    x, _ = moons(60, 0)
    model = GEDI(2, method=name, max_iter=5, random_state=0).fit(x)
    model.save(tmp_path / "model.safetensors")
    again = GEDI.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    np.testing.assert_array_equal(again.score_samples(x), model.score_samples(x))
    np.testing.assert_array_equal(again.transform(x), model.transform(x))
    assert again.fitted_.assignment.description == model.fitted_.assignment.description


@pytest.mark.parametrize("name", ["swav", "protocpc"])
@pytest.mark.parametrize("shape", [moons, circles])
def test_cluster_based_methods_solve_the_toys_with_walks(name, shape):
    x, y = shape(400, 1)
    model = GEDI(2, method=name, max_iter=600, random_state=1).fit(x)
    assert normalized_mutual_info_score(y, model.labels_) > 0.95


def test_a_flow_is_a_normalised_density_with_exact_samples():
    x, _ = moons(500, 0)
    model = GEDI(2, method="swav+flow", max_iter=400, random_state=0).fit(100 * x + 7)
    axis = np.linspace(-400, 500, 450)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    density = np.exp(model.score_samples(grid) - model.log_normaliser_)
    assert density.sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1, abs=0.02)
    samples, _ = model.sample(2000, random_state=0)
    np.testing.assert_allclose(samples.mean(0), (100 * x + 7).mean(0), atol=12)
    np.testing.assert_allclose(np.cov(samples.T), np.cov(100 * x.T), rtol=0.35, atol=400)
    one, clusters = model.sample(200, cluster=1, random_state=0)
    assert len(one) == 200
    assert (clusters == 1).mean() > 0.95
    assert model.sample_info_["acceptance"] == 1.0


def test_a_batch_of_one_is_refused_by_terms_that_compare_rows():
    with pytest.raises(
        UsageError, match="simclr looks at the whole batch and needs at least 2 rows, not batch_size=1"
    ):
        GEDI(2, method="simclr", batch_size=1).fit(moons(50, 0)[0])


def test_prototypes_stay_frozen_during_their_warm_up():
    x, _ = moons(60, 0)

    def centers(iterations: int) -> np.ndarray:
        options = {"freeze_prototypes": 6, "average": 0.0}
        model = GEDI(2, method="swav", max_iter=iterations, random_state=0, options=options).fit(x)
        return model.fitted_.network.centers.numpy()

    np.testing.assert_array_equal(centers(1), centers(6))
    assert not np.array_equal(centers(6), centers(9))


def test_as_printed_recipes_use_the_papers_numbers():
    for name in PRINTED_METHODS:
        s = get_method(name + "-as-printed").settings()
        assert (s.noise, s.noise_unit, s.batch_size, s.learning_rate) == (0.03, "absolute", 400, 1e-3)
        assert (s.invariance, s.prior, s.generative) == (50, 10, 1)
        assert (s.buffer, s.restart, s.step_size, s.noise_std) == (10_000, 0.05, 0.01**2 / 2, 0.01)
        assert s.network == ("paper-normalised" if name in ("barlow-twins", "swav") else "paper")
        assert s.steps == (10 if name == "jem" else 1)
