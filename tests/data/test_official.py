"""Files in the layouts their authors distribute: small ones made here, and the real ones where they are."""

import gzip
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from gedikit.data import sources
from gedikit.data.official import OFFICIAL, data_root, is_partly_there, is_there, read_official
from gedikit.errors import DataError, UsageError


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)  # names of tests are made of it: the same in every worker


def idx_images(images: np.ndarray) -> bytes:
    return struct.pack(">HBBIII", 0, 8, 3, *images.shape) + images.tobytes()


def idx_labels(labels: np.ndarray) -> bytes:
    return struct.pack(">HBBI", 0, 8, 1, len(labels)) + labels.astype(np.uint8).tobytes()


def digits(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 28, 28), dtype=np.uint8), np.arange(n) % 10


def photos(n: int, seed: int = 0, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8), (np.arange(n) * 7) % classes


def planes(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def write_mnist(folder: Path, prefix: str, images: np.ndarray, labels: np.ndarray, *, packed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("images-idx3", idx_images(images)), ("labels-idx1", idx_labels(labels))):
        path = folder / f"{prefix}-{name}-ubyte{'.gz' if packed else ''}"
        path.write_bytes(gzipped(content) if packed else content)


def assert_same(name: str, split: str, root: Path, images: np.ndarray, labels: np.ndarray) -> None:
    x, y = read_official(name, split, root)
    assert x.dtype == np.uint8
    assert x.flags.c_contiguous
    assert y.dtype == np.int64
    np.testing.assert_array_equal(x, images)
    np.testing.assert_array_equal(y, labels)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_gzipped_or_not(tmp_path, name, packed):
    for split, prefix, n in (("train", "train", 12), ("test", "t10k", 5)):
        images, labels = digits(n, seed=n)
        write_mnist(tmp_path / name, prefix, images, labels, packed=packed)
        assert_same(name, split, tmp_path, images[..., None], labels)


def test_cifar10_joins_its_batches_in_order(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    images, labels = photos(15)
    rows = np.c_[labels.astype(np.uint8), planes(images)]
    for i in range(5):
        (folder / f"data_batch_{i + 1}.bin").write_bytes(rows[3 * i : 3 * i + 3].tobytes())
    (folder / "test_batch.bin").write_bytes(rows[::-1].tobytes())
    assert_same("cifar10", "train", tmp_path, images, labels)
    assert_same("cifar10", "test", tmp_path, images[::-1], labels[::-1])


def test_cifar100_reads_fine_labels(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    images, fine = photos(20, classes=100)
    rows = np.c_[(fine // 5).astype(np.uint8), fine.astype(np.uint8), planes(images)]
    (folder / "train.bin").write_bytes(rows.tobytes())
    assert_same("cifar100", "train", tmp_path, images, fine)


def test_cifar_pickles(tmp_path):
    images, labels = photos(10)
    ten, hundred = tmp_path / "cifar-10-batches-py", tmp_path / "cifar-100-python"
    ten.mkdir()
    hundred.mkdir()
    for i in range(5):
        part = slice(2 * i, 2 * i + 2)
        batch = {b"data": planes(images[part]), b"labels": labels[part].tolist(), b"batch_label": b"training"}
        (ten / f"data_batch_{i + 1}").write_bytes(pickle.dumps(batch, protocol=2))
    both = {"data": planes(images), "fine_labels": labels.tolist(), "coarse_labels": [0] * 10}
    (hundred / "test").write_bytes(pickle.dumps(both, protocol=4))
    assert_same("cifar10", "train", tmp_path, images, labels)
    assert_same("cifar100", "test", tmp_path, images, labels)


def test_pickles_written_by_python_2_are_read(tmp_path):
    """Strings of Python 2 are bytes that Python 3 would decode; written out here opcode by opcode."""
    images, _ = photos(1)
    raw = planes(images).tobytes()

    def short(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    dtype = b"cnumpy\ndtype\n(" + short(b"u1") + b"K\x00K\x01tR(K\x03" + short(b"|") + b"NNN"
    dtype += b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + short(b"b") + b"tR"
    array += b"(K\x01(K\x01M" + struct.pack("<H", 3072) + b"t" + dtype + b"\x89"
    array += b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
    content = b"\x80\x02}(" + short(b"data") + array + short(b"fine_labels") + b"]K\x2aau."
    (tmp_path / "cifar-100-python").mkdir()
    (tmp_path / "cifar-100-python" / "train").write_bytes(content)
    assert_same("cifar100", "train", tmp_path, images, np.array([42]))


class Payload:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_malicious_pickle_runs_nothing(tmp_path, protocol):
    witness = tmp_path / "it-ran"
    (tmp_path / "cifar-100-python").mkdir()
    path = tmp_path / "cifar-100-python" / "train"
    path.write_bytes(pickle.dumps({"data": Payload(f"touch {witness}")}, protocol=protocol))
    with pytest.raises(DataError, match=r"cifar-100-python.train asks for (posix|nt)\.system.*refused"):
        read_official("cifar100", "train", tmp_path)
    assert not witness.exists()
    pickle.loads(path.read_bytes())
    assert witness.exists(), "the payload is real"


@pytest.mark.parametrize(
    ("module", "name"),
    [("builtins", "eval"), ("builtins", "getattr"), ("numpy", "load"), ("numpy", "ndarray.tofile")],
)
def test_only_what_arrays_need_is_allowed(tmp_path, module, name):
    (tmp_path / "cifar-100-python").mkdir()
    code = f"\x80\x04\x8c{chr(len(module))}{module}\x8c{chr(len(name))}{name}\x93."
    (tmp_path / "cifar-100-python" / "train").write_bytes(code.encode("latin1"))
    with pytest.raises(DataError, match=f"asks for {module}.{name}"):
        read_official("cifar100", "train", tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "train is damaged"),
        (b"\x80\x02}", "train is damaged"),
        (pickle.dumps([1]), "holds a list"),
        (pickle.dumps({"data": 3}), "no 'fine_labels'"),
        (pickle.dumps({"data": 3, "fine_labels": [1]}), "no rows of 3072 bytes"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "fine_labels": [1]}), "2 images but 1 labels"),
        (pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "fine_labels": ["cat"]}), "not whole numbers"),
    ],
)
def test_pickles_that_are_no_batch(tmp_path, content, words):
    (tmp_path / "cifar-100-python").mkdir()
    (tmp_path / "cifar-100-python" / "train").write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_official("cifar100", "train", tmp_path)


