"""What every maker of views must do with the rows it is for."""

import math

import numpy as np
import pytest
import torch

from contract_cases import ROWS, each, prepared, seeded
from gedikit.errors import UsageError
from gedikit.views import ViewMaker, ViewsContext, views
from gedikit.views.base import Views
from gedikit.views.neighbours import neighbour_graph
from gedikit.views.stacked import StackedViews

SIZE = 12
every = pytest.mark.parametrize("maker", each(views))


def made(maker: ViewMaker, *, seed: int = 0, density: bool = True, examples=None) -> Views:
    data = prepared(maker.of_images)
    generator = seeded(seed)
    return maker.prepare(
        ViewsContext(
            data.all_rows,
            data.pixels,
            data.image_shape,
            data.bandwidth,
            2,
            density,
            seed,
            generator,
            torch.device("cpu"),
            lambda: neighbour_graph(data.all_rows().numpy(), generator),
            examples,
        )
    )


def batch(of: Views, *, iteration: int = 0, seed: int = 1, progress: float = 0.0):
    """A batch and its two views, with nothing but a seed in common with others."""
    generator, level = seeded(seed), of.level(progress)
    drawn = of.batch(SIZE, iteration, level, generator)
    return drawn, *of(drawn, level, generator)


@every
@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_a_batch_is_two_views_of_as_many_rows(maker, progress):
    of, data = made(maker), prepared(maker.of_images)
    assert of.n_rows == ROWS
    assert isinstance(of.level(progress), int)
    assert 0 <= of.level(1.0) <= of.level(progress) <= of.level(0.0) < 64
    drawn, x, view = batch(of, progress=progress)
    rows = drawn[0]
    assert rows.shape == (SIZE,)
    assert rows.dtype == torch.int64
    assert ((rows >= 0) & (rows < ROWS)).all()
    for part in (x, view):
        assert part.shape == (SIZE, data.all_rows().shape[1])
        assert part.dtype == torch.float32
        assert torch.isfinite(part).all()


@every
def test_points_are_the_rows_themselves(maker):
    torch.testing.assert_close(made(maker).points(3, 9), prepared(maker.of_images).all_rows()[3:9])


@every
def test_x_is_near_its_row_where_a_density_is_learned(maker):
    """Up to the noise that leaves a row what it is."""
    data = prepared(maker.of_images)
    drawn, x, _ = batch(made(maker))
    sigma = maker.sigma(data.bandwidth)
    assert sigma >= 0
    away = (x - data.all_rows()[drawn[0]]).square().mean().sqrt()
    assert away == pytest.approx(sigma, rel=0.5, abs=1e-6) or away == 0


@every
def test_the_same_key_makes_the_same_views(maker):
    drawn, x, view = batch(made(maker))
    again, same_x, same_view = batch(made(maker))
    assert all(torch.equal(a, b) for a, b in zip(drawn, again, strict=True))
    assert torch.equal(same_x, x)
    assert torch.equal(same_view, view)


@every
def test_another_iteration_has_other_rows(maker):
    of, generator = made(maker), seeded(1)
    one, other = (of.batch(SIZE, i, 0, generator)[0] for i in (0, 1))
    assert not torch.equal(one, other)


@every
def test_rows_of_an_example_are_drawn_together(maker):
    examples = np.arange(ROWS).reshape(-1, 2)[:, ::-1].copy()
    drawn, x, view = batch(made(maker, examples=examples))
    pairs = drawn[0].reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1] + 1).all()
    assert (pairs[:, 1] % 2 == 0).all()
    assert x.shape == view.shape == (SIZE, prepared(maker.of_images).all_rows().shape[1])


@every
def test_views_are_made_for_rows_that_they_are_for(maker):
    data = prepared(False)
    context = ViewsContext(
        data.all_rows, None, (), 0.1, 2, True, 0, seeded(0), torch.device("cpu"), lambda: pytest.fail("no graph")
    )
    if maker.of_images:
        with pytest.raises(UsageError, match=rf"'{maker.name}' are for images"):
            maker.prepare(context)


@every
def test_models_side_by_side_get_the_views_they_get_alone(maker):
    alone = [made(maker, seed=seed) for seed in (0, 1)]
    together = StackedViews([made(maker, seed=seed) for seed in (0, 1)])
    level = together.level(0.0)
    drawn = together.batch(SIZE, 2, level, [seeded(5), seeded(6)])
    x, view = together(drawn, level, [seeded(7), seeded(8)])
    assert together.points(0, 3).shape[0] == 2
    for i, of in enumerate(alone):
        own = of.batch(SIZE, 2, of.level(0.0), seeded(5 + i))
        assert all(torch.equal(part[i], wanted) for part, wanted in zip(drawn, own, strict=True))
        own_x, own_view = of(own, of.level(0.0), seeded(7 + i))
        assert torch.equal(x[i], own_x)
        assert torch.equal(view[i], own_view)


@every
def test_noise_is_a_number(maker):
    assert math.isfinite(maker.sigma(0.1))
    assert maker.sigma(0.2) >= maker.sigma(0.1)
