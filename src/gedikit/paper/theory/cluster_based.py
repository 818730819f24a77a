"""Lemma 9: SwAV maximises the cluster-based bound, in the parameters for fixed codes and in the codes.

As a function of the codes the bound is 1/τ times L_SwAV(Q), where the paper prints τ.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gedikit.objectives import sela, sinkhorn, swav
from gedikit.paper.theory.check import Check, disagreement, distance, largest, violation
from gedikit.paper.theory.draws import Draws

ROWS, CLUSTERS, DIMS, RIVALS = 8, 4, 3, 200
TEMPERATURES = (0.2, 0.5)
BALANCING = 1000

Rows = Float[Tensor, "*m n c"]


def posteriors(g: Float[Tensor, "n l"], centres: Float[Tensor, "c l"], temperature: float) -> Float[Tensor, "n c"]:
    """Definition 7's p(y|x_i) = e^{U_y·g_i/τ} / Σ_y′ e^{U_y′·g_i/τ}, written out."""
    joint = torch.exp((g[:, None, :] * centres).sum(-1) / temperature)
    return joint / joint.sum(-1, keepdim=True)


def cluster_bound(log_p: Float[Tensor, "n c"], codes: Rows) -> Float[Tensor, "*m"]:
    """L_CB = Σ_i [Σ_y q_iy log p_iy + H(q_i)]."""
    return (codes * log_p).sum((-1, -2)) + entropy(codes)


def assignment_objective(codes: Rows, scores: Float[Tensor, "n c"], temperature: float) -> Float[Tensor, "*m"]:
    """L_SwAV(Q) = Tr(Q UᵀG) + τ H(Q), with UᵀG the transpose of the scores."""
    trace = torch.diagonal(codes @ scores.mT, dim1=-2, dim2=-1).sum(-1)
    return trace + temperature * entropy(codes)


def entropy(codes: Rows) -> Float[Tensor, "*m"]:
    total: Tensor = torch.special.entr(codes).sum((-1, -2))
    return total


def lemma_9(seed: int = 0) -> list[Check]:
    draws = Draws(seed)
    cases = [(_unit(draws, ROWS), _unit(draws, ROWS), _unit(draws, CLUSTERS), t) for t in TEMPERATURES]
    balanced = sinkhorn(draws.normal(RIVALS, ROWS, CLUSTERS), epsilon=0.5, iterations=BALANCING)
    free = draws.log_distributions(RIVALS, ROWS, CLUSTERS).exp()
    return [
        _parameters(cases),
        _both_directions(cases),
        _codes(cases, free),
        _best_codes(cases, balanced),
        _no_balance(cases, free),
    ]


Cases = list[tuple[Float[Tensor, "n l"], Float[Tensor, "n l"], Float[Tensor, "c l"], float]]


def _parameters(cases: Cases) -> Check:
    records = []
    for g, view, centres, tau in cases:
        settings = {"other": view @ centres.mT, "codes": sinkhorn(view @ centres.mT, epsilon=tau), "tau": tau}
        records += [disagreement(_bound, loss, g, centres, **settings) for loss in (_one_direction, _half_of_swav)]
    statement = "For fixed codes L_CB is H(q) − n times one direction of SwAV, gradients in g and U included."
    return Check("Lemma 9", statement, largest(records))


def _bound(g: Tensor, centres: Tensor, *, codes: Tensor, tau: float, other: Tensor) -> Tensor:  # noqa: ARG001
    return cluster_bound(posteriors(g, centres, tau).log(), codes)


def _one_direction(g: Tensor, centres: Tensor, *, codes: Tensor, tau: float, other: Tensor) -> Tensor:  # noqa: ARG001
    return entropy(codes) - len(g) * sela(torch.log_softmax(g @ centres.mT / tau, -1), codes)


def _half_of_swav(g: Tensor, centres: Tensor, *, codes: Tensor, tau: float, other: Tensor) -> Tensor:
    """The direction that predicts the view's codes; the other one carries no gradient, as the view is fixed."""
    scores = g @ centres.mT
    back = sela(torch.log_softmax(other / tau, -1), sinkhorn(scores, epsilon=tau))
    return entropy(codes) - len(g) * (2 * swav(scores, other, temperature=tau, epsilon=tau) - back)


