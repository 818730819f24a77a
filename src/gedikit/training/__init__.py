"""Moving the weights: one state, one step, one loop."""

from gedikit.training.callbacks import Callback, FitView
from gedikit.training.fit import FitResult, fit

__all__ = ["Callback", "FitResult", "FitView", "fit"]
