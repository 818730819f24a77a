"""Which failure a run has hit, told from its losses and a batch of data (Proposition 1 and Theorem 1).

Each loss has a known optimum, so a run that missed one says so itself. Four ways to fail:

1. representation collapse: the network gives the same output for every x;
2. cluster collapse: every x is in one cluster, with certainty;
3. label inconsistency: x and x′ get different labels;
4. the posterior ignores x: p(y|x) is one constant vector while the density still varies. No single loss
   shows it; the mutual information I(x; y) does.

Where none of these happened the clusters are held against the neighbour graph of the rows: a cluster may be several
islands (too few clusters), an island may be in two clusters (too many), both at once, or a cluster may be nothing
but outliers. Where shares were asked for and clusters have them at the price of islands, the shares are to blame.
And the density is held against one Gaussian.

What is left may still be one of several partitions that are as good as the one the training started from, or have
signs of islands that are too weak to be sure of. The verdict is then "uncertain".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gedikit import objectives
from gedikit.fitted import FittedModel
from gedikit.planning import ASKED, AUTO, UNIFORM
from gedikit.processes import alone
from gedikit.symbolic import Names
from gedikit.training.islands import CUT_ISLAND, OUTLIERS, SEVERAL_ISLANDS, Concern

HEALTHY, UNCERTAIN = "healthy", "uncertain"
TOO_FEW, TOO_MANY, ACROSS = "too few clusters", "too many clusters", "clusters across groups"
PINNED, OF_OUTLIERS = "shares pinned to the prior", "a cluster of outliers"
UNDECIDED_NAMES, UNSURE_NAMES = "undecided names", "unsure names"
_MINOR = 0.95  # agreement (ARI) of clusters and islands from which on what is wrong concerns few rows
_PINNED = 0.15  # how far shares are from the prior at most, relative to it
_WORSE = 0.1  # nats a row below one Gaussian
_FEW = 0.02  # share of the rows from which on a weak sign counts
_CLOSE = 0.1  # how far the deciding valley is from the threshold, as a share of it
_TOLD = 3  # concerns in a sentence
_SURE, _AGREED = 0.6, 0.8  # expected agreement (ARI) of the starting partition with its rivals
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
        "Do not rely on scores and samples: train longer (max_iter), with a smaller optimiser.learning_rate or "
        "with the default sampler; the clusters are not affected."
    ),
    TOO_FEW: "Ask for more clusters, or let the number be found (n_clusters='auto').",
    TOO_MANY: "Ask for fewer clusters, or let the number be found (n_clusters='auto').",
    ACROSS: (
        "Let shares and start be found (prior='auto', method='gedi'), try another random_state or number of "
        "clusters, or say where a few rows belong (partial_labels)."
    ),
    PINNED: "Let the shares be found in the data (prior='auto'), or give those you expect.",
    UNDECIDED_NAMES: (
        "Label a row or two of what cannot be told apart (partial_labels), or add examples; Constraint.shortcuts "
        "and `gedikit rules check` say which are the fewest. The clusters themselves are not affected."
    ),
    UNSURE_NAMES: (
        "Add examples, train longer, or label a row or two of these clusters (partial_labels); look at clusters "
        "that hold few rows, or rows of two symbols. The rules themselves leave nothing open."
    ),
    OF_OUTLIERS: (
        "Look at the rows of that cluster: leave them out, or give them sample_weight=0, and fit again; "
        "outlier_score finds them without a cluster of their own."
    ),
}

# the symbols say how many clusters there are, and the rules which method and shares
_ADVICE_TO_RULES = (
    "Compare some rows of these clusters with the symbols they should show; more examples, a longer training or "
    "labels of a few rows of them (partial_labels) may settle it."
)


@dataclass(frozen=True)
class Diagnosis:
    """A verdict, the numbers that say so, and what to change."""

    verdict: str
    explanation: str
    advice: str
    numbers: dict[str, float]
    concerns: tuple[Concern, ...] = ()  # which clusters and rows to look at; also of a healthy fit, if they are few

    @property
    def healthy(self) -> bool:
        return self.verdict == HEALTHY

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "explanation": self.explanation,
            "advice": self.advice,
            "numbers": self.numbers,
            "concerns": [concern.tree() for concern in self.concerns],
        }

    def __str__(self) -> str:
        numbers = "\n".join(f"  {name:<28} {value:.4g}" for name, value in self.numbers.items())
        return f"{self.verdict}: {self.explanation}\n{self.advice}\n{numbers}"


def diagnose(fitted: FittedModel, x: NDArray[Any], last: dict[str, float] | None = None) -> Diagnosis:
    """Look at a model on a batch it was, at best, not trained on; `last` holds its final measurements."""
    numbers = _numbers(fitted, x, last or {})
    concerns = tuple(Concern.from_tree(tree) for tree in fitted.info.get("concerns", []))
    verdict, explanation = _verdict(numbers, concerns, fitted)
    by_rules = "names" in fitted.info and verdict in (TOO_FEW, TOO_MANY, ACROSS, PINNED, UNCERTAIN)
    return Diagnosis(verdict, explanation, _ADVICE_TO_RULES if by_rules else _ADVICE[verdict], numbers, concerns)


def _numbers(fitted: FittedModel, x: NDArray[Any], last: dict[str, float]) -> dict[str, float]:
    z = fitted.to_scaled(x)
    generator = torch.Generator(z.device).manual_seed(0)
    moved = fitted.plan.config.data.nearby(z, fitted.bandwidth, generator)
    log_prior = torch.from_numpy(np.log(fitted.prior)).to(z.device)
    with alone(), torch.inference_mode():
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


def _verdict(n: dict[str, float], concerns: Sequence[Concern], fitted: FittedModel) -> tuple[str, str]:
    wrong = _failure(n, concerns, fitted) or _against_islands(n, concerns, fitted) or _of_density(n, fitted)
    wrong = wrong or _of_names(fitted)
    if wrong is not None:
        return wrong
    doubt = _doubt(n, concerns, fitted.n_clusters)
    if doubt:
        return UNCERTAIN, doubt
    agree = n.get("agreement_of_views", n["agreement_nearby"])
    said = f"the clusters carry {n['mutual_information']:.3g} of {n['prior_optimum']:.3g} nats"
    return HEALTHY, f"{said}, views agree in {agree:.1%} of cases"


def _failure(n: dict[str, float], concerns: Sequence[Concern], fitted: FittedModel) -> tuple[str, str] | None:
    """Failure modes of the losses, which clusters of any data can have."""
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
        # a fit that starts from a partition is measured against that; walks may pass where islands touch; and where
        # views were looked at, islands tell more of what went wrong
        told = _follows_views(fitted) and any(concern.sure for concern in concerns)
        across = "kept_of_start" not in n and n.get("agreement_with_islands", 0.0) < _MINOR and not told
        if across and n.get("agreement_of_long_walks", 1.0) < _ACROSS:
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
    return None


def _of_names(fitted: FittedModel) -> tuple[str, str] | None:
    """Names that examples leave open, so that clusters may stand for something else, or no fit is sure of."""
    if "names" not in fitted.info:
        return None
    names = Names.from_tree(fitted.info["names"])
    by_rule, by_fit, n = names.open_by_rule, names.open_by_fit, len(names.names)
    if by_rule:
        groups = [", ".join(map(str, values)) for _, values in names.groups]
        what = "; ".join(groups[:_TOLD]) or ", ".join(map(str, by_rule))
        more = f" and {len(groups) - _TOLD} more groups" if len(groups) > _TOLD else ""
        unsure = f"; of {len(by_fit)} more the fit is not sure" if by_fit else ""
        return UNDECIDED_NAMES, (
            f"the rules and examples do not settle what {len(by_rule)} of {n} clusters stand for: names that could "
            f"be exchanged are {what}{more}{unsure}"
        )
    if by_fit:
        some = ", ".join(map(str, by_fit[:_TOLD])) + (", …" if len(by_fit) > _TOLD else "")
        return UNSURE_NAMES, (
            f"the rules and examples settle all names, but of {len(by_fit)} of {n} this fit is not sure ({some}): "
            f"{names.violated} of {names.n_examples} examples violate their rule"
        )
    return None


def _of_density(n: dict[str, float], fitted: FittedModel) -> tuple[str, str] | None:
    gap = abs(n.get("training_energy_gap", 0.0))
    if gap > 10 * fitted.n_features + 10 or n.get("training_acceptance", 1.0) < 0.05:
        return "density not learned", f"data and model samples differ by {gap:.3g} nats in log-density"
    if n.get("gain_over_gaussian", 0.0) + 2 * n.get("gain_error", 0.0) < -_WORSE:
        return "density not learned", (
            f"rows are less probable than under one Gaussian, by {-n['gain_over_gaussian']:.2g} nats a row"
        )
    return None


def _against_islands(
    n: dict[str, float], concerns: Sequence[Concern], fitted: FittedModel
) -> tuple[str, str] | None:
    """What is wrong with clusters beyond doubt and concerns more than a few rows."""
    sure = [concern for concern in concerns if concern.sure]
    inside = [concern for concern in sure if concern.kind == SEVERAL_ISLANDS]
    cuts = [concern for concern in sure if concern.kind == CUT_ISLAND]
    follows = _follows_views(fitted)
    # groups that touch look like one island: where other methods part them too, or the plan knew that they overlap,
    # a cut alone is no failure
    found_by_others = fitted.plan.shares == AUTO and n.get("start_agreement", 0.0) >= _SURE
    known_to_overlap = fitted.plan.shares == UNIFORM and not _shares_were_asked(fitted)
    unsettled = follows and not inside and (_one_island(n) or found_by_others or known_to_overlap)
    if (inside or cuts) and not unsettled and n.get("agreement_with_islands", 1.0) < _MINOR:
        what = "; ".join(map(_said, [*inside[:_TOLD], *cuts[:_TOLD]]))
        if not follows:
            return "label inconsistency", f"nothing made labels follow neighbours: {what}"
        if fitted.n_clusters > 1 and _shares_were_asked(fitted) and _has_the_shares(fitted):
            return PINNED, f"the clusters have the shares that were asked for, at a price: {what}"
        return (ACROSS if inside and cuts else TOO_FEW if inside else TOO_MANY), what
    eaten = [concern for concern in sure if concern.kind == OUTLIERS]
    if eaten:
        (cluster,), share = eaten[0].clusters, eaten[0].share
        return OF_OUTLIERS, f"cluster {cluster} ({share:.1%} of the rows) is made of rows far from all others"
    return None


def _follows_views(fitted: FittedModel) -> bool:
    """Whether anything that was minimised looked at rows and their views."""
    return any(objective.n_views for objective in fitted.plan.config.objectives.values())


def _one_island(n: dict[str, float]) -> bool:
    """Whether the graph parts nothing at all: groups that touch then look like one, and it is not known which."""
    return n.get("islands", 2.0) < 2


def _shares_were_asked(fitted: FittedModel) -> bool:
    """Whether the shares are a user's, and not what the plan found or settled for."""
    return any(decision.what == "prior" and decision.reason == ASKED for decision in fitted.plan.decisions)


