"""What a fitted estimator shows of itself: drawings, a report, and a profile of each cluster."""

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gedikit.diagnosis import diagnose
from gedikit.errors import DataError
from gedikit.fitted import FittedModel, Predictions
from gedikit.groups import GroupProfiles
from gedikit.groups.cells import numbered_columns
from gedikit.storage import write_text
from gedikit.tables import TableEncoding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gedikit.report.charts import Drawing


class PresentationMixin:
    """Plots, report and profile of an estimator that says what it has fitted and how it reads rows."""

    encoding_: TableEncoding | None
    history_: list[dict[str, Any]]

    @abstractmethod
    def _fitted(self) -> FittedModel:
        """The fitted model, or scikit-learn's error that there is none."""

    @abstractmethod
    def _validated(self, X: ArrayLike) -> NDArray[Any]:
        """Rows of X as the model was trained on."""

    def plot_clusters(self, X: ArrayLike | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw rows in the colours of their clusters: two columns as they are, more along principal components.

        Without X these are the training rows, or those of them that a loaded model keeps. Rows so far off that they
        would squeeze all others are drawn as rings at the edge. Without `ax` the axes belong to a new figure that
        pyplot does not know: `plot_clusters().figure.savefig("clusters.png")`.
        """
        from gedikit.report import charts

        return charts.clusters(self._drawing(X), ax)

    def plot_density(self, X: ArrayLike | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw how dense it is: a map of two columns, a curve of one, else how typical the rows are.

        X and `ax` as for `plot_clusters`.
        """
        from gedikit.report import charts

        return charts.density(self._drawing(X), ax)

    def plot_training(self, ax: "Axes | None" = None) -> "Axes":
        """Draw losses and signs of health over the training, each within `ax`, with their best values dashed."""
        from gedikit.report import charts

        fitted = self._fitted()
        return charts.training(charts.panels(fitted.plan, self.history_, fitted.info["optima"]), ax)

    def report(
        self, path: str | Path, X: ArrayLike | None = None, y: ArrayLike | None = None, title: str | None = None
    ) -> None:
        """Write what was found to one HTML file, as `gedikit fit` does.

        It is about the training rows, or about X, which also has their ids. A model that was loaded keeps some of
        its training rows and the profiles of all. Labels y, where they are known, are compared with the clusters.
        """
        from gedikit.report import ReportData, render
        from gedikit.report.inputs import diagnosed_rows
        from gedikit.report.measured import density_metrics, label_metrics

        fitted, place = self._fitted(), Path(path)
        x, predictions = self._shown(X)
        some = X is None and fitted.training_rows is None
        split = f"{len(x):,} rows" if X is not None else f"{len(x):,} training rows"
        labels = None if y is None else np.asarray(y)
        if labels is not None and len(labels) != len(x):
            raise DataError(f"there are {len(labels)} labels y of {len(x)} rows")
        metrics = density_metrics(fitted, x, split, self.encoding_)
        if labels is not None:
            metrics = [*label_metrics(fitted, labels, predictions.labels, split), *metrics]
        shape = fitted.plan.config.data.image_shape or fitted.plan.data.image_shape
        last = self.history_[-1] if self.history_ else None
        data = ReportData(
            title=title or place.stem,
            fitted=fitted,
            x=x,
            predictions=predictions,
            labels=labels,
            image_shape=(shape[0], shape[1], shape[2]) if shape else None,
            history=self.history_,
            optima=fitted.info["optima"],
            diagnosis=diagnose(fitted, diagnosed_rows(fitted, x), last),
            metrics=metrics,
            encoding=self.encoding_,
            ids=self.encoding_.ids(X) if self.encoding_ is not None and isinstance(X, pd.DataFrame) else None,
            of_rows=fitted.info["n_samples"] if some else None,
        )
        write_text(place, render(data))

    def _drawing(self, X: ArrayLike | None) -> "Drawing":
        from gedikit.report.charts import Drawing
        from gedikit.report.findings import find

        fitted = self._fitted()
        x, predictions = self._shown(X)
        return Drawing(fitted, self.encoding_ or numbered_columns(fitted.n_features), x, find(fitted, predictions))

    def _shown(self, X: ArrayLike | None) -> tuple[NDArray[Any], Predictions]:
        """Rows and what the model says of them: of X, else the training rows as far as they are there."""
        fitted = self._fitted()
        if X is None and fitted.training_rows is not None and fitted.training_predictions is not None:
            return fitted.training_rows[:], fitted.training_predictions
        x = fitted.scaler.inverse(fitted.reference.cpu().numpy()) if X is None else self._validated(X)
        return x, fitted.predictions(x)

    def _described(self) -> TableEncoding | None:
        """The columns that groups are described by; pixels are none."""
        made = self._fitted().plan
        if made.config.data.image_shape or made.data.image_shape:
            return None
        return self.encoding_ or numbered_columns(self._fitted().n_features)

    @property
    def profile_(self) -> pd.DataFrame:
        info = self._fitted().info
        if "groups" not in info:
            raise AttributeError("this model was saved before profiles were kept: fit it again to have profile_")
        return GroupProfiles.from_tree(info["groups"]).frame()
