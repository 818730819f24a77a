"""Input that cannot be meant is refused in a sentence that says what is wrong with it."""

import math

import pytest
import torch
from objective_cases import CASES

from gedikit import objectives as o
from gedikit.errors import DataError, UsageError

PAIRED = (o.infonce, o.simclr, o.barlow_twins, o.vicreg, o.w_mse, o.corinfomax, o.mec, o.swav, o.protocpc)
WHOLE_BATCH = (*PAIRED, lambda a, b: o.cpc(a, b, torch.eye(4)), lambda a, b: o.kscl(a, b[:, None]))
names = pytest.mark.parametrize("loss", [*PAIRED, o.invariance, o.sela], ids=lambda loss: loss.__name__)


@names
def test_views_of_different_shapes_are_refused(loss):
    match = rf"{loss.__name__} takes two views of the same shape, not \(6, 4\) and \(5, 4\)"
    with pytest.raises(UsageError, match=match):
        loss(torch.zeros(6, 4), torch.zeros(5, 4))
    with pytest.raises(UsageError, match=r"not \(6, 4\) and \(6, 3\)"):
        loss(torch.zeros(6, 4), torch.zeros(6, 3))
    with pytest.raises(UsageError, match=r"not \(2, 6, 4\) and \(6, 4\)"):
        loss(torch.zeros(2, 6, 4), torch.zeros(6, 4))


@names
def test_tensors_without_rows_are_refused(loss):
    with pytest.raises(
        UsageError, match=rf"{loss.__name__} takes tensors of shape \(rows, dimensions\), not \(4,\)"
    ):
        loss(torch.zeros(4), torch.zeros(4))
    with pytest.raises(UsageError, match=r"not \(\)"):
        loss(torch.tensor(1.0), torch.tensor(1.0))


@names
def test_what_is_no_tensor_is_refused(loss):
    with pytest.raises(UsageError, match=rf"{loss.__name__} takes tensors of shape \(rows, dimensions\)"):
        loss([[1.0, 2.0]], [[1.0, 2.0]])


@pytest.mark.parametrize("loss", WHOLE_BATCH, ids=lambda loss: loss.__name__)
def test_a_batch_of_one_is_refused(loss):
    with pytest.raises(UsageError, match="looks at the whole batch and needs at least 2 rows, not 1"):
        loss(torch.ones(1, 4), torch.ones(1, 4))
    with pytest.raises(UsageError, match="needs at least 2 rows, not 0"):
        loss(torch.ones(3, 0, 4), torch.ones(3, 0, 4))


def test_one_row_is_enough_where_rows_are_looked_at_one_by_one():
    row = torch.tensor([[0.7, 0.3]]).log()
    assert o.sela(row, row.exp()).item() == pytest.approx(-0.7 * math.log(0.7) - 0.3 * math.log(0.3))
    assert o.invariance(row, row).item() == pytest.approx(-0.7 * math.log(0.7) - 0.3 * math.log(0.3))
    assert o.deepcluster(row, torch.tensor([1])).item() == pytest.approx(-math.log(0.3))


def test_names_of_arguments_decide_what_is_a_view_not_their_order():
    z, view, shots, bilinear = torch.randn(6, 3), torch.randn(6, 3), torch.randn(6, 1, 3), torch.randn(3, 3)
    assert o.cpc(z, bilinear=bilinear, context=view) == o.cpc(z, view, bilinear)
    assert o.kscl(shots=shots, z=z) == o.kscl(z, shots)
    assert o.infonce(view=view, z=z) == o.infonce(z, view)


@pytest.mark.usefixtures("unchecked")
def test_a_forgotten_argument_is_named():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'view'"):
        o.infonce(torch.zeros(4, 2))


def test_subspaces_of_other_rows_are_refused():
    with pytest.raises(UsageError, match="kscl takes the views of each of the 6 rows, not of 7"):
        o.kscl(torch.randn(6, 3), torch.randn(7, 2, 3))


def test_assignments_of_other_rows_are_refused():
    log_p = torch.randn(6, 3).log_softmax(-1)
    with pytest.raises(UsageError, match=r"deepcluster takes one cluster a row, \(6,\), not \(5,\)"):
        o.deepcluster(log_p, torch.zeros(5, dtype=torch.long))


def test_a_prior_of_other_clusters_is_refused():
    log_p = torch.randn(6, 3).log_softmax(-1)
    for shares in (1, 4):
        with pytest.raises(UsageError, match=f"prior takes one share a cluster, 3, not {shares}"):
            o.prior(log_p, torch.zeros(shares))


OBJECTIVES = [n for n in CASES if isinstance(getattr(o, n.split()[0], None), o.Loss) and n != "corinfomax running"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_values_that_are_not_finite_are_counted(name, bad):
    case = CASES[name]
    given = [t.clone() for t in case.prepare(*case.draw(0))]
    given[0][1, 2] = bad
    given[0][3, 0] = bad
    total = sum(t.numel() for t in given)
    with pytest.raises(DataError, match=f"{name.split()[0]} was given 2 values of {total} that are not finite"):
        case.objective(*given)


def test_every_loss_of_a_view_pair_is_checked():
    assert {n.split()[0] for n in OBJECTIVES} == {
        *("invariance", "prior", "infonce", "simclr", "cpc", "protocpc", "kscl", "barlow_twins", "vicreg", "w_mse"),
        *("corinfomax", "mec", "swav", "deepcluster", "sela", "entropy_of_mean"),
    }


def test_a_result_that_is_not_finite_for_finite_input_says_so():
    huge = torch.full((4, 2), 3e38) * torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    with pytest.raises(DataError, match="vicreg is not finite for finite input: its values are too large"):
        o.vicreg(huge, huge)


@pytest.mark.parametrize("members", [(), (2,)])
def test_a_covariance_without_a_root_says_so(members):
    """Rows that are all the same."""
    for z in (torch.ones(*members, 5, 4), torch.zeros(*members, 3, 4)):
        with pytest.raises(DataError, match=r"w_mse is not finite for finite input: .* too few or too similar"):
            o.w_mse(z, z, shrinkage=0.0)


def test_identical_shots_need_a_ridge():
    z = torch.eye(4)
    shots = z[:, None].repeat(1, 2, 1)
    with pytest.raises(DataError, match="kscl is not finite for finite input"):
        o.kscl(z, shots, ridge=0.0)
    # two equal unit vectors: the eigenvalue of their Gram matrix is 2, so the own length is √(2/2.01)
    own = math.sqrt(2 / 2.01) / 0.2
    assert o.kscl(z, shots).item() == pytest.approx(math.log1p(3 * math.exp(-own)), rel=1e-2)


def test_a_matrix_that_is_not_positive_definite_gives_no_number():
    """Its factorisation stops half-way; what it leaves behind is finite and means nothing."""
    z, shots = torch.eye(3), torch.eye(3)[:, None].repeat(1, 2, 1)
    with pytest.raises(DataError, match="kscl is not finite for finite input"):
        o.kscl(z, shots, ridge=-3.0)


def test_the_bare_formula_checks_nothing():
    """A trainer that watches its numbers itself sees them as they are."""
    z = torch.full((4, 2), math.nan)
    assert math.isnan(o.infonce.formula(z, z).item())
    assert math.isnan(o.w_mse.formula(z, z).item())
    assert math.isnan(o.kscl.formula(z, z[:, None]).item())


def test_an_objective_keeps_its_name_and_what_it_says_of_itself():
    assert o.infonce.__name__ == "infonce"
    assert o.infonce.__doc__.startswith("−mean_i log")
