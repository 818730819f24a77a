import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from gedikit.modalities.scaling import Scaler
from gedikit.partitions import choose_partition
from gedikit.partitions.balanced import balanced_walks
from gedikit.partitions.candidates import BALANCED


def ring(n):
    """Every point is joined to the next two."""
    a = np.arange(n)
    joined = sum(sparse.csr_matrix((np.ones(n), (a, (a + step) % n)), shape=(n, n)) for step in (1, 2))
    return (joined + joined.T).tocsr()


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.7, 0.3)])
def test_shares_are_as_given_and_groups_are_in_one_piece(shares):
    labels = (np.arange(200) >= 100) ^ (np.random.default_rng(0).random(200) < 0.2)
    found = balanced_walks(ring(200), labels.astype(np.int64), np.array(shares))
    assert np.bincount(found) / 200 == pytest.approx(shares, abs=0.05)
    assert (found != np.roll(found, 1)).sum() == 2


def test_groups_that_nothing_joins_are_kept_whatever_their_shares():
    weights = sparse.block_diag([ring(150), ring(50)]).tocsr()
    labels = np.repeat([0, 1], [150, 50])
    assert (balanced_walks(weights, labels, np.full(2, 0.5)) == labels).all()


def test_equal_shares_are_taken_where_nothing_speaks_against_them():
    x, y = load_digits(return_X_y=True)
    choice = choose_partition(Scaler.fit(x).transform(x), 10, seed=0)
    assert choice.chosen.name == BALANCED
    others = [adjusted_rand_score(y, p.labels) for p in choice.candidates if p.name != BALANCED]
    assert adjusted_rand_score(y, choice.chosen.labels) > max(0.85, *others)


def test_equal_shares_are_not_taken_where_they_would_cut_a_group():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [500, 100])
    x = (np.array([[0.0, 0.0], [5.0, 0.0]])[y] + rng.standard_normal((600, 2))).astype(np.float32)
    choice = choose_partition(x, 2, seed=0)
    assert adjusted_rand_score(y, choice.chosen.labels) > 0.95
