"""Pictures in shards: where they are, what is read of them, and what is said of what cannot be read."""

import gzip
import io
import json
import os
import tarfile
from itertools import zip_longest

import numpy as np
import pytest
from PIL import Image

from gedikit.data import indexing, parquet_pictures, sources, stored
from gedikit.data.index import Index, Texts
from gedikit.data.shard_pictures import SKIP, STOP
from gedikit.data.shards import Shard, is_shards, list_shards
from gedikit.data.sources import ShardReading
from gedikit.data.stored import StoredPictures
from gedikit.data.tar_members import members
from gedikit.errors import DataError, StorageError, UsageError
from gedikit.processes import Share
from gedikit.rows import SomeHeld, looked_at
from gedikit.storage import read_tensors, write_tensors
from shard_cases import pictures, png, special, tar_of, write_shards

SIDE = 12
ON_DEMAND = ShardReading(memory=0)


def load(source, how: ShardReading = ON_DEMAND, size: int = SIDE) -> sources.Dataset:
    return sources.load(str(source), image_size=size, shards=how)


def rows_of(shown) -> np.ndarray:
    return np.stack(shown).reshape(len(shown), -1)


def parquet(path, columns: dict, rows_a_group: int = 4):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow.table(columns), path, row_group_size=rows_a_group)
    return path


@pytest.mark.parametrize("memory", [0, 10**9])
def test_rows_are_the_pictures_in_the_order_of_shards(tmp_path, memory):
    shown, labels = pictures(11), [i % 3 for i in range(11)]
    names = write_shards(tmp_path, shown, 4, labels)
    found = load(tmp_path, ShardReading(memory=memory))
    assert (found.stored is not None) == (memory == 0)
    assert found.image_shape == (SIDE, SIDE, 1), "all of them are grey"
    assert np.array_equal(found.rows[:], rows_of(shown))
    assert np.array_equal(found.x, rows_of(shown))
    assert list(found.names) == list(found.all_names) == names
    assert found.y.tolist() == [str(label) for label in labels]
    assert found.skipped == ()


def test_rows_by_number_slice_and_mask(tmp_path):
    shown = pictures(9, colour=True)
    write_shards(tmp_path, shown, 2)
    found, x = load(tmp_path).rows, rows_of(shown)
    assert isinstance(found, StoredPictures) and found.shape == x.shape and found.nbytes == x.nbytes
    for rows in (
        [7, 0, 7, 3],
        slice(2, 8),
        slice(None, None, -1),
        np.array([8]),
        np.empty(0, np.int64),
        x[:, 0] > 99,
    ):
        assert np.array_equal(found[rows], x[rows]), rows
    assert np.array_equal(found[4], x[4])
    held = SomeHeld(found, np.array([1, 4, 7]))
    assert np.array_equal(held[[7, 0, 4, 4, 8]], x[[7, 0, 4, 4, 8]])
    assert held.fingerprint == found.fingerprint


@pytest.mark.parametrize("memory", [0, 10**9])
def test_a_colour_in_the_last_picture_makes_all_of_them_coloured(tmp_path, memory):
    shown = [*pictures(5), pictures(1, colour=True)[0], pictures(6)[5]]
    write_shards(tmp_path, shown, 3)
    found = load(tmp_path, ShardReading(memory=memory))
    assert found.image_shape == (SIDE, SIDE, 3)
    assert np.array_equal(found.rows[[0, 6]], [np.repeat(shown[i].reshape(-1), 3) for i in (0, 6)])
    assert np.array_equal(found.rows[5], shown[5].reshape(-1))
    grey = sources.load(str(tmp_path), image_size=SIDE, image_channels=1, shards=ShardReading(memory=memory))
    assert np.array_equal(grey.rows[0], shown[0].reshape(-1)) and grey.image_shape == (SIDE, SIDE, 1)
    coloured = sources.load(
        str(tmp_path / "s-000.tar"), image_size=SIDE, image_channels=3, shards=ShardReading(memory=memory)
    )
    assert np.array_equal(coloured.rows[2], np.repeat(shown[2].reshape(-1), 3))


