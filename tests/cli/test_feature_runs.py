"""Runs on features of pictures, and folders of their groups; the network is the test's own and takes no time."""

import html
import json
import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from forked import failed, gedikit

NETWORK = '''
"""Mean colours of the four quarters of a picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import nn
from torch.nn import functional

from gedikit.features import FeatureNetwork, register_features


class Quarters(nn.Module):
    def forward(self, pixels):
        return functional.adaptive_avg_pool2d(pixels, 2).flatten(1)


@register_features("quarters")
@dataclass(frozen=True)
class QuartersNetwork(FeatureNetwork):
    """Twelve numbers a picture."""

    size: int = 32
    n_features: ClassVar[int] = 12
    summary: ClassVar[str] = "colours of quarters"

    def build(self):
        with (Path(__file__).parent / "built.txt").open("a") as file:
            file.write("once\\n")
        return Quarters()
'''
COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}
SIZES = {"red": 24, "green": 12, "blue": 6}
ODD = "odd & <script> #1%.png"


def paint(colour: tuple[int, int, int], rng: np.random.Generator) -> Image.Image:
    pixels = np.clip(rng.normal(colour, 20, (6, 8, 3)), 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).resize((80, 60), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder of pictures in three sub-folders, one of them twice, and a file with a network."""
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (home / "photos" / name).mkdir(parents=True)
        for i in range(SIZES[name]):
            paint(colour, rng).save(home / "photos" / name / f"{i:02d}.png")
    (home / "photos" / "red" / "00.png").rename(home / "photos" / "red" / ODD)
    Image.open(home / "photos" / "blue" / "03.png").save(home / "photos" / "blue" / "04.png")
    (home / "photos" / "film.mov").write_bytes(b"anything")
    (home / "network.py").write_text(NETWORK)
    return home


def built(home: Path) -> int:
    return len((home / "built.txt").read_text().splitlines()) if (home / "built.txt").exists() else 0


@pytest.fixture(scope="module")
def run(home) -> Path:
    out = home / "run"
    done = gedikit(
        *("fit", home / "photos", "--features", "quarters", "--import", home / "network.py"),
        *("--clusters", 3, "--iters", 60, "--labels-from", "folders", "--out", out),
    )
    assert done.returncode == 0, done.stderr
    assert "42 pictures of" in done.stderr and "as 12 features by quarters at 32 pixels a side" in done.stderr
    assert "film.mov (a video)" in done.stderr
    assert built(home) == 1
    return out


@pytest.fixture(scope="module")
def labels(run) -> pd.DataFrame:
    return pd.read_csv(run / "labels.csv")


def test_the_clusters_are_the_colours(labels):
    kinds = labels["file"].str.split("/").str[0]
    assert pd.crosstab(kinds, labels["cluster"]).max(axis=1).to_dict() == SIZES


def test_the_run_knows_its_network_and_its_files(run):
    config = tomllib.loads((run / "config.toml").read_text())
    assert config["features"] == {"name": "quarters", "size": 32, "unit_length": True}
    assert config["labels_from"] == "folders" and config["data"]["scaling"] == "global"
    decisions = {item["what"]: item for item in config["decisions"]}
    assert decisions["features"]["choice"] == "quarters at 32 pixels a side"
    assert decisions["files"]["choice"] == "42 pictures, 1 left out"
    assert decisions["files"]["reason"] == "film.mov: a video"
    assert "left out: film.mov (a video)" in (run / "log.txt").read_text()


def test_predictions_of_the_same_pictures_are_the_same(home, run, tmp_path):
    done = gedikit("predict", run, home / "photos", "-o", tmp_path / "again.csv")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.csv").read_text() == (run / "labels.csv").read_text()


def test_pictures_in_an_array_are_described_by_the_same_network(home, run, labels, tmp_path):
    files = labels["file"].iloc[[0, 20, 41]]
    pictures = np.stack([np.asarray(Image.open(home / "photos" / name)) for name in files])
    np.save(tmp_path / "pictures.npy", pictures)
    assert gedikit("predict", run, tmp_path / "pictures.npy", "-o", tmp_path / "p.csv").returncode == 0
    found = pd.read_csv(tmp_path / "p.csv")
    assert found["cluster"].tolist() == labels["cluster"].iloc[[0, 20, 41]].tolist()
    np.testing.assert_allclose(found["log_density"], labels["log_density"].iloc[[0, 20, 41]], atol=1e-3)


def test_features_are_not_computed_again_for_the_report_and_the_labels(home, run):
    page = (run / "report.html").read_text()
    before = built(home)
    (run / "report.html").unlink()
    assert gedikit("report", run).returncode == 0
    assert (run / "report.html").read_text() == page
    figures = json.loads(gedikit("evaluate", run, home / "photos").stdout)
    assert figures["nmi"]["value"] == pytest.approx(1)
    assert built(home) == before


def test_the_report_shows_files_linked_with_their_names(home, run):
    page = (run / "report.html").read_text()
    assert "3 groups: 24, 12, 6 pictures" in page
    for title in ("Typical", "At random", "Strangest"):
        for k in range(3):
            assert page.count(f'alt="{title} picture of cluster {k}"') == 6
    assert "Generated" not in page, "features are no pictures"
    assert "<script" not in page
    shots = re.findall(r'<figure>\s*<a href="([^"]+)">.*?<figcaption>(?:<span.*?</span>)?(.*?)<', page, re.DOTALL)
    assert len(shots) == 3 * 3 * 6 + 2
    assert all(link == (home / "photos" / html.unescape(name)).as_uri() for link, name in shots)
    assert page.count('href="file://') == page.count("file://"), "links, and nothing that is loaded"
    copies = page.split('id="duplicates"')[1].split("</section>")[0]
    assert "1 group of pictures" in copies
    assert copies.count("<figure>") == 2 and "blue/03.png" in copies and "blue/04.png" in copies


def test_an_unfinished_run_goes_on_from_its_features(home, run, tmp_path):
    unfinished = Path(shutil.copytree(run, tmp_path / "run"))
    (unfinished / "model.safetensors").unlink()
    before = built(home)
    done = gedikit("fit", "--resume", "--out", unfinished)
    assert done.returncode == 0, done.stderr
    assert built(home) == before
    assert (unfinished / "labels.csv").read_text() == (run / "labels.csv").read_text()


def test_a_changed_folder_is_not_trained_on_by_resuming(home, run, tmp_path):
    unfinished = Path(shutil.copytree(run, tmp_path / "run"))
    (unfinished / "model.safetensors").unlink()
    more = Path(shutil.copytree(home / "photos", tmp_path / "more"))
    Image.new("RGB", (40, 40), (9, 9, 9)).save(more / "new.png")
    failed(gedikit("fit", more, "--resume", "--out", unfinished), 2, "other data")


# sorting


def listed(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir())


def expected(labels: pd.DataFrame) -> list[str]:
    return sorted(f"group-{row.cluster}/{row.file}" for row in labels.itertuples())


def test_every_picture_is_copied_once_into_the_folder_of_its_group(home, run, labels, tmp_path):
    done = gedikit("sort", run, tmp_path / "sorted")
    assert done.returncode == 0, done.stderr
    assert f"42 pictures copied into 3 folders of {tmp_path / 'sorted'}" in done.stderr
    assert "left out" not in done.stderr
    assert listed(tmp_path / "sorted") == expected(labels)
    first = labels.iloc[0]
    copy = tmp_path / "sorted" / f"group-{first.cluster}" / first.file
    assert copy.read_bytes() == (home / "photos" / first.file).read_bytes() and not copy.is_symlink()


def test_links_lead_to_the_pictures(home, run, labels, tmp_path):
    assert gedikit("sort", run, tmp_path / "sorted", "--link").returncode == 0
    assert listed(tmp_path / "sorted") == expected(labels)
    for path in (tmp_path / "sorted").rglob("*.png"):
        assert path.is_symlink() and path.resolve().is_relative_to((home / "photos").resolve())


def test_nothing_is_overwritten(run, labels, tmp_path):
    mine = tmp_path / "sorted" / expected(labels)[0]
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    done = gedikit("sort", run, tmp_path / "sorted")
    assert done.returncode == 0, done.stderr
    assert mine.read_text() == "mine"
    assert "41 pictures copied" in done.stderr and f"{mine} is there already" in done.stderr
    again = gedikit("sort", run, tmp_path / "sorted", "--link")
    assert "0 pictures linked" in again.stderr and mine.read_text() == "mine"


def test_links_that_lead_out_are_not_followed(home, run, labels, tmp_path):
    photos = Path(shutil.copytree(home / "photos", tmp_path / "photos"))
    outside = tmp_path / "outside"
    outside.mkdir()
    name = labels["file"].iloc[0]
    (photos / name).rename(outside / "secret.png")
    (photos / name).symlink_to(outside / "secret.png")
    gone = labels["file"].iloc[1]
    (photos / gone).unlink()
    moved = Path(shutil.copytree(run, tmp_path / "run"))
    config = (moved / "config.toml").read_text()
    (moved / "config.toml").write_text(config.replace(str((home / "photos").resolve()), str(photos.resolve())))
    (tmp_path / "sorted").mkdir()
    group = labels["cluster"].iloc[-1]
    (tmp_path / "sorted" / f"group-{group}").symlink_to(outside, target_is_directory=True)
    done = gedikit("sort", moved, tmp_path / "sorted")
    assert done.returncode == 0, done.stderr
    assert f"{name} (a link that leads out of the folder)" in done.stderr
    assert f"{gone} (it is not there any more)" in done.stderr
    assert f"group-{group}" in done.stderr and "leads out of" in done.stderr
    assert [path.name for path in outside.rglob("*") if path.is_file()] == ["secret.png"]


def test_what_cannot_be_sorted_is_a_sentence(home, run, tmp_path):
    failed(gedikit("sort", run, home / "photos" / "sorted"), 2, "lies in", "a later run")
    unfinished = Path(shutil.copytree(run, tmp_path / "run"))
    (unfinished / "labels.csv").unlink()
    failed(gedikit("sort", unfinished, tmp_path / "out"), 1, "has no labels.csv")
    assert not (home / "photos" / "sorted").exists()


# arrays of pictures


def test_pictures_in_an_array_are_fitted_by_features_and_shown_as_they_are(home, labels, tmp_path):
    pictures = np.stack([np.asarray(Image.open(home / "photos" / name)) for name in labels["file"]])
    np.savez(tmp_path / "pictures.npz", x=pictures)
    out = tmp_path / "run"
    done = gedikit(
        *("fit", tmp_path / "pictures.npz", "--features", "quarters", "--import", home / "network.py"),
        *("--clusters", 3, "--iters", 60, "--out", out),
    )
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(out / "labels.csv")
    assert "file" not in found and sorted(found["cluster"].value_counts()) == sorted(SIZES.values())
    page = (out / "report.html").read_text()
    assert page.count('alt="Closest images of cluster') == 3 and "Generated" not in page
    assert "3 groups: 24, 12, 6 pictures" in page and "file://" not in page
    before = built(home)
    assert gedikit("report", out).returncode == 0
    assert built(home) == before
