"""Proposition 1: the bound with L_INV and L_PRIOR, its proof step by step, and its maximum."""

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.objectives import invariance, prior, prior_optimum
from gedikit.paper.theory.check import Check, distance, violation
from gedikit.paper.theory.draws import Draws

MODELS, ROWS, CLUSTERS = 4000, 6, 3
CERTAIN = 40.0  # logit gap: e⁻⁴⁰ is far below what float64 sees beside 1

LogPosteriors = Float[Tensor, "*m n c"]
LogPrior = Float[Tensor, "*#m c"]


def discriminative_terms(
    log_p: LogPosteriors, view_log_p: LogPosteriors, log_prior: LogPrior
) -> Float[Tensor, "*m"]:
    """L_INV + L_PRIOR with the paper's sign: −n (invariance + prior)."""
    shares = log_prior.expand(*log_p.shape[:-2], -1)
    return -log_p.shape[-2] * (invariance(log_p, view_log_p) + prior(log_p, shares))


def certain_labels(counts: list[int], gap: float = CERTAIN) -> Float[Tensor, "n c"]:
    """Logits of certain labels, each cluster as often as its count says."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return gap * torch.eye(len(counts), dtype=torch.float64)[labels]


def proposition_1(seed: int = 0) -> list[Check]:
    draws = Draws(seed)
    return [_chain(draws), _joint_prior(draws), _likelihood(draws), _maximum(draws), _optimum(draws), _gradient()]


def _chain(draws: Draws) -> Check:
    log_p, view_log_p = (draws.log_distributions(MODELS, ROWS, CLUSTERS) for _ in range(2))
    log_prior = draws.log_distributions(MODELS, CLUSTERS)
    p, q, shares = log_p.exp(), view_log_p.exp(), log_p.exp().mean(-2)
    overlap, prior_overlap = (q * p).sum(-1).log(), (log_prior.exp() * shares).sum(-1).log()
    inner, prior_inner = (q * log_p).sum(-1), (log_prior.exp() * shares.log()).sum(-1)
    errors = {
        "log Σ p(y|x)": distance(torch.logsumexp(log_p, -1), torch.zeros(())),
        "auxiliary q": max(violation(x, torch.zeros(())) for x in (overlap, prior_overlap)),
        "Jensen": max(violation(inner, overlap), violation(prior_inner, prior_overlap)),
        "last line": distance(
            discriminative_terms(log_p, view_log_p, log_prior), inner.sum(-1) + ROWS * prior_inner
        ),
    }
    statement = (
        f"0 = ln Σp ≥ ln Σqp ≥ Σq ln p, and so for the prior, on {MODELS} models; the end is L_INV + L_PRIOR."
    )
    return Check("Proposition 1", statement, errors)


def _joint_prior(draws: Draws) -> Check:
    """The proof's q(y_1:n) for n = 3: a product of mean posteriors, not the mean posterior it prints."""
    log_p, log_prior = draws.log_distributions(3, CLUSTERS), draws.log_distributions(CLUSTERS)
    p, pi = log_p.exp(), log_prior.exp()
    joint = torch.einsum("a,b,c->abc", pi, pi, pi)
    shares = p.mean(0)
    product = torch.einsum("a,b,c->abc", shares, shares, shares)
    printed = (p[0][:, None, None] + p[1][None, :, None] + p[2][None, None, :]) / 3
    last_line = -3 * prior(log_p, log_prior)
    statement = (
        "The proof's q(y_1:n) must be Π_i of the mean posterior: with the sum it prints, its last line fails."
    )
    return Check(
        "Proposition 1",
        statement,
        {"product": distance((joint * product.log()).sum(), last_line)},
        {"printed sum": distance((joint * printed.log()).sum(), last_line)},
    )


