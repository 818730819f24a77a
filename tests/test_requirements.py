"""What CI installs is pinned by digests, and says the same as the other lists of requirements."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(file: str) -> dict[str, str]:
    lines = (line for line in (ROOT / file).read_text().splitlines() if re.match(r"[A-Za-z].*==", line))
    return {plain(name): version.split()[0] for name, version in (line.split("==") for line in lines)}


def asked_for(extra: str) -> set[str]:
    """Names of what an extra of the package needs, with the extras that it names in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    for requirement in project["optional-dependencies"][extra]:
        if inner := re.fullmatch(r"gedikit\[(.*)\]", requirement):
            found |= set().union(*map(asked_for, inner[1].split(",")))
        else:
            found.add(plain(NAME.match(requirement)[0]))
    return found | {plain(NAME.match(requirement)[0]) for requirement in project["dependencies"]}


def test_everything_that_ci_installs_has_a_digest():
    text = (ROOT / "requirements-ci.txt").read_text()
    entries = re.split(r"\n(?=[A-Za-z])", text.partition("\n")[2])[1:]
    assert len(entries) == len(pinned("requirements-ci.txt")) > 50
    for entry in entries:
        head, *digests = entry.rstrip().split(" \\\n")
        assert re.fullmatch(r"\S+==\S+", head), head
        assert digests and all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", digest) for digest in digests), head


def test_the_lists_agree():
    """torch alone has no digest: its builds for machines with and without a GPU are different files."""
    ci, constraints = pinned("requirements-ci.txt"), pinned("constraints.txt")
    assert "torch" not in ci and "torch" in constraints
    assert asked_for("dev") - {"torch"} <= ci.keys()
    assert {name: version for name, version in constraints.items() if name in ci} == {
        name: ci[name] for name in constraints if name in ci
    }
    assert asked_for("dev") & {*constraints} - {"torch"} <= ci.keys()


def test_the_makefile_asks_for_them():
    steps = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("\t$(PIP) ")]
    assert len(steps) == 4
    assert "--require-hashes" in steps[0] and "requirements-ci.txt" in steps[0]
    assert steps[1].endswith("torch")  # which finds what it needs installed
    assert all("--no-deps" in step for step in (steps[0], *steps[2:]))
