"""A plan: everything about a fit decided once, from the data and what was asked, with reasons."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gedikit import GEDI
from gedikit.components import settings_of
from gedikit.data.toy import moons
from gedikit.errors import DataError, UsageError
from gedikit.methods import methods
from gedikit.objectives import objectives
from gedikit.planning import Asked, ExamplesProfile, Plan, check_prior, plan, split_execution
from gedikit.profile import DataProfile
from gedikit.starts import Starts
from gedikit.views import views
from gedikit.views.purposes import PURPOSES

VECTORS = DataProfile(400, 2)
WIDE = DataProfile(400, 7)
GREY = DataProfile(500, 784, (28, 28, 1), mirrored=0.7, border=-1.0)
COLOUR = DataProfile(500, 3072, (32, 32, 3), mirrored=0.5)


def planned(data=VECTORS, method="gedi", n_clusters=2, starts=None, **given) -> Plan:
    return plan(data, Asked(n_clusters, method, **given), starts)


def refused(sentence: str, data=VECTORS, method="gedi", **given) -> None:
    with pytest.raises(UsageError, match=sentence):
        planned(data, method, **given)


def reasons(made: Plan) -> dict[str, tuple[str, str]]:
    return {decision.what: (decision.choice, decision.reason) for decision in made.decisions}


def pictures(n: int = 60, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 20, 16), dtype=np.uint8)


# the same data, however it comes


def test_an_array_has_the_same_plan_however_it_comes():
    x = pictures()
    made = GEDI(3, random_state=0).plan(x)
    assert made.config.data.shape == (20, 16, 1)
    assert GEDI(3, random_state=0).plan(x[..., None]) == made
    assert GEDI(3, random_state=0, image_shape=(20, 16, 1)).plan(x.reshape(60, -1)) == made
    by_config = GEDI(3, random_state=0, config={"data.shape": [20, 16, 1]}).plan(x.reshape(60, -1))
    assert (by_config.config, by_config.stages, by_config.data) == (made.config, made.stages, made.data)
    assert GEDI(3, random_state=0).plan(np.asfortranarray(x)) == made


def test_numbers_that_are_no_bytes_have_the_plan_of_the_same_pictures():
    x = pictures()
    x[0, 0, :2] = [0, 255]
    made = GEDI(3, random_state=0).plan(x)
    for other in (x / 255, (x / 255).astype(np.float32), x.astype(np.int64)):
        found = GEDI(3, random_state=0).plan(other)
        assert (found.config, found.stages) == (made.config, made.stages)


def test_a_plan_is_about_an_array_and_not_about_a_device():
    x, _ = moons(100, 0)
    plans = [GEDI(2, random_state=0, device=device).plan(x) for device in ("auto", "cpu", "cuda")]
    assert plans[0] == plans[1] == plans[2]
    plans = [GEDI(2, random_state=0, device=device).plan(pictures()) for device in ("auto", "cpu", "cuda")]
    assert plans[0] == plans[1] == plans[2]
    assert "device" not in json.dumps(plans[0].tree()["config"])


def test_execution_is_no_part_of_a_plan():
    tree, execution = split_execution({"execution.log_every": 3, "sampler.samples": 5, "execution": {"threads": 2}})
    assert tree == {"sampler": {"samples": 5}}
    assert execution == {"log_every": 3, "threads": 2}
    assert planned(config={"execution.log_every": 3}) == planned()


def test_rows_that_are_no_pictures_are_refused():
    with pytest.raises(DataError, match="1 or 3 channels in their last dimension"):
        GEDI(2).plan(np.zeros((10, 4, 4, 2)))
    with pytest.raises(DataError, match="rows of 20 values are no images of 4 × 4 pixels"):
        GEDI(2, image_shape=(4, 4, 1)).plan(np.random.default_rng(0).normal(size=(10, 20)))


# decisions


@pytest.mark.parametrize("data", [VECTORS, WIDE, GREY, COLOUR, DataProfile(500, 64, (8, 8, 1))])
@pytest.mark.parametrize("name", ["gedi", "gedi-no-gen", "swav+flow", "ebclr"])
def test_every_decision_has_a_reason(data, name):
    made = planned(data, name)
    assert made.decisions
    assert all(decision.what and decision.choice and decision.reason for decision in made.decisions)
    assert len({decision.what for decision in made.decisions}) == len(made.decisions), "each once"
    assert {"training", "prior"} <= reasons(made).keys()


def test_what_a_large_table_takes_is_said():
    starts = Starts(unequal(), 0)
    large = plan(DataProfile(100_000, 500), Asked(3, prior="uniform"), starts)
    choice, why = reasons(large)["memory"]
    assert choice == "about 3.0 GiB", "7 copies of 8 bytes, and the program"
    assert "100,000 × 500 numbers" in why
    assert reasons(large)["neighbours"][0] == "among 10,000 rows"
    assert (
        not {"memory", "neighbours"}
        & reasons(plan(DataProfile(10_000, 500), Asked(3, prior="uniform"), starts)).keys()
    )


@pytest.mark.parametrize(
    ("data", "sampler", "reason"),
    [
        (DataProfile(100, 1), "importance", "1 feature: proposals cover the whole domain"),
        (DataProfile(100, 3), "importance", "3 features: proposals"),
        (DataProfile(100, 4), "mala", "4 features: too many for proposals"),
        (GREY, "sgld", "images"),
    ],
)
def test_the_sampler_of_an_energy_follows_from_the_number_of_features(data, sampler, reason):
    made = planned(data, config={"density.name": "cluster-energy"})
    assert made.config.sampler.name == sampler
    choice, why = reasons(made)["sampler"]
    assert choice == sampler and why.startswith(reason)


@pytest.mark.parametrize("method", ["gedi", "gedi-no-inv", "gedi-no-prior", "gedi-two-stage", "jem"])
def test_many_columns_have_a_density_at_many_noise_levels(method):
    assert planned(DataProfile(100, 3), method).config.density.name == "cluster-energy"
    assert "density" not in reasons(planned(DataProfile(100, 3), method))
    made = planned(DataProfile(100, 4), method)
    assert (made.config.density.name, made.config.sampler) == ("multi-noise-energy", None)
    choice, why = reasons(made)["density"]
    assert choice == "multi-noise-energy" and why.startswith("4 columns of numbers")
    assert made.stages == planned(DataProfile(100, 3), method).stages, "the method is the same"


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("gedi", {"config": {"density.name": "cluster-energy"}}),
        ("gedi", {"config": {"sampler.name": "mala"}}),
        ("gedi", {"config": {"sampler.steps": 3}}),
        ("gedi", {"config": {"density.l2": 0.1}}),
        ("gedi", {"config": {"encoder.name": "paper-mlp"}}),
        ("gedi", {"user_encoder": True}),
        ("gedi-as-printed", {}),
        ("bound+cluster-energy", {}),
        ("swav+cluster-energy", {}),
    ],
)
def test_what_goes_with_another_density_keeps_that_one(method, given):
    made = planned(WIDE, method, **given)
    assert made.config.density.name == "cluster-energy"
    assert made.config.sampler is not None


def test_images_and_methods_without_a_density_have_none_at_noise_levels():
    assert planned(GREY).config.density.name == "cluster-energy"
    assert planned(WIDE, "gedi-no-gen").config.density is None
    assert planned(WIDE, config={"density.smallest": 0.05, "density.weight": 2}).config.density.smallest == 0.05


def test_an_encoder_without_noise_levels_is_refused_for_a_density_at_them():
    named = {"density.name": "multi-noise-energy"}
    sentence = (
        r"'multi-noise-energy' asks the network about noised rows, and the encoder '{}' takes no .* fourier-mlp"
    )
    refused(sentence.format("paper-mlp"), WIDE, config={**named, "encoder.name": "paper-mlp"})
    refused(sentence.format("resnet8"), GREY, "swav+multi-noise-energy")
    refused(sentence.format("user"), WIDE, config=named, user_encoder=True)
    assert planned(VECTORS, config=named).config.density.name == "multi-noise-energy", "asked for, of two columns"


def test_a_density_that_is_normalised_or_not_there_has_no_sampler():
    for name in ("swav", "swav+flow"):
        made = planned(method=name)
        assert made.config.sampler is None
        assert "sampler" not in reasons(made)
    assert planned(GREY, "bound+flow").config.sampler is None


def test_what_a_user_chose_is_told_as_the_users_choice():
    made = planned(config={"sampler.name": "mala", "views.name": "noise"})
    assert reasons(made)["sampler"] == ("mala", "asked for")
    assert reasons(made)["views"] == ("noise", "asked for")
    made = planned(config={"optimiser.iterations": 7})
    assert "iterations" not in reasons(made)
    assert reasons(made)["training"] == ("7 iterations of 400 rows", "400 rows")
    made = planned(prior=[0.7, 0.3])
    assert reasons(made)["prior"][1] == "asked for"
    assert made.prior == (0.7, 0.3)


def test_epochs_and_batches_are_those_of_the_data():
    optimiser = planned(DataProfile(90, 2)).config.optimiser
    assert optimiser.batch_size == 90, "a batch is no larger than the data"
    made = planned(DataProfile(1000, 2), config={"optimiser.epochs": 3, "optimiser.batch_size": 100})
    assert made.config.optimiser.iterations == 30
    assert reasons(made)["training"] == ("30 iterations of 100 rows", "3 epochs of 1000 rows")
    refused(
        "swav looks at the whole batch and needs at least 2 rows", method="swav", config={"optimiser.batch_size": 1}
    )


def test_an_image_of_a_long_example_counts_as_much_as_one_of_a_short_example():
    short, long = (planned(method="nesy", examples=ExamplesProfile(20 * n, n, (0.6, 0.4))) for n in (3, 30))
    weight_of = {n: m.config.objectives["constraint"].weight for n, m in ((3, short), (30, long))}
    assert weight_of[3] == pytest.approx(10 * weight_of[30])
    assert reasons(long)["weight of the rules"][0] == "2.5"
    assert "weight of the rules" not in reasons(short)


def test_gradients_are_clipped_where_rules_begin_to_count_on_images():
    examples = ExamplesProfile(60, 3, (0.6, 0.4))
    assert planned(GREY, method="nesy", examples=examples).config.optimiser.clip == 2
    assert planned(method="nesy", examples=examples).config.optimiser.clip == 0
    assert planned(GREY, prior="uniform").config.optimiser.clip == 0


def test_examples_of_a_constraint_set_batch_and_prior():
    examples = ExamplesProfile(600, 3, (0.6, 0.4))
    made = planned(method="nesy", examples=examples, config={"optimiser.batch_size": 100})
    assert made.config.optimiser.batch_size == 99
    assert made.prior == (0.6, 0.4)
    assert reasons(made)["prior"][0] == "by the constraint"
    refused("'nesy' learns from rules: give a constraint and examples of it", method="nesy")
    refused("'swav' has no objective for rules: use one of nesy", method="swav", examples=examples)


def test_a_recipe_fixes_what_the_data_would_decide():
    made = planned(method="gedi-as-printed", budget="best")
    assert made.config.optimiser.iterations == 7000
    assert made.config.sampler.name == "sgld"
    assert reasons(made)["recipe"] == ("gedi-as-printed", "a published recipe fixes all its settings")
    assert "iterations" not in reasons(made)
    assert planned(GREY, "gedi-as-printed").config.data.name == "vector"
    assert planned(method="gedi-as-printed", config={"sampler.steps": 5}).config.sampler.steps == 5
    refused("is a published recipe, which fixes its views", GREY, "gedi-as-printed-mnist", views="drawings")


# groups


def unequal(sizes=(150, 60, 30), columns=2) -> np.ndarray:
    """Round groups that are far from each other, in this order."""
    rng = np.random.default_rng(0)
    corners = 12 * np.eye(len(sizes), columns)
    return np.repeat(corners, sizes, axis=0) + rng.normal(size=(sum(sizes), columns))


def pseudo_labelled(made: Plan) -> list[tuple[float, bool]]:
    return [(stage.until, "pseudo-labels" in stage.terms) for stage in made.stages]


def walks(made: Plan) -> tuple[float, float]:
    return made.config.views.hold, made.config.views.end


def test_number_and_shares_of_groups_are_found_in_the_rows():
    x = unequal()
    made = plan(DataProfile.of(x), Asked(), Starts(x, 0))
    assert (made.n_clusters, made.shares) == (3, "auto")
    np.testing.assert_allclose(made.prior, [0.625, 0.25, 0.125])
    choice, reason = reasons(made)["n_clusters"]
    assert choice == "3" and "next would be" in reason
    choice, reason = reasons(made)["prior"]
    assert choice == "auto" and reason.endswith(": 62%, 25%, 12%")
    assert pseudo_labelled(made) == [(0.7, True), (1, False)]
    assert walks(made) == (0.0, 0.01), "single steps: the partition says what hangs together"
    assert GEDI(random_state=0).plan(x) == made, "these are the defaults"
    given = plan(DataProfile.of(x), Asked(3), Starts(x, 0))
    assert (given.prior, given.stages, given.config) == (made.prior, made.stages, made.config)
    assert "n_clusters" not in reasons(given), "there is nothing to decide"


def test_one_group_may_be_the_answer():
    x = np.random.default_rng(0).normal(size=(200, 2))
    made = plan(DataProfile.of(x), Asked(), Starts(x, 0))
    assert (made.n_clusters, made.prior) == (1, (1.0,))


@pytest.mark.parametrize("n_clusters", [None, 3])
def test_with_a_uniform_prior_nothing_starts_from_a_partition(n_clusters):
    x = unequal()
    made = plan(DataProfile.of(x), Asked(n_clusters, prior="uniform"), Starts(x, 0))
    assert (made.n_clusters, made.shares) == (3, "uniform")
    np.testing.assert_allclose(made.prior, 1 / 3)
    assert reasons(made)["prior"] == ("uniform", "asked for")
    assert pseudo_labelled(made) == [(1, False)]
    assert walks(made) == (0.3, 0.8)
    without = plan(DataProfile.of(x), Asked(3))
    assert (without.stages, without.config, without.prior) == (made.stages, made.config, made.prior)


@pytest.mark.parametrize("starts", [None, Starts(unequal(), 0)])
def test_a_given_prior_is_looked_for_from_a_partition(starts):
    made = planned(DataProfile(240, 2), n_clusters=3, starts=starts, prior=[0.2, 0.5, 0.3])
    assert (made.prior, made.shares) == ((0.2, 0.5, 0.3), "given"), "in the order given"
    assert pseudo_labelled(made) == [(0.7, True), (1, False)]
    assert walks(made) == (0.0, 0.01)


@pytest.mark.parametrize("method", ["swav", "jem", "gedi-no-prior", "gedi-as-printed"])
@pytest.mark.parametrize("prior", ["auto", [0.6, 0.4]])
def test_methods_without_invariance_and_prior_start_from_no_partition(method, prior):
    x = unequal((100, 50))
    made = plan(DataProfile.of(x), Asked(2, method, prior), Starts(x, 0))
    own = plan(DataProfile.of(x), Asked(2, method, "uniform"), Starts(x, 0))
    assert (made.stages, made.config) == (own.stages, own.config)
    assert made.prior == ((0.5, 0.5) if prior == "auto" else (0.6, 0.4))


def test_what_a_user_set_of_walks_and_pseudo_labels_wins_over_a_start():
    x = unequal((100, 50))
    starts = Starts(x, 0)
    assert walks(planned(DataProfile.of(x), starts=starts, config={"views.hold": 0.5})) == (0.5, 0.8)
    assert walks(planned(DataProfile.of(x), starts=starts, config={"views.end": 0.6})) == (0.3, 0.6)
    off = planned(DataProfile.of(x), starts=starts, config={"objectives.pseudo-labels.share": 0})
    assert pseudo_labelled(off) == [(1, False)]
    assert off.shares == "auto"


def test_groups_are_looked_for_in_columns_scaled_as_asked():
    x = unequal((100, 50)) * [1.0, 1e-4]
    x[:50, 1] += 12e-4  # two more groups, which only scaled columns show
    assert plan(DataProfile.of(x), Asked(config={"data.scaling": "none"}), Starts(x, 0)).n_clusters == 2
    assert plan(DataProfile.of(x), Asked(), Starts(x, 0)).n_clusters == 3


def test_a_number_that_cannot_be_looked_for_is_said():
    refused("n_clusters is looked for in the rows, and there are none here: give it", n_clusters=None)
    refused("n_clusters is looked for in the rows, and there are none here: give it", data=GREY, n_clusters=None)
    refused(r"there is no prior 'unifrom'; did you mean 'uniform'\?", prior="unifrom")


def test_the_shares_of_a_plan_are_known_after_a_file_and_were_given_in_older_ones():
    x = unequal((100, 50))
    tree = plan(DataProfile.of(x), Asked(2), Starts(x, 0)).tree()
    assert Plan.from_tree(json.loads(json.dumps(tree))).shares == "auto"
    del tree["shares"]
    assert Plan.from_tree(tree).shares == "given"


# budgets


def test_budgets_of_vectors_are_iterations():
    assert [planned(budget=b).config.optimiser.iterations for b in ("quick", "default", "best")] == [
        1000,
        3000,
        6000,
    ]
    assert reasons(planned(budget="quick"))["iterations"] == ("1000", "the quick budget of vectors")


@pytest.mark.parametrize(
    ("budget", "n", "size", "width"),
    [
        ("quick", 100_000, "small", 32),
        ("default", 1999, "small", 32),
        ("default", 2000, "medium", 64),
        ("default", 20_000, "large", 128),
        ("best", 100, "large", 128),
    ],
)
def test_budgets_of_images_are_sizes_which_by_default_grow_with_the_data(budget, n, size, width):
    made = planned(replace(GREY, n_rows=n), budget=budget)
    assert made.config.encoder.width == width
    choice, reason = reasons(made)["size"]
    assert choice == size
    assert reason.endswith(f"a network of width {width}")


@pytest.mark.parametrize("data", [VECTORS, WIDE, GREY, COLOUR])
def test_a_larger_budget_costs_more(data):
    costs = [planned(data, budget=budget).cost() for budget in ("quick", "default", "best")]
    assert costs[0] <= costs[1] <= costs[2]
    assert costs[0] < costs[2]


# views


@pytest.mark.parametrize("purpose", PURPOSES)
def test_purposes_are_views_of_their_own(purpose):
    made = planned(COLOUR, views=purpose)
    for name, value in PURPOSES[purpose].config["views"].items():
        assert getattr(made.config.views, name) == value
    choice, reason = reasons(made)["views"]
    assert choice == purpose
    assert reason == f"asked for: {PURPOSES[purpose].summary}"
    alike = PURPOSES[purpose].config.get("objectives", {}).get("pseudo-labels", {}).get("share", 0)
    joined = [stage.until for stage in made.stages if "pseudo-labels" in stage.terms]
    assert joined == ([alike] if alike else [])
    assert ("pseudo-labels" in reasons(made)) == bool(alike)


def test_safe_views_follow_what_the_pixels_say():
    grey = planned(GREY)
    assert grey.config.views.fill == -1.0
    assert grey.config.views.flip == 0, "mirrored pictures are others"
    assert grey.config.views.walks
    assert "pseudo-labels" in grey.terms
    assert "no flips" in reasons(grey)["views"][1]
    colour = planned(COLOUR)
    assert colour.config.views.fill is None
    assert colour.config.views.flip == 0.5
    assert colour.config.views.jitter > 0
    assert not colour.config.views.walks
    assert "flips" in reasons(colour)["views"][1] and "no flips" not in reasons(colour)["views"][1]
    unknown = planned(replace(COLOUR, mirrored=None))
    assert unknown.config.views.flip == 0
    assert "no flips" in reasons(unknown)["views"][1]
    assert reasons(unknown)["views"] != reasons(planned(replace(COLOUR, mirrored=0.7)))["views"]


def test_no_views_leave_pictures_and_vectors_as_they_are():
    plain = planned(GREY, views="none").config.views
    assert plain.name == "augment"
    assert all(getattr(plain, s.name) == s.default for s in settings_of(views.get("augment")))
    assert "pseudo-labels" not in planned(GREY, views="none").terms
    vector = planned(views="none").config.views
    assert (vector.name, vector.noise) == ("noise", 0)


def test_views_by_the_name_of_a_component():
    assert planned(views="noise").config.views.name == "noise"
    assert reasons(planned(views="noise"))["views"] == ("noise", "asked for")
    named = planned(GREY, config={"views.name": "augment", "views.flip": 0.5})
    assert (named.config.views.flip, named.config.views.rotation) == (0.5, 0), "its defaults, not safe views"
    assert "pseudo-labels" not in named.terms
    changed = planned(GREY, config={"views.flip": 0.5})
    assert (changed.config.views.flip, changed.config.views.rotation) == (0.5, 10)


@pytest.mark.parametrize("asked", [*PURPOSES, "augment"])
def test_views_of_pictures_are_refused_for_vectors(asked):
    refused(f"views='{asked}' is about images, and these rows are vectors: image_shape says", views=asked)
    refused("is about images, and these rows are vectors", GREY, views=asked, config={"data.name": "vector"})


# small pictures and kinds of data


def test_small_pictures_are_vectors_unless_asked_otherwise():
    small = DataProfile(500, 64, (8, 8, 1))
    made = planned(small)
    assert (made.config.data.name, made.config.encoder.name) == ("vector", "fourier-mlp")
    assert (made.config.density.name, made.config.sampler) == ("multi-noise-energy", None)
    assert reasons(made)["data"] == (
        "vector",
        "images of 8 × 8 pixels are small: a perceptron does better, and faster",
    )
    for given in (
        {"config": {"data.name": "image"}},
        {"config": {"encoder.name": "resnet8"}},
        {"views": "drawings"},
        {"user_encoder": True},
    ):
        assert planned(small, **given).config.data.shape == (8, 8, 1), given
    assert planned(replace(small, n_features=256, image_shape=(16, 16, 1))).config.data.name == "image"


def test_pictures_may_be_asked_for_as_vectors():
    assert planned(GREY, config={"data.name": "vector"}).config.encoder.name == "fourier-mlp"
    made = planned(GREY, config={"encoder.name": "fourier-mlp"})
    assert made.config.data.name == "vector"
    assert reasons(made)["data"][1].startswith("the encoder fourier-mlp was asked for")


# names that are not known


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"samplr.steps": 3}, r"there is no section 'samplr'; did you mean 'sampler'\?"),
        ({"chains": 3}, r"there is no section 'chains'; did you mean sampler\.chains\?"),
        ({"batch_size": 3}, r"there is no section 'batch_size'; did you mean optimiser\.batch_size\?"),
        ({"log_every": 3}, r"did you mean execution\.log_every\?"),
        ({"shots": 3}, r"did you mean objectives\.kscl\.shots\?"),
        ({"sampler": "mala"}, r"sampler is a section: set sampler\.name or one of its settings, not 'mala'"),
        ({"sampler.name": "malla"}, r"there is no sampler 'malla'; did you mean 'mala'\?"),
        ({"encoder.name": "mlp"}, r"there is no encoder 'mlp'; there are: .*paper-mlp"),
        ({"views.name": "walks"}, r"there is no views 'walks'; did you mean 'walk'\?"),
        ({"objectives.priors.weight": 3}, r"there is no objective 'priors'; did you mean 'prior'\?"),
        ({"objectives.prior": 3}, r"objectives\.prior has settings, such as objectives\.prior\.weight"),
        ({"objectives.prior.wieght": 3}, r"there is no setting of prior 'wieght'; did you mean 'weight'\?"),
        ({"sampler.sampels": 3}, r"there is no setting of importance 'sampels'; did you mean 'samples'\?"),
        ({"optimiser.iteration": 3}, r"there is no setting of optimiser 'iteration'; did you mean 'iterations'\?"),
        ({"optimiser.iterations": "many"}, r"iterations must be a whole number, not 'many'"),
        ({"objectives.prior.weight": -1}, r"prior\.weight must not be negative, not -1"),
    ],
)
def test_unknown_names_come_with_near_ones(config, sentence):
    refused(sentence, config=config)


def test_unknown_budgets_views_and_methods_come_with_near_ones():
    refused(r"there is no budget 'defualt'; did you mean 'default'\?", budget="defualt")
    refused(r"there is no budget 'fast'; there are: quick, default, best", budget="fast")
    refused(r"there is no views 'photo'; did you mean 'photos'\?", views="photo")
    refused(r"there is no method 'gedii'; did you mean 'gedi'", method="gedii")
    refused(r"n_clusters must be at least 1, not 0", n_clusters=0)


# settings of components that are not in use


@pytest.mark.parametrize(
    ("method", "config", "sentence"),
    [
        (
            "gedi",
            {"sampler.chains": 9},
            r"chains is a setting of mala and sgld, and the sampler here is importance",
        ),
        ("gedi", {"sampler.name": "mala", "sampler.bank": 9}, r"bank is a setting of importance, and .* is mala"),
        ("gedi", {"encoder.width": 9}, r"encoder\.width is a setting of resnet8, and the encoder here is fourier-"),
        ("gedi", {"density.references": 9}, r"density\.references is a setting of contrastive-energy"),
        (
            "swav+flow",
            {"density.l2": 1},
            r"density\.l2 is a setting of cluster-energy and contrastive-energy, .* flow",
        ),
        ("gedi", {"data.shape": [2, 1, 1], "data.name": "vector"}, r"shape is a setting of image, .* is vector"),
        ("gedi", {"views.rotation": 3}, r"views\.rotation is a setting of augment, and the views here is walk"),
        ("swav", {"sampler.steps": 3}, r"sampler\.steps has no effect with 'swav': there is no density"),
        ("swav", {"sampler.name": "mala"}, r"sampler\.name has no effect with 'swav': there is no density"),
        ("swav+flow", {"sampler.steps": 3}, r"sampler\.steps has no effect .* 'flow' is sampled exactly"),
        ("swav", {"density.l2": 3}, r"density\.l2 has no effect: 'swav' learns no density"),
        ("swav", {"density.name": "flow"}, r"the method 'swav' learns no density: take the method 'swav\+flow'"),
        ("gedi-no-gen", {"density.name": "flow"}, r"take the method 'invariance\+prior\+flow'"),
        ("gedi", {"density.name": "none"}, r"the method 'gedi' learns a density; take one that does not"),
        ("gedi", {"sampler.name": "none"}, r"the density 'cluster-energy' is learned with a sampler: .*mala"),
    ],
)
def test_settings_of_what_is_not_in_use_are_refused(method, config, sentence):
    refused(sentence, method=method, config=config)


@pytest.mark.parametrize(
    ("method", "objective", "instead"),
    [
        ("gedi", "swav", r"it has invariance, prior: take the method 'invariance\+prior\+swav\+cluster-energy'"),
        ("swav", "prior", r"it has swav: take the method 'swav\+prior' for"),
        ("jem", "prior", r"it has a density alone: take the method 'prior\+cluster-energy'"),
        ("gedi-no-prior", "prior", r"it has invariance: take the method 'invariance\+prior\+cluster-energy'"),
    ],
)
def test_objectives_that_a_method_does_not_have_are_refused(method, objective, instead):
    sentence = f"the method '{method}' has no objective '{objective}'; {instead}"
    refused(sentence, method=method, config={f"objectives.{objective}.weight": 3})
    assert methods[instead.split("'")[1].replace("\\", "")], "there is such a method"


def test_pseudo_labels_join_methods_that_look_for_clusters():
    made = planned(config={"objectives.pseudo-labels.share": 0.3})
    assert [(stage.until, "pseudo-labels" in stage.terms) for stage in made.stages] == [(0.3, True), (1, False)]
    choice, reason = reasons(made)["pseudo-labels"]
    assert choice == "until 30% of the training"
    assert reason == objectives.get("pseudo-labels").summary
    assert "pseudo-labels" not in planned(config={"objectives.pseudo-labels.share": 0}).terms
    assert "pseudo-labels" not in planned(method="swav", config={"objectives.pseudo-labels.share": 0.3}).terms


def test_stages_follow_each_other():
    made = planned(method="gedi-two-stage")
    first, second = ("generative",), ("invariance", "prior")
    assert [made.terms_at(p) for p in (0.0, 0.2, 0.5, 0.99, 1.0)] == [first] * 2 + [second] * 3
    assert made.terms == ("generative", "invariance", "prior")
    assert made.models_density


@pytest.mark.parametrize(
    ("prior", "sentence"),
    [
        ([0.5, 0.6], r"prior must be positive and sum to 1, not \[0\.5, 0\.6\]"),
        ([0.0, 1.0], "prior must be positive"),
        ([0.2, 0.3, 0.5], r"one probability for each of 2 clusters, not shape \(3,\)"),
    ],
)
def test_a_prior_is_one_share_a_cluster(prior, sentence):
    refused(sentence, prior=prior)
    assert check_prior(None, 4).tolist() == [0.25] * 4


def test_text_as_typed_on_a_command_line_is_understood():
    typed = {"sampler.samples": "64", "encoder.hidden": "8,8", "views.unit": "absolute", "head.cosine": "yes"}
    config = planned(config=typed).config
    assert (config.sampler.samples, config.encoder.hidden, config.head.cosine) == (64, (8, 8), True)
    flat = DataProfile(500, 784)
    assert planned(flat, config={"data.shape": "28,28,1"}).config.data.shape == (28, 28, 1)


# plans in files


def all_plans():
    yield planned(prior=[0.7, 0.3], seed=5, budget="quick")
    yield planned(WIDE)
    yield planned(WIDE, config={"sampler.storage": "bfloat16", "objectives.pseudo-labels.share": 0.2})
    yield planned(GREY)
    yield planned(COLOUR, "swav+cluster-energy", views="photos")
    yield planned(COLOUR, "gedi-as-printed-cifar10")
    yield planned(method="simclr+flow")
    yield planned(method="barlow-twins-as-printed")
    yield planned(method="gedi-symbols", examples=ExamplesProfile(600, 3, (0.6, 0.4)))
    yield planned(GREY, user_encoder=True)


@pytest.mark.parametrize("made", list(all_plans()), ids=lambda made: made.method)
def test_a_plan_is_the_same_after_a_file(made):
    text = json.dumps(made.tree())
    again = Plan.from_tree(json.loads(text))
    assert again == made
    assert json.dumps(again.tree()) == text
    assert made.tree()["needs"] == {}


@pytest.mark.parametrize("made", list(all_plans()), ids=lambda made: made.method)
def test_all_settings_of_a_plan_asked_for_again_are_the_same_plan(made):
    examples = ExamplesProfile(600, 3, (0.6, 0.4)) if methods[made.method].needs_examples else None
    own = made.config.encoder.name == "user"
    prior = made.prior if made.shares == "given" else made.shares
    asked = Asked(2, made.method, prior, "auto", made.budget, made.seed, made.config.tree(), own, examples)
    again = plan(made.data, asked)
    assert (again.config, again.stages, again.prior, again.seed) == (
        made.config,
        made.stages,
        made.prior,
        made.seed,
    )


PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar

import torch

from gedikit import register_objective, setting
from gedikit.objectives import Objective


@register_objective("centred")
@dataclass(frozen=True)
class Centred(Objective):
    power: float = setting(2.0, "of the distance", above=0)
    summary: ClassVar[str] = "embeddings around the origin"

    def __call__(self, out, memory):
        return out.z.abs().pow(self.power).mean((-1, -2)), memory
"""
ELSEWHERE = """
import json, sys
from pathlib import Path

from gedikit.errors import UsageError
from gedikit.planning import Plan

tree = json.loads(Path(sys.argv[1]).read_text())
try:
    Plan.from_tree(tree)
except UsageError as error:
    print(error)
import outside_plugin
assert Plan.from_tree(tree).config.objectives["centred"].power == 3
"""


