"""Images side by side: every pixel where it belongs, in its own colour and at a size to look at."""

import base64
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from gedikit.report.mosaics import Darkroom
from gedikit.report.samples import samples_png


def pixels(mosaic):
    kind, content = mosaic.uri.split(";base64,")
    image = Image.open(BytesIO(base64.b64decode(content)))
    assert kind == f"data:image/{image.format.lower()}"
    return np.asarray(image)


def test_a_mosaic_keeps_each_image_whole():
    rows = np.array([[0.0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]])
    made = Darkroom.of(rows, (2, 3, 1)).mosaic(rows, 2)
    dark = pixels(made) < 128
    assert dark.shape == (5, 7) and made.width % 7 == 0
    assert {tuple(at) for at in np.argwhere(dark)} == {(1, 2), (0, 6), (3, 0)}


def test_colours_come_out_as_they_went_in():
    images = np.random.default_rng(0).integers(0, 200, (3, 2, 4, 3), dtype=np.uint8)
    rows = images.reshape(3, -1)
    shown = pixels(Darkroom.of(rows, (2, 4, 3)).mosaic(rows, 2))
    assert shown.shape == (5, 9, 3)
    for image, (top, left) in zip(images, [(0, 0), (0, 5), (3, 0)], strict=True):
        np.testing.assert_array_equal(shown[top : top + 2, left : left + 4], image)
    assert (shown[2] == 255).all() and (shown[:, 4] == 255).all() and (shown[3:, 5:] == 255).all()


def test_generated_colours_are_on_the_scale_of_the_data_and_clipped_to_it():
    darkroom = Darkroom.of(np.full((2, 3), 80, dtype=np.uint8), (1, 1, 3))
    np.testing.assert_array_equal(pixels(darkroom.mosaic(np.array([[-7.5, 99.6, 300.0]]), 1)), [[[0, 100, 255]]])


def test_colours_that_are_no_bytes_span_the_range_of_the_data():
    rows = np.array([[-1.0, 0.0, 1.0]])
    np.testing.assert_array_equal(pixels(Darkroom.of(rows, (1, 1, 3)).mosaic(rows, 1)), [[[0, 128, 255]]])


def test_strokes_are_dark_on_white_but_photographs_are_no_negatives():
    strokes = np.array([[0, 0, 0, 16.0]])
    photograph = np.array([[0, 90, 110, 255]], dtype=np.uint8)
    np.testing.assert_array_equal(Darkroom.of(strokes, (2, 2, 1)).canvas(strokes, 1), [[255, 255], [255, 0]])
    np.testing.assert_array_equal(Darkroom.of(photograph, (2, 2, 1)).canvas(photograph, 1), [[0, 90], [110, 255]])


@pytest.mark.parametrize(
    ("side", "least", "most"),
    [
        (8, 44, 64),
        (21, 44, 64),
        (28, 44, 64),
        (32, 64, 96),
        (48, 64, 96),
        (96, 96, 96),
        (128, 64, 96),
        (500, 64, 96),
    ],
)
def test_images_of_any_size_are_shown_at_a_size_to_look_at(side, least, most):
    darkroom = Darkroom((side, side, 3), 0, 255, negative=False)
    rows = np.full((2, side * side * 3), 200, dtype=np.uint8)
    one, two = darkroom.mosaic(rows[:1], 1), darkroom.mosaic(rows, 2)
    assert least <= one.width <= most
    assert darkroom.tile_width == two.width - one.width
    shown = pixels(one)
    assert shown.shape[:2] == (shown.shape[0],) * 2 and one.width % shown.shape[1] == 0
    np.testing.assert_allclose(shown.astype(int), 200, atol=1)


def test_an_image_need_not_be_square():
    rows = np.zeros((3, 2 * 300), dtype=np.uint8)
    assert Darkroom.of(rows, (2, 300, 1)).canvas(rows, 1).shape[1] == 75


def test_a_picture_of_samples_is_ordered_by_cluster():
    colours = np.array([[255.0, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0]])
    image = Image.open(BytesIO(samples_png(colours, np.array([1, 0, 1, 0]), (1, 1, 3))))
    shown = np.asarray(image)
    corners = [shown[0, 0], shown[0, -1], shown[-1, 0], shown[-1, -1]]
    assert image.format == "PNG" and shown.shape[0] >= 2 * 44
    np.testing.assert_array_equal(corners, colours[[1, 3, 0, 2]])
