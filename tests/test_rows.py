"""Rows that are read when they are asked for: by any index that arrays take, in any order."""

import numpy as np
import pytest

from gedikit.known import Known
from gedikit.rows import StoredRows
from gedikit.starts import Starts

ARRAY = np.arange(60, dtype=np.uint8).reshape(20, 3)


class Kept(StoredRows):
    """Rows of an array, as if they were elsewhere."""

    def __init__(self, array: np.ndarray):
        self.array = array

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape

    @property
    def fingerprint(self) -> str:
        return "kept"

    def take(self, rows: np.ndarray) -> np.ndarray:
        assert rows.dtype == np.int64
        assert rows.min(initial=0) >= 0
        return self.array[rows]


@pytest.mark.parametrize(
    "index",
    [3, -1, np.int64(4), slice(2, 9, 3), slice(None), [5, 1, -2], np.array([7, 7, 0]), np.arange(20) % 3 == 0],
)
def test_rows_are_those_of_the_array(index):
    np.testing.assert_array_equal(Kept(ARRAY)[index], ARRAY[index])


def test_what_is_known_of_rows_goes_with_those_that_are_looked_at(monkeypatch):
    """Pictures in two kinds, of which a sample is looked at: labels of all rows are given."""
    monkeypatch.setattr("gedikit.rows._LOOKED_AT", 40)
    monkeypatch.setattr("gedikit.rows._FEWEST", 40)
    rng = np.random.default_rng(0)
    kind = np.arange(100) % 2
    pixels = np.zeros((100, 16, 16), dtype=np.uint8)
    pixels[kind == 0, 2:6, 2:14] = 255
    pixels[kind == 1, 2:14, 9:13] = 255
    pixels = np.clip(pixels.astype(int) + rng.integers(-20, 20, pixels.shape), 0, 255).astype(np.uint8)
    labels = np.where(np.arange(100) < 30, kind, -1)
    starts = Starts(Kept(pixels.reshape(100, -1)), 0, (), Known.of(100, partial_labels=labels))
    found = starts.of_images((16, 16, 1), None).find(2)
    groups = found.of_all(100)
    seen = groups >= 0
    assert (groups[seen] == kind[seen]).all()
    asked = np.flatnonzero(seen)[[7, 2, 5]]
    np.testing.assert_array_equal(
        found.labels[found.places(np.append(asked, np.flatnonzero(~seen)))], groups[asked]
    )
