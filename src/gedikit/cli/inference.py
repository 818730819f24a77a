"""The commands that use a trained model."""

import csv
import hashlib
import io
import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gedikit import diagnosis
from gedikit.cli import measuring
from gedikit.cli.loading import (
    check_labels_from,
    holds_pictures,
    image_shape_of,
    is_folder,
    load_run,
    new_rows,
    other_rows,
    rows_of,
    tell_left_out,
    title_of,
)
from gedikit.cli.output import cell, console, open_output, open_text_output, output_format, output_name
from gedikit.data import sources
from gedikit.data.duplicates import near_duplicates
from gedikit.data.shard_pictures import STOP, check_bad
from gedikit.errors import DataError, UsageError
from gedikit.evaluation import as_pixels
from gedikit.fitted import FittedModel, Predictions
from gedikit.processes import check_alike, each, exchanged, is_first, n_processes, own_share, rank, to_first
from gedikit.report import ReportData, render
from gedikit.report.inputs import diagnosed_rows
from gedikit.report.rules import RuleSections
from gedikit.report.samples import samples_png
from gedikit.runs import Run, RunConfig
from gedikit.storage import regular_or_new, write_text
from gedikit.training.fit import fingerprint


def predict(path: Path, data: str, output: Path, device: str, bad_shards: str | None = None) -> None:
    """Several processes predict portions of the rows in turns; the first one writes all of them."""
    bad = STOP if bad_shards is None else check_bad(bad_shards)
    fitted = each(lambda: load_run(path, device))
    if n_processes() > 1:
        with Run(path).model_path.open("rb") as file:
            model = f"a model with digest {hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
        check_alike({"model": model, "data": each(lambda: sources.extent(data))})
    began = time.monotonic()
    portions = new_rows(Run(path).config(), data, device, bad, own_share())
    rows, skipped = write_predictions(fitted, (_predicted(fitted, blocks, data) for blocks in portions), output)
    seconds = max(time.monotonic() - began, 1e-9)
    tell_left_out(skipped)
    things = "pictures" if holds_pictures(data) else "rows"
    console.print(f"{rows} {things} to {output_name(output)} in {seconds:.1f} s ({rows / seconds:,.0f} {things}/s)")


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
    ending = output_format(output)
    if ending not in (".npz", ".csv", ".png"):
        raise UsageError(f"samples are written as .npz, .csv or .png, not as {ending or 'no ending'!r}")
    fitted = load_run(path, device)
    made, info = fitted.sample(n, steps=steps, start=start, cluster=cluster, seed=seed)
    y = fitted.labels(made)
    config = Run(path).config()
    shape = config.image_shape
    x: NDArray[Any] = as_pixels(made) if shape else made
    if ending == ".npz":
        with open_output(output) as file:
            np.savez_compressed(file, x=x.reshape(-1, *shape) if shape else x, y=y)
    elif ending == ".csv":
        names = config.columns or tuple(f"x{i}" for i in range(x.shape[1]))
        table = pd.DataFrame(x, columns=names) if config.encoding is None else config.encoding.decode(x)
        table[_free("cluster", list(table.columns))] = y
        table = table.rename(columns=cell).apply(lambda column: column.map(cell) if _has_text(column) else column)
        with open_text_output(output) as text:
            table.to_csv(text, index=False, float_format="%.9g", lineterminator="\n")
    else:
        image = image_shape_of(config)
        if image is None and x.shape[1] != 2:
            raise UsageError(f"a picture needs two features or images, not {x.shape[1]} features: use .csv or .npz")
        png = samples_png(x, y, image)
        with open_output(output) as file:
            file.write(png)
    chains = f"acceptance {info.acceptance:.2f}, step {info.step_size:.3g}, temperature {info.temperature:.3g}"
    how = chains if info.step_size else "drawn without chains"
    console.print(f"{n} samples to {output_name(output)} ({how})")


