import io
from dataclasses import replace
from fractions import Fraction
from math import factorial, log
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn.functional import one_hot

from gedikit.data.formulas import DIGITS, OPERATORS
from gedikit.errors import Interrupted, UsageError
from gedikit.estimator import GEDI
from gedikit.paper.reproduce import formulas, given_sums, rule_shortcuts, visual_sudoku
from gedikit.paper.reproduce.given_sums import PAGE, SumsTask, addition
from gedikit.paper.reproduce.rule_shortcuts import ShortcutsTask, known_shortcuts
from gedikit.paper.reproduce.running import Done, Request, run_all
from gedikit.paper.reproduce.tasks import VARIANTS, Selection, TaskFit, TaskResult, pictures, results_table
from gedikit.paper.reproduce.visual_sudoku import SudokuTask
from gedikit.planning import Asked, ExamplesProfile, plan
from gedikit.profile import DataProfile
from gedikit.symbolic import Symbols
from gedikit.training.callbacks import Callback, FitView

TINY = pictures("tiny")
QUIET = Console(quiet=True)


def reads(truth_of, change=lambda labels: labels):
    """A classifier that knows what every image shows, and may say something else."""

    def classify(x, kind):  # noqa: ARG001
        return change(np.array([truth_of[row.tobytes()] for row in np.asarray(x, dtype=float)]))

    return classify


@pytest.fixture
def truth():
    x, y = np.concatenate([TINY.x, TINY.test_x]), np.concatenate([TINY.y, TINY.test_y])
    return {row.tobytes(): label for row, label in zip(np.asarray(x, dtype=float), y, strict=True)}


def stated(constraint, values):
    """log p of values that are certain."""
    return [one_hot(torch.tensor([v.values.index(values[v.name])]), v.size).log() for v in constraint.variables]


