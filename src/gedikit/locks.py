"""A lock on a directory that ends with the process that holds it, however that ends."""

import contextlib
import errno
import fcntl
import os
import platform
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gedikit.errors import GediWarning, StorageError, UsageError
from gedikit.storage import regular_or_new

_NAME = "lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)  # of some network folders


@dataclass
class DirectoryLock:
    """One process works in a directory; a second one is told which, and nothing waits.

    The system lets go of the lock when its holder ends, be it by SIGKILL: a file that was left behind locks
    nothing.
    """

    folder: Path
    _handle: int | None = None

    @property
    def path(self) -> Path:
        return self.folder / _NAME

    def __enter__(self) -> Self:
        try:
            self._acquire()
        except BaseException as error:
            self._let_go()
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise StorageError(f"could not write {self.path}: {error.strerror}") from error
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            if self.is_held:
                self.path.unlink()
        self._let_go()

    def check(self) -> None:
        """Refuse to go on where the directory is no longer the one that was locked."""
        if not self.is_held:
            raise StorageError(
                f"{self.folder} was removed or replaced while this process worked in it: "
                "nothing more is written there"
            )

    def _acquire(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        while not self.is_held:  # another holder may have removed the file between opening and locking
            self._let_go()
            # what is opened is emptied: no link may lead elsewhere, and no pipe may wait for a reader
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            self._handle = os.open(regular_or_new(self.path), flags, 0o666)
            self._take(self._handle)
        assert self._handle is not None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)

    def _take(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            raise UsageError(
                f"{self.folder} is in use by {holder}: wait for its end, or take another --out"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            warnings.warn(
                GediWarning(f"{self.folder} cannot be locked ({error.strerror}): start no second process in it"),
                stacklevel=4,
            )

    @property
    def is_held(self) -> bool:
        """Whether the file that is locked is the one that others would find."""
        if self._handle is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._handle), self.path.lstat())
        except OSError:  # it is gone, or out of reach
            return False

    def _let_go(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
