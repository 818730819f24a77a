import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gedikit.errors import DataError, UsageError
from gedikit.evaluation import (
    Inception,
    Statistics,
    fid_between_splits,
    fid_metric,
    fid_of_statistics,
    frechet_distance,
    image_statistics,
    noise_images,
    stream_statistics,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

real_network = Path(os.environ.get("GEDIKIT_DATA", "~/.cache/gedikit/data")).expanduser() / "inception"
real_network = real_network / "fid_inception_v3.pt"


class Corners(nn.Module):
    """A stand-in whose features are known: the mean of each channel, two pixels and a mean square."""

    def __init__(self):
        super().__init__()
        self.register_buffer("identity", torch.eye(6))

    def forward(self, x: Tensor) -> Tensor:
        square = x.square().mean((1, 2, 3))
        features = torch.stack([*x.mean((2, 3)).unbind(1), x[:, 0, 0, 0], x[:, 0, 150, 149], square], 1)
        return features @ self.identity  # a product that autocast would round


class Images(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.fixture(scope="module")
def network_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "corners.pt"
    torch.jit.trace(Corners(), torch.zeros(2, 3, 299, 299)).save(str(path))
    return path


@pytest.fixture(scope="module")
def extractor(network_file):
    return Inception(network_file)


def test_pixels_reach_the_network_in_its_range_and_size(extractor):
    images = np.zeros((2, 5, 7, 3), np.uint8)
    images[0] = [0, 128, 255]
    images[1, 0, 0] = 255
    features = extractor.features(images)
    assert features[0, :3].tolist() == pytest.approx([-1, 0, 127 / 128], abs=1e-6)
    assert features[1, 3].item() == pytest.approx(127 / 128)
    assert features[1, 4].item() == -1.0
    grey = extractor.features(np.full((1, 4, 4, 1), 192, np.uint8))
    assert grey[0].tolist() == pytest.approx([0.5] * 5 + [0.25])


def test_resize_is_bilinear_between_pixel_centres_without_smoothing(tmp_path):
    path = tmp_path / "images.pt"
    torch.jit.trace(nn.Sequential(Images(), nn.Flatten()), torch.zeros(1, 3, 299, 299)).save(str(path))
    rng = np.random.default_rng(0)
    for side in (32, 700):
        image = rng.integers(256, size=(1, side, side, 1), dtype=np.uint8)
        centres = np.clip((np.arange(299) + 0.5) * side / 299 - 0.5, 0, side - 1)
        low = centres.astype(int)
        high, share = np.minimum(low + 1, side - 1), centres - low
        rows = image[0, low, :, 0] * (1 - share)[:, None] + image[0, high, :, 0] * share[:, None]
        expected = rows[:, low] * (1 - share) + rows[:, high] * share
        ours = Inception(path).features(image).reshape(3, 299, 299) * 128 + 128
        np.testing.assert_allclose(ours[2], expected, atol=0.02)


def test_half_precision_around_it_does_not_reach_the_network(extractor):
    images = noise_images(3, (32, 32, 3), 0)
    alone = extractor.features(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = extractor.features(images)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, alone)


def test_the_switch_for_rounded_convolutions_is_put_back(extractor):
    before = torch.backends.cudnn.allow_tf32
    try:
        for wanted in (True, False):
            torch.backends.cudnn.allow_tf32 = wanted
            extractor.features(noise_images(1, (8, 8, 3), 0))
            assert torch.backends.cudnn.allow_tf32 is wanted
    finally:
        torch.backends.cudnn.allow_tf32 = before


def test_read_only_and_reversed_images_are_fine(extractor):
    images = noise_images(3, (8, 8, 3), 0)
    expected = extractor.features(images)
    backwards = images[::-1]
    backwards.flags.writeable = False
    assert torch.equal(extractor.features(backwards[::-1]), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_figure_on_the_device_is_that_of_the_cpu(network_file, extractor):
    samples, train = noise_images(40, (6, 6, 3), 0), noise_images(50, (6, 6, 3), 1) // 2
    reference = image_statistics(train, extractor, images="toy train")
    on_device = Inception(network_file, "cuda")
    assert on_device.features(samples).is_cuda
    figures = [fid_metric(samples, reference, e, samples_by="noise") for e in (extractor, on_device)]
    assert figures[0].value == pytest.approx(figures[1].value, rel=1e-4)


def test_statistics_are_those_of_numpy_whatever_the_batches(extractor):
    images = noise_images(23, (6, 6, 3), 0)
    features = extractor.features(images).double().numpy()
    for batch_size in (1, 7, 100):
        found = image_statistics(images, extractor, images="noise", batch_size=batch_size)
        np.testing.assert_allclose(found.mean, features.mean(0), atol=1e-6)
        np.testing.assert_allclose(found.covariance, np.cov(features.T), atol=1e-6)
    streamed = stream_statistics(iter([images[:20], images[20:]]), extractor, images="noise")
    torch.testing.assert_close(streamed.covariance, found.covariance, atol=1e-6, rtol=0)
    assert streamed.n == found.n == 23


def test_cache_answers_for_the_same_content_and_network_only(extractor, tmp_path, monkeypatch):
    images = noise_images(12, (6, 6, 3), 0)
    first = image_statistics(images, extractor, images="noise", cache=tmp_path)
    [entry] = tmp_path.iterdir()

    calls = []
    features = Inception.features
    monkeypatch.setattr(Inception, "features", lambda self, block: calls.append(1) or features(self, block))
    again = image_statistics(images.copy(), extractor, images="the same", cache=tmp_path)
    assert not calls
    assert torch.equal(again.covariance, first.covariance)
    assert torch.equal(again.mean, first.mean)
    assert (again.n, again.images, again.extractor_sha256) == (12, "the same", extractor.sha256)

    changed = images.copy()
    changed[-1, -1, -1, -1] ^= 1
    for other in (changed, images[::-1], images.reshape(12, 3, 12, 3)):
        calls.clear()
        image_statistics(other, extractor, images="other", cache=tmp_path)
        assert calls
    assert len(list(tmp_path.iterdir())) == 4

    entry.write_bytes(b"damaged")
    calls.clear()
    healed = image_statistics(images, extractor, images="noise", cache=tmp_path)
    assert calls
    assert torch.equal(healed.mean, first.mean)
    calls.clear()
    image_statistics(images, extractor, images="noise", cache=tmp_path)
    assert not calls


def test_figure_carries_its_conditions(extractor):
    samples, train = noise_images(9, (6, 6, 3), 0), noise_images(5, (6, 6, 3), 1)
    reference = image_statistics(train, extractor, images="toy train")
    figure = fid_metric(samples, reference, extractor, samples_by="uniform noise", batch_size=4)
    expected = frechet_distance(image_statistics(samples, extractor, images="x"), reference)
    assert figure.value == pytest.approx(expected, abs=1e-6)
    protocol = figure.protocol
    assert (protocol["n_samples"], protocol["n_reference"], protocol["n_features"]) == (9, 5, 6)
    assert (protocol["samples"], protocol["reference"]) == ("uniform noise", "toy train")
    assert protocol["extractor_sha256"] == extractor.sha256
    assert "bilinear" in protocol["resize"] and "(x − 128)/128" in protocol["range"]
    assert [w.split(":")[0] for w in protocol["warnings"]] == [
        "9 samples are below 10000",
        "5 reference are below 10000",
        "5 reference do not exceed the 6 features",
    ]


def test_enough_images_need_no_warning():
    many = Statistics(torch.zeros(3).double(), torch.eye(3).double(), 10_000)
    assert fid_of_statistics(many, many).protocol["warnings"] == []


def test_splits_are_compared_in_a_call(extractor, tmp_path):
    train, test = noise_images(30, (6, 6, 1), 0), noise_images(20, (6, 6, 1), 1) // 2
    figure = fid_between_splits(train, test, extractor, dataset="toy", cache=tmp_path)
    assert (figure.protocol["samples"], figure.protocol["reference"]) == ("toy test", "toy train")
    assert figure.value > 3 * 0.25 * 0.9  # three channel means moved by a half
    same = fid_between_splits(train, train, extractor, dataset="toy", cache=tmp_path)
    assert same.value == pytest.approx(0, abs=1e-6)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_makes_no_sense_is_refused_in_a_sentence(extractor, tmp_path):
    images = noise_images(4, (6, 6, 3), 0)
    ours = image_statistics(images, extractor, images="ours")
    with pytest.raises(UsageError, match="different networks"):
        fid_of_statistics(ours, Statistics(ours.mean, ours.covariance, 4, "theirs", "another"))
    with pytest.raises(DataError, match="uint8"):
        image_statistics(images / 255, extractor, images="floats")
    with pytest.raises(DataError, match="1 or 3"):
        image_statistics(images.transpose(0, 3, 1, 2), extractor, images="channels first")
    with pytest.raises(DataError, match="at least two images, not 1"):
        image_statistics(images[:1], extractor, images="one")
    with pytest.raises(UsageError, match="at least 1, not 0"):
        image_statistics(images, extractor, images="none", batch_size=0)
    with pytest.raises(UsageError, match="FID needs the Inception network"):
        Inception(tmp_path / "missing.pt")
    (tmp_path / "text.pt").write_text("no network")
    with pytest.raises(DataError, match="damaged or not a TorchScript file"):
        Inception(tmp_path / "text.pt")


@pytest.mark.skipif(not real_network.is_file(), reason="the Inception network is not in the data directory")
def test_the_real_network_and_few_images_give_the_distance_of_their_features():
    extractor = Inception(real_network)
    noise = noise_images(3, (32, 32, 3), 0)
    black_to_white = np.repeat(np.linspace(0, 255, 3).astype(np.uint8), 64).reshape(3, 8, 8, 1)
    reference = image_statistics(noise, extractor, images="noise")
    figure = fid_metric(black_to_white, reference, extractor, samples_by="grey")
    a, b = (extractor.features(images).double() for images in (noise, black_to_white))
    assert a.shape == (3, 2048)
    assert (a >= 0).all()  # means of rectified channels
    # with three images a covariance is XᵀX/2, and the trace of the root is the nuclear norm of a 3×3 matrix
    x, y = ((rows - rows.mean(0)) / 2**0.5 for rows in (a, b))
    traces = x.square().sum() + y.square().sum() - 2 * torch.linalg.svdvals(x @ y.T).sum()
    expected = (a.mean(0) - b.mean(0)).square().sum() + traces
    assert figure.value == pytest.approx(expected.item(), rel=1e-5)
    assert figure.value > 10
    assert any("do not exceed the 2048 features" in w for w in figure.protocol["warnings"])
