"""Small files that hold more than a machine has, run code, or never end: each refused by a sentence, at once."""

import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hostile_limits import limited
from PIL import Image

from gedikit.data import cifar, idx, sizes, sources
from gedikit.data.files import file_blocks, read_file
from gedikit.data.pictures import Unreadable, read_square
from gedikit.data.shard_pictures import SKIP
from gedikit.data.shards import Shard
from gedikit.data.sources import ShardReading
from gedikit.data.stored import read_shards
from gedikit.data.unpickling import read_pickle
from gedikit.errors import DataError, GediError, StorageError, UsageError
from gedikit.runs import RunConfig
from gedikit.storage import parsed_toml, read_tensors
from gedikit.symbolic import Constraint, budget
from gedikit.symbolic.example_files import ExampleFile, any_name
from gedikit.symbolic.expressions import predicate
from gedikit.symbolic.rule_files import RuleFile
from shard_cases import tar_of

OWNED = "owned"


@pytest.fixture
def little_memory(monkeypatch):
    """A machine with 16 MB."""
    monkeypatch.setattr(sizes, "memory", lambda: 16_000_000)


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(read, kind: type[GediError], says: str, megabytes: float = 300.0) -> None:
    room = megabytes * 3 + budget.STACK / 2**20  # a stack has addresses for more than it takes
    with limited(room, seconds=20) as used, pytest.raises(kind, match=says):
        read()
    assert used.megabytes < megabytes
    assert used.seconds < 10


@pytest.mark.usefixtures("little_memory")
def test_archives_larger_than_memory(tmp_path):
    np.savez_compressed(tmp_path / "rows.npz", x=np.zeros((1_000_000, 3)))
    assert (tmp_path / "rows.npz").stat().st_size < 100_000
    refused(lambda: read_file(tmp_path / "rows.npz"), DataError, r"announces 0\.0 GB", 10)


@pytest.mark.usefixtures("little_memory")
def test_columns_of_one_value(tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"a": np.zeros(3_000_000), "b": 1.0}).to_parquet(path)
    assert path.stat().st_size < 100_000
    refused(lambda: read_file(path), DataError, "announces", 10)


@pytest.mark.usefixtures("little_memory")
def test_a_list_of_one_value(tmp_path):
    """One row, and more values than memory has."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    lists = pyarrow.ListArray.from_arrays([0, 3_000_000], pyarrow.array(np.zeros(3_000_000)))
    parquet.write_table(pyarrow.table({"a": lists, "b": [1.0]}), tmp_path / "rows.parquet")
    assert (tmp_path / "rows.parquet").stat().st_size < 100_000
    refused(lambda: read_file(tmp_path / "rows.parquet"), DataError, "announces", 10)


@pytest.mark.usefixtures("little_memory")
def test_lists_of_one_value_in_several_files(tmp_path):
    """Each fits, all do not; and one that does not fit by itself is left out where that is asked for."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for number, length in enumerate((1_200_000, 1_200_000)):
        lists = pyarrow.ListArray.from_arrays([0, length], pyarrow.array(np.zeros(length)))
        parquet.write_table(pyarrow.table({"a": lists, "b": [1.0]}), tmp_path / f"{number}.parquet")
    refused(lambda: sources.load(str(tmp_path)), DataError, "and 1 more announces", 10)
    lists = pyarrow.ListArray.from_arrays([0, 3_000_000], pyarrow.array(np.zeros(3_000_000)))
    for number in range(2):
        parquet.write_table(pyarrow.table({"a": lists, "b": [1.0]}), tmp_path / f"{number}.parquet")
    refused(lambda: list(sources.blocks(str(tmp_path))), DataError, "0.parquet: the file announces", 10)
    refused(
        lambda: list(sources.blocks(str(tmp_path), bad_shards=SKIP)),
        DataError,
        "no row of .*the file announces",
        10,
    )
    refused(lambda: list(sources.blocks(str(tmp_path / "0.parquet"))), DataError, "0.parquet announces", 10)
    pd.DataFrame({"a": np.arange(5.0), "b": 1.0}).to_parquet(tmp_path / "2.parquet")
    found = sources.load(str(tmp_path), shards=ShardReading(bad=SKIP))
    assert found.x[:, 0].tolist() == [0, 1, 2, 3, 4] and len(found.skipped) == 2


