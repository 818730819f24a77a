import numpy as np
import pytest
import torch

from gedikit.data import sources
from gedikit.data.addition import addition_examples
from gedikit.data.geometry import nearest_in_space
from gedikit.methods import get_method
from gedikit.symbolic import Constraint
from gedikit.training import fit
from gedikit.training.reading import first_reading
from gedikit.training.rules import Rules

CPU = torch.device("cpu")


def addition() -> Constraint:
    return Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))


@pytest.fixture(scope="module")
def digits():
    data = sources.load("digits")
    return np.asarray(data.x, dtype=np.float32), np.asarray(data.y)


def read(x, rules, starts=150):
    return first_reading(lambda rows, k: nearest_in_space(x[rows], k), rules, len(x), 0, CPU, starts)


def test_sums_alone_tell_most_digits(digits):
    x, y = digits
    examples = addition_examples(y, 60, 0)
    reading = read(x, Rules(addition(), examples))
    rows = np.unique(examples)
    assert (reading[rows].argmax(-1).numpy() == y[rows]).mean() > 0.85
    torch.testing.assert_close(reading[rows].sum(-1), torch.ones(len(rows)))
    others = np.setdiff1d(np.arange(len(x)), rows)
    assert not reading[others].any()


def test_training_begins_from_the_reading_and_goes_on_with_the_rule(digits):
    x, y = digits
    examples = addition_examples(y, 40, 0)
    method = get_method("gedi-symbols")
    settings = method.settings(iterations=20, log_every=1, batch_size=60, hidden=(16,), features=8, frequencies=8)
    _, history, _ = fit(x, method, settings, n_clusters=10, seed=0, device="cpu", rules=Rules(addition(), examples))
    assert all("reading" in row and "constraint" not in row for row in history.rows[:8])
    assert all("constraint" in row and "reading" not in row for row in history.rows[8:])


def test_the_prior_is_that_of_the_rule(digits):
    x, y = digits
    method = get_method("nesy")
    settings = method.settings(iterations=1, batch_size=60)
    fitted, _, _ = fit(
        x,
        method,
        settings,
        n_clusters=10,
        seed=0,
        device="cpu",
        rules=Rules(addition(), addition_examples(y, 40, 0)),
    )
    np.testing.assert_allclose(fitted.prior, (21 - np.arange(10)) / 165, rtol=1e-6)
