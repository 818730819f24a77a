"""The training loop as the published codes of this family write it: the thing to beat.

Same losses, sampler and sizes as method "gedi-as-printed". As in the scripts of JEM and VERA, which the paper
builds on, the energies of data and samples and the logits of each view are passes of their own, SGLD keeps its
graph, and Adam is the plain one.
"""

import torch
import torch.nn.functional as F
from torch import nn


class PublishedLoop:
    def __init__(self, network: nn.Module, data: torch.Tensor, *, buffer_size: int = 10_000, batch: int = 400):
        self.network, self.data, self.batch = network, data, batch
        self.optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, betas=(0.9, 0.999))
        self.buffer = torch.empty(buffer_size, data.shape[1]).uniform_(-1, 1)

    def sample(self) -> torch.Tensor:
        slots = torch.randint(0, len(self.buffer), (self.batch,))
        fresh = torch.empty(self.batch, self.data.shape[1]).uniform_(-1, 1)
        restart = (torch.rand(self.batch) < 0.05).float()[:, None]
        x = (restart * fresh + (1 - restart) * self.buffer[slots]).clone().requires_grad_(True)
        log_density = torch.logsumexp(self.network(x), dim=1).sum()
        score = torch.autograd.grad(log_density, [x], retain_graph=True)[0]
        x = (x.data + 0.01**2 / 2 * score + 0.01 * torch.randn_like(x)).detach()
        self.buffer[slots] = x
        return x

    def step(self) -> tuple[float, float, float]:
        x = self.data[torch.randint(0, len(self.data), (self.batch,))]
        view = x + 0.03 * torch.randn_like(x)
        negative = self.sample()
        data_energy = torch.logsumexp(self.network(x), 1).mean()
        generative = torch.logsumexp(self.network(negative), 1).mean() - data_energy
        logits, view_logits = self.network(x), self.network(view)
        p, view_p = F.softmax(logits, 1), F.softmax(view_logits, 1)
        invariance = -(view_p * F.log_softmax(logits, 1)).sum(1).mean()
        prior = -(torch.log(p.mean(0)) / p.shape[1]).sum()
        loss = generative + 50 * invariance + 10 * prior
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return generative.item(), invariance.item(), prior.item()
