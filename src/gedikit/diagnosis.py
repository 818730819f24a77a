"""Which failure a run has hit, told from its losses and a batch of data (Proposition 1 and Theorem 1).

Each loss has a known optimum, so a run that missed one says so itself. Four ways to fail:

1. representation collapse: the network gives the same output for every x;
2. cluster collapse: every x is in one cluster, with certainty;
3. label inconsistency: x and x′ get different labels;
4. the posterior ignores x: p(y|x) is one constant vector while the density still varies. No single loss
   shows it; the mutual information I(x; y) does.

Where none of these happened the result may still be one of several: partitions of the data that are as good as the
one the training started from. The verdict is then "uncertain".
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gedikit import objectives
from gedikit.fitted import FittedModel

HEALTHY, UNCERTAIN = "healthy", "uncertain"
_SURE = 0.6  # expected agreement (ARI) of the starting partition with its rivals
_KEPT = 0.7  # agreement of the labels with the starting partition
_ACROSS = 0.8  # how often the ends of long walks share a label
_INCONSISTENT, _TOUCHING = 0.8, 0.9  # how often x and x′ share a label
_ADVICE = {
    HEALTHY: "No failure mode was detected.",
    "representation collapse": (
        "Train with the generative term (method 'gedi'), which this collapse cannot satisfy, or start "
        "from another random_state; check that the data is not constant after scaling."
    ),
    UNCERTAIN: (
        "Look at the clusters before you rely on them. Another number of clusters (n_clusters) or the shares you "
        "expect (prior) may settle it."
    ),
    "cluster collapse": (
        "Raise objectives.prior.weight above objectives.invariance.weight (for example 30 and 10), or use a method "
        "that has the objective 'prior'."
    ),
    "posterior ignores x": (
        "Raise objectives.prior.weight above objectives.invariance.weight, train longer, or use longer walks "
        "(views.hold=0.5): the clusters never became a function of the data."
    ),
    "label inconsistency": (
        "Train longer, raise objectives.invariance.weight or use a method that has it; if the views are noisy, "
        "lower views.noise."
    ),
    "unused clusters": "Ask for fewer clusters, or give the class prior you expect as 'prior'.",
    "density not learned": (
        "The samples do not follow the model: use the default sampler, a smaller optimiser.learning_rate, or "
        "density.l2=0.01."
    ),
}


@dataclass(frozen=True)
class Diagnosis:
    """A verdict, the numbers that say so, and what to change."""

    verdict: str
    explanation: str
    advice: str
    numbers: dict[str, float]

    @property
    def healthy(self) -> bool:
        return self.verdict == HEALTHY

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "explanation": self.explanation,
            "advice": self.advice,
            "numbers": self.numbers,
        }

    def __str__(self) -> str:
        numbers = "\n".join(f"  {name:<28} {value:.4g}" for name, value in self.numbers.items())
        return f"{self.verdict}: {self.explanation}\n{self.advice}\n{numbers}"


def diagnose(fitted: FittedModel, x: NDArray[Any], last: dict[str, float] | None = None) -> Diagnosis:
    """Look at a model on a batch it was, at best, not trained on; `last` holds its final measurements."""
    numbers = _numbers(fitted, x, last or {})
    verdict, explanation = _verdict(numbers, fitted)
    return Diagnosis(verdict, explanation, _ADVICE[verdict], numbers)


def _numbers(fitted: FittedModel, x: NDArray[Any], last: dict[str, float]) -> dict[str, float]:
    z = fitted.to_scaled(x)
    generator = torch.Generator(z.device).manual_seed(0)
    moved = fitted.plan.config.data.nearby(z, fitted.bandwidth, generator)
    log_prior = torch.from_numpy(np.log(fitted.prior)).to(z.device)
    with torch.inference_mode():
        logits, view = (fitted.assignment.of_points(fitted.network, u).double() for u in (z, moved))
        log_p, view_log_p = logits.log_softmax(-1), view.log_softmax(-1)
        p = log_p.exp()
        density = fitted.network.log_density(z).double()
        numbers = {
            "invariance": float(objectives.invariance(log_p, view_log_p)),
            "invariance_optimum": objectives.invariance_optimum(),
            "prior": float(objectives.prior(log_p, log_prior)),
            "prior_optimum": objectives.prior_optimum(log_prior),
            "mutual_information": float(objectives.mutual_information(log_p)),
            "confidence": float(p.amax(-1).mean()),
            "largest_cluster": float(p.mean(0).amax()),
            "least_used_cluster": float((p.mean(0) / log_prior.exp()).amin()),
            "agreement_nearby": float((logits.argmax(-1) == view.argmax(-1)).double().mean()),
            "spread_of_outputs": float(logits.std(0).amax()) if len(z) > 1 else 0.0,
            "spread_of_log_density": float(density.std()) if len(z) > 1 else 0.0,
        }
    kept = ("generative", "energy_gap", "effective_samples", "acceptance")
    seen: dict[str, float] = fitted.info.get("evidence", {})
    return numbers | {f"training_{name}": last[name] for name in kept if name in last} | seen


def _verdict(n: dict[str, float], fitted: FittedModel) -> tuple[str, str]:
    information = n["mutual_information"] / max(n["prior_optimum"], 1e-12)
    if fitted.n_clusters > 1:
        if n["spread_of_outputs"] < 1e-3:
            return "representation collapse", (
                f"the outputs hardly differ between points (spread {n['spread_of_outputs']:.2g})"
            )
        if information < 0.05 and n["largest_cluster"] > 0.95:
            return "cluster collapse", (
                f"one cluster holds {n['largest_cluster']:.0%} of the mass; the prior loss is "
                f"{n['prior']:.3g} against {n['prior_optimum']:.3g} at best"
            )
        if information < 0.05:
            return "posterior ignores x", (
                f"the mutual information between points and clusters is {n['mutual_information']:.2g} of "
                f"{n['prior_optimum']:.3g} nats, while the log-density varies by {n['spread_of_log_density']:.2g}"
            )
        if n.get("agreement_of_views", 1.0) < _INCONSISTENT:
            return "label inconsistency", (
                f"a row and its view share a cluster in only {n['agreement_of_views']:.0%} of cases"
            )
        # a fit that starts from a partition is measured against that
        if "kept_of_start" not in n and n.get("agreement_of_long_walks", 1.0) < _ACROSS:
            return "label inconsistency", (
                "clusters cut through what hangs together: the ends of a walk along neighbours share a cluster in "
                f"only {n['agreement_of_long_walks']:.0%} of cases"
            )
        if n["agreement_nearby"] < _TOUCHING:
            return "label inconsistency", (
                f"a point and its slightly moved copy share a cluster in only {n['agreement_nearby']:.0%} of "
                f"cases; the invariance loss is {n['invariance']:.3g} against 0 at best"
            )
        if n["invariance"] > 0.5 * n["prior_optimum"]:
            return "label inconsistency", (
                f"the clusters are not well separated yet: the mean confidence is {n['confidence']:.0%}, "
                f"the invariance loss {n['invariance']:.3g} against 0 at best"
            )
        if n["least_used_cluster"] < 0.1:
            return "unused clusters", (
                f"a cluster is used at {n['least_used_cluster']:.0%} of what the prior asks for"
            )
    gap = abs(n.get("training_energy_gap", 0.0))
    if gap > 10 * fitted.n_features + 10 or n.get("training_acceptance", 1.0) < 0.05:
        return "density not learned", f"data and model samples differ by {gap:.3g} nats in log-density"
    doubt = _doubt(n)
    if fitted.n_clusters > 1 and doubt:
        return UNCERTAIN, doubt
    agree = n.get("agreement_of_views", n["agreement_nearby"])
    return HEALTHY, (
        f"the clusters carry {n['mutual_information']:.3g} of {n['prior_optimum']:.3g} nats, views agree in "
        f"{agree:.1%} of cases"
    )


def _doubt(n: dict[str, float]) -> str:
    """Why the clusters may be others, if there is a reason."""
    if n.get("start_agreement", 1.0) < _SURE:
        return (
            "several partitions of the data are about as good: the one that was chosen agrees with a typical rival "
            f"by {max(n['start_agreement'], 0):.0%} (adjusted Rand index)"
        )
    if n.get("kept_of_start", 1.0) < _KEPT:
        return (
            "the network ended with other clusters than it started from: they agree by "
            f"{max(n['kept_of_start'], 0):.0%} (adjusted Rand index)"
        )
    if n.get("agreement_of_views", 1.0) < _TOUCHING:
        return f"the clusters touch: a row and its view share one in only {n['agreement_of_views']:.0%} of cases"
    return ""
