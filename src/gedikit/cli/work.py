"""What the commands do, in terms of the library."""

import csv
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from gedikit import diagnosis
from gedikit.cli import figures as measured
from gedikit.data import sources
from gedikit.data.image_views import batches_per_epoch
from gedikit.errors import DataError, UsageError
from gedikit.estimator import GEDI
from gedikit.evaluation import clustering_figures
from gedikit.fitted import FittedModel
from gedikit.methods import get_method
from gedikit.progress import ProgressLine
from gedikit.recipes import image_recipe
from gedikit.report import ReportData, render
from gedikit.report.samples import samples_png
from gedikit.runs import Run, RunConfig, RunRecorder
from gedikit.settings import parse_assignments
from gedikit.storage import write_atomically, write_bytes, write_text
from gedikit.training import Observer
from gedikit.training.fit import check_prior, check_rows, fingerprint, resolve, resolve_device

console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


def demo(data: str, out: Path, seed: int) -> None:
    if data not in sources.BUILTIN:
        raise UsageError(f"demo takes a built-in data set ({', '.join(sources.BUILTIN)}), not {data!r}")
    if Run(out).exists:
        Run(out).remove()
    fit(data, seed=seed, out=out)
    test = sources.load(data, split="test", seed=seed)
    fitted = _load(out, "cpu")
    console.print("\nAgainst labels the training never saw, with k-means beside it:")
    for name, clusters, by in (
        ("gedikit", fitted.labels(test.x), fitted.assignment.description),
        ("k-means", _k_means(data, seed, test.x), "nearest centre"),
    ):
        made = clustering_figures(np.asarray(test.y), clusters, test.split, labels_by=by)
        figures = {f.name: f.value for f in made}
        console.print(f"  {name}  NMI {figures['nmi']:.3f}  ACC {figures['acc']:.3f}")
    console.print(f"\nOpen the report: {Run(out).report_path.resolve()}")


def fit(
    data: str | None,
    *,
    clusters: int | None = None,
    method: str | None = None,
    seed: int | None = None,
    iters: int | None = None,
    epochs: int | None = None,
    out: Path | None = None,
    resume: bool = False,
    assignments: list[str] | None = None,
    prior: str | None = None,
    device: str | None = None,
    image_size: int | None = None,
    evaluate_every: int = 10,
) -> None:
    if resume:
        given = {
            "--clusters": clusters,
            "--method": method,
            "--seed": seed,
            "--iters": iters,
            "--epochs": epochs,
            "--image-size": image_size,
            "--set": assignments or None,
            "--prior": prior,
            "--device": device,
        }
        run, config, dataset = _resumed(data, out, [name for name, value in given.items() if value is not None])
    else:
        if data is None:
            raise UsageError("fit needs DATA: a built-in data set or a file")
        changes: dict[str, Any] = dict(parse_assignments(assignments or []))
        if iters is not None and epochs is not None:
            raise UsageError("--iters and --epochs both say how long to train: give one")
        if epochs is not None and epochs < 1:
            raise UsageError(f"--epochs must be at least 1, not {epochs}")
        if iters is not None:
            changes["iterations"] = iters
        if epochs is not None:
            changes["epochs"] = epochs
        if image_size is not None and not _is_folder(data):
            raise UsageError(f"--image-size is for a folder of pictures, which {data} is not")
        size = sources.IMAGE_SIZE if image_size is None else image_size
        config, dataset = _new(data, clusters, method or "gedi", seed or 0, changes, prior, device or "auto", size)
        run = Run(out or Path("runs") / f"{_title(config.source)}-{config.method}-{config.seed}")
        run.create(config)
    _train(run, config, dataset, evaluate_every)


