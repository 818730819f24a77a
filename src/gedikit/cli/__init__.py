"""The command line: thin, and quick to start because torch is imported only when needed."""

from gedikit.cli.main import main

__all__ = ["main"]
