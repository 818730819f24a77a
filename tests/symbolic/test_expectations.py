"""What rows show by a rule, against going through all that they could show."""

from itertools import product

import numpy as np
import torch

from gedikit.symbolic import Constraint, Examples, Symbols, expected_of_rows


def test_rows_show_what_enumeration_says_with_gaps_doubts_weights_and_examples_that_do_not_hold():
    rule = Constraint(lambda a, b, s: a + b == s, domains=(3, 3, 5))
    a, b, s = [0, 1, 2, 0], [3, 4, 0, 5], [2, 3, None, 1]
    holds, probability, weights = [True, False, True, True], [1.0, 1.0, 0.8, 0.6], [1.0, 2.0, 1.0, 0.5]
    examples = Examples(rule, {"a": a, "b": b, "s": s}, holds=holds, probability=probability, weights=weights)
    p = np.random.default_rng(0).dirichlet(np.ones(3), 6)
    found = expected_of_rows(examples.of(Symbols.of({"digit": 3})), torch.from_numpy(p).log())
    expected = np.zeros_like(p)
    for i, (row_a, row_b, total) in enumerate(zip(a, b, s, strict=True)):
        of = np.zeros((3, 3))
        for x, y, z in product(range(3), range(3), range(5) if total is None else [total]):
            said = probability[i] if (x + y == z) == holds[i] else 1 - probability[i]
            of[x, y] += p[row_a, x] * p[row_b, y] * said
        expected[row_a] += weights[i] * of.sum(1) / of.sum()
        expected[row_b] += weights[i] * of.sum(0) / of.sum()
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)