def _has_the_shares(fitted: FittedModel) -> bool:
    shares = np.bincount(fitted.training_labels, minlength=fitted.n_clusters) / len(fitted.training_labels)
    return bool((np.abs(shares - fitted.prior) <= _PINNED * fitted.prior).all())


def _said(concern: Concern) -> str:
    """A concern about islands in words."""
    if concern.kind == SEVERAL_ISLANDS:
        be = "is" if concern.sure else "may be"
        return f"cluster {concern.clusters[0]} {be} several islands, one with {concern.share:.1%} of the rows"
    be = "are" if concern.sure else "may be"
    return f"clusters {concern.clusters[0]} and {concern.clusters[1]} {be} one island"


def _doubt(n: dict[str, float], concerns: Sequence[Concern], n_clusters: int) -> str:
    """Why the clusters may be others, if there is a reason."""
    settled = n.get("start_agreement", 0.0) >= _AGREED and 2 * n.get("islands", 0.0) > n_clusters
    doubted = [concern for concern in concerns if not (settled and concern.kind == CUT_ISLAND)]
    weak = next((concern for concern in doubted if not concern.sure and concern.share >= _FEW), None)
    if weak is not None:
        return f"{_said(weak)}, which the rows do not settle"
    cuts = [concern for concern in doubted if concern.sure and concern.kind == CUT_ISLAND]
    if cuts and not _one_island(n) and n.get("agreement_with_islands", 1.0) < _MINOR:
        return f"no gap between neighbours parts some clusters: {'; '.join(map(_said, cuts[:_TOLD]))}"
    if cuts and _one_island(n):
        return "the rows may be a single group, or groups that touch: no gap between neighbours parts the clusters"
    if n.get("number_margin", 1.0) < _CLOSE:
        return f"another number of clusters, {n['other_number']:.0f}, is about as well founded"
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
