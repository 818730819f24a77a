"""Batches and views of images: who is in them, what they look like, and where the bytes come from."""

import numpy as np
import pytest
import torch

from gedikit.views.augmentation import Augmentation
from gedikit.views.image_views import (
    DevicePixels,
    ImageViews,
    StreamedPixels,
    Walks,
    batches_per_epoch,
    place,
    scaled,
)
from gedikit.views.neighbour_walk import neighbour_walk
from gedikit.views.neighbours import neighbour_graph

SHAPE = (4, 4, 3)
CPU = torch.device("cpu")
STRONG = Augmentation(shift=1, flip=0.5, jitter=1.0, brightness=0.4, noise=0.1)
LIGHT = Augmentation(noise=0.1)
UNUSED = torch.Generator()


def images(n: int = 23) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 48), dtype=np.uint8)


def views_of(data: np.ndarray, seed: int = 5, light=LIGHT, strong=STRONG, pixels=None) -> ImageViews:
    pixels = DevicePixels(torch.from_numpy(data)) if pixels is None else pixels
    return ImageViews(pixels, SHAPE, light, strong, seed, CPU)


def rows_of_epoch(views: ImageViews, epoch: int, size: int) -> list[list[int]]:
    per = batches_per_epoch(views.n_rows, size)
    batches = [views.batch(size, epoch * per + i, 0, UNUSED) for i in range(per)]
    assert [int(b[3]) for b in batches] == [epoch] * per
    return [b[0].tolist() for b in batches]


def test_every_epoch_is_another_permutation():
    views = views_of(images(24))
    orders = [[row for rows in rows_of_epoch(views, epoch, 6) for row in rows] for epoch in range(4)]
    for order in orders:
        assert sorted(order) == list(range(24))
    assert len({tuple(order) for order in orders}) == 4
    assert orders[0] != list(range(24))


def test_what_is_left_of_an_epoch_is_left_out_and_differs_from_epoch_to_epoch():
    views = views_of(images(23))
    left_out = []
    for epoch in range(6):
        batches = rows_of_epoch(views, epoch, 5)
        assert [len(rows) for rows in batches] == [5, 5, 5, 5]
        seen = set().union(*batches)
        assert len(seen) == 20
        left_out.append(frozenset(range(23)) - seen)
    assert len(set(left_out)) > 1


@pytest.mark.parametrize(("n", "size", "wanted"), [(24, 6, 4), (23, 6, 3), (6, 6, 1), (5, 6, 1)])
def test_batches_in_an_epoch(n, size, wanted):
    assert batches_per_epoch(n, size) == wanted


