"""Encoders of one's own."""

import copy

import numpy as np
import pytest
import torch
from image_cases import EVERY, SHAPE, pictures, planned, small
from torch import nn

from gedikit import GEDI
from gedikit.errors import UsageError
from gedikit.training.fit import prepare


def small_encoder(n_features: int = 6) -> nn.Module:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, n_features, 4, stride=4)
    return nn.Sequential(conv, nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_an_encoder_of_ones_own_is_copied_saved_and_asked_for_again(tmp_path):
    x, _ = pictures(40)
    images = x.reshape(-1, *SHAPE)
    encoder = small_encoder()
    before = copy.deepcopy(encoder.state_dict())
    config = small(**{"encoder.name": "user", "optimiser.warmup": 1, "execution.log_every": 1})
    model = GEDI(2, encoder=encoder, max_iter=3, config=config, random_state=0, device="cpu")
    assert model.fit(images).plan_.config.data.image_shape == SHAPE
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, before[name]), "what was given is left as it was"
    trained = model.fitted_.network.encoder.module.state_dict()
    assert any(not torch.equal(trained[name], before[name]) for name in before)
    assert model.transform(images).shape == (40, 6)
    assert np.array_equal(model.predict(images), model.predict(x))
    assert np.array_equal(model.predict(images), model.labels_)

    path = tmp_path / "model.safetensors"
    model.save(path)
    with pytest.raises(UsageError, match="was trained with an encoder of your own: give one of the same kind as"):
        GEDI.load(path)
    other = small_encoder()
    with torch.no_grad():
        other[0].weight.zero_()
    loaded = GEDI.load(path, encoder=other, device="cpu")
    assert not other[0].weight.any(), "it was only asked how it is made"
    assert loaded.encoder is other
    assert np.array_equal(loaded.predict_proba(images), model.predict_proba(images))
    np.testing.assert_array_equal(loaded.transform(x), model.transform(x))


def test_frozen_layers_of_an_encoder_stay_as_they_are():
    x, _ = pictures(40)
    encoder = nn.Sequential(*small_encoder(), nn.Linear(6, 5))
    encoder[0].requires_grad_(False)
    plan = planned(x, config={"encoder.name": "user"}, user_encoder=True)
    ready = prepare(plan, x, execution=EVERY, encoder=encoder)
    assert ready.network.encoder.module is not encoder, "what moves to a device is a copy"
    state = ready.new_state()
    for _ in range(2):
        ready.step(state)
    module = state.network.encoder.module
    assert torch.equal(module[0].weight, encoder[0].weight)
    assert not torch.equal(module[4].weight, encoder[4].weight)


def test_encoders_with_batch_statistics_are_refused():
    encoder = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(UsageError, match=r"the encoder has a BatchNorm2d: .* such as GroupNorm"):
        GEDI(2, encoder=encoder, device="cpu").fit(pictures(40)[0].reshape(-1, *SHAPE))


def test_the_encoder_user_needs_a_module():
    x, _ = pictures(40)
    with pytest.raises(UsageError, match="the encoder 'user' is a module of your own: give it as encoder="):
        prepare(planned(x, config={"encoder.name": "user"}), x, execution=EVERY)
