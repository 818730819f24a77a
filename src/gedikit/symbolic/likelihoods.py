"""How likely the clusters of examples are, given p(cluster | value) and a rule.

What an example shows under such probabilities is a sum over the allowed tuples; values that are known leave few.
Where there are too many, it is the derivative of the constraint's log-probability, which a circuit has without
going through them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, prod
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor
from torch.nn.functional import one_hot

from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import NOTHING, of_observed, stated
from gedikit.symbolic.expectations import observed
from gedikit.symbolic.situations import allowed

MAX_LISTED = 1000  # allowed tuples; with more of them a circuit is faster
MAX_SITUATIONS = 400  # different known values, each with tuples of its own
# numbers computed at once, a product of an example and an allowed tuple each, or a circuit's
WORK, GPU_WORK = 2_000_000, 64_000_000

Shows = list[Float[Tensor, "_ _ _"]]
"""p(cluster | value) of every start, for each kind of symbols: rows over clusters add up to 1."""

Answer = tuple[Float[Tensor, "_ _"], list[Float[Tensor, "_ _ _ _"]]]
"""log p(pattern), and for each kind of symbols p(value | pattern) of its variables."""

Sizes = Sequence[tuple[int, int]]  # of every kind, its values and clusters


@dataclass(frozen=True)
class Seen:
    """Examples of a constraint with the clusters of their images; the same variables are images in all of them."""

    constraint: Constraint
    kinds: tuple[int | None, ...]  # of every variable; None: no image
    clusters: Int64[Tensor, "n v"]
    known: Int[Tensor, "n v"]
    weights: Float[Tensor, " n"] | None = None
    holds: Bool[Tensor, " n"] | None = None
    probability: Float[Tensor, " n"] | None = None

    def of_kind(self, kind: int) -> list[int]:
        """Variables that show symbols of a kind."""
        return [j for j, own in enumerate(self.kinds) if own == kind]

    @property
    def images(self) -> list[int]:
        return [j for j, kind in enumerate(self.kinds) if kind is not None]

    @property
    def plain(self) -> bool:
        return None not in self.kinds and self.certain

    @property
    def certain(self) -> bool:
        """Whether the constraint holds in all examples, without doubt."""
        if self.holds is None or self.probability is None:
            return True
        return bool(self.holds.all() and (self.probability == 1).all())

    def some(self, which: Int64[Tensor, " m"]) -> "Seen":
        def of(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[which]

        return replace(
            self,
            clusters=self.clusters[which],
            known=self.known[which],
            weights=of(self.weights),
            holds=of(self.holds),
            probability=of(self.probability),
        )


class _Rule(Protocol):
    """What a constraint says about patterns, given p(cluster | value)."""

    @property
    def numbers(self) -> int:
        """How many are held at once for every start and pattern."""

    def __call__(self, log_shows: Shows, patterns: Seen) -> Answer: ...


class ByTuples:
    """Sums over the allowed tuples, one by one."""

    def __init__(
        self,
        tuples: Int64[Tensor, "t v"],
        log_weights: Float[Tensor, " t"],
        kinds: Sequence[int],
        sizes: Sizes,
        device: torch.device,
    ):
        """`tuples` are values of the variables that are images, of these `kinds`."""
        self.tuples: Int64[Tensor, "v t"] = tuples.T.contiguous().to(device)
        self.log_prior = torch.log_softmax(log_weights, 0)[:, None].to(device)
        self.kinds, self.n_kinds = list(kinds), len(sizes)
        self.has_value: list[Float[Tensor, "v*d t"]] = [
            one_hot(self.tuples[self._of_kind(i)], n_values).mT.flatten(0, 1).float()
            if i in self.kinds
            else torch.empty(0, len(tuples), device=device)
            for i, (n_values, _) in enumerate(sizes)
        ]
        self.numbers = len(tuples)

    def _of_kind(self, kind: int) -> list[int]:
        return [j for j, own in enumerate(self.kinds) if own == kind]

    def __call__(self, log_shows: Shows, patterns: Seen) -> Answer:
        """Products are relative to the largest of their pattern, so that none of many small factors is lost.

        Sums over the tuples that have a value are a matrix product: a scattered sum has no fixed order on a GPU.
        """
        products = self.log_prior.to(log_shows[0])
        shown = patterns.clusters[:, patterns.images]
        for kind, values, clusters in zip(self.kinds, self.tuples, shown.T, strict=True):
            products = log_shows[kind].index_select(2, clusters).index_select(1, values).add_(products)
        largest = products.amax(1, keepdim=True)
        share = products.sub_(largest).exp_()
        total: Tensor | None = None
        by_kind = []
        for kind, has_value in enumerate(self.has_value):
            by_value = (has_value.to(share) @ share).unflatten(1, (len(self._of_kind(kind)) or 1, -1))
            if total is None and kind in self.kinds:
                total = by_value[:, :1].sum(2, keepdim=True)
            by_kind.append(by_value)
        assert total is not None
        return (total[:, 0].log() + largest).squeeze(1), [by_value.div_(total) for by_value in by_kind]


class ByCircuit:
    """The constraint's log-probability, given p(value | cluster) of every row, and its derivatives.

    p(value | cluster) is p(cluster | value) over its sum, and the sums come back at the end: what goes through the
    circuit is near 1 and loses few digits. Derivatives with respect to log p(value) are p(value | rule).
    """

    def __init__(self, constraint: Constraint, device: torch.device):
        self.body, self.sizes = constraint.body, [v.size for v in constraint.variables]
        every = torch.zeros(sum(self.sizes), 1, dtype=torch.float64, device=device)
        self.log_weight = self.body.log_joint(every)  # of all allowed tuples together
        self.numbers = sum(self.sizes) + self.body.size

    def __call__(self, log_shows: Shows, patterns: Seen) -> Answer:
        n_starts, n_patterns = len(log_shows[0]), len(patterns.clusters)
        with torch.inference_mode(False), torch.enable_grad():
            scale = [of_kind.logsumexp(1) for of_kind in log_shows]
            by_value = [
                (of_kind - whole[:, None]).transpose(0, 1).contiguous()
                for of_kind, whole in zip(log_shows, scale, strict=True)
            ]
            columns = []
            for kind, clusters, known, size in zip(
                patterns.kinds, patterns.clusters.T, patterns.known.T, self.sizes, strict=True
            ):
                if kind is not None:
                    columns.append(by_value[kind].index_select(2, clusters))
                else:
                    certain = stated(known, size, log_shows[0].dtype).mT[:, None]
                    columns.append(certain.expand(size, n_starts, n_patterns))
            inputs = torch.cat(columns).flatten(1).requires_grad_()
            log_joint = self.body.log_joint(inputs)
            (gradient,) = torch.autograd.grad(log_joint.sum(), inputs)
        log_joint = log_joint.detach()
        if not patterns.certain:
            assert patterns.holds is not None and patterns.probability is not None
            holds, q = patterns.holds.repeat(n_starts), patterns.probability.to(log_joint).repeat(n_starts)
            gradient = observed(log_joint, gradient, inputs.detach().exp(), holds, q)
            log_joint = of_observed(log_joint, holds, q)
        log_p = (log_joint - self.log_weight.to(log_joint)).reshape(n_starts, n_patterns)
        parts = gradient.split(self.sizes)
        by_kind = []
        for kind, whole in enumerate(scale):
            shown = patterns.of_kind(kind)
            if not shown:
                by_kind.append(log_p.new_empty(n_starts, 0, 0, n_patterns))
                continue
            log_p = log_p + whole[:, patterns.clusters[:, shown]].sum(-1)
            of_kind = torch.cat([parts[j] for j in shown]).reshape(len(shown), -1, n_starts, n_patterns)
            by_kind.append(of_kind.permute(2, 0, 1, 3))
        return log_p, by_kind


def _rules(seen: Seen, sizes: Sizes) -> list[tuple[_Rule, Int64[Tensor, " _"]]]:
    """A rule, and which examples it is for: by tuples where these are few, for every situation of known values.

    The sum of the tuples' weights is their number, unless some are less than 1.
    """
    constraint, device = seen.constraint, seen.clusters.device
    every = torch.arange(len(seen.clusters), device=device)
    by_circuit = ByCircuit(constraint, device)
    if not seen.certain:
        return [(by_circuit, every)]
    if seen.plain:
        if not constraint.few_tuples or by_circuit.log_weight > log(MAX_LISTED + 0.5):
            return [(by_circuit, every)]
        tuples, log_weights = allowed(constraint, seen.images, {}, joint=True)
        if len(tuples) > MAX_LISTED:
            return [(by_circuit, every)]
        return [(ByTuples(tuples, log_weights, _shown(seen), sizes, device), every)]
    situations, which = seen.known.unique(dim=0, return_inverse=True)
    n_tuples = prod(constraint.variables[j].size for j in seen.images)
    if len(situations) > MAX_SITUATIONS or n_tuples > WORK / len(situations):
        return [(by_circuit, every)]
    rules: list[tuple[_Rule, Int64[Tensor, " _"]]] = []
    listed = 0
    for i, situation in enumerate(situations.tolist()):
        known = {j: at for j, at in enumerate(situation) if at != NOTHING}
        tuples, log_weights = allowed(constraint, seen.images, known, joint=True)
        mine = every[which == i]
        listed += len(tuples) * len(mine)
        rules.append((ByTuples(tuples, log_weights, _shown(seen), sizes, device), mine))
    return rules if listed <= MAX_LISTED * len(every) else [(by_circuit, every)]


def _shown(seen: Seen) -> list[int]:
    return [kind for kind in seen.kinds if kind is not None]


class Part:
    """A rule and the patterns seen, each once, with its number."""

    def __init__(self, rule: _Rule, seen: Seen, sizes: Sizes):
        self.rule = rule
        each = [seen.clusters, *([] if None not in seen.kinds else [seen.known])]
        if not seen.certain:
            assert seen.holds is not None and seen.probability is not None
            thousandths = (seen.probability * 1e6).round()
            each += [seen.holds[:, None], thousandths[:, None]]
        together = torch.cat([values.long() for values in each], 1)
        _, self.pattern_of_example, counts = together.unique(dim=0, return_inverse=True, return_counts=True)
        first = torch.zeros(len(counts), dtype=torch.int64, device=together.device)
        first[self.pattern_of_example.flip(0)] = torch.arange(len(together), device=together.device).flip(0)
        self.patterns = seen.some(first)
        self.counts = counts.double()
        if seen.weights is not None:
            self.counts = torch.zeros_like(self.counts).index_add_(
                0, self.pattern_of_example, seen.weights.double()
            )
        self.rows_in_cluster: list[Float[Tensor, "_ _ _"]] = []
        for i, (_, n_clusters) in enumerate(sizes):
            shown = self.patterns.clusters[:, seen.of_kind(i)].T
            rows = one_hot(shown, n_clusters) if len(shown) else shown.new_zeros(0, len(counts), n_clusters)
            self.rows_in_cluster.append((rows * self.counts[:, None]).float())

    @property
    def numbers(self) -> int:
        return self.rule.numbers * len(self.counts)

    def evaluate(self, log_shows: Shows) -> Answer:
        """What the rule says about every pattern, so many of them at a time that memory stays bounded."""
        size = max(1, _work(log_shows[0].device) // (self.rule.numbers * len(log_shows[0])))
        blocks = torch.arange(len(self.counts), device=log_shows[0].device).split(size)
        if len(blocks) == 1:
            return self.rule(log_shows, self.patterns)
        answers = [self.rule(log_shows, self.patterns.some(block)) for block in blocks]
        log_p, by_kind = zip(*answers, strict=True)
        return torch.cat(log_p, 1), [torch.cat(of_kind, 3) for of_kind in zip(*by_kind, strict=True)]


class Model:
    """All rules with the patterns seen, and rows whose symbols are known."""

    def __init__(self, seen: Sequence[Seen], sizes: Sizes, labelled: list[Float[Tensor, "_ _"]]):
        self.labelled, self.any_labelled = labelled, any(bool(known.any()) for known in labelled)
        self.parts: list[Part] = []
        self.n_seen = len(seen)
        self.origin: list[tuple[int, Int64[Tensor, " _"]]] = []  # of every part: which of `seen`, which examples
        for i, one in enumerate(seen):
            for rule, which in _rules(one, sizes):
                self.parts.append(Part(rule, one.some(which), sizes))
                self.origin.append((i, which))
        work = _work(seen[0].clusters.device)
        self.starts_at_once = max(1, work // sum(part.numbers for part in self.parts))

    def evaluate(self, log_shows: Shows) -> list[Answer]:
        return [part.evaluate(log_shows) for part in self.parts]

    def expected_rows(self, log_shows: Shows) -> Shows:
        """How many rows are expected to have each value and cluster, for each kind of symbols."""
        total: list[Tensor | None] = [None for _ in log_shows]
        for part in self.parts:
            _, posteriors = part.evaluate(log_shows)
            for i, (posterior, rows) in enumerate(zip(posteriors, part.rows_in_cluster, strict=True)):
                if len(rows):
                    found, so_far = (posterior @ rows.to(posterior)).sum(1), total[i]
                    total[i] = found if so_far is None else so_far + found
        expected = [torch.zeros_like(s) if t is None else t for s, t in zip(log_shows, total, strict=True)]
        return (
            [e + known for e, known in zip(expected, self.labelled, strict=True)] if self.any_labelled else expected
        )

    def log_likelihood(self, log_shows: Shows) -> Float[Tensor, " s"]:
        total: Tensor = self.parts[0].evaluate(log_shows)[0] @ self.parts[0].counts
        for part in self.parts[1:]:
            total = total + part.evaluate(log_shows)[0] @ part.counts
        if self.any_labelled:
            for of_kind, known in zip(log_shows, self.labelled, strict=True):
                total = total + (of_kind * known).sum((1, 2))
        return total

    def of_examples(self, number: int, answers: Sequence[Answer]) -> list[Float[Tensor, "_ _ _"]]:
        """log p(value) of the images of every example of one of `seen`, by kind of symbols, of the first start."""
        mine = [j for j, (i, _) in enumerate(self.origin) if i == number]
        order = torch.cat([self.origin[j][1] for j in mine]).argsort()
        found = []
        for kind in range(len(self.labelled)):
            parts = [answers[j][1][kind][0].permute(2, 0, 1)[self.parts[j].pattern_of_example] for j in mine]
            found.append(torch.cat(parts)[order].log().float())
        return found


def _work(device: torch.device) -> int:
    return GPU_WORK if device.type == "cuda" else WORK
