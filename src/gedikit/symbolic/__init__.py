"""Constraints over categorical variables: the exact log-probability that they hold, as a differentiable function.

A constraint knows nothing of networks or training: it takes normalised log-posteriors, one tensor a variable.
"""

from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import Examples
from gedikit.symbolic.explanation import Explanation, ImpliedPrior, World
from gedikit.symbolic.naming import Naming, name_clusters
from gedikit.symbolic.relabelling import Relabelling, best_relabelling
from gedikit.symbolic.variables import Variable

__all__ = [
    "Constraint",
    "Examples",
    "Explanation",
    "ImpliedPrior",
    "Naming",
    "Relabelling",
    "Variable",
    "World",
    "best_relabelling",
    "name_clusters",
]
