"""Numbers hashed from keys: reproducible anywhere, and random as far as statistics can tell."""

import numpy as np
import pytest
import torch
from scipy import stats

from gedikit.randomness import keyed_normal, keyed_uniform, keys, substream

N = 1 << 16


def numbers(seed=0, epoch=0, stream=0, n=4):
    return keyed_uniform(keys(seed, epoch, torch.arange(N), stream), n)


def mixed(z):
    """The output function of splitmix64 as published, in Python's integers."""
    mask = (1 << 64) - 1
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


@pytest.mark.parametrize(("seed", "epoch", "row", "stream"), [(0, 0, 0, 0), (5, 3, 70, 1), (-1, 9, 1 << 40, 2)])
def test_uniform_mixes_in_one_part_after_the_other(seed, epoch, row, stream):
    key = 0
    for part in (seed, stream, epoch, row):
        key = mixed((key + part) % (1 << 64))
    wanted = [(mixed((key + mixed(column)) % (1 << 64)) >> 40) / 2**24 for column in (1, 2, 3)]
    assert keyed_uniform(keys(seed, epoch, torch.tensor([row]), stream), 3).tolist() == [wanted]


def test_uniform_fills_the_unit_interval_evenly():
    u = numbers().double()
    assert u.min() >= 0
    assert u.max() < 1
    for column in u.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
        assert stats.chisquare(torch.histc(column, 256, 0, 1)).pvalue > 1e-4
    last_bits = (u * 2**24).long() & 255
    assert stats.chisquare(torch.bincount(last_bits.flatten(), minlength=256)).pvalue > 1e-4


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"epoch": 1}, {"stream": 1}, {"seed": 1 << 40}, {"seed": -1}, {"epoch": 1, "stream": 1}]
)
def test_other_seeds_epochs_and_streams_are_uncorrelated(change):
    assert abs(np.corrcoef(numbers(n=1).flatten(), numbers(n=1, **change).flatten())[0, 1]) < 4.5 / N**0.5


def test_rows_and_columns_are_uncorrelated():
    u = numbers(n=8)
    between_columns = np.corrcoef(u.T) - np.eye(8)
    assert np.abs(between_columns).max() < 4.5 / N**0.5
    for lag in (1, 2, 256):
        assert abs(np.corrcoef(u[:-lag, 0], u[lag:, 0])[0, 1]) < 4.5 / N**0.5


def test_pairs_of_consecutive_rows_fill_the_square():
    u = (numbers(n=1).flatten() * 16).long()
    counts = torch.bincount(u[:-1:2] * 16 + u[1::2], minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_small_seeds_epochs_streams_and_rows_have_keys_of_their_own():
    rows = torch.arange(1000)
    every = torch.cat([keys(s, e, rows, v) for s in range(4) for e in range(4) for v in range(4)])
    assert len(every.unique()) == len(every)


def test_a_row_has_its_numbers_in_any_batch_and_shape():
    rows = torch.tensor([7, 3, 900, 12], dtype=torch.int32)
    alone = torch.cat([keyed_uniform(keys(5, 2, row[None], 1), 6) for row in rows])
    together = keyed_uniform(keys(5, torch.tensor(2), rows.view(2, 2), 1), 6)
    assert torch.equal(together.view(4, 6), alone)
    assert torch.equal(keyed_uniform(keys(5, 2, rows, 1), 3), alone[:, :3])


@pytest.mark.parametrize("n", [1, 2, 7])
def test_normal_has_the_moments_of_the_normal_distribution(n):
    z = keyed_normal(keys(0, 0, torch.arange(N), 0), n).double().numpy()
    assert z.shape == (N, n)
    for column in z.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4
        assert abs(stats.skew(column)) < 4.5 * (6 / N) ** 0.5
        assert abs(stats.kurtosis(column)) < 4.5 * (24 / N) ** 0.5
    if n > 1:
        assert np.abs(np.corrcoef(z.T) - np.eye(n)).max() < 4.5 / N**0.5
        assert np.abs(np.corrcoef((z**2).T) - np.eye(n)).max() < 4.5 / N**0.5


def test_substreams_are_uncorrelated_and_do_not_touch_the_keys():
    k = keys(0, 0, torch.arange(N), 0)
    before = k.clone()
    streams = torch.cat([keyed_uniform(s, 1) for s in (k, substream(k, 0), substream(k, 1))], dim=1)
    keyed_normal(k, 3)
    assert torch.equal(k, before)
    assert np.abs(np.corrcoef(streams.T) - np.eye(3)).max() < 4.5 / N**0.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_device_draws_the_same_bits():
    rows = torch.arange(1000)
    here, there = keys(3, 4, rows, 5), keys(3, torch.tensor(4, device="cuda"), rows.cuda(), 5)
    assert torch.equal(here, there.cpu())
    assert torch.equal(keyed_uniform(here, 9), keyed_uniform(there, 9).cpu())
    torch.testing.assert_close(keyed_normal(here, 9), keyed_normal(there, 9).cpu(), atol=1e-5, rtol=1e-5)