def _new(
    data: str,
    clusters: int | None,
    method: str,
    seed: int,
    changes: dict[str, Any],
    prior: str | None,
    device: str,
    image_size: int,
) -> tuple[RunConfig, sources.Dataset]:
    """Everything about a run that can be wrong is found wrong here, before a directory is made for it."""
    if seed < 0:
        raise UsageError(f"--seed must not be negative, not {seed}")
    n_clusters = clusters if clusters is not None else sources.default_clusters(data) or 8
    class_prior = check_prior(_parse_prior(prior), n_clusters)
    wanted = get_method(method).settings(**changes)  # what is wrong with them is said before data is read
    on_gpu = resolve_device(device).type == "cuda"
    dataset = _read(data, seed, image_size=image_size)
    check_rows(dataset.x, n_clusters)
    asked = wanted.image_shape or dataset.image_shape or ()
    recipe = image_recipe(
        asked,
        data,
        on_gpu=on_gpu,
        forced=wanted.network == "resnet8",
        printed=get_method(method).printed is not None,
    )
    settings = get_method(method).settings(recipe, **changes)
    if dataset.label_column:
        console.print(f"{dataset.label_column!r} is kept for evaluation and not trained on")
    config = RunConfig(
        source=data if data in sources.BUILTIN else str(Path(data).resolve()),
        method=method,
        n_clusters=n_clusters,
        seed=seed,
        data_seed=seed,
        device=device,
        prior=tuple(class_prior.tolist()),
        columns=dataset.columns,
        image_shape=asked if dataset.x.dtype == np.uint8 else (),
        fingerprint=fingerprint(dataset.x),
        settings=resolve(settings, *dataset.x.shape).as_dict(),
    )
    return config, dataset


def _k_means(data: str, seed: int, x: NDArray[Any]) -> NDArray[Any]:
    from sklearn.cluster import KMeans

    model = KMeans(sources.BUILTIN[data].n_clusters, n_init=10, random_state=seed)
    clusters: NDArray[Any] = model.fit(sources.load(data, seed=seed).x).predict(x)
    return clusters


def _resumed(data: str | None, out: Path | None, given: list[str]) -> tuple[Run, RunConfig, sources.Dataset]:
    if out is None:
        raise UsageError("--resume needs --out: which run is to go on?")
    if given:
        raise UsageError(f"--resume goes on with the settings of the run: leave out {', '.join(given)}")
    run = Run(out)
    config = run.config()
    dataset = _of_run(config, data or config.source)
    if fingerprint(dataset.x) != config.fingerprint:
        raise UsageError(f"{out} was trained on other data than {data or config.source} holds now")
    return run, config, dataset


def _train(run: Run, config: RunConfig, dataset: sources.Dataset, evaluate_every: int) -> None:
    """Train unless that is done, then write what a finished run has; the way back is given up last."""
    if run.model_path.exists():
        console.print(f"{run.path} is trained already")
    else:
        checkpoint = run.latest_checkpoint(config.fingerprint)
        at = checkpoint[1]["iteration"] if checkpoint else 0
        console.print(_plan(config, at))
        model = GEDI(
            config.n_clusters,
            method=config.method,
            prior=config.prior,
            options=config.settings,
            random_state=config.seed,
            device=config.device,
        )
        with ProgressLine(console) as line:
            shown = _watching(line, run, config, evaluate_every, len(dataset.x))
            with RunRecorder(run, config, shown) as recorder:
                model.fit_observed(dataset.x, recorder, checkpoint, run.history(up_to=at))
        model.save(run.model_path)
    fitted = _load(run.path, config.device)
    with console.status("writing the report") if console.is_terminal else nullcontext():
        rows = _write_predictions(fitted, iter([sources.Block(dataset.x, dataset.names)]), run.labels_path)
        verdict = write_report(run, config, fitted, dataset)
    run.forget_checkpoints()
    console.print(f"{verdict.verdict}: {verdict.explanation}", style="green" if verdict.healthy else "yellow")
    if not verdict.healthy:
        console.print(verdict.advice)
    console.print(f"clusters of {rows} {'pictures' if dataset.names else 'rows'}: {run.labels_path}")
    console.print(f"report: {run.report_path}")