def test_pictures_of_any_size_are_resized_as_those_of_a_folder(tmp_path):
    shown = [pictures(1, side, colour=True)[0] for side in (9, 40, 17)]
    write_shards(tmp_path / "shards", shown, 2)
    (tmp_path / "folder").mkdir()
    for number, picture in enumerate(shown):
        Image.fromarray(picture).save(tmp_path / "folder" / f"{number}.png")
    assert np.array_equal(
        load(tmp_path / "shards", size=16).rows[:], sources.load(str(tmp_path / "folder"), image_size=16).x
    )


def test_the_same_from_pattern_range_list_and_folder(tmp_path):
    shown = pictures(6)
    write_shards(tmp_path, shown, 2)
    (tmp_path / "all.txt").write_text("# three\ns-000.tar\n\ns-001.tar\n  s-002.tar\n")
    expected = [str(tmp_path / f"s-00{i}.tar") for i in range(3)]
    for source in (tmp_path, tmp_path / "*.tar", tmp_path / "s-{000..002}.tar", tmp_path / "all.txt"):
        assert is_shards(str(source))
        assert [shard.place for shard in list_shards(str(source))] == expected
    assert [shard.name for shard in list_shards(str(tmp_path / "s-002.tar"))] == ["s-002.tar"]
    assert not is_shards(str(tmp_path / "rows.csv")) and not is_shards("digits")
    (tmp_path / "holiday.png").touch()
    assert not is_shards(str(tmp_path)), "a folder of pictures, with something beside them"


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_members_are_those_that_tarfile_finds(form):
    named = [("a/b.png", b"x" * 700), ("short.json", b""), ("last.jpg", b"y" * 512)]
    if form != tarfile.USTAR_FORMAT:
        named += [("long/" + "n" * 300 + ".png", b"zz"), ("ümlaut.png", b"1")]
    raw = tar_of([("folder", special("folder", tarfile.DIRTYPE)), *named], form)
    found = list(members(lambda at, n: raw[at : at + n], len(raw)))
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        expected = [(m.name, m.offset_data, m.size) for m in archive if m.isreg()]
    assert [(m.name, m.offset, m.length) for m in found] == expected
    assert [raw[m.offset : m.offset + m.length] for m in found] == [content for _, content in named]


def test_what_belongs_to_a_key(tmp_path):
    shown = [png(picture) for picture in pictures(5)]
    about = json.dumps({"label": 7, "text": "a word"}).encode()
    (tmp_path / "a.tar").write_bytes(
        tar_of(
            [
                ("x/1.json", about),
                ("x/1.seg.png", shown[4]),  # beside the picture, not it
                ("x/1.png", shown[0]),
                ("y/1.png", shown[1]),  # another folder, another key
                ("y/1.cls", b"cat\n"),
                ("photo.2020.png", shown[2]),
                ("photo.2021.png", shown[3]),
                ("notes.txt", b"nothing"),
                (".hidden.png", b"nothing"),
            ]
        )
    )
    found = load(tmp_path)
    assert list(found.names) == [f"a.tar/{n}" for n in ("x/1.png", "y/1.png", "photo.2020.png", "photo.2021.png")]
    assert found.y.tolist() == ["7", "cat", None, None]
    assert np.array_equal(found.rows[:], rows_of(pictures(5)[:4]))


