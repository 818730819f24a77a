"""Entry point: every failure becomes one sentence and an exit code, never a traceback."""

import os
import sys

import typer

from gedikit.cli.app import app
from gedikit.errors import DivergenceError, GediError, Interrupted, UsageError

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code (0 done, 1 failed, 2 wrongly asked, 130 interrupted)."""
    try:
        code = app(args=arguments, prog_name="gedikit", standalone_mode=False)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", EXIT_INTERRUPTED)
    except Interrupted as stop:
        return _say(str(stop), EXIT_INTERRUPTED)
    except UsageError as error:
        return _say(f"error: {error}", EXIT_USAGE)
    except DivergenceError as error:
        return _say(f"diverged: {error}", EXIT_FAILURE)
    except GediError as error:
        return _say(f"error: {error}", EXIT_FAILURE)
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_FAILURE
    except Exception as error:
        wrongly_asked = getattr(error, "format_message", None)  # of the parser: typer has its own click or click's
        if wrongly_asked is not None:
            return _say(f"error: {wrongly_asked().rstrip('.')}; try gedikit --help", EXIT_USAGE)
        if os.environ.get("GEDIKIT_DEBUG"):
            raise
        text = str(error).strip().splitlines()
        return _say(
            f"error: {text[0] if text else type(error).__name__} ({type(error).__name__}; "
            "GEDIKIT_DEBUG=1 shows the traceback)",
            EXIT_FAILURE,
        )
    return int(code or 0)


def _say(text: str, code: int) -> int:
    print(f"gedikit: {text}", file=sys.stderr)
    return code
