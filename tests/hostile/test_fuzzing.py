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
from hostile_limits import limited
from hostile_readers import OWN, READERS
from hypothesis import HealthCheck, given, seed, settings

CASES = int(os.environ.get("GEDIKIT_FUZZ_CASES", "12"))
SEED = int(os.environ.get("GEDIKIT_FUZZ_SEED", "0"))
REPORT = os.environ.get("GEDIKIT_FUZZ_REPORT")


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
    taken = {"reader": name, "cases": 0, "refused": 0, "megabytes": 0.0, "seconds": 0.0}

    @seed(SEED)
    @settings(
        max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    @given(choices)
    def attempt(choice):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"damaged{reader.ending}"
            path.write_bytes(damaged(reader, choice))
            with warnings.catch_warnings(), limited() as used:
                warnings.simplefilter("ignore")
                try:
                    reader.read(path)
                except OWN:
                    taken["refused"] += 1
        taken["cases"] += 1
        taken["megabytes"] = max(taken["megabytes"], round(used.megabytes, 1))
        taken["seconds"] = max(taken["seconds"], round(used.seconds, 2))

    attempt()
    assert taken["refused"] > 0 or CASES < 100  # else nothing was damaged
    if REPORT:
        with Path(REPORT).open("a", encoding="utf-8") as file:
            file.write(json.dumps(taken) + "\n")
