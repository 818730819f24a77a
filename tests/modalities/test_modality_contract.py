"""What every kind of data must do: rows to what a network takes, and back."""

import dataclasses

import numpy as np
import pytest
import torch

from contract_cases import ROWS, SHAPE, each, images, seeded
from gedikit.modalities import Modality, PreparedData, modalities
from gedikit.modalities.scaling import MODES

every = pytest.mark.parametrize("modality", each(modalities))
kinds = pytest.mark.parametrize("kind", ["bytes", "numbers"])


def shaped(modality: Modality) -> Modality:
    """With a shape where it takes one: rows are images then."""
    return modality.replace(shape=SHAPE) if hasattr(modality, "shape") else modality


def raw(kind: str) -> np.ndarray:
    return images() if kind == "bytes" else images() / 100.0 - 0.7


def ready(modality: Modality, kind: str) -> PreparedData:
    return shaped(modality).prepare(raw(kind), seeded(0))


@every
@kinds
def test_rows_are_scaled_and_scaling_can_be_undone(modality, kind):
    data, x = ready(modality, kind), raw(kind).astype(np.float64)
    assert data.n_rows == ROWS
    rows = data.all_rows()
    assert rows.shape == x.shape
    assert rows.dtype == torch.float32
    level = np.ptp(x) / 255  # images are kept as bytes
    np.testing.assert_allclose(data.scaler.inverse(rows.numpy()), x, rtol=0, atol=0.51 * level)
    np.testing.assert_allclose(data.scaler.transform(x), rows.numpy(), rtol=0, atol=0.51 * 2 / 255 + 1e-5)


@every
@kinds
def test_rows_by_their_numbers_are_those_of_all(modality, kind):
    data = ready(modality, kind)
    some = torch.tensor([7, 0, 7, 31])
    assert torch.equal(data.rows(some), data.all_rows()[some])
    assert data.rows(some[:0]).shape == (0, raw(kind).shape[1])


@every
@kinds
def test_the_domain_contains_the_rows(modality, kind):
    data = ready(modality, kind)
    assert data.box.contains(data.all_rows()).all()
    assert (data.box.width > 0).all()
    assert data.bandwidth > 0
    assert data.bandwidth < float(data.box.width.max())


@every
@kinds
def test_pixels_are_bytes_of_the_rows_where_rows_are_images(modality, kind):
    data = ready(modality, kind)
    assert data.image_shape == tuple(shaped(modality).image_shape)
    assert (data.pixels is None) == (not data.image_shape)
    if data.pixels is not None:
        assert data.pixels.dtype == np.uint8
        np.testing.assert_allclose(data.pixels / 127.5 - 1, data.all_rows().numpy(), atol=1e-6)


@every
def test_a_density_changes_its_units_with_the_rows(modality):
    """∫ p(x) dx = ∫ p(z) dz: the Jacobian is that of the scaling."""
    data = ready(modality, "numbers")
    x = raw("numbers")
    moved = data.scaler.transform(x + 0.5) - data.scaler.transform(x - 0.5)
    assert data.scaler.log_jacobian == pytest.approx(
        float(np.log(moved[0].astype(np.float64)).sum()), rel=1e-3, abs=1e-2
    )


@every
def test_a_point_beside_a_point_is_near(modality):
    data = ready(modality, "bytes")
    z = data.all_rows()
    beside = shaped(modality).nearby(z, data.bandwidth, seeded(1))
    assert beside.shape == z.shape
    assert torch.isfinite(beside).all()
    assert not torch.equal(beside, z)
    apart = (z - z.roll(1, 0)).norm(dim=-1)
    assert (beside - z).norm(dim=-1).median() < apart.median()
    assert torch.equal(shaped(modality).nearby(z, data.bandwidth, seeded(1)), beside)


@every
def test_how_long_chains_run_is_a_number(modality):
    assert modality.sampling_steps("noise", 5) >= modality.sampling_steps("buffer", 5) > 0
    assert modality.chains_at_once > 0
    assert modality.diagnosed_rows > 0


@every
def test_columns_of_codes_keep_their_size_where_there_are_any(modality):
    assert modality.scaling in MODES
    assert modality.codes == ()
    if "codes" not in {field.name for field in dataclasses.fields(modality)}:
        return  # rows of images have no columns
    data = modality.replace(codes=(0,)).prepare(raw("numbers"), seeded(0))
    assert data.scaler.scale[0] == 1
    assert data.scaler.mean[0] == pytest.approx(0 if modality.scaling == "none" else raw("numbers")[:, 0].mean())
    assert (data.scaler.scale[1:] != 1).all() == (modality.scaling != "none")