def test_memory_is_that_of_the_container(tmp_path, monkeypatch):
    whole = sizes.memory()
    monkeypatch.setattr(sizes, "_LIMITS", (tmp_path / "none", written(tmp_path / "max", "max\n")))
    assert sizes.memory() >= whole
    monkeypatch.setattr(sizes, "_LIMITS", (tmp_path / "none", written(tmp_path / "max", "1000000\n")))
    assert sizes.memory() == 1_000_000


def test_blocks_of_one_value_take_the_memory_of_a_block(tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"a": np.arange(4_000_000) % 3, "b": 1.0}).to_parquet(path)
    with limited(600) as used:
        assert sum(len(block.x) for block in file_blocks(path)) == 4_000_000
    assert used.megabytes < 60  # all rows are 64


SHEET = "xl/worksheets/sheet1.xml"


def sheet(cells: str, start: str = "", name: str = SHEET) -> bytes:
    """A spreadsheet with these cells, in a part of this name."""
    buffer = io.BytesIO()
    pd.DataFrame({"a": [1]}).to_excel(buffer, index=False)
    made = io.BytesIO()
    head = '<?xml version="1.0"?>' + start
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        own = f"{head}<worksheet {space}><sheetData>{cells}</sheetData></worksheet>".encode()
        for part in old.namelist():
            content = own if part == SHEET else old.read(part).replace(SHEET.encode(), name.encode())
            new.writestr(name if part == SHEET else part, content)
    return made.getvalue()


FAR = "XFD1048576"


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (f'<row r="1048576"><c r="{FAR}"><v>2</v></c></row>', r"announces 1099\.5 GB"),
        (f'<row><c r="{FAR}"><v>2</v></c></row>', r"announces 1099\.5 GB"),
        ('<row r="99999999999"><c><v>2</v></c></row>', r"announces 6400\.0 GB"),  # cells that do not say where
        ('<row r="99999999999.0"><c><v>2</v></c></row>', r"announces 6400\.0 GB"),
        ('<row r="1e18"><c><v>2</v></c></row>', r"announces 64000000000\.0 GB"),
    ],
)
@pytest.mark.parametrize("name", ["xl/worksheets/sheet1.xml", "xl/other/data.bin"])
def test_a_sheet_of_gaps(tmp_path, cells, says, name):
    first = '<row r="1"><c r="A1"><v>1</v></c></row>'
    path = written(tmp_path / "rows.xlsx", sheet(first + cells, name=name))
    refused(lambda: read_file(path), DataError, says, 50)


def test_a_sheet_that_is_no_sheet_by_name(tmp_path):
    """The reader finds it all the same, or it would be no hiding place."""
    name = '<row r="1"><c r="A1" t="inlineStr"><is><t>a</t></is></c></row>'
    numbers = '<row><c><v>1</v></c></row><row r="4"><c r="A4"><v>2.5</v></c></row>'
    path = written(tmp_path / "rows.xlsx", sheet(name + numbers, name="xl/other/data.bin"))
    assert read_file(path).x[[0, 2], 0].tolist() == [1.0, 2.5]  # and a gap between


def test_a_sheet_with_entities(tmp_path):
    laughs = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    path = written(tmp_path / "rows.xlsx", sheet('<row r="1"><c r="A1"><v>&b;</v></c></row>', laughs))
    refused(lambda: read_file(path), DataError, "declares entities", 50)


def test_pictures_of_too_many_pixels(tmp_path):
    path = tmp_path / "picture.png"
    Image.new("1", (20_000, 20_000)).save(path)
    assert path.stat().st_size < 100_000
    with limited(600) as used, pytest.raises(Unreadable, match="more than 179 million pixels"):
        read_square(path, 16)
    assert used.megabytes < 20


def test_headers_of_a_billion_rows(tmp_path):
    path = written(tmp_path / "images", b"\0\0\x08\x03" + struct.pack(">3I", 10**9, 28, 28))
    refused(lambda: idx.read_images(path), DataError, "announces 784000000000 values", 5)


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def nested(levels: int, empty=()):
    """A tuple of two of itself, again and again: small to store, and 2**levels to walk through."""
    inner = empty
    for _ in range(levels):
        inner = type(empty)((inner, inner))
    return inner


def batch(**more: object) -> bytes:
    return pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 2]} | more, 2)


