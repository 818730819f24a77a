"""Fetching data sets from where their authors, or mirrors of them, publish them."""

import shutil
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from gedikit.data.official import OFFICIAL, SPLITS, data_root, is_there, read_official
from gedikit.data.transfer import fetch, md5_of
from gedikit.errors import DataError, UsageError

Received = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Release:
    """Where a data set is published: files that go into a folder, or one archive with files that do."""

    folder: str
    bases: tuple[str, ...]  # addresses that a file's name is appended to, tried in this order
    megabytes: int
    checksums: Mapping[str, str] = field(default_factory=dict)  # md5 of files in the folder, as published
    archive: str | None = None
    archive_md5: str = ""
    members: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return self.members or tuple(self.checksums)


def get(
    name: str, root: Path | None = None, *, release: Release | None = None, on_progress: Received | None = None
) -> str:
    """Fetch what is missing of a data set, or verify what is there; returns a sentence that says which."""
    if name not in RELEASES:
        raise UsageError(f"there is no data set {name!r} to fetch; there are {', '.join(RELEASES)}")
    root, release = root or data_root(), release or RELEASES[name]
    if is_there(name, root):
        return _verified(name, root, release)
    folder = root / release.folder
    missing = [file for file in release.files if not (folder / file).is_file()]
    if release.archive is not None:
        _fetch_archive(release, release.archive, root, missing, on_progress)
    else:
        for file in missing:
            _fetch(release, file, folder / file, release.checksums[file], on_progress)
    return f"{name} was fetched to {folder}; checksums agree with the published ones"


def _fetch(release: Release, file: str, target: Path, md5: str, on_progress: Received | None) -> None:
    def report(done: int, total: int | None) -> None:
        if on_progress is not None:
            on_progress(file, done, total)

    fetch([base + file for base in release.bases], target, md5, report)


def _fetch_archive(
    release: Release, archive: str, root: Path, missing: list[str], on_progress: Received | None
) -> None:
    path = root / archive
    if not path.is_file() or md5_of(path) != release.archive_md5:
        _fetch(release, archive, path, release.archive_md5, on_progress)
    _unpack(path, {f"{release.folder}/{file}": root / release.folder / file for file in missing})
    path.unlink()


def _unpack(archive: Path, wanted: dict[str, Path]) -> None:
    """Write the files named, and nothing else an archive may hold, each whole or not at all."""
    from gedikit.storage import write_atomically

    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                target = wanted.pop(PurePosixPath(member.name).as_posix(), None)
                if target is not None:
                    write_atomically(target, partial(_copy, tar, member))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(
            f"{archive} cannot be unpacked: {error}; delete it and run the same command again"
        ) from error
    if wanted:
        raise DataError(f"{archive} does not hold {next(iter(wanted))}: delete it and run the same command again")


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(member) if member.isreg() else None
    if source is None:
        raise DataError(f"{member.name} in {tar.name!r} is a link or a folder, not a file")
    with source, path.open("wb") as file:
        shutil.copyfileobj(source, file)


def _verified(name: str, root: Path, release: Release) -> str:
    """What is there, read whole; files that are right in another way than byte for byte are fine too."""
    counts = []
    for split in SPLITS:
        images, _ = read_official(name, split, root)
        expected = OFFICIAL[name].counts[split]
        if len(images) != expected:
            raise DataError(
                f"{name} is there but its {split} split has {len(images)} images instead of {expected}: "
                f"move {root / release.folder} away to fetch it anew"
            )
        counts.append(f"{len(images)} {split}")
    sentence = f"{name} is there already and whole: {' and '.join(counts)} images under {root}"
    known = {root / release.folder / file: md5 for file, md5 in release.checksums.items()}
    if not known or not all(path.is_file() for path in known):
        return f"{sentence}; no checksums are published for these files"
    if all(md5_of(path) == md5 for path, md5 in known.items()):
        return f"{sentence}; checksums agree with the published ones"
    return f"{sentence}; the files are not byte for byte the published ones"


def _idx_checksums(train_images: str, train_labels: str, test_images: str, test_labels: str) -> dict[str, str]:
    return {
        "train-images-idx3-ubyte.gz": train_images,
        "train-labels-idx1-ubyte.gz": train_labels,
        "t10k-images-idx3-ubyte.gz": test_images,
        "t10k-labels-idx1-ubyte.gz": test_labels,
    }


_TORONTO = ("https://www.cs.toronto.edu/~kriz/",)
_CIFAR10_BATCHES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
RELEASES: dict[str, Release] = {
    "mnist": Release(
        "mnist",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        12,
        _idx_checksums(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion-mnist": Release(
        "fashion-mnist",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        31,
        _idx_checksums(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    "cifar10": Release(
        "cifar-10-batches-bin",
        _TORONTO,
        170,
        _CIFAR10_BATCHES,
        archive="cifar-10-binary.tar.gz",
        archive_md5="c32a1d4ab5d03f1284b67883e8d87530",
        members=(*_CIFAR10_BATCHES, "batches.meta.txt"),
    ),
    "cifar100": Release(
        "cifar-100-binary",
        _TORONTO,
        169,
        archive="cifar-100-binary.tar.gz",
        archive_md5="03b5dce01913d631647c71ecec9e9cb8",
        members=("train.bin", "test.bin", "fine_label_names.txt", "coarse_label_names.txt"),
    ),
    "svhn": Release(
        "svhn",
        ("http://ufldl.stanford.edu/housenumbers/",),
        246,
        {
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
    ),
}
