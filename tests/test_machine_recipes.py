"""The recipes of docs/scaling.md: shells read them, torchrun knows their options, gedikit theirs."""

import ast
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch.distributed as dist

from gedikit.cli.app import app

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "scaling.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def shell() -> list[str]:
    """Scripts, and those inside of YAML: an indented text after `|`."""
    inside = [re.search(r"^( *)(?:- |run: )\|\n((?:\1 +.*\n)+)", text, re.MULTILINE) for text in blocks("yaml")]
    return blocks("sh") + [textwrap.dedent(found[2]) for found in inside]


def test_shells_read_the_recipes():
    assert len(shell()) == 4
    for script in shell():
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), script


@pytest.mark.skipif(not dist.is_available(), reason="torch was built without processes")
def test_torchrun_and_gedikit_know_the_options():
    import typer
    from torch.distributed.run import get_args_parser

    said = [line for script in shell() for line in script.replace("\\\n", " ").splitlines() if "torchrun" in line]
    commands = [line[line.index("torchrun ") :].rstrip(" &") for line in said]
    assert len(commands) == 5
    for command in commands:
        asked = get_args_parser().parse_args(shlex.split(command)[1:])
        assert (asked.module, asked.training_script, asked.training_script_args[0]) == (True, "gedikit", "fit")
        fit = typer.main.get_command(app).commands["fit"]
        fit.make_context("fit", [word for word in asked.training_script_args[1:] if word != "${fit[@]}"])


def test_scripts_for_python_are_python():
    assert len(blocks("python")) == 2
    for script in blocks("python"):
        ast.parse(script)


def scaling(*options: str) -> str:
    command = [sys.executable, ROOT / "benchmarks" / "scaling.py", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_tables_are_those_of_the_command():
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/scaling.py"], capture_output=True, text=True, check=True
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 16 and set(rows) <= set(PAGE.splitlines())


def test_the_model_predicts_what_was_measured():
    """Seconds of one and two processes on a CPU, from the table above the model's, give those of four."""
    seconds = {int(n): float(s) for n, s in re.findall(r"^\| (\d) \| (\d\.\d+) \(", PAGE, re.MULTILINE)}
    times = [f"{64 // n}:{1000 * seconds[n]}" for n in (1, 2)]
    said = scaling("--times", *times, "--processes", "4", "--batch", "64", "--delay", "0")
    predicted = float(re.search(r"^\| 4 \| (\S+)", said, re.MULTILINE)[1])
    assert predicted == pytest.approx(1000 * seconds[4], rel=0.05)