def predict(path: Path, data: str, output: Path, device: str) -> None:
    fitted = _load(path, device)
    began = time.monotonic()
    config = Run(path).config()
    blocks = sources.blocks(
        data, split="test", seed=config.data_seed, columns=config.columns, **_image_options(config, data)
    )
    skipped: list[tuple[str, str]] = []
    rows = _write_predictions(fitted, _checked(blocks, fitted, data, skipped), output)
    seconds = max(time.monotonic() - began, 1e-9)
    _tell_skipped(skipped)
    things = "pictures" if _is_folder(data) else "rows"
    console.print(f"{rows} {things} to {output} in {seconds:.1f} s ({rows / seconds:,.0f} {things}/s)")


def sample(
    path: Path,
    output: Path,
    n: int,
    *,
    cluster: int | None,
    steps: int | None,
    start: str,
    seed: int,
    device: str,
) -> None:
    if output.suffix not in (".npz", ".csv", ".png"):
        raise UsageError(f"samples are written as .npz, .csv or .png, not as {output.suffix or 'no ending'!r}")
    fitted = _load(path, device)
    made, info = fitted.sample(n, steps=steps, start=start, cluster=cluster, seed=seed)
    y = fitted.labels(made)
    shape = Run(path).config().image_shape
    x: NDArray[Any] = np.clip(np.rint(made), 0, 255).astype(np.uint8) if shape else made
    if output.suffix == ".npz":
        x = x.reshape(-1, *shape) if shape else x
        write_atomically(output, lambda p: _save_npz(p, x, y))
    elif output.suffix == ".csv":
        table = np.column_stack([x, y])
        header = ",".join([*(f"x{i}" for i in range(x.shape[1])), "cluster"])
        write_atomically(
            output, lambda p: np.savetxt(p, table, delimiter=",", header=header, comments="", fmt="%.9g")
        )
    else:
        image = _image_shape(Run(path).config())
        if image is None and x.shape[1] != 2:
            raise UsageError(f"a picture needs two features or images, not {x.shape[1]} features: use .csv or .npz")
        png = samples_png(x, y, image)
        write_bytes(output, png)
    console.print(
        f"{n} samples to {output} (acceptance {info.acceptance:.2f}, step {info.step_size:.3g}, "
        f"temperature {info.temperature:.3g})"
    )


def evaluate(
    path: Path, data: str, device: str, *, probes: bool, fid: int, outside: list[str], steps: int, seed: int
) -> None:
    fitted = _load(path, device)
    config = Run(path).config()
    dataset = _other(config, data)
    _check_width(dataset.x, fitted, data)
    others = {name: measured.outside_rows(name, dataset, seed) for name in outside}
    further = []
    if fid:
        further += measured.fid_figures(fitted, _of_run(config, data), fid, steps, seed)
    if probes:
        further += measured.probe_figures(fitted, *_probed(config, data, dataset, seed), seed)
    if outside:
        further += measured.outlier_figures(fitted, dataset, others)
    figures = [*measured.headline_figures(fitted, dataset), *further]
    if dataset.y is None:
        console.print(f"{data} has no labels: no NMI, AMI, ARI or ACC")
    named = {f.name: {"value": f.value, "protocol": f.protocol} for f in figures}
    sys.stdout.write(json.dumps(named, indent=2) + "\n")


def diagnose(path: Path, data: str | None, as_json: bool) -> None:
    run = Run(path)
    fitted = _load(path, "cpu")
    config = run.config()
    dataset = _other(config, data or config.source)
    _check_width(dataset.x, fitted, dataset.name)
    result = _diagnosis(run, fitted, dataset)
    sys.stdout.write((json.dumps(result.as_dict(), indent=2) if as_json else str(result)) + "\n")


def report(path: Path) -> Path:
    run = Run(path)
    config = run.config()
    fitted = _load(path, "cpu")
    write_report(run, config, fitted, _of_run(config, config.source))
    return run.report_path


