import numpy as np
import pytest

from gedikit.data.addition import addition_examples, long_addition_examples
from gedikit.errors import DataError

LABELS = np.random.default_rng(0).integers(0, 10, 60_000)


def test_the_third_image_is_the_sum_and_no_image_is_used_twice():
    rows = addition_examples(LABELS, 10_000, seed=1)
    a, b, c = LABELS[rows].T
    assert (a + b == c).all()
    assert len(np.unique(rows)) == rows.size


def test_pairs_are_uniform_so_digits_have_the_marginals_of_the_constraint():
    digits = LABELS[addition_examples(LABELS, 10_000, seed=2)]
    pairs, counts = np.unique(digits[:, :2], axis=0, return_counts=True)
    assert len(pairs) == 55
    assert (np.abs(counts - 10_000 / 55) < 5 * np.sqrt(10_000 / 55)).all()
    share = np.bincount(digits.ravel(), minlength=10) / digits.size
    np.testing.assert_allclose(share, (21 - np.arange(10)) / 165, atol=0.01)


def test_the_same_seed_gives_the_same_examples_and_another_others():
    one, same, other = (addition_examples(LABELS, 100, seed=s) for s in (3, 3, 4))
    assert (one == same).all()
    assert (one != other).any()


def test_too_few_images_are_a_sentence():
    with pytest.raises(DataError, match="images of the digit 0, and there are"):
        addition_examples(LABELS[:300], 200, seed=0)


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_longer_numbers_add_up_too(digits):
    shown = LABELS[long_addition_examples(LABELS, 500, 0, digits)]
    powers = 10 ** np.arange(digits + 1)
    a, b, c = np.split(shown, [digits, 2 * digits], axis=1)
    np.testing.assert_array_equal(a @ powers[:-1] + b @ powers[:-1], c @ powers)
    rows = long_addition_examples(LABELS, 500, 0, digits)
    assert len(np.unique(rows)) == rows.size
