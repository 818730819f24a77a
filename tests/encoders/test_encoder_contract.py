"""What every encoder must do: build networks from rows to features to embeddings.

Rows are images here, which every encoder takes: those for vectors see their pixels.
"""

import copy

import pytest
import torch
from torch import Tensor, nn

from contract_cases import SHAPE, Bars, each, prepared, seeded
from gedikit.encoders import (
    Encoder,
    EncoderContext,
    EncoderModule,
    Encoding,
    encoders,
    is_batch_normalised,
    standardise,
)
from gedikit.errors import UsageError

every = pytest.mark.parametrize("encoder", each(encoders))


def built(encoder: Encoder, seed: int = 0, n_outputs: int | None = None, width: int = 8) -> Encoding:
    if hasattr(encoder, "width"):
        encoder = encoder.replace(width=width)
    data = prepared(True)
    module = Bars(seeded(seed))  # for those that are built around one
    context = EncoderContext(rows().shape[1], SHAPE, data.bandwidth, n_outputs, seeded(seed), module)
    return encoder.build(context)


def rows() -> Tensor:
    return prepared(True).all_rows()[:6]


def embedded(encoding: Encoding, x: Tensor) -> Tensor:
    return encoding.projector(encoding.encoder(x))


@every
def test_rows_become_features_and_features_embeddings(encoder):
    encoding = built(encoder)
    features = encoding.encoder(rows())
    assert features.shape[:-1] == (6,)
    z = encoding.projector(features)
    assert z.shape == (6, encoding.n_embedding)
    for part in (features, z):
        assert part.dtype == torch.float32
        assert torch.isfinite(part).all()
    assert (z.std(0) > 0).float().mean() > 0.5, "embeddings depend on the rows"


@every
def test_the_number_of_outputs_may_be_fixed(encoder):
    encoding = built(encoder, n_outputs=3)
    assert encoding.n_embedding == 3
    assert embedded(encoding, rows()).shape == (6, 3)


@every
def test_the_generator_alone_sets_the_weights(encoder):
    torch.manual_seed(3)
    one = built(encoder)
    torch.manual_seed(4)
    same, other = built(encoder), built(encoder, 1)
    z = embedded(one, rows())
    assert torch.equal(embedded(same, rows()), z)
    assert not torch.equal(embedded(other, rows()), z)


@every
def test_gradients_reach_rows_and_weights(encoder):
    encoding, x = built(encoder), rows().requires_grad_()
    parameters = [*encoding.encoder.parameters(), *encoding.projector.parameters()]
    pick = torch.randn(6, encoding.n_embedding, generator=seeded(1))
    to_x, *gradients = torch.autograd.grad((embedded(encoding, x) * pick).sum(), [x, *parameters])
    for gradient in (to_x, *gradients):
        assert torch.isfinite(gradient).all()
    assert to_x.abs().max() > 0
    assert sum(bool(g.abs().max() > 0) for g in gradients) > len(gradients) / 2


@every
def test_rows_do_not_know_of_each_other(encoder):
    """Unless they are normalised by their batch."""
    encoding = built(encoder)
    if any(is_batch_normalised(part) for part in encoding[:2]):
        pytest.skip("batch normalisation")
    z = embedded(encoding, rows())
    alone = torch.cat([embedded(encoding, row[None]) for row in rows()])
    torch.testing.assert_close(alone, z, rtol=1e-4, atol=1e-5)


@every
def test_what_is_prepared_for_many_passes_changes_nothing(encoder):
    encoding = built(encoder)
    z = embedded(encoding, rows())
    parts = [m for part in encoding[:2] for m in part.modules() if isinstance(m, EncoderModule)]
    for part in parts:
        part.hold()
    assert torch.equal(embedded(encoding, rows()), z)
    for part in parts:
        part.release()
        assert part.compute_dtype == torch.float32
    assert torch.equal(embedded(encoding, rows()), z)


@every
def test_a_copy_with_the_same_weights_is_the_same_network(encoder):
    one, other = built(encoder), built(encoder, 1)
    for a, b in zip(one[:2], other[:2], strict=True):
        b.load_state_dict(copy.deepcopy(a).state_dict())
    assert torch.equal(embedded(other, rows()), embedded(one, rows()))


@every
def test_where_it_asks_for_that_embeddings_start_standardised(encoder):
    encoding = built(encoder)
    if not encoder.standardised:
        pytest.skip("it does not ask")
    assert isinstance(encoding.projector, nn.Sequential)
    x = prepared(True).all_rows()
    standardise(encoding.projector, encoding.encoder(x))
    z = embedded(encoding, x)
    torch.testing.assert_close(z.mean(0), torch.zeros(z.shape[1]), atol=1e-3, rtol=0)
    torch.testing.assert_close(z.std(0), torch.ones(z.shape[1]), atol=1e-3, rtol=0)


@every
def test_vectors_are_taken_or_refused_in_a_sentence(encoder):
    x = prepared(False).all_rows()[:6]
    context = EncoderContext(x.shape[1], (), prepared(False).bandwidth, None, seeded(0))
    try:
        encoding = encoder.build(context)
    except UsageError as error:
        assert repr(encoder.name) in str(error)
    else:
        assert embedded(encoding, x).shape == (6, encoding.n_embedding)
