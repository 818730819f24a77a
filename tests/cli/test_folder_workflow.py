"""A folder of pictures from the first command to the last, as a person runs them: real processes, real files."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score

from forked import failed, gedikit, start
from gedikit.data.toy import moons
from gedikit.fitted import FittedModel

ENV = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
COLUMNS = ["row", "file", "cluster", "confidence", "log_density", "outlier_score"]
KINDS = ("discs", "stripes", "checks", "skies")
SMALL = [
    *("--set=encoder.width=8", "--set=optimiser.batch_size=32"),
    *("--set=sampler.steps=2", "--set=sampler.samples=16", "--set=sampler.chains=200"),
]
TINY = [
    *(*SMALL, "--set=encoder.width=4", "--set=sampler.chains=40"),
    *("--set=execution.log_every=5", "--set=execution.checkpoint_every=20"),
]
N_PICTURES, N_READABLE = 500, 503


def picture(kind: str, rng: np.random.Generator, width: int, height: int) -> Image.Image:
    y, x = np.mgrid[:height, :width]
    ground = rng.uniform(0, 60, 3)
    if kind == "discs":
        left, top, radius = rng.uniform(14, width - 14), rng.uniform(14, height - 14), rng.uniform(8, 14)
        pixels = np.where(((x - left) ** 2 + (y - top) ** 2 < radius**2)[..., None], (230, 60, 40), ground)
    elif kind == "stripes":
        pixels = np.where(((x + rng.integers(8)) // 4 % 2 == 0)[..., None], (40, 200, 60), ground)
    elif kind == "checks":
        squares = ((x + rng.integers(12)) // 6 + (y + rng.integers(12)) // 6) % 2 == 0
        pixels = np.where(squares[..., None], (240, 240, 240), ground)
    else:
        share = (y / height)[..., None]
        pixels = share * np.array((90, 140, 250)) + (1 - share) * np.array((200, 220, 255))
    noisy = pixels + rng.normal(0, 6, pixels.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Four kinds of pictures in three formats, one turned by its camera, and files that are no pictures."""
    root = tmp_path_factory.mktemp("data") / "my.photos [2020]"
    rng = np.random.default_rng(0)
    for i in range(N_PICTURES):
        kind, ending = KINDS[i % 4], ("jpg", "png", "webp")[i % 3]
        (root / kind).mkdir(parents=True, exist_ok=True)
        picture(kind, rng, *((48, 40) if i % 2 else (40, 56))).save(root / kind / f"{i:03d}.{ending}")
    upright = picture("stripes", rng, 40, 56)
    upright.save(root / "stripes" / "upright.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise before it is looked at
    upright.transpose(Image.Transpose.ROTATE_90).save(root / "stripes" / "turned.png", exif=exif)
    Image.fromarray(rng.integers(0, 256, (48, 48, 3), dtype=np.uint8)).save(root / "no kind at all.png")
    (root / "discs" / "zero.jpg").touch()
    (root / "checks" / "text.png").write_text("this is no picture")
    (root / "skies" / "cut.webp").write_bytes((root / "discs" / "008.webp").read_bytes()[:60])
    (root / "notes.txt").write_text("not looked at")
    return root


@pytest.fixture(scope="module")
def fitted(photos, tmp_path_factory) -> tuple[Path, str]:
    """The run, and what the command said to a pipe."""
    out = tmp_path_factory.mktemp("runs") / "run"
    command = [sys.executable, "-c", "from gedikit.cli import main; main()", "fit", str(photos), "--clusters", "4"]
    done = subprocess.run(
        [*command, "--iters", "60", *SMALL, "--out", str(out)], capture_output=True, text=True, env=ENV
    )
    assert done.returncode == 0, done.stderr
    return out, done.stderr


@pytest.fixture(scope="module")
def run(fitted) -> Path:
    return fitted[0]


@pytest.fixture(scope="module")
def labels(run) -> pd.DataFrame:
    return pd.read_csv(run / "labels.csv")


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    """Sixty real handwritten digits, grey and not labelled."""
    root = tmp_path_factory.mktemp("digits")
    for i, image in enumerate(load_digits().images[:60]):
        Image.fromarray((image * 15).astype(np.uint8)).resize((32, 32)).save(root / f"{i:02d}.png")
    return root


@pytest.fixture(scope="module")
def grey_run(digits, tmp_path_factory) -> Path:
    """A run on pictures of 16 × 16 that nothing interrupted."""
    out = tmp_path_factory.mktemp("runs") / "grey"
    done = gedikit("fit", digits, "--clusters", 2, "--image-size", 16, "--iters", 120, *TINY, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "as 16 × 16 pixels in grey" in done.stderr
    return out


def few(root: Path, n: int, *, mode: str = "RGB", side: int = 32) -> Path:
    root.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    for i in range(n):
        picture(KINDS[i % 4], rng, side, side).convert("L").convert(mode).save(root / f"{i}.png")
    return root


def predicted(run: Path, folder: Path, out: Path) -> pd.DataFrame:
    done = gedikit("predict", run, folder, "-o", out)
    assert done.returncode == 0, done.stderr
    return pd.read_csv(out)


def test_every_readable_file_is_in_the_table_once(photos, labels):
    assert list(labels.columns) == COLUMNS
    unreadable = {"discs/zero.jpg", "checks/text.png", "skies/cut.webp"}
    there = {path.relative_to(photos).as_posix() for path in photos.rglob("*.*") if path.suffix != ".txt"}
    assert len(labels) == N_READABLE
    assert sorted(labels["file"]) == sorted(there - unreadable)
    assert labels["row"].tolist() == list(range(N_READABLE))
    assert labels["cluster"].between(0, 3).all() and labels["cluster"].nunique() > 1
    assert labels["confidence"].between(0.25, 1).all()
    assert labels["outlier_score"].between(0, 1).all()
    assert labels["outlier_score"][labels["log_density"].idxmin()] == 1


def test_a_picture_turned_by_its_camera_is_seen_upright(labels):
    by_name = labels.set_index("file").drop(columns="row")
    pd.testing.assert_series_equal(
        by_name.loc["stripes/turned.png"], by_name.loc["stripes/upright.png"], check_names=False
    )
    assert by_name["log_density"].nunique() > 0.9 * N_READABLE, "other pictures do come out differently"


def test_fit_says_what_it_read_does_and_wrote(fitted, photos):
    run, said = fitted
    lines = said.splitlines()
    assert lines[0] == f"{N_READABLE} pictures read from {photos}, as 32 × 32 pixels in colour"
    ignored = "4 sub-folders (checks, discs, skies, stripes) are ignored"
    assert lines[1] == f"{ignored}; --labels-from folders compares clusters with them"
    assert lines[2] == "3 files are left out:" and lines[3].startswith("  checks/text.png (not a picture")
    assert lines[6] == "training gedi: 4 clusters, 60 iterations on the CPU"
    progress = r"\d+/60  [\d.]+ (it/s|s/it)  \d+ (s|min) left  inv "
    following = [line for line in lines[7:] if re.match(rf"{progress}|about \d+ (s|min) left", line)]
    assert following == lines[7 : 7 + len(following)], "nothing in between"
    logged = [line for line in (run / "log.txt").read_text().splitlines() if line.startswith("left out: ")]
    assert logged[1] == "left out: discs/zero.jpg (the file is empty)" and len(logged) == 3
    assert following[-1].startswith("60/60  ") and "  0 s left  " in following[-1]
    assert lines[-2:] == [
        f"clusters of {N_READABLE} pictures: {run / 'labels.csv'}",
        f"report: {run / 'report.html'}",
    ]


def test_the_report_names_outliers_and_files_that_could_not_be_read(run, labels):
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<h1>my.photos [2020]</h1>" in page
    listed = re.findall(r"<b>(.*?)</b>", page.split('class="suspects"')[1])
    strange = labels["file"].isin(listed)
    assert len(listed) == strange.sum() == 24
    assert labels["log_density"][strange].max() <= labels["log_density"][~strange].min()
    skipped = re.search(r'<ul class="files">(.*?)</ul>', page, re.DOTALL)[1]
    assert re.findall(r"<li>(\S+) <span>", skipped) == ["checks/text.png", "discs/zero.jpg", "skies/cut.webp"]
    assert "the file is empty" in skipped
    assert page.count('alt="Generated images of cluster') == 4
    order = [page.index(f'<section id="{name}"') for name in ("clusters", "typicality", "training")]
    assert order == sorted(order), "what was found comes before how it came about"


def test_agreement_is_with_sub_folders_and_on_the_pictures_that_lie_in_one(run, photos, labels):
    done = gedikit("evaluate", run, photos)
    assert "--labels-from folders" in done.stderr and "nmi" not in json.loads(done.stdout), "nobody asked"
    done = gedikit("evaluate", run, photos, "--labels-from", "folders")
    figures = json.loads(done.stdout)
    kinds = labels["file"].str.extract(r"^(\w+)/")[0]
    known = kinds.notna()
    expected = normalized_mutual_info_score(kinds[known], labels["cluster"][known])
    assert figures["nmi"]["value"] == pytest.approx(expected, abs=1e-9)
    assert expected > 0.3
    assert figures["nmi"]["protocol"]["n"] == N_READABLE - 1
    assert figures["nmi"]["protocol"]["n_classes"] == 4
    assert figures["mean_log_density"]["value"] == pytest.approx(labels["log_density"].mean(), abs=1e-4)


def test_probes_of_a_folder_are_tested_on_pictures_they_were_not_trained_on(run, photos, tmp_path):
    done = gedikit(
        "evaluate", run, photos, "--labels-from", "folders", "--probes", "--ood", few(tmp_path / "others", 8)
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    for name in ("linear_probe", "linear_probe_standardised", "knn_probe"):
        protocol = figures[name]["protocol"]
        assert protocol["n_train"] + protocol["n_test"] == N_READABLE - 1, "each once, the unlabelled one nowhere"
        assert (protocol["split"], protocol["trained_on"]) == ("the other half, seed 0", "a random half, seed 0")
    assert figures["knn_probe"]["value"] > 0.6
    assert figures[f"ood_auroc ({tmp_path / 'others'}, log_density)"]["protocol"]["n_outside"] == 8


def test_predict_repeats_the_table_and_tells_what_it_could_not_read(run, photos, tmp_path):
    done = gedikit("predict", run, photos, "-o", tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == (run / "labels.csv").read_text()
    assert "3 files are left out" in done.stderr
    assert f"{N_READABLE} pictures to" in done.stderr


def test_grey_pictures_for_a_model_in_colour(run, tmp_path):
    grey = predicted(run, few(tmp_path / "grey", 9, mode="L"), tmp_path / "grey.csv")
    assert grey["file"].tolist() == [f"{i}.png" for i in range(9)]
    as_colour = predicted(run, few(tmp_path / "colour", 9), tmp_path / "colour.csv")
    pd.testing.assert_frame_equal(grey, as_colour)


def test_coloured_pictures_for_a_grey_model(grey_run, tmp_path):
    rng = np.random.default_rng(2)
    for name in ("colour", "grey"):
        (tmp_path / name).mkdir()
    for i in range(8):
        coloured = picture(KINDS[i % 4], rng, 40, 40).crop((12, 12, 28, 28))
        coloured.save(tmp_path / "colour" / f"{i}.png")
        coloured.convert("L").save(tmp_path / "grey" / f"{i}.png")
    colour, grey = (predicted(grey_run, tmp_path / name, tmp_path / f"{name}.csv") for name in ("colour", "grey"))
    assert len(colour) == 8 and colour["log_density"].nunique() == 8
    pd.testing.assert_frame_equal(colour, grey)


def test_samples_are_pictures_of_bytes_and_the_png_shows_them_as_they_are(run, tmp_path):
    for name in ("s.npz", "s.png"):
        done = gedikit("sample", run, "-n", 9, "--steps", 3, "--seed", 1, "-o", tmp_path / name)
        assert done.returncode == 0, done.stderr
    made = np.load(tmp_path / "s.npz")
    assert made["x"].shape == (9, 32, 32, 3) and made["x"].dtype == np.uint8
    assert made["x"].min() < 30 and made["x"].max() > 225
    shown = np.asarray(Image.open(tmp_path / "s.png"))
    first = made["x"][np.argsort(made["y"], kind="stable")[0]]
    np.testing.assert_array_equal(shown[:64:2, :64:2], first)
    again = predicted(run, tmp_path / "s.npz", tmp_path / "again.csv")
    assert again["cluster"].tolist() == made["y"].tolist()


def test_diagnose_and_report_of_a_folder(grey_run, digits):
    found = json.loads(gedikit("diagnose", grey_run, "--json").stdout)
    assert gedikit("diagnose", grey_run, digits).stdout.startswith(f"{found['verdict']}: {found['explanation']}\n")
    confidence = pd.read_csv(grey_run / "labels.csv")["confidence"]
    assert found["numbers"]["confidence"] == pytest.approx(confidence.mean(), abs=1e-5)
    page = (grey_run / "report.html").read_bytes()
    assert gedikit("report", grey_run).stdout.strip() == str(grey_run / "report.html")
    assert (grey_run / "report.html").read_bytes() == page


def wait_for(out: Path, checkpoint: int, process) -> None:
    """Until there is this checkpoint or a later one."""
    first = out / "checkpoints" / f"step-{checkpoint:09d}.safetensors"
    while not any(path >= first for path in first.parent.glob("step-*")):
        assert process.is_alive()
        time.sleep(0.005)


def test_stopped_then_killed_then_resumed_equals_uninterrupted(digits, grey_run, tmp_path):
    out, resume = tmp_path / "cut", ("fit", "--resume", "--out", tmp_path / "cut")
    ask = ("fit", digits, "--clusters", 2, "--image-size", 16, "--iters", 120, *TINY, "--out", out)
    process = start(ask, tmp_path)
    wait_for(out, 20, process)
    os.kill(process.pid, signal.SIGTERM)
    process.join()
    said = (tmp_path / "stderr").read_text()
    assert process.exitcode == 130
    assert "stopping after a checkpoint" in said
    stopped = int(re.search(r"stopped at iteration (\d+) of 120; continue with: gedikit fit --resume", said)[1])
    process = start(resume, tmp_path)
    wait_for(out, stopped + 20, process)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert f"resuming at iteration {stopped} of 120" in (tmp_path / "stderr").read_text()
    assert not (out / "model.safetensors").exists()
    done = gedikit(*resume)
    assert done.returncode == 0, done.stderr
    for name in ("labels.csv", "metrics.jsonl", "model.safetensors"):
        assert (out / name).read_bytes() == (grey_run / name).read_bytes(), name
    assert not (out / "checkpoints").exists()


def test_another_picture_in_the_folder_is_not_trained_on_by_resuming(digits, grey_run, tmp_path):
    unfinished = Path(shutil.copytree(grey_run, tmp_path / "run"))
    (unfinished / "model.safetensors").unlink()
    more = Path(shutil.copytree(digits, tmp_path / "more"))
    Image.new("L", (20, 20), 90).save(more / "new.png")
    failed(gedikit("fit", more, "--resume", "--out", unfinished), 2, "other data")


def test_the_image_size_of_a_run_is_that_of_its_predictions(digits, grey_run, tmp_path):
    """Of pictures that are small enough to be treated as vectors, too."""
    out = tmp_path / "run"
    done = gedikit("fit", digits, "--clusters", 2, "--image-size", 8, "--iters", 20, "--out", out)
    assert done.returncode == 0, done.stderr
    for path in (out, grey_run):
        predicted(path, digits, tmp_path / "again.csv")
        assert (tmp_path / "again.csv").read_text() == (path / "labels.csv").read_text()
    assert gedikit("sample", out, "-n", 4, "--steps", 2, "-o", tmp_path / "s.npz").returncode == 0
    assert np.load(tmp_path / "s.npz")["x"].shape == (4, 8, 8, 1)
    assert "already trained" in gedikit("fit", "--resume", "--out", out).stderr


def test_pictures_are_treated_as_what_they_are(tmp_path):
    few(tmp_path / "numbers", 40)
    out = tmp_path / "run"
    asked = ("fit", tmp_path / "numbers", "--clusters", 2, "--image-size", 16, "--iters", 4, *TINY, "--out", out)
    failed(gedikit(*asked, "--views", "svhn"), 2, "'svhn'", "photos, drawings, writing, things")
    assert not out.exists()
    done = gedikit(*asked, "--views", "writing", "--set", "execution.log_every=1")
    assert done.returncode == 0, done.stderr
    config = tomllib.loads((out / "config.toml").read_text())
    assert config["similarity"]["name"] == "outlines" and config["views"]["name"] == "augment"
    assert config["views"]["rotation"] == 6 and config["views"]["walks"]
    assert starts(out) == [True, True, True, False]


def starts(run: Path) -> list[bool]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return ["pseudo-labels" in row for row in rows]


def test_what_a_run_does_not_name_is_not_up_to_the_plan_of_today(tmp_path):
    """Runs that were begun before a setting was there go on without it, as they were."""
    few(tmp_path / "scans", 40, mode="L")
    out = tmp_path / "run"
    asked = ("--clusters", 2, "--image-size", 16, "--iters", 4, *TINY, "--out", out)
    asked += ("--set", "execution.log_every=1", "--views", "drawings", "--prior", "uniform")
    assert gedikit("fit", tmp_path / "scans", *asked).returncode == 0
    assert starts(out) == [True, True, False, False]
    first = FittedModel.load(out / "model.safetensors").plan.config
    assert first.views.walks and first.similarity.copies > 0
    (out / "model.safetensors").unlink()
    config = out / "config.toml"
    lines = config.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("walks = ", "copies = "))]
    assert len(kept) == len(lines) - 2
    config.write_text("".join(kept))
    assert gedikit("fit", "--resume", "--out", out).returncode == 0
    again = FittedModel.load(out / "model.safetensors").plan.config
    assert not again.views.walks and again.similarity.copies == 0
    assert starts(out) == [True, True, False, False], "the stages are in the file"


def test_a_single_sub_folder_is_no_class(tmp_path):
    few(tmp_path / "only", 12)
    out = tmp_path / "runs" / "run"
    asked = ("--clusters", 1, "--image-size", 16, "--iters", 2, *TINY, "--out", out)
    done = gedikit("fit", ".", *asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"<h1>{tmp_path.name}</h1>" in (out / "report.html").read_text()
    assert pd.read_csv(out / "labels.csv")["file"].str.startswith("only/").all()
    done = gedikit("evaluate", out, tmp_path / "only")
    assert "has no labels" in done.stderr and set(json.loads(done.stdout)) == {"mean_log_density"}


@pytest.fixture(scope="module")
def table_run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "moons"
    assert gedikit("fit", "moons", "--iters", 5, "--out", out).returncode == 0
    return out


@pytest.fixture
def bad(tmp_path, run, table_run) -> Path:
    """A working directory with folders that cannot be used, and runs by name."""
    few(tmp_path / "three", 3)
    for name in ("empty", "broken", "nothing"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "a.jpg").touch()
    (tmp_path / "broken" / "b.png").write_text("text")
    np.save(tmp_path / "table.npy", moons(20, 0)[0])
    (tmp_path / "pictures-run").symlink_to(run)
    (tmp_path / "table-run").symlink_to(table_run)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("fit empty", 1, ["empty has no picture", ".jpg"]),
        ("fit broken", 1, ["broken has no picture that can be read; 2 cannot", "a.jpg: the file is empty"]),
        ("fit three --clusters 12", 1, ["n_samples=3 should be >= n_clusters=12"]),
        ("fit three --image-size 30", 2, ["multiple of 4 and at least 8, not 30"]),
        ("fit three --image-size 6", 2, ["multiple of 4 and at least 8, not 6"]),
        ("fit moons --image-size 16", 2, ["--image-size is for a folder of pictures", "moons"]),
        ("fit three --epochs 2 --iters 9", 2, ["--iters and --epochs"]),
        ("fit three --epochs 0", 2, ["--epochs must be at least 1, not 0"]),
        ("fit three --epochs -1", 2, ["--epochs must be at least 1, not -1"]),
        ("fit fotos", 2, ["'fotos' is neither a built-in data set", "folder of pictures"]),
        ("fit cifar10", 2, ["nothing/cifar-10-batches-bin", "gedikit data get cifar10"]),
        ("predict table-run three -o x.csv", 2, ["three is a folder of pictures", "rows of numbers"]),
        ("predict pictures-run table.npy -o x.csv", 1, ["table.npy has 2 features", "3072 (32 × 32 × 3: images)"]),
        ("predict pictures-run empty -o x.csv", 1, ["empty has no picture"]),
        ("evaluate pictures-run three --fid 10", 2, ["nothing/inception/fid_inception_v3.pt"]),
        ("evaluate pictures-run three --ood nosuch", 2, ["'nosuch'", "noise, texture, constant, interpolated"]),
        ("evaluate pictures-run three --ood moons", 2, ["moons has no images", "32 × 32 pixels in colour"]),
        ("evaluate pictures-run three --probes", 2, ["labels", "has none"]),
        ("fit three --labels-from files", 2, ["--labels-from takes folders, not 'files'"]),
        ("fit moons --labels-from folders", 2, ["a folder of pictures, which moons is not"]),
        ("fit table.npy --features efficientnet-lite0", 2, ["--features is about pictures", "table.npy has none"]),
        ("fit three --features resnet", 2, ["there is no feature network 'resnet'", "efficientnet-lite0"]),
        ("sort table-run out", 2, ["table-run was not trained on a folder of pictures"]),
        ("sample pictures-run -o x.png --cluster 9", 2, ["between 0 and 3"]),
    ],
)
def test_what_cannot_be_done_is_one_sentence(bad, line, code, words):
    before = sorted(bad.rglob("*"))
    failed(gedikit(*line.split(), cwd=bad, env={"GEDIKIT_DATA": "nothing"}), code, *words)
    assert sorted(bad.rglob("*")) == before, "nothing is left in the way of the corrected command"