def test_svhn_puts_images_first_and_zero_at_zero(tmp_path):
    (tmp_path / "svhn").mkdir()
    images, _ = photos(4)
    stored = {"X": images.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [9], [10]], np.uint8)}
    savemat(tmp_path / "svhn" / "test_32x32.mat", stored, do_compression=True)
    assert_same("svhn", "test", tmp_path, images, np.array([0, 1, 9, 0]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": np.ones((3, 1))}, "4 images but 3 labels"),
        ({"y": np.full((4, 1), 11)}, "labels other than"),
        ({"X": np.zeros((28, 28, 3, 4), np.uint8)}, r"shape \(28, 28, 3, 4\)"),
        ({"X": np.zeros((32, 32, 3, 4))}, "X of .* is float64"),
        ({"y": None}, "has no y"),
    ],
)
def test_svhn_files_that_are_wrong(tmp_path, change, words):
    (tmp_path / "svhn").mkdir()
    stored = {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.ones((4, 1), np.uint8)} | change
    path = tmp_path / "svhn" / "train_32x32.mat"
    savemat(path, {key: value for key, value in stored.items() if value is not None})
    with pytest.raises(DataError, match=words) as caught:
        read_official("svhn", "train", tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_svhn_files_cut_short(tmp_path, keep):
    (tmp_path / "svhn").mkdir()
    path = tmp_path / "svhn" / "train_32x32.mat"
    savemat(path, {"X": photos(4)[0].transpose(1, 2, 3, 0), "y": np.ones((4, 1))}, do_compression=True)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"train_32x32\.mat is damaged"):
        read_official("svhn", "train", tmp_path)


