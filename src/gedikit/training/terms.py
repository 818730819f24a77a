"""The discriminative terms by name: what each looks at, what it carries from batch to batch, and its optimum."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gedikit import objectives
from gedikit.data.views import Views
from gedikit.settings import Settings
from gedikit.symbolic import best_relabelling
from gedikit.training.rules import Rules
from gedikit.training.state import TrainState

if TYPE_CHECKING:
    from gedikit.training.step import Outputs, Phase

_SELA_ITERATIONS = 50
_RENAMINGS = 20
_BLOCK = 2048  # 2 GiB of activations where images are widest


@dataclass(frozen=True)
class Look:
    """What a term may look at in one iteration."""

    settings: Settings
    state: TrainState
    phase: "Phase"
    rows: Tensor
    views: tuple[Tensor, ...]  # as many x′ as the terms want
    view: Tensor  # one x′ in any case
    out: "Outputs"
    log_prior: Tensor
    rules: Rules | None = None
    reading: Tensor | None = None  # p(label | row) before the network has learned

    @property
    def posteriors(self) -> list[Tensor]:
        """log p(y|x) of x and, with `symmetric`, of x′."""
        both = self.settings.symmetric == "on"
        return [self.out.log_p, self.out.view_log_p] if both else [self.out.log_p]

    def mean_of(self, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """A loss of these posteriors; a single one is not stacked and averaged for nothing."""
        first, *others = map(loss, self.posteriors)
        return torch.stack([first, *others]).mean(0) if others else first


@dataclass(frozen=True)
class Sizes:
    """What an optimum may depend on."""

    batch: int
    embedding: int
    log_prior: Tensor
    rules: Rules | None = None


@dataclass(frozen=True)
class Term:
    """A loss, the memory it starts with, how that is refreshed from all the data, and its smallest value."""

    loss: Callable[[Look], Tensor]
    start: Callable[[TrainState, Settings, Views], dict[str, Tensor]] = lambda *_: {}
    refresh: Callable[[TrainState, Settings, Views, Rules | None], None] | None = None
    every: Callable[[Settings], int] = lambda s: s.assign_every  # iterations between two of them
    views: Callable[[Settings], int] = lambda _: 1  # how many x′ beside x
    optimum: Callable[[Settings, Sizes], float | None] = lambda *_: 0.0
    min_rows: int = 2
    captured: bool = True  # whether a CUDA graph can hold it: factorisations ask the device how they went


def _invariance(look: Look) -> Tensor:
    log_p, view = look.out.log_p, look.out.view_log_p
    loss = objectives.invariance.formula(log_p, view)
    return (loss + objectives.invariance.formula(view, log_p)) / 2 if look.settings.symmetric == "on" else loss


def _prior(look: Look) -> Tensor:
    """Of x alone, views of another kind than x could all fall into one cluster."""
    return look.mean_of(lambda log_p: objectives.prior.formula(log_p, look.log_prior))


def _constraint(look: Look) -> Tensor:
    """L_NESY of x and, with `symmetric`, of x′: an example's rows lie together."""
    assert look.rules is not None
    together = torch.stack(look.posteriors).unflatten(-2, (-1, look.rules.n_variables))
    return objectives.constraint_loss(look.rules.constraint.log_probability(together.unbind(-2))).mean(0)


def _reading(look: Look) -> Tensor:
    """Cross-entropy to what was read off before; rows that were not are left out."""
    assert look.reading is not None
    wanted = look.reading[look.rows]
    return look.mean_of(lambda log_p: objectives.reading_loss(log_p, wanted))


def _rename(state: TrainState, _: Settings, views: Views, rules: Rules | None) -> None:
    """Give clusters the names under which most examples satisfy the rule: gradients cannot exchange two of them."""
    assert rules is not None
    if state.iteration == 0 or not rules.constraint.few_tuples:
        return
    log_p = torch.log_softmax(of_all_rows(state.average.logits, views), dim=-1)
    found = best_relabelling([log_p[column] for column in rules.examples.T], rules.constraint)
    order = found.namings[0].argsort()
    if order.tolist() != [*range(len(order))]:  # names that are as good as any stay
        state.exchange_clusters(order)
        state.events.append(f"iteration {state.iteration}: clusters exchanged their names, as the rule asks")


def _infonce(look: Look) -> Tensor:
    s, z, view = look.settings, look.out.z, look.out.view_z
    if s.similarity == "euclidean":  # distances on the unit sphere, as EBCLR measures them
        z, view = F.normalize(z, dim=-1), F.normalize(view, dim=-1)
    return objectives.infonce.formula(z, view, temperature=s.similarity_temperature, similarity=s.similarity)


def _cpc(look: Look) -> Tensor:
    critic = look.state.network.critic
    assert critic is not None
    return objectives.cpc.formula(look.out.z, look.out.view_z, critic)