def _likelihood(draws: Draws) -> Check:
    """Every expectation over two rows of a three-point X with a random augmentation, summed exactly."""
    points, n = 3, 2
    log_x, log_augmentation = draws.log_distributions(points), draws.log_distributions(points, points)
    log_p, log_prior = draws.log_distributions(points, CLUSTERS), draws.log_distributions(CLUSTERS)
    log_pairs = (log_x[:, None] + log_augmentation).flatten()
    pairs = torch.cartesian_prod(*[torch.arange(points**2)] * n)
    log_weight = log_pairs[pairs].sum(-1)
    weight = log_weight.exp()
    rows, views = log_p[pairs // points], log_p[pairs % points]
    labels = torch.einsum("ka,kb->kab", rows[:, 0].exp(), rows[:, 1].exp()).sum((-1, -2))
    likelihood = (weight * (log_weight + labels.log())).sum()
    entropy = -(log_x.exp() * log_x).sum()
    augmentation = -(log_pairs.exp() * log_augmentation.flatten()).sum()
    terms = (weight * discriminative_terms(rows, views, log_prior.expand(len(pairs), -1))).sum()
    bound = -n * (entropy + augmentation) + terms
    statement = "The likelihood is at least the bound on a discrete model; its constant is −n H(x′|x)."
    errors = {
        "likelihood": distance(likelihood, -n * (entropy + augmentation)),
        "bound": violation(bound, likelihood),
    }
    return Check("Proposition 1", statement, errors, {"slack": float(likelihood - bound)})


def _maximum(draws: Draws) -> Check:
    log_p, view_log_p = (draws.log_distributions(MODELS, ROWS, CLUSTERS) for _ in range(2))
    log_prior = draws.log_distributions(MODELS, CLUSTERS)
    ceiling = -ROWS * torch.special.entr(log_prior.exp()).sum(-1)
    pairs = ((log_p, view_log_p), (log_p, log_p))
    terms = torch.stack([discriminative_terms(a, b, log_prior) for a, b in pairs])
    statement = f"L_INV + L_PRIOR ≤ −n H(p(y)) for {MODELS} random posteriors, priors and pairs of views."
    return Check(
        "Proposition 1",
        statement,
        {"violation": violation(terms, ceiling)},
        {"slack": float((ceiling - terms).min())},
    )


def _optimum(draws: Draws) -> Check:
    counts = [1, 2, 3]
    log_prior = (torch.tensor(counts, dtype=torch.float64) / sum(counts)).log()
    best = torch.log_softmax(certain_labels(counts), -1)
    ceiling = torch.tensor(-sum(counts) * prior_optimum(log_prior), dtype=torch.float64)
    others = [draws.log_distributions(100, sum(counts), len(counts)).exp() for _ in range(2)]

    def gaps(away: float) -> Float[Tensor, " m"]:
        log_p, view_log_p = (torch.log((1 - away) * best.exp() + away * other) for other in others)
        return ceiling - discriminative_terms(log_p, view_log_p, log_prior)

    return Check(
        "Proposition 1",
        "Certain labels in the prior's shares attain −n H(p(y)); random neighbours approach it from below.",
        {
            "at the optimum": distance(discriminative_terms(best, best, log_prior), ceiling),
            "largest gap, 10⁻¹³ away": float(gaps(1e-13).max()),
        },
        {"smallest gap, 10⁻⁶ to 1 away": min(float(gaps(10.0**-k).min()) for k in range(7))},
    )


def _gradient() -> Check:
    log_prior = torch.full((3,), 1 / 3, dtype=torch.float64).log()
    slopes = []
    for counts in ([2, 2, 2], [6, 0, 0]):
        leaf = certain_labels(counts).repeat(2, 1, 1).requires_grad_()
        log_p, view_log_p = torch.log_softmax(leaf, -1)
        (slope,) = torch.autograd.grad(discriminative_terms(log_p, view_log_p, log_prior), leaf)
        slopes.append(float(slope.abs().max()))
    statement = "The gradient in the logits vanishes at the optimum, and does not at a collapse into one cluster."
    return Check("Proposition 1", statement, {"at the optimum": slopes[0]}, {"at the collapse": slopes[1]})