def test_pickles_run_nothing(tmp_path):
    path = written(tmp_path / "batch", batch(more=Payload(tmp_path / OWNED)))
    refused(lambda: cifar.read_pickles([path], "labels"), DataError, "refused and nothing of it was run", 5)
    assert not (tmp_path / OWNED).exists()
    np.savez(tmp_path / "rows.npz", x=np.array([Payload(tmp_path / OWNED)], dtype=object))
    np.save(tmp_path / "rows.npy", np.array([Payload(tmp_path / OWNED)], dtype=object))
    for name in ("rows.npz", "rows.npy"):
        refused(lambda name=name: read_file(tmp_path / name), DataError, "damaged|Object arrays", 5)
    for name in ("model.safetensors",):
        path = written(tmp_path / name, pickle.dumps(Payload(tmp_path / OWNED)))
        refused(lambda path=path: read_tensors(path, "model"), StorageError, "damaged", 5)
    assert not (tmp_path / OWNED).exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (pickle.dumps({"data": 1, "labels": 1, 5.5: 1}, 2), "other things than names"),
        (b"\x80\x04" + b")" + b"2\x86" * 100 + b"K\x01s.", "damaged|other things"),
        (b"\x80\x02}" + b")" + b"2\x86" * 100 + b"K\x01s.", "other things than names"),  # hashed for 2**100 steps
        (b"\x80\x02}(" + b")" + b"2\x86" * 100 + b"K\x01u.", "other things than names"),
        (b"\x80\x02(" + b")" + b"2\x86" * 100 + b"K\x01d.", "other things than names"),
        (b"\x80\x04(" + b")" + b"2\x86" * 100 + b"\x91.", "a set"),
        (batch(labels=nested(60, [])), "labels that are not whole numbers"),
        (batch(labels=[10**30, 1]), "labels that are not whole numbers"),
        (b"\x80\x02]r\xff\xff\xff\x7f.", "holds a list"),  # the two billionth thing to be remembered
        (
            b"\x80\x02}(X\x04\x00\x00\x00datacnumpy\nndarray\nM\x00\x40M\x00\x0c\x86X\x02\x00\x00\x00u1\x86R"
            b"X\x06\x00\x00\x00labels](K\x01eu.",
            "a call of ndarray",  # memory that was never written to
        ),
        (
            b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x08\x00\x00\x00punycode\x86R.",
            "in the encoding 'punycode'",
        ),
        (b"\x80\x02cnumpy\nndarray\nK\x05\x85\x81.", "an object of its own"),
    ],
)
def test_pickles_that_never_end(tmp_path, content, says):
    path = written(tmp_path / "batch", content)
    refused(lambda: cifar.read_pickles([path], "labels"), DataError, says, 50)


def text_op(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def type_op(name: str) -> bytes:
    return b"cnumpy\ndtype\n" + text_op(name) + b"\x89\x88\x87R"


def array_op(dtype: bytes, content: bytes, shape: bytes = b"K\x01\x85") -> bytes:
    rebuilt = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + text_op("b") + b"tR"
    return rebuilt + b"(K\x01" + shape + dtype + b"\x89" + b"C" + bytes([len(content)]) + content + b"tb"


PLACE = b"A" * 8
FIELDS = text_op("a") + b"\x85}" + text_op("a") + type_op("u1") + b"K\x00\x86s"
NO_FIELDS = b"NN"


def type_state(fields: bytes = NO_FIELDS, size: bytes = b"J\xff\xff\xff\xff" * 2, flags: bytes = b"K\x00") -> bytes:
    return b"(K\x03" + text_op("|") + b"N" + fields + size + flags + b"tb"


@pytest.mark.parametrize(
    "content",
    [
        array_op(type_op("O8"), PLACE),  # bytes as pointers
        array_op(type_op("V8"), PLACE),
        array_op(type_op("u8") + b"q\x01", PLACE) + b"h\x01" + type_state(flags=b"K\x1b") + b"0",  # later on
        array_op(type_op("u8") + b"q\x01", PLACE) + b"h\x01" + type_state(FIELDS) + b"0",
        array_op(type_op("u8") + b"q\x01", PLACE) + b"h\x01" + type_state(size=b"M\xff\xffK\x08") + b"0",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85" + text_op("b") + b"tR",
        b"cnumpy\ndtype\n}" + text_op("a") + b"K\x01sb",  # attributes of what is allowed
        b"c_codecs\nencode\n}" + text_op("__call__") + b"K\x01sb",
    ],
)
def test_pickles_cannot_tell_numpy_where_memory_is(tmp_path, content):
    """numpy believes a pickle that says that bytes are pointers, and would follow them."""
    path = written(tmp_path / "batch", b"\x80\x03" + content + b".")
    refused(lambda: read_pickle(path), DataError, "refused and nothing of it was run", 50)


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("kind", ["u1", "<i4", ">i4", "<f8", ">f8", "?"])
def test_pickles_of_numbers_are_read(tmp_path, protocol, kind):
    values = np.arange(6).reshape(2, 3).astype(kind)
    path = written(tmp_path / "batch", pickle.dumps({"a": values, "b": values.T, "c": values}, protocol))
    read = read_pickle(path)
    for name, expected in (("a", values), ("b", values.T), ("c", values)):
        assert read[name].dtype == pickle.loads(path.read_bytes())[name].dtype  # in the order of this machine
        assert np.array_equal(read[name], expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a = " + "{a=" * 5000, "nested too deeply"),
        ("a = " + "9" * 5000, "digit"),
        (".".join("a" * 20_000) + " = 1", "more than 100 parts"),
        ("[" + ".".join("a" * 20_000) + "]", "more than 100 parts"),
    ],
)
def test_toml_without_end(tmp_path, text, says):
    with limited(500, seconds=20) as used, pytest.raises(ValueError, match=says):
        parsed_toml(text)
    assert used.seconds < 2
    for read, kind in ((RuleFile.read, DataError), (RunConfig.from_toml, StorageError)):
        refused(lambda read=read: read(written(tmp_path / "x.toml", text)), kind, says)


def test_lists_of_numbers_are_no_keys():
    assert parsed_toml("a = [" + ", ".join(["0.5"] * 1000) + "]") == {"a": [0.5] * 1000}


@pytest.mark.parametrize("text", ['{"a":' * 5000, "[" * 100_000, '{"kind": ' + "9" * 5000 + "}", "[]", "NaN"])
def test_models_with_other_json(tmp_path, text):
    import torch
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"gedikit": text})
    refused(
        lambda: read_tensors(tmp_path / "model.safetensors", "model"), StorageError, "not written by gedikit", 20
    )