def test_the_seed_sets_the_order_and_nothing_else_does():
    data = images()
    one, same, other = (rows_of_epoch(views_of(data, seed), 2, 5) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    from_the_middle = views_of(data, 1)
    assert from_the_middle.batch(5, 9, 0, UNUSED)[0].tolist() == one[1]
    from_the_middle.batch(5, 0, 0, UNUSED)  # back to the start, as after a rollback
    assert from_the_middle.batch(5, 9, 0, UNUSED)[0].tolist() == one[1]


def test_batches_draw_nothing_from_the_generator():
    views, generator = views_of(images()), torch.Generator().manual_seed(0)
    before = generator.get_state()
    batch = views.batch(5, 0, 0, generator)
    views(batch, views.level(0.3), generator)
    assert torch.equal(generator.get_state(), before)


def test_a_batch_carries_the_bytes_of_its_rows():
    data = images()
    rows, _, raw, _ = views_of(data).batch(5, 3, 0, UNUSED)
    assert raw.dtype == torch.uint8
    assert np.array_equal(raw.numpy(), data[rows.numpy()])


def test_a_view_depends_on_seed_epoch_and_row_and_not_on_the_batch():
    data = images()
    views = views_of(data)
    epoch = torch.tensor(3)

    def view(rows: list[int], views: ImageViews = views, epoch: torch.Tensor = epoch, number: int = 0):
        which = torch.tensor(rows)
        return views((which, which, torch.from_numpy(data)[which], epoch), 0, UNUSED, number)

    x, changed = view([7, 2, 11, 20])
    for rows, place_of_2 in (([2], 0), ([4, 5, 2], 2)):
        again_x, again = view(rows)
        assert torch.equal(again_x[place_of_2], x[1])
        assert torch.equal(again[place_of_2], changed[1])
    for other in (view([2], views_of(data, 6)), view([2], epoch=torch.tensor(4))):
        assert not torch.equal(other[0][0], x[1])
        assert not torch.equal(other[1][0], changed[1])
    another_x, another = view([2], number=1)
    assert torch.equal(another_x[0], x[1])
    assert not torch.equal(another[0], changed[1])


def test_two_views_differ_and_have_noise_of_their_own():
    views = views_of(np.full((400, 48), 128, np.uint8), light=LIGHT, strong=LIGHT)
    x, view = views(views.batch(400, 0, 0, UNUSED), 0, UNUSED)
    plain = scaled(torch.tensor([[128]], dtype=torch.uint8))
    x, view = x - plain, view - plain
    assert float(x.std()) == pytest.approx(0.1, rel=0.03)
    assert float(view.std()) == pytest.approx(0.1, rel=0.03)
    correlation = torch.corrcoef(torch.stack([x.flatten(), view.flatten()]))[0, 1]
    assert abs(float(correlation)) < 0.03  # 4 deviations for 19,200 pixels


def test_x_is_changed_lightly_and_its_view_strongly():
    data = images(40)
    views = views_of(data, light=Augmentation(), strong=Augmentation(flip=1.0))
    rows, drawn, raw, epoch = views.batch(40, 0, 0, UNUSED)
    x, view = views((rows, drawn, raw, epoch), 0, UNUSED)
    plain = (torch.from_numpy(data)[rows].double() / 127.5 - 1).float()
    torch.testing.assert_close(x, plain, rtol=0, atol=1e-6)
    mirrored = plain.reshape(-1, *SHAPE).flip(2).flatten(1)
    torch.testing.assert_close(view, mirrored, rtol=0, atol=1e-6)


def test_points_are_the_scaled_rows_without_augmentation():
    data = images()
    points = views_of(data).points(3, 9)
    np.testing.assert_allclose(points.numpy(), data[3:9] / 127.5 - 1, atol=1e-6)


def test_bytes_fill_the_range_from_minus_one_to_one():
    levels = scaled(torch.arange(256, dtype=torch.uint8))
    assert (levels[0], levels[255]) == (-1.0, 1.0)
    torch.testing.assert_close(levels, torch.linspace(-1, 1, 256), rtol=0, atol=1e-6)
    assert torch.equal(levels, -levels.flip(0)), "symmetric about grey"


@pytest.mark.parametrize("kind", ["array", "memmap", "columns first"])
def test_streamed_pixels_are_those_on_the_device(tmp_path, kind):
    data = images()
    streamed = StreamedPixels(stored(data, kind, tmp_path), CPU)
    assert len(streamed) == 23
    on_device, from_file = views_of(data), views_of(data, pixels=streamed)
    for iteration in [0, 1, 2, 3, 4, 9, 10, 2]:
        a, b = (v.batch(5, iteration, 0, UNUSED) for v in (on_device, from_file))
        assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
        assert all(torch.equal(p, q) for p, q in zip(on_device(a, 0, UNUSED), from_file(b, 0, UNUSED), strict=True))
    assert torch.equal(on_device.points(4, 23), from_file.points(4, 23))


class Counted(np.ndarray):
    """An array that remembers how often rows were read from it, and which."""

    reads: list[tuple[int, ...]]

    def __getitem__(self, key):
        if isinstance(key, np.ndarray):
            self.reads.append(tuple(key.tolist()))
        return np.asarray(self)[key]


def counted(data: np.ndarray) -> Counted:
    made = data.view(Counted)
    made.reads = []
    return made


def test_the_next_batch_is_read_ahead_and_not_read_again():
    data = images()
    source = counted(data)
    pixels = StreamedPixels(source, CPU)
    first, second, third = np.array([5, 1, 9]), np.array([3, 22, 0]), np.array([8, 7, 6])
    pixels.take(first, second)
    assert pixels._ahead[1].result().tolist() == data[second].tolist(), "read before it is asked for"
    assert source.reads == [(1, 5, 9), (0, 3, 22)], "each from front to back"
    assert pixels.take(second, third).tolist() == data[second].tolist()
    assert pixels.take(third, None).tolist() == data[third].tolist()
    assert source.reads == [(1, 5, 9), (0, 3, 22), (6, 7, 8)]


def test_a_wrong_guess_of_the_next_batch_is_harmless():
    data = images()
    pixels = StreamedPixels(data, CPU)
    pixels.take(np.array([1, 2]), np.array([3, 4]))
    assert pixels.take(np.array([9, 3]), np.array([4, 3])).tolist() == data[[9, 3]].tolist()
    assert pixels.take(np.array([3, 4])).tolist() == data[[3, 4]].tolist(), "the same rows in another order"
    assert pixels.take(np.array([4, 3])).tolist() == data[[4, 3]].tolist(), "nothing is kept for later"


def test_arrays_are_placed_on_the_device_and_files_are_streamed(tmp_path):
    data = images()
    placed = place(data, CPU)
    assert isinstance(placed, DevicePixels)
    assert isinstance(place(stored(data, "memmap", tmp_path), CPU), StreamedPixels)
    assert torch.equal(placed.take(np.array([2, 0]), None), torch.from_numpy(data[[2, 0]]))


def stored(data: np.ndarray, kind: str, folder) -> np.ndarray:
    if kind == "columns first":
        return np.asfortranarray(data)
    if kind == "array":
        return data
    data.tofile(folder / "pixels.bin")
    return np.memmap(folder / "pixels.bin", dtype=np.uint8, mode="r", shape=data.shape)


def walking(data: np.ndarray, seed: int = 5, pixels=None) -> ImageViews:
    points = scaled(torch.from_numpy(data))
    generator = torch.Generator().manual_seed(0)
    steps = neighbour_walk(neighbour_graph(points.numpy(), generator, n_neighbours=3), 2, generator)
    placed = DevicePixels(torch.from_numpy(data)) if pixels is None else pixels
    nothing = Augmentation()
    return ImageViews(placed, SHAPE, nothing, nothing, seed, CPU, Walks(steps, 0.3, 0.8))


def dark_and_bright(n: int = 40) -> np.ndarray:
    """Even rows are dark and odd ones bright: no walk leads from one to the other."""
    rng = np.random.default_rng(0)
    return (rng.integers(0, 60, (n, 48)) + 190 * (np.arange(n)[:, None] % 2)).astype(np.uint8)


def test_a_walk_makes_the_view_of_a_neighbour():
    data = dark_and_bright()
    views = walking(data)
    top = views.level(0.0)
    assert top > 0
    assert views.level(0.2) == top
    assert views.level(0.9) == views.level(1.0) == 0
    moved = 0
    for iteration in range(6):
        batch = views.batch(10, iteration, top, UNUSED)
        x, view = views(batch, top, UNUSED)
        assert x.shape == view.shape == (10, 48)
        assert torch.equal(x, scaled(torch.from_numpy(data))[batch[0]])
        pixels = ((view + 1) * 127.5).round().to(torch.uint8).numpy()
        reached = [int(np.flatnonzero((data == row).all(1))[0]) for row in pixels]
        assert all(row % 2 == end % 2 for row, end in zip(batch[0].tolist(), reached, strict=True))
        moved += sum(row != end for row, end in zip(batch[0].tolist(), reached, strict=True))
    assert moved > 20, "most walks lead elsewhere"


def test_walks_are_set_by_the_seed_and_the_iteration_alone(tmp_path):
    data = dark_and_bright()
    streamed = StreamedPixels(stored(data, "memmap", tmp_path), CPU)
    one, same, other = walking(data), walking(data, pixels=streamed), walking(data, 6)
    level = one.level(0.0)
    for iteration in (0, 1, 2):
        one.batch(10, iteration, level, UNUSED)
    for at in (level, 0):  # also where the level has changed, and another batch was read ahead
        wanted, found, another = (v.batch(10, 3, at, UNUSED) for v in (one, same, other))
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
        assert not torch.equal(wanted[1], another[1])
