"""Views of images against independent computations of the same parameters."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates

from gedikit.errors import DataError, UsageError
from gedikit.paper.recipes import IMAGES
from gedikit.randomness import keyed_normal, keys, substream
from gedikit.views import Augment
from gedikit.views.augmentation import Augmentation, parameter_draws
from gedikit.views.colour import LUMA
from gedikit.views.purposes import PURPOSES


def chosen(config):
    return Augment.of({name: value for name, value in config["views"].items() if name != "name"})


AUGMENTATIONS = {
    "none": Augmentation(),
    "tiny": Augmentation(rotation=10.0, zoom=(0.9, 1.1), translation=1 / 8, fill=-1.0, noise=0.1),
    **{name: chosen(purpose.config) for name, purpose in PURPOSES.items()},
    **{f"{name}-printed": chosen(recipe) for name, recipe in IMAGES.items()},
}
GREY = ("drawings", "tiny", "mnist-printed")


def images(n=6, height=9, width=11, channels=3, seed=0):
    values = torch.rand(n, height, width, channels, generator=torch.Generator().manual_seed(seed))
    return values * 2 - 1


def some_keys(n=6, epoch=0, stream=0):
    return keys(0, epoch, torch.arange(n), stream)


def drawn(k):
    return {name: values.double().numpy() for name, values in parameter_draws(k).items()}


def interpolated(image, rows, columns, fill):
    mode = {"mode": "mirror"} if fill is None else {"mode": "grid-constant", "cval": fill}
    channels = [map_coordinates(image[..., c], [rows, columns], order=1, **mode) for c in range(image.shape[-1])]
    return np.stack(channels, -1)


@pytest.mark.parametrize("fill", [None, -1.0])
@pytest.mark.parametrize(("shift", "flip"), [(3, 0.5), (3, 0.0), (0, 0.5)])
def test_shift_and_flip_copy_pixels_exactly(fill, shift, flip):
    x, k = images(20), some_keys(20)
    views, u = Augmentation(shift=shift, flip=flip, fill=fill)(x, k).numpy(), drawn(k)
    pad = {"mode": "reflect"} if fill is None else {"mode": "constant", "constant_values": fill}
    for i in range(20):
        left, top = (int(u[name][i] * (2 * shift + 1)) for name in ("shift_x", "shift_y"))
        padded = np.pad(x[i].numpy(), ((shift, shift), (shift, shift), (0, 0)), **pad)
        wanted = padded[top : top + 9, left : left + 11]
        if u["flip"][i] < flip:
            wanted = wanted[:, ::-1]
        np.testing.assert_array_equal(views[i], wanted)


def test_a_resized_crop_is_the_bilinear_enlargement_of_a_rectangle():
    x, k = images(8), some_keys(8)
    augmentation = Augmentation(crop_area=(0.2, 0.9), flip=0.5)
    views, u = augmentation(x, k), drawn(k)
    for i in range(8):
        area = 0.2 + 0.7 * u["crop_area"][i]
        ratio = (3 / 4) * ((4 / 3) / (3 / 4)) ** u["crop_ratio"][i]
        across, down = math.sqrt(area * ratio * 9 * 11), math.sqrt(area / ratio * 9 * 11)
        if across > 11 or down > 9:
            across, down = (11, area * 9) if across > 11 else (area * 11, 9)
        left, top = u["crop_left"][i] * (11 - across), u["crop_top"][i] * (9 - down)
        columns = left + across * (np.arange(11) + 0.5) / 11 - 0.5
        rows = top + down * (np.arange(9) + 0.5) / 9 - 0.5
        if u["flip"][i] < 0.5:
            columns = columns[::-1]
        wanted = interpolated(x[i].double().numpy(), *np.meshgrid(rows, columns, indexing="ij"), None)
        np.testing.assert_allclose(views[i], wanted, atol=2e-5)


@pytest.mark.parametrize("fill", [None, -1.0])
def test_turning_and_moving_is_the_inverse_of_the_forward_map(fill):
    x, k = images(8, channels=1), some_keys(8)
    augmentation = Augmentation(rotation=20, shear=15, zoom=(0.7, 1.3), translation=0.2, shift=1, fill=fill)
    views, u = augmentation(x, k), drawn(k)
    for i in range(8):
        angle, slope = (math.radians(s * (2 * u[n][i] - 1)) for n, s in (("rotation", 20), ("shear", 15)))
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        forward = (0.7 + 0.6 * u["zoom"][i]) * turn @ np.array([[1, math.tan(slope)], [0, 1]])
        moved = np.array([(0.4 * u[f"translation_{a}"][i] - 0.2) * side for a, side in (("x", 11), ("y", 9))])
        shift = np.array([int(3 * u[f"shift_{a}"][i]) - 1 for a in "xy"])
        x_out, y_out = np.meshgrid(np.arange(11) - 5, np.arange(9) - 4)
        points = np.stack([x_out, y_out], -1) + shift - moved
        columns, rows = np.moveaxis(points @ np.linalg.inv(forward).T, -1, 0)
        wanted = interpolated(x[i].double().numpy(), rows + 4, columns + 5, fill)
        np.testing.assert_allclose(views[i], wanted, atol=2e-5)


def test_jitter_draws_factors_in_their_range_and_grey_takes_the_colours():
    x, k = images(400, 2, 2) * 0.1, some_keys(400)
    u = drawn(k)
    views = Augmentation(jitter=0.3, brightness=0.4, grey=0.2)(x, k)
    is_grey, factor = u["grey"] < 0.2, np.where(u["jitter"] < 0.3, 0.6 + 0.8 * u["brightness"], 1.0)
    unit = (x.double().numpy() + 1) / 2
    colours = np.where(is_grey[:, None, None, None], (unit @ np.array(LUMA))[..., None], unit)
    wanted = (colours * factor[:, None, None, None]).clip(0, 1) * 2 - 1
    np.testing.assert_allclose(views, wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("augmentation", "probability"),
    [
        (Augmentation(flip=0.5), 0.5),
        (Augmentation(grey=0.1), 0.1),
        (Augmentation(jitter=0.8, contrast=0.4), 0.8),
        (Augmentation(jitter=0.1, hue=0.1), 0.1),
    ],
)
def test_things_happen_with_their_probability(augmentation, probability):
    x = images(1, 3, 4).expand(4000, 3, 4, 3)
    changed = (augmentation(x, some_keys(4000)) != x).flatten(1).any(1).double().mean()
    assert abs(changed - probability) < 4.5 * math.sqrt(probability * (1 - probability) / 4000)


def test_noise_is_added_last_and_not_clipped():
    x, k = images(), some_keys()
    quiet = Augmentation(jitter=1.0, brightness=1.0)
    views = replace(quiet, noise=0.5)(x, k)
    noise = keyed_normal(substream(k, 1), x[0].numel()).view(x.shape)
    torch.testing.assert_close(views, quiet(x, k) + 0.5 * noise)
    assert quiet(x, k).abs().max() == 1
    assert views.abs().max() > 1


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_augmentation_keeps_shape_and_range_and_depends_on_the_key_alone(name):
    channels = 1 if name in GREY else 3
    x, k, augmentation = images(6, 8, 8, channels), some_keys(), AUGMENTATIONS[name]
    views = augmentation(x, k)
    assert views.shape == x.shape
    assert views.dtype == x.dtype
    assert views.is_contiguous()
    assert views.abs().max() < 1 + 6 * augmentation.noise + 1e-6
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    assert torch.equal(augmentation(x[order], k[order]), views[order])
    torch.testing.assert_close(augmentation(x[2:3], k[2:3]), views[2:3])
    if name == "none":
        assert torch.equal(views, x)
    else:
        assert not torch.allclose(augmentation(x, some_keys(epoch=1)), views)
        assert not torch.allclose(augmentation(x, some_keys(stream=1)), views)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_floating_types_come_back_as_they_are(dtype):
    x, k = images(), some_keys()
    for name in ("photos", "cifar10-printed"):
        views = AUGMENTATIONS[name](x.to(dtype), k)
        assert views.dtype == dtype
        torch.testing.assert_close(views.float(), AUGMENTATIONS[name](x, k), atol=0.03, rtol=0)


def test_one_channel_has_brightness_and_contrast_but_no_colours():
    x, k = images(channels=1), some_keys()
    colourless = replace(AUGMENTATIONS["photos"], saturation=0.0, hue=0.0, grey=0.0)
    assert torch.equal(AUGMENTATIONS["photos"](x, k), colourless(x, k))
    assert torch.equal(Augmentation(grey=1.0)(x, k), x)
    with pytest.raises(DataError, match="1 or 3 channels, not 2"):
        AUGMENTATIONS["photos"](images(channels=2), k)


@pytest.mark.parametrize("name", ["photos", "cifar10-printed", "drawings"])
@pytest.mark.usefixtures("unchecked")
def test_an_augmentation_compiles_to_one_graph(name):
    x, rows = images(channels=1 if name in GREY else 3), torch.arange(6)

    def views(x, rows, epoch):
        return AUGMENTATIONS[name](x, keys(0, epoch, rows, 1))

    compiled = torch.compile(views, backend="aot_eager", fullgraph=True)
    for epoch in (0, 5):
        torch.testing.assert_close(compiled(x, rows, torch.tensor(epoch)), views(x, rows, epoch))


def test_a_single_row_of_pixels_can_be_augmented():
    x = images(4, height=1, width=1)
    for name in ("photos", "cifar10-printed", "drawings"):
        assert AUGMENTATIONS[name](x, some_keys(4)).isfinite().all()


@pytest.mark.parametrize(
    "wrong",
    [{"flip": 1.5}, {"zoom": (1.2, 0.8)}, {"crop_area": (0.5, 2.0)}, {"hue": 0.7}, {"fill": -3.0}, {"noise": -1.0}],
)
def test_impossible_values_are_refused_by_name(wrong):
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} must"):
        Augmentation(**wrong)


def test_descriptions_name_what_is_switched_on():
    assert AUGMENTATIONS["none"].describe() == "Each view is the image itself."
    assert AUGMENTATIONS["tiny"].describe() == (
        "Each view is the image after a turn by up to 10°; a zoom by 0.9 to 1.1; "
        "a move by up to 0.125 of its side; Gaussian noise of standard deviation 0.1."
    )
    assert "shift by up to 4 pixels; a horizontal flip" in AUGMENTATIONS["cifar10-printed"].describe()
    assert len({a.describe() for a in AUGMENTATIONS.values()}) == len(set(AUGMENTATIONS.values()))


def test_printed_augmentations_have_the_paper_s_numbers():
    for name in ("svhn", "cifar10", "cifar100", "mnist"):
        printed = AUGMENTATIONS[f"{name}-printed"]
        assert (printed.jitter, printed.grey, printed.shift) == (0.1, 0.1, 4)
        assert printed.flip == (0.5 if "cifar" in name else 0.0)
        assert printed.noise == (0.2 if name in ("mnist", "addition") else 0.03)
    assert all(getattr(AUGMENTATIONS["none"], f.name) == f.default for f in fields(Augmentation))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["photos", "cifar10-printed", "drawings"])
def test_the_device_makes_the_same_views_and_replays_them_with_another_epoch(name):
    x = images(64, 32, 32, 1 if name in GREY else 3)
    on_device, rows, epoch = x.cuda(), torch.arange(64, device="cuda"), torch.zeros((), dtype=torch.int64).cuda()

    def views():
        return AUGMENTATIONS[name](on_device, keys(0, epoch, rows, 1))

    torch.testing.assert_close(views().cpu(), AUGMENTATIONS[name](x, some_keys(64, 0, 1)), atol=1e-4, rtol=0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = views()
    epoch.fill_(7)
    graph.replay()
    torch.testing.assert_close(captured.cpu(), AUGMENTATIONS[name](x, some_keys(64, 7, 1)), atol=1e-4, rtol=0)