def evaluate(
    path: Path,
    data: str,
    device: str,
    *,
    probes: bool,
    fid: int,
    outside: list[str],
    steps: int,
    seed: int,
    labels_from: str | None = None,
) -> None:
    fitted = load_run(path, device)
    run = Run(path)
    config = run.config()
    dataset = other_rows(run, config, data, None if labels_from is None else check_labels_from(labels_from, data))
    _check_width(dataset.x, fitted, data)
    others = {name: measuring.outside_rows(name, dataset, seed) for name in outside}
    further = []
    if fid:
        further += measuring.fid_metrics(fitted, rows_of(run, config, data), fid, steps, seed)
    if probes:
        further += measuring.probe_metrics(fitted, *_probed(run, config, data, dataset, seed), seed)
    if outside:
        further += measuring.outlier_metrics(fitted, dataset, others)
    metrics = [*measuring.headline_metrics(fitted, dataset), *further]
    if dataset.y is None:
        asked = "; --labels-from folders takes its sub-folders for labels" if is_folder(data) else ""
        console.print(f"{data} has no labels: no NMI, AMI, ARI or ACC{asked}")
    named = {f.name: {"value": f.value, "protocol": f.protocol} for f in metrics}
    sys.stdout.write(json.dumps(named, indent=2) + "\n")


def diagnose(path: Path, data: str | None, as_json: bool) -> None:
    run = Run(path)
    fitted = load_run(path, "cpu")
    config = run.config()
    dataset = other_rows(run, config, data)
    _check_width(dataset.x, fitted, dataset.name)
    result = _diagnosis(run, fitted, dataset)
    sys.stdout.write((json.dumps(result.as_dict(), indent=2) if as_json else str(result)) + "\n")


def report(path: Path, data: str | None = None) -> Path:
    run = Run(path)
    config = run.config()
    fitted = load_run(path, "cpu")
    dataset = rows_of(run, config, data)
    if data is not None and fingerprint(dataset.rows) != config.fingerprint:
        raise UsageError(f"{path} was trained on other data than is in {data}")
    write_report(run, config, fitted, dataset, fitted.predictions(dataset.x))
    return run.report_path


def write_report(
    run: Run,
    config: RunConfig,
    fitted: FittedModel,
    dataset: sources.Dataset,
    predictions: Predictions,
    rules: RuleSections | None = None,
) -> diagnosis.Diagnosis:
    """Write the page about the data the run was trained on; returns the verdict on it."""
    # built-in shapes have points the training never saw; a file is all there is
    held_out = other_rows(run, config, config.source) if config.source in sources.BUILTIN else dataset
    verdict = _diagnosis(run, fitted, held_out)
    page = render(
        ReportData(
            title=title_of(config.source),
            fitted=fitted,
            x=dataset.x,
            predictions=predictions,
            labels=dataset.y,
            image_shape=dataset.image_shape,
            history=run.history().rows,
            optima=fitted.info["optima"],
            diagnosis=verdict,
            metrics=measuring.headline_metrics(fitted, held_out),
            encoding=dataset.encoding,
            ids=dataset.ids,
            names=dataset.names,
            skipped=dataset.skipped,
            folder=dataset.folder,
            pixels=dataset.pixels,
            duplicates=() if dataset.folder is None else near_duplicates(np.asarray(dataset.sketches)),
            evaluations=tuple(run.evaluations()),
            of_rows=None if dataset.stored is None else len(dataset.stored),
            rules=rules,
        )
    )
    write_text(regular_or_new(run.report_path), page)
    return verdict


def _probed(
    run: Run, config: RunConfig, data: str, dataset: sources.Dataset, seed: int
) -> tuple[sources.Dataset, sources.Dataset]:
    """Rows to train probes on and others to test them on: the splits of a built-in data set, else halves."""
    if data in sources.BUILTIN:
        return rows_of(run, config, data), dataset
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