BAD = {
    "empty.tar": (b"", "the file is empty"),
    "nothing.tar": (tar_of([]), "there is no picture in it"),
    "page.tar": (b"<html>" * 200, "no header of a member at byte 0"),
    "packed.tar": (gzip.compress(tar_of([("1.png", b"")])), "unpack it with gunzip"),
    "short.tar": (tar_of([("1.png", png(pictures(1)[0]) * 9)])[:1500], "cut short"),
    "broken.tar": (tar_of([("1.png", png(pictures(1)[0])[:60])]), "damaged"),
    "text.tar": (tar_of([("1.png", b"no picture")]), "not a picture of a known format"),
    "link.tar": (tar_of([("", special("1.png", tarfile.SYMTYPE, "/etc/passwd"))]), "a link, not a file"),
    "hard.tar": (tar_of([("", special("1.png", tarfile.LNKTYPE, "/etc/passwd"))]), "a link, not a file"),
    "device.tar": (tar_of([("", special("1.png", tarfile.CHRTYPE))]), "a device, not a file"),
    "again.tar": (tar_of([("1.png", png(pictures(1)[0])), ("2.txt", b""), ("1.png", b"")]), "key is there twice"),
    "two.tar": (tar_of([("1.png", png(pictures(1)[0])), ("1.jpg", b"")]), "its key is there twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_stops_or_is_left_out_and_listed(tmp_path, name):
    content, says = BAD[name]
    shown = pictures(4)
    write_shards(tmp_path, shown, 2)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}.*{says}.*--bad-shards skip"):
        load(tmp_path)
    found = load(tmp_path, ShardReading(0, SKIP))
    kept = [row for row, name_of in enumerate(found.names) if name_of.startswith("s-")]
    assert np.array_equal(found.rows[kept], rows_of(shown)), "nothing else is lost"
    ((left_out, why),) = found.skipped
    assert name in left_out and says in why


def test_a_missing_shard_stops_or_is_left_out(tmp_path):
    write_shards(tmp_path, pictures(4), 2)
    source = str(tmp_path / "s-{000..002}.tar")
    with pytest.raises(DataError, match=r"s-002.tar: No such file"):
        load(source)
    found = load(source, ShardReading(0, SKIP))
    assert len(found.rows) == 4
    assert [name for name, _ in found.skipped] == [str(tmp_path / "s-002.tar")]
    with pytest.raises(DataError, match=r"too few pictures.*No such file"):
        load(str(tmp_path / "t-{0..3}.tar"), ShardReading(0, SKIP))


def test_the_rest_of_a_shard_that_breaks_off_is_left_out(tmp_path):
    shown = pictures(4)
    whole = tar_of([(f"{i}.png", png(p)) for i, p in enumerate(shown)])
    at = whole.index(b"2.png")
    (tmp_path / "a.tar").write_bytes(whole[:at] + b"?" * 100 + whole[at + 100 :])
    found = load(tmp_path, ShardReading(0, SKIP))
    assert np.array_equal(found.rows[:], rows_of(shown[:2]))
    assert found.skipped[0][0] == str(tmp_path / "a.tar") and "at byte" in found.skipped[0][1]


def test_names_lead_nowhere(tmp_path, monkeypatch):
    """Nothing is unpacked, whatever names say."""
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    names = ["../../outside.png", "/absolute.png", "a/../../b.png"]
    raw = tar_of([(name, png(picture)) for name, picture in zip(names, pictures(3), strict=True)])
    (inside / "s.tar").write_bytes(raw)
    before = set(tmp_path.rglob("*"))
    found = load(inside)
    assert np.array_equal(found.rows[:], rows_of(pictures(3)))
    assert list(found.names) == [f"s.tar/{name}" for name in names]
    assert set(tmp_path.rglob("*")) == before


def test_an_index_is_kept_and_read_instead_of_the_shards(tmp_path, monkeypatch):
    shown, labels = pictures(5), list("abcab")
    names = write_shards(tmp_path / "shards", shown, 2, labels)
    how = ShardReading(0, STOP, tmp_path / "index")
    first = load(tmp_path / "shards", how)
    monkeypatch.setattr(indexing, "_Indexing", None)  # not made again
    again = load(tmp_path / "shards", how)
    assert np.array_equal(again.rows[:], rows_of(shown))
    assert again.names == tuple(names) and again.y.tolist() == labels
    assert again.rows.fingerprint == first.rows.fingerprint
    os.utime(tmp_path / "shards" / "s-001.tar", ns=(0, 0))
    with pytest.raises(UsageError, match="some were written since"):
        load(tmp_path / "shards", how)
    (tmp_path / "index").write_bytes((tmp_path / "index").read_bytes()[:-3])
    with pytest.raises(StorageError, match=r"damaged|cut short"):
        load(tmp_path / "shards", how)


def test_an_index_is_found_from_wherever_its_shards_are_named(tmp_path, monkeypatch):
    folder = tmp_path / "real"
    write_shards(folder / "tars", pictures(4), 2)
    parquet(folder / "p.parquet", {"image": [png(picture) for picture in pictures(4)]})
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "other.parquet").symlink_to(folder / "p.parquet")
    monkeypatch.chdir(tmp_path)
    places = {"real/p.parquet", "link/p.parquet", "other.parquet", str(folder / "p.parquet")}
    for made in places:
        index = load(made).index
        assert index.shards[0].place == str(tmp_path / made), "the name of a link, which may be all that tells"
        assert all(index.is_of(sources.picture_shards(place)) for place in places)
        assert not index.is_of(sources.picture_shards("real/tars/s-000.tar"))
    assert load("link/tars").index.is_of(sources.picture_shards(str(folder / "tars")))


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("label", lambda label: label[:-1], "other lengths"),
        ("place", lambda place: place[:, :1].contiguous(), "other lengths"),
        ("names.ends", lambda ends: ends[1:].contiguous(), "other lengths"),
        ("versions", lambda versions: versions[1:], "other lengths"),
        ("shard", lambda shard: shard + 1, "shards or labels that are not there"),
        ("shard", lambda shard: shard - 1, "shards or labels that are not there"),
        ("label", lambda label: label + 1, "shards or labels that are not there"),
        ("label", lambda label: label - 2, "shards or labels that are not there"),
        ("place", lambda place: place - 10**6, "places that are not there"),
        ("bytes", lambda held: held + 2**40, "places that are not there"),
        ("bytes", lambda held: held + 1, "places that are not there"),
        ("names.ends", lambda ends: ends.flip(0), "end before they begin"),
        ("names.ends", lambda ends: ends + 1, "letters of no name"),
        ("names.letters", lambda letters: letters // 2 + 128, "within a letter"),
        ("names.letters", lambda letters: letters | 0xC0, "codec"),
        ("digest", len, "where text should be"),
        ("skipped", lambda skipped: [*skipped, ["name", 7]], "where text should be"),
        ("shard", lambda shard: shard.double(), "other kinds of numbers"),
    ],
)
def test_parts_of_an_index_fit_together(tmp_path, name, change, says):
    """The digest tells damage, not who wrote a file."""
    write_shards(tmp_path / "shards", pictures(5), 2, list("abcab"))
    index, path = load(tmp_path / "shards").index, tmp_path / "index"
    index.save(path)
    assert list(Index.load(path).names) == list(index.names)
    tensors, meta = read_tensors(path, "index of shards")
    own = tensors if name in tensors else meta
    own[name] = change(own[name])
    rest = {key: value for key, value in meta.items() if key not in ("kind", "format")}
    write_tensors(path, tensors, rest, "index of shards")
    with pytest.raises(StorageError, match=says):
        Index.load(path)


