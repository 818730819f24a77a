"""The published training loop: the thing to beat.

Same network, losses, sampler and sizes as ours, written as the scripts of JEM and VERA are, which the paper builds
on: operation by operation in 32 bits, the energies of data and samples and the logits of each view in passes of
their own, a graph kept in every SGLD step, the plain Adam, and the losses read off in every iteration.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gedikit.encoders.resnet8 import ResNet8
from gedikit.encoders.stem import SLOPE
from gedikit.model import EnergyClassifier
from gedikit.planning import Plan
from gedikit.randomness import keys
from gedikit.samplers.sgld import SGLD
from gedikit.views.augmentation import Augmentation
from gedikit.views.image_views import scaled


class PublishedLoop:
    """Invariance, prior and a cluster energy with SGLD; subclasses say what a batch is."""

    def __init__(self, network: nn.Module, shape: Sequence[int], plan: Plan):
        c = plan.config
        assert isinstance(c.sampler, SGLD) and c.density is not None
        self.network, self.sampler, self.batch_size = network, c.sampler, c.optimiser.batch_size
        self.weights = (c.density.weight, c.objectives["invariance"].weight, c.objectives["prior"].weight)
        self.optimiser = torch.optim.Adam(network.parameters(), lr=c.optimiser.learning_rate, betas=(0.9, 0.999))
        device = next(network.parameters()).device
        self.buffer = torch.empty(c.sampler.chains, *shape, device=device).uniform_(-1, 1)

    def batch(self) -> tuple[Tensor, Tensor]:
        """x and x′."""
        raise NotImplementedError

    def sample(self) -> Tensor:
        s, device = self.sampler, self.buffer.device
        slots = torch.randint(0, len(self.buffer), (s.samples,), device=device)
        fresh = torch.empty(s.samples, *self.buffer.shape[1:], device=device).uniform_(-1, 1)
        restart = (torch.rand(s.samples, device=device) < s.restart).float()
        restart = restart.reshape(-1, *[1] * (fresh.ndim - 1))
        x = (restart * fresh + (1 - restart) * self.buffer[slots]).clone().requires_grad_(True)
        for _ in range(s.steps):
            log_density = torch.logsumexp(self.network(x), dim=1).sum()
            score = torch.autograd.grad(log_density, [x], retain_graph=True)[0]
            x.data += s.step_size * score + s.noise_std * torch.randn_like(x)
        x = x.detach()
        self.buffer[slots] = x
        return x

    def step(self) -> tuple[float, float, float]:
        x, view = self.batch()
        negative = self.sample()
        data_energy = torch.logsumexp(self.network(x), 1).mean()
        generative = torch.logsumexp(self.network(negative), 1).mean() - data_energy
        logits, view_logits = self.network(x), self.network(view)
        p, view_p = F.softmax(logits, 1), F.softmax(view_logits, 1)
        invariance = -(view_p * F.log_softmax(logits, 1)).sum(1).mean()
        prior = -(torch.log(p.mean(0)) / p.shape[1]).sum()
        loss = self.weights[0] * generative + self.weights[1] * invariance + self.weights[2] * prior
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return generative.item(), invariance.item(), prior.item()


class VectorLoop(PublishedLoop):
    """On vectors, whose views are noisy copies."""

    def __init__(self, network: nn.Module, data: Tensor, plan: Plan):
        super().__init__(network, data.shape[1:], plan)
        self.data, self.noise = data, plan.config.views.sigma(bandwidth=1.0)

    def batch(self) -> tuple[Tensor, Tensor]:
        x = self.data[torch.randint(0, len(self.data), (self.batch_size,), device=self.data.device)]
        return x, x + self.noise * torch.randn_like(x)


class ImageLoop(PublishedLoop):
    """On images, with the network as it is printed."""

    def __init__(self, network: EnergyClassifier, pixels: Tensor, plan: Plan):
        height, width, channels = plan.config.data.image_shape
        super().__init__(PlainClassifier(network), (channels, height, width), plan)
        assert isinstance(plan.config.views, Augmentation)
        self.augmentation = plan.config.views
        self.pixels, self.image_shape = pixels, (height, width, channels)

    def batch(self) -> tuple[Tensor, Tensor]:
        rows = torch.randint(0, len(self.pixels), (self.batch_size,), device=self.pixels.device)
        images = scaled(self.pixels[rows]).unflatten(1, self.image_shape)
        noisy = images + self.augmentation.noise * torch.randn_like(images)
        view = self.augmentation(images, keys(0, 0, rows, 1))
        return noisy.permute(0, 3, 1, 2).contiguous(), view.permute(0, 3, 1, 2).contiguous()


class PlainResNet8(nn.Module):
    """ResNet8 as it is printed, sharing its weights."""

    def __init__(self, encoder: ResNet8):
        super().__init__()
        self.layers = encoder
        self.act = nn.LeakyReLU(SLOPE)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        e, act, pool = self.layers, self.act, self.pool
        h = pool(e.inner[0](act(e.stem(x)))) + e.shortcut(pool(x))
        h = pool(e.inner[2](act(e.inner[1](act(h))))) + pool(h)
        h = e.inner[4](act(e.inner[3](act(h)))) + h
        h = e.inner[6](act(e.inner[5](act(h)))) + h
        features: Tensor = act(h).mean((2, 3))
        return features


class PlainClassifier(nn.Module):
    """Images (n, channels, height, width) to cluster logits."""

    def __init__(self, network: EnergyClassifier):
        super().__init__()
        assert isinstance(network.encoder, ResNet8)
        self.encoder, self.projector, self.centers = (
            PlainResNet8(network.encoder),
            network.projector,
            network.centers,
        )

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.projector(self.encoder(x)) @ self.centers
        return logits
