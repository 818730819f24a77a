"""What can go wrong, as sentences: each error names the culprit and what to do about it."""

from collections.abc import Iterable


class GediError(Exception):
    """Base of every error this package raises on purpose."""


class UsageError(GediError, ValueError):
    """An argument, setting or name that cannot be meant."""


class DataError(GediError, ValueError):
    """Data that cannot be read or cannot be learned from."""


class StorageError(GediError, OSError):
    """A file of ours that cannot be read or written."""


class DivergenceError(GediError, RuntimeError):
    """Training ran away and could not be brought back."""


class ProcessError(GediError):
    """One of several processes that compute together failed, was killed or hangs."""

    def __init__(self, text: str, missing: Iterable[int] = ()):
        super().__init__(text)
        self.missing = set(missing)  # those that cannot say so themselves


class SpokenFor(GediError):
    """What went wrong is said by the first of several processes; this one has nothing to add."""

    def __init__(self, error: BaseException):
        super().__init__(str(error))
        self.error = error


class Interrupted(GediError):
    """Training was asked to stop; the checkpoint it left is named in the message."""


class Unhealthy(GediError):
    """A run whose diagnosis is not healthy, where that was asked to count as a failure."""


class GediWarning(UserWarning):
    """Something a user should know but that does not stop the work."""
