from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from gedikit.data.addition import digits_of_sum, given_sums, redrawn_sums
from gedikit.data.equations import EVEN_ODD, HALF, equation_pairs
from gedikit.data.formulas import OPERATORS, drawn_operators, formulas, result
from gedikit.data.sudoku import all_boards, board_examples, is_valid, random_boards, units
from gedikit.errors import DataError, UsageError

LABELS = np.random.default_rng(0).integers(0, 10, 20_000)


def _number(digits):
    return int("".join(map(str, digits[::-1])))


@pytest.mark.parametrize("digits", [1, 4, 100])
def test_given_sums_are_those_of_the_numbers_shown_and_no_image_is_used_twice(digits):
    made = given_sums(LABELS, 100, 0, digits)
    assert len(np.unique(made.rows)) == made.rows.size == 200 * digits
    for rows, total in zip(made.rows, made.sums, strict=True):
        a, b = np.split(LABELS[rows], 2)
        assert _number(a.tolist()) + _number(b.tolist()) == _number(total.tolist())


def test_a_carry_runs_through_all_places():
    nines, one = np.full((1, 50), 9), np.eye(1, 50, dtype=int)
    assert digits_of_sum(nines, one).tolist() == [[0] * 50 + [1]]


def test_sums_to_test_on_share_images_but_none_has_one_twice():
    made = redrawn_sums(LABELS[:250], 300, 0, 100)
    assert all(len(np.unique(rows)) == 200 for rows in made.rows)
    counts = np.bincount(made.rows.ravel(), minlength=250)  # 240 expected of each
    assert counts.min() > 200 and counts.max() < 280
    assert (made.rows[0] != made.rows[1]).any()


def test_too_few_images_for_sums_are_a_sentence():
    with pytest.raises(DataError, match="need 400 images, and there are 300"):
        given_sums(LABELS[:300], 2, 0, 100)
    with pytest.raises(DataError, match="needs 200 images, and there are 100"):
        redrawn_sums(LABELS[:100], 2, 0, 100)


def test_the_equations_are_those_of_rsbench():
    assert sorted(a + b for a, b in EVEN_ODD) == [6, 6, 10, 10, 10, 10, 12, 12]
    assert {d for pair in EVEN_ODD for d in pair} == set(range(10))
    assert all((a - b) % 2 == 0 for a, b in EVEN_ODD)
    assert {d for pair in HALF for d in pair} == set(range(5))
    assert sorted(a + b for a, b in HALF) == [0, 1, 5, 6]


@pytest.mark.parametrize("equations", [EVEN_ODD, HALF])
def test_pairs_are_of_the_equations_alike(equations):
    made = equation_pairs(LABELS, equations, 2000, seed=1)
    shown = LABELS[made.rows]
    assert (shown.sum(1) == made.sums).all()
    assert len(np.unique(made.rows)) == made.rows.size
    found, counts = np.unique(shown, axis=0, return_counts=True)
    assert {tuple(pair) for pair in found.tolist()} == set(equations)
    expected = 2000 / len(equations)
    assert (np.abs(counts - expected) < 5 * expected**0.5).all()


def test_there_are_288_small_boards():
    boards = all_boards()
    assert len(np.unique(boards, axis=0)) == 288
    for unit in units(4):
        assert (np.sort(boards[:, unit], axis=1) == [1, 2, 3, 4]).all()


@pytest.mark.parametrize("side", [4, 9])
def test_units_are_lines_columns_and_blocks(side):
    found = units(side)
    assert found.shape == (3 * side, side)
    assert (np.bincount(found.ravel()) == 3).all()
    block = round(side**0.5)
    first_block = found[2 * side]
    corner = {(i, j) for i in range(block) for j in range(block)}
    assert {(cell // side, cell % side) for cell in first_block} == corner
    for kind in range(3):
        of_kind = found[kind * side : (kind + 1) * side]
        assert all(not set(a) & set(b) for a, b in combinations(of_kind.tolist(), 2))


@pytest.mark.parametrize("side", [4, 9])
def test_drawn_boards_are_valid_and_differ(side):
    boards = random_boards(side, 100, seed=0)
    assert is_valid(boards).all()
    assert boards.min() == 1 and boards.max() == side
    assert len(np.unique(boards, axis=0)) > 60
    wrong = boards.copy()
    wrong[:, [0, 1]] = wrong[:, [1, 0]]
    assert not is_valid(wrong).any()


def test_images_of_boards_show_them():
    rows = board_examples(LABELS, 4, 200, seed=0)
    assert is_valid(LABELS[rows]).all()
    assert len(np.unique(rows)) == rows.size


def test_boards_of_other_sizes_are_refused():
    with pytest.raises(UsageError, match="side 4 or 9, not 6"):
        random_boards(6, 1, 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("1+2×3", 7), ("8÷4÷2", 1), ("9−3−2", 4), ("1−2×3÷4", Fraction(-1, 2)), ("6÷4×2+1", 4)],
)
def test_formulas_have_their_precedence(text, value):
    digits, operators = [int(c) for c in text[::2]], [OPERATORS.index(c) for c in text[1::2]]
    assert result(digits, operators) == value


def test_formulas_agree_with_python():
    made = formulas(LABELS, 400, seed=0)
    assert [f.digits.shape for f in made] == [(100, d) for d in range(1, 5)]
    rows = np.concatenate([f.digits.ravel() for f in made])
    assert len(np.unique(rows)) == len(rows) and LABELS[rows].min() == 1
    for part in made:
        for digits, operators, value in zip(part.digits, part.operators, part.results, strict=True):
            words = [f"Fraction({d})" for d in LABELS[digits]]
            text = words[0] + "".join("+-*/"[o] + w for o, w in zip(operators, words[1:], strict=True))
            assert eval(text) == value


@pytest.mark.parametrize("side", [8, 28])
def test_operators_are_drawn_so_that_their_nearest_neighbours_are_alike(side):
    which = np.arange(800) % 4
    pictures = drawn_operators(which, side, seed=0).astype(float)
    other = drawn_operators(which, side, seed=1).astype(float)
    squared = (pictures**2).sum(1)[:, None] + (other**2).sum(1) - 2 * pictures @ other.T
    assert (which[squared.argmin(1)] == which).mean() > 0.9
    assert len(np.unique(pictures, axis=0)) == 800
    assert (pictures.max(1) > 200).mean() > 0.9 and pictures.mean() < 64