def _diagnosis(run: Run, fitted: FittedModel, dataset: sources.Dataset) -> diagnosis.Diagnosis:
    rows = run.history().rows
    return diagnosis.diagnose(fitted, diagnosed_rows(fitted, dataset.x), rows[-1] if rows else None)


Predicted = tuple[sources.Block, Predictions]
_COLUMNS = ["cluster", "confidence", "log_density", "outlier_score"]


def _predicted(fitted: FittedModel, blocks: Iterable[sources.Block], name: str) -> Iterator[Predicted]:
    """What the model says of rows, without the rows."""
    for block in blocks:
        if len(block.x):
            _check_width(block.x, fitted, name)
        yield replace(block, x=np.empty((0, 0))), fitted.predictions(block.x)


def write_predictions(
    fitted: FittedModel, portions: Iterable[Iterable[Predicted]], output: Path
) -> tuple[int, list[tuple[str, str]]]:
    """Stream predictions into a CSV, pictures with their names, rows with their ids.

    Of several processes each has portions in its turn, and the first one writes. Returns the number of rows, and
    what was left out.
    """
    own, rows, skipped = iter(portions), 0, dict[tuple[str, str], None]()
    with open_output(output) if is_first() else nullcontext() as file:
        while True:
            portion = each(lambda: None if (blocks := next(own, None)) is None else list(blocks))
            told = [[len(found.labels), block.skipped] for block, found in portion or ()]
            said = exchanged(None if portion is None else told)
            if not any(portion is not None for portion in said):
                break
            counts = [sum(n for n, _ in portion or ()) for portion in said]
            skipped |= dict.fromkeys((name, why) for some in said for _, left in some or () for name, why in left)
            before = rows + sum(counts[: rank()])
            for content in to_first(_as_text(fitted, portion or [], before).encode()):
                assert file is not None
                file.write(content)
                file.flush()  # a reader has each portion as soon as it is done
            rows += sum(counts)
        if not rows:
            why = "".join(f"; {name}: {why}" for name, why in list(skipped)[:1])
            raise DataError(f"there is no row that can be read{why}")
    if not fitted.models_density:
        console.print(f"{fitted.method!r} learns no density: log_density and outlier_score are left empty")
    return rows, list(skipped)


def _as_text(fitted: FittedModel, portion: Iterable[Predicted], row: int) -> str:
    """Lines of a CSV from a row on, under their header if it is the first one."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for block, found in portion:
        n, strange = len(found.labels), found.outlier_score
        ids = pd.DataFrame() if block.ids is None else block.ids
        if row == 0 and n:
            named = [_free(str(name), ["row", *_COLUMNS]) for name in ids.columns]
            writer.writerow([*(["row", "file"] if block.names else ["row"]), *map(cell, named), *_COLUMNS])
        shown = [
            range(row, row + n),
            *([list(map(cell, block.names))] if block.names else []),
            *(map(cell, ids[name].where(ids[name].notna(), "").tolist()) for name in ids.columns),
            found.labels.tolist(),
            [f"{v:.6f}" for v in found.confidence.tolist()],
            [f"{v:.6g}" for v in found.log_density.tolist()] if fitted.models_density else [""] * n,
            [f"{v:.6f}" for v in strange.tolist()] if fitted.models_density else [""] * n,
        ]
        writer.writerows(zip(*shown, strict=True))
        row += n
    return text.getvalue()


def _has_text(column: "pd.Series[Any]") -> bool:
    return not pd.api.types.is_numeric_dtype(column.dtype)


def _free(name: str, taken: list[str]) -> str:
    """A name for a column beside others."""
    while name in taken:
        name += "_"
    return name


def _check_width(x: NDArray[Any], fitted: FittedModel, name: str) -> None:
    if x.shape[1] != fitted.n_features:
        shape = fitted.plan.config.data.image_shape
        images = f" ({' × '.join(map(str, shape))}: images)" if shape else ""
        raise DataError(f"{name} has {x.shape[1]} features; the model was trained on {fitted.n_features}{images}")
