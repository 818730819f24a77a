"""An iteration as a CUDA graph: captured once, then one launch instead of thousands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gedikit.randomness import Randomness

WARM_UP = 2  # iterations in which libraries choose their algorithms and compilers compile


@dataclass
class CapturedGraph:
    """Counts what went before its capture, and holds the graph and the tensors it reads and writes."""

    seen: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    inputs: tuple[Tensor, ...] = ()
    result: Tensor | None = None

    def run(
        self,
        function: Callable[[tuple[Tensor, ...]], Tensor | None],
        inputs: tuple[Tensor, ...],
        randomness: Randomness,
        pool: Sequence["CapturedGraph"],
    ) -> Tensor | None:
        """function(inputs), directly at first and from a graph later; `pool` are graphs that never run at once."""
        self.seen += 1
        if self.graph is None and self.seen <= WARM_UP:
            return function(inputs)
        if self.graph is None:
            self._capture(function, inputs, randomness, pool)
        assert self.graph is not None
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        self.graph.replay()
        return self.result

    def _capture(
        self,
        function: Callable[[tuple[Tensor, ...]], Tensor | None],
        inputs: tuple[Tensor, ...],
        randomness: Randomness,
        pool: Sequence["CapturedGraph"],
    ) -> None:
        graph = torch.cuda.CUDAGraph()
        for generator in [randomness] if isinstance(randomness, torch.Generator) else randomness:
            graph.register_generator_state(generator)
        self.inputs = tuple(t.clone() for t in inputs)
        shared = next((other.graph.pool() for other in pool if other.graph is not None), None)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=shared):
            self.result = function(self.inputs)
        self.graph = graph
