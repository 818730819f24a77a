"""Views of images: a data set of bytes on the device or on disk, augmented on the device."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from numpy.typing import NDArray
from torch import Tensor

from gedikit.processes import Share
from gedikit.randomness import Randomness, keys, share_of
from gedikit.rows import Rows, SomeHeld, StoredRows
from gedikit.views.augmentation import Augmentation
from gedikit.views.base import Batch
from gedikit.views.neighbour_walk import NeighbourWalk, walk_level

_SHARE_OF_MEMORY = 0.3
_HELD = 2**28  # bytes of rows in shards


class Pixels(Protocol):
    """Rows of bytes, wherever they lie."""

    def __len__(self) -> int: ...

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """The rows of an epoch, each once."""
        ...

    def take(self, rows: NDArray[np.int64], upcoming: NDArray[np.int64] | None) -> UInt8[Tensor, "b d"]:
        """Rows on the device; `upcoming` are those that will be asked for next."""
        ...


@dataclass(frozen=True)
class DevicePixels:
    """All bytes on the device."""

    data: UInt8[Tensor, "n d"]

    def __len__(self) -> int:
        return len(self.data)

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return generator.permutation(len(self))

    def take(self, rows: NDArray[np.int64], upcoming: NDArray[np.int64] | None = None) -> UInt8[Tensor, "b d"]:  # noqa: ARG002
        return self.data[torch.from_numpy(rows).to(self.data.device, non_blocking=True)]


@dataclass
class StreamedPixels:
    """Bytes in memory, in a memory-mapped file or in shards; the next batch is read while this one is worked on."""

    data: NDArray[np.uint8] | StoredRows
    device: torch.device
    _reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1), repr=False)
    _ahead: tuple[bytes, Future[Tensor]] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.data)

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return self.data.order(generator) if isinstance(self.data, StoredRows) else generator.permutation(len(self))

    def take(self, rows: NDArray[np.int64], upcoming: NDArray[np.int64] | None = None) -> UInt8[Tensor, "b d"]:
        ahead, self._ahead = self._ahead, None
        known = ahead is not None and ahead[0] == rows.tobytes()
        batch = ahead[1].result() if ahead is not None and known else self._read(rows)
        if upcoming is not None:
            self._ahead = upcoming.tobytes(), self._reader.submit(self._read, upcoming)
        return batch.to(self.device, non_blocking=True)

    def _read(self, rows: NDArray[np.int64]) -> Tensor:
        order = np.argsort(rows)  # a file is read from front to back
        taken = np.empty((len(rows), self.data.shape[1]), dtype=np.uint8)
        taken[order] = self.data[rows[order]]
        batch = torch.from_numpy(taken)
        return batch.pin_memory() if self.device.type == "cuda" else batch


def place(data: Rows, device: torch.device, often: NDArray[np.int64] | None = None) -> Pixels:
    """On the device where all bytes fit beside the training, else streamed; of rows in shards, those are held that
    are needed `often`."""
    if isinstance(data, StoredRows):
        if often is None or len(often) * data.shape[1] > _HELD:
            return StreamedPixels(data, device)
        return StreamedPixels(SomeHeld(data, np.unique(often)), device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if data.nbytes > _SHARE_OF_MEMORY * free:
            return StreamedPixels(data, device)
    elif isinstance(data, np.memmap):
        return StreamedPixels(data, device)
    return DevicePixels(torch.from_numpy(np.ascontiguousarray(data)).to(device))


@dataclass(frozen=True)
class Walks:
    """Walks along the neighbours of images, where images that are near as rows of pixels are alike."""

    steps: NeighbourWalk  # on the host
    hold: float
    end: float

    def reached(self, rows: NDArray[np.int64], level: int, key: list[int]) -> NDArray[np.int64]:
        ends = self.steps.ends[level].numpy()
        pick = np.random.default_rng(key).integers(ends.shape[1], size=len(rows))
        reached: NDArray[np.int64] = self.steps.anchor_rows.numpy()[ends[self.steps.anchor.numpy()[rows], pick]]
        return reached


@dataclass(frozen=True)
class ImageViews:
    """Epochs of shuffled images; x′ by `strong`, x by `light`, both set by (seed, epoch, row) alone.

    With walks, x′ is made of the image that a walk from x leads to.
    """

    pixels: Pixels
    image_shape: tuple[int, int, int]
    light: Augmentation
    strong: Augmentation
    seed: int
    device: torch.device
    walks: Walks | None = None
    examples: Int64[np.ndarray, "m v"] | None = None  # rows that are drawn together
    _order: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    @property
    def n_rows(self) -> int:
        return len(self.pixels)

    def points(self, start: int, stop: int) -> Float[Tensor, "b d"]:
        return scaled(self.pixels.take(np.arange(start, stop), None))

    def level(self, progress: float) -> int:
        w = self.walks
        return 0 if w is None else walk_level(w.steps, progress, w.hold, w.end)

    def batch(self, size: int, iteration: int, level: int, generator: Randomness) -> Batch:
        here = share_of(generator)
        rows, drawn, epoch = self._rows(here.count * size, iteration)
        wanted = self._wanted(rows, iteration, level, here)
        upcoming = self._wanted(self._rows(here.count * size, iteration + 1)[0], iteration + 1, level, here)
        raw = self.pixels.take(wanted, upcoming)
        rows, drawn = (part[here.part(len(part))] for part in (rows, drawn))
        where, what = (torch.from_numpy(part).to(self.device, non_blocking=True) for part in (rows, drawn))
        return where, what, raw, torch.full((), epoch, device=self.device)

    def __call__(
        self,
        batch: Batch,
        level: int,  # noqa: ARG002
        generator: Randomness,  # noqa: ARG002
        number: int = 0,
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        rows, _, raw, epoch = batch
        images = scaled(raw).reshape(-1, *self.image_shape)
        x = self.light(images[: len(rows)], keys(self.seed, epoch, rows, 0))
        view = self.strong(images[-len(rows) :], keys(self.seed, epoch, rows, 1 + number))
        return x.flatten(1), view.flatten(1)

    def _rows(self, size: int, iteration: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """The batch's rows, what was drawn, its epoch; what is left after its last full batch is left out."""
        count, together = (self.n_rows, 1) if self.examples is None else self.examples.shape
        size //= together
        epoch, place = divmod(iteration, batches_per_epoch(count, size))
        if epoch not in self._order:
            for old in [e for e in self._order if e < epoch - 1]:
                del self._order[old]
            generator = np.random.default_rng([self.seed, epoch])
            alone = self.examples is None
            self._order[epoch] = self.pixels.order(generator) if alone else generator.permutation(count)
        chosen = self._order[epoch][place * size : (place + 1) * size]
        return (chosen if self.examples is None else self.examples[chosen].reshape(-1)), chosen, epoch

    def _wanted(self, rows: NDArray[np.int64], iteration: int, level: int, here: Share) -> NDArray[np.int64]:
        """The rows that x is made of here, and after them those that x′ is made of where they differ."""
        own = here.part(len(rows))
        if self.walks is None:
            return rows[own]
        return np.concatenate([rows[own], self.walks.reached(rows, level, [self.seed, iteration])[own]])


def batches_per_epoch(n_rows: int, size: int) -> int:
    return max(1, n_rows // size)


def scaled(raw: UInt8[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """Bytes to [−1, 1]."""
    return raw.float().sub_(127.5).div_(127.5)
