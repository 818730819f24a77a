"""What groups of rows look like: a profile of each, what sets it apart, and how else the rows could be divided."""

from gedikit.groups.profiles import GroupProfiles
from gedikit.groups.rivals import Rivals

__all__ = ["GroupProfiles", "Rivals"]
