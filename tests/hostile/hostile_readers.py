"""Every reader of files, whole files that it reads, and where inside of packed files there is more to damage."""

import contextlib
import gzip
import io
import json
import pickle
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from scipy.io import savemat

from gedikit.data import cifar, idx, sources, svhn
from gedikit.data.files import file_blocks, read_file
from gedikit.data.index import Index, Texts
from gedikit.data.pictures import Unreadable, read_square
from gedikit.data.shard_pictures import SKIP
from gedikit.data.shards import Shard
from gedikit.data.sources import ShardReading, blocks
from gedikit.data.stored import StoredPictures, read_shards
from gedikit.errors import GediError
from gedikit.fitted import FittedModel
from gedikit.runs import Run, RunConfig
from gedikit.storage import read_tensors, write_tensors
from gedikit.symbolic.example_files import ExampleFile, any_name, read_labels
from gedikit.symbolic.rule_files import RuleFile

OWN = (GediError, Unreadable)  # what a reader may raise; the second becomes a reason to leave a picture out
Damage = Callable[[bytes], bytes]
CORPUS = Path(__file__).parent / "corpus"

RULES = (CORPUS / "rules.toml").read_bytes()
PROGRAM = """
nn(digit, [X], Y, [0,1,2,3]) :: digit(X, Y).
0.3 :: noisy.
addition(A, B, S) :- digit(A, X), digit(B, Y), S is X + Y, \\+ noisy.
addition(A, B, S) :- digit(A, X), digit(B, Y), member(S, [X, Y]), noisy.
nn(sum, [X], Y, [0,1,2,3,4,5,6]) :: sum(X, Y).
ordered(A, B, T) :- digit(A, X), digit(B, Y), X =< Y, sum(T, Z), Z is X + Y.
query(ordered(a, b, t)).
% known: t
"""
EXAMPLES = (
    "rule,a,b,m,s,c,d,holds,weight,probability\nsums,p.png,q.png,r.png,3,,,true,1,0.9\npairs,,,,,p.png,2,,,\n"
)
LABELS = "picture,kind,symbol\np.png,digit,3\nr.png,mark,+\n"


@dataclass(frozen=True)
class Reader:
    """A reader, the ending of its files, whole ones, and how to get at what is packed inside of them."""

    ending: str
    read: Callable[[Path], Any]
    whole: Callable[[], tuple[bytes, ...]]
    inside: Callable[[bytes, Damage], bytes] | None = None


def rows(path: Path) -> None:
    """Both ways to read a file of rows."""
    whole = read_file(path)
    assert whole.x.ndim == 2 and np.isfinite(whole.x).all()
    blocks = list(file_blocks(path, encoding=whole.encoding))
    assert sum(len(block.x) for block in blocks) == len(whole.x)


def shard(path: Path) -> None:
    """Both ways to read a shard of pictures, with what is broken left out."""
    seen = sum(len(block.x) for block in blocks(str(path), image_size=16, image_channels=3, bad_shards=SKIP))
    index, stored = read_shards([Shard(str(path))], 16, 3, memory=0, bad=SKIP)
    assert stored[:].shape == (len(index.names), 768) and len(index.names) == seen


def tables(path: Path) -> None:
    """Both ways to read a table in several files, of which one is whole: with what is broken left out, or not."""
    (path.parent / "0-whole.parquet").write_bytes(frame().to_parquet())
    source = str(path.parent / "*.parquet")
    left = sources.load(source, shards=ShardReading(memory=10**6, bad=SKIP))
    assert np.isfinite(left.x).all() and len(left.x) >= len(frame())
    assert sum(len(block.x) for block in blocks(source, encoding=left.encoding, bad_shards=SKIP)) == len(left.x)
    sources.load(source)


def in_tar(content: bytes, damage: Damage) -> bytes:
    """Headers with their checksums made right again."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        headers = [member.offset for member in archive]
    changed = bytearray(damage(content))
    for at in headers:
        head = changed[at : at + 512]
        if len(head) == 512 and any(head):
            changed[at + 148 : at + 156] = b"%06o\0 " % (sum(head[:148]) + 8 * 32 + sum(head[156:]))
    return bytes(changed)


def run_files(path: Path) -> None:
    RunConfig.from_toml(path)


def history(path: Path) -> None:
    """The measurements of a run, whose file has a name of its own."""
    run = Run(path.parent)
    path.replace(run.metrics_path)
    run.history(up_to=5)
    run.history()
    run.metrics_path.replace(run.evaluations_path)
    run.evaluations()


@cache
def stated() -> RuleFile:
    return RuleFile.read(CORPUS / "rules.toml")


def in_gzip(content: bytes, damage: Damage) -> bytes:
    return gzip.compress(damage(gzip.decompress(content)), 1)


def in_zip(content: bytes, damage: Damage) -> bytes:
    """One member, chosen by the damage itself: the first that it changes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        names = sorted(old.namelist(), key=lambda name: "sheet1" not in name)
        for number, name in enumerate(names):
            new.writestr(name, damage(old.read(name)) if number == 0 else old.read(name))
    return buffer.getvalue()


