"""Features of pictures with their names, kept in a file so that nobody computes them twice."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float32

from gedikit.components import as_tree
from gedikit.data.duplicates import sketches
from gedikit.data.folder import Progress, Skipped, folder_blocks, list_pictures, too_few
from gedikit.errors import DataError, StorageError
from gedikit.features.base import FeatureNetwork
from gedikit.features.embedding import BATCH, embedder, named_network
from gedikit.processes import WHOLE, Share
from gedikit.storage import damaged, read_tensors, write_tensors

_KIND = "file of features"


@dataclass(frozen=True)
class PictureFeatures:
    """One row for each picture, of a folder in the order of their names."""

    x: Float32[np.ndarray, "n d"]
    sketches: Float32[np.ndarray, "n s"]  # what near-duplicates are found by
    paths: tuple[str, ...] = ()  # relative to the folder, with forward slashes
    skipped: Skipped = ()  # files without a picture, and why

    def save(self, path: Path, network: FeatureNetwork, fingerprint: str) -> None:
        """Write them beside what they were computed from: the network, and the pictures by a fingerprint."""
        tensors = {"x": torch.from_numpy(self.x), "sketches": torch.from_numpy(self.sketches)}
        meta = {"paths": list(self.paths), "skipped": [list(pair) for pair in self.skipped]}
        write_tensors(path, tensors, {**meta, **_of(network, fingerprint)}, _KIND)

    @classmethod
    def load(cls, path: Path, network: FeatureNetwork, fingerprint: str) -> Self | None:
        """What `save` wrote; None if there is no file, or one of another network or other pictures."""
        if not path.is_file():
            return None
        tensors, meta = read_tensors(path, _KIND)
        if any(meta.get(key) != value for key, value in _of(network, fingerprint).items()):
            return None
        with damaged(path):
            skipped = tuple((name, why) for name, why in meta["skipped"])
            x, drawn = tensors["x"].numpy(), tensors["sketches"].numpy()
            paths = tuple(meta["paths"])
            if len(x) != len(drawn) or len(paths) not in (0, len(x)):
                raise StorageError(f"{path} is damaged: it has {len(x)} rows for {len(paths)} pictures")
            return cls(x, drawn, paths, skipped)


def embed_folder(
    root: str | Path,
    network: str | FeatureNetwork = "efficientnet-lite0",
    *,
    size: int | None = None,
    device: str = "auto",
    on_progress: Progress | None = None,
    keep: str | Path | None = None,
) -> PictureFeatures:
    """Features of every picture in and under a folder; files that cannot be read are named and left out.

    `keep` is a file for them: as long as neither the folder nor the network changes, they are read from there.
    """
    chosen, listing = named_network(network, size), list_pictures(Path(root))
    fingerprint = listing.fingerprint
    if keep is not None:
        kept = PictureFeatures.load(Path(keep), chosen, fingerprint)
        if kept is not None:
            return kept
    blocks, done = list[PictureFeatures](), 0
    for block in feature_blocks(root, chosen, device=device):
        blocks.append(block)
        done += len(block.paths) + len(block.skipped)
        if on_progress is not None:
            on_progress(min(done, len(listing.files)), len(listing.files))
    whole = PictureFeatures(
        np.concatenate([block.x for block in blocks]),
        np.concatenate([block.sketches for block in blocks]),
        tuple(name for block in blocks for name in block.paths),
        tuple(sorted(pair for block in blocks for pair in block.skipped)),
    )
    if len(whole.x) < 2:
        raise DataError(too_few(Path(root), len(whole.x), whole.skipped))
    if keep is not None:
        whole.save(Path(keep), chosen, fingerprint)
    return whole


def feature_blocks(
    root: str | Path,
    network: str | FeatureNetwork,
    *,
    device: str = "auto",
    block: int = BATCH,
    share: Share = WHOLE,
) -> Iterator[PictureFeatures]:
    """The same some pictures at a time: a folder larger than memory is never held whole."""
    chosen = named_network(network)
    features = embedder(chosen, device)
    for some in folder_blocks(Path(root), size=chosen.size, channels=3, block=block, share=share):
        yield PictureFeatures(features(some.images), sketches(some.images), some.paths, some.skipped)


def _of(network: FeatureNetwork, fingerprint: str) -> dict[str, Any]:
    return {"network": as_tree(network), "pictures": fingerprint}