IMAGES, LABELS = digits(6)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("images-idx3", gzipped(idx_images(IMAGES))[:-300], "cut short"),
        ("images-idx3", gzipped(idx_images(IMAGES)[:-1]), "announces 4704 values but has only 4703"),
        ("images-idx3", gzipped(idx_images(IMAGES) + b"\x00"), "announces 4704 values but has more"),
        ("images-idx3", gzipped(idx_labels(LABELS)), "starts with 00000801, not with 00000803"),
        ("images-idx3", gzipped(struct.pack(">HBBIII", 0, 8, 3, 2**32 - 1, 28, 28)), "it is damaged"),
        ("images-idx3", gzipped(b"\x00\x00\x08\x03\x00"), "ends within its header"),
        ("images-idx3", gzipped(idx_images(IMAGES[:, :20])), "20×28 pixels instead of 28×28"),
        ("images-idx3", gzipped(idx_images(IMAGES[:5])), "has 5 images but .* has 6 labels"),
        ("images-idx3", b"<html>not found</html>", "is damaged"),
        ("images-idx3", b"", "starts with , not|is damaged"),
        ("labels-idx1", gzipped(idx_labels(LABELS + 5)), "the label 10; those of mnist run from 0 to 9"),
        ("labels-idx1", gzipped(idx_images(IMAGES)), "starts with 00000803"),
    ],
)
def test_idx_files_that_are_wrong(tmp_path, file, content, words):
    write_mnist(tmp_path / "mnist", "train", IMAGES, LABELS, packed=True)
    path = tmp_path / "mnist" / f"train-{file}-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        read_official("mnist", "train", tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("size", [0, 3072, 2 * 3073 - 1])
def test_cifar_files_with_part_of_a_row(tmp_path, size):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(bytes(size))
    with pytest.raises(DataError, match=f"test_batch.bin has {size} bytes"):
        read_official("cifar10", "test", tmp_path)


def test_what_is_not_there_is_said_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("GEDIKIT_DATA", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        sources.load("mnist")
    for word in (str(tmp_path / "mnist"), "train-images-idx3-ubyte", "gedikit data get mnist", "GEDIKIT_DATA"):
        assert word in str(caught.value)
    assert not is_partly_there("mnist", tmp_path)
    write_mnist(tmp_path / "mnist", "train", IMAGES, LABELS, packed=True)
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(DataError, match="lacks train-images-idx3-ubyte, while"):
        sources.load("mnist")
    assert is_partly_there("mnist", tmp_path)
    assert not is_there("mnist", tmp_path)
    with pytest.raises(UsageError, match="'validation'"):
        read_official("mnist", "validation", tmp_path)


def test_a_built_in_set_is_rows_of_bytes_without_a_copy(tmp_path, monkeypatch):
    monkeypatch.setenv("GEDIKIT_DATA", str(tmp_path))
    for prefix, n in (("train", 12), ("t10k", 5)):
        write_mnist(tmp_path / "fashion-mnist", prefix, *digits(n, seed=n), packed=True)
    test = sources.load("fashion-mnist", split="test")
    assert test.split == "official test split, 5 images"
    assert test.image_shape == (28, 28, 1)
    assert test.x.dtype == np.uint8
    assert test.x.base is not None
    np.testing.assert_array_equal(test.x.reshape(5, 28, 28), digits(5, seed=5)[0])
    (block,) = sources.blocks("fashion-mnist", split="train")
    assert block.x.shape == (12, 784)
    assert {name: sources.default_clusters(name) for name in OFFICIAL} == {
        "mnist": 10,
        "fashion-mnist": 10,
        "cifar10": 10,
        "cifar100": 100,
        "svhn": 10,
    }


def test_the_root_is_the_home_directory_unless_told(tmp_path, monkeypatch):
    monkeypatch.delenv("GEDIKIT_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache" / "gedikit" / "data"
    monkeypatch.setenv("GEDIKIT_DATA", "~/elsewhere")
    assert data_root() == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("name", "split", "class_counts", "mean"),
    [
        ("mnist", "test", [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009], [33.791]),
        ("fashion-mnist", "test", [1000] * 10, [73.147]),
        ("cifar10", "test", [1000] * 10, [126.025, 123.709, 114.854]),
        ("svhn", "test", [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595], [115.368, 115.386, 119.589]),
        ("cifar100", "test", [100] * 100, None),
    ],
)
def test_the_real_files(name, split, class_counts, mean):
    if not is_there(name, data_root()):
        pytest.skip(f"{name} is not on this machine")
    x, y = read_official(name, split)
    assert np.bincount(y).tolist() == class_counts
    if mean is not None:
        np.testing.assert_allclose(x.mean((0, 1, 2)), mean, atol=6e-4)
