"""Reports on short fits."""

import pytest

from gedikit.estimator import GEDI
from gedikit.evaluation import clustering_metrics
from gedikit.report import ReportData
from gedikit.tables import TableEncoding


@pytest.fixture(scope="session")
def report_of():
    def make(x, y=None, n_clusters=2, *, image_shape=None, columns=None, title="a title", **params):
        model = GEDI(n_clusters, max_iter=50, random_state=0, device="cpu", **params).fit(x)
        figures = [] if y is None else clustering_metrics(y, model.labels_, "all rows", labels_by="posterior")
        return ReportData(
            title=title,
            fitted=model.fitted_,
            x=x,
            predictions=model.fitted_.predictions(x),
            labels=y,
            image_shape=image_shape,
            history=model.history_,
            optima=model.fitted_.info["optima"],
            diagnosis=model.diagnose(),
            metrics=figures,
            encoding=None if columns is None else TableEncoding.of_numbers(columns),
        )

    return make
