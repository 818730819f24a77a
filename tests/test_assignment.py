import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch import nn

from gedikit import GEDI
from gedikit.assignment import Assignment
from gedikit.data.toy import moons
from gedikit.model import EnergyClassifier


@pytest.fixture(scope="module")
def features() -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0, 0], [9, 0, 0], [0, 9, 0]])
    return torch.cat([c + torch.randn(50, 3, generator=g) for c in centres]) * torch.tensor([1.0, 100.0, 0.01])


@pytest.mark.parametrize("unit_length", [True, False])
def test_k_means_labels_and_posteriors_are_those_of_a_gaussian_mixture(features, unit_length):
    network = EnergyClassifier(nn.Identity(), nn.Identity(), 3, 3)
    assignment = Assignment.by_k_means(features, 3, unit_length=unit_length, seed=0)
    placed = (
        torch.nn.functional.normalize(features, dim=-1)
        if unit_length
        else (features - features.mean(0)) / features.std(0)
    ).numpy()
    reference = KMeans(3, n_init=10, random_state=0).fit(placed)
    scores = assignment.scores(network, features, features)
    np.testing.assert_array_equal(scores.argmax(-1).numpy(), reference.labels_)
    width = reference.inertia_ / placed.size  # mean squared distance a coordinate
    squared = ((placed[:, None] - reference.cluster_centers_) ** 2).sum(-1)
    expected = torch.softmax(torch.from_numpy(-squared / (2 * width)).double(), -1)
    torch.testing.assert_close(torch.softmax(scores.double(), -1), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("rule", "text"),
    [("projection", "argmax of the projection z"), ("k-means", "k-means on the features of the training rows")],
)
def test_the_rule_can_be_chosen_and_is_told(rule, text):
    x, _ = moons(80, 0)
    model = GEDI(3, method="vicreg", max_iter=5, random_state=0, config={"head.labels": rule}).fit(x)
    assert model.fitted_.assignment.description.startswith(text)
    assert model.predict_proba(x).shape == (80, 3)
    if rule == "projection":
        z = model.fitted_.network.embed(model.fitted_.to_scaled(x))
        np.testing.assert_array_equal(model.predict(x), z.argmax(-1).numpy())
