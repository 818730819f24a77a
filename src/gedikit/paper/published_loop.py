"""The published training loop for images: the thing to beat.

Same network, losses, sampler and sizes as ours, written as the scripts of JEM and VERA are, which the paper builds
on: operation by operation in 32 bits, the energies of data and samples and the logits of each view in passes of
their own, a graph kept in every SGLD step, the plain Adam, and the losses read off in every iteration.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gedikit.data.augment import Augmentation
from gedikit.data.image_views import scaled
from gedikit.model import EnergyClassifier
from gedikit.networks import ResNet8
from gedikit.networks.stem import SLOPE
from gedikit.randomness import keys
from gedikit.settings import Settings


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


class PublishedLoop:
    def __init__(self, network: EnergyClassifier, pixels: Tensor, augmentation: Augmentation, settings: Settings):
        self.network = PlainClassifier(network)
        self.augmentation, self.settings = augmentation, settings
        height, width, channels = settings.image_shape
        self.pixels = pixels.reshape(-1, height, width, channels)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate, betas=(0.9, 0.999))
        shape = (settings.buffer, channels, height, width)
        self.buffer = torch.empty(shape, device=pixels.device).uniform_(-1, 1)

    def sample(self) -> Tensor:
        s, device = self.settings, self.buffer.device
        slots = torch.randint(0, len(self.buffer), (s.negatives,), device=device)
        fresh = torch.empty(s.negatives, *self.buffer.shape[1:], device=device).uniform_(-1, 1)
        restart = (torch.rand(s.negatives, device=device) < s.restart).float()[:, None, None, None]
        x = (restart * fresh + (1 - restart) * self.buffer[slots]).clone().requires_grad_(True)
        for _ in range(s.steps):
            log_density = torch.logsumexp(self.network(x), dim=1).sum()
            score = torch.autograd.grad(log_density, [x], retain_graph=True)[0]
            x.data += s.step_size * score + s.noise_std * torch.randn_like(x)
        x = x.detach()
        self.buffer[slots] = x
        return x

    def step(self) -> tuple[float, float, float]:
        s, device = self.settings, self.buffer.device
        rows = torch.randint(0, len(self.pixels), (s.batch_size,), device=device)
        images = scaled(self.pixels[rows])
        views = [images + self.augmentation.noise * torch.randn_like(images)]
        views.append(self.augmentation(images, keys(0, 0, rows, 1)))
        x, view = (v.permute(0, 3, 1, 2).contiguous() for v in views)
        negative = self.sample()
        data_energy = torch.logsumexp(self.network(x), 1).mean()
        generative = torch.logsumexp(self.network(negative), 1).mean() - data_energy
        logits, view_logits = self.network(x), self.network(view)
        p, view_p = F.softmax(logits, 1), F.softmax(view_logits, 1)
        invariance = -(view_p * F.log_softmax(logits, 1)).sum(1).mean()
        prior = -(torch.log(p.mean(0)) / p.shape[1]).sum()
        loss = s.generative * generative + s.invariance * invariance + s.prior * prior
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return generative.item(), invariance.item(), prior.item()
