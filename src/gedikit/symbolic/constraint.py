"""A constraint over categorical variables and the exact, differentiable log-probability that it holds."""

import inspect
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import exp, log, prod
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import one_hot

from gedikit.errors import DataError, UsageError
from gedikit.symbolic.budget import MAX_NODES, MAX_SECONDS, Budget
from gedikit.symbolic.chain import Chain, Step, chained, positions_over
from gedikit.symbolic.compiled import Compiled
from gedikit.symbolic.explanation import Explanation, ImpliedPrior, World
from gedikit.symbolic.formula import TRUE, All
from gedikit.symbolic.program import grounded
from gedikit.symbolic.table import Table, enumerated, listed
from gedikit.symbolic.variables import Domains, Posteriors, Variable, checked, variables_over

if TYPE_CHECKING:
    from gedikit.symbolic.shortcuts import Shortcuts

MAX_DENSE = 200_000
Body = Table | Chain | Compiled


class Constraint:
    """What the values of some variables must satisfy, stated as a predicate, a table or a ProbLog program.

    >>> addition = Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))
    >>> uniform = torch.full((1, 10), 0.1).log()
    >>> round(addition.log_probability([uniform, uniform, uniform]).exp().item(), 4)
    0.055

    `domains` has a number of values, 0, 1, …, or the values themselves for every parameter of the predicate, whose
    names become those of the variables unless `names` gives others.
    """

    variables: tuple[Variable, ...]

    def __init__(
        self,
        predicate: Callable[..., Any],
        domains: Domains,
        names: Sequence[str] | None = None,
    ):
        variables = variables_over(domains, lambda n: _parameters(predicate, n) if names is None else names)
        name = f"the predicate {_called(predicate)}({', '.join(v.name for v in variables)})"
        self._state(enumerated(variables, predicate, name), name)

    @classmethod
    def from_table(
        cls,
        tuples: Sequence[Sequence[Hashable]] | Int64[np.ndarray, "t v"] | Int64[Tensor, "t v"],
        domains: Domains,
        weights: Sequence[float] | None = None,
        names: Sequence[str] | None = None,
    ) -> "Constraint":
        """The tuples that are allowed; a weight in [0, 1] is the probability that its tuple is.

        >>> kinds = Constraint.from_table([("cat", "pet"), ("car", "thing")], (("cat", "car"), ("pet", "thing")))
        >>> [v.name for v in kinds.variables]
        ['x0', 'x1']
        """
        variables = variables_over(domains, lambda n: [f"x{i}" for i in range(n)] if names is None else names)
        return cls._of(listed(variables, tuples, weights), f"the table of {len(tuples)} tuples")

    @classmethod
    def from_program(
        cls, program: str, query: str, *, max_seconds: float = MAX_SECONDS, max_nodes: int = MAX_NODES
    ) -> "Constraint":
        """A query to a ProbLog program with neural predicates; the extra `gedikit[symbolic]`.

        Variables are named after the predicate and its inputs and come in the order in which the query names those.
        `max_seconds` and `max_nodes` limit grounding and compiling together.

        >>> program = '''
        ... nn(digit, [X], Y, [0,1,2,3,4,5,6,7,8,9]) :: digit(X, Y).
        ... addition(A, B, C) :- digit(A, X), digit(B, Y), Z is X + Y, digit(C, Z).
        ... '''
        >>> addition = Constraint.from_program(program, "addition(a, b, c)")
        >>> [v.name for v in addition.variables]
        ['digit(a)', 'digit(b)', 'digit(c)']
        """
        budget = Budget(max_seconds, max_nodes)
        ground = grounded(program, query, budget)
        name = f"the query {query}"
        return cls._of(Compiled(ground.variables, ground.holds, ground.given, budget, name), name)

    @classmethod
    def from_chain(
        cls,
        step: Step | Sequence[Step],
        domains: Sequence[SupportsIndex | Domains],
        start: Hashable,
        accept: Collection[Hashable] | None = None,
        names: Sequence[str | Sequence[str]] | None = None,
    ) -> "Constraint":
        """A rule that reads its variables position by position and carries a state along; of any length.

        `step(state, *values)` gives the state after a position, or None where its values break the rule. It is
        asked once about every state and all values of a position. Several steps are one for each position.
        `domains` has for every position the domains of the variables that it reads, or a number of values if it is
        one variable. The rule holds if no step was None and the last state is in `accept`, by default any.
        Variables are named after the parameters of the step and the position, unless `names` has others.

        >>> def add(carry, a, b, c):
        ...     carry, digit = divmod(a + b + carry, 10)
        ...     return carry if c == digit else None
        >>> sums = Constraint.from_chain(add, domains=[(10, 10, 10)] * 100, start=0, accept=[0])
        >>> [v.name for v in sums.variables][:4]
        ['a0', 'b0', 'c0', 'a1']
        """
        steps = list(step) if isinstance(step, Sequence) else [step] * len(domains)
        variables = positions_over(steps, domains, names)
        name = f"the chain of {len(steps)} positions by {', '.join(dict.fromkeys(map(_called, steps)))}"
        return cls._of(chained(steps, variables, start, accept, name), name)

    @property
    def one_domain(self) -> bool:
        """Whether one network can label all variables: they have the same values and name no two networks."""
        networks = {v.network for v in self.variables} - {None}
        return len({v.values for v in self.variables}) == 1 and len(networks) <= 1

    @property
    def n_tuples(self) -> int:
        """Of values, allowed or not."""
        return prod(v.size for v in self.variables)

    @property
    def few_tuples(self) -> bool:
        """Whether all of them can be enumerated."""
        return self.n_tuples <= MAX_DENSE

    def log_probability(self, log_p: Posteriors) -> Float[Tensor, "*b"]:
        """log P(constraint | x) of every row, from normalised log-posteriors of every variable.

        Half precision is computed in float32. −inf where no allowed values have a positive probability.
        """
        columns, shape = self._columns(log_p)
        return self.body.log_probability(columns).reshape(shape)

    def explain(self, log_p: Posteriors, k: int = 3) -> Explanation:
        """The k most probable worlds of one example and each variable's marginal, given that the constraint holds.

        `log_p` has a vector for every variable. Facts of a program are summed out.
        """
        columns, shape = self._columns(log_p)
        if shape.numel() != 1:
            raise UsageError(f"log_p has rows {tuple(shape)}: explain takes one example")
        if k < 1:
            raise UsageError(f"k must be at least 1, not {k}")
        columns = columns.detach().double()
        joint, marginals = self._marginals(columns)
        if joint == -torch.inf:
            raise DataError(f"{self.name} has probability zero for this log_p: there is no world to explain it by")
        worlds = [
            World(
                {v.name: v.values[i] for v, i in zip(self.variables, positions, strict=True)},
                min(1.0, exp(weight - float(joint))),
            )
            for positions, weight in self.body.worlds(columns[:, 0], k)
        ]
        return Explanation(float(self.body.log_probability(columns)), worlds, marginals)

    def implied_prior(self) -> ImpliedPrior:
        """How often each value occurs where the constraint holds and nothing else is known.

        >>> addition = Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))
        >>> (addition.implied_prior().shared * 165).round().int().tolist()
        [21, 20, 19, 18, 17, 16, 15, 14, 13, 12]
        """
        uniform = [torch.full((v.size, 1), 1 / v.size, dtype=torch.float64).log() for v in self.variables]
        return ImpliedPrior(self.variables, self._marginals(torch.cat(uniform))[1])

    def shortcuts(
        self,
        examples: "Mapping[str, Sequence[Any]] | None" = None,
        *,
        known: Collection[str] = (),
        holds: Sequence[bool] | None = None,
        kinds: Mapping[str, str] | None = None,
        labelled: Mapping[str, Collection[Hashable]] | None = None,
        max_steps: int | None = None,
    ) -> "Shortcuts":
        """How else symbols could be named without the constraint noticing, and what would settle it.

        `examples` has columns of what is shown, by variable; symbols that are not told (a column or an entry that
        is missing) may be any that satisfy the constraint, as may all without examples. `known` names variables
        whose value comes with each example and is not mapped, `kinds` says which variables have symbols in common
        (by default those with the same values), and `labelled` has symbols, by kind, that labelled rows show.

        >>> either = Constraint(lambda a, b: a != b, domains=(("cat", "dog"),) * 2)
        >>> print(either.shortcuts())
        maps from shown to named symbols that satisfy the rule: 2
        one-to-one namings that satisfy it: 2
        names the rule cannot tell apart: cat, dog
        labels that would settle it: one row each of cat
        more examples would not: another naming satisfies all that the rule allows
        """
        from gedikit.symbolic.shortcuts import MAX_STEPS, Shown, shortcuts

        shown = [Shown(self, examples, tuple(known), holds)]
        return shortcuts(shown, kinds=kinds, labelled=labelled, max_steps=max_steps or MAX_STEPS)

    def satisfaction(self) -> Float[Tensor, "..."]:
        """P(constraint | values) for all values, a dimension a variable; 0 or 1 without weights and facts."""
        if not self.few_tuples:
            raise UsageError(
                f"{self.name} has {_shown(self.n_tuples)} tuples of values, more than the {MAX_DENSE} that can be"
                " enumerated: state a part of it that has fewer variables"
            )
        every = torch.cartesian_prod(*(torch.arange(v.size) for v in self.variables)).reshape(self.n_tuples, -1)
        known = [one_hot(every[:, i], v.size).double().log() for i, v in enumerate(self.variables)]
        return self.log_probability(known).exp().reshape([v.size for v in self.variables])

    def least_loss(self) -> float | None:
        """The least −log P that any values reach, 0 without weights and facts; None where too many would be tried.

        >>> round(Constraint.from_table([(0, 0), (1, 1)], (2, 2), weights=[0.5, 0.25]).least_loss(), 4)
        0.6931
        """
        if isinstance(self.body, Table):
            return max(0.0, -float(self.body.log_weights.max()))
        if not self.body.has_facts:
            return 0.0
        if not self.few_tuples:
            return None
        return max(0.0, -log(self.satisfaction().max()))

    def __and__(self, other: "Constraint") -> "Constraint":
        """Both constraints hold; variables of the same name are the same variable, facts of programs are not."""
        ours = {v.name: v for v in self.variables}
        for v in other.variables:
            if v.name not in ours:
                continue
            _check_networks(ours[v.name], v)
            if ours[v.name] != v:
                raise UsageError(
                    f"{v.name} has values {ours[v.name].values} in one constraint and {v.values} in the other:"
                    " variables of the same name must have the same values, see renamed"
                )
        variables = self.variables + tuple(v for v in other.variables if v.name not in ours)
        name = f"{self.name} and {other.name}"
        joined: Body | None = None
        match self.body, other.body:
            case Table() as a, Table() as b:
                joined = a.joined(b, variables, name)
            case Chain() as a, Chain() as b:
                joined = a.joined(b, variables, name)
        if joined is not None:
            return self._of(joined, name)
        (holds_a, given_a), (holds_b, given_b) = self.body.formula(), other.body.formula()
        evidence = [g for g in (given_a, given_b) if g is not TRUE]
        given = All(tuple(evidence)) if evidence else TRUE
        (seconds_a, nodes_a), (seconds_b, nodes_b) = self.body.limits, other.body.limits
        budget = Budget(max(seconds_a, seconds_b), max(nodes_a, nodes_b))
        return self._of(Compiled(variables, All((holds_a, holds_b)), given, budget, name), name)

    def renamed(self, names: Mapping[str, str]) -> "Constraint":
        """The same constraint with other names; variables that get the same name become one.

        >>> doubled = Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10)).renamed({"b": "a"})
        >>> [v.name for v in doubled.variables]
        ['a', 'c']
        """
        unknown = set(names) - {v.name for v in self.variables}
        if unknown:
            known = ", ".join(v.name for v in self.variables)
            raise UsageError(f"names has {sorted(unknown)[0]!r}, which is none of the variables {known}")
        new = [replace(v, name=names.get(v.name, v.name)) for v in self.variables]
        for one, other in combinations(new, 2):
            if one.name == other.name:
                _check_networks(one, other)
        variables = tuple(dict.fromkeys(new))
        if len({v.name for v in variables}) < len(variables):
            raise UsageError("names makes one variable of two with different values")
        name = f"{self.name} with {', '.join(f'{b} for {a}' for a, b in names.items())}"
        return self._of(self.body.renamed(variables, [variables.index(v) for v in new], name), name)

    def __repr__(self) -> str:
        return f"Constraint({self.name}: {', '.join(f'{v.name} of {v.size}' for v in self.variables)})"

    @classmethod
    def _of(cls, body: Body, name: str) -> "Constraint":
        made = cls.__new__(cls)
        made._state(body, name)
        return made

    def _state(self, body: Body, name: str) -> None:
        self.variables, self.name, self.body = body.variables, name, body

    def _columns(self, log_p: Posteriors) -> tuple[Float[Tensor, "i n"], torch.Size]:
        """One row for every value of every variable; contiguous, because circuits gather rows."""
        posteriors = checked(self.variables, log_p)
        rows = torch.cat([p.reshape(-1, p.shape[-1]) for p in posteriors], dim=-1)
        return rows.mT.contiguous(), posteriors[0].shape[:-1]

    def _marginals(self, columns: Float[Tensor, "i 1"]) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """log P and p(value | constraint) = ∂ log P / ∂ log p(value) of every variable."""
        with torch.inference_mode(False), torch.enable_grad():
            columns = columns.clone().requires_grad_()
            joint = self.body.log_joint(columns)[0]
            (gradient,) = torch.autograd.grad(joint, columns)
        parts = gradient[:, 0].split([v.size for v in self.variables])
        return joint.detach(), {v.name: part for v, part in zip(self.variables, parts, strict=True)}


def _parameters(predicate: Callable[..., Any], n: int) -> list[str]:
    """What a predicate calls its n parameters."""
    try:
        parameters = list(inspect.signature(predicate).parameters.values())
    except (TypeError, ValueError):
        raise UsageError(
            f"the predicate {_called(predicate)} does not say what its parameters are called: give names, or"
            " a function such as lambda a, b: a < b"
        ) from None
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return [f"x{i}" for i in range(n)]
    if len(parameters) != n:
        raise UsageError(f"domains has {n} entries and the predicate {len(parameters)} parameters: give one each")
    return [p.name for p in parameters]


def _check_networks(one: Variable, other: Variable) -> None:
    if None not in (one.network, other.network) and one.network != other.network:
        raise UsageError(
            f"{one.name} would be labelled by two networks, {one.network} and {other.network}: what is one variable"
            " is labelled by one"
        )


def _shown(n: int) -> str:
    return f"{n:.3g}" if n < 1e300 else f"10^{len(str(n)) - 1}"


def _called(predicate: object) -> str:
    return getattr(predicate, "__name__", "given")