def test_a_plan_names_the_module_of_a_component_from_outside(tmp_path):
    (tmp_path / "outside_plugin.py").write_text(PLUGIN)
    (tmp_path / "write.py").write_text(
        "import json, sys\nfrom pathlib import Path\nimport outside_plugin\n"
        "from gedikit.planning import Asked, plan\nfrom gedikit.profile import DataProfile\n"
        "asked = Asked(2, 'centred+cluster-energy', config={'objectives.centred.power': 3})\n"
        "Path(sys.argv[1]).write_text(json.dumps(plan(DataProfile(100, 2), asked).tree()))\n"
    )
    (tmp_path / "read.py").write_text(ELSEWHERE)
    path = tmp_path / "plan.json"
    subprocess.run([sys.executable, "write.py", str(path)], cwd=tmp_path, check=True)
    assert json.loads(path.read_text())["needs"] == {"objectives.centred": "outside_plugin"}
    with pytest.raises(UsageError, match="this needs the objective 'centred' of the module 'outside_plugin'"):
        Plan.from_tree(json.loads(path.read_text()))
    told = subprocess.run(
        [sys.executable, "read.py", str(path)], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert told.stdout.startswith(
        "this needs the objective 'centred' of the module 'outside_plugin': import that module"
    )
    assert "--import FILE_OR_MODULE" in told.stdout


def test_groups_that_overlap_too_much_to_start_from_are_left_to_the_network():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 60)
    x = 1.3 * rng.normal(size=(10, 6))[y] + rng.normal(size=(600, 6)) * np.exp(0.3 * rng.normal(size=(10, 1)))[y]
    starts = Starts(x, 0)
    assert starts.find(10, "auto").faint
    made = plan(DataProfile.of(x, ()), Asked(10), starts)
    assert made.shares == "uniform"
    assert made.config.optimiser.iterations == 1500
    assert "pseudo-labels" not in made.terms
    (why,) = [decision.reason for decision in made.decisions if decision.what == "prior"]
    assert "nothing speaks against equal shares" in why
