"""What a fit would do, and all that can be set: for people, and as JSON."""

import json
import struct
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from forked import failed, gedikit
from gedikit import GEDI
from gedikit.components import settings_of
from gedikit.config import OBJECTIVES, REGISTRIES, SECTIONS, TABLES, Execution
from gedikit.data.toy import moons
from gedikit.methods import methods
from gedikit.objectives import objectives
from gedikit.planning import Plan

SIDE, N = 28, 200
SETTING = {"name", "kind", "default", "meaning", "choices"}


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    """Real digits, enlarged to the size of those of MNIST."""
    images = [Image.fromarray((image * 15).astype(np.uint8)) for image in load_digits().images[:N]]
    return np.stack([np.asarray(image.resize((SIDE, SIDE))) for image in images])


@pytest.fixture(scope="module")
def places(digits, tmp_path_factory) -> Path:
    """The same pictures in every form that a fit reads."""
    root = tmp_path_factory.mktemp("places")
    np.save(root / "digits.npy", digits)
    np.save(root / "channels.npy", digits[..., None])
    np.savez(root / "digits.npz", x=digits, y=load_digits().target[:N])
    (root / "folder").mkdir()
    for i, image in enumerate(digits):
        Image.fromarray(image).save(root / "folder" / f"{i:04d}.png")
    (root / "mnist").mkdir()
    for prefix in ("train", "t10k"):
        for kind, values in (("images-idx3", digits), ("labels-idx1", load_digits().target[:N])):
            head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
            (root / "mnist" / f"{prefix}-{kind}-ubyte").write_bytes(head + values.astype(np.uint8).tobytes())
    return root


