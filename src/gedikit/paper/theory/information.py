"""Appendices A to D: bounds on the mutual information, on a finite X with a deterministic encoder.

Every expectation is an exact sum. The paper's ELBO_EBM = −H(X) + I_UBA leaves out log p(z) = −ln |Z|, the constant
of the uniform prior; without it the right side would exceed E log p(x) = −H(X) wherever I_UBA is positive.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.objectives import protocpc
from gedikit.paper.theory.check import Check, distance, violation
from gedikit.paper.theory.draws import Draws
from gedikit.paper.theory.information_bounds import infonce_bound, nwj_bound, tuba_bound, uba_bound

POINTS, CODES, CRITICS = 4, 3, 200
TUPLES = (2, 3)

Critics = Float[Tensor, "*m x z"]


@dataclass(frozen=True)
class World:
    """p(x) on few points and the code g(x) of each; every code is used."""

    log_p: Float[Tensor, " x"]
    code: Int[Tensor, " x"]

    @property
    def p(self) -> Float[Tensor, " x"]:
        return self.log_p.exp()

    @property
    def log_p_code(self) -> Float[Tensor, " z"]:
        """log p(z) = log Σ p(x) over the x with g(x) = z."""
        return self.p.new_zeros(CODES).index_add(0, self.code, self.p).log()

    @property
    def entropy(self) -> Float[Tensor, ""]:
        return -(self.p * self.log_p).sum()

    @property
    def information(self) -> Float[Tensor, ""]:
        """I(X; Z), which is H(Z) where z = g(x)."""
        return -(self.p * self.log_p_code[self.code]).sum()

    @property
    def best_critic(self) -> Float[Tensor, "x z"]:
        """log p(x|z)/p(x): −log p(z) where g(x) = z, −∞ elsewhere."""
        matches = self.code[:, None] == torch.arange(CODES)
        return torch.where(matches, -self.log_p_code, -math.inf)

    def scores(self, critics: Critics, x: Int[Tensor, "*k n"] | None = None) -> Float[Tensor, "*mk n n"]:
        """f(x_j, g(x_i)) at row i and column j, for all points or for tuples of them."""
        x = torch.arange(POINTS) if x is None else x
        return critics[..., x[..., None, :], self.code[x][..., :, None]]


def random_world(draws: Draws) -> World:
    codes = torch.arange(POINTS) % CODES
    return World(torch.log_softmax(draws.normal(POINTS), -1), codes[draws.permutation(POINTS)])


def elbo(
    world: World, scores: Float[Tensor, "*#m x z"], log_prior: Float[Tensor, "*#m z"]
) -> Float[Tensor, "*out x"]:
    """log p(x|z; Θ) + log p(z; Θ) at z = g(x), for every x; p(x|z; Θ) = e^{f(x,z)}/Γ(z)."""
    log_conditional = torch.log_softmax(scores, dim=-2)
    return (log_conditional + log_prior[..., None, :])[..., torch.arange(POINTS), world.code]


def appendices(seed: int = 0) -> list[Check]:
    draws = Draws(seed)
    world, critics = random_world(draws), 2 * draws.normal(CRITICS, POINTS, CODES)
    return [
        _uba_elbo(world, critics),
        _uba(world, critics),
        _tuba(world, critics, draws),
        _infonce(world, critics),
        _infonce_elbo(world, critics),
        _protocpc(draws),
    ]


def _uba_elbo(world: World, critics: Critics) -> Check:
    log_prior = critics.new_full((CODES,), -math.log(CODES))
    f = world.log_p[:, None] + critics
    bound = (world.p * elbo(world, f, log_prior)).sum(-1)
    marginal = torch.logsumexp(torch.log_softmax(f, -2) + log_prior, -1)
    likelihood = (world.p * marginal).sum(-1)
    uba = uba_bound(world.scores(critics), world.p)
    best = uba_bound(world.scores(world.best_critic), world.p)
    return Check(
        "Appendix A",
        "ELBO_EBM is −H(X) + I_UBA − ln |Z|, the last the constant the paper drops, and ≤ E ln p(x; Θ) ≤ −H(X).",
        {
            "identity": distance(bound, uba - world.entropy - math.log(CODES)),
            "ELBO ≤ likelihood": violation(bound, likelihood),
            "likelihood ≤ −H(X)": violation(likelihood, -world.entropy),
        },
        {"above −H(X) without the constant": float(best)},
    )


def _uba(world: World, critics: Critics) -> Check:
    random, best = (uba_bound(world.scores(f), world.p) for f in (critics, world.best_critic))
    return Check(
        "Appendix B",
        "I_UBA ≤ I(X; Z) for random critics, equal for the critic ln p(x|z)/p(x).",
        {"violation": violation(random, world.information), "best critic": distance(best, world.information)},
        {"smallest gap": float((world.information - random).min())},
    )


def _tuba(world: World, critics: Critics, draws: Draws) -> Check:
    scores = world.scores(critics)
    uba, nwj = uba_bound(scores, world.p), nwj_bound(scores, world.p)
    log_z = torch.logsumexp(scores + world.log_p, dim=-1)
    tuba = tuba_bound(scores, draws.normal(CRITICS, CODES)[:, world.code], world.p)
    best_nwj = nwj_bound(world.scores(world.best_critic + 1), world.p)
    return Check(
        "Appendix B",
        "I_TUBA ≤ I_UBA, equal at η = Z; I_NWJ (η = e) ≤ I_UBA, and I(X; Z) for the best critic plus 1.",
        {
            "TUBA ≤ UBA": violation(tuba, uba),
            "η = Z": distance(tuba_bound(scores, log_z, world.p), uba),
            "NWJ ≤ UBA": violation(nwj, uba),
            "NWJ, best critic": distance(best_nwj, world.information),
        },
        {"smallest gap": float(torch.minimum(uba - tuba, uba - nwj).min())},
    )


def _infonce(world: World, critics: Critics) -> Check:
    everyone = torch.cat([critics, world.best_critic[None]])
    above_information, above_log_n = [], []
    for n in TUPLES:
        for expected in (
            _expected_infonce(world, everyone, n),
            _expected_infonce(world, everyone, n, over_codes=True),
        ):
            above_information.append(violation(expected, world.information))
            above_log_n.append(violation(expected, torch.tensor(math.log(n), dtype=torch.float64)))
    return Check(
        "Appendix C",
        "E I_NCE over all tuples (n = 2, 3) is ≤ I(X; Z) and ≤ ln n, normalised over x_k or over z_k.",
        {"≤ I(X; Z)": max(above_information), "≤ ln n": max(above_log_n)},
    )


def _infonce_elbo(world: World, critics: Critics) -> Check:
    errors = []
    log_gamma = torch.logsumexp(critics, -2)
    for n in TUPLES:
        tuples, weights = _tuples(world, n)
        log_mean = torch.logsumexp(critics[:, tuples], -2) - math.log(n)
        unnormalised = log_gamma[:, None] - log_mean
        log_normaliser = torch.logsumexp(unnormalised, -1)
        log_prior = unnormalised - log_normaliser[..., None]
        of_every_x = elbo(world, critics[:, None], log_prior)
        bound = (weights * of_every_x[:, torch.arange(len(tuples)), tuples[:, 0]]).sum(-1)
        claimed = _expected_infonce(world, critics, n) - (weights * log_normaliser).sum(-1)
        errors.append(distance(bound, claimed))
    statement = "With the non-parametric prior ELBO_EBM is E I_NCE − E ln Γ(Θ), summed over all tuples (n = 2, 3)."
    return Check("Appendix C", statement, {"identity": max(errors)})


def _protocpc(draws: Draws) -> Check:
    n, classes, temperature = 6, 4, 0.5
    student = draws.normal(CRITICS, n, classes)
    soft = draws.log_distributions(CRITICS, n, classes).exp()
    certain = torch.eye(classes, dtype=torch.float64)[soft.argmax(-1)]
    gaps = {}
    for name, teacher in (("soft", soft), ("certain", certain)):
        scores = torch.log_softmax(student / temperature, -1) @ teacher.mT
        gaps[name] = infonce_bound(scores) + protocpc(student, teacher, temperature=temperature)
    zero = torch.zeros_like(gaps["soft"])
    return Check(
        "Appendix D",
        "I_ProtoCPC ≤ I_NCE for the score Σ_c p_c ln s_c of teacher and student, equal where teachers are certain.",
        {"violation": violation(zero, gaps["soft"]), "certain teachers": distance(gaps["certain"], zero)},
        {"smallest gap": float(gaps["soft"].min())},
    )


def _tuples(world: World, n: int) -> tuple[Int[Tensor, "k n"], Float[Tensor, " k"]]:
    """All n-tuples of points and their probabilities."""
    tuples = torch.cartesian_prod(*[torch.arange(POINTS)] * n)
    return tuples, world.log_p[tuples].sum(-1).exp()


def _expected_infonce(world: World, critics: Critics, n: int, over_codes: bool = False) -> Float[Tensor, "*m"]:
    """E I_NCE; Lemma 3 normalises over the codes z_k, the appendices over the points x_k."""
    tuples, weights = _tuples(world, n)
    scores = world.scores(critics, tuples)
    return (weights * infonce_bound(scores.mT if over_codes else scores)).sum(-1)