def test_examples_of_many_columns(tmp_path):
    rules = RuleFile.read(Path(__file__).parent / "corpus" / "rules.toml")
    path = written(tmp_path / "examples.csv", ",".join(f"c{i}" for i in range(30_000)) + "\n")
    refused(lambda: ExampleFile.read(path, rules, any_name()), DataError, "is no variable")


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "((2**64)**64)**64 > a",
        "'a' * 9999999999 == a",
        "'%9999999999d' % a == a",
        "(1, 2) * 99999999 == a",
    ],
)
def test_rules_of_numbers_and_text_without_end(text):
    holds = predicate(text, ["a"])
    with limited(500, seconds=20) as used, pytest.raises((ValueError, TypeError), match=r"beyond|bits|numbers"):
        holds(1)
    assert used.megabytes < 5


@pytest.mark.parametrize("domain", ["1000000000", "{from = 0, to = 99999999999}"])
def test_rules_of_too_many_values(tmp_path, domain):
    text = f'[symbols]\ndigit = 4\n[[rule]]\nexpression = "a == s"\n[rule.variables]\na = "digit"\ns = {domain}\n'
    refused(lambda: RuleFile.read(written(tmp_path / "r.toml", text)), DataError, "at most 1000000 values", 5)
    text = text.replace("digit = 4", "digit = 4000000000")
    refused(lambda: RuleFile.read(written(tmp_path / "r.toml", text)), DataError, "more than 1000000", 5)


PROGRAM = "nn(digit, [X], Y, [0,1]) :: digit(X, Y).\n{}\nok(A) :- digit(A, X), p(X).\nquery(ok(a)).\n"


@pytest.mark.parametrize(
    "asked",
    [
        ":- use_module('{file}').\np(1).",
        ":- use_module('{file}', [p/1]).\np(1).",
        ":- consult('{file}').\np(1).",
        ":- ['{file}'].\np(1).",
        ":- use_module(library('{file}')).\np(1).",
        ":- use_module(library('../../../../../../../..{file}')).\np(1).",
        ":- use_module(library(db)).\np(1).",
        "p(1) :- use_module('{file}').",
        "p(1) :- '_use_module'(none, '{file}').",
        "p(1) :- '_consult'(none, '{file}').",
        "p(1) :- G =.. [use_module, '{file}'], call(G).",
    ],
)
def test_programs_run_and_read_no_files(tmp_path, asked):
    code = written(tmp_path / "code.py", f"open({str(tmp_path / OWNED)!r}, 'w')")
    path = written(tmp_path / "rules.pl", PROGRAM.format(asked.format(file=code)))
    refused(lambda: RuleFile.read(path), DataError, "may not read or run files", 50)
    assert not (tmp_path / OWNED).exists()


