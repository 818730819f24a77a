"""Well-known image data sets, read from the files their authors distribute."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gedikit.data import cifar, idx, svhn
from gedikit.errors import DataError, UsageError

SPLITS = ("train", "test")
Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """One way in which a data set is distributed: a folder, the files of each split, and their reader."""

    folder: str
    files: Mapping[str, tuple[str, ...]]
    read: Callable[[list[Path]], tuple[Images, Labels]]
    may_be_gzipped: bool = False

    def find(self, root: Path, split: str) -> list[Path | None]:
        """Where the files of a split are, None for those that are not there."""
        return [self._find(root / self.folder / name) for name in self.files[split]]

    def _find(self, path: Path) -> Path | None:
        packed = path.with_name(path.name + ".gz")
        if self.may_be_gzipped and packed.is_file():
            return packed
        return path if path.is_file() else None


@dataclass(frozen=True)
class OfficialSet:
    name: str
    description: str
    n_classes: int
    counts: Mapping[str, int]  # images of each split as published
    layouts: tuple[Layout, ...]  # the first that is there is read


def data_root() -> Path:
    """The folder of all data sets: GEDIKIT_DATA if it is set, else one in the home directory."""
    given = os.environ.get("GEDIKIT_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "gedikit" / "data"


def read_official(name: str, split: str, root: Path | None = None) -> tuple[Images, Labels]:
    """Images (n, height, width, channels) and labels of one split."""
    if split not in SPLITS:
        raise UsageError(f"split must be train or test, not {split!r}")
    data, root = OFFICIAL[name], root or data_root()
    layout, paths = _files(data, split, root)
    images, labels = layout.read(paths)
    if len(images) == 0:
        raise DataError(f"{paths[0]} holds no images")
    if labels.min() < 0 or labels.max() >= data.n_classes:
        seen = labels.max() if labels.max() >= data.n_classes else labels.min()
        raise DataError(f"{paths[-1]} holds the label {seen}; those of {name} run from 0 to {data.n_classes - 1}")
    return images, labels


def is_there(name: str, root: Path) -> bool:
    """Whether every file of both splits is there; the files are not opened."""
    return all(any(None not in layout.find(root, split) for layout in OFFICIAL[name].layouts) for split in SPLITS)


def is_partly_there(name: str, root: Path) -> bool:
    return any(path for split in SPLITS for layout in OFFICIAL[name].layouts for path in layout.find(root, split))


def _files(data: OfficialSet, split: str, root: Path) -> tuple[Layout, list[Path]]:
    found = [(layout, layout.find(root, split)) for layout in data.layouts]
    for layout, paths in found:
        whole = [path for path in paths if path is not None]
        if len(whole) == len(paths):
            return layout, whole
    for layout, paths in found:
        if any(paths):
            absent = next(name for name, path in zip(layout.files[split], paths, strict=True) if path is None)
            raise DataError(
                f"{root / layout.folder} lacks {absent}, while other files of the {split} split are there: "
                f"gedikit data get {data.name} fetches what is missing"
            )
    folder = root / data.layouts[0].folder
    raise UsageError(
        f"{data.name} is not there: {folder} has no {data.layouts[0].files[split][0]}; "
        f"gedikit data get {data.name} fetches it, or set GEDIKIT_DATA to the folder that holds "
        f"{' or '.join(layout.folder for layout in data.layouts)}"
    )


def _read_mnist(paths: list[Path]) -> tuple[Images, Labels]:
    images, labels = idx.read_images(paths[0]), idx.read_labels(paths[1])
    if len(images) != len(labels):
        raise DataError(f"{paths[0]} has {len(images)} images but {paths[1]} has {len(labels)} labels")
    return images, labels


def _mnist_layout(folder: str) -> Layout:
    files = {
        split: (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
        for split, prefix in (("train", "train"), ("test", "t10k"))
    }
    return Layout(folder, files, _read_mnist, may_be_gzipped=True)


def _cifar10_files(ending: str) -> dict[str, tuple[str, ...]]:
    return {
        "train": tuple(f"data_batch_{i}{ending}" for i in range(1, 6)),
        "test": (f"test_batch{ending}",),
    }


def _sets() -> Iterator[OfficialSet]:
    mnist_counts, cifar_counts = {"train": 60_000, "test": 10_000}, {"train": 50_000, "test": 10_000}
    yield OfficialSet("mnist", "70000 handwritten digits, 28×28, grey", 10, mnist_counts, (_mnist_layout("mnist"),))
    yield OfficialSet(
        "fashion-mnist",
        "70000 pieces of clothing, 28×28, grey",
        10,
        mnist_counts,
        (_mnist_layout("fashion-mnist"),),
    )
    yield OfficialSet(
        "cifar10",
        "60000 photos of 10 things, 32×32, colour",
        10,
        cifar_counts,
        (
            Layout("cifar-10-batches-bin", _cifar10_files(".bin"), lambda paths: cifar.read_rows(paths, 1)),
            Layout("cifar-10-batches-py", _cifar10_files(""), lambda paths: cifar.read_pickles(paths, "labels")),
        ),
    )
    yield OfficialSet(
        "cifar100",
        "60000 photos of 100 things, 32×32, colour",
        100,
        cifar_counts,
        (
            Layout(
                "cifar-100-binary",
                {"train": ("train.bin",), "test": ("test.bin",)},
                lambda paths: cifar.read_rows(paths, 2),
            ),
            Layout(
                "cifar-100-python",
                {"train": ("train",), "test": ("test",)},
                lambda paths: cifar.read_pickles(paths, "fine_labels"),
            ),
        ),
    )
    yield OfficialSet(
        "svhn",
        "99289 digits of house numbers, 32×32, colour",
        10,
        {"train": 73_257, "test": 26_032},
        (
            Layout(
                "svhn",
                {"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)},
                lambda paths: svhn.read_mat(paths[0]),
            ),
        ),
    )


OFFICIAL: dict[str, OfficialSet] = {data.name: data for data in _sets()}
