"""Constraints over categorical variables: the exact log-probability that they hold, as a differentiable function.

A constraint knows nothing of networks or training: it takes normalised log-posteriors, one tensor a variable.
"""

from gedikit.symbolic.constraint import Constraint
from gedikit.symbolic.examples import Examples, Known, Placed, Rows, symbols_of
from gedikit.symbolic.expectations import expected_of_rows
from gedikit.symbolic.explanation import Explanation, ImpliedPrior, World
from gedikit.symbolic.names import Name, Names, names_of
from gedikit.symbolic.naming import Naming, RowNaming, name_clusters, name_rows
from gedikit.symbolic.relabelling import Namer, Relabelling, best_relabelling
from gedikit.symbolic.shortcuts import Shortcuts, Shown, shortcuts
from gedikit.symbolic.symbols import Kind, Symbols
from gedikit.symbolic.variables import Variable

__all__ = [
    "Constraint",
    "Examples",
    "Explanation",
    "ImpliedPrior",
    "Kind",
    "Known",
    "Name",
    "Namer",
    "Names",
    "Naming",
    "Placed",
    "Relabelling",
    "RowNaming",
    "Rows",
    "Shortcuts",
    "Shown",
    "Symbols",
    "Variable",
    "World",
    "best_relabelling",
    "expected_of_rows",
    "name_clusters",
    "name_rows",
    "names_of",
    "shortcuts",
    "symbols_of",
]