def test_programs_have_libraries(tmp_path):
    asked = ":- use_module(library(lists)).\np(X) :- member(X, [1])."
    (rule,) = RuleFile.read(written(tmp_path / "rules.pl", PROGRAM.format(asked))).rules
    assert rule.constraint.n_tuples == 2


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("p(1) :- length(L, 1000000000), L = [_|_].", "1000000000 parts, and may have 1000000"),
        ("p(1) :- functor(T, f, 1000000000), T = T.", "1000000000 parts, and may have 1000000"),
        (
            'd(0, "aaaa").\nd(N, Y) :- N > 0, M is N - 1, d(M, X), Y is X + X.\np(1) :- d(40, Y).',
            "not all are numbers",
        ),
        ('p(1) :- X is "%999999999d" mod 5.', "not all are numbers"),
        ("p(1) :- X is exp(10, 400).", "math range error"),
        ("p(1) :- X is 5 /\\ 2.5.", "unsupported operand"),
    ],
)
def test_programs_of_parts_and_text_without_end(tmp_path, asked, says):
    refused(lambda: RuleFile.read(written(tmp_path / "r.pl", PROGRAM.format(asked))), DataError, says, 50)


@pytest.mark.parametrize(("seconds", "megabytes"), [(1.0, 2000), (60.0, 20)])
def test_programs_that_no_step_of_ends(monkeypatch, seconds, megabytes):
    """A term of 2**60 parts that takes up little room until ProbLog looks at all of it, in one step."""
    monkeypatch.setattr(budget, "MAX_BYTES", megabytes * 10**6)
    monkeypatch.setattr(budget, "_GRACE", 0.0)
    terms = "t(0, a).\nt(N, f(X,X)) :- N > 0, M is N - 1, t(M, X).\nok(A) :- digit(A, 1), t(60, X), ground(X)."
    program = f"nn(digit, [X], Y, [0,1]) :: digit(X, Y).\n{terms}\n"

    def ground() -> None:
        Constraint.from_program(program, "ok(a)", max_seconds=seconds)

    refused(ground, UsageError, "grounding the program stopped after .* MB larger", 1000)


def test_programs_write_nothing(tmp_path, capfd):
    asked = "p(1) :- write('\x1b[31m'), writeln(x), nl, debugprint(x), cmd_args(X), write(X)."
    (rule,) = RuleFile.read(written(tmp_path / "rules.pl", PROGRAM.format(asked))).rules
    assert rule.constraint.n_tuples == 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", ["2 ** (9 ** 9)", "(9 ^ 99) ^ 99", "1 << 100000000000", '"a" * 9999999999'])
def test_programs_of_numbers_without_end(tmp_path, number):
    path = written(tmp_path / "rules.pl", PROGRAM.format(f"p(X) :- Y is {number}, X < Y."))
    refused(lambda: RuleFile.read(path), DataError, "4096 bits|numbers", 50)


def shard_of(path: Path, bad: str = "stop") -> None:
    read_shards([Shard(str(path))], 16, 3, memory=0, bad=bad)


def test_pictures_in_archives_with_more_pixels_than_bytes(tmp_path):
    buffer = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(buffer, "PNG")
    path = written(tmp_path / "s.tar", tar_of([("1.png", buffer.getvalue())]))
    refused(lambda: shard_of(path), DataError, r"s.tar/1.png: more than 179 million pixels", 30)


def header(name: str, size: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.REGTYPE])
@pytest.mark.parametrize("announced", [2**27, 2**40])
def test_archives_that_announce_long_names_and_large_files(tmp_path, kind, announced):
    path = tmp_path / "s.tar"
    with path.open("wb") as file:
        file.write(header("1.png", announced, kind))
        file.truncate(2**27 + 1024)  # no bytes on disk
    megabytes = 300 if kind == tarfile.REGTYPE and announced == 2**27 else 5  # a file of zeros is no picture
    refused(lambda: shard_of(path), DataError, "cut short|so long a name|not a picture", megabytes)


def test_one_picture_for_a_million_rows(tmp_path):
    """A value that is the same in all rows of a row group takes next to nothing in a file."""
    path = tmp_path / "p.parquet"
    buffer = io.BytesIO()
    Image.new("L", (600, 600)).save(buffer, "BMP")
    pd.DataFrame({"image": [buffer.getvalue()] * 3000}).to_parquet(path)
    assert path.stat().st_size < 100_000
    refused(lambda: shard_of(path), DataError, "write it with smaller row groups", 150)
