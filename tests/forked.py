"""Commands in processes of their own that start from one which has imported everything.

Importing takes seconds, most commands do not: a server imports once, and each command is a fork of it, with its own
arguments, environment, working directory, output and exit code.
"""

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_ENV = {"COLUMNS": "200", "OMP_NUM_THREADS": "1"}
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["pytest", "gedikit.cli.fitting", "torch._dynamo"])


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def start(
    arguments: tuple[object, ...], output: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> BaseProcess:
    """A command on its way; what it writes goes to stdout and stderr in the folder `output`."""
    words = [str(argument) for argument in arguments]
    process = _server.Process(
        target=_command, args=(words, str(output), str(cwd or output), {**_ENV, **(env or {})})
    )
    process.start()
    return process


def gedikit(*arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
    with TemporaryDirectory() as output:
        process = start(arguments, Path(output), cwd, env)
        process.join()
        stdout, stderr = ((Path(output) / name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
        return Done(process.exitcode, stdout, stderr)


def _command(words: list[str], output: str, cwd: str, env: dict[str, str]) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{output}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(cwd)
    os.environ.update(env)
    sys.argv = ["gedikit", *words]
    from gedikit.cli import main

    main()


def failed(done: Done, code: int, *words: str) -> None:
    """One sentence, the right exit code, never a traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and "GEDIKIT_DEBUG" not in done.stderr
    said = done.stderr.splitlines()[-1]
    assert said.startswith("gedikit: error: ")
    for word in words:
        assert word in said, said


class Group:
    """Processes as torchrun would start them, without it: it takes half a minute to end one that is stopped."""

    def __init__(self, folder: Path):
        self.folder, self.processes = folder, []

    def begin(
        self, *commands: tuple[object, ...], cwd: dict[int, Path] | None = None, **env: dict[int, str]
    ) -> list[BaseProcess]:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        where = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(len(commands))}
        self.processes = []
        for rank, words in enumerate(commands):
            output = self.folder / f"output-{rank}"
            output.mkdir(exist_ok=True)
            own = {name: by_rank[rank] for name, by_rank in env.items() if rank in by_rank}
            place = (cwd or {}).get(rank)
            self.processes.append(start(words, output, place, env={**where, "RANK": str(rank), **own}))
        return self.processes

    def run(self, *commands: tuple[object, ...], **options: Any) -> list[Done]:
        self.begin(*commands, **options)
        return self.done()

    def kill(self) -> None:
        """End those that are left."""
        for process in self.processes:
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)

    def done(self) -> list[Done]:
        for process in self.processes:
            process.join(600)
        said = [(self.folder / f"output-{i}" / "stderr").read_text() for i in range(len(self.processes))]
        return [Done(p.exitcode, "", text) for p, text in zip(self.processes, said, strict=True)]


def silent(ranks: list[Done]) -> None:
    """All but the first have nothing to say."""
    assert [done.stderr for done in ranks[1:]] == [""] * (len(ranks) - 1)
