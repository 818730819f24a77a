"""Every registered component, as it is by default and with each setting changed, for what all of a kind must do."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gedikit.components import Component, Registry
from gedikit.components.component import public_fields
from gedikit.data.toy import moons
from gedikit.errors import UsageError
from gedikit.modalities import Image, PreparedData, Vector

SHAPE = (16, 16, 1)  # of images: sides of 16 suit every encoder
ROWS = 40


def each(registry: Registry[Any]) -> list[Any]:
    """The components of a registry for `parametrize`: a new one is tested by being registered."""
    return [
        pytest.param(cls.of(changes), id="-".join([name, *(f"{k}={v}" for k, v in changes.items())]))
        for name, cls in registry.items()
        for changes in ({}, *_changes(cls))
    ]


def _changes(cls: type[Component]) -> Iterator[dict[str, Any]]:
    """One setting after the other: switches turned, other choices, and what is off at 0 switched on."""
    for field in public_fields(cls):
        old = field.default
        if isinstance(old, bool):
            others = [not old]
        elif field.metadata.get("choices"):
            others = [choice for choice in field.metadata["choices"] if choice != old]
        elif old == 0 and isinstance(old, int | float):
            others = [8 if isinstance(old, int) else 0.5]
        else:
            others = []
        for other in others:
            try:
                cls.of({field.name: other})
            except UsageError:
                continue  # not without another setting
            yield {field.name: other}


def settings(component: Component) -> dict[str, Any]:
    return {field.name: getattr(component, field.name) for field in public_fields(component)}


@cache
def vectors() -> np.ndarray:
    return moons(ROWS, 0)[0]


@cache
def images() -> np.ndarray:
    """Broad bars of grey, upright and lying, with noise."""
    rng = np.random.default_rng(0)
    pictures = np.zeros((ROWS, *SHAPE))
    for picture, down, at in zip(pictures, rng.integers(0, 2, ROWS), rng.integers(1, 10, ROWS), strict=True):
        (picture if down else picture.transpose(1, 0, 2))[at : at + 5] = 180
    return (pictures + rng.integers(0, 60, pictures.shape)).astype(np.uint8).reshape(ROWS, -1)


@cache
def prepared(of_images: bool) -> PreparedData:
    generator = torch.Generator().manual_seed(0)
    return Image(shape=SHAPE).prepare(images(), generator) if of_images else Vector().prepare(vectors(), generator)


class Bars(nn.Module):
    """A network that a user might bring."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.linear = nn.Linear(int(np.prod(SHAPE)), 12)
        nn.init.normal_(self.linear.weight, std=0.1, generator=generator)
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: Tensor) -> Tensor:
        return torch.tanh(self.linear(images.flatten(1)))


def copied(memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in memory.items()}


def assert_same_form(memory: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> None:
    """The same names, shapes and types: what is remembered is copied into what was there."""
    form = {name: (t.shape, t.dtype, t.device) for name, t in memory.items()}
    assert form == {name: (t.shape, t.dtype, t.device) for name, t in before.items()}


def assert_equal(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    assert list(found) == list(wanted)
    for name, tensor in found.items():
        assert torch.equal(tensor, wanted[name]), name


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
