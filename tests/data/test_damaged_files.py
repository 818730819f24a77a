"""Files of rows with bytes changed, lost or added: read, or refused with a sentence that names the file."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gedikit.data.files import file_blocks, read_file
from gedikit.errors import DataError, GediError

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 3
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(label=Y)
LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"  # the headers of a member, before it and at the end of a zip archive


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content, compression)
    return buffer.getvalue()


def header(text: str, content: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n" + content


def shaped(shape: str, descr: str = "'<f8'") -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}", bytes(48))


def parquet(frame: pd.DataFrame) -> bytes:
    pytest.importorskip("pyarrow")
    return frame.to_parquet()


WHOLE = {
    "stored.npz": lambda: npz(x=npy(X), y=npy(Y)),
    "deflated.npz": lambda: npz(zipfile.ZIP_DEFLATED, x=npy(X), y=npy(Y)),
    "rows.npy": lambda: npy(X),
    "images.npy": lambda: npy(np.arange(80, dtype=np.uint8).reshape(5, 4, 4)),
    "rows.csv": lambda: FRAME.to_csv(index=False).encode(),
    "rows.parquet": lambda: parquet(FRAME),
    "indexed.parquet": lambda: parquet(FRAME.set_index("a")),
}


def refusals(path: Path) -> list[str]:
    """What is said of a file, read whole and in blocks; what is not refused has rows of finite numbers."""
    said = []
    for read in (lambda: [read_file(path)], lambda: list(file_blocks(path))):
        try:
            tables = read()
        except GediError as error:
            said.append(str(error))
            assert str(path) in said[-1]
        else:
            assert all(table.x.ndim == 2 and np.isfinite(table.x).all() for table in tables)
    return said


def damage(content: bytes, rng: np.random.Generator) -> bytes:
    """Change, cut off, insert or remove bytes; every other time near the start, where headers are."""
    changed = bytearray(content)
    at = int(rng.integers(0, min(len(changed), 200) if rng.random() < 0.5 else len(changed)))
    n = int(rng.integers(1, 9))
    match rng.integers(0, 6):
        case 0:
            changed[at] ^= 1 << (n - 1)
        case 1:
            changed[at] = int(rng.integers(0, 256))
        case 2:
            del changed[at:]
        case 3:
            changed[at:at] = rng.bytes(n)
        case 4:
            del changed[at : at + n]
        case 5:
            for position in rng.integers(0, len(changed), n):
                changed[position] = int(rng.integers(0, 256))
    return bytes(changed)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_files_are_read(tmp_path, name):
    (tmp_path / name).write_bytes(WHOLE[name]())
    assert refusals(tmp_path / name) == []


@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header parsing")
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("name", WHOLE)
def test_damaged_files_are_read_or_refused(tmp_path, name, seed):
    (tmp_path / name).write_bytes(damage(WHOLE[name](), np.random.default_rng([seed, len(name)])))
    refusals(tmp_path / name)


@pytest.mark.parametrize("name", WHOLE)
def test_files_that_are_cut_short_are_refused(tmp_path, name):
    """The end of a csv file cannot be told from a cut between rows."""
    whole = WHOLE[name]()
    for n in range(1, len(whole), len(whole) // 20):
        (tmp_path / name).write_bytes(whole[:n])
        assert refusals(tmp_path / name) or name == "rows.csv", n


@pytest.mark.parametrize(
    "content",
    [
        shaped("(1000000000000000, 3)"),  # petabytes
        shaped("(4611686018427387904, 3)"),  # wraps around in 64 bits
        shaped("(2305843009213693952, 8)"),  # to nothing at all
        shaped("(1000000000000000000000000000000, 3)"),
        shaped("(1000000000000, 0)"),
        shaped("(-2, 3)"),
        shaped("(True, 3)"),
        shaped("((2,), 3)"),
        shaped("'23'"),
        shaped("()"),
        shaped("(6,)"),
        shaped("(2, 3)", "'|O'"),
        shaped("(2, 3)", "'<U0'"),
        shaped("(2, 3)", "'<c8'"),
        shaped("(2, 3)", "'<f7'"),
        shaped("(2, 3)", "[('a', '<f8')]"),
        shaped("(" * 300),
        header("{'descr': '<f8', 'fortran_order': False}"),
        header("(" * 5000),
        header("not a dictionary"),
        b"\x93NUMPY\x09\x00" + bytes(60),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(60),
        b"no array",
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("compression", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_headers_of_arrays_that_claim_what_cannot_be(tmp_path, content, compression):
    path = tmp_path / ("rows.npy" if compression is None else "rows.npz")
    path.write_bytes(content if compression is None else npz(compression, x=content))
    assert len(refusals(path)) == 2


def with_field(content: bytes, local: int, central: int, value: int) -> bytes:
    """An archive whose members have another value in a field of two bytes, at its offset in both headers."""
    for signature, offset in ((LOCAL, local), (CENTRAL, central)):
        start = content.find(signature)
        while start >= 0:
            at = start + offset
            content = content[:at] + struct.pack("<H", value) + content[at + 2 :]
            start = content.find(signature, at)
    return content


@pytest.mark.parametrize("method", [1, 8, 9, 12, 14, 93, 99])
def test_members_with_another_compression_than_they_claim(tmp_path, method):
    (tmp_path / "rows.npz").write_bytes(with_field(npz(x=npy(X)), 8, 10, method))
    assert len(refusals(tmp_path / "rows.npz")) == 2


def test_members_with_a_password(tmp_path):
    (tmp_path / "rows.npz").write_bytes(with_field(npz(x=npy(X)), 6, 8, 1))
    assert "password" in refusals(tmp_path / "rows.npz")[0]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("array.npz", npy(X), "no zip archive"),
        ("archive.npy", npz(x=npy(X)), "magic string"),
        ("number.npy", npy(np.array(3.0)), "a single value"),
        ("number.npz", npz(x=npy(np.array(3.0))), "a single value"),
        ("label.npz", npz(x=npy(X), y=npy(np.array(1))), "a single value"),
        ("text.npz", npz(x=b"1,2,3"), "something else than arrays"),
        ("nothing.npz", npz(), "holds nothing"),
        ("names.npz", npz(a=npy(X), b=npy(X)), "holds a, b; the rows must be named"),
        ("no_text.csv", b"a,b\n1,\x81\n", "can't decode"),  # neither UTF-8 nor Windows'
        ("quote.csv", b'a,b\n1,"2\n', "EOF inside string"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3\n", "Expected 2 fields"),
        ("text.parquet", b"a,b\n1,2\n", "not a .parquet file"),
    ],
)
def test_what_is_said(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    said = refusals(tmp_path / name)
    assert len(said) == 2
    assert all(words in sentence for sentence in said)


def test_what_is_not_needed_of_an_archive_is_not_read(tmp_path):
    (tmp_path / "rows.npz").write_bytes(npz(x=npy(X), notes=b"no array"))
    assert np.array_equal(read_file(tmp_path / "rows.npz").x, X)


def test_columns_with_the_same_name(tmp_path):
    pyarrow, parquet_files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = pyarrow.array([1.0, 2.0])
    table = pyarrow.Table.from_arrays([column, column], ["a", "a"])
    parquet_files.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="more than one column called 'a'"):
        read_file(tmp_path / "rows.parquet")


def test_text_of_a_parquet_file_that_is_no_text(tmp_path):
    """Arrow reads it without a word, and fails where somebody looks at it."""
    pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    whole = pd.DataFrame({"amount": [1.0, 2.0, 3.0, 4.0], "kind": ["here", "there", "here", "there"]}).to_parquet(
        compression=None
    )
    path.write_bytes(whole.replace(b"there", b"th\xffre"))
    with pytest.raises(DataError, match=r"rows\.parquet is damaged.*UTF8"):
        read_file(path)
    with pytest.raises(DataError, match=r"rows\.parquet is damaged.*UTF8"):
        list(file_blocks(path))