def _protocpc(look: Look) -> Tensor:
    """The averaged network teaches, looking at the other view."""
    student = look.out.logits_of_x * look.state.network.temperature
    with torch.no_grad():
        teacher = look.state.average.logits(look.views[0]) * look.state.network.temperature
    p = torch.softmax(teacher / look.settings.teacher_temperature, dim=-1)
    return objectives.protocpc.formula(student, p, temperature=look.state.network.temperature)


def _kscl(look: Look) -> Tensor:
    shots = torch.stack(look.out.all_view_z, dim=-2)
    return objectives.kscl.formula(look.out.z, shots, temperature=look.settings.similarity_temperature)


def _barlow_twins(look: Look) -> Tensor:
    return objectives.barlow_twins.formula(look.out.z, look.out.view_z, off_diagonal=look.settings.off_diagonal)


def _vicreg(look: Look) -> Tensor:
    s = look.settings
    return objectives.vicreg.formula(
        look.out.z,
        look.out.view_z,
        invariance=s.vicreg_invariance,
        variance=s.vicreg_variance,
        covariance=s.vicreg_covariance,
    )


def _corinfomax(look: Look) -> Tensor:
    s, memory = look.settings, look.state.memory
    z, view = look.out.z, look.out.view_z
    covariances = []
    for name, part in (("covariance", z), ("view_covariance", view)):
        unit = F.normalize(part, dim=-1)
        r = objectives.running_covariance(unit, memory[name], s.covariance_momentum)
        memory[name] = r.detach()
        covariances.append(r)
    return objectives.corinfomax.formula(z, view, *covariances, invariance=s.corinfomax_invariance)


def _start_corinfomax(state: TrainState, _: Settings, __: Views) -> dict[str, Tensor]:
    width = state.network.centers.shape[-2]
    even = torch.eye(width, device=state.weights.device) / width
    even = even.expand(*state.members, width, width).clone()
    return {"covariance": even, "view_covariance": even.clone()}


def _swav(look: Look) -> Tensor:
    s, network, memory = look.settings, look.state.network, look.state.memory
    queues: dict[str, Tensor | None] = {"queue": None, "view_queue": None}
    if s.queue:
        for name, z in (("queue", look.out.z), ("view_queue", look.out.view_z)):
            if look.phase.full_queue:
                queues[name] = network.cluster_scores(memory[name]) * network.temperature
            memory[name] = torch.cat([z.detach(), memory[name]], dim=-2)[..., : s.queue, :]
    return objectives.swav.formula(
        look.out.logits_of_x * network.temperature,
        look.out.logits_of_view * network.temperature,
        temperature=network.temperature,
        epsilon=s.sinkhorn_epsilon,
        iterations=s.sinkhorn_iterations,
        queue=queues["queue"],
        view_queue=queues["view_queue"],
    )


def _start_swav(state: TrainState, settings: Settings, _: Views) -> dict[str, Tensor]:
    if not settings.queue:
        return {}
    shape = (*state.members, settings.queue, state.network.centers.shape[-2])
    return {name: torch.zeros(shape, device=state.weights.device) for name in ("queue", "view_queue")}


def _deepcluster(look: Look) -> Tensor:
    target = torch.take_along_dim(look.state.memory["assignment"], look.rows, dim=-1)
    both = (look.out.log_p, look.out.view_log_p)
    return sum(objectives.deepcluster.formula(log_p, target) for log_p in both) / 2  # type: ignore[return-value]


def _assign_by_k_means(state: TrainState, _: Settings, views: Views, __: Rules | None) -> None:
    """k-means on the averaged network's features, from the last centres on, so that clusters keep their names."""
    from sklearn.cluster import KMeans

    features = of_all_rows(state.average.features, views).double()
    flat = features.reshape(-1, *features.shape[-2:]).cpu().numpy()
    old = state.memory["centroids"]
    old_flat = old.reshape(-1, *old.shape[-2:]).cpu().numpy()
    found = []
    for part, centers in zip(flat, old_flat, strict=True):
        first = not np.any(centers)
        start = "k-means++" if first else centers
        n_init = 10 if first else 1
        found.append(KMeans(len(centers), init=start, n_init=n_init, random_state=state.iteration).fit(part))
    device = old.device
    centers = torch.from_numpy(np.stack([f.cluster_centers_ for f in found])).to(device)
    labels = torch.from_numpy(np.stack([f.labels_ for f in found])).long().to(device)
    state.memory["centroids"] = centers.reshape(old.shape)
    state.memory["assignment"] = labels.reshape(features.shape[:-1])


def _start_deepcluster(state: TrainState, _: Settings, views: Views) -> dict[str, Tensor]:
    with torch.no_grad():
        width = state.network.features(views.points(0, 2)).shape[-1]
    device = state.weights.device
    shape = (*state.members, state.network.centers.shape[-1], width)
    rows = (*state.members, views.n_rows)
    return {
        "centroids": torch.zeros(shape, dtype=torch.float64, device=device),
        "assignment": torch.zeros(rows, dtype=torch.int64, device=device),
    }


