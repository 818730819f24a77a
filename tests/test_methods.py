import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from gedikit import GEDI
from gedikit.data.toy import circles, moons
from gedikit.densities import densities
from gedikit.errors import UsageError
from gedikit.methods import GRAPHS, Method, compose, methods, register_method
from gedikit.objectives import objectives
from gedikit.objectives.base import Stage
from gedikit.paper.recipes import IMAGES, ON_IMAGES, TOY, printed
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile

NAMED = (
    *("jem", "gedi", "gedi-no-gen", "gedi-no-inv", "gedi-no-prior", "gedi-two-stage"),
    *("barlow-twins", "vicreg", "w-mse", "corinfomax", "mec"),
    *("swav", "deepcluster", "sela", "infonce", "simclr", "cpc", "protocpc", "kscl", "ebclr"),
)
RULED = ("nesy", "gedi-nesy", "gedi-symbols")
STANDALONE = [name for name, objective in objectives.items() if objective.standalone]
MOONS = DataProfile(400, 2)
SMALL_DENSITIES = {
    "flow": {"density.hidden": (16,)},
    "multi-noise-energy": {"density.samples": 50, "optimiser.warmup": 0},  # its factor starts at 1: let it move
}


def settings(name, **given):
    return plan(given.pop("data", MOONS), Asked(2, name, **given)).config


def test_all_systems_of_the_paper_have_a_name():
    named = {method.name: method for method in methods.values() if "-as-printed" not in method.name}
    assert set(named) == {*NAMED, *RULED}
    assert {name for name, method in named.items() if method.needs_examples} == set(RULED)
    for method in methods.values():
        assert method.family in GRAPHS
        assert method.reference
        assert method.summary
        assert set(method.terms) <= {"generative", *objectives}
        assert (method.density is not None) == ("generative" in method.terms)
    for name in NAMED:
        settings(name)  # its changes are settings with allowed values


def test_a_pair_is_both_sides_in_either_order():
    pair = methods["swav+cluster-energy"]
    assert set(pair.terms) == {"swav", "generative"}
    assert pair == methods["cluster-energy+swav"]
    assert pair.density == "cluster-energy"
    assert settings("swav+cluster-energy").head.cosine
    assert methods["bound+cluster-energy"].terms == methods["gedi"].terms


def test_objectives_are_joined_with_the_settings_and_labels_of_the_first():
    several = methods["simclr+swav+flow"]
    assert several.terms == ("generative", "simclr", "swav")
    assert (several.density, several.labels, several.unit_length) == ("flow", "k-means", True)
    config = settings("simclr+swav+flow")
    assert set(config.objectives) == {"simclr", "swav"}
    assert config.head.cosine, "what an objective changes goes with it"
    assert several == compose("simclr", "swav", "flow")
    assert methods["invariance+prior"].terms == methods["gedi-no-gen"].terms


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "gdei",
            r"there is no method 'gdei'; did you mean 'gedi'\? Objectives and a density can be joined, as in .swav",
        ),
        ("swav+energy", r"'swav\+energy': there is no objective or density 'energy'"),
        ("swavv+flow", r"'swavv\+flow': there is no objective or density 'swavv'; did you mean 'swav'"),
        ("flow+cluster-energy", "must name each objective once and at most one density"),
        ("swav+swav", "must name each objective once and at most one density"),
        ("bound+prior", "must name each objective once and at most one density"),
        ("vicreg-as-printed", r"there is no method 'vicreg-as-printed'; did you mean '.*-as-printed"),
    ],
)
def test_unknown_methods_and_impossible_pairs_are_refused(name, sentence):
    with pytest.raises(UsageError, match=sentence):
        methods[name]


