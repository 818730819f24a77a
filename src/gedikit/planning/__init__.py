"""The plan of a fit: everything decided once, from the data and what was asked, with a reason for each decision.

Nothing here depends on the name of a data set or on the hardware: an array of the same shape and type has the same
plan wherever it comes from and wherever it is fitted.
"""

from gedikit.planning.planner import plan
from gedikit.planning.plans import (
    ASKED,
    AUTO,
    BUDGETS,
    GIVEN,
    PRIORS,
    UNIFORM,
    Asked,
    Decision,
    ExamplesProfile,
    Plan,
    check_prior,
    check_rows,
    split_execution,
)

__all__ = [
    "ASKED",
    "AUTO",
    "BUDGETS",
    "GIVEN",
    "PRIORS",
    "UNIFORM",
    "Asked",
    "Decision",
    "ExamplesProfile",
    "Plan",
    "check_prior",
    "check_rows",
    "plan",
    "split_execution",
]
