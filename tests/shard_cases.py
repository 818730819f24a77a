"""Shards of small pictures, whole and damaged."""

import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

Content = bytes | tarfile.TarInfo  # of a file, or a member of another kind


def png(picture: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()


def pictures(n: int, side: int = 12, seed: int = 0, *, colour: bool = False) -> list[np.ndarray]:
    shape = (side, side, 3) if colour else (side, side)
    return list(np.random.default_rng(seed).integers(0, 256, (n, *shape), np.uint8))


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """A member that is no file: a link, a device, a pipe."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def tar_of(members: Iterable[tuple[str, Content]], form: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def write_shards(folder: Path, shown: Sequence[np.ndarray], a_shard: int, labels: Sequence[int] = ()) -> list[str]:
    """Pictures 0000.png, 0001.png, … with their labels beside them; returns the names of the rows."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for number, first in enumerate(range(0, len(shown), a_shard)):
        members: list[tuple[str, Content]] = []
        for row in range(first, min(first + a_shard, len(shown))):
            members.append((f"{row:04}.png", png(shown[row])))
            names.append(f"s-{number:03}.tar/{row:04}.png")
            if len(labels):
                members.append((f"{row:04}.cls", str(labels[row]).encode()))
        (folder / f"s-{number:03}.tar").write_bytes(tar_of(members))
    return names