@pytest.mark.parametrize("digits", [1, 3])
def test_the_chain_of_sums_accepts_every_sum_and_nothing_else(digits):
    rule, rng = addition(digits), np.random.default_rng(0)
    uniform = [torch.full((1, 10), 0.1, dtype=torch.float64).log() for _ in rule.variables]
    # of all sums of 3 N + 1 digits, one for each pair of numbers
    assert rule.log_probability(uniform).item() == pytest.approx(-(digits + 1) * log(10))
    for _ in range(20):
        a, b = rng.integers(10**digits, size=2)
        values = {f"a{i}": int(a) // 10**i % 10 for i in range(digits)}
        values |= {f"b{i}": int(b) // 10**i % 10 for i in range(digits)}
        values |= {f"s{i}": int(a + b) // 10**i % 10 for i in range(digits + 1)}
        assert rule.log_probability(stated(rule, values)).item() == 0
        values["s0"] = (values["s0"] + 1) % 10
        assert rule.log_probability(stated(rule, values)).item() == -torch.inf


def test_examples_of_sums_are_what_their_images_show():
    problem = SumsTask(4).problem(TINY, 3)
    (examples,) = problem.examples
    placed = examples.of(Symbols.of(problem.symbols))
    assert len(problem.x) == 600 and placed.rows.shape == (75, 13)
    assert (np.sort(placed.rows[placed.rows >= 0]) == np.arange(600)).all()
    truth = {row.tobytes(): label for row, label in zip(TINY.x, TINY.y, strict=True)}
    known = torch.tensor([truth[row.tobytes()] for row in problem.x])
    assert (placed.log_probability(one_hot(known, 10).float().log()) == 0).all()


def test_whole_sums_are_right_where_the_digits_add_up(truth):
    measure = SumsTask(2).problem(TINY, 0).measure
    assert measure(reads(truth), None) == {"sums": 1.0, "digits": 1.0}
    # every 3 is read as an 8: a sum without a 3 stays right, and no error can cancel another
    found = measure(reads(truth, lambda labels: np.where(labels == 3, 8, labels)), None)
    share = (TINY.test_y != 3).mean()
    assert found["digits"] == pytest.approx(share)
    assert found["sums"] == pytest.approx(share**4, abs=0.1) and found["sums"] < 0.8
    # a digit more in a and one less in b would cancel: sums count, not digits
    swapped = measure(reads(truth, lambda labels: labels[::-1] * 0), None)
    assert swapped["sums"] < 0.02


@pytest.mark.parametrize("text", ["7", "8÷3", "9÷4×2"])
def test_formulas_come_to_their_results_and_to_no_others(text):
    digits, signs = [int(c) for c in text[::2]], list(text[1::2])
    value = eval(text.replace("÷", "/").replace("×", "*").replace("−", "-").replace("/", "*Fraction(1)/"))
    of_length = formulas.rule(len(digits))
    values = {f"d{i}": digit for i, digit in enumerate(digits)} | {
        f"o{i + 1}": sign for i, sign in enumerate(signs)
    }
    for result, expected in ((Fraction(value), 0.0), (Fraction(value) + 1, -torch.inf)):
        place = of_length.place.get(result, 0)
        high, low = divmod(place, of_length.base)
        found = of_length.constraint.log_probability(
            stated(of_length.constraint, values | {"high": high, "low": low})
        )
        assert found.item() == expected


def test_a_formula_of_two_digits_has_the_probability_of_its_ways():
    of_length = formulas.rule(2)
    place = of_length.place[Fraction(6)]
    ways = sum(eval(f"{a}{o}{b}") == 6 for a in DIGITS for b in DIGITS for o in "+-*/")
    log_p = [torch.full((1, v.size), 1 / v.size, dtype=torch.float64).log() for v in of_length.constraint.variables]
    for name, number in zip(("high", "low"), divmod(place, of_length.base), strict=True):
        at = [v.name for v in of_length.constraint.variables].index(name)
        log_p[at] = one_hot(torch.tensor([number]), of_length.base).double().log()
    assert of_length.constraint.log_probability(log_p).exp().item() == pytest.approx(ways / (81 * 4))


def test_rules_of_boards():
    uniform = [torch.full((1, 4), 0.25, dtype=torch.float64).log()] * 16
    assert visual_sudoku.valid_board().log_probability(uniform).exp().item() == pytest.approx(288 / 4**16)
    uniform = [torch.full((1, 9), 1 / 9, dtype=torch.float64).log()] * 9
    different = visual_sudoku.all_different(9).log_probability(uniform).exp().item()
    assert different == pytest.approx(factorial(9) / 9**9)


def test_boards_are_right_up_to_one_renaming(truth):
    measure = SudokuTask(4).problem(TINY, 0).measure
    assert measure(reads(truth, lambda labels: labels - 1), None) == {"boards": 1.0, "named": 1.0, "cells": 1.0}
    turned = measure(reads(truth, lambda labels: labels % 4), None)
    assert turned == {"boards": 1.0, "named": 0.0, "cells": 1.0}
    merged = measure(reads(truth, lambda labels: np.where(labels == 4, 0, labels - 1)), None)
    assert merged["boards"] == 0 and merged["cells"] == pytest.approx(0.75)


def test_labels_of_boards_name_all_digits_but_one():
    problem = SudokuTask(4, named=True).problem(TINY, 0)
    assert np.bincount(problem.labels[problem.labels >= 0]).tolist() == [5, 5, 5]
    assert SudokuTask(4).problem(TINY, 0).labels is None


def test_formulas_are_right_where_symbols_are(truth):
    problem = formulas.FormulasTask(2).problem(TINY, 0)

    def classify(x, kind):
        if kind == "digit":
            return reads(truth, lambda labels: labels - 1)(x, kind)
        return np.full(len(x), OPERATORS.index("+"))

    found = problem.measure(classify, None)
    # half of the formulas have no operator; of the others some have a plus, or come to the same: 2 × 2
    assert 0.5 + 0.5 / 4 - 0.05 < found["results"] < 0.75
    assert found["symbols"] == pytest.approx((3 + 1 / 4) / 4, abs=0.03)
    assert [len(e.constraint.variables) for e in problem.examples] == [3, 5]


def test_shortcuts_are_those_that_are_known():
    counted = {name: known_shortcuts(name) for name in rule_shortcuts.EQUATIONS}
    assert {name: (c.maps.at_most, c.namings.at_most) for name, c in counted.items()} == {
        "even-odd": (36, 2),
        "half": (3, 1),
    }
    labelled = ShortcutsTask("even-odd", labelled=True).problem(TINY, 0).labels
    assert {*labelled.tolist()} == {-1} | {digit for _, digit in counted["even-odd"].labels_for_maps}


def test_wrong_names_are_counted_by_fit(truth):
    measure = ShortcutsTask("even-odd").problem(TINY, 0).measure
    right = measure(reads(truth), None)
    assert right == {"wrong": 0.0, "open": 0.0, "concepts": 1.0}
    other = measure(reads(truth, lambda labels: (labels + 5) % 10), None)  # the naming that the rule allows as well
    assert other == {"wrong": 1.0, "open": 0.0, "concepts": 0.0}


def test_names_that_are_left_open_are_not_wrong(truth, monkeypatch):
    measure = ShortcutsTask("half").problem(TINY, 0).measure
    monkeypatch.setattr(rule_shortcuts, "claimed_names", lambda _: [0, 1, None, None, 3])
    found = measure(reads(truth), GEDI(5))
    assert found == {"wrong": 1.0, "open": 0.4, "concepts": 1.0}


def test_keys_name_all_that_a_result_depends_on():
    fit = TaskFit(SumsTask(1), "full", 0, "tiny")
    changes = (
        {"seed": 1},
        {"task": SumsTask(2)},
        {"task": SumsTask(1, 0.1)},
        {"variant": "rule"},
        {"size": "digits"},
        {"iterations": 5},
        {"settings": (("optimiser.batch_size", "20"),)},
    )
    assert len({fit.key, *(replace(fit, **change).key for change in changes)}) == 8


def test_variants_leave_out_what_they_say():
    examples = ExamplesProfile(600, 2, (0.1,) * 10)
    planned = {
        name: v.left(plan(DataProfile(600, 64), Asked(10, v.method, examples=examples)))
        for name, v in VARIANTS.items()
    }
    terms = {name: set(made.terms) for name, made in planned.items()}
    assert terms["full"] == {"generative", "invariance", "prior", "pseudo-labels", "constraint"}
    assert terms["no-density"] == terms["full"] - {"generative"} and planned["no-density"].config.density is None
    assert terms["no-pseudo-labels"] == terms["full"] - {"pseudo-labels"}
    assert terms["rule"] == {"constraint"}


def test_unknown_words_are_refused():
    with pytest.raises(UsageError, match="--only is one of full, no-density"):
        _ = Selection(only=["fulll"]).variants
    with pytest.raises(UsageError, match="--size is one of mnist, mnist-small, digits, tiny, not huge"):
        pictures("huge")
    with pytest.raises(UsageError, match="side 4 or 9, not 5"):
        visual_sudoku.tasks([5])
    with pytest.raises(UsageError, match="at least 1 digit, not 0"):
        given_sums.tasks([0], tenth=False)
    with pytest.raises(UsageError, match="make no sum of 400 digits"):
        SumsTask(400).problem(TINY, 0)


def test_the_table_has_medians_and_the_lowest():
    task = SumsTask(4)
    job = TaskFit(task, "full", 0, "tiny")
    results = [
        TaskResult(task.title, "full", seed, None, {"sums": value, "digits": 0.99}, [])
        for seed, value in enumerate((0.9, 0.95, 0.8))
    ]
    results.append(TaskResult(task.title, "full", 3, "too large", {}, []))
    done = [Done(job, [r], 10.0 + r.seed) for r in results]
    table = results_table(PAGE, [task], ["full", "rule"], done)
    first = dict(zip(table.head, table.rows[0], strict=False))
    assert table.rows[0][:5] == ["N = 4", "GEDI & rule", "0.940", "0.9000", "0.8000"]
    assert first["seconds"] == "12" and first["fits"] == "4, 1 diverged"
    assert table.rows[1][2:] == ["0.940", "–", "–", "–", "–", "–", "0"]


class SlowJob(TaskFit):
    """A fit that listens to its callback until it is interrupted."""

    def run(self, device, callback):  # noqa: ARG002
        view = Mock(spec=FitView, iteration=1, iterations=2)
        for _ in range(1000 if self.seed else 1):
            callback.on_metrics(view, {})
            if view.interrupt.called:
                raise Interrupted("given up")
        return [TaskResult(self.task.title, self.variant, self.seed, None, {"sums": 1.0}, [])]


def test_when_the_time_is_up_what_is_done_is_kept(tmp_path, monkeypatch):
    clock = iter(range(0, 100_000, 5))
    monkeypatch.setattr("gedikit.paper.reproduce.running.time.monotonic", lambda: float(next(clock)))
    said = io.StringIO()
    jobs = [SlowJob(SumsTask(1), "full", seed, "tiny", True) for seed in range(3)]
    request = Request(tmp_path, device="cpu", workers=1, minutes=2)
    done = run_all(jobs, request, Console(file=said))
    assert [d.results[0].seed for d in done] == [0]
    assert "the time is up: 2 of 3 jobs are left" in said.getvalue().replace("\n", " ")
    assert len(list((tmp_path / "fits").iterdir())) == 1
    with pytest.raises(UsageError, match="--minutes must be above 0"):
        Request(tmp_path, minutes=-1)


@pytest.mark.slow
def test_a_table_from_start_to_page(tmp_path, monkeypatch):
    request = Request(tmp_path, seeds=1, first_seed=0, iterations=4, device="cpu", workers=1)
    selection = Selection("tiny", ["full", "pseudo-labels", "rule"])
    page = given_sums.reproduce_sums([1], tenth=False, selection=selection, request=request, console=QUIET)
    text = (page.parent / "sums.md").read_text()
    assert text.count("| N = 1 |") == 3
    assert (page.parent / "sums.png").stat().st_size > 5000
    line = next(line for line in text.splitlines() if "pseudo-labels alone" in line)
    assert float(line.split("|")[6]) > 0.9  # of the digits, without any training
    monkeypatch.setattr(TaskFit, "run", lambda *_: pytest.fail("what is kept is not fitted again"))
    given_sums.reproduce_sums([1], tenth=False, selection=selection, request=request, console=QUIET)


@pytest.mark.slow
@pytest.mark.parametrize("task", [ShortcutsTask("half", labelled=True), formulas.FormulasTask(2)])
def test_other_tasks_from_start_to_result(task):
    (result,) = TaskFit(task, "full", 0, "tiny", iterations=3).run("cpu", Callback())
    assert result.failure is None
    assert all(0 <= value <= 1 for value in result.measures.values())
