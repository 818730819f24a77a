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

_PARTS = 20  # of a pass, after each of which memory is looked at


def main() -> None:
    asked = arguments()
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder) / "shard.tar"
        write_shard(shard, asked.pictures, asked.side)
        repeats = max(1, round(asked.gigabytes * 1e9 / shard.stat().st_size))
        listed = Path(folder) / "all.txt"
        listed.write_text("shard.tar\n" * repeats)
        n = repeats * asked.pictures
        total = repeats * shard.stat().st_size / 1e9
        print(f"{n:,} pictures of {asked.side} pixels a side in {repeats:,} shards, {total:.1f} GB")
        bare = {
            "tarfile and Pillow, whole pictures": bare_rate(shard, asked.size, draft=False),
            "tarfile and Pillow, JPEG decoded small": bare_rate(shard, asked.size, draft=True),
        }
        watch = Memory()
        began = time.process_time()
        index, rows = read_shards(
            list_shards(str(listed)), asked.size, 3, memory=0, on_progress=lambda done, of: watch.look(done / of)
        )
        assert isinstance(rows, StoredPictures)
        passes = {"index": n / (time.process_time() - began)}
        memory = {"index": watch}
        for epoch in range(asked.epochs):
            name = f"epoch {epoch + 1}, shuffled"
            memory[name] = Memory()
            began = time.process_time()
            taken = read_epoch(rows, asked.batch, epoch, memory[name])
            passes[name] = taken / (time.process_time() - began)
    base = bare["tarfile and Pillow, whole pictures"]
    for name, rate in (bare | passes).items():
        print(f"{name:40} {rate:9,.0f} pictures a processor second, {rate / base:5.2f} of the bare reader's")
    for name, seen in memory.items():
        print(f"{name:40} {seen.in_words(n)}")
    held = index.place.nbytes + index.shard.nbytes + index.bytes.nbytes + index.label.nbytes
    held += index.names.letters.nbytes + index.names.ends.nbytes
    print(f"the index takes {held / n:.0f} bytes a picture, {held / 2**20:.1f} MiB")
    if asked.json:
        found = {"pictures": n, "rates": bare | passes, "memory": {k: v.seen for k, v in memory.items()}}
        Path(asked.json).write_text(json.dumps(found, indent=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of all shards together")
    parser.add_argument("--pictures", type=int, default=1000, help="in a shard")
    parser.add_argument("--side", type=int, default=256, help="pixels of a picture as it is stored")
    parser.add_argument("--size", type=int, default=32, help="pixels that it is resized to")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--json", help="file for all that was seen")
    return parser.parse_args()


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


def bare_rate(path: Path, size: int, *, draft: bool) -> float:
    """Pictures a processor second by the standard library and Pillow alone, from front to back."""
    began, n = time.process_time(), 0
    for picture in _bare(path, draft, size):
        picture.convert("RGB").resize((size, size), Image.Resampling.LANCZOS)
        n += 1
    return n / (time.process_time() - began)


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


def read_epoch(rows: StoredPictures, batch: int, epoch: int, memory: "Memory") -> int:
    """All batches of an epoch as a fit reads them: the next one while this one is worked on."""
    pixels = StreamedPixels(rows, torch.device("cpu"))
    order = pixels.order(np.random.default_rng([0, epoch]))
    batches = [order[at : at + batch] for at in range(0, len(order) - batch + 1, batch)]
    seen = np.zeros(len(order), dtype=bool)
    for number, (now, following) in enumerate(zip(batches, [*batches[1:], None], strict=True)):
        pixels.take(now, following)
        seen[now] = True
        memory.look((number + 1) / len(batches))
    assert seen.sum() == batch * len(batches)
    return int(seen.sum())


class Memory:
    """Resident memory over a pass."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        self.look(0.0)

    def look(self, share: float) -> None:
        if not self.seen or share - self.seen[-1][0] >= 1 / _PARTS or share == 1:
            self.seen.append((share, psutil.Process().memory_info().rss / 2**20))

    def in_words(self, n: int) -> str:
        first, last = self.seen[0][1], self.seen[-1][1]
        later = np.array(self.seen[len(self.seen) // 4 :])  # once threads and buffers are there
        slope = float(np.polyfit(later[:, 0], later[:, 1], 1)[0])
        most = max(value for _, value in self.seen)
        held = f"{first:,.0f} MiB before, {last:,.0f} after, {most:,.0f} at most"
        return f"{held}; {slope * 2**20 / n:+.0f} bytes a picture"


if __name__ == "__main__":
    main()
