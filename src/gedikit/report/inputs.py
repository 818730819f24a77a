"""What a report is made from."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gedikit.data.sources import Pixels
from gedikit.diagnosis import Diagnosis
from gedikit.evaluation import Metric
from gedikit.fitted import FittedModel, Predictions
from gedikit.groups import GroupProfiles, Rivals
from gedikit.groups.cells import numbered_columns
from gedikit.tables import TableEncoding

if TYPE_CHECKING:
    from gedikit.report.rules import RuleSections


@dataclass(frozen=True)
class ReportData:
    title: str
    fitted: FittedModel
    x: NDArray[Any]  # the rows the report is about, in the units of the data
    predictions: Predictions  # of these rows
    labels: NDArray[Any] | None  # true labels, only to show agreement with them
    image_shape: tuple[int, int, int] | None  # height, width, channels: rows are images flattened in that order
    history: list[dict[str, float]]
    optima: dict[str, float]
    diagnosis: Diagnosis
    metrics: list[Metric]
    encoding: TableEncoding | None = None  # of the table that rows stand for
    ids: pd.DataFrame | None = None  # of the rows, by columns that are passed through
    names: tuple[str, ...] = ()  # of the rows
    skipped: tuple[tuple[str, str], ...] = ()  # files that could not be read, and why
    evaluations: tuple[dict[str, float], ...] = ()  # on labelled rows during the training
    of_rows: int | None = None  # how many there are, where x is some of them
    folder: Path | None = None  # of pictures: where those with these names are
    pixels: Pixels | None = None  # where x are features of pictures: these
    duplicates: tuple[tuple[int, ...], ...] = ()  # rows of pictures that look the same
    rules: "RuleSections | None" = None  # of a fit that learned from rules: what they say of the rows

    @property
    def of_pictures(self) -> bool:
        return self.image_shape is not None or self.pixels is not None or self.folder is not None

    @property
    def images(self) -> NDArray[Any]:
        """Pictures as rows of pixels, where x or `pixels` have them."""
        return self.x if self.pixels is None else self.pixels.rows

    @property
    def shown_shape(self) -> tuple[int, int, int] | None:
        """Height, width and channels of `images`."""
        return self.image_shape if self.pixels is None else self.pixels.shape

    @cached_property
    def table(self) -> TableEncoding:
        """Of any rows; those of an array have numbered columns."""
        return self.encoding or numbered_columns(self.fitted.n_features)

    @cached_property
    def profiles(self) -> GroupProfiles:
        """Of the rows, or of all training rows where x is some of them."""
        kept = self.fitted.info.get("groups")
        if self.of_rows is not None and kept is not None:
            return GroupProfiles.from_tree(kept)
        described = None if self.of_pictures else self.table
        return GroupProfiles.of(self.x, self.predictions.labels, self.fitted.n_clusters, described)

    @cached_property
    def rivals(self) -> Rivals | None:
        kept = self.fitted.info.get("rivals")
        return None if kept is None else Rivals.from_tree(kept)

    def row_name(self, row: int) -> str:
        return self.names[row] if self.names else f"row {row}"


def diagnosed_rows(fitted: FittedModel, x: NDArray[Any]) -> NDArray[Any]:
    """As many rows as a verdict looks at; a file may be sorted by class."""
    some = np.random.default_rng(0).permutation(len(x))[: fitted.plan.config.data.diagnosed_rows]
    chosen: NDArray[Any] = x[np.sort(some)]
    return chosen
