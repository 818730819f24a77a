import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors

from gedikit.views.augmentation import Augmentation
from gedikit.views.image_similarity import nearest_anchors, nearest_images
from gedikit.views.neighbour_walk import neighbour_walk
from gedikit.views.neighbours import neighbour_graph


def bars(n: int, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    """Upright and lying bars, anywhere in the image."""
    rng = np.random.default_rng(seed)
    images, lying = torch.full((n, 16, 16, 1), -1.0), rng.integers(0, 2, n)
    for image, down, (a, b) in zip(images, lying, rng.integers(3, 12, (n, 2)), strict=True):
        if down:
            image[a, b - 3 : b + 4] = 1
        else:
            image[a - 3 : a + 4, b] = 1
    return images, lying


def test_without_copies_the_nearest_correlate_most():
    images, _ = bars(60)
    images = images + 0.01 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    distances, rows = nearest_images(images, 5, Augmentation(), copies=0)
    wanted, index = (
        NearestNeighbors(n_neighbors=5, metric="correlation").fit(images.flatten(1).numpy()).kneighbors()
    )
    np.testing.assert_allclose(distances**2 / 2, wanted, atol=1e-3)  # |u − v|²/2 = 1 − correlation
    assert (rows == index).mean() > 0.99


def test_copies_find_what_the_augmentation_calls_the_same():
    images, lying = bars(24)
    shifted = Augmentation(shift=6, fill=-1.0, noise=0.5)
    found = [nearest_images(images, 5, shifted, copies=c)[1] for c in (0, 100)]
    by_pixels, by_views = (np.mean(lying[rows] == lying[:, None]) for rows in found)
    assert by_pixels < 0.8  # bars that cross are nearer than bars side by side
    assert by_views > 0.95


def test_no_image_is_its_own_neighbour_and_distances_only_shrink():
    images, _ = bars(50, seed=1)
    augmentation = Augmentation(shift=3, fill=-1.0)
    few, many = (nearest_images(images, 4, augmentation, copies=c) for c in (5, 20))
    assert not (few[1] == np.arange(50)[:, None]).any()
    assert (many[0] <= few[0] + 1e-5).all()


def test_walks_along_such_neighbours_stay_in_their_kind():
    images, lying = bars(200)
    generator = torch.Generator().manual_seed(0)

    def nearest(rows, k):
        return nearest_images(images[torch.from_numpy(rows)], k, Augmentation(shift=6, fill=-1.0), 60)

    walk = neighbour_walk(neighbour_graph(images.flatten(1).numpy(), generator, nearest=nearest), 2, generator)
    reached = walk.step(torch.arange(200), walk.n_levels - 1, generator).numpy()
    assert np.mean(lying[reached] == lying) > 0.85


def test_outlines_do_not_care_for_colours_and_light():
    """Bars in any colours and light: pixels group them by all that, outlines by their kind."""
    shapes, lying = bars(120)
    generator = torch.Generator().manual_seed(0)
    ground, stroke, slope = (torch.rand(120, 1, 1, 3, generator=generator) * 2 - 1 for _ in range(3))
    light = torch.linspace(-1, 1, 16)[None, None, :, None] * slope
    images = 0.5 * torch.where(shapes > 0, stroke, ground) + light
    moved = Augmentation(shift=4)
    found = {by: nearest_images(images, 5, moved, 60, by)[1] for by in ("pixels", "outlines")}
    share = {by: np.mean(lying[rows] == lying[:, None]) for by, rows in found.items()}
    assert share["pixels"] < 0.7
    assert share["outlines"] > 0.85


def test_every_image_gets_the_anchor_most_like_it():
    images, _ = bars(90)
    images = images + 0.3 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    brighter = 0.5 * images[:30] + 0.3
    for by in ("pixels", "outlines"):
        assert nearest_anchors(images.split(7), brighter, by)[:30, 0].tolist() == list(range(30))
