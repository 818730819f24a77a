"""Features of a folder: names stay with their rows, and nothing is computed twice."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from gedikit.errors import DataError, StorageError
from gedikit.features import FeatureNetwork, PictureFeatures, embed_folder, feature_blocks
from gedikit.processes import Share

COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0))


class Mean(nn.Module):
    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.mean((2, 3))


@dataclass(frozen=True)
class MeanColour(FeatureNetwork):
    """Three numbers a picture; counts how often it is built."""

    size: int = 32
    unit_length: bool = False
    n_features: ClassVar[int] = 3
    built: ClassVar[list[int]] = []

    def build(self) -> nn.Module:
        self.built.append(1)
        return Mean()


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "photos"
    (root / "sub").mkdir(parents=True)
    for i, colour in enumerate(COLOURS):
        Image.new("RGB", (40 + i, 50), colour).save(root / ("sub" if i % 2 else ".") / f"{i}.png")
    (root / "2 broken.jpg").write_text("no picture")
    (root / "film.mov").touch()
    MeanColour.built.clear()
    return root


def test_every_row_has_its_name_and_every_other_file_its_reason(folder):
    found = embed_folder(folder, MeanColour())
    assert found.paths == ("0.png", "2.png", "4.png", "sub/1.png", "sub/3.png")
    order = [0, 2, 4, 1, 3]
    np.testing.assert_allclose(found.x, np.array(COLOURS)[order] / 255)
    assert [name for name, _ in found.skipped] == ["2 broken.jpg", "film.mov"]
    np.testing.assert_allclose(found.sketches[:, :3], np.array(COLOURS)[order], atol=1e-3)


def test_blocks_are_the_same_rows_and_tell_every_file_once(folder):
    whole, blocks = embed_folder(folder, MeanColour()), list(feature_blocks(folder, MeanColour(), block=2))
    assert max(len(block.x) for block in blocks) == 2
    np.testing.assert_array_equal(np.concatenate([block.x for block in blocks]), whole.x)
    assert tuple(name for block in blocks for name in block.paths) == whole.paths
    assert sorted(pair for block in blocks for pair in block.skipped) == list(whole.skipped)


def test_processes_take_blocks_in_turns_also_where_one_has_no_picture(folder):
    whole = embed_folder(folder, MeanColour())
    first, second = (list(feature_blocks(folder, MeanColour(), block=1, share=Share(rank, 2))) for rank in (0, 1))
    blocks = [block for both in zip(first, second, strict=True) for block in both]
    assert sorted(len(block.x) for block in blocks) == [0, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal(np.concatenate([block.x for block in blocks]), whole.x)
    assert sorted(pair for block in blocks for pair in block.skipped) == list(whole.skipped)


def test_kept_features_are_read_again_until_the_folder_or_the_network_changes(folder, tmp_path):
    keep, told = tmp_path / "kept.safetensors", []
    first = embed_folder(folder, MeanColour(), keep=keep, on_progress=lambda *at: told.append(at))
    assert told[-1] == (6, 6), "five pictures and one that is broken"
    again = embed_folder(folder, MeanColour(), keep=keep)
    assert len(MeanColour.built) == 1
    assert again.paths == first.paths and again.skipped == first.skipped
    np.testing.assert_array_equal(again.x, first.x)
    np.testing.assert_array_equal(again.sketches, first.sketches)
    embed_folder(folder, MeanColour(), size=64, keep=keep)
    assert len(MeanColour.built) == 2
    Image.new("RGB", (40, 50), (255, 255, 0)).save(folder / "0.png")
    os.utime(folder / "0.png", (1, 1))
    changed = embed_folder(folder, MeanColour(), size=64, keep=keep)
    assert len(MeanColour.built) == 3
    np.testing.assert_allclose(changed.x[0], [1, 1, 0])


def test_a_kept_file_that_does_not_fit_together_is_damaged(tmp_path):
    found = PictureFeatures(np.zeros((3, 2), np.float32), np.zeros((3, 4), np.float32), ("a", "b"))
    found.save(tmp_path / "kept", MeanColour(), "f")
    assert PictureFeatures.load(tmp_path / "kept", MeanColour(), "g") is None
    with pytest.raises(StorageError, match="3 rows for 2 pictures"):
        PictureFeatures.load(tmp_path / "kept", MeanColour(), "f")


def test_a_folder_without_pictures_is_a_sentence(tmp_path):
    (tmp_path / "film.mov").touch()
    with pytest.raises(
        DataError, match=r"no picture that can be read; 1 cannot, the first being film.mov: a video"
    ):
        embed_folder(tmp_path, MeanColour())
    Image.new("RGB", (40, 50)).save(tmp_path / "0.png")
    with pytest.raises(DataError, match="only one picture"):
        embed_folder(tmp_path, MeanColour())
