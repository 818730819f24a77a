"""Groups and rows of the user's table on the page: in its own columns, types and units."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gedikit.groups.cells import MISSING, TRUE, ColumnValues, column_values, number, percent, written
from gedikit.groups.profiles import ColumnProfile, GroupProfiles
from gedikit.report.findings import Findings
from gedikit.report.inputs import ReportData
from gedikit.report.style import cluster_color
from gedikit.report.tables import Cell, HtmlTable, diverging, greyed

_MAX_COLUMNS = 24
_TOLD = 4  # contrasts of a group
_FREQUENT = 3  # categories
_STRANGEST = 12
_REASONS = 3
_REASON = 0.15  # share of what makes a row strange that a column must have
_FEW = 6  # columns whose values fit into a line
_GENERATED = 10
_SAMPLED_COLUMNS = 12


@dataclass(frozen=True)
class GroupCard:
    cluster: int
    color: str
    size: str
    share: str
    apart: list[str]


def group_cards(profiles: GroupProfiles) -> list[GroupCard]:
    """What sets each group apart."""
    return [
        GroupCard(
            k,
            cluster_color(k),
            f"{size:,}",
            percent(float(profiles.shares[k])),
            profiles.apart_if_at_all(k, _TOLD),
        )
        for k, size in enumerate(profiles.sizes)
    ]


def profile_table(profiles: GroupProfiles) -> HtmlTable:
    """Medians, shares and ranges of every column in every group, shaded by how unlike all rows they are."""
    used = [k for k, size in enumerate(profiles.sizes) if 0 < size < sum(profiles.sizes)]
    shown = profiles.columns
    note = ""
    if len(shown) > _MAX_COLUMNS:
        telling = [c.column for own in profiles.contrasts for c in own]
        order = sorted(range(len(shown)), key=lambda j: -telling.count(shown[j].column.name))
        shown = tuple(shown[j] for j in sorted(order[:_MAX_COLUMNS]))
        note = f"The {_MAX_COLUMNS} of {profiles.n_columns} columns that set clusters apart most."
    rows = [[Cell("rows"), *(Cell(f"{profiles.sizes[k]:,}") for k in used), Cell(f"{sum(profiles.sizes):,}")]]
    for profile in shown:
        cells = [_cell(profile, k) for k in used]
        rows.append([Cell(profile.column.name), *cells, replace(_cell(profile, -1), shade="")])
    return HtmlTable(["column", *(f"cluster {k}" for k in used), "all rows"], rows, note)


def _cell(profile: ColumnProfile, group: int) -> Cell:
    column, numbers = profile.column, profile.numbers
    missing = profile.shares.get(MISSING)
    gaps = [f"{percent(missing[group])} missing"] if missing is not None and missing[group] > 0 else []
    if numbers:
        low, middle, high = (values[group] for values in numbers.values())
        lowest, overall, highest = (values[-1] for values in numbers.values())
        away = (middle - overall) / ((highest - lowest) or 1.0)
        spread = f"{written(column, low)} to {written(column, high)}"
        return Cell(written(column, middle), diverging(away), ", ".join([spread, *gaps]))
    if column.kind == "boolean":
        true = profile.shares[TRUE]
        return Cell(f"{percent(true[group])} true", diverging(2 * (true[group] - true[-1])), ", ".join(gaps))
    own = {name: float(shares[group]) for name, shares in profile.shares.items()}
    frequent = [name for name in sorted(own, key=lambda name: -own[name])[:_FREQUENT] if own[name] > 0]
    first, *others = (f"{name} {percent(own[name])}" for name in frequent)
    unlike = max(abs(own[name] - float(shares[-1])) for name, shares in profile.shares.items())
    return Cell(first, greyed(2 * unlike), ", ".join(others))


def strangest(data: ReportData, found: Findings) -> HtmlTable | None:
    """The strangest rows, each with the columns that make it so, or where none can be named with its values."""
    if found.log_density is None or found.outlier_score is None:
        return None
    order = found.strangest_first()[:_STRANGEST]
    columns = list(column_values(data.table, data.x[order]))
    why = _reasons(data, data.x[order])
    typical = {profile.column.name: profile for profile in data.profiles.columns}
    lines = []
    for place, i in enumerate(order.tolist()):
        cluster = int(found.clusters[i])
        told = [
            f"{values.column.name} = {_value(values, place)}"
            + ("" if why is None else _usual(values, place, typical.get(values.column.name), cluster))
            for values in (columns[:_FEW] if why is None else [columns[j] for j in why[place]])
        ]
        known = [] if data.of_rows is not None else [str(i)]
        known += [] if data.ids is None else [str(value) for value in data.ids.iloc[i].tolist()]
        known += [str(cluster), *([f"{found.log_density[i]:.2f}"] if why is None else [])]
        lines.append([Cell(text) for text in (*known, f"{found.outlier_score[i]:.3f}", "; ".join(told))])
    head = [] if data.of_rows is not None else ["row (from 0)"]
    head += [] if data.ids is None else [str(name) for name in data.ids.columns]
    head += ["cluster", *(["log-density"] if why is None else [])]  # where that is what makes rows strange
    return HtmlTable([*head, "outlier score", "values" if why is None else "mainly because of"], lines)


def _reasons(data: ReportData, rows: NDArray[np.generic]) -> list[list[int]] | None:
    """The columns that add most to how strange each row is, where the model can tell."""
    if data.fitted.outliers is None:
        return None
    added = data.fitted.outliers.reasons(data.fitted.to_scaled(np.asarray(rows)))
    origins = data.table.origins
    names = [column.name for column in data.table.learned]
    of_columns = np.stack([added[:, [o == name for o in origins]].sum(1) for name in names], axis=1)
    found = []
    for row in of_columns:
        order = np.argsort(-row, kind="stable")[:_REASONS].tolist()
        total = max(float(row[row > 0].sum()), 1e-12)
        found.append([j for j in order if row[j] >= _REASON * total] or order[:1])
    return found


def _usual(values: ColumnValues, row: int, profile: ColumnProfile | None, cluster: int) -> str:
    """What the cluster has in a column, beside the value of a row."""
    if profile is None:
        return ""
    if MISSING in values.outcomes and values.outcomes[MISSING][row] > 0:
        return f" (as in {percent(profile.shares[MISSING][cluster])} of its cluster)"
    if profile.numbers:
        return f" (cluster median {written(profile.column, profile.numbers['median'][cluster])})"
    return f" (cluster mostly {_cell(profile, cluster).text})"


def _value(values: ColumnValues, row: int) -> str:
    """One cell of the table, as it is written."""
    if values.numbers is not None and np.isfinite(values.numbers[row]):
        return written(values.column, float(values.numbers[row]))
    if values.column.kind == "boolean" and np.isfinite(values.outcomes[TRUE][row]):
        return "true" if values.outcomes[TRUE][row] > 0.5 else "false"
    return next((name for name, has in values.outcomes.items() if name != TRUE and has[row] > 0), "–")


def generated(data: ReportData) -> HtmlTable | None:
    """New rows, in the columns and types of the table."""
    if not data.fitted.models_density:
        return None
    made, _ = data.fitted.sample(_GENERATED, seed=0)
    clusters = data.fitted.labels(made)
    order = np.argsort(clusters, kind="stable")
    frame = data.table.decode(made[order])
    shown = list(frame.columns[:_SAMPLED_COLUMNS])
    decimals = {column.name: column.decimals for column in data.table.columns}
    rows = [
        [Cell(str(clusters[i])), *(Cell(_as_text(frame[name].iloc[place], decimals[name])) for name in shown)]
        for place, i in enumerate(order)
    ]
    note = f"The first {len(shown)} of {frame.shape[1]} columns." if frame.shape[1] > len(shown) else ""
    return HtmlTable(["cluster", *shown], rows, note)


def _as_text(value: Any, decimals: int | None) -> str:
    """A value of a table in a cell."""
    if pd.isna(value):
        return "missing"
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, pd.Timestamp):
        return str(value.date() if value == value.normalize() else value.round("s"))
    if isinstance(value, int | float | np.number):
        return number(float(value)) if decimals is None else f"{value:.{decimals}f}"
    return str(value)
