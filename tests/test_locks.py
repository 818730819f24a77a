"""A lock on a directory: one holder at a time, named to others, gone with its process."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gedikit.errors import GediWarning, StorageError, UsageError
from gedikit.locks import DirectoryLock, fcntl


def test_one_holder_at_a_time_and_nothing_is_left(tmp_path: Path):
    folder = tmp_path / "made" / "for it"
    with DirectoryLock(folder) as lock:
        lock.check()
        told = f"in use by process {os.getpid()} on {socket.gethostname()}: "
        for _ in range(2):  # who was refused has not let go of what is not theirs
            with pytest.raises(UsageError, match=told), DirectoryLock(folder):
                pass
    assert list(folder.iterdir()) == []
    with DirectoryLock(folder):
        pass


def test_a_file_that_a_killed_process_left_locks_nothing(tmp_path: Path):
    code = (
        "import os, signal; from pathlib import Path; from gedikit.locks import DirectoryLock\n"
        f"lock = DirectoryLock(Path({str(tmp_path)!r})).__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert killed.returncode == -9, killed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    with DirectoryLock(tmp_path) as lock:
        assert lock.path.read_text().startswith(f"process {os.getpid()} ")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_removed_or_replaced_directory_is_noticed_and_left_alone(tmp_path: Path, replaced: bool):
    folder = tmp_path / "run"
    with DirectoryLock(folder) as lock:
        lock.path.unlink()
        folder.rmdir()
        if replaced:
            folder.mkdir()
            (folder / "lock").write_text("of another")
        with pytest.raises(StorageError, match="run was removed or replaced"):
            lock.check()
    if replaced:
        assert (folder / "lock").read_text() == "of another"


def test_what_cannot_be_locked_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not write"), DirectoryLock(tmp_path / "file" / "run"):
        pass

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    told = "cannot be locked .No locks available.: start no second process"
    with pytest.warns(GediWarning, match=told), DirectoryLock(tmp_path) as lock:
        lock.check()


def test_nothing_is_emptied_through_a_link(tmp_path: Path):
    """A run directory may come from somebody else, and what is locked is emptied."""
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (tmp_path / "run").mkdir()
    for make in (lambda path: path.symlink_to(mine), os.mkfifo):
        make(tmp_path / "run" / "lock")
        with pytest.raises(StorageError, match="is a link, a pipe or a device"), DirectoryLock(tmp_path / "run"):
            pass
        assert mine.read_text() == "precious"
        (tmp_path / "run" / "lock").unlink()


def test_a_directory_out_of_reach_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def stale(*_: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with DirectoryLock(tmp_path) as lock:
        monkeypatch.setattr(Path, "lstat", stale)
        with pytest.raises(StorageError, match="was removed or replaced"):
            lock.check()
