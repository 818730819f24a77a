import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from gedikit.errors import DataError, UsageError
from gedikit.evaluation import knn_probe, linear_probe
from gedikit.evaluation.probes import fit_linear


def blobs(n, n_classes, h, seed, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(n_classes, h, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(n_classes, (n,), generator=generator)
    return centres[labels] + spread * torch.randn(n, h, generator=generator), labels


def test_training_is_that_of_a_linear_layer_under_torch_sgd():
    x, y = blobs(230, 4, 6, 0)
    arguments = {"epochs": 3, "learning_rate": 0.05, "batch_size": 50, "momentum": 0.9}
    inputs = torch.nn.functional.pad(x, (0, 1), value=1.0)
    ours = fit_linear(torch.stack([inputs, inputs]), y, 4, torch.Generator().manual_seed(5), **arguments)

    generator = torch.Generator().manual_seed(5)
    start = (torch.rand(4, 7, generator=generator) * 2 - 1) / 6**0.5
    layer = nn.Linear(6, 4)
    with torch.no_grad():
        layer.weight.copy_(start[:, :-1])
        layer.bias.copy_(start[:, -1])
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        order = torch.randperm(230, generator=generator)
        for rows in order.split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
            optimiser.step()
    theirs = torch.cat([layer.weight, layer.bias[:, None]], 1).detach()
    torch.testing.assert_close(ours[0], theirs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours[1], ours[0])
    assert (theirs - start).abs().max() > 0.1


def test_probe_reaches_the_best_accuracy_there_is_for_two_gaussians():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12000) % 2
    features = torch.randn(12000, 5, generator=generator)
    features[:, 0] += 2.0 * labels
    figures = linear_probe(features[:4000], labels[:4000], features[4000:], labels[4000:], seed=0, epochs=60)
    best = 0.8413  # Φ(1): unit Gaussians two apart
    assert [f.value for f in figures] == pytest.approx([best, best], abs=0.012)


def test_standardising_rescues_features_of_a_tiny_scale_and_does_not_leak():
    x, y = blobs(1500, 5, 8, 1, spread=0.5)
    x = x * 1e-5 + 3e-3
    accuracies = {}
    for name, rows in (("all", slice(1000, 1500)), ("few", slice(1000, 1004)), ("rest", slice(1004, 1500))):
        figures = linear_probe(x[:1000], y[:1000], x[rows], y[rows], seed=0, epochs=20)
        accuracies[name] = np.array([f.value for f in figures])
    raw, standardised = accuracies["all"]
    assert raw < 0.6
    assert standardised > 0.9
    assert 4 * accuracies["few"] + 496 * accuracies["rest"] == pytest.approx(500 * accuracies["all"])


def test_probe_says_how_it_was_come_by_and_repeats():
    x, y = blobs(300, 3, 4, 2)
    x = torch.cat([x, torch.full((300, 1), 0.1)], 1)
    first, second = (linear_probe(x[:200], y[:200] + 7, x[200:], y[200:] + 7, seed=3, epochs=2) for _ in range(2))
    assert first == second
    assert first != linear_probe(x[:200], y[:200] + 7, x[200:], y[200:] + 7, seed=4, epochs=2)
    expected = {
        "learning_rate": 1e-3,
        "batch_size": 100,
        "epochs": 2,
        "momentum": 0.9,
        "seed": 3,
        "n_train": 200,
        "n_test": 100,
        "n_features": 5,
        "n_classes": 3,
    }
    assert all(expected.items() <= f.protocol.items() for f in first)
    assert all(np.isfinite(f.value) for f in first)


def test_a_label_that_training_lacks_counts_as_wrong():
    x, y = blobs(200, 2, 3, 0, spread=0.01)
    unseen = y.clone()
    unseen[100:150] = 9
    raw, standardised = linear_probe(x[:100], y[:100], x[100:], unseen[100:], seed=0, epochs=50, learning_rate=0.1)
    assert raw.value == standardised.value == 0.5
    assert knn_probe(x[:100], y[:100], x[100:], unseen[100:], k=3)[0].value == 0.5


def test_neighbours_agree_with_sklearn():
    x, y = blobs(900, 2, 4, 3)
    [figure] = knn_probe(x[:600], y[:600], x[600:], y[600:], k=15)
    oracle = KNeighborsClassifier(15, metric="cosine", algorithm="brute").fit(x[:600], y[:600])
    assert figure.value == pytest.approx(oracle.score(x[600:], y[600:]))
    assert 0.6 < figure.value < 0.99
    euclid = KNeighborsClassifier(15).fit(x[:600], y[:600]).score(x[600:], y[600:])
    assert figure.value != pytest.approx(euclid)


def test_blocks_do_not_change_the_neighbours(monkeypatch):
    x, y = blobs(400, 5, 4, 4, spread=1.5)
    whole = knn_probe(x[:300], y[:300], x[300:], y[300:])
    monkeypatch.setattr("gedikit.evaluation.probes._SIMILARITIES_AT_ONCE", 300 * 7)
    assert knn_probe(x[:300], y[:300], x[300:], y[300:]) == whole


def test_majority_wins_and_the_nearest_decides_ties():
    angles = torch.tensor([0.1, 0.2, 0.3, 0.4, 3.0]).double()
    train = torch.stack([angles.cos(), angles.sin()], 1)
    test = torch.tensor([[5.0, 0.0]]).double()  # cosine, so length is nothing
    for labels, k, winner in (
        ([1, 0, 0, 1, 0], 4, 1),
        ([0, 1, 1, 0, 1], 4, 0),
        ([1, 0, 0, 0, 0], 3, 0),
        ([2, 0, 1, 0, 1], 1, 2),
        ([2, 1, 0, 0, 1], 5, 1),
    ):
        [figure] = knn_probe(train, torch.tensor(labels), test, torch.tensor([winner]), k=k)
        assert figure.value == 1.0, (labels, k)


@pytest.mark.parametrize("probe", [knn_probe, lambda *data: linear_probe(*data, seed=0)])
def test_bad_features_are_refused_in_a_sentence(probe):
    x, y = blobs(60, 2, 3, 0)
    with pytest.raises(DataError, match="do not fit 60 rows"):
        probe(x, y[:5], x, y)
    with pytest.raises(DataError, match="test features hold values that are not finite"):
        probe(x, y, torch.full_like(x, torch.nan), y)
    with pytest.raises(DataError, match="3 features, test rows 2"):
        probe(x, y, x[:, :2], y)
    with pytest.raises(DataError, match="rows of numbers"):
        probe(x[:0], y[:0], x, y)


def test_bad_numbers_are_refused_in_a_sentence():
    x, y = blobs(60, 2, 3, 0)
    with pytest.raises(UsageError, match="between 1 and the 60 training rows, not 61"):
        knn_probe(x, y, x, y, k=61)
    with pytest.raises(UsageError, match="at least one epoch"):
        linear_probe(x, y, x, y, seed=0, epochs=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_probes_on_the_device_are_those_of_the_cpu():
    x, y = blobs(1500, 5, 8, 1)
    data = (x[:1000], y[:1000], x[1000:], y[1000:])
    there = [t.cuda() for t in data]
    for probe in (knn_probe, lambda *d: linear_probe(*d, seed=0, epochs=10)):
        assert [f.value for f in probe(*there)] == pytest.approx([f.value for f in probe(*data)], abs=0.005)