def _sela(look: Look) -> Tensor:
    codes = torch.take_along_dim(look.state.memory["codes"], look.rows[..., None], dim=-2)
    both = (look.out.log_p, look.out.view_log_p)
    return sum(objectives.sela.formula(log_p, codes) for log_p in both) / 2  # type: ignore[return-value]


def _assign_by_sinkhorn(state: TrainState, settings: Settings, views: Views, _: Rules | None) -> None:
    log_p = torch.log_softmax(of_all_rows(state.average.logits, views), dim=-1)
    state.memory["codes"] = objectives.sinkhorn(
        log_p, epsilon=settings.sinkhorn_epsilon, iterations=_SELA_ITERATIONS
    )


def _start_sela(state: TrainState, _: Settings, views: Views) -> dict[str, Tensor]:
    shape = (*state.members, views.n_rows, state.network.centers.shape[-1])
    return {"codes": torch.full(shape, 1 / shape[-1], device=state.weights.device)}


def of_all_rows(function: Callable[[Tensor], Tensor], views: Views) -> Tensor:
    """A function of points, of all rows of the data, in memory that does not grow with them."""
    n, size = views.n_rows, _BLOCK
    blocks = (views.points(start, min(start + size, n)) for start in range(0, n, size))
    return torch.cat([function(block) for block in blocks], dim=-2)


def _cosine_only(optimum: Callable[[int, float], float]) -> Callable[[Settings, Sizes], float | None]:
    def known(s: Settings, sizes: Sizes) -> float | None:
        return optimum(sizes.batch, s.similarity_temperature) if s.similarity == "cosine" else 0.0

    return known


TERMS: Mapping[str, Term] = {
    "invariance": Term(_invariance, min_rows=1),
    "prior": Term(
        _prior,
        views=lambda s: int(s.symmetric == "on"),
        optimum=lambda _, sizes: objectives.prior_optimum(sizes.log_prior),
        min_rows=1,
    ),
    "constraint": Term(
        _constraint,
        refresh=_rename,
        every=lambda s: max(1, s.iterations // _RENAMINGS),
        views=lambda s: int(s.symmetric == "on"),
        optimum=lambda _, sizes: sizes.rules.constraint.least_loss() if sizes.rules else None,
        min_rows=1,
    ),
    "reading": Term(
        _reading,
        views=lambda s: int(s.symmetric == "on"),
        optimum=lambda *_: None,
        min_rows=1,
    ),
    "uniformity": Term(
        lambda look: objectives.entropy_of_mean.formula(look.out.log_p),
        views=lambda _: 0,
        optimum=lambda _, sizes: objectives.entropy_of_mean_optimum(len(sizes.log_prior)),
        min_rows=1,
    ),
    "infonce": Term(_infonce, optimum=_cosine_only(objectives.infonce_optimum)),
    "simclr": Term(
        lambda look: objectives.simclr.formula(
            look.out.z, look.out.view_z, temperature=look.settings.similarity_temperature
        ),
        optimum=lambda s, sizes: objectives.simclr_optimum(sizes.batch, s.similarity_temperature),
    ),
    "cpc": Term(_cpc),
    "protocpc": Term(_protocpc, optimum=lambda _, sizes: objectives.protocpc_optimum(len(sizes.log_prior))),
    "kscl": Term(
        _kscl,
        views=lambda s: s.shots,
        optimum=lambda s, sizes: objectives.kscl_optimum(sizes.batch, s.similarity_temperature),
        captured=False,
    ),
    "barlow-twins": Term(_barlow_twins),
    "vicreg": Term(_vicreg),
    "w-mse": Term(
        lambda look: objectives.w_mse.formula(look.out.z, look.out.view_z, shrinkage=look.settings.shrinkage),
        captured=False,
    ),
    "corinfomax": Term(
        _corinfomax,
        _start_corinfomax,
        optimum=lambda _, sizes: objectives.corinfomax_optimum(sizes.embedding),
        captured=False,
    ),
    "mec": Term(
        lambda look: objectives.mec.formula(look.out.z, look.out.view_z, distortion=look.settings.distortion),
        optimum=lambda s, sizes: objectives.mec_optimum(sizes.batch, sizes.embedding, s.distortion),
        captured=False,
    ),
    "swav": Term(_swav, _start_swav),
    "deepcluster": Term(_deepcluster, _start_deepcluster, _assign_by_k_means, min_rows=1),
    "sela": Term(_sela, _start_sela, _assign_by_sinkhorn, min_rows=1),
}
_OWN_WEIGHT = ("generative", "invariance", "prior", "energy_l2", "constraint", "reading", "uniformity")


def weight_of(term: str, settings: Settings) -> float:
    """Each of the paper's terms has a weight of its own; the others share one: a method has at most one of them."""
    weight: float = getattr(settings, term if term in _OWN_WEIGHT else "discriminative")
    return weight
