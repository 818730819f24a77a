"""Time the objectives that lightly has as well, forward and backward, against lightly's: one run, one core."""

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gedikit import objectives
from gedikit.errors import GediWarning

sys.path.append(str(Path(__file__).parents[1] / "tests" / "objectives"))
from lightly_oracle import lightly_loss

ROWS, DIMS, WHITENED = 512, 2048, 128
ROUNDS, BLOCK = 15, 4

Loss = Callable[[Tensor, Tensor], Tensor]


def pairs() -> dict[str, tuple[int, Loss, Loss]]:
    """Name: columns, our loss, lightly's; the same value, parameters and all."""
    theirs = lightly_loss()
    nt_xent = theirs.NTXentLoss(temperature=0.2)
    barlow_twins = theirs.BarlowTwinsLoss(lambda_param=0.0051)
    vicreg = theirs.VICRegLoss()
    swav = theirs.SwaVLoss()
    w_mse = theirs.WMSELoss(embedding_dim=WHITENED, eps=1e-3, w_size=ROWS, track_running_stats=False)
    return {
        "SimCLR": (DIMS, objectives.simclr, nt_xent),
        "Barlow Twins": (DIMS, objectives.barlow_twins, barlow_twins),
        "VICReg": (DIMS, objectives.vicreg, vicreg),
        "SwAV": (DIMS, objectives.swav, lambda a, b: swav([a, b], [])),
        "W-MSE": (WHITENED, objectives.w_mse, lambda a, b: w_mse(torch.cat([a, b]))),
    }


def seconds(loss: Loss, a: Tensor, b: Tensor) -> float:
    began = time.perf_counter()
    for _ in range(BLOCK):
        a.grad = b.grad = None
        loss(a, b).sum().backward()
    return (time.perf_counter() - began) / BLOCK


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", GediWarning)  # SwAV has more prototypes than rows here
    generator = torch.Generator().manual_seed(0)
    print(f"forward and backward of {ROWS} rows on one core; median of {ROUNDS} pairs of blocks")
    print(f"{'objective':<14}{'columns':>8}{'lightly':>12}{'gedikit':>12}{'ratio':>8}")
    for name, (dims, ours, theirs) in pairs().items():
        a = torch.rand(ROWS, dims, generator=generator).mul_(2).sub_(1)
        b = (a + 0.5 * torch.randn(ROWS, dims, generator=generator)).clamp_(-1, 1)
        a.requires_grad_(), b.requires_grad_()
        torch.testing.assert_close(ours(a, b), theirs(a, b).squeeze(), rtol=1e-4, atol=1e-4)
        seconds(ours, a, b), seconds(theirs, a, b)
        # alternating blocks: both see the same disturbances
        times = [(seconds(theirs, a, b), seconds(ours, a, b)) for _ in range(ROUNDS)]
        ratio = sorted(o / t for t, o in times)[ROUNDS // 2]
        best = [1e3 * min(column) for column in zip(*times, strict=True)]
        print(f"{name:<14}{dims:>8}{best[0]:>9.1f} ms{best[1]:>9.1f} ms{ratio:>8.2f}")


if __name__ == "__main__":
    main()