def write_report(run: Run, config: RunConfig, fitted: FittedModel, dataset: sources.Dataset) -> diagnosis.Diagnosis:
    """Write the page about the data the run was trained on; returns the verdict on it."""
    # built-in shapes have points the training never saw; a file is all there is
    held_out = _other(config, config.source) if config.source in sources.BUILTIN else dataset
    verdict = _diagnosis(run, fitted, held_out)
    page = render(
        ReportData(
            title=_title(config.source),
            fitted=fitted,
            x=dataset.x,
            labels=dataset.y,
            image_shape=dataset.image_shape,
            history=run.history().rows,
            optima=fitted.info["optima"],
            diagnosis=verdict,
            figures=measured.headline_figures(fitted, held_out),
            columns=dataset.columns or None,
            names=dataset.names,
            skipped=dataset.skipped,
        )
    )
    write_text(run.report_path, page)
    return verdict


def _image_shape(config: RunConfig) -> tuple[int, int, int] | None:
    """Of what the model generates; small images that were treated as vectors are images all the same."""
    shape = config.image_shape or config.settings["image_shape"]
    if not shape:
        return sources.load(config.source).image_shape
    height, width, channels = shape
    return height, width, channels


def _other(config: RunConfig, data: str) -> sources.Dataset:
    """Rows to look at a run with: of a built-in data set those it was not trained on."""
    options = _image_options(config, data)
    return sources.load(data, split="test", seed=config.data_seed, columns=config.columns, **options)


def _of_run(config: RunConfig, data: str) -> sources.Dataset:
    """The rows a run is trained on."""
    return sources.load(data, seed=config.data_seed, columns=config.columns, **_image_options(config, data))


def _image_options(config: RunConfig, data: str) -> dict[str, Any]:
    """Pictures come as large and with as many channels as those the run was trained on."""
    if config.image_shape:
        return {"image_size": config.image_shape[0], "image_channels": config.image_shape[2]}
    if _is_folder(data):
        raise UsageError(f"{data} is a folder of pictures, and the run was trained on rows of numbers")
    return {}


def _is_folder(data: str) -> bool:
    return data not in sources.BUILTIN and Path(data).is_dir()


def _title(source: str) -> str:
    """What a run is called after its data; `source` is a built-in name or a whole path."""
    path = Path(source)
    return (path.name if path.is_dir() else path.stem) or "data"


def _probed(
    config: RunConfig, data: str, dataset: sources.Dataset, seed: int
) -> tuple[sources.Dataset, sources.Dataset]:
    """Rows to train probes on and others to test them on: the splits of a built-in data set, else halves."""
    if data in sources.BUILTIN:
        return _of_run(config, data), dataset
    order = np.random.default_rng(seed).permutation(len(dataset.x))
    half = len(order) // 2
    train, test = (
        replace(dataset, x=dataset.x[rows], y=None if dataset.y is None else dataset.y[rows], split=split)
        for rows, split in (
            (np.sort(order[:half]), f"a random half, seed {seed}"),
            (np.sort(order[half:]), f"the other half, seed {seed}"),
        )
    )
    return train, test