def _both_directions(cases: Cases) -> Check:
    records = []
    for g, view, centres, tau in cases:
        codes, view_codes = (sinkhorn(x @ centres.mT, epsilon=tau) for x in (g, view))
        settings = {"codes": codes, "view_codes": view_codes, "tau": tau}
        records.append(disagreement(_mean_bound, _symmetrised_swav, g, view, centres, **settings))
    statement = "The mean of both directions' bounds is H(q) − n times the symmetrised SwAV loss."
    return Check("Lemma 9", statement, largest(records))


def _mean_bound(
    g: Tensor, view: Tensor, centres: Tensor, *, codes: Tensor, view_codes: Tensor, tau: float
) -> Tensor:
    log_p, view_log_p = (posteriors(x, centres, tau).log() for x in (g, view))
    return (cluster_bound(log_p, view_codes) + cluster_bound(view_log_p, codes)) / 2


def _symmetrised_swav(
    g: Tensor, view: Tensor, centres: Tensor, *, codes: Tensor, view_codes: Tensor, tau: float
) -> Tensor:
    loss = swav(g @ centres.mT, view @ centres.mT, temperature=tau, epsilon=tau)
    return (entropy(codes) + entropy(view_codes)) / 2 - len(g) * loss


def _codes(cases: Cases, free: Rows) -> Check:
    right, printed = [], []
    for g, _, centres, tau in cases:
        scores = g @ centres.mT
        bound = cluster_bound(posteriors(g, centres, tau).log(), free)
        constant = torch.logsumexp(scores / tau, -1).sum()
        objective = assignment_objective(free, scores, tau)
        right.append(distance(bound, objective / tau - constant))
        printed.append(distance(bound - bound[0], tau * (objective - objective[0])))
    statement = "In the codes L_CB is L_SwAV(Q)/τ plus a constant; the factor is 1/τ, not the τ printed."
    return Check("Lemma 9", statement, {"1/τ": max(right)}, {"τ": min(printed)})


def _best_codes(cases: Cases, rivals: Rows) -> Check:
    gaps, balance, identity = [], [], []
    for g, _, centres, tau in cases:
        scores = g @ centres.mT
        best = sinkhorn(scores, epsilon=tau, iterations=BALANCING)
        balance.append(distance(best.sum(-2), torch.full((CLUSTERS,), ROWS / CLUSTERS, dtype=best.dtype)))
        gap = shortfall(rivals, best, scores, tau)
        gaps.append(float(gap.min()))
        divergence = (rivals * (rivals.log() - best.log())).sum((-1, -2))
        identity.append(distance(gap, divergence))
    statement = f"Sinkhorn's codes (ε = τ) beat {RIVALS} random balanced ones, each by exactly KL(Q ‖ Sinkhorn)."
    errors = {"balance": max(balance), "gap − KL": max(identity)}
    return Check("Lemma 9", statement, errors, {"smallest gap": min(gaps)})


def shortfall(rivals: Rows, codes: Float[Tensor, "n c"], scores: Float[Tensor, "n c"], tau: float) -> Tensor:
    """By how much L_CB is larger at the codes than at each rival."""
    log_p = torch.log_softmax(scores / tau, -1)
    return cluster_bound(log_p, codes) - cluster_bound(log_p, rivals)


def _no_balance(cases: Cases, free: Rows) -> Check:
    positive, trivial = [], []
    for g, _, centres, tau in cases:
        log_p = posteriors(g, centres, tau).log()
        positive.append(violation(cluster_bound(log_p, free), torch.zeros(())))
        uniform = torch.full_like(log_p, 1 / CLUSTERS)
        trivial += [distance(cluster_bound(q.log(), q), torch.zeros(())) for q in (log_p.exp(), uniform)]
    statement = "L_CB is at most 0 and is 0 at q = p, uniform ones included: without balance it has trivial maxima."
    return Check("Lemma 9", statement, {"violation": max(positive), "value at q = p": max(trivial)})


def _unit(draws: Draws, n: int) -> Float[Tensor, "n l"]:
    return F.normalize(draws.normal(n, DIMS), dim=-1)
