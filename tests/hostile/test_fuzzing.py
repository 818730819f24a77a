"""Files of every kind, damaged at random: read, or refused by an error of the package; in little memory and time.

GEDIKIT_FUZZ_CASES cases of each reader (`make fuzz` takes many), the same ones unless GEDIKIT_FUZZ_SEED has another
number. With GEDIKIT_FUZZ_REPORT, what they took is added to that file.
"""

import json
import os
import tempfile
import warnings
from pathlib import Path

import pytest
from hostile_damage import choices, damaged
from hostile_limits import TooLong, limited
from hostile_readers import OWN, READERS
from hypothesis import HealthCheck, Phase, given, seed, settings

from gedikit.data import pictures

CASES = int(os.environ.get("GEDIKIT_FUZZ_CASES", "12"))
SEED = int(os.environ.get("GEDIKIT_FUZZ_SEED", "0"))
DOCS = Path(__file__).parents[2] / "docs"
REPORT = os.environ.get("GEDIKIT_FUZZ_REPORT")


def test_the_figures_of_the_documents_are_those_of_the_code():
    texts = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("trust.md", "data.md", "large-data.md")}
    assert f"of each of {len(READERS)} readers" in texts["trust.md"]
    assert all(f"{pictures._LARGEST / 1e6:.0f} million pixels" in text for text in texts.values())


@pytest.mark.parametrize("name", READERS)
def test_whole_files_are_read(tmp_path, name):
    reader = READERS[name]
    for number, content in enumerate(reader.whole()):
        path = tmp_path / f"whole{number}{reader.ending}"
        path.write_bytes(content)
        reader.read(path)


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(name):
    reader = READERS[name]
    taken = {"reader": name, "cases": 0, "refused": 0, "unexpected": 0, "megabytes": 0.0, "seconds": 0.0}
    failures = []

    @seed(SEED)
    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),  # all failures are counted, none is made smaller
    )
    @given(choices)
    def attempt(choice):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"damaged{reader.ending}"
            content = damaged(reader, choice)
            path.write_bytes(content)
            with warnings.catch_warnings(), limited() as used:
                warnings.simplefilter("ignore")
                try:
                    reader.read(path)
                except OWN:
                    taken["refused"] += 1
                except (Exception, TooLong) as error:
                    taken["unexpected"] += 1
                    failures.append((error, content))
        taken["cases"] += 1
        taken["megabytes"] = max(taken["megabytes"], round(used.megabytes, 1))
        taken["seconds"] = max(taken["seconds"], round(used.seconds, 2))

    attempt()
    if REPORT:
        with Path(REPORT).open("a", encoding="utf-8") as file:
            file.write(json.dumps(taken) + "\n")
        for number, (_, content) in enumerate(failures[:5]):
            Path(f"{REPORT}.{name}-{number}{reader.ending}").write_bytes(content)
    if failures:
        raise AssertionError(f"{len(failures)} of {taken['cases']} files") from failures[0][0]
    assert taken["refused"] > 0 or CASES < 100  # else nothing was damaged