def test_the_fingerprint_is_of_contents_and_not_of_files(tmp_path):
    shown = pictures(6)
    write_shards(tmp_path / "a", shown, 2)
    write_shards(tmp_path / "b", shown, 3)
    write_shards(tmp_path / "c", [*shown[:5], shown[0]], 2)
    a, b, c = (load(tmp_path / name).rows.fingerprint for name in "abc")
    assert a == b != c
    assert load(tmp_path / "a", size=16).rows.fingerprint != a


def test_a_picture_that_is_gone_when_it_is_needed_is_named(tmp_path):
    write_shards(tmp_path, pictures(4), 2)
    found = load(tmp_path).rows
    (tmp_path / "s-001.tar").write_bytes(b"")
    assert found[[0, 1]].shape == (2, SIDE * SIDE)
    with pytest.raises(DataError, match=r"s-001.tar/0002.png of .* cannot be read any more"):
        found[[1, 2]]


def test_names_in_the_memory_of_their_letters():
    index = Index((), (), np.zeros(3, np.int32), np.zeros((3, 2), np.int64), np.ones(3, np.int64),
                  Texts(np.frombuffer("aßc/d".encode(), np.uint8), np.array([1, 3, 6])),
                  np.array([1, -1, 0], np.int32), ("x", "y"), (), True, "")  # fmt: skip
    assert list(index.names) == ["a", "ß", "c/d"]
    assert index.names[1:] == ["ß", "c/d"] and index.names[-1] == "c/d"
    assert index.labels.tolist() == ["y", None, "x"]
    with pytest.raises(IndexError):
        index.names[3]


