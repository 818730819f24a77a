"""Groups of given shares that random walks seldom leave: long walks first, ever shorter ones after them."""

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from scipy import sparse

_LONGEST = 128  # steps of the first walks: shorter ones stay in the groups they begin with
_SHARPENING = 6
_BALANCINGS = 30


def balanced_walks(
    weights: sparse.csr_matrix, labels: Int64[np.ndarray, " a"], shares: Float[np.ndarray, " k"]
) -> Int64[np.ndarray, " a"]:
    """A partition with (nearly) these shares, from one with any.

    What a point is called is what most walks from it end at; the names are balanced by Sinkhorn's iteration, as the
    PRIOR does it for a network, and the walks are halved until they are a step long. Group c has the c-th share.
    """
    leaving = np.asarray(weights.sum(1)).ravel()
    step = sparse.diags_array(1 / np.maximum(leaving, np.finfo(np.float64).tiny)) @ weights
    member = np.zeros((len(labels), len(shares)))
    member[np.arange(len(labels)), labels] = 1
    length = _LONGEST
    while length:
        for _ in range(length):
            member = step @ member
        member = _balanced(member**_SHARPENING, shares)
        length //= 2
    groups: NDArray[np.int64] = member.argmax(1).astype(np.int64)
    return groups


def _balanced(member: Float[np.ndarray, "a k"], shares: Float[np.ndarray, " k"]) -> Float[np.ndarray, "a k"]:
    """Rows that sum to one and columns with these shares of the sum (Cuturi 2013)."""
    member = member + 1e-12  # a point that no walk joins to a group can still be given to it
    for _ in range(_BALANCINGS):
        member = member * (shares * len(member) / member.sum(0))
        member = member / member.sum(1, keepdims=True)
    return member
