"""Every objective with input drawn for it, for the properties that all of them share."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gedikit import densities as d
from gedikit import objectives as o

ROWS, DIMS, SHOTS = 12, 4, 3
DOUBLE = torch.float64


def log_p(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


@dataclass(frozen=True)
class Input:
    """A drawn tensor: which axis, counted from the end, holds rows (None: shared by all), and what it is."""

    shape: tuple[int, ...]
    rows: int | None
    kind: str = "embedding"  # or "weight", both with gradients; "constant" or "label", without

    @property
    def learned(self) -> bool:
        return self.kind in ("embedding", "weight")

    def draw(self, generator: torch.Generator) -> Tensor:
        if self.kind == "label":
            return torch.randint(DIMS, self.shape, generator=generator)
        return torch.randn(self.shape, generator=generator, dtype=DOUBLE)


@dataclass(frozen=True)
class Case:
    """`objective(*prepare(*drawn))` is the loss; embeddings are what a network would put out."""

    objective: Callable[..., Tensor]
    inputs: tuple[Input, ...]
    prepare: Callable[..., tuple[Tensor, ...]] = lambda *drawn: drawn
    codes: bool = False  # part of it carries no gradient, so finite differences do not see its gradient

    def draw(self, seed: int) -> list[Tensor]:
        """The second of two embeddings of one shape is the first with noise: a view."""
        generator = torch.Generator().manual_seed(seed)
        drawn = [i.draw(generator) for i in self.inputs]
        if len(drawn) > 1 and self.inputs[0] == self.inputs[1]:
            drawn[1] = drawn[0] + 0.5 * drawn[1]
        return drawn

    def loss(self, *drawn: Tensor) -> Tensor:
        return self.objective(*self.prepare(*drawn))


EMBEDDING = Input((ROWS, DIMS), -2)
PAIR = (EMBEDDING, EMBEDDING)
SQUARE = Input((DIMS, DIMS), None, "constant")
QUEUE = Input((6, DIMS), -2, "constant")


def _densities(*drawn: Tensor) -> tuple[Tensor, ...]:
    return tuple(d.cluster_log_density(x) for x in drawn)


def _on_the_sphere(a: Tensor, b: Tensor, root: Tensor) -> tuple[Tensor, ...]:
    """The covariance of earlier batches is any positive definite matrix."""
    a, b = (torch.nn.functional.normalize(x, dim=-1) for x in (a, b))
    return a, b, root @ root.mT / 10


def _with_running_covariance(a: Tensor, b: Tensor, before: Tensor) -> Tensor:
    return o.corinfomax(a, b, o.running_covariance(a, before, 0.7), o.running_covariance(b, before, 0.7))


CASES = {
    "invariance": Case(o.invariance, PAIR, lambda a, b: (log_p(a), log_p(b))),
    "prior": Case(o.prior, (EMBEDDING, Input((DIMS,), None, "constant")), lambda a, b: (log_p(a), log_p(b))),
    "mutual_information": Case(o.mutual_information, (EMBEDDING,), lambda a: (log_p(a),)),
    "infonce": Case(o.infonce, PAIR),
    "infonce euclidean": Case(lambda a, b: o.infonce(a, b, similarity="euclidean", temperature=2.0), PAIR),
    "infonce dot": Case(lambda a, b: o.infonce(a, b, similarity="dot", temperature=2.0), PAIR),
    "simclr": Case(o.simclr, PAIR),
    "cpc": Case(o.cpc, (*PAIR, Input((DIMS, DIMS), None, "weight"))),
    "protocpc": Case(lambda a, b: o.protocpc(a, b, temperature=0.5), PAIR, lambda a, b: (a, torch.softmax(b, -1))),
    "kscl": Case(o.kscl, (EMBEDDING, Input((ROWS, SHOTS, DIMS), -3))),
    "barlow_twins": Case(o.barlow_twins, PAIR),
    "vicreg": Case(o.vicreg, PAIR),
    "w_mse": Case(o.w_mse, PAIR),
    "corinfomax": Case(o.corinfomax, PAIR),
    "corinfomax running": Case(_with_running_covariance, (*PAIR, SQUARE), _on_the_sphere),
    "mec": Case(o.mec, PAIR),
    "swav": Case(lambda a, b: o.swav(a, b, epsilon=0.5, temperature=0.5), PAIR, codes=True),
    "swav queue": Case(
        lambda a, b, q, r: o.swav(a, b, epsilon=0.5, temperature=0.5, queue=q, view_queue=r),
        (*PAIR, QUEUE, QUEUE),
        codes=True,
    ),
    "deepcluster": Case(o.deepcluster, (EMBEDDING, Input((ROWS,), -1, "label")), lambda a, y: (log_p(a), y)),
    "sela": Case(
        o.sela,
        (EMBEDDING, Input((ROWS, DIMS), -2, "constant")),
        lambda a, b: (log_p(a), torch.softmax(b, -1)),
    ),
    "entropy_of_mean": Case(o.entropy_of_mean, (EMBEDDING,), lambda a: (log_p(a),)),
    "constraint_loss": Case(o.constraint_loss, (EMBEDDING,), lambda a: (log_p(a)[..., 0],)),
    "pseudo_label_loss": Case(
        o.pseudo_label_loss,
        (EMBEDDING, Input((ROWS, DIMS), -2, "constant")),
        lambda a, b: (log_p(a), torch.softmax(b, -1)),
    ),
    "constraint_loss weighted": Case(
        o.constraint_loss,
        (EMBEDDING, Input((ROWS,), -1, "constant")),
        lambda a, w: (log_p(a)[..., 0], w.exp()),
    ),
    "generative": Case(d.generative, PAIR, _densities),
    "importance_generative": Case(
        d.importance_generative,
        (*PAIR, Input((ROWS,), -1, "constant")),
        lambda a, b, q: (*_densities(a, b), q),
    ),
    "likelihood_generative": Case(d.likelihood_generative, (EMBEDDING,), _densities),
    "energy_l2": Case(d.energy_l2, PAIR, _densities),
    "effective_sample_size": Case(
        d.effective_sample_size,
        (EMBEDDING, Input((ROWS,), -1, "constant")),
        lambda a, q: (d.cluster_log_density(a), q),
    ),
}