def planned(places: Path, *arguments: object) -> dict:
    asked = ("--clusters", 10, "--seed", 4)
    done = gedikit("plan", *arguments, *asked, "--json", cwd=places, env={"GEDIKIT_DATA": str(places)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def expected(digits) -> dict:
    """The plan for the pictures as an array."""
    return json.loads(json.dumps(GEDI(10, random_state=4).plan(digits).tree()))


def test_the_plan_of_an_array_is_about_pictures(expected):
    assert expected["config"]["data"] == {"name": "image", "shape": [SIDE, SIDE, 1]}
    assert expected["config"]["encoder"]["name"] == "resnet8"
    assert expected["config"]["views"]["walks"], "the pictures were looked at"
    assert expected["data"]["n_rows"] == N and 0 < expected["data"]["mirrored"] <= 1


@pytest.mark.parametrize(
    "source",
    [["mnist"], ["digits.npy"], ["channels.npy"], ["digits.npz"], ["folder", "--image-size", SIDE]],
    ids=lambda source: source[0],
)
def test_the_plan_is_the_same_wherever_the_pixels_come_from(places, expected, source):
    assert planned(places, *source) == expected


def test_the_plan_is_what_fit_does(places, tmp_path):
    asked = ("--iters", 2, "--set", "encoder.width=4", "--set", "sampler.chains=20", "--views", "drawings")
    made = planned(places, "digits.npy", *asked)
    out = tmp_path / "run"
    done = gedikit("fit", places / "digits.npy", "--clusters", 10, "--seed", 4, *asked, "--out", out)
    assert done.returncode == 0, done.stderr
    config = tomllib.loads((out / "config.toml").read_text())
    assert {section: config[section] for section in made["config"]} == _as_toml(made["config"])
    assert config["plan"]["profile"] == made["data"]
    assert (config["stages"], config["decisions"]) == (made["stages"], made["decisions"])
    assert (config["plan"]["method"], config["plan"]["seed"], config["plan"]["n_clusters"]) == ("gedi", 4, 10)
    assert Plan.from_tree(made).config.encoder.width == 4


def _as_toml(value):
    """None is the text that the command line takes for it."""
    if isinstance(value, dict):
        return {key: _as_toml(inner) for key, inner in value.items()}
    return "none" if value is None else value


def test_a_plan_is_told_with_its_reasons(tmp_path):
    done = gedikit("plan", "moons", "--iters", 40, "--set", "objectives.prior.weight=7", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "gedi, 2 clusters, seed 0, budget default"
    words = {line.split()[0]: line for line in lines if line.strip()}
    assert words["decision"].split() == ["decision", "choice", "reason"]
    assert "importance" in words["sampler"] and words["training"].split()[1:3] == ["40", "iterations"]
    assert "weight 7" in words["objectives.prior"] and "iterations 40" in words["optimiser"]
    made = GEDI(2, max_iter=40, config={"objectives.prior.weight": 7}, random_state=0).plan(moons(1000, 0)[0])
    for decision in made.decisions:
        assert decision.reason in done.stdout
    assert all(any(word.startswith(section) for word in words) for section in SECTIONS)
    assert list(tmp_path.iterdir()) == [], "nothing is fitted"


def test_a_budget_changes_how_long_and_how_large(places):
    quick, usual, best = (
        planned(places, "digits.npy", *asked) for asked in (["--budget", "quick"], [], ["--budget", "best"])
    )
    assert [plan["budget"] for plan in (quick, usual, best)] == ["quick", "default", "best"]
    costs = [Plan.from_tree(plan).cost() for plan in (quick, usual, best)]
    assert costs[0] <= costs[1] < costs[2]
    assert best["config"]["encoder"]["width"] > quick["config"]["encoder"]["width"]
    iterations = [
        json.loads(gedikit("plan", "moons", "--json", "--budget", budget).stdout)["config"]["optimiser"][
            "iterations"
        ]
        for budget in ("quick", "default", "best")
    ]
    assert iterations == sorted(set(iterations))


def test_what_is_asked_for_goes_before_the_budget(places):
    made = planned(places, "digits.npy", "--budget", "best", "--iters", 3, "--set", "encoder.width=12")
    assert made["config"]["optimiser"]["iterations"] == 3
    assert made["config"]["encoder"]["width"] == 12


def every_component() -> list[tuple[str, str, type]]:
    found = [(section, name, cls) for section, registry in REGISTRIES.items() for name, cls in registry.items()]
    found += [(OBJECTIVES, name, cls) for name, cls in objectives.items()]
    return [*found, *((section, "", cls) for section, cls in TABLES.items()), ("execution", "", Execution)]


def test_settings_are_all_there_as_json():
    done = gedikit("settings", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = {(item["section"], item["name"]): item for item in json.loads(done.stdout)}
    assert set(told) == {(section, name) for section, name, _ in every_component()}
    for section, name, cls in every_component():
        shown = told[section, name]["settings"]
        assert [item["name"] for item in shown] == [item.name for item in settings_of(cls)]
        assert all(set(item) == SETTING and item["meaning"] for item in shown), (section, name)


def test_settings_are_told_with_defaults_and_meanings():
    done = gedikit("settings")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    for section, name, cls in every_component():
        prefix = f"{section}.{name}" if section == OBJECTIVES else section
        for item in settings_of(cls):
            line = next(row for row in rows if row and row[0] == f"{prefix}.{item.name}")
            assert len(line) >= 3, line


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("mala", [("sampler", "mala")]),
        ("sampler.mala", [("sampler", "mala")]),
        ("sampler", [("sampler", name) for name in REGISTRIES["sampler"]]),
        ("objectives.pseudo-labels", [("objectives", "pseudo-labels")]),
        ("execution", [("execution", "")]),
        ("optimiser", [("optimiser", "")]),
    ],
)
def test_settings_of_a_section_or_a_component(asked, found):
    told = json.loads(gedikit("settings", asked, "--json").stdout)
    assert sorted((item["section"], item["name"]) for item in told) == sorted(found)
    text = gedikit("settings", asked).stdout
    for item in (item for one in told for item in one["settings"]):
        assert item["name"] in text and item["meaning"].split()[0] in text


def test_every_setting_that_is_listed_can_be_set():
    """The default of a setting, typed as it is shown, is understood."""
    for section, name, cls in every_component():
        text = {item.name: _typed(item.default) for item in settings_of(cls)}
        assert cls.of(text) == cls(), (section, name)


def _typed(value) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_typed, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def test_a_name_that_is_not_known_is_told_with_one_that_is():
    failed(gedikit("settings", "importence"), 2, "no section or component 'importence'", "'importance'")
    failed(gedikit("settings", "zzz"), 2, "there are: ", "sampler, mala")


def test_a_component_without_settings_says_so():
    assert "no settings" in gedikit("settings", "user").stdout


def test_methods_as_json():
    done = gedikit("methods", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = {method["name"]: method for method in json.loads(done.stdout)}
    assert set(told) == set(methods)
    assert told["gedi"] == {
        "name": "gedi",
        "summary": methods["gedi"].summary,
        "reference": methods["gedi"].reference,
        "family": "cluster-based",
        "density": "cluster-energy",
        "labels": "posterior",
        "stages": [{"until": 1, "terms": ["generative", "invariance", "prior"]}],
    }
    assert [stage["until"] for stage in told["gedi-two-stage"]["stages"]] == [0.5, 1]
