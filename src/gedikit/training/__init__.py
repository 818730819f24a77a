"""Moving the weights: one state, one step, one loop."""

from gedikit.training.fit import fit
from gedikit.training.loop import Observer

__all__ = ["Observer", "fit"]
