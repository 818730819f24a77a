"""Posteriors that ignore x: p(y|x) = v for every x, between the uniform v and cluster collapse."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.objectives import invariance, prior
from gedikit.paper.theory.check import Check
from gedikit.paper.theory.domain import Domain, Solution, joint, losses

CLUSTERS = 10
INVARIANCE_FIRST = (50.0, 25.0)
PRIOR_FIRST = (25.0, 50.0)
CERTAIN = 30.0  # nats by which a certain label is above the others

Weights = tuple[float, float]


@dataclass(frozen=True)
class Constant:
    """What a constant posterior costs above the optimum of each loss."""

    peak: float
    invariance: float
    prior: float
    information: float


@dataclass(frozen=True)
class BestConstant:
    """The best constant posterior for given weights, and how the objective lies around it.

    `slope` and `escape` are of L_GEN + w₁ L_INV + w₂ L_PRIOR in the logits of every cell: its largest derivative,
    and its curvature towards labels that depend on x. The others are among constant posteriors only.
    """

    peak: float
    value: float
    curvature: float
    uniform_value: float
    uniform_curvature: float
    slope: float
    escape: float


def constant_loss(logits: Float[Tensor, "*m c"], weights: Weights) -> Float[Tensor, "*m"]:
    """w₁ H(v) + w₂ CE(uniform, v): w₁ L_INV + w₂ L_PRIOR where p(y|x) = v."""
    log_v = torch.log_softmax(logits, -1)[..., None, :]
    uniform = _uniform(logits.shape[-1]).expand_as(logits)
    return weights[0] * invariance(log_v, log_v) + weights[1] * prior(log_v, uniform)


def peaked(gap: Float[Tensor, "*m"], clusters: int) -> Float[Tensor, "*m c"]:
    """Logits of a v with one large entry and equal others."""
    return gap[..., None] * torch.eye(clusters, dtype=torch.float64)[0]


def best_constant(weights: Weights, clusters: int) -> Float[Tensor, " c"]:
    """Logits of the v that minimises w₁ L_INV + w₂ L_PRIOR among those with one large entry and equal others."""
    gaps = torch.linspace(0, CERTAIN, 4001, dtype=torch.float64)
    best = int(constant_loss(peaked(gaps, clusters), weights).argmin())
    if best == 0:
        return peaked(gaps[0], clusters)
    low, high = gaps[best - 1], gaps[best + 1]
    for _ in range(60):
        middle = ((low + high) / 2).requires_grad_()
        (slope,) = torch.autograd.grad(constant_loss(peaked(middle, clusters), weights), middle)
        low, high = (low, middle.detach()) if slope > 0 else (middle.detach(), high)
    return peaked(low, clusters)


@lru_cache
def least_prior_ratio(clusters: int) -> float:
    """The w₂/w₁ above which the uniform v is the best of all constants: max (ln c − H(v))/(CE(uniform, v) − ln c).

    At the uniform v itself the ratio of both tends to 1, which is the answer for two clusters.
    """
    logits = peaked(torch.linspace(0.01, CERTAIN, 3000, dtype=torch.float64), clusters)
    at_uniform = float(constant_loss(torch.zeros(clusters, dtype=torch.float64), (1.0, 0.0)))
    certain, uneven = constant_loss(logits, (1.0, 0.0)), constant_loss(logits, (0.0, 1.0))
    return max(1.0, float(((at_uniform - certain) / (uneven - at_uniform)).max()))


def around_best_constant(weights: Weights, clusters: int = CLUSTERS) -> BestConstant:
    best = best_constant(weights, clusters)
    uniform = torch.zeros_like(best)
    domain = Domain(clusters)
    towards_labels = torch.eye(clusters, dtype=torch.float64)[domain.labels] - 1 / clusters

    def constants(logits: Tensor) -> Tensor:
        return constant_loss(logits, weights)

    def cells(logits: Tensor) -> Tensor:
        values = losses(domain, Solution(logits))
        return values["L_GEN"] + weights[0] * values["L_INV"] + weights[1] * values["L_PRIOR"]

    logits = joint(domain.log_density, best)
    _, bend = torch.autograd.functional.hvp(cells, logits, towards_labels)
    slope = torch.autograd.functional.jacobian(cells, logits)
    return BestConstant(
        peak=float(torch.softmax(best, -1).max()),
        value=float(constants(best)),
        curvature=_least_curvature(constants, best),
        uniform_value=float(constants(uniform)),
        uniform_curvature=_least_curvature(constants, uniform),
        slope=float(slope.abs().max()),
        escape=float((bend * towards_labels).sum()),
    )


def interpolation(clusters: int, peaks: tuple[float, ...] = (0.0, 0.7, 0.9, 0.99, 1.0)) -> tuple[Constant, ...]:
    """Constant posteriors from uniform (a peak below 1/c) to cluster collapse (1)."""
    domain = Domain(clusters)
    optimum = domain.optimum()
    found = []
    for peak in peaks:
        logits = peaked_at(peak, clusters)
        values = losses(domain, Solution(joint(domain.log_density, logits)))
        found.append(
            Constant(
                peak=float(torch.softmax(logits, -1).max()),
                invariance=float(values["L_INV"]) - optimum["L_INV"],
                prior=float(values["L_PRIOR"]) - optimum["L_PRIOR"],
                information=float(values["I(x; y)"]),
            )
        )
    return tuple(found)


def peaked_at(peak: float, clusters: int) -> Float[Tensor, " c"]:
    """Logits of the v whose large entry is `peak`, at least 1/c; a certain label for 1."""
    share = torch.tensor(max(peak, 1 / clusters), dtype=torch.float64)
    gap = torch.logit(share) + torch.log(torch.tensor(clusters - 1.0, dtype=torch.float64))
    return peaked(gap.clamp_max(CERTAIN), clusters)


def fourth_mode() -> list[Check]:
    invariance_first, prior_first = around_best_constant(INVARIANCE_FIRST), around_best_constant(PRIOR_FIRST)
    peak, ends = f"{invariance_first.peak:.2f}", interpolation(CLUSTERS, (0.0, 1.0))
    ln_c = -float(_uniform(CLUSTERS)[0])
    name = "Fourth mode"
    return [
        Check(
            name,
            "p(y|x) = v runs from uniform (L_INV ln c too high) to cluster collapse (L_INV optimal); I(x; y) is 0.",
            {
                "uniform, L_INV − ln c": abs(ends[0].invariance - ln_c),
                "uniform, L_PRIOR": abs(ends[0].prior),
                "collapse, L_INV": abs(ends[1].invariance),
                "I(x; y)": max(abs(end.information) for end in ends),
            },
            {"collapse, L_PRIOR": ends[1].prior},
        ),
        Check(
            name,
            f"50 L_INV + 25 L_PRIOR, c = 10: v with a peak of {peak} is a minimum among constants.",
            {"slope": invariance_first.slope},
            {
                "curvature": invariance_first.curvature,
                "below uniform": invariance_first.uniform_value - invariance_first.value,
                "uniform is no minimum": -invariance_first.uniform_curvature,
            },
        ),
        Check(
            name,
            "25 L_INV + 50 L_PRIOR, c = 10: the uniform v is a minimum among constants.",
            {"slope": prior_first.slope, "peak − 1/c": abs(prior_first.peak - 1 / CLUSTERS)},
            {"curvature": prior_first.curvature},
        ),
        Check(
            name,
            "Both are stationary for the whole objective, but saddles: labels that depend on x lead down.",
            {"slope": max(invariance_first.slope, prior_first.slope)},
            {"downward curvature": min(-invariance_first.escape, -prior_first.escape)},
        ),
    ]


def _least_curvature(formula: Callable[[Tensor], Tensor], logits: Float[Tensor, " c"]) -> float:
    """The least eigenvalue of the Hessian among directions that change the posterior, those orthogonal to 1."""
    hessian = torch.autograd.functional.hessian(formula, logits)
    ones = torch.ones_like(logits)[:, None]
    complement = torch.linalg.qr(ones, mode="complete").Q[:, 1:]
    return float(torch.linalg.eigvalsh(complement.mT @ hessian @ complement).min())


def _uniform(clusters: int) -> Float[Tensor, " c"]:
    return torch.log_softmax(torch.zeros(clusters, dtype=torch.float64), -1)
