import torch

from gedikit.samplers import Box, Gaussian, start

BOX = Box(torch.full((3,), -10.0), torch.full((3,), 10.0))


def rows() -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    mix = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, 2.0]])
    return torch.randn(400, 3, generator=g) @ mix + torch.tensor([1.0, -2.0, 0.5])


def test_gaussian_starts_have_the_mean_and_covariance_of_the_rows():
    x = Gaussian(rows(), BOX)(200_000, torch.Generator().manual_seed(1))
    torch.testing.assert_close(x.mean(0), rows().mean(0), atol=0.02, rtol=0)
    torch.testing.assert_close(torch.cov(x.T), torch.cov(rows().T, correction=0), atol=0.03, rtol=0)


def test_gaussian_starts_stay_in_the_box():
    tight = Box(torch.full((3,), -1.0), torch.full((3,), 1.0))
    assert tight.contains(Gaussian(rows(), tight)(1000, torch.Generator().manual_seed(0))).all()


def test_members_of_a_stack_draw_from_their_own_rows():
    stacked = torch.stack([rows(), rows() + 100])
    wide = Box(torch.full((2, 1, 3), -1e3), torch.full((2, 1, 3), 1e3))
    generators = [torch.Generator().manual_seed(i) for i in (1, 2)]
    x = start("gaussian", stacked, wide)(50, generators)
    alone = start("gaussian", rows(), BOX)(50, torch.Generator().manual_seed(1))
    assert x.shape == (2, 50, 3)
    torch.testing.assert_close(x[0], alone)
    assert (x[1] > 50).all()


def test_other_kinds_are_uniform():
    x = start("noise", rows(), BOX)(50_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(x.std(0), torch.full((3,), 20 / 12**0.5), rtol=0.02, atol=0)
