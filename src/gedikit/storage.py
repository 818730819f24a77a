"""Tensors and JSON on disk: written whole or not at all, read without unpickling anything."""

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import safetensors

from gedikit.errors import GediError, StorageError

if TYPE_CHECKING:  # torch takes a second to import, and writing text does not need it
    from torch import Tensor

FORMAT = 2  # what is written
OLDEST_FORMAT = 1  # what can still be read
_UNFINISHED = ".unfinished"  # how names of files end that are not whole yet
_ABOUT, _DIGEST = "gedikit", "sha256"  # what the header of a file of tensors has
_DOTS = 100  # in a key of TOML; none of ours has more than four
_BREAKS = re.compile(r"[,;()\[\]{}]")


@contextlib.contextmanager
def writing(path: Path | int) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` once it is whole; pipes and devices are written to as it goes.

    A link stays, and the file it leads to is replaced. A number is that of an open file, as for `open`.
    A reader that goes away is a BrokenPipeError, all else that goes wrong a StorageError.
    """
    with _named(path):
        target = None if isinstance(path, int) else _target(path)
        if target is None:
            with _stream(path) as file:
                yield file
        else:
            with _replacement(target) as temporary, temporary.open("wb") as file:
                yield file


@contextlib.contextmanager
def writing_text(path: Path | int) -> Iterator[TextIO]:
    """Open a text file as `writing` does, in UTF-8 and with line ends as they are written."""
    with writing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.flush()


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file, then move it into place; into pipes and devices it is copied."""
    with _named(path):
        target = _target(path)
        if target is not None:
            with _replacement(target) as temporary:
                write(temporary)
            return
        with tempfile.TemporaryDirectory(prefix="gedikit-") as folder:
            temporary = Path(folder) / path.name
            write(temporary)
            with temporary.open("rb") as source, _stream(path) as file:
                shutil.copyfileobj(source, file)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file of bytes, whole or not at all."""
    with writing(path) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a file of text in UTF-8, whole or not at all."""
    with writing_text(path) as file:
        file.write(text)


def forget_unfinished(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left; nobody may be writing there."""
    for left in folder.glob(f".*{_UNFINISHED}"):
        if not left.is_dir():
            left.unlink(missing_ok=True)


def is_stream(path: Path) -> bool:
    """Tell whether `path` is a pipe, a device or an open file: what is written to, and cannot be replaced."""
    try:
        return _target(path) is None
    except OSError:
        return False


def write_tensors(path: Path, tensors: Mapping[str, "Tensor"], meta: Mapping[str, Any], kind: str) -> None:
    """Write one safetensors file with `meta` as JSON in its header, and a digest of all that it holds."""
    from safetensors.torch import save_file

    about = json.dumps({"kind": kind, "format": FORMAT, **meta})
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {_ABOUT: about, _DIGEST: _digest(whole, about)}

    def write(temporary: Path) -> None:
        save_file(whole, temporary, metadata=header)
        _put_in_order(temporary)

    write_atomically(path, write)


def _put_in_order(path: Path) -> None:
    """Let the digest come last: safetensors writes a header in random order, and equal files are to be equal."""
    first = f'{{"__metadata__":{{"{_DIGEST}":"'
    with path.open("r+b") as file:
        text = file.read(int.from_bytes(file.read(8), "little")).decode()
        if not text.startswith(first):
            return
        begin = len('{"__metadata__":')
        _, end = json.JSONDecoder().raw_decode(text, begin)
        digest, _, about = text[begin + 1 : end - 1].partition(",")
        file.seek(8)
        file.write(f"{text[: begin + 1]}{about},{digest}{text[end - 1 :]}".encode())


def _digest(tensors: Mapping[str, "Tensor"], about: str) -> str:
    """Of everything that a reader gets to see, so that one changed bit is noticed wherever it matters."""
    import torch

    digest = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        flat = tensor.reshape(-1)
        if flat.stride(0) != 1:  # one number repeated, which has no bytes of its own
            flat = flat.clone(memory_format=torch.contiguous_format)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_tensors(path: Path, kind: str) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """Read what `write_tensors` wrote, or say in a sentence why not.

    What the two hold is for the caller to know: it looks names up within `damaged`.
    """
    if not path.is_file():
        raise StorageError(f"there is no {kind} at {path}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged or not a {kind}: {error}") from error
    try:
        meta = json.loads(header[_ABOUT])
    except (KeyError, ValueError, RecursionError):  # a number may have too many digits, a list too many levels
        meta = None
    if _DIGEST in header and header[_DIGEST] != _digest(tensors, header.get(_ABOUT, "")):
        raise StorageError(f"{path} is damaged: what it holds does not have the digest it was written with")
    if header.keys() > {_ABOUT} and _DIGEST not in header:  # 0.2 wrote no digest, and nothing beside
        raise StorageError(f"{path} is damaged: its digest is missing")
    if not isinstance(meta, dict):
        raise StorageError(f"{path} was not written by gedikit")
    check_format(path, meta.get("format"))
    if meta.get("kind") != kind:
        raise StorageError(f"{path} holds a {meta.get('kind')}, not a {kind}")
    return tensors, meta


def check_format(path: Path, found: object) -> None:
    """Refuse a file whose format this version cannot read; it says whether gedikit is too old for it or too new."""
    if not isinstance(found, int):
        raise StorageError(f"{path} is damaged: its format is missing")
    if found > FORMAT:
        raise StorageError(
            f"{path} has format {found}, newer than the {FORMAT} this version reads: upgrade gedikit"
        )
    if found < OLDEST_FORMAT:
        raise StorageError(
            f"{path} has format {found}, older than the {OLDEST_FORMAT} this version reads: make it anew, "
            "or use the gedikit that wrote it"
        )


@contextlib.contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Say that the file at `path` is damaged where putting together what was read from it fails."""
    try:
        yield
    except GediError:
        raise
    except KeyError as error:
        raise StorageError(f"{path} is damaged: {error.args[0]} is missing") from error
    except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError, AssertionError) as error:
        raise StorageError(f"{path} is damaged: what it holds does not fit together ({error})") from error
    except (MemoryError, RecursionError) as error:
        raise StorageError(f"{path} is damaged: it describes something too large to be made") from error
    except RuntimeError as error:
        # torch has no class of its own for weights that do not fit, nor for too little memory; those of a device
        # are subclasses, and no fault of the file
        if type(error) is not RuntimeError or "CUDA" in str(error) or "out of memory" in str(error):
            raise
        raise StorageError(f"{path} is damaged: its weights do not fit the network it describes") from error


def parsed_toml(text: str) -> dict[str, Any]:
    """A TOML document; all that can be wrong with it is a ValueError.

    The parser takes time that grows with the square of the parts of a dotted key, and its stack with the nesting.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > _DOTS and _dots_of_a_key(line) > _DOTS:
            raise ValueError(f"line {number} has a key of more than {_DOTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def regular_or_new(path: Path) -> Path:
    """The path, unless a link, a pipe or a device has its place: what a run writes stays in its directory."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise StorageError(f"{path} is a link, a pipe or a device, not a file of a run: remove it first")
    return path


def _dots_of_a_key(line: str) -> int:
    """Dots between names without blanks, brackets or commas, as neither lists of numbers nor text has many."""
    return max((run.count(".") for run in _BREAKS.split(line)), default=0)


def _target(path: Path) -> Path | None:
    """The file at the end of all links, which need not exist; None for what is written to and not replaced."""
    if _open_number(path) is not None:
        return None
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return Path(os.path.realpath(path)) if stat.S_ISREG(mode) else None


def _open_number(path: Path) -> int | None:
    """The number of the open file that /dev/stdout, /dev/fd/63 and links to them stand for.

    Opening such a path once more would cut short a file that the shell opened to append to.
    """
    folders = ("/dev/fd", os.path.realpath("/proc/self/fd"))
    for _ in range(40):  # as many links as the system follows
        if path.name.isdecimal() and os.path.realpath(path.parent) in folders:
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


@contextlib.contextmanager
def _stream(path: Path | int) -> Iterator[BinaryIO]:
    """Open a pipe, a device or an open file to write to; an open file is left open.

    What fails half way leaves at once: the rest is dropped, and not held out to a reader that may not take it.
    """
    number = _open_number(path) if isinstance(path, Path) else path
    place = path if number is None else number
    if isinstance(place, Path):
        handle = os.open(place, os.O_WRONLY)  # never made, never cut
    else:
        if place == 1 and sys.__stdout__ is None:  # it was closed, and another file may have its number now
            raise OSError(errno.EBADF, "it is closed")
        for text in (sys.stdout, sys.stderr):
            if text is not None:
                text.flush()
        handle = os.dup(place)
    with io.FileIO(handle, "wb") as raw:
        file = io.BufferedWriter(raw)
        yield file
        file.flush()


@contextlib.contextmanager
def _replacement(target: Path) -> Iterator[Path]:
    """Make a temporary file beside `target`; once filled it is flushed to disk and moved into place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=_UNFINISHED)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(_mode(target))
        temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _named(path: Path | int) -> Iterator[None]:
    """Name `path` in what goes wrong while it is written."""
    try:
        yield
    except (GediError, BrokenPipeError):
        raise
    except UnicodeEncodeError as error:  # names of files are bytes, and need not be text
        culprit = ascii(error.object[max(error.start - 40, 0) : error.end + 40])
        raise StorageError(f"could not write {path}: {culprit} is no text; is it the name of a file?") from error
    except (OSError, safetensors.SafetensorError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        full = full or "No space left" in str(error)
        why = "the disk is full" if full else (getattr(error, "strerror", None) or str(error))
        if isinstance(path, int):
            name, kept = "standard output" if path == 1 else f"open file {path}", ""
        else:
            name, kept = str(path), "" if is_stream(path) else "; what was there before is untouched"
        raise StorageError(f"could not write {name}: {why}{kept}") from error


def _mode(target: Path) -> int:
    """Who may read and write a file: as of the one it replaces, which may be private, or as of any new one."""
    try:
        return stat.S_IMODE(target.stat().st_mode) & 0o777
    except FileNotFoundError:
        mask = os.umask(0o077)  # it can only be asked for by setting it; other threads may write files meanwhile
        os.umask(mask)
        return 0o666 & ~mask
