"""Pictures in tar shards that are larger than memory: rate of reading beside a bare reader's, and memory over time.

One shard is made and listed as often as it takes: the reader cannot tell, and the disk need not hold it. Rates are
per processor second, so that other work on the machine does not count; pages of files that the system keeps do, for
all readers alike.

    python benchmarks/streaming.py --gigabytes 50
"""

import argparse
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import torch
from PIL import Image

from gedikit.data.shards import list_shards
from gedikit.data.stored import StoredPictures, read_shards
from gedikit.views.image_views import StreamedPixels

_PARTS = 50  # of a pass, after each of which memory is looked at
_BARE_PASSES = 10  # over the one shard
_BARE = {"tarfile and Pillow, whole pictures": False, "tarfile and Pillow, JPEG decoded small": True}


def main() -> None:
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    watch = Watch(asked.out / "streaming.jsonl")
    if not asked.table:
        watch.file.unlink(missing_ok=True)
        measure(asked, watch)
    page = "\n".join(table(watch.file))
    (asked.out / "streaming.md").write_text(page + "\n")
    print(page)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of all shards together")
    parser.add_argument("--pictures", type=int, default=1000, help="in a shard")
    parser.add_argument("--side", type=int, default=256, help="pixels of a picture as it is stored")
    parser.add_argument("--size", type=int, default=32, help="pixels that it is resized to")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/streaming"), help="folder; written as it goes")
    parser.add_argument("--table", action="store_true", help="the table alone, of what has been measured so far")
    return parser.parse_args()


def measure(asked: argparse.Namespace, watch: "Watch") -> None:
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder) / "shard.tar"
        write_shard(shard, asked.pictures, asked.side)
        repeats = max(1, round(asked.gigabytes * 1e9 / shard.stat().st_size))
        listed = Path(folder) / "all.txt"
        listed.write_text("shard.tar\n" * repeats)
        n = repeats * asked.pictures
        total = repeats * shard.stat().st_size
        watch.say({"pictures": n, "side": asked.side, "size": asked.size, "shards": repeats, "bytes": total})
        for name, draft in _BARE.items():
            watch.begin(name, _BARE_PASSES * asked.pictures)
            for _ in range(_BARE_PASSES):
                watch.look(watch.done + read_bare(shard, asked.size, draft=draft))
        watch.begin("index", n)
        index, rows = read_shards(
            list_shards(str(listed)),
            asked.size,
            3,
            memory=0,
            on_progress=lambda done, of: watch.look(n * done // of),
        )
        assert isinstance(rows, StoredPictures)
        arrays = (index.place, index.shard, index.bytes, index.label, index.names.letters, index.names.ends)
        watch.say({"index bytes": sum(array.nbytes for array in arrays)})
        for epoch in range(asked.epochs):
            read_epoch(rows, asked.batch, epoch, watch)


def write_shard(path: Path, pictures: int, side: int) -> None:
    """Smooth random pictures with some noise, as JPEG."""
    rng = np.random.default_rng(0)
    with tarfile.open(path, "w") as archive:
        for number in range(pictures):
            coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
            smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float64)
            noisy = np.clip(smooth + rng.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(noisy).save(buffer, "JPEG", quality=90)
            for ending, content in (("jpg", buffer.getvalue()), ("cls", str(number % 10).encode())):
                info = tarfile.TarInfo(f"{number:06}.{ending}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


def read_bare(path: Path, size: int, *, draft: bool) -> int:
    """How many pictures the standard library and Pillow alone have read, from front to back."""
    n = 0
    for picture in _bare(path, draft, size):
        picture.convert("RGB").resize((size, size), Image.Resampling.LANCZOS)
        n += 1
    return n


def _bare(path: Path, draft: bool, size: int) -> Iterator[Image.Image]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(".jpg"):
                file = archive.extractfile(member)
                assert file is not None
                with Image.open(io.BytesIO(file.read())) as image:
                    if draft:
                        image.draft("RGB", (3 * size, 3 * size))
                    yield image


def read_epoch(rows: StoredPictures, batch: int, epoch: int, watch: "Watch") -> None:
    """All batches of an epoch as a fit reads them: the next one while this one is worked on."""
    pixels = StreamedPixels(rows, torch.device("cpu"))
    order = pixels.order(np.random.default_rng([0, epoch]))
    batches = [order[at : at + batch] for at in range(0, len(order) - batch + 1, batch)]
    seen = np.zeros(len(order), dtype=bool)
    watch.begin(f"epoch {epoch + 1}, shuffled", batch * len(batches))
    for number, (now, following) in enumerate(zip(batches, [*batches[1:], None], strict=True)):
        pixels.take(now, following)
        seen[now] = True
        watch.look(batch * (number + 1))
    assert seen.sum() == batch * len(batches)


class Watch:
    """Writes pictures, processor seconds and resident memory of each pass to a file, as it goes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._name, self._of, self.done, self._began, self._said = "", 1, 0, 0.0, 0.0

    def begin(self, name: str, of: int) -> None:
        self._name, self._of, self.done, self._began, self._said = name, of, 0, time.process_time(), -1.0
        self.look(0)

    def look(self, done: int) -> None:
        self.done = done
        if done / self._of - self._said >= 1 / _PARTS or done == self._of:
            self._said = done / self._of
            seconds = time.process_time() - self._began
            mib = psutil.Process().memory_info().rss / 2**20
            taken = {"done": done, "seconds": round(seconds, 2), "mib": round(mib, 2)}
            self.say({"pass": self._name, "of": self._of, **taken})

    def say(self, what: dict[str, str | float]) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")


def table(file: Path) -> list[str]:
    """Rates and memory of each pass, of as much of it as there is."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    about, said = lines[0], [line for line in lines if "pass" in line]
    passes = {name: [line for line in said if line["pass"] == name] for name in {line["pass"]: 0 for line in said}}
    rates = {name: seen[-1]["done"] / seen[-1]["seconds"] for name, seen in passes.items() if seen[-1]["done"]}
    base = next(iter(rates.values()))
    page = [
        f"{about['pictures']:,} pictures of {about['side']} pixels a side in {about['shards']:,} shards, "
        f"{about['bytes'] / 1e9:.1f} GB, read at {about['size']} pixels a side.",
        "",
        "| | pictures | pictures a processor second | of the bare reader's | memory before, after, at most; MiB "
        "| after the first quarter, bytes a picture |",
        "|---|---|---|---|---|---|",
    ]
    for name, rate in rates.items():
        seen = passes[name]
        mib = [line["mib"] for line in seen]
        memory = f"{mib[0]:,.0f}, {mib[-1]:,.0f}, {max(mib):,.0f}"
        page.append(
            f"| {name} | {seen[-1]['done']:,} | {rate:,.0f} | {rate / base:.2f} | {memory} | {_slope(seen)} |"
        )
    index = [line["index bytes"] / about["pictures"] for line in lines if "index bytes" in line]
    return page + [f"\nThe index takes {each:.0f} bytes a picture." for each in index]


def _slope(seen: list[dict[str, float]]) -> str:
    """Growth of memory once threads and buffers are there.

    The median of that between two looks: where others need memory, the system takes back what it can read again.
    """
    later = seen[len(seen) // 4 :]
    if len(later) < 3:
        return ""
    done, held = np.array([[line["done"], line["mib"] * 2**20] for line in later]).T
    return f"{np.median(np.diff(held) / np.diff(done)):+.1f}"


if __name__ == "__main__":
    main()
