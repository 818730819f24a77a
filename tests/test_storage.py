"""Files are written whole or not at all; what is no file is written to; what cannot be read is named."""

import errno
import os
import pty
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gedikit.errors import DataError, StorageError
from gedikit.storage import (
    damaged,
    forget_unfinished,
    is_stream,
    read_tensors,
    write_atomically,
    write_bytes,
    write_tensors,
    write_text,
    writing,
    writing_text,
)

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2])}


def by_path(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: temporary.write_text(text) and None)


def by_file(path: Path, text: str) -> None:
    with writing(path) as file:
        file.write(text.encode())


def by_lines(path: Path, text: str) -> None:
    with writing_text(path) as file:
        file.writelines(text.splitlines(keepends=True))


WAYS = pytest.mark.parametrize("write", [by_path, by_file, by_lines, write_text])
Way = Callable[[Path, str], None]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read_in_thread(path: Path) -> tuple[threading.Thread, list[bytes]]:
    """A reader of a FIFO; opening one waits for the other side."""
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    thread.start()
    return thread, found


def python(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, **options)


@WAYS
def test_a_file_is_made_or_replaced_and_nothing_else_is_left(write: Way, tmp_path: Path):
    path = tmp_path / "deep" / "out.txt"
    write(path, "one\n")
    assert path.read_text() == "one\n"
    write(path, "two\nthree\n")
    assert path.read_bytes() == b"two\nthree\n"
    assert names(path.parent) == ["out.txt"]


@WAYS
def test_who_may_read_a_file_is_as_for_any_new_one_or_as_it_was(write: Way, tmp_path: Path):
    mask = os.umask(0o027)
    try:
        write(tmp_path / "new", "one")
        assert os.umask(0o027) == 0o027  # nothing else is changed
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    for mode in (0o600, 0o664):
        (tmp_path / "new").chmod(mode)
        write(tmp_path / "new", "two")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode


def test_what_fails_half_way_leaves_the_old_file_whole(tmp_path: Path):
    path = tmp_path / "out.txt"
    path.write_text("precious")
    with pytest.raises(ZeroDivisionError), writing(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    with pytest.raises(DataError, match="row 3"), writing_text(path) as text:
        text.write("half")
        raise DataError("row 3")
    with pytest.raises(StorageError, match=r"could not write .*out\.txt: the disk is full; .* untouched"):
        write_atomically(path, _full)
    assert path.read_text() == "precious"
    assert names(tmp_path) == ["out.txt"]


def _full(path: Path) -> None:
    path.write_text("half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_error_of_ours_keeps_its_own_words(tmp_path: Path):
    with pytest.raises(StorageError, match=r"^there is no model at"), writing(tmp_path / "out"):
        read_tensors(tmp_path / "absent", "model")


@WAYS
def test_a_folder_in_the_way_is_said_before_anything_is_written(write: Way, tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for name in ("folder", "link"):
        with pytest.raises(StorageError, match=f"could not write .*{name}: Is a directory"):
            write(tmp_path / name, "text")
    (tmp_path / "file").write_text("kept")
    with pytest.raises(StorageError, match="could not write"):
        write(tmp_path / "file" / "out.txt", "text")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_name_as_long_as_names_can_be(tmp_path: Path):
    path = tmp_path / ("n" * 255)
    write_text(path, "text")
    assert path.read_text() == "text"


@WAYS
def test_a_link_stays_and_its_file_is_replaced_where_it_is(write: Way, tmp_path: Path):
    (tmp_path / "far").mkdir()
    (tmp_path / "near").mkdir()
    target, middle, link = tmp_path / "far" / "real.txt", tmp_path / "far" / "middle", tmp_path / "near" / "link"
    target.write_text("old")
    middle.symlink_to("real.txt")
    link.symlink_to("../far/middle")
    before = target.stat().st_ino
    write(link, "new\n")
    assert target.read_text() == "new\n"
    assert target.stat().st_ino != before, "replaced, not written over"
    assert link.is_symlink() and middle.is_symlink() and not target.is_symlink()
    assert names(tmp_path / "near") == ["link"]
    assert names(tmp_path / "far") == ["middle", "real.txt"]


@WAYS
def test_a_link_that_leads_nowhere_yet_stays_and_its_file_is_made(write: Way, tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "later" / "real.txt")
    write(link, "new\n")
    assert link.is_symlink()
    assert not (tmp_path / "later" / "real.txt").is_symlink()
    assert link.read_text() == "new\n"
    assert names(tmp_path / "later") == ["real.txt"]


@WAYS
def test_links_in_a_circle_are_named_and_stay(write: Way, tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(StorageError, match=r"could not write .*a: Too many levels"):
        write(tmp_path / "a", "text")
    assert (tmp_path / "a").is_symlink() and (tmp_path / "b").is_symlink()


@WAYS
@pytest.mark.parametrize("linked", [False, True])
def test_a_fifo_is_written_to_and_stays(write: Way, linked: bool, tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    if linked:
        (tmp_path / "link").symlink_to("fifo")
    path = tmp_path / "link" if linked else fifo
    assert is_stream(path)
    thread, found = read_in_thread(fifo)
    text = "row\n" * 50_000  # more than a pipe holds
    write(path, text)
    thread.join(10)
    assert found == [text.encode()]
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert names(tmp_path) == (["fifo", "link"] if linked else ["fifo"])


def test_a_fifo_has_lines_as_they_are_written(tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    first, go_on = threading.Event(), threading.Event()

    def read() -> None:
        with fifo.open() as file:
            assert file.readline() == "one\n"
            first.set()
            assert file.read() == "two\n"
            go_on.set()

    threading.Thread(target=read, daemon=True).start()
    with writing_text(fifo) as text:
        text.write("one\n")
        text.flush()
        assert first.wait(10), "before the file is closed"
        text.write("two\n")
    assert go_on.wait(10)


@WAYS
def test_a_reader_that_goes_away_is_a_broken_pipe(write: Way, tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def read_a_little() -> None:
        with fifo.open("rb", buffering=0) as file:
            file.read(10)

    threading.Thread(target=read_a_little, daemon=True).start()
    with pytest.raises(BrokenPipeError):
        write(fifo, "row\n" * 100_000)
    assert stat.S_ISFIFO(fifo.lstat().st_mode)


@pytest.mark.parametrize("opened", [writing, writing_text])
def test_what_fails_while_a_reader_idles_does_not_wait_for_it(opened, tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    idle = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    filler = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(filler, b"x" * 4096)
    with pytest.raises(KeyboardInterrupt), opened(fifo) as file:
        file.write("left" if opened is writing_text else b"left")
        raise KeyboardInterrupt
    os.close(filler)
    os.close(idle)


@WAYS
def test_devices_are_written_to_and_stay(write: Way, tmp_path: Path):
    """Only links and what no file can replace: a mistake must not cost the machine its /dev/null."""
    master, slave = pty.openpty()
    terminal = Path(os.ttyname(slave))
    assert is_stream(terminal)
    write(terminal, "text\n")
    assert os.read(master, 100) == b"text\r\n"
    assert stat.S_ISCHR(terminal.lstat().st_mode)
    os.close(slave)
    os.close(master)
    null, full = tmp_path / "null", tmp_path / "full"
    null.symlink_to("/dev/null")
    full.symlink_to("/dev/full")
    write(null, "text")
    with pytest.raises(StorageError, match=r"could not write .*full: the disk is full$"):
        write(full, "text")
    assert null.is_symlink() and full.is_symlink() and stat.S_ISCHR(null.stat().st_mode)


def test_tensors_go_through_a_fifo(tmp_path: Path):
    fifo = tmp_path / "model.safetensors"
    os.mkfifo(fifo)
    thread, found = read_in_thread(fifo)
    write_tensors(fifo, TENSORS, {"n": 3}, "model")
    thread.join(10)
    write_bytes(tmp_path / "copy", found[0])
    tensors, meta = read_tensors(tmp_path / "copy", "model")
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert meta["n"] == 3


WRITE_TO = """
import sys
from pathlib import Path
from gedikit.storage import write_atomically, writing
print("said before")
place = int(sys.argv[1]) if sys.argv[1].isdecimal() else Path(sys.argv[1])
if sys.argv[2] == "file":
    with writing(place) as file:
        file.write(b"text\\n")
else:
    write_atomically(place, lambda path: path.write_text("text\\n"))
print("said after")
"""


PATHS = ("/dev/fd/1", "/proc/self/fd/1", "link")


@pytest.mark.parametrize(
    ("place", "way"), [("1", "file"), *((path, way) for path in PATHS for way in ("file", "path"))]
)
def test_an_open_file_is_gone_on_with_and_never_cut(place: str, way: str, tmp_path: Path):
    (tmp_path / "link").symlink_to("/dev/stdout")
    log = tmp_path / "log"
    log.write_text("line\n")
    with log.open("a") as file:
        done = python(WRITE_TO, place, way, stdout=file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert log.read_text() == "line\nsaid before\ntext\nsaid after\n"
    piped = python(WRITE_TO, place, way, stdout=subprocess.PIPE, cwd=tmp_path)
    assert piped.stdout == "said before\ntext\nsaid after\n"
    assert names(tmp_path) == ["link", "log"]


def test_a_shell_gives_an_open_pipe_by_number():
    code = "import sys, pathlib, gedikit.storage as s; s.write_text(pathlib.Path(sys.argv[1]), 'text')"
    read, write = os.pipe()
    done = python(code, f"/dev/fd/{write}", pass_fds=(write,))
    os.close(write)
    with os.fdopen(read) as file:
        assert file.read() == "text"
    assert done.returncode == 0, done.stderr


def test_a_closed_standard_output_is_said_and_no_other_file_is_hit(tmp_path: Path):
    code = (
        "import os, sys, gedikit.storage as s; taken = open(sys.argv[1], 'w'); assert taken.fileno() == 1\n"
        "try:\n    with s.writing(1) as file: file.write(b'x')\n"
        "except s.StorageError as error: print(error, file=sys.stderr)"
    )
    # the shell closes it, and the file opened next gets its number
    quoted = f'exec "{sys.executable}" -c "$0" "$1" >&-'
    command = ["sh", "-c", quoted, code, str(tmp_path / "other")]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.stderr == "could not write standard output: it is closed\n"
    assert (tmp_path / "other").read_text() == ""


def test_storage_is_imported_without_torch():
    done = python("import sys, gedikit.storage; sys.exit('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_streams_are_told_from_files(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("absent")
    for name in ("file", "absent", "link", "absent/deeper", "file/deeper", "."):
        assert not is_stream(tmp_path / name), name
    assert is_stream(Path("/dev/null"))


def test_files_of_another_kind_format_or_maker_are_named(tmp_path: Path):
    from safetensors.torch import save_file

    path = tmp_path / "x.safetensors"
    for header, words in (
        (None, "was not written by gedikit"),
        ({"gedikit": "no json {"}, "was not written by gedikit"),
        ({"gedikit": "[1, 2]"}, "was not written by gedikit"),
        ({"gedikit": '{"kind": "model"}'}, "is damaged: its format is missing"),
        ({"gedikit": '{"kind": "model", "format": "x"}'}, "is damaged: its format is missing"),
        ({"gedikit": '{"kind": "model", "format": 99}'}, "newer than .* upgrade gedikit"),
        ({"gedikit": '{"kind": "model", "format": 0}'}, "older than .* anew"),
    ):
        save_file(TENSORS, path, metadata=header)
        with pytest.raises(StorageError, match=rf"x\.safetensors .*{words}"):
            read_tensors(path, "model")
    write_tensors(path, TENSORS, {}, "checkpoint")
    with pytest.raises(StorageError, match="holds a checkpoint, not a model"):
        read_tensors(path, "model")


def test_every_flipped_bit_of_a_file_of_tensors_is_noticed(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    tensors = {
        "empty": torch.empty(0, 2),
        "half": torch.randn(3).bfloat16(),
        "one": torch.tensor(3.0),
        "truth": torch.tensor([True, False]),
        "weights": torch.randn(2, 3),
    }
    write_tensors(path, tensors, {"iteration": 3, "events": ["é"]}, "checkpoint")
    found, meta = read_tensors(path, "checkpoint")
    assert meta["iteration"] == 3 and all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    whole = path.read_bytes()
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 1 << place % 8
        path.write_bytes(content)
        with pytest.raises(StorageError):
            read_tensors(path, "checkpoint")


def test_a_file_of_before_there_were_digests_is_read(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    about = '{"kind": "model", "format": 2}'
    save_file({"a": torch.ones(2)}, path, metadata={"gedikit": about})
    assert torch.equal(read_tensors(path, "model")[0]["a"], torch.ones(2))
    save_file({"a": torch.ones(2)}, path, metadata={"gedikit": about, "sha257": "0"})
    with pytest.raises(StorageError, match="its digest is missing"):
        read_tensors(path, "model")


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path):
    (tmp_path / ".kept.txt").write_text("kept")

    def half(temporary: Path) -> None:
        temporary.write_text("half")
        shutil.copy(temporary, tmp_path / f"{temporary.name[:-11]}left{temporary.name[-11:]}")

    write_atomically(tmp_path / "a.txt", half)
    assert len(list(tmp_path.iterdir())) == 3
    forget_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".kept.txt", "a.txt"]


def test_what_is_missing_in_a_file_is_named(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    write_tensors(path, TENSORS, {"assignment": {}, "info": None, "sizes": []}, "model")
    tensors, meta = read_tensors(path, "model")
    for broken, words in (
        (lambda: meta["settings"], "settings is missing"),
        (lambda: meta["assignment"]["rule"], "rule is missing"),
        (lambda: tensors["scaler.mean"], r"scaler\.mean is missing"),
        (lambda: meta["info"].get("x"), "does not fit together"),
        (lambda: meta["info"]["x"], "does not fit together"),
        (lambda: meta["sizes"][0], "does not fit together"),
        (lambda: int("x"), "does not fit together"),
        (lambda: torch.nn.Linear(2, 3).load_state_dict(tensors), "weights do not fit"),
    ):
        with pytest.raises(StorageError, match=rf"model\.safetensors is damaged: .*{words}"), damaged(path):
            broken()


def test_errors_that_do_not_come_from_a_file_pass(tmp_path: Path):
    for error in (DataError("said already"), RuntimeError("out of memory"), KeyboardInterrupt("stop")):
        with pytest.raises(type(error), match=str(error)), damaged(tmp_path):
            raise error
    with damaged(tmp_path):
        pass


def test_equal_tensors_are_equal_files(tmp_path):
    for i in range(20):
        write_tensors(tmp_path / f"{i}.safetensors", TENSORS, {"name": 'a "quoted", {odd} näme'}, "model")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    assert read_tensors(tmp_path / "0.safetensors", "model")[1]["name"] == 'a "quoted", {odd} näme'


def test_a_repeated_number_is_written_like_any_other(tmp_path):
    path = tmp_path / "repeated.safetensors"
    write_tensors(path, {"one": torch.tensor(3).expand(1)}, {}, "model")
    tensors, _ = read_tensors(path, "model")
    assert tensors["one"].tolist() == [3]


def test_only_files_are_forgotten(tmp_path: Path):
    (tmp_path / ".x.unfinished").mkdir()
    (tmp_path / ".y.unfinished").write_text("half")
    (tmp_path / ".z.unfinished").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").write_text("kept")
    forget_unfinished(tmp_path)
    assert names(tmp_path) == [".x.unfinished", "kept"]


def test_names_that_are_no_text_are_named(tmp_path: Path):
    """Of files whose names were written in another encoding."""
    name = os.fsdecode(b"caf\xe9.png")
    (tmp_path / "out.csv").write_text("precious")
    for write in (lambda path: write_text(path, f"1,{name}"), _line_of(name)):
        with pytest.raises(StorageError, match=r"out\.csv: '.*caf\\udce9\.png(\\n)?' is no text"):
            write(tmp_path / "out.csv")
    assert names(tmp_path) == ["out.csv"] and (tmp_path / "out.csv").read_text() == "precious"


def _line_of(name: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with writing_text(path) as file:
            file.write(f"1,{name}\n")

    return write