def in_png(content: bytes, damage: Damage) -> bytes:
    """Chunks with their checksums made right again."""
    changed, out, at = content[:8] + damage(content[8:]), [content[:8]], 8
    while at + 12 <= len(changed):
        (length,) = struct.unpack(">I", changed[at : at + 4])
        if at + 12 + length > len(changed):
            break
        body = changed[at + 4 : at + 8 + length]
        out.append(changed[at : at + 4] + body + struct.pack(">I", zlib.crc32(body)))
        at += 12 + length
    return b"".join([*out, changed[at:]])


def in_safetensors(content: bytes, damage: Damage) -> bytes:
    """The JSON that the header carries as text."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    text = damage(header["__metadata__"]["gedikit"].encode()).decode("utf-8", "replace")
    header["__metadata__"]["gedikit"] = text
    new = json.dumps(header).encode()
    return struct.pack("<Q", len(new)) + new + content[8 + length :]


def index(path: Path) -> None:
    """An index of shards, and all that is taken from it without them."""
    found = Index.load(path)
    assert len(list(found.names)) == len(found.shard)
    assert found.labels is None or len(found.labels) == len(found.shard)
    StoredPictures(found, 16, 3).order(np.random.default_rng(0))


def _index() -> bytes:
    n = 5
    names = [f"s.parquet/{i}" for i in range(n)]
    made = Index(
        (Shard("/nowhere/s.parquet"),),
        ("700-1",),
        np.zeros(n, np.int32),
        np.stack([np.arange(n) // 2, np.arange(n) % 2], 1),
        np.full(n, 70),
        Texts(np.frombuffer("".join(names).encode(), np.uint8).copy(), np.cumsum([len(name) for name in names])),
        np.arange(n, dtype=np.int32) % 3 - 1,
        ("a", "b"),
        (("s.parquet/9", "no picture in this row"),),
        False,
        "0" * 64,
    )
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder) / "index")
        return (Path(folder) / "index").read_bytes()


def in_index(content: bytes, damage: Damage) -> bytes:
    """Numbers and settings, with a digest that is right."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        path.write_bytes(content)
        tensors, meta = read_tensors(path, "index of shards")
        whole = b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))
        changed = np.frombuffer((damage(whole) + whole)[: len(whole)], np.uint8).copy()
        for name in sorted(tensors):
            size = tensors[name].nbytes
            tensors[name] = torch.from_numpy(changed[:size].view(tensors[name].numpy().dtype)).view_as(
                tensors[name]
            )
            changed = changed[size:].copy()
        with contextlib.suppress(ValueError):
            said = json.loads(damage(json.dumps(meta).encode()))
            meta = said if isinstance(said, dict) else meta
        meta = {name: value for name, value in meta.items() if name not in ("kind", "format")}
        write_tensors(path, tensors, meta, "index of shards")
        return path.read_bytes()


def picture(kind: str, **options: Any) -> bytes:
    rng = np.random.default_rng(0)
    mode = options.pop("mode", "RGB")
    image = Image.fromarray(rng.integers(0, 256, (12, 10, 4), np.uint8), "RGBA").convert(mode)
    if mode == "F":
        image = Image.fromarray(np.asarray(image) / np.float32(255))
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _idx(shape: tuple[int, ...]) -> bytes:
    values = np.arange(np.prod(shape)).astype(np.uint8).tobytes()
    return b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + values


def _mat(compressed: bool) -> bytes:
    buffer = io.BytesIO()
    x, y = np.zeros((32, 32, 3, 2), np.uint8), np.array([[1], [10]], np.uint8)
    savemat(buffer, {"X": x, "y": y}, do_compression=compressed)
    return buffer.getvalue()


def _npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.arange(12.0).reshape(6, 2), y=np.arange(6))
    return buffer.getvalue()


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "customer_id": [f"c{i:03}" for i in range(8)],
            "amount": [1.5, 2.0, None, 4.0, 5.5, 6.0, 7.0, 8.0],
            "born": pd.date_range("1990-01-31", periods=8).strftime("%Y-%m-%d"),
            "kind": ["a", "b", "=1+1", "a", "b", "a", "b", "a"],
            "yes": [True, False] * 4,
        }
    )


def _excel() -> bytes:
    buffer = io.BytesIO()
    frame().to_excel(buffer, index=False)
    return buffer.getvalue()


def _tensors(path: Path) -> None:
    read_tensors(path, "checkpoint")


