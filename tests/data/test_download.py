"""Fetching from a real HTTP server on this machine, with everything that can go wrong on the way."""

import contextlib
import gzip
import hashlib
import io
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from gedikit.cli.main import run
from gedikit.data import download, official, transfer
from gedikit.data.download import RELEASES, Release, get
from gedikit.data.transfer import fetch
from gedikit.errors import DataError, StorageError, UsageError

CONTENT = bytes(np.random.default_rng(0).integers(0, 256, 700_000, dtype=np.uint8))


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class Server:
    """Files by path, and how to misbehave: breaking off, ignoring ranges, not saying how long an answer is."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.break_after: int | None = None
        self.knows_ranges = True
        self.says_length = True
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self.base = f"http://127.0.0.1:{self.http.server_port}/"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, server: Server, *arguments: object) -> None:
        self.behaviour = server
        super().__init__(*arguments)

    def do_GET(self) -> None:
        server, wanted = self.behaviour, self.headers.get("Range")
        server.requests.append((self.path, wanted))
        content = server.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.knows_ranges else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.says_length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a client may hang up
            self.wfile.write(content[start : server.break_after])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def test_a_file_comes_whole_and_nothing_else_is_left(server, tmp_path):
    server.files["a.bin"] = CONTENT
    heard = []
    target = tmp_path / "deep" / "a.bin"
    fetch([server.base + "a.bin"], target, md5(CONTENT), lambda done, total: heard.append((done, total)))
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["a.bin"]
    assert heard[-1] == (700_000, 700_000)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


def test_a_broken_connection_is_resumed_where_it_broke_off(server, tmp_path):
    server.files["a.bin"] = CONTENT
    server.break_after = 300_000
    target = tmp_path / "a.bin"
    with pytest.raises(DataError) as caught:
        fetch([server.base + "a.bin"], target, md5(CONTENT))
    for words in ("127.0.0.1", "after 300000 of 700000 bytes", "300000 bytes are kept", f"put it at {target}"):
        assert words in str(caught.value)
    assert not target.exists()
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:300_000]
    server.break_after = None
    fetch([server.base + "a.bin"], target, md5(CONTENT))
    assert server.requests[-1] == ("/a.bin", "bytes=300000-")
    assert target.read_bytes() == CONTENT
    assert not (tmp_path / "a.bin.part").exists()


def test_a_server_that_knows_no_ranges_sends_all_of_it_again(server, tmp_path):
    server.files["a.bin"] = CONTENT
    server.knows_ranges = False
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1000])
    fetch([server.base + "a.bin"], tmp_path / "a.bin", md5(CONTENT))
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_part_that_is_complete_already_is_taken(server, tmp_path):
    server.files["a.bin"] = CONTENT
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    fetch([server.base + "a.bin"], tmp_path / "a.bin", md5(CONTENT))
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_wrong_checksum_deletes_what_came(server, tmp_path):
    server.files["a.bin"] = CONTENT[:-1] + b"!"
    with pytest.raises(DataError, match=f"instead of {md5(CONTENT)} and was deleted"):
        fetch([server.base + "a.bin"], tmp_path / "a.bin", md5(CONTENT))
    assert list(tmp_path.iterdir()) == []


def test_mirrors_are_tried_in_turn(server, tmp_path):
    server.files |= {"bad/a.bin": b"something else", "good/a.bin": CONTENT}
    urls = [server.base + f"{place}/a.bin" for place in ("absent", "bad", "good")]
    fetch(urls, tmp_path / "a.bin", md5(CONTENT))
    assert [path for path, _ in server.requests] == ["/absent/a.bin", "/bad/a.bin", "/good/a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    with pytest.raises(DataError, match=r"answered 404 .*; what .*bad/a.bin sent has the md5"):
        fetch(urls[:2], tmp_path / "b.bin", md5(CONTENT))


def test_no_network_is_said_with_the_host_and_where_to_put_the_file(tmp_path):
    closed = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    closed.server_close()
    release = replace(RELEASES["mnist"], bases=(f"http://127.0.0.1:{closed.server_port}/",))
    with pytest.raises(DataError) as caught:
        get("mnist", tmp_path, release=release)
    for words in (
        f"could not reach 127.0.0.1:{closed.server_port}",
        f"put it at {tmp_path / 'mnist' / 'train-images-idx3-ubyte.gz'}",
    ):
        assert words in str(caught.value)
    assert list((tmp_path / "mnist").iterdir()) == []


def test_a_silent_server_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "_TIMEOUT", 0.2)
    silent = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # listens and never answers
    try:
        with pytest.raises(DataError, match="timed out"):
            fetch([f"http://127.0.0.1:{silent.server_port}/a"], tmp_path / "a", md5(b""))
    finally:
        silent.server_close()


def test_two_processes_do_not_write_the_same_file(server, tmp_path):
    import fcntl

    with (tmp_path / "a.bin.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match=r"a\.bin\.part is being fetched by another process"):
            fetch([server.base + "a.bin"], tmp_path / "a.bin", md5(CONTENT))
    assert server.requests == []


@pytest.mark.parametrize("says_length", [True, False])
def test_a_full_disk(server, tmp_path, says_length):
    """A real file system of 64 kilobytes; where mounting one is not allowed this cannot be tried."""
    server.files["a.bin"], server.says_length = CONTENT, says_length
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        words = "needs 0.7 MB and the disk has 0.1 MB left" if says_length else "the disk is full"
        with pytest.raises(StorageError, match=f"could not write .*a.bin: .*{words}"):
            fetch([server.base + "a.bin"], small / "a.bin", md5(CONTENT))
        assert not (small / "a.bin").exists()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_root_that_is_a_file(server, tmp_path):
    (tmp_path / "root").write_text("")
    with pytest.raises(StorageError, match="could not write"):
        fetch([server.base + "a.bin"], tmp_path / "root" / "a.bin", md5(CONTENT))


def archive(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for name, goal in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, goal
            tar.addfile(info)
    return buffer.getvalue()


def cifar100(packed: bytes, base: str) -> Release:
    return replace(RELEASES["cifar100"], bases=(base,), archive_md5=md5(packed))


ROWS = {split: bytes([i, 10 + i]) + bytes([i]) * 3072 for i, split in enumerate(("train", "test"))}
MEMBERS = {
    "cifar-100-binary/train.bin": ROWS["train"],
    "./cifar-100-binary/test.bin": ROWS["test"],
    "cifar-100-binary/fine_label_names.txt": b"apple\n",
    "cifar-100-binary/coarse_label_names.txt": b"fruit\n",
}


def test_an_archive_gives_the_files_named_and_no_others(server, tmp_path):
    root = tmp_path / "root"
    hostile = {"../evil.txt": b"x", "/tmp/gedikit-evil.txt": b"x", "cifar-100-binary/more.txt": b"x"}
    packed = archive(hostile | MEMBERS, links={"cifar-100-binary/link": "/etc/passwd"})
    server.files["cifar-100-binary.tar.gz"] = packed
    sentence = get("cifar100", root, release=cifar100(packed, server.base))
    assert str(root / "cifar-100-binary") in sentence
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    names = ("coarse_label_names.txt", "fine_label_names.txt", "test.bin", "train.bin")
    assert found == [f"root/cifar-100-binary/{name}" for name in names]
    assert not Path("/tmp/gedikit-evil.txt").exists()
    images, labels = official.read_official("cifar100", "test", root)
    assert labels.tolist() == [11]
    assert (images == 1).all()


def test_an_archive_laid_down_by_hand_is_unpacked_without_a_network(tmp_path):
    packed = archive(MEMBERS)
    (tmp_path / "cifar-100-binary.tar.gz").write_bytes(packed)
    get("cifar100", tmp_path, release=cifar100(packed, "http://127.0.0.1:9/"))
    assert official.is_there("cifar100", tmp_path)
    assert not (tmp_path / "cifar-100-binary.tar.gz").exists()


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (archive({name: MEMBERS[name] for name in list(MEMBERS)[1:]}), "does not hold cifar-100-binary/train.bin"),
        (archive({}, links={"cifar-100-binary/train.bin": "/etc/passwd"}), "train.bin in .* is a link"),
        (b"this is no archive", "cannot be unpacked"),
        (archive(MEMBERS)[:120], "cannot be unpacked"),
    ],
)
def test_archives_that_are_wrong(server, tmp_path, packed, words):
    server.files["cifar-100-binary.tar.gz"] = packed
    with pytest.raises(DataError, match=words):
        get("cifar100", tmp_path, release=cifar100(packed, server.base))
    assert not official.is_there("cifar100", tmp_path)
    whole = {name.removeprefix("./"): content for name, content in MEMBERS.items()}
    for path in tmp_path.glob("cifar-100-binary/*"):
        assert path.read_bytes() == whole[f"cifar-100-binary/{path.name}"], "whole or not at all"


def idx(*shape: int) -> bytes:
    header = b"\x00\x00\x08" + bytes([len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    return gzip.compress(header + bytes(int(np.prod(shape))), mtime=0)


@pytest.fixture
def tiny_mnist(server, monkeypatch) -> None:
    """MNIST with three training and two test images, published by the server of the test."""
    files = {}
    for prefix, n in (("train", 3), ("t10k", 2)):
        files |= {f"{prefix}-images-idx3-ubyte.gz": idx(n, 28, 28), f"{prefix}-labels-idx1-ubyte.gz": idx(n)}
    server.files |= files
    checksums = {name: md5(content) for name, content in files.items()}
    release = replace(RELEASES["mnist"], bases=(server.base,), checksums=checksums)
    monkeypatch.setitem(download.RELEASES, "mnist", release)
    counts = replace(official.OFFICIAL["mnist"], counts={"train": 3, "test": 2})
    monkeypatch.setitem(official.OFFICIAL, "mnist", counts)


@pytest.mark.usefixtures("tiny_mnist")
def test_the_command_fetches_then_verifies(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GEDIKIT_DATA", str(tmp_path))
    assert run(["data", "get", "mnist"]) == 0
    assert f"mnist was fetched to {tmp_path / 'mnist'}" in capsys.readouterr().err
    assert len(server.requests) == 4
    assert run(["data", "get", "mnist"]) == 0
    said = capsys.readouterr().err
    assert "there already and whole: 3 train and 2 test images" in said
    assert "checksums agree" in said
    assert len(server.requests) == 4
    assert run(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("mnist ")).split()[1] == "yes"
    assert next(line for line in lines if line.startswith("svhn ")).split()[1:4] == ["no", "246", "MB"]
    assert str(tmp_path) in lines[-1]


@pytest.mark.usefixtures("tiny_mnist")
def test_only_what_is_missing_is_fetched(server, tmp_path):
    get("mnist", tmp_path)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    get("mnist", tmp_path)
    assert [path for path, _ in server.requests[4:]] == ["/t10k-labels-idx1-ubyte.gz"]


@pytest.mark.usefixtures("tiny_mnist")
def test_what_is_there_is_read_and_never_overwritten(tmp_path):
    get("mnist", tmp_path)
    path = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=1))
    assert "not byte for byte the published ones" in get("mnist", tmp_path)
    images = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    images.write_bytes(idx(1, 28, 28))
    path.write_bytes(idx(1))
    with pytest.raises(DataError, match=r"train split has 1 images instead of 3: move .*mnist away"):
        get("mnist", tmp_path)
    images.write_bytes(b"broken")
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is damaged"):
        get("mnist", tmp_path)
    assert images.read_bytes() == b"broken"


@pytest.mark.usefixtures("tiny_mnist")
def test_unknown_names_are_refused_before_anything_is_fetched(server, capsys):
    assert run(["data", "get", "mnist", "minst"]) == 2
    assert "'minst'" in capsys.readouterr().err
    assert server.requests == []
    with pytest.raises(UsageError, match="there are mnist, fashion-mnist"):
        get("minst")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_the_real_files_have_the_published_checksums(name):
    if not official.is_there(name, official.data_root()):
        pytest.skip(f"{name} is not on this machine")
    for file, published in RELEASES[name].checksums.items():
        assert transfer.md5_of(official.data_root() / RELEASES[name].folder / file) == published
