"""The commands that train."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gedikit.cli import figures as measured
from gedikit.cli.reading import console, is_folder, load_run, other_rows, read_data, rows_of, title_of
from gedikit.cli.using import write_predictions, write_report
from gedikit.data import sources
from gedikit.data.image_views import batches_per_epoch
from gedikit.errors import UsageError
from gedikit.estimator import GEDI
from gedikit.evaluation import clustering_figures
from gedikit.methods import get_method
from gedikit.progress import ProgressLine
from gedikit.recipes import check_like
from gedikit.runs import Run, RunConfig, RunRecorder
from gedikit.settings import Settings, parse_assignments
from gedikit.training import Observer
from gedikit.training.checks import check_prior, check_rows
from gedikit.training.devices import resolve_device
from gedikit.training.fit import fingerprint, resolve


def demo(data: str, out: Path, seed: int) -> None:
    if data not in sources.BUILTIN:
        raise UsageError(f"demo takes a built-in data set ({', '.join(sources.BUILTIN)}), not {data!r}")
    if Run(out).exists:
        Run(out).remove()
    fit(data, seed=seed, out=out)
    test = sources.load(data, split="test", seed=seed)
    fitted = load_run(out, "cpu")
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
    like: str | None = None,
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
            "--like": like,
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
        if image_size is not None and not is_folder(data):
            raise UsageError(f"--image-size is for a folder of pictures, which {data} is not")
        size = sources.IMAGE_SIZE if image_size is None else image_size
        config, dataset = _new(
            data, clusters, method or "gedi", seed or 0, changes, prior, device or "auto", size, like
        )
        run = Run(out or Path("runs") / f"{title_of(config.source)}-{config.method}-{config.seed}")
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
    like: str | None,
) -> tuple[RunConfig, sources.Dataset]:
    """Everything about a run that can be wrong is found wrong here, before a directory is made for it."""
    if seed < 0:
        raise UsageError(f"--seed must not be negative, not {seed}")
    n_clusters = clusters if clusters is not None else sources.default_clusters(data) or 8
    class_prior = check_prior(_parse_prior(prior), n_clusters)
    chosen = get_method(method)
    if chosen.needs_rules:
        raise UsageError(f"{method!r} learns from rules, which have no command: use GEDI.fit_examples in Python")
    wanted = chosen.settings(**changes)  # what is wrong with them is said before data is read
    check_like(like)
    on_gpu = resolve_device(device).type == "cuda"
    dataset = read_data(data, seed, image_size=image_size)
    check_rows(dataset.x, n_clusters)
    asked = wanted.image_shape or dataset.image_shape or ()
    forced = wanted.network == "resnet8"
    settings = chosen.settings_for(asked, data, on_gpu=on_gpu, like=like, forced=forced, **changes)
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
    dataset = rows_of(config, data or config.source)
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
            options=Settings().replace(**config.settings).as_dict(),  # what it does not name is not up to recipes
            random_state=config.seed,
            device=config.device,
        )
        with ProgressLine(console) as line:
            shown = _watching(line, run, config, evaluate_every, len(dataset.x))
            with RunRecorder(run, config, shown) as recorder:
                model.fit_observed(dataset.x, recorder, checkpoint, run.history(up_to=at))
        model.save(run.model_path)
    fitted = load_run(run.path, config.device)
    with console.status("writing the report") if console.is_terminal else nullcontext():
        rows = write_predictions(fitted, iter([sources.Block(dataset.x, dataset.names)]), run.labels_path)
        verdict = write_report(run, config, fitted, dataset)
    run.forget_checkpoints()
    console.print(f"{verdict.verdict}: {verdict.explanation}", style="green" if verdict.healthy else "yellow")
    if not verdict.healthy:
        console.print(verdict.advice)
    console.print(f"clusters of {rows} {'pictures' if dataset.names else 'rows'}: {run.labels_path}")
    console.print(f"report: {run.report_path}")


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
    return measured.TestSetWatch(line, run, other_rows(config, config.source), every)


def _parse_prior(text: str | None) -> NDArray[np.float64] | None:
    if text is None:
        return None
    try:
        return np.array([float(v) for v in text.split(",")])
    except ValueError:
        raise UsageError(f"--prior takes numbers separated by commas, not {text!r}") from None
