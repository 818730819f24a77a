"""Views x′ of a row x, and what makes rows neighbours: one component a file."""

from gedikit.views.augment import Augment
from gedikit.views.base import RowViews, ViewMaker, ViewsContext, register_views, views
from gedikit.views.noise import Noise
from gedikit.views.similarity import Similarity, register_similarity, similarities
from gedikit.views.walk import Walk

__all__ = [
    "Augment",
    "Noise",
    "RowViews",
    "Similarity",
    "ViewMaker",
    "ViewsContext",
    "Walk",
    "register_similarity",
    "register_views",
    "similarities",
    "views",
]