def _read(data: str, seed: int, image_size: int) -> sources.Dataset:
    """The data of a new run; reading many pictures takes a while and says so."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading pictures", total=None, visible=False)
        dataset = sources.load(
            data,
            seed=seed,
            image_size=image_size,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total, visible=True),
        )
    if dataset.names and dataset.image_shape:
        height, width, channels = dataset.image_shape
        colour = "grey" if channels == 1 else "colour"
        console.print(f"{len(dataset.x)} pictures read from {data}, as {height} × {width} pixels in {colour}")
    _tell_skipped(dataset.skipped)
    return dataset


def _tell_skipped(skipped: Sequence[tuple[str, str]]) -> None:
    if skipped:
        (first, why), n = skipped[0], len(skipped)
        some = (
            "1 file could not be read and is left out:"
            if n == 1
            else (f"{n} files could not be read and are left out, such as")
        )
        console.print(f"{some} {first} ({why})")


def _plan(config: RunConfig, at: int) -> str:
    """What is about to happen, in a line."""
    iterations, where = config.settings["iterations"], resolve_device(config.device)
    if at:
        return f"going on at iteration {at} of {iterations}"
    place = "the CPU" if where.type == "cpu" else torch.cuda.get_device_name(where)
    clusters = "1 cluster" if config.n_clusters == 1 else f"{config.n_clusters} clusters"
    return f"training {config.method}: {clusters}, {iterations} iterations on {place}"


def _watching(line: Observer, run: Run, config: RunConfig, epochs: int, n_rows: int) -> Observer:
    """Built-in images come with a labelled test set that the training can be watched by."""
    settings = config.settings
    if not (epochs and settings["image_shape"] and config.source in sources.BUILTIN):
        return line
    if get_method(config.method).labels != "posterior":
        return line
    every = epochs * batches_per_epoch(n_rows, min(settings["batch_size"], n_rows))
    return measured.TestSetWatch(line, run, _other(config, config.source), every)


def _diagnosis(run: Run, fitted: FittedModel, dataset: sources.Dataset) -> diagnosis.Diagnosis:
    rows = run.history().rows
    count = 512 if fitted.settings.image_shape else 2000
    some = np.random.default_rng(0).permutation(len(dataset.x))[:count]  # a file may be sorted by class
    return diagnosis.diagnose(fitted, dataset.x[np.sort(some)], rows[-1] if rows else None)


def _load(path: Path, device: str) -> FittedModel:
    run = Run(path)
    run.config()
    if not run.model_path.exists():
        raise DataError(f"{path} has no finished model: go on with gedikit fit --resume --out {path}")
    return FittedModel.load(run.model_path, resolve_device(device))


def _write_predictions(fitted: FittedModel, blocks: Iterator[sources.Block], output: Path) -> int:
    """Stream rows through the model into a CSV, pictures with their names; returns the number of rows."""
    knows_density = fitted.models_density
    rows = 0

    def write(path: Path) -> None:
        nonlocal rows
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            columns = ["cluster", "confidence", "log_density", "outlier_score"]
            for number, block in enumerate(blocks):
                if number == 0:
                    writer.writerow([*(["row", "file"] if block.names else ["row"]), *columns])
                first = rows
                for logits, density in fitted.evaluate(block.x):
                    confidence, cluster = logits.double().softmax(-1).max(-1)
                    typical = density.cpu().numpy().astype(np.float64)
                    strange = fitted.outlier_score(typical)
                    n = len(typical)
                    shown = [
                        np.arange(rows, rows + n).tolist(),
                        *([block.names[rows - first : rows - first + n]] if block.names else []),
                        cluster.tolist(),
                        [f"{v:.6f}" for v in confidence.tolist()],
                        [f"{v:.6g}" for v in typical.tolist()] if knows_density else [""] * n,
                        [f"{v:.6f}" for v in strange.tolist()] if knows_density else [""] * n,
                    ]
                    writer.writerows(zip(*shown, strict=True))
                    rows += n

    write_atomically(output, write)
    if not knows_density:
        console.print(f"{fitted.method!r} learns no density: log_density and outlier_score are left empty")
    return rows


def _checked(
    blocks: Iterator[sources.Block], fitted: FittedModel, name: str, skipped: list[tuple[str, str]]
) -> Iterator[sources.Block]:
    """The blocks if they suit the model; what could not be read is added to `skipped`."""
    for block in blocks:
        _check_width(block.x, fitted, name)
        skipped += block.skipped
        yield block


def _check_width(x: NDArray[Any], fitted: FittedModel, name: str) -> None:
    if x.shape[1] != fitted.n_features:
        shape = fitted.settings.image_shape
        images = f" ({' × '.join(map(str, shape))}: images)" if shape else ""
        raise DataError(f"{name} has {x.shape[1]} features; the model was trained on {fitted.n_features}{images}")


def _parse_prior(text: str | None) -> NDArray[np.float64] | None:
    if text is None:
        return None
    try:
        return np.array([float(v) for v in text.split(",")])
    except ValueError:
        raise UsageError(f"--prior takes numbers separated by commas, not {text!r}") from None


def _save_npz(path: Path, x: NDArray[Any], y: NDArray[Any]) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, x=x, y=y)
