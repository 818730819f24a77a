"""What the data says before the first iteration: its scale, its domain, and how views of it are made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from gedikit.data.alike import nearest_anchors, nearest_images
from gedikit.data.augment import PRESETS, Augmentation
from gedikit.data.geometry import kernel_bandwidth, neighbour_walk
from gedikit.data.image_views import ImageViews, Walks, place, scaled
from gedikit.data.neighbours import Nearest, NeighbourGraph, nearest_in_space, neighbour_graph
from gedikit.data.scaling import Scaler
from gedikit.data.views import NoiseViews, Views, WalkViews
from gedikit.errors import DataError, UsageError
from gedikit.methods import Method
from gedikit.sampling import Box
from gedikit.settings import Settings

_BLOCK = 4096
_PIXEL_BANDWIDTH = 0.03  # images: the scale on which pixels are noise, in units of [−1, 1]


@dataclass(frozen=True)
class Inputs:
    scaler: Scaler
    bandwidth: float
    box: Box
    sigma: float  # of noise that leaves a point where it is, in scaled units
    views: Views
    rows: Callable[[Int[Tensor, " k"]], Float[Tensor, "k d"]]  # scaled rows on the host
    nearest: Nearest  # of some rows among them
    graph: NeighbourGraph | None  # of all rows, where walks or the first targets need it


def look_at(
    x: NDArray[Any],
    method: Method,
    settings: Settings,
    n_clusters: int,
    seed: int,
    setup: torch.Generator,
    device: torch.device,
    examples: Int64[np.ndarray, "m v"] | None = None,
) -> Inputs:
    if settings.image_shape:
        return _images(x, method, settings, n_clusters, seed, setup, device, examples)
    return _vectors(x, method, settings, n_clusters, setup, device, examples)


def _vectors(
    x: NDArray[Any],
    method: Method,
    settings: Settings,
    n_clusters: int,
    setup: torch.Generator,
    device: torch.device,
    examples: Int64[np.ndarray, "m v"] | None,
) -> Inputs:
    if settings.augmentation in PRESETS:
        raise UsageError(f"augmentation {settings.augmentation!r} is for images: image_shape says what rows are")
    scaler = Scaler.fit(x, settings.scaling)
    data = torch.from_numpy(scaler.transform(x))
    bandwidth = kernel_bandwidth(data, setup)
    box = Box.around(data, max(settings.margin, 4 * bandwidth))
    sigma = settings.noise * (bandwidth if settings.noise_unit == "bandwidth" else 1.0)
    views: Views
    together = None if examples is None else torch.from_numpy(examples).to(device)
    graph = None
    if settings.augmentation == "walk" or _starts_from_clusters(method, examples):
        graph = neighbour_graph(data.numpy(), setup, n_neighbours=settings.neighbours)
    if graph is None or settings.augmentation == "noise":
        views = NoiseViews(data.to(device), sigma, examples=together)
    else:
        walk = neighbour_walk(graph, n_clusters, setup)
        hold, end = settings.walk_hold, settings.walk_end
        views = WalkViews(data.to(device), walk.to(device), sigma, hold, end, examples=together)

    def nearest(rows: NDArray[np.int64], k: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return nearest_in_space(data.numpy()[rows], k)

    return Inputs(scaler, bandwidth, box, sigma, views, lambda rows: data[rows], nearest, graph)


def _images(
    x: NDArray[Any],
    method: Method,
    settings: Settings,
    n_clusters: int,
    seed: int,
    setup: torch.Generator,
    device: torch.device,
    examples: Int64[np.ndarray, "m v"] | None,
) -> Inputs:
    shape = check_image_shape(settings.image_shape, x.shape[1])
    if settings.augmentation not in PRESETS:
        raise UsageError(f"images need an augmentation from {', '.join(PRESETS)}, not {settings.augmentation!r}")
    scaler, pixels = as_bytes(x)
    strong = PRESETS[settings.augmentation]
    # a density is to be that of the images, not of what is made of them
    light = Augmentation(noise=strong.noise) if method.models_density else strong
    d = x.shape[1]
    box = Box(torch.full((d,), -1.0), torch.full((d,), 1.0))

    def rows(which: Tensor) -> Tensor:
        return scaled(torch.from_numpy(np.ascontiguousarray(pixels[which.numpy()])))

    def images(which: Tensor) -> Tensor:
        return rows(which).reshape(-1, *shape).to(device)

    def nearest(which: NDArray[np.int64], k: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return nearest_images(images(torch.from_numpy(which)), k, strong, settings.walk_copies, settings.walk_by)

    def closest(anchors: NDArray[np.int64]) -> NDArray[np.int64]:
        blocks = map(images, torch.arange(len(pixels)).split(_BLOCK))
        return nearest_anchors(blocks, images(torch.from_numpy(anchors)), settings.walk_by)

    graph = walks = None
    if settings.image_walks == "on" or _starts_from_clusters(method, examples):
        graph = neighbour_graph(pixels, setup, n_neighbours=settings.neighbours, nearest=nearest, closest=closest)
    if graph is not None and settings.image_walks == "on":
        walks = Walks(neighbour_walk(graph, n_clusters, setup), settings.walk_hold, settings.walk_end)
    views = ImageViews(place(pixels, device), shape, light, strong, seed, device, walks, examples)

    return Inputs(scaler, _PIXEL_BANDWIDTH, box, strong.noise, views, rows, nearest, graph)


def _starts_from_clusters(method: Method, examples: Int64[np.ndarray, "m v"] | None) -> bool:
    return "reading" in method.terms and examples is None


def as_bytes(x: NDArray[Any]) -> tuple[Scaler, NDArray[np.uint8]]:
    """Pixels as bytes, and the map from the units of x to [−1, 1]: 0 to 255 for bytes, else the range of x."""
    d = x.shape[1]
    if x.dtype == np.uint8:
        return Scaler(np.full(d, 127.5), np.full(d, 127.5)), x
    low, high = float(x.min()), float(x.max())
    middle, half = (low + high) / 2, (high - low) / 2
    rounded = np.rint((x - low) * (255 / (high - low))).astype(np.uint8)
    return Scaler(np.full(d, middle), np.full(d, half)), rounded


def check_image_shape(shape: tuple[int, ...], n_features: int) -> tuple[int, int, int]:
    if len(shape) != 3 or shape[2] not in (1, 3) or min(shape) < 1:
        raise UsageError(f"image_shape must be (height, width, channels) with 1 or 3 channels, not {shape}")
    height, width, channels = shape
    if height * width * channels != n_features:
        raise DataError(
            f"rows of {n_features} values are no images of {height} × {width} pixels with {channels} channel(s), "
            f"which have {height * width * channels}"
        )
    return height, width, channels
