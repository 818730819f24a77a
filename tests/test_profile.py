"""What a plan looks at in the data: sizes, mirror images and borders."""

import json

import numpy as np
import pytest

from gedikit.data.toy import moons
from gedikit.errors import DataError
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile, as_rows

SIDE = 20


def asymmetric(n: int, rng: np.random.Generator, channels: int = 1) -> np.ndarray:
    """A hook that opens to the right, somewhere: no mirror image of one is among them."""
    images = np.zeros((n, SIDE, SIDE, channels), dtype=np.uint8)
    for image in images:
        top, left = rng.integers(2, 6, 2)
        light = rng.integers(120, 255)
        image[top : top + 12, left : left + 3] = light
        image[top : top + 3, left : left + 10] = light
    return images


def either_way(n: int, rng: np.random.Generator) -> np.ndarray:
    """The same hooks, half of them mirrored."""
    images = asymmetric(n, rng)
    mirrored = rng.random(n) < 0.5
    images[mirrored] = images[mirrored][:, :, ::-1]
    return images


def symmetric(n: int, rng: np.random.Generator) -> np.ndarray:
    """Columns in the middle, each its own mirror image."""
    images = np.zeros((n, SIDE, SIDE, 1), dtype=np.uint8)
    for image in images:
        half = rng.integers(2, 8)
        image[rng.integers(1, 6) : rng.integers(12, 19), SIDE // 2 - half : SIDE // 2 + half] = rng.integers(
            90, 255
        )
    return images


def profile(images: np.ndarray) -> DataProfile:
    rows, shape = as_rows(images)
    return DataProfile.of(rows, shape)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def limit(n: int) -> float:
    """Two standard errors of a share among half of n pictures."""
    return 1 / np.sqrt(n // 2)


def test_pictures_that_have_a_left_and_a_right_are_noticed(rng):
    assert profile(asymmetric(200, rng)).mirrored > 0.95
    assert profile(either_way(4000, rng)).mirrored == pytest.approx(0.5 + limit(4000), abs=0.035)
    own = profile(symmetric(1200, rng)).mirrored
    assert own == pytest.approx(0.5 + limit(1200)), "a picture that is its own mirror image is no evidence"


@pytest.mark.parametrize(
    ("make", "n", "flip"), [(asymmetric, 200, 0), (either_way, 4000, 0.5), (symmetric, 1200, 0.5)]
)
def test_flips_are_views_where_mirror_images_are_among_the_pictures(make, n, flip, rng):
    made = plan(profile(make(n, rng)), Asked(2))
    assert made.config.views.flip == flip


def test_few_pictures_prove_nothing(rng):
    few = profile(symmetric(60, rng))
    assert few.mirrored > 0.6
    assert plan(few, Asked(2)).config.views.flip == 0


def test_light_and_contrast_make_no_mirror_image(rng):
    """Patterns are compared at one brightness and contrast."""
    images = asymmetric(200, rng).astype(np.float64)
    light = rng.uniform(0.2, 1, (200, 1, 1, 1))
    assert profile(images * light + 60 * light).mirrored > 0.95


@pytest.mark.parametrize("channels", [1, 3])
def test_a_plain_ground_is_the_colour_of_the_border(channels, rng):
    dark = asymmetric(100, rng, channels)
    assert profile(dark).border == -1.0
    assert profile(255 - dark).border == 1.0
    middle = np.where(dark > 0, dark, 128).astype(np.uint8)
    assert profile(middle).border == pytest.approx(128 / 127.5 - 1, abs=1e-3)


def test_pictures_that_fill_the_frame_have_no_border(rng):
    busy = rng.integers(0, 256, (100, SIDE, SIDE, 1), dtype=np.uint8)
    assert profile(busy).border is None
    half = asymmetric(100, rng)
    half[:40, 0] = rng.integers(0, 256, (40, SIDE, 1))
    half[:40, -1] = rng.integers(0, 256, (40, SIDE, 1))
    half[:40, :, 0] = rng.integers(0, 256, (40, SIDE, 1))
    assert profile(half).border is None, "most are not enough where many differ"


def test_single_pictures_that_touch_the_border_change_nothing(rng):
    images = asymmetric(100, rng)
    images[:5] = 255
    assert profile(images).border == -1.0


def test_units_of_pixels_do_not_matter(rng):
    images = asymmetric(120, rng)
    images[0, 10, 10] = 255
    of_bytes = profile(images)
    for same in (images / 255, images.astype(np.float32) * 3 - 7, images.astype(np.float64)):
        found = profile(same)
        assert found.mirrored == pytest.approx(of_bytes.mirrored, abs=0.02)
        assert found.border == of_bytes.border


def test_many_pictures_are_judged_by_some_of_them_and_always_the_same(rng):
    images = asymmetric(4500, rng)
    assert profile(images) == profile(images.copy())
    assert profile(images).n_rows == 4500
    assert profile(images).mirrored > 0.95


def test_vectors_have_sizes_alone():
    x, _ = moons(50, 0)
    assert DataProfile.of(x) == DataProfile(50, 2)
    few = DataProfile.of(np.zeros((3, 16), dtype=np.uint8), (4, 4, 1))
    assert (few.mirrored, few.border) == (None, None), "three pictures say nothing"
    constant = DataProfile.of(np.full((9, 16), 0.5), (4, 4, 1))
    assert (constant.mirrored, constant.border) == (None, None)
    other = DataProfile.of(np.zeros((9, 16)), (5, 5, 1))
    assert other.image_shape == (5, 5, 1) and other.mirrored is None, "refused later, with a sentence"


def test_a_profile_is_the_same_after_a_file(rng):
    for found in (DataProfile(50, 2), profile(asymmetric(50, rng))):
        assert DataProfile.from_tree(json.loads(json.dumps(found.tree()))) == found


def test_arrays_of_pictures_become_rows():
    x = np.arange(2 * 3 * 4 * 3).reshape(2, 3, 4, 3)
    rows, shape = as_rows(x)
    assert shape == (3, 4, 3)
    assert np.array_equal(rows.reshape(x.shape), x)
    assert as_rows(x[..., 0])[1] == (3, 4, 1)
    assert as_rows(rows)[0] is rows and as_rows(rows)[1] == ()
    with pytest.raises(DataError, match="1 or 3 channels in their last dimension"):
        as_rows(x.transpose(0, 3, 1, 2))
