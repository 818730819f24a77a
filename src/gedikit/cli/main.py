"""Entry point: every failure becomes one sentence and an exit code, never a traceback."""

import json
import os
import sys
import time
import warnings
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import typer

from gedikit.cli.app import app
from gedikit.cli.printing import printable
from gedikit.errors import DivergenceError, GediError, GediWarning, Interrupted, SpokenFor, Unhealthy, UsageError

EXIT_FAILURE, EXIT_USAGE, EXIT_UNHEALTHY, EXIT_INTERRUPTED = 1, 2, 3, 130
_BY_SEVERAL = ("gedikit", "gedikit fit", "gedikit predict")
_ALIKE = 0.7  # the share that two options have in common


def main() -> None:
    """Run the command that the process was started with."""
    warnings.showwarning = _show_warning
    sys.exit(_flushed(run(sys.argv[1:])))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code (0 done, 1 failed, 2 wrongly asked, 3 unhealthy, 130 interrupted)."""
    try:
        _refuse_several(arguments)
        code = app(args=arguments, prog_name="gedikit", standalone_mode=False)
    except (typer.Exit, SystemExit) as stop:  # the parser leaves by SystemExit where a reader went away
        code = stop.exit_code if isinstance(stop, typer.Exit) else stop.code
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAILURE
    except GediError as error:
        return _told(error)
    except Exception as error:
        if hasattr(error, "format_message"):  # of the parser: typer has its own click or click's
            return _wrongly_asked(error, arguments)
        if os.environ.get("GEDIKIT_DEBUG"):
            raise
        text = str(error).strip().splitlines()
        return _say(
            f"error: {text[0] if text else type(error).__name__} ({type(error).__name__}; "
            "GEDIKIT_DEBUG=1 shows the traceback)",
            EXIT_FAILURE,
        )
    if code == EXIT_INTERRUPTED:  # the parser makes this of a KeyboardInterrupt, without a word
        return _say("interrupted", EXIT_INTERRUPTED)
    return code if isinstance(code, int) else 0


def _refuse_several(arguments: list[str]) -> None:
    """End all processes of torchrun where the command is for one."""
    if "WORLD_SIZE" in os.environ and (command := _command_of(arguments)) not in _BY_SEVERAL:
        from gedikit.processes import refuse_several

        refuse_several(command)


def _told(error: GediError) -> int:
    """Say what went wrong and choose the exit code."""
    if isinstance(error, SpokenFor):
        if os.environ.get("GEDIKIT_DEBUG") and not isinstance(error.error, GediError):
            raise error.error
        _leave_for_torchrun(str(error))
        return _code(error.error)
    before = "" if isinstance(error, Interrupted | Unhealthy) else "error: "
    return _say(f"{'diverged: ' if isinstance(error, DivergenceError) else before}{error}", _code(error))


def _code(error: BaseException) -> int:
    kinds = {
        Interrupted: EXIT_INTERRUPTED,
        KeyboardInterrupt: EXIT_INTERRUPTED,
        Unhealthy: EXIT_UNHEALTHY,
        UsageError: EXIT_USAGE,
    }
    return next((code for kind, code in kinds.items() if isinstance(error, kind)), EXIT_FAILURE)


def _wrongly_asked(error: Any, arguments: list[str]) -> int:
    """Say what the parser did not understand, what may have been meant, and where to read about it."""
    if type(error).__name__ == "NoArgsIsHelpError":  # no class of this name in older parsers
        return _flushed(0, error.format_message() + "\n")
    ctx = getattr(error, "ctx", None)
    text = " ".join(error.format_message().split())
    if getattr(error, "possibilities", None):
        near = _near(error.option_name, error.possibilities)
        text = error.message.rstrip(".") + (f"; did you mean {' or '.join(near)}?" if near else "")
    text = text.replace(". Did you mean ", "; did you mean ")
    end = "" if text.endswith((".", "?", "!")) else "."
    command = ctx.command_path if ctx else _command_of(arguments)
    return _say(f"error: {text}{end} Try {command} -h", EXIT_USAGE)


def _command_of(arguments: list[str]) -> str:
    """The command that was asked for, where the parser forgot it: an option without its value."""
    words = ["gedikit"]
    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
    for word in arguments:
        if word in commands:
            words.append(word)
            commands = getattr(commands[word], "commands", {})
    return " ".join(words)


def _near(asked: str, options: list[str]) -> list[str]:
    """Those of the parser's guesses that are likely, best first."""
    alike = {name: SequenceMatcher(None, asked, name).ratio() for name in options}
    likely = [name for name in options if alike[name] >= _ALIKE or name.startswith(asked)]
    return sorted(likely, key=lambda name: -alike[name])


def _flushed(code: int, text: str = "") -> int:
    """Write what is left for standard output while what goes wrong can still be told; returns the exit code."""
    try:
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError as error:
        # what is left has nowhere to go: Python would try again at the very end and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if code == 0 and not isinstance(error, BrokenPipeError):
            return _say(f"error: could not write standard output: {error.strerror}", EXIT_FAILURE)
        return code or EXIT_FAILURE
    return code


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Ours as sentences; those of libraries with the place they are from."""
    if issubclass(category, GediWarning):
        _say(f"warning: {message}", 0)
    elif sys.stderr is not None:
        (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))


def _say(text: str, code: int) -> int:
    if sys.stderr is not None:
        print(f"gedikit: {printable(text)}", file=sys.stderr)
    if code:
        _leave_for_torchrun(text)
    return code


def _leave_for_torchrun(text: str) -> None:
    """torchrun repeats in its summary, on the machine of the process, what this file says."""
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        about = {"message": printable(text), "extraInfo": {"timestamp": str(int(time.time()))}}
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": about}))