@pytest.mark.parametrize("as_struct", [True, False])
def test_pictures_of_parquet_files(tmp_path, as_struct):
    shown = pictures(10, colour=True)
    raw = [png(picture) for picture in shown]
    column = [{"bytes": content, "path": f"{i}.png"} for i, content in enumerate(raw)] if as_struct else raw
    parquet(tmp_path / "a.parquet", {"image": column[:7], "label": list(range(7))}, 3)
    parquet(tmp_path / "b.parquet", {"image": column[7:], "label": [7, None, 9]}, 3)
    found = load(tmp_path)
    assert np.array_equal(found.rows[:], rows_of(shown))
    assert np.array_equal(found.rows[[9, 2, 6]], rows_of(shown)[[9, 2, 6]])
    assert found.y.tolist() == [*map(str, range(8)), None, "9"]
    assert found.names[7] == ("b.parquet/0/7.png" if as_struct else "b.parquet/0")
    one = load(tmp_path / "b.parquet")
    assert np.array_equal(one.rows[:], rows_of(shown[7:])), "a single file with pictures is no table"


def test_rows_of_parquet_files_that_hold_no_picture(tmp_path):
    raw = [png(picture) for picture in pictures(4)]
    parquet(tmp_path / "a.parquet", {"img": [raw[0], None, b"text", raw[3]]})
    (tmp_path / "b.parquet").write_bytes(b"PAR1" + b"\0" * 30 + b"PAR1")
    parquet(tmp_path / "c.parquet", {"img": [1, 2, 3]})
    with pytest.raises(DataError, match=r"a.parquet/1: no picture in this row"):
        load(tmp_path)
    found = load(tmp_path, ShardReading(0, SKIP))
    assert np.array_equal(found.rows[:], rows_of([pictures(4)[0], pictures(4)[3]]))
    assert [name.rsplit("/", 1)[-1] for name, _ in found.skipped] == ["1", "2", "b.parquet", "c.parquet"]
    assert "damaged" in found.skipped[2][1] and "no column" in found.skipped[3][1]


