"""Brightness, contrast, saturation and hue against their formulas on images in [0, 1]."""

import math

import numpy as np
import torch

from gedikit.views.colour import LUMA, QUARTER_TURN, recoloured


def images(n):
    return torch.rand(n, 5, 7, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1


def unit(x):
    return (x.double() + 1) / 2


def as_views(x):
    return x.clamp(0, 1) * 2 - 1


def grey_of(x):
    return (x * torch.tensor(LUMA, dtype=x.dtype)).sum(-1, keepdim=True)


def test_each_factor_follows_its_formula():
    x, f = images(4), torch.tensor([0.0, 0.6, 1.0, 1.4])
    unit_x, by = unit(x), f.double()[:, None, None, None]
    mean = grey_of(unit_x).mean((1, 2, 3), keepdim=True)
    close = {"atol": 1e-6, "rtol": 0, "check_dtype": False}
    torch.testing.assert_close(recoloured(x, brightness=f), as_views(unit_x * by), **close)
    torch.testing.assert_close(recoloured(x, contrast=f), as_views(unit_x * by + mean * (1 - by)), **close)
    torch.testing.assert_close(
        recoloured(x, saturation=f), as_views(unit_x * by + grey_of(unit_x) * (1 - by)), **close
    )


def test_hue_turns_the_colour_plane_of_yiq():
    to_yiq = np.array([LUMA, [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
    angle = 2 * math.pi * 0.1
    turn = np.eye(3)
    turn[1:, 1:] = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    whole = np.linalg.inv(to_yiq) @ turn @ to_yiq
    x = images(2)
    wanted = as_views(unit(x) @ torch.tensor(whole).T)
    ours = recoloured(x, hue=torch.full((2,), 0.1))
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=0, check_dtype=False)
    red = torch.tensor([1.0, -1, -1]).expand(1, 1, 1, 3)
    towards_yellow = recoloured(red, hue=torch.tensor([0.1]))
    assert towards_yellow[..., 1] > towards_yellow[..., 2]
    np.testing.assert_allclose(np.sum(QUARTER_TURN, 1), 0, atol=1e-7)


def test_all_factors_together_are_the_steps_in_order_where_nothing_is_clipped():
    x = images(3) * 0.3
    b, c, s, h = (torch.tensor(v) for v in ([0.8, 1, 1.2], [1.2, 0.7, 1], [0.5, 1.2, 0.9], [0.05, 0.0, -0.08]))
    step = recoloured(recoloured(recoloured(recoloured(x, b), contrast=c), saturation=s), hue=h)
    torch.testing.assert_close(recoloured(x, b, c, s, h), step, atol=1e-6, rtol=0)
