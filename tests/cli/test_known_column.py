"""Labels of some rows from a column of a table."""

import numpy as np
import pandas as pd
import pytest

from gedikit.cli.fitting import planned
from gedikit.cli.request import FitRequest
from gedikit.errors import UsageError


def test_a_column_of_a_few_labels_names_the_clusters(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [80, 40])
    table = pd.DataFrame(rng.normal(np.c_[9.0 * y, 0 * y], 1.0), columns=["a", "b"])
    table["kind"] = ""
    table.loc[[0, 3], "kind"] = "small"
    table.loc[[90, 91], "kind"] = "large"
    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)
    made = planned(str(path), FitRequest(known="kind"))
    assert made.asked.known.labels[[0, 3, 90, 91]].tolist() == [1, 1, 0, 0], "values in order: large, small"
    assert (made.asked.known.labels >= 0).sum() == 4
    assert made.config.plan.prior == pytest.approx((1 / 3, 2 / 3)), "the cluster of a label has its number"
    assert "known-labels" in made.config.plan.terms
    with pytest.raises(UsageError, match="--known and --label are both about the column of labels"):
        planned(str(path), FitRequest(known="kind", label="b"))
