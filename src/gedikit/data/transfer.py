"""One file from the network: resumed where it broke off, verified, then moved into place."""

import contextlib
import errno
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from gedikit.errors import DataError, StorageError, UsageError
from gedikit.version import __version__

_CHUNK = 2**18
_TIMEOUT = 30.0  # seconds without a byte
Received = Callable[[int, int | None], None]


def fetch(urls: Sequence[str], target: Path, md5: str, on_progress: Received | None = None) -> None:
    """Try each address in turn until the file has come whole and right; `on_progress` hears of bytes and total."""
    part = target.with_name(f"{target.name}.part")
    failures = []
    with _locked(part) as file:
        for url in urls:
            try:
                _receive(url, file, target, on_progress)
                _check(file, md5, url)
            except _Failed as failure:
                failures.append(str(failure))
                continue
            with _writing(target):
                os.fsync(file.fileno())
                part.replace(target)
            return
        _forget_if_empty(file, part)
    raise DataError(
        f"could not fetch {target.name}: {'; '.join(failures)}; if you have the file, put it at {target}"
    )


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return _digest(file)


class _Failed(Exception):
    """Why an address gave nothing useful, for people."""


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[IO[bytes]]:
    """The unfinished file, open for appending, for this process alone."""
    with _writing(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        file = part.open("a+b")
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # a system without it: the checksum finds out what two writers have mixed up
            pass
        except OSError:
            raise UsageError(f"{part} is being fetched by another process: wait for it, or stop it") from None
        yield file


def _receive(url: str, file: IO[bytes], target: Path, on_progress: Received | None) -> None:
    host = urlsplit(url).netloc
    had = file.seek(0, os.SEEK_END)
    headers = {"User-Agent": f"gedikit/{__version__}", "Accept-Encoding": "identity"}
    if had:
        headers["Range"] = f"bytes={had}-"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT) as response:
            _append(response, file, had, target, on_progress)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # else nothing is left to be sent
            raise _Failed(f"{host} answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _Failed(f"could not reach {host} ({error.reason})") from None
    except StorageError:
        raise
    except (OSError, http.client.HTTPException) as error:
        got = file.seek(0, os.SEEK_END)
        kept = f"; the first {got} bytes are kept, and the same command goes on from there" if got else ""
        raise _Failed(f"the connection to {host} broke off ({error or type(error).__name__}){kept}") from None


def _append(response: Any, file: IO[bytes], had: int, target: Path, on_progress: Received | None) -> None:
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        had = 0
        file.truncate(0)
    elif not response.headers.get("Content-Range", "").startswith(f"bytes {had}-"):
        raise _Failed(f"{urlsplit(response.url).netloc} sent another part than the one asked for")
    length = response.headers.get("Content-Length")
    total = had + int(length) if length and length.isdigit() else None
    _check_space(target, 0 if total is None else total - had)
    done = had
    while chunk := response.read(_CHUNK):
        with _writing(target):
            file.write(chunk)
            file.flush()
        done += len(chunk)
        if on_progress is not None:
            on_progress(done, total)
    if total is not None and done < total:
        raise http.client.HTTPException(f"after {done} of {total} bytes")


def _check_space(target: Path, needed: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if needed > free:
        raise StorageError(
            f"could not write {target}: it needs {needed / 1e6:.1f} MB and the disk has {free / 1e6:.1f} MB left"
        )


def _check(file: IO[bytes], md5: str, url: str) -> None:
    file.seek(0)
    seen = _digest(file)
    if seen != md5:
        file.truncate(0)
        raise _Failed(f"what {url} sent has the md5 {seen} instead of {md5} and was deleted")


def _forget_if_empty(file: IO[bytes], part: Path) -> None:
    if file.seek(0, os.SEEK_END) == 0:
        part.unlink(missing_ok=True)


def _digest(file: Any) -> str:
    return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full; free some space and run the same command again" if full else error.strerror
        raise StorageError(f"could not write {path}: {why}") from error
