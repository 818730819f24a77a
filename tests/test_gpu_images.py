"""Images on a CUDA device: the fast iteration is the plain one, only faster."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gedikit import GEDI
from gedikit.config import Execution
from gedikit.encoders.stem import SLOPE, stem
from gedikit.errors import UsageError
from gedikit.paper.timing import bench_plan, prepared
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.training import fit
from gedikit.training.fit import prepare

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
SHAPE = (32, 32, 3)


def blobs(n: int) -> np.ndarray:
    """Pictures of two kinds: bright above or bright below, in any colour."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 60, (n, *SHAPE))
    colour = rng.integers(80, 195, (n, 1, 1, 3))
    half = rng.integers(0, 2, n)
    for i in range(n):
        images[i, 16 * half[i] : 16 * half[i] + 16] += colour[i]
    return images.astype(np.uint8).reshape(n, -1)


SMALL = {
    "encoder.width": 32,
    "sampler.samples": 64,
    "sampler.steps": 5,
    "sampler.chains": 500,
    "optimiser.batch_size": 64,
    "optimiser.warmup": 10,
}
PLAIN = {"compile": False, "precision": "float32"}


def planned(x: np.ndarray, **changes):
    return plan(DataProfile.of(x, SHAPE), Asked(2, views="photos", config=SMALL | changes))


def on_gpu(**changes) -> Execution:
    return Execution(device="cuda", log_every=1, **changes)


@pytest.mark.parametrize(("shape", "filters"), [((5, 32, 32, 3), 128), ((3, 28, 28, 1), 64), ((2, 8, 12, 3), 256)])
def test_stem_kernels_compute_the_convolution_and_its_gradients(shape, filters):
    torch.manual_seed(0)
    x = (torch.rand(shape, device="cuda") * 2 - 1).bfloat16().float().requires_grad_()
    weight = (0.3 * torch.randn(filters, shape[3], 3, 3, device="cuda")).bfloat16().requires_grad_()
    bias = (0.1 * torch.randn(filters, device="cuda")).bfloat16().requires_grad_()
    ours = stem(x, weight, bias)
    plain_weight = weight.detach().float().requires_grad_()
    plain_bias = bias.detach().float().requires_grad_()
    plain_x = x.detach().clone().requires_grad_()
    plain = F.leaky_relu(F.conv2d(plain_x.permute(0, 3, 1, 2), plain_weight, plain_bias, padding=1), SLOPE)
    gradient = torch.randn_like(plain).bfloat16()
    found = torch.autograd.grad(ours, (x, weight, bias), gradient)
    with torch.backends.cudnn.flags(allow_tf32=False):
        wanted = torch.autograd.grad(plain, (plain_x, plain_weight, plain_bias), gradient.float())
    assert relative(ours, plain) < 4e-3
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert relative(a, b) < 8e-3


def test_gradient_of_the_fast_iteration_is_that_of_the_plain_one():
    """As far from the one in 32 bits as half precision puts PyTorch's own, and next to the same in 32 bits."""
    x = blobs(256)

    def gradient(**changes):
        ready = prepare(planned(x, **{"sampler.steps": 1}), x, execution=on_gpu(**changes))
        state = ready.new_state()
        ready.step(state)
        return state.weights.grad.clone()

    plain = gradient(**PLAIN)
    half = relative(gradient(compile=False), plain)
    assert relative(gradient(precision="float32"), plain) < 5e-3
    assert relative(gradient(), plain) < min(1.25 * half, 0.06)


def test_losses_of_200_iterations_overlay():
    x = blobs(512)
    histories = []
    # larger steps amplify any rounding
    asked = planned(x, **{"optimiser.iterations": 200, "optimiser.learning_rate": 5e-5})
    for changes in (PLAIN, {}):
        histories.append(fit(asked, x, execution=on_gpu(**changes)).history.rows)
    assert len(histories[0]) == 200
    for name, tolerance in (("invariance", 0.06), ("prior", 0.03), ("mutual_information", 0.06)):
        plain, fast = (np.array([row[name] for row in rows]) for rows in histories)
        smooth = np.ones(10) / 10  # batch by batch both are noisy
        gap = np.abs(np.convolve(plain, smooth, "valid") - np.convolve(fast, smooth, "valid"))
        assert gap.max() < tolerance, (name, gap.max())


def test_captured_iterations_equal_those_run_one_operation_at_a_time():
    x = blobs(256)
    asked = planned(x, **{"optimiser.iterations": 12, "optimiser.learning_rate": 5e-5})
    rows = [fit(asked, x, execution=on_gpu(compile=compiled)).history.rows for compiled in (False, True)]
    for eager, captured in zip(*rows, strict=True):
        for name in ("invariance", "prior", "generative"):
            assert captured[name] == pytest.approx(eager[name], rel=0.02, abs=0.02), name


def test_a_resumed_run_goes_on_where_it_was():
    x = blobs(256)
    whole = prepare(planned(x, **{"optimiser.iterations": 12}), x, execution=on_gpu())
    state = whole.new_state()
    for _ in range(8):
        whole.step(state)
    tensors = {name: t.clone() for name, t in state.tensors().items()}
    meta = state.meta()
    later = [whole.step(state, measure=True)[0]["prior"] for _ in range(4)]
    again = whole.new_state()
    again.restore(tensors, meta)
    repeated = [whole.step(again, measure=True)[0]["prior"] for _ in range(4)]
    assert repeated == pytest.approx(later, rel=1e-2)


def test_an_iteration_on_cifar_sized_batches_stays_within_8_gib():
    ready = prepared(bench_plan(256, 128, 20, 32), "cuda")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    state = ready.new_state()
    for i in range(8):
        ready.step(state, measure=i % 2 == 0)
    assert torch.cuda.max_memory_reserved() < 8 * 2**30


def test_too_little_memory_names_a_batch_that_fits():
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(1.5 * 2**30 / total)
    try:
        x = blobs(4096)
        large = {"encoder.width": 128, "optimiser.batch_size": 4096, "sampler.samples": 4096}
        asked = planned(x, **large, **{"optimiser.iterations": 4})
        with pytest.raises(UsageError, match=r"optimiser.batch_size=\d+ and sampler.samples=\d+ would fit"):
            fit(asked, x, execution=on_gpu())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


def test_fit_finds_the_two_kinds_and_generates_pictures():
    x = blobs(512)
    kinds = x.reshape(-1, *SHAPE)[:, :16].mean((1, 2, 3)) > x.reshape(-1, *SHAPE)[:, 16:].mean((1, 2, 3))
    model = GEDI(
        2,
        image_shape=SHAPE,
        views="photos",
        max_iter=400,
        random_state=0,
        device="cuda",
        config=SMALL | {"optimiser.warmup": 50},
    ).fit(x)
    agreement = np.mean(model.labels_ == kinds)
    assert max(agreement, 1 - agreement) > 0.95
    made, _ = model.sample(8, steps=20, random_state=0)
    assert made.shape == (8, 3072)
    assert 0 <= made.min() <= made.max() <= 255


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.detach().float() - b.detach().float()).norm() / b.detach().float().norm())
