"""Near-duplicates: the same picture saved again is found, other pictures are not."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from gedikit.data.duplicates import near_duplicates, sketches
from gedikit.data.pictures import square_of


def saved_again(image: Image.Image, **options: object) -> Image.Image:
    buffer = BytesIO()
    image.save(buffer, **options)
    return Image.open(BytesIO(buffer.getvalue()))


@pytest.fixture(scope="module")
def photographs() -> list[Image.Image]:
    """Twelve different parts of two photographs, some of which overlap by half."""
    return [
        Image.fromarray(image[:, left : left + 200])
        for image in load_sample_images().images
        for left in range(0, 440, 80)
    ]


@pytest.mark.parametrize("size", [32, 160])
def test_the_same_picture_saved_again_is_found_and_no_other(photographs, size):
    again = [
        saved_again(photographs[3], format="jpeg", quality=60),
        photographs[3].resize((100, 213), Image.Resampling.BILINEAR),
        saved_again(photographs[8], format="webp", quality=70),
    ]
    squares = np.stack([square_of(image.copy(), size) for image in [*photographs, *again]])
    n = len(photographs)
    assert near_duplicates(sketches(squares)) == ((3, n, n + 1), (8, n + 2))


def test_sketches_are_means_of_fields_whatever_the_size():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 20, 20, 1), dtype=np.uint8)
    drawn = sketches(images).reshape(2, 8, 8, 3)
    edges = [i * 20 // 8 for i in range(9)]
    for i, j in ((0, 0), (3, 5), (7, 7)):
        field = images[1, edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
        np.testing.assert_allclose(drawn[1, i, j], field.mean(), rtol=1e-6)
    assert sketches(images[:0]).shape == (0, 192)


def test_chains_are_one_group_and_blocks_do_not_part_them(monkeypatch):
    monkeypatch.setattr("gedikit.data.duplicates._BLOCK", 3)
    drawn = np.zeros((9, 4), np.float32)
    drawn[:, 0] = [0, 50, 2, 100, 4, 51, 150, 6, 200]  # root mean square differences are half of these
    assert near_duplicates(drawn, limit=1.0) == ((0, 2, 4, 7), (1, 5))
    assert near_duplicates(drawn, limit=0.4) == ()
    assert near_duplicates(drawn[:0]) == ()
