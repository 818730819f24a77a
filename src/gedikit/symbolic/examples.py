"""Examples as tuples of images: an image may be in many examples, or twice in one."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gedikit.errors import UsageError
from gedikit.symbolic.constraint import Constraint


class Examples:
    """Examples of a constraint, each a row of numbers of images, one for every variable.

    An image that is in one example twice has one value there, so its probability counts once; examples are
    independent of each other, so their log-probabilities add up.

    >>> addition = Constraint(lambda a, b, c: a + b == c, domains=(10, 10, 10))
    >>> examples = Examples(addition, torch.tensor([[8, 5, 2], [5, 5, 8]]))
    >>> examples.images.tolist()
    [2, 5, 8]
    >>> uniform = torch.full((3, 10), 0.1).log()
    >>> examples.log_probability(uniform).exp()
    tensor([0.0550, 0.0500])
    """

    @torch.inference_mode(False)  # training needs these tensors too
    def __init__(self, constraint: Constraint, numbers: Int[Tensor, "n v"] | Int[np.ndarray, "n v"]):
        numbers = torch.as_tensor(numbers)
        if numbers.ndim != 2 or numbers.shape[1] != len(constraint.variables):
            raise UsageError(
                f"numbers has shape {tuple(numbers.shape)}: give a row for every example and one image for each of"
                f" {len(constraint.variables)} variables"
            )
        if not len(numbers):
            raise UsageError("numbers has no rows: give those of at least one example")
        if not constraint.one_domain:
            raise UsageError(
                "Examples needs variables with the same values and the same network: one labels all images"
            )
        self.constraint = constraint
        self.images, places = numbers.unique(return_inverse=True)
        patterns, which = _first_places(places).unique(dim=0, return_inverse=True)
        rows = [(which == i).nonzero()[:, 0] for i in range(len(patterns))]
        self._order = torch.cat(rows).argsort()
        self._by_pattern = [
            (self._repeating(pattern), places[r][:, pattern.unique()])
            for pattern, r in zip(patterns.cpu(), rows, strict=True)
        ]

    def __len__(self) -> int:
        return len(self._order)

    def log_probability(
        self, log_p: Float[Tensor, "*m u c"] | Float[np.ndarray, "*m u c"]
    ) -> Float[Tensor, "*m n"]:
        """log P(constraint) of every example, from the log-posteriors of `images`, in their order."""
        log_p = torch.as_tensor(log_p)
        if log_p.shape[-2] != len(self.images):
            raise UsageError(f"log_p has {log_p.shape[-2]} rows: give one for each of {len(self.images)} images")
        parts = [
            constraint.log_probability(log_p[..., places, :].unbind(-2)) for constraint, places in self._by_pattern
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)[..., self._order]

    def _repeating(self, pattern: Int[Tensor, " v"]) -> Constraint:
        """The constraint for examples in which the image at i is that at pattern[i]."""
        names = [v.name for v in self.constraint.variables]
        same = {names[i]: names[j] for i, j in enumerate(pattern.tolist()) if i != j}
        return self.constraint.renamed(same) if same else self.constraint


def _first_places(places: Int[Tensor, "n v"]) -> Int[Tensor, "n v"]:
    """Where in its example each image is first."""
    return (places[:, :, None] == places[:, None, :]).int().argmax(-1)