def test_row_groups_are_shuffled_in_pools_and_read_once_each(tmp_path, monkeypatch):
    raw = [png(picture) for picture in pictures(60)]
    parquet(tmp_path / "a.parquet", {"image": raw[:40]}, 5)
    parquet(tmp_path / "b.parquet", {"image": raw[40:]}, 5)
    monkeypatch.setattr(stored, "_POOL", 15 * len(raw[0]))
    monkeypatch.setattr(parquet_pictures, "_HELD", 22 * len(raw[0]))
    found = load(tmp_path).rows
    orders = [found.order(np.random.default_rng([1, epoch])) for epoch in (0, 0, 1)]
    assert np.array_equal(orders[0], orders[1]) and not np.array_equal(orders[0], orders[2])
    assert np.array_equal(np.sort(orders[0]), np.arange(60)), "each row once"
    groups = [len(set(batch // 5)) for batch in np.split(orders[0], 4)]
    assert max(groups) <= 6 < len(set(np.random.default_rng(0).permutation(60)[:15] // 5))
    assert any(np.any(np.diff(batch) != 1) for batch in np.split(orders[0], 4)), "and not in order"
    reads = []
    read = parquet_pictures.RowGroups._group
    monkeypatch.setattr(
        parquet_pictures.RowGroups,
        "_group",
        lambda self, shard, group: reads.append(group) or read(self, shard, group),
    )
    for batch in np.split(orders[0], 12):
        assert np.array_equal(found[np.sort(batch)], rows_of(pictures(60))[np.sort(batch)])
    assert len(reads) <= 16, "of 12 row groups, a few that lie in two pools twice"


def test_row_groups_larger_than_memory_are_refused(tmp_path, monkeypatch):
    raw = [png(picture) for picture in pictures(8)]
    parquet(tmp_path / "a.parquet", {"image": raw}, 8)
    monkeypatch.setattr(parquet_pictures, "LARGEST_GROUP", 5 * len(raw[0]))
    with pytest.raises(DataError, match="write it with smaller row groups"):
        load(tmp_path)


def test_tables_in_several_files(tmp_path):
    x = np.random.default_rng(0).normal(size=(3000, 2))
    for number, part in enumerate(np.split(x, 3)):
        parquet(tmp_path / f"t{number}.parquet", {"a": part[:, 0], "b": part[:, 1], "label": [number] * 1000}, 300)
    whole = sources.load(str(tmp_path))
    assert np.array_equal(whole.x, x) and whole.columns == ("a", "b") and not len(whole.ids.columns)
    assert whole.y.tolist() == np.repeat([0, 1, 2], 1000).tolist()
    how = ShardReading(memory=2 * 8 * 3 * 1500)
    some, again = (sources.load(str(tmp_path), seed=3, shards=how) for _ in range(2))
    rows = some.ids["row_in_data"].to_numpy()
    assert len(rows) == 1500 and some.drawn_from == 3000 and len(set(rows)) == 1500
    assert np.array_equal(some.x, x[rows]) and np.array_equal(some.x, again.x)
    assert not np.array_equal(rows, sources.load(str(tmp_path), seed=4, shards=how).ids["row_in_data"])
    blocks = list(sources.blocks(str(tmp_path), columns=("b", "a")))
    assert np.array_equal(np.concatenate([block.x for block in blocks]), x[:, ::-1])
    with pytest.raises(DataError, match=r"t3.parquet: No such file or directory; --bad-shards skip"):
        sources.load(str(tmp_path / "t{0..3}.parquet"))
    (tmp_path / "t1.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"t1.parquet: damaged.*--bad-shards skip"):
        sources.load(str(tmp_path))
    left = list(sources.blocks(str(tmp_path), columns=("a", "b"), bad_shards=SKIP))
    assert np.array_equal(np.concatenate([block.x for block in left]), np.concatenate([x[:1000], x[2000:]]))
    assert [name for block in left for name, _ in block.skipped] == [str(tmp_path / "t1.parquet")]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_processes_take_tables_in_turns(tmp_path, count):
    """Files, or pieces where there are fewer files than processes; columns in the order of the first file."""
    x = np.random.default_rng(0).normal(size=(3000, 2))
    for number, part in enumerate(np.split(x, 3)):
        by_name = {"a": part[:, 0], "b": part[:, 1], "label": [number] * 1000}
        parquet(tmp_path / f"t{number}.parquet", by_name if number == 0 else dict(reversed(by_name.items())))
    (tmp_path / "t1.parquet").write_bytes(b"PAR1")
    of_each = [
        [list(some) for some in sources.portions(str(tmp_path), Share(rank, count), bad_shards=SKIP)]
        for rank in range(count)
    ]
    blocks = [block for turn in zip_longest(*of_each, fillvalue=[]) for some in turn for block in some]
    found = [block.x for block in blocks if len(block.x)]
    assert np.array_equal(np.concatenate(found), np.concatenate([x[:1000], x[2000:]]))
    assert {name for block in blocks for name, _ in block.skipped} == {str(tmp_path / "t1.parquet")}


def no_text(n: int):
    """Text that is no UTF-8, which Arrow writes and reads without a look."""
    arrow = pytest.importorskip("pyarrow")
    return arrow.array([b"\xff\xfe"] * n).view(arrow.string())


def test_text_of_tables_that_is_no_text(tmp_path):
    x = np.arange(1200.0)
    parquet(tmp_path / "t0.parquet", {"a": x, "b": ["x", "y"] * 600})
    parquet(tmp_path / "t1.parquet", {"a": x, "b": no_text(1200)})
    encoding = sources.load(str(tmp_path / "t0.parquet")).encoding
    for read in (sources.load, lambda source: list(sources.blocks(source, encoding=encoding))):
        with pytest.raises(DataError, match=r"t1.parquet: damaged.*--bad-shards skip"):
            read(str(tmp_path))
    with pytest.raises(DataError, match=r"t1.parquet: damaged"):
        load(tmp_path / "t1.parquet", ShardReading(memory=0))
    found = load(tmp_path, ShardReading(bad=SKIP))
    assert found.x[:, 0].tolist() == x.tolist() and [name[-10:] for name, _ in found.skipped] == ["t1.parquet"]


@pytest.mark.parametrize("memory", [0, 10**9])
def test_tables_of_which_no_row_can_be_read(tmp_path, memory):
    for number in range(2):
        parquet(tmp_path / f"t{number}.parquet", {"a": np.arange(600.0), "b": no_text(600)})
    says = r"no row of .*t0.parquet and 1 more can be read; .*t0.parquet: damaged"
    with pytest.raises(DataError, match=says):
        list(sources.blocks(str(tmp_path), columns=("a",), bad_shards=SKIP))
    with pytest.raises(DataError, match=says):
        load(tmp_path, ShardReading(memory=memory, bad=SKIP))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"a": [1.5, 2.5]}, "it has no column 'b', which t0.parquet has"),
        ({"a": [1.5, 2.5], "b": [1, 2], "c": [3, 4]}, "it has a column 'c', which t0.parquet has not"),
        ({"a": ["x", "y"], "b": [1, 2]}, "its column 'a' is of type string, that of t0.parquet of type double"),
    ],
)
def test_files_of_a_table_have_the_same_columns(tmp_path, columns, says):
    x = np.random.default_rng(0).normal(size=500)
    parquet(tmp_path / "t0.parquet", {"a": x, "b": np.arange(500)})
    parquet(tmp_path / "t1.parquet", columns)
    parquet(tmp_path / "t2.parquet", {"b": np.arange(500) + 0.5, "a": x})  # in another order, and not whole
    with pytest.raises(DataError, match=rf"t1.parquet: {says}; --bad-shards skip"):
        sources.load(str(tmp_path))
    found = load(tmp_path, ShardReading(bad=SKIP))
    assert np.array_equal(found.x, np.stack([np.tile(x, 2), np.r_[np.arange(500), np.arange(500) + 0.5]], axis=1))
    assert found.skipped == ((str(tmp_path / "t1.parquet"), says),)


def test_rows_for_a_model_name_their_own_file(tmp_path):
    parquet(tmp_path / "t0.parquet", {"a": [1.5, 2.5], "b": [1, 2]})
    encoding = sources.load(str(tmp_path)).encoding
    parquet(tmp_path / "t1.parquet", {"a": [1.5, 2.5]})
    with pytest.raises(DataError, match=r"t1.parquet.*'b'"):
        list(sources.blocks(str(tmp_path), encoding=encoding))
    parquet(tmp_path / "t1.parquet", {"a": ["2", "x"], "b": [1, 2]})
    with pytest.raises(DataError, match=r"t1.parquet.*'a'.*row 1\b"):
        list(sources.blocks(str(tmp_path), encoding=encoding))


@pytest.mark.parametrize("column", ["a", "image"])
def test_pages_are_compared_with_their_checksums(tmp_path, column):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    values = np.arange(600.0) if column == "a" else [png(picture) for picture in pictures(20)]
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(
        arrow.table({column: values}), path, compression="none", use_dictionary=False, write_page_checksum=True
    )
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    for how in (None, ShardReading(memory=0)):
        with pytest.raises(DataError, match=r"t.parquet: damaged.*CRC|t.parquet is damaged.*CRC"):
            load(path, how)


def test_blocks_of_shards(tmp_path, monkeypatch):
    shown = pictures(7)
    names = write_shards(tmp_path, shown, 3)
    monkeypatch.setattr(sources, "_BLOCK", 4)
    blocks = list(sources.blocks(str(tmp_path), image_size=SIDE, image_channels=1))
    assert [len(block.x) for block in blocks] == [4, 3]
    assert np.array_equal(np.concatenate([block.x for block in blocks]), rows_of(shown))
    assert [name for block in blocks for name in block.names] == names
    (tmp_path / "s-002.tar").write_bytes(b"?" * 600)
    with pytest.raises(DataError, match=r"s-002.tar"):
        list(sources.blocks(str(tmp_path), image_size=SIDE, image_channels=1))
    blocks = list(sources.blocks(str(tmp_path), image_size=SIDE, image_channels=1, bad_shards=SKIP))
    assert sum(len(block.x) for block in blocks) == 6
    assert [name for block in blocks for name, _ in block.skipped] == [str(tmp_path / "s-002.tar")]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("none-*.tar", "no file matches"),
        ("s.tar.gz", "compressed archive"),
        ("s-{9..1}.tar", "no range of shards"),
        ("s3://bucket/*.tar", "not by \\*"),
        ("mixed.txt", "both tar archives and Parquet files"),
        ("empty.txt", "names no shard"),
        ("none.txt", "cannot be read as a list of shards"),
        ("reference://place/s.tar", "addresses begin with one of"),
        ("simplecache::memory://place/s.tar", "addresses begin with one of"),
    ],
)
def test_sources_that_are_no_shards_are_one_sentence(tmp_path, monkeypatch, source, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed.txt").write_text("a.tar\nb.parquet\n")
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises((DataError, UsageError), match=says):
        load(source)


def test_addresses_are_read_through_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    shown = pictures(5)
    write_shards(tmp_path, shown, 2)
    memory = fsspec.filesystem("memory")
    for path in tmp_path.iterdir():
        memory.pipe(f"/set/{path.name}", path.read_bytes())
    source = "memory://set/s-{000..002}.tar"
    found = load(source)
    assert np.array_equal(found.rows[[4, 0, 2]], rows_of(shown)[[4, 0, 2]])
    with pytest.raises(DataError, match=r"memory://set/s-003.tar"):
        load("memory://set/s-{000..003}.tar")
    memory.pipe("/set/p.parquet", parquet(tmp_path / "p.parquet", {"image": [png(p) for p in shown]}).read_bytes())
    assert np.array_equal(load("memory://set/p.parquet").rows[:], rows_of(shown))


def test_rows_that_are_looked_at(tmp_path, monkeypatch):
    shown = pictures(9)
    write_shards(tmp_path, shown, 4)
    found = load(tmp_path).rows
    assert looked_at(rows_of(shown), 0) is None
    assert looked_at(found, 0).tolist() == list(range(9))
    monkeypatch.setattr("gedikit.rows._LOOKED_AT", 5)
    monkeypatch.setattr("gedikit.rows._FEWEST", 2)
    some = looked_at(found, 0)
    assert len(set(some)) == 5 and some.tolist() == sorted(some) and not np.array_equal(some, looked_at(found, 1))
    sampled = load(tmp_path)
    assert np.array_equal(sampled.x, rows_of(shown)[sampled.numbers]) and len(sampled.rows) == 9
    assert list(sampled.names) == [sampled.all_names[i] for i in sampled.numbers.tolist()]


def test_a_shard_is_named_by_its_end():
    assert Shard("s3://bucket/train/a.tar").name == "a.tar"
