"""A folder of pictures of any size and format as one array."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gedikit.data.decoding import each_read
from gedikit.data.pictures import ENDINGS, Unreadable, is_grey, is_picture, read_square, why_left_out
from gedikit.errors import DataError, UsageError
from gedikit.processes import WHOLE, Share

_BLOCK = 4096
Skipped = tuple[tuple[str, str], ...]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImageFolder:
    """Pictures of a folder as one array."""

    images: NDArray[np.uint8]  # (n, size, size, 1 or 3)
    paths: tuple[str, ...]  # relative to the folder, with forward slashes, sorted
    skipped: Skipped  # what could not be read, and why

    @property
    def labels(self) -> NDArray[np.object_] | None:
        """Names of the sub-folders, for who takes them for classes."""
        return folder_labels(self.paths)


@dataclass(frozen=True)
class Listing:
    """Files of a folder and below, before any is opened."""

    root: Path
    files: tuple[tuple[str, Path], ...]  # names and places of pictures, sorted by name
    skipped: Skipped  # what shows something and is not read, and why

    @property
    def fingerprint(self) -> str:
        """Tells whether files were added, removed or written since, without opening them."""
        digest = hashlib.sha256()
        for name, path in self.files:
            try:
                status = path.stat()
                known = f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0"
            except OSError:
                known = f"{name}\0missing\0"
            digest.update(known.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:16]


def read_folder(
    root: Path, *, size: int = 32, channels: int | None = None, on_progress: Progress | None = None
) -> ImageFolder:
    """Every picture in and under a folder, scaled and cropped to `size` × `size`.

    Without `channels`, pictures have one if all of them are grey, else three.
    """
    check_size(size, channels)
    listing = list_pictures(root)
    read, all_grey = _read(listing.files, size, channels or 3, on_progress)
    images = read.images
    if channels is None and all_grey:
        images = np.ascontiguousarray(images[..., :1])
    skipped = listing.skipped + read.skipped
    if len(images) < 2:
        raise DataError(too_few(root, len(images), skipped))
    return ImageFolder(images, read.paths, skipped)


def folder_blocks(
    root: Path | Listing,
    *,
    size: int = 32,
    channels: int | None = None,
    block: int = _BLOCK,
    share: Share = WHOLE,
) -> Iterator[ImageFolder]:
    """The same pictures `block` files at a time; a single one is enough.

    Several processes take blocks in turns, which then may have no picture.
    """
    check_size(size, channels)
    listing = root if isinstance(root, Listing) else list_pictures(root)
    files, skipped = listing.files, listing.skipped
    if channels is None:
        channels = 1 if _all_grey(files, size) else 3
    if share.count > 1:
        for number, start in enumerate(range(0, len(files), block)):
            if share.has(number):
                read, _ = _read(files[start : start + block], size, channels)
                yield replace(read, skipped=read.skipped if number else skipped + read.skipped)
        return
    held: ImageFolder | None = None  # until it is known whether files without a picture follow
    for start in range(0, len(files), block):
        read, _ = _read(files[start : start + block], size, channels)
        skipped += read.skipped
        if len(read.images):
            if held is not None:
                yield held
            held, skipped = replace(read, skipped=skipped), ()
    if held is None:
        raise DataError(too_few(listing.root, 0, skipped))
    yield replace(held, skipped=held.skipped + skipped)


def check_size(size: int, channels: int | None) -> None:
    if size < 8 or size % 4:
        raise UsageError(f"image_size must be a multiple of 4 and at least 8, not {size}")
    if channels not in (None, 1, 3):
        raise UsageError(f"image_channels must be 1 or 3, not {channels}")


def list_pictures(root: Path) -> Listing:
    """All picture files in and under a folder.

    Links to folders are followed after everything else, and only where they lead to something new: no picture comes
    twice, and a loop ends where it began.
    """
    if not root.is_dir():
        raise UsageError(f"there is no folder {root}")
    home = root.resolve()
    seen = {home, *home.parents}
    files, skipped = [], []
    pending, links = [root], list[Path]()
    while pending or links:
        if not pending:
            links.sort(reverse=True)
            link = links.pop()
            if link.resolve() not in seen:
                seen.add(link.resolve())
                pending.append(link)
            continue
        folder = pending.pop()
        try:
            entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        except OSError as error:
            skipped.append((_name(folder, root), f"the folder cannot be opened: {error.strerror}"))
            continue
        for entry in entries:
            if entry.is_dir():
                if entry.is_symlink():
                    links.append(entry)
                elif entry.resolve() not in seen:
                    seen.add(entry.resolve())
                    pending.append(entry)
            elif is_picture(entry.suffix.lower()):
                files.append((_name(entry, root), entry))
            elif (why := why_left_out(entry.suffix.lower())) is not None:
                skipped.append((_name(entry, root), why))
    return Listing(root, tuple(sorted(files)), tuple(sorted(skipped)))


def _name(path: Path, root: Path) -> str:
    """A name that any text file can hold, whatever bytes the file system has."""
    return os.fsencode(path.relative_to(root).as_posix()).decode("utf-8", "backslashreplace")


def _read(
    files: Sequence[tuple[str, Path]], size: int, channels: int, on_progress: Progress | None = None
) -> tuple[ImageFolder, bool]:
    """The pictures of some files, and whether all are grey."""
    images = np.empty((len(files), size, size, channels), np.uint8)
    names, skipped = list[str](), list[tuple[str, str]]()
    all_grey = True
    for done, (name, picture) in enumerate(_pictures(files, size, channels), 1):
        if isinstance(picture, Unreadable):
            skipped.append((name, str(picture)))
        else:
            images[len(names)] = picture
            all_grey = all_grey and is_grey(picture)
            names.append(name)
        if on_progress is not None:
            on_progress(done, len(files))
    return ImageFolder(images[: len(names)], tuple(names), tuple(skipped)), all_grey


def _pictures(
    files: Sequence[tuple[str, Path]], size: int, channels: int
) -> Iterator[tuple[str, NDArray[np.uint8] | Unreadable]]:
    for (name, _), picture in each_read(files, lambda file: read_square(file[1], size, channels)):
        yield name, picture


def _all_grey(files: Sequence[tuple[str, Path]], size: int) -> bool:
    return all(is_grey(picture) for _, picture in _pictures(files, size, 3) if not isinstance(picture, Unreadable))


def folder_labels(names: Sequence[str]) -> NDArray[np.object_] | None:
    """First-level sub-folders, None for pictures outside of them; no labels where they tell nothing apart."""
    labels = [name.split("/")[0] if "/" in name else None for name in names]
    return np.array(labels, dtype=object) if len(set(labels) - {None}) > 1 else None


def too_few(root: Path, count: int, skipped: Skipped) -> str:
    """Why a folder cannot be used."""
    found = "only one picture" if count else "no picture"
    if not skipped:
        return f"{root} has {found}: files ending in {', '.join(ENDINGS)} are looked for, in sub-folders too"
    name, reason = skipped[0]
    return f"{root} has {found} that can be read; {len(skipped)} cannot, the first being {name}: {reason}"