def test_a_method_of_ones_own_is_registered_once():
    own = Method("own-two-stage", "mine", (Stage(0.5, ("swav",)), Stage(1, ("swav", "prior"))), "nobody")
    try:
        assert register_method(own) is own
        assert methods["own-two-stage"] is own
        assert "own-two-stage" in list(methods)
        assert register_method(own) is own, "the same again is no other"
        with pytest.raises(UsageError, match="there already is a method 'own-two-stage'"):
            register_method(Method("own-two-stage", "another", (), "nobody"))
        model = GEDI(2, method="own-two-stage", max_iter=4, random_state=0, config={"execution.log_every": 1})
        rows = model.fit(moons(50, 0)[0]).history_
        assert ["prior" in row for row in rows] == [False, False, True, True]
    finally:
        del methods._known["own-two-stage"]


@pytest.mark.parametrize("objective", ["bound", *STANDALONE])
@pytest.mark.parametrize("density", list(densities))
def test_any_objective_trains_with_any_density(objective, density):
    """Both losses move: neither side of a pair is left out."""
    name = f"{objective}+{density}"
    config = {"execution.log_every": 1, "encoder.features": 8, "encoder.hidden": (16,)}
    config |= SMALL_DENSITIES.get(density, {"sampler.samples": 50, "sampler.bank": 500})
    x, _ = moons(80, 0)
    model = GEDI(2, method=name, max_iter=12, batch_size=40, random_state=0, config=config).fit(x)
    for term in methods[name].terms:
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
    density = np.exp(model.score_samples(grid))
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
        config = {"head.freeze": 6, "optimiser.average": 0.0}
        model = GEDI(2, method="swav", max_iter=iterations, random_state=0, config=config).fit(x)
        return model.fitted_.network.centers.numpy()

    np.testing.assert_array_equal(centers(1), centers(6))
    assert not np.array_equal(centers(6), centers(9))


@pytest.mark.parametrize("name", TOY)
def test_as_printed_recipes_use_the_papers_numbers(name):
    assert printed(name) == methods[f"{name}-as-printed"]
    c = settings(f"{name}-as-printed")
    assert (c.views.name, c.views.noise, c.views.unit) == ("noise", 0.03, "absolute")
    assert (c.optimiser.batch_size, c.optimiser.learning_rate, c.optimiser.iterations) == (400, 1e-3, 7000)
    assert (c.optimiser.warmup, c.optimiser.average, c.optimiser.max_rollbacks) == (0, 0, 0)
    weights = {"invariance": 50, "prior": 10}
    assert all(c.objectives[name].weight == weights[name] for name in c.objectives if name in weights)
    assert c.encoder.name == "paper-mlp"
    assert c.encoder.batch_norm == (name in ("barlow-twins", "swav"))
    if c.sampler is None:
        assert c.density is None
    else:
        assert c.density.weight == 1
        assert (c.sampler.chains, c.sampler.restart) == (10_000, 0.05)
        assert (c.sampler.step_size, c.sampler.noise_std) == (0.01**2 / 2, 0.01)
        assert c.sampler.steps == (10 if name == "jem" else 1)


@pytest.mark.parametrize("data", IMAGES)
@pytest.mark.parametrize("name", ON_IMAGES)
def test_recipes_for_images_are_planned_to_the_letter(name, data):
    from gedikit.planning import ExamplesProfile

    method = printed(name, data)
    examples = ExamplesProfile(600, 3, (0.5, 0.5)) if method.needs_examples else None
    c = settings(method.name, data=DataProfile(6000, 3072, (32, 32, 3)), examples=examples)
    assert (c.data.name, c.encoder.name) == ("image", "resnet8")
    assert c.encoder.width == (256 if data == "cifar100" else 128)
    assert c.optimiser.batch_size == (60 if data == "mnist" else 64 if examples is None else 63)
    assert c.optimiser.epochs == {"svhn": 20, "mnist": 25}.get(data, 200)
    assert (c.views.noise, c.views.flip) == (0.2 if data == "mnist" else 0.03, 0.5 if "cifar" in data else 0)
    if c.sampler is not None:
        assert (c.sampler.name, c.sampler.steps, c.sampler.chains) == ("sgld", 20, 10_000)
        assert (c.density.l2, c.density.largest_gap) == (0, 0)
