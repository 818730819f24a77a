"""What the paper prints, and what works on its images: the settings of its tables and of our results."""

import pytest

from gedikit.paper.recipes import IMAGES, ON_IMAGES, TOY, WORKING, printed, working
from gedikit.planning import Asked, Plan, plan
from gedikit.profile import DataProfile

PHOTOS = DataProfile(50_000, 3072, (32, 32, 3))
POINTS = DataProfile(1000, 2)


def planned(data: DataProfile, method: str, **config: object) -> Plan:
    return plan(data, Asked(10, method, config=config))


@pytest.mark.parametrize(
    ("source", "prior", "width", "batch", "epochs", "decay"),
    [
        ("svhn", 25, 128, 64, 20, 0),
        ("cifar10", 25, 128, 64, 200, 0),
        ("cifar100", 50, 256, 64, 200, 0),
        ("mnist", 25, 128, 60, 25, 1e-4),
    ],
)
def test_as_printed_on_images_is_the_papers_table(source, prior, width, batch, epochs, decay):
    c = planned(PHOTOS, printed("gedi", source).name).config
    weights = (c.density.weight, c.objectives["invariance"].weight, c.objectives["prior"].weight)
    assert weights == (1, 50, prior)
    s, o = c.sampler, c.optimiser
    assert (s.steps, s.step_size, s.noise_std, s.chains, s.restart, s.bounds) == (20, 1, 0.01, 10_000, 0.05, "none")
    assert (o.batch_size, s.samples, o.epochs, o.learning_rate) == (batch, batch, epochs, 1e-4)
    assert (c.encoder.width, o.weight_decay, o.average, o.warmup, o.max_rollbacks) == (width, decay, 0, 0, 0)
    flip, noise = {"svhn": (0, 0.03), "mnist": (0, 0.2)}.get(source, (0.5, 0.03))
    assert (c.views.shift, c.views.jitter, c.views.grey, c.views.flip, c.views.noise) == (4, 0.1, 0.1, flip, noise)
    assert not c.views.walks


@pytest.mark.parametrize("name", TOY)
def test_as_printed_on_points_is_the_papers_appendix(name):
    plan = planned(POINTS, printed(name).name)
    c = plan.config
    assert (c.encoder.name, c.optimiser.iterations, c.data.scaling) == ("paper-mlp", 7000, "none")
    assert (c.views.name, c.views.noise, c.views.unit) == ("noise", 0.03, "absolute")
    assert c.encoder.batch_norm == (name in ("swav", "barlow-twins"))
    assert c.head.labels == ("projection" if name == "barlow-twins" else "posterior")
    assert c.head.cosine == (name == "swav")
    weights = {"invariance": 50, "prior": 10, "swav": 1, "barlow-twins": 1}
    assert all(objective.weight == weights[term] for term, objective in c.objectives.items())
    if plan.models_density:
        assert (c.sampler.name, c.sampler.steps) == ("sgld", 10 if name == "jem" else 1)
    else:
        assert c.sampler is None


@pytest.mark.parametrize("name", [m for m in ON_IMAGES if m != "gedi-nesy"])
@pytest.mark.parametrize("source", IMAGES)
def test_every_printed_method_can_be_planned_for_images(name, source):
    assert planned(PHOTOS, printed(name, source).name).config.encoder.name == "resnet8"


def test_a_user_may_change_what_is_printed():
    config = {"optimiser.epochs": 3, "objectives.prior.weight": 7}
    c = planned(PHOTOS, printed("gedi", "cifar10").name, **config).config
    assert (c.optimiser.epochs, c.objectives["prior"].weight, c.optimiser.batch_size) == (3, 7, 64)


@pytest.mark.parametrize(
    ("source", "walks", "similarity", "share", "rate"),
    [
        ("mnist", True, "pixels", 0.4, 5e-4),
        ("fashion-mnist", True, "pixels", 0.4, 5e-4),
        ("cifar10", False, "pixels", 0, 5e-4),
        ("cifar100", False, "pixels", 0, 5e-4),
        ("svhn", True, "outlines", 0.5, 1e-3),
    ],
)
def test_what_works_is_as_large_as_what_was_recorded(source, walks, similarity, share, rate):
    channels = 1 if "mnist" in source else 3
    data = DataProfile(50_000, 28 * 28 * channels, (28, 28, channels))
    c = plan(data, Asked(10, **working(source))).config
    assert (c.encoder.width, c.sampler.steps, c.sampler.samples, c.sampler.chains) == (128, 20, 256, 10_000)
    assert (c.optimiser.batch_size, c.optimiser.warmup, c.optimiser.learning_rate) == (256, 500, rate)
    assert (c.views.walks, c.similarity.name) == (walks, similarity)
    assert (c.objectives["pseudo-labels"].share if share else 0) == share
    assert ("pseudo-labels" in c.objectives) == bool(share)
    assert c.objectives["prior"].weight > c.objectives["invariance"].weight
    if share:
        assert c.similarity.copies == 32
    small = plan(data, Asked(10, **working(source, small=True))).config
    assert (small.encoder.width, small.sampler.steps, small.sampler.chains) == (32, 5, 2000)
    assert small.views == c.views


def test_every_data_set_with_a_printed_recipe_has_one_that_works():
    assert set(IMAGES) <= set(WORKING)
