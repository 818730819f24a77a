"""Several processes that compute one fit: what they add up, what they tell each other, and who is missing.

All is of the default group of `torch.distributed`; with one process every function here is the identity.
"""

from gedikit.processes.exchange import (
    WHOLE,
    Share,
    add_up,
    as_first,
    check_alike,
    check_shares,
    each,
    exchanged,
    first_has,
    first_makes,
    first_says,
    gathered,
    over_processes,
    own_share,
    to_first,
)
from gedikit.processes.group import TIMEOUT, Traffic, alone, is_first, n_processes, rank
from gedikit.processes.meeting import launched, meeting, refuse_several, restarted

__all__ = [
    "TIMEOUT",
    "WHOLE",
    "Share",
    "Traffic",
    "add_up",
    "alone",
    "as_first",
    "check_alike",
    "check_shares",
    "each",
    "exchanged",
    "first_has",
    "first_makes",
    "first_says",
    "gathered",
    "is_first",
    "launched",
    "meeting",
    "n_processes",
    "over_processes",
    "own_share",
    "rank",
    "refuse_several",
    "restarted",
    "to_first",
]
