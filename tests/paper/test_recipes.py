"""What images change, and what the paper prints for them."""

import pytest

from gedikit.errors import UsageError
from gedikit.methods import get_method
from gedikit.recipes import image_recipe

SHAPE = (32, 32, 3)


def test_small_images_are_vectors_unless_asked_otherwise():
    assert image_recipe((8, 8, 1), "digits", on_gpu=False) == {}
    assert image_recipe((), "", on_gpu=True) == {}
    forced = image_recipe((8, 8, 1), "digits", on_gpu=False, forced=True)
    assert (forced["network"], forced["augmentation"]) == ("resnet8", "tiny")


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
    method = get_method("gedi-as-printed")
    recipe = image_recipe(SHAPE, source, on_gpu=True, printed=True)
    s = method.settings(recipe)
    assert (s.generative, s.invariance, s.prior) == (1, 50, prior)
    assert (s.steps, s.step_size, s.noise_std, s.buffer, s.restart) == (20, 1, 0.01, 10_000, 0.05)
    assert (s.batch_size, s.negatives, s.epochs, s.learning_rate) == (batch, batch, epochs, 1e-4)
    assert (s.width, s.weight_decay, s.average, s.bounds) == (width, decay, 0, "none")
    assert s.augmentation == f"{source}-printed"


def test_as_printed_on_vectors_is_the_toy_table_still():
    s = get_method("swav-as-printed").settings()
    assert (s.network, s.iterations, s.invariance, s.head) == ("paper-normalised", 7000, 50, "cosine")


def test_what_a_method_changes_comes_after_what_images_change():
    recipe = image_recipe(SHAPE, "cifar10", on_gpu=True)
    assert get_method("swav").settings(recipe).head == "cosine"
    assert get_method("swav").settings(recipe, head="linear").head == "linear"
    assert get_method("gedi").settings(recipe).prior > get_method("gedi").settings(recipe).invariance


@pytest.mark.parametrize(
    ("shape", "source", "expected"),
    [
        ((28, 28, 1), "mnist", ("on", "pixels", "digits")),
        ((28, 28, 3), "mnist", ("on", "pixels", "digits")),
        ((28, 28, 1), "scans", ("on", "pixels", "photos")),
        ((28, 28, 1), "cifar10", ("off", "pixels", "cifar10")),
        (SHAPE, "svhn", ("on", "outlines", "svhn")),
        (SHAPE, "photos", ("off", "pixels", "photos")),
    ],
)
def test_neighbours_are_walked_along_where_they_are_alike(shape, source, expected):
    s = get_method("gedi").settings_for(shape, source, on_gpu=True)
    assert (s.image_walks, s.walk_by, s.augmentation) == expected
    assert (s.spectral_start > 0) == (s.image_walks == "on" and source != "scans")


def test_pictures_may_be_like_a_data_set():
    method = get_method("gedi")
    itself = method.settings_for(SHAPE, "svhn", on_gpu=True)
    assert method.settings_for(SHAPE, "folder", on_gpu=True, like="svhn") == itself
    with pytest.raises(UsageError, match=r"like names one of mnist, .*, not 'imagenet'"):
        method.settings_for(SHAPE, "folder", on_gpu=True, like="imagenet")
    assert method.settings_for((8, 8, 1), "", on_gpu=True, like="mnist").network == "resnet8"
    with pytest.raises(UsageError, match="is about images, and these rows are treated as vectors"):
        method.settings_for((), "table.csv", on_gpu=True, like="svhn")
