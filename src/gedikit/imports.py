"""Python code that runs need: a command runs it again for the user who gave it to --import, and for nobody else.

A run directory may come from anybody and name any file. What a user vouched for is kept with the user, not with the
run, as direnv and editors do it: a line with name, place and digest for all that was given to --import.
"""

import hashlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path

from gedikit.components import import_plugin
from gedikit.errors import UsageError

_done: set[str] = set()  # names of modules that this process has imported


def import_as_asked(given: Sequence[str] | None) -> None:
    """Import files or modules that a user names, and remember that it was this user's wish."""
    for what in given or ():
        import_plugin(what)
        _done.add(_module(what))
        _remember(_line(whole_path(what)))


def import_again(what: str, run: Path) -> None:
    """Import what a run names, unless that is done; code that this user did not vouch for is not run."""
    if _module(what) in _done:
        return
    line = _line(what)
    if line is None:
        raise UsageError(
            f"{run} needs the components of {what}, and there is no such file or module: "
            "say by --import FILE where it is now"
        )
    if line not in _remembered():
        raise UsageError(
            f"{run} needs the components of {what}, which was not given to --import here, or has changed since: "
            f"nothing of it was run; look at it, and if you trust it add --import {what}"
        )
    import_plugin(what)
    _done.add(_module(what))


def whole_path(what: str) -> str:
    """A file by its whole path, a module by its name."""
    return str(Path(what).resolve()) if _is_file(what) else what


def remembered_at() -> Path:
    """The file of lines, in the place that the XDG Base Directory Specification has for such."""
    given = os.environ.get("XDG_STATE_HOME", "")
    state = Path(given) if given.startswith("/") else Path.home() / ".local" / "state"
    return state / "gedikit" / "imports.jsonl"


def _is_file(what: str) -> bool:
    return what.endswith(".py")


def _module(what: str) -> str:
    return Path(what).stem if _is_file(what) else what


def _line(what: str) -> str | None:
    """What is remembered of code; None if there is none of this name."""
    try:
        place = what if _is_file(what) else _found(what)
        digest = hashlib.sha256(Path(place).read_bytes()).hexdigest()
    except (OSError, ValueError, ImportError):
        return None
    return json.dumps({"import": what, "file": place, "sha256": digest})


def _found(module: str) -> str:
    """Where Python finds the package of a module; nothing is run to find out."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        raise ImportError(f"there is no module {module}")
    return spec.origin


def _remembered() -> set[str]:
    """Lines that this user wrote; a file that others can write to tells nothing."""
    try:
        path = remembered_at()
        about = path.stat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o022:
            return set()
        return {*path.read_text(encoding="utf-8").splitlines()}
    except (OSError, ValueError, RuntimeError):  # there is none, it is damaged, or there is no home
        return set()


def _remember(line: str | None) -> None:
    """Where nothing can be remembered, commands on the run ask for --import again."""
    if line is None or line in _remembered():
        return
    try:
        path = remembered_at()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.write(handle, f"{line}\n".encode())  # in one piece, whoever else writes
        finally:
            os.close(handle)
    except (OSError, RuntimeError):
        return
