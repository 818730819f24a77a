"""Tiny drawn pictures of unequal kinds: bars that lie, bars that stand, and boxes."""

import numpy as np

SIDE = 16
KINDS = (30, 20, 14)


def drawn(sizes=KINDS, seed: int = 0, *, inverted: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Dark on bright, in random order, a pixel aside and with noise; half of them bright on dark if asked."""
    rng = np.random.default_rng(seed)
    kinds = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    pictures = np.full((len(kinds), SIDE, SIDE), 220.0)
    for picture, kind in zip(pictures, kinds, strict=True):
        down, right = rng.integers(-1, 2, 2)
        rows, columns = [((7, 10), (2, 14)), ((2, 14), (7, 10)), ((4, 12), (4, 12))][kind]
        picture[rows[0] + down : rows[1] + down, columns[0] + right : columns[1] + right] = rng.uniform(20, 80)
    pictures += rng.normal(0, 12, pictures.shape)
    if inverted:
        flipped = rng.random(len(kinds)) < 0.5
        pictures[flipped] = 255 - pictures[flipped]
    return np.clip(pictures, 0, 255).astype(np.uint8), kinds