def _tar(form: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for number, kind in enumerate(("PNG", "JPEG", "WEBP")):
            about = json.dumps({"label": number}).encode()
            long = "n" * 120 * (number == 2)
            for ending, raw in ((kind.lower(), picture(kind)), ("json", about)):
                info = tarfile.TarInfo(f"{long}{number}.{ending}")
                info.size = len(raw)
                archive.addfile(info, io.BytesIO(raw))
    return buffer.getvalue()


def _picture_table() -> bytes:
    raw = [picture("PNG"), picture("JPEG"), picture("GIF", mode="P")] * 2
    shown = [{"bytes": content, "path": f"{i}.png"} for i, content in enumerate(raw)]
    return pd.DataFrame({"image": shown, "label": range(6)}).to_parquet(row_group_size=4)


def _stored(name: str) -> Callable[[], tuple[bytes, ...]]:
    return lambda: ((CORPUS / name).read_bytes(),)


READERS: Mapping[str, Reader] = {
    "idx images": Reader("", idx.read_images, lambda: (_idx((2, 28, 28)),)),
    "idx labels": Reader(".gz", idx.read_labels, lambda: (gzip.compress(_idx((9,)), mtime=0),), in_gzip),
    "mat": Reader(".mat", svhn.read_mat, lambda: (_mat(False), _mat(True))),
    "cifar rows": Reader(".bin", lambda p: cifar.read_rows([p], 1), lambda: (bytes(3073 * 2),)),
    "cifar pickles": Reader(
        "",
        lambda p: cifar.read_pickles([p], "labels"),
        lambda: tuple(
            pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 2], "batch_label": "b"}, protocol)
            for protocol in (2, 4)
        ),
    ),
    "npy": Reader(".npy", rows, lambda: (_npy(np.eye(3)), _npy(np.zeros((3, 4, 4), np.uint8)))),
    "npz": Reader(".npz", rows, lambda: (_npz(),), in_zip),
    "csv": Reader(
        ".csv",
        rows,
        lambda: (
            frame().to_csv(index=False).encode(),
            frame().to_csv(index=False, sep=";", decimal=",").encode("utf-16"),
        ),
    ),
    "parquet": Reader(".parquet", rows, lambda: (frame().to_parquet(),)),
    "parquet tables": Reader(".parquet", tables, lambda: (frame().to_parquet(),)),
    "tar shard": Reader(".tar", shard, lambda: tuple(map(_tar, (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))), in_tar),
    "parquet shard": Reader(".parquet", shard, lambda: (_picture_table(),)),
    "excel": Reader(".xlsx", rows, lambda: (_excel(),), in_zip),
    "png": Reader(
        ".png",
        lambda p: read_square(p, 16),
        lambda: (picture("PNG"), picture("PNG", mode="P"), picture("PNG", mode="RGBA")),
        in_png,
    ),
    "jpeg": Reader(".jpg", lambda p: read_square(p, 16), lambda: (picture("JPEG"), picture("JPEG", mode="L"))),
    "webp": Reader(
        ".webp", lambda p: read_square(p, 16), lambda: (picture("WEBP"), picture("WEBP", lossless=True))
    ),
    "gif": Reader(".gif", lambda p: read_square(p, 16), lambda: (picture("GIF", mode="P"),)),
    "tiff": Reader(
        ".tif",
        lambda p: read_square(p, 16),
        lambda: tuple(
            picture("TIFF", mode=m, compression=c)
            for m, c in (("RGB", "raw"), ("L", "tiff_lzw"), ("RGBA", "tiff_deflate"), ("F", "raw"), ("I;16", "raw"))
        ),
    ),
    "bmp": Reader(".bmp", lambda p: read_square(p, 16), lambda: (picture("BMP"),)),
    "ppm": Reader(".ppm", lambda p: read_square(p, 16), lambda: (picture("PPM"), b"P3\n1 2\n255\n1 2 3 4 5 6\n")),
    "model": Reader(".safetensors", FittedModel.load, _stored("model.safetensors"), in_safetensors),
    "checkpoint": Reader(".safetensors", _tensors, _stored("checkpoint.safetensors"), in_safetensors),
    "index": Reader(".safetensors", index, lambda: (_index(),), in_index),
    "run": Reader(".toml", run_files, _stored("config.toml")),
    "history": Reader(
        ".jsonl", history, lambda: (b'{"iteration": 1, "loss": 0.5}\n{"iteration": 9, "loss": NaN}\n',)
    ),
    "rules": Reader(".toml", RuleFile.read, lambda: (RULES,)),
    "programs": Reader(".pl", RuleFile.read, lambda: (PROGRAM.encode(),)),
    "examples": Reader(".csv", lambda p: ExampleFile.read(p, stated(), any_name()), lambda: (EXAMPLES.encode(),)),
    "labels": Reader(
        ".csv", lambda p: read_labels(p, stated().symbols, any_name(), None), lambda: (LABELS.encode(),)
    ),
}
