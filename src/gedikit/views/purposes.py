"""Which views and neighbours suit which pictures: what `views=` chooses from.

A purpose says what pictures are of, never which data set they are from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gedikit.components import Tree

_COLOURS = {"jitter": 0.8, "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1, "grey": 0.2}
# neighbours by pixels are alike: x′ is made of one, and their clusters are the first targets
_ALIKE = {
    "similarity": {"name": "pixels"},
    "objectives": {"pseudo-labels": {"share": 0.4}},
}


@dataclass(frozen=True)
class Purpose:
    """A kind of pictures, in words, and the settings that go with it."""

    summary: str
    config: Tree


PURPOSES: Mapping[str, Purpose] = MappingProxyType(
    {
        "photos": Purpose(
            "photographs of things, wherever they are in the picture",
            {"views": {"name": "augment", "crop_area": (0.2, 1.0), "flip": 0.5, "noise": 0.03, **_COLOURS}},
        ),
        "drawings": Purpose(
            "drawings, scans and handwriting on a plain background",
            {
                "views": {
                    "name": "augment",
                    "rotation": 15.0,
                    "shear": 10.0,
                    "zoom": (0.8, 1.2),
                    "translation": 0.1,
                    "fill": -1.0,
                    "noise": 0.1,
                    "walks": True,
                },
                **_ALIKE,
            },
        ),
        "writing": Purpose(
            "signs and numbers in any colours and light",
            {
                # a mirrored digit is no digit, and a crop may show the one beside it
                "views": {
                    "name": "augment",
                    "rotation": 6.0,
                    "zoom": (0.85, 1.15),
                    "translation": 0.1,
                    "noise": 0.03,
                    "walks": True,
                    **_COLOURS,
                },
                "similarity": {"name": "outlines"},
                "objectives": {"pseudo-labels": {"share": 0.5}},
                "optimiser": {"learning_rate": 1e-3},
            },
        ),
        "things": Purpose(
            "single things on a plain background",
            {
                "views": {
                    "name": "augment",
                    "crop_area": (0.4, 1.0),
                    "flip": 0.5,
                    "jitter": 0.8,
                    "brightness": 0.4,
                    "contrast": 0.4,
                    "noise": 0.05,
                    "walks": True,
                },
                **_ALIKE,
            },
        ),
    }
)
