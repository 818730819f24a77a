"""Two processes with half of the rows each do what one with all of them does."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from objective_cases import CASES
from two_processes import PROCESSES, measure, members, rows, whole, work

from gedikit.objectives import sinkhorn

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each process found, by its rank."""
    folder = tmp_path_factory.mktemp("processes")
    mp.spawn(work, args=(str(folder),), nprocs=PROCESSES)
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


@pytest.mark.parametrize("kind", ["", " members"], ids=["one model", "two models"])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_averaged_gradient_are_those_of_one_process(found, name, kind):
    case = CASES[name]
    value, gradient = measure(case, members(case) if kind else whole(case))
    assert gradient.abs().max() > 1e-6
    for results in found:
        torch.testing.assert_close(results[name + kind][0], value, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(results[name + kind][1], gradient, rtol=1e-8, atol=1e-9)
    assert torch.equal(found[0][name + kind][0], found[1][name + kind][0])


def test_statistics_are_those_of_all_rows(found):
    x = rows()
    expected = {
        "all_rows": x,
        "row_sum": x.sum(0),
        "row_mean": x.mean(0),
        "row_logsumexp": x.logsumexp(0),
        "moment": x.T @ x.square(),
        "square": x.T @ x,
        "mean": x[:, 0].mean(),
        "n_rows": torch.tensor(6),
    }
    for results in found:
        for name, value in expected.items():
            torch.testing.assert_close(results[name], value, rtol=1e-12, atol=1e-12)
    assert [int(r["first_row"]) for r in found] == [0, 3]


def test_codes_are_balanced_over_all_rows(found):
    codes = torch.cat([results["sinkhorn"] for results in found])
    torch.testing.assert_close(codes, sinkhorn(rows(), epsilon=0.5), rtol=1e-9, atol=1e-12)


def test_a_gradient_can_be_differentiated_again(found):
    """Each of two losses that are summed over processes counts twice in what a process sees of its rows."""
    x = rows().requires_grad_()
    (first,) = torch.autograd.grad(x.sum(0).pow(4).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(2).sum(), x)
    for results, own in zip(found, second.chunk(PROCESSES), strict=True):
        torch.testing.assert_close(results["second"], 8 * own)


@pytest.mark.parametrize("what", ["uneven", "uneven posteriors"])
def test_processes_with_different_numbers_of_rows_are_refused(found, what):
    for results in found:
        assert results[what] == ("UsageError: every process must hold the same number of rows, not between 3 and 4")


def test_a_process_without_rows_is_refused_by_both(found):
    for results in found:
        assert results["no rows here"].endswith("same number of rows, not between 0 and 1")


def test_both_processes_stop_where_one_has_values_that_are_not_finite(found):
    assert found[0]["not finite"].startswith("DataError: w_mse was given 12 values of 12 that are not finite")
    assert found[1]["not finite"].startswith("DataError: w_mse is not finite")
    assert found[0]["subspaces not finite"].startswith("DataError: kscl was given 12 values of 12")
    assert found[1]["subspaces not finite"].startswith("DataError: kscl is not finite")


def test_one_row_on_each_process_is_a_batch_of_two(found):
    assert [results["one row each"] for results in found] == ["nothing", "nothing"]


def test_prototypes_are_compared_with_the_rows_of_all(found):
    for results in found:
        assert results["prototypes"] == "GediWarning: 5 prototypes for 4 rows: some must stay empty"
