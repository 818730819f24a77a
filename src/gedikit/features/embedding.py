"""From pictures to features, some at a time."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from numpy.typing import NDArray
from PIL import Image

from gedikit.data.folder import Progress
from gedikit.data.pictures import Unreadable, read_square, square_of
from gedikit.errors import DataError
from gedikit.features.base import FeatureNetwork, feature_networks
from gedikit.training.devices import resolve_device

BATCH = 32
_NAMED = 5  # pictures that cannot be read, in a sentence
Picture = str | Path | Image.Image
Embedder = Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def embed(
    pictures: NDArray[Any] | Sequence[Picture],
    network: str | FeatureNetwork = "efficientnet-lite0",
    *,
    size: int | None = None,
    batch_size: int = BATCH,
    device: str = "auto",
    on_progress: Progress | None = None,
) -> Float32[np.ndarray, "n d"]:
    """Features of pictures, one row each: a table that `GEDI().fit` takes.

    `pictures` is an array (n, height, width) or (n, height, width, channels) of bytes, or of numbers between 0 and
    1; or a sequence of files or Pillow images, of any size and mode. Of each the middle is looked at, scaled to
    `size` pixels a side (None: as the network prefers). `network` is a name or a `FeatureNetwork` with settings of
    your own. All columns have one unit: fit them with `config={"data.scaling": "global"}`. `embed_folder` is the
    same for a folder.
    """
    chosen = named_network(network, size)
    squares, features = _squares(pictures, chosen.size), embedder(chosen, device)
    made, done = np.empty((len(pictures), chosen.n_features), dtype=np.float32), 0
    for batch in _batches(squares, batch_size):
        made[done : done + len(batch)] = features(batch)
        done += len(batch)
        if on_progress is not None:
            on_progress(done, len(pictures))
    return made


def named_network(network: str | FeatureNetwork, size: int | None = None) -> FeatureNetwork:
    """The network of a name, at another size of pictures if asked for."""
    chosen = feature_networks.get(network)() if isinstance(network, str) else network
    return chosen if size is None else chosen.replace(size=size)


def embedder(network: FeatureNetwork, device: str = "auto") -> Embedder:
    """The function from squares of pixels (n, size, size, 3) to features (n, d); the network is built once."""
    place = resolve_device(device)
    module = network.build().to(place)

    def features(squares: UInt8[np.ndarray, "b size size 3"]) -> Float32[np.ndarray, "b d"]:
        with torch.inference_mode():
            # (n, height, width, channels) in memory, as convolutions with channels last read it
            pixels = torch.from_numpy(np.ascontiguousarray(squares)).to(place).permute(0, 3, 1, 2).float() / 255
            made: NDArray[np.float32] = module(pixels).float().cpu().numpy()
        if made.shape != (len(squares), network.n_features):
            raise DataError(
                f"the features {network.name!r} have the shape {made.shape}, and {len(squares)} pictures with "
                f"{network.n_features} numbers each were expected"
            )
        return _unit_length(made) if network.unit_length else made

    return features


def _unit_length(features: Float32[np.ndarray, "b d"]) -> Float32[np.ndarray, "b d"]:
    length = np.linalg.norm(features, axis=1, keepdims=True)
    directions: NDArray[np.float32] = features / np.maximum(length, np.finfo(np.float32).tiny)
    return directions


def _squares(pictures: NDArray[Any] | Sequence[Picture], size: int) -> Iterator[NDArray[np.uint8]]:
    if isinstance(pictures, np.ndarray):
        return (square_of(Image.fromarray(picture), size) for picture in _bytes(pictures))
    _check_readable(pictures)
    return _read(pictures, size)


def _bytes(pictures: NDArray[Any]) -> NDArray[np.uint8]:
    """Pixels as bytes, without an axis for a single channel."""
    if pictures.ndim == 4 and pictures.shape[3] == 1:
        pictures = pictures[..., 0]
    if pictures.ndim != 3 and not (pictures.ndim == 4 and pictures.shape[3] == 3):
        raise DataError(
            "pictures have the shape (n, height, width) or (n, height, width, channels) with 1 or 3 channels, "
            f"not {pictures.shape}"
        )
    if pictures.dtype == np.uint8:
        return pictures
    if pictures.dtype == np.bool_:
        return pictures.astype(np.uint8) * np.uint8(255)
    if not (pictures.dtype.kind == "f" and len(pictures) and pictures.min() >= 0 and pictures.max() <= 1):
        raise DataError(
            f"pictures are bytes (uint8), or floats between 0 and 1; these are {pictures.dtype}"
            + (f" from {pictures.min():g} to {pictures.max():g}" if pictures.size else "")
        )
    rounded: NDArray[np.uint8] = np.rint(pictures * 255).astype(np.uint8)
    return rounded


def _check_readable(pictures: Sequence[Any]) -> None:
    if isinstance(pictures, str | Path):
        raise DataError(f"{pictures} is one place: embed takes a list of files, and embed_folder a folder")
    wrong = next((p for p in pictures if not isinstance(p, str | Path | Image.Image)), None)
    if wrong is not None:
        raise DataError(f"pictures are files, Pillow images or an array of pixels, not {type(wrong).__name__}")


def _read(pictures: Sequence[Picture], size: int) -> Iterator[NDArray[np.uint8]]:
    """Squares of all pictures; those that cannot be read are told together, since each is to have its row."""
    failed = []
    for number, picture in enumerate(pictures):
        try:
            if isinstance(picture, Image.Image):
                yield square_of(picture.copy(), size)
            else:
                yield read_square(Path(picture), size)
        except Unreadable as why:
            place = f"picture {number}" if isinstance(picture, Image.Image) else str(picture)
            failed.append(f"{place} ({why})")
    if failed:
        more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        raise DataError(
            f"{len(failed)} of {len(pictures)} pictures cannot be read: {', '.join(failed[:_NAMED])}{more}"
        )


def _batches(squares: Iterator[NDArray[np.uint8]], batch_size: int) -> Iterator[NDArray[np.uint8]]:
    batch: list[NDArray[np.uint8]] = []
    for square in squares:
        batch.append(square)
        if len(batch) == batch_size:
            yield np.stack(batch)
            batch = []
    if batch:
        yield np.stack(batch)
