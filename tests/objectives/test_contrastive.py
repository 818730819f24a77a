import math

import numpy as np
import pytest
import torch
from drawing import SEEDS, array, positive, rotation, tensors, views
from hypothesis import given, settings
from hypothesis import strategies as st

from gedikit.errors import UsageError
from gedikit.objectives import (
    cpc,
    infonce,
    infonce_optimum,
    kscl,
    kscl_optimum,
    protocpc,
    protocpc_optimum,
    simclr,
    simclr_optimum,
    similarities,
)

ROWS, DIMS = st.integers(2, 7), st.integers(1, 5)
TEMPERATURES = st.floats(0.05, 2.0)
few = settings(max_examples=40, deadline=None)


def cosine(a, b):
    return a @ b / math.sqrt(a @ a) / math.sqrt(b @ b)


SIMILARITY = {"cosine": cosine, "euclidean": lambda a, b: -np.sum((a - b) ** 2), "dot": lambda a, b: a @ b}


def cross_entropy(scores, right):
    """−log of the share of the right one among e^scores."""
    top = max(scores)
    return top + math.log(math.fsum(math.exp(s - top) for s in scores)) - right


def written_out_infonce(z, v, temperature, kind="cosine"):
    sim = [[SIMILARITY[kind](a, b) / temperature for b in v] for a in z]
    return np.mean([cross_entropy(row, row[i]) for i, row in enumerate(sim)])


def written_out_simclr(z, v, temperature):
    everyone, n = [*z, *v], len(z)
    losses = []
    for i, anchor in enumerate(everyone):
        others = {k: cosine(anchor, b) / temperature for k, b in enumerate(everyone) if k != i}
        losses.append(cross_entropy(others.values(), others[(i + n) % (2 * n)]))
    return np.mean(losses)


def written_out_kscl(z, shots, temperature, length):
    sim = [[length(a / math.sqrt(a @ a), s) / temperature for s in shots] for a in z]
    return np.mean([cross_entropy(row, row[i]) for i, row in enumerate(sim)])


def simplex(n):
    """n unit vectors that are as far from each other as can be."""
    return torch.eye(n, dtype=torch.float64) - 1 / n


@pytest.mark.parametrize("kind", SIMILARITY)
@given(SEEDS, ROWS, DIMS, TEMPERATURES)
@few
def test_infonce_agrees_with_the_written_out_sum(kind, seed, n, dims, temperature):
    z, v = views(seed, n, dims)
    value = infonce(*tensors(z, v), temperature=temperature, similarity=kind)
    assert value.item() == pytest.approx(written_out_infonce(z, v, temperature, kind), rel=1e-6, abs=1e-9)


@given(SEEDS, ROWS, DIMS, TEMPERATURES)
@few
def test_simclr_agrees_with_the_written_out_sum(seed, n, dims, temperature):
    z, v = views(seed, n, dims)
    value = simclr(*tensors(z, v), temperature=temperature)
    assert value.item() == pytest.approx(written_out_simclr(z, v, temperature), rel=1e-6, abs=1e-9)


@given(SEEDS, ROWS, DIMS)
@few
def test_cpc_agrees_with_the_written_out_sum(seed, n, dims):
    z, c = views(seed, n, dims)
    bilinear = array(seed, dims, dims)
    scores = [[a @ bilinear @ b for b in c] for a in z]
    expected = np.mean([cross_entropy(row, row[i]) for i, row in enumerate(scores)])
    assert cpc(*tensors(z, c, bilinear)).item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(SEEDS, ROWS, st.integers(2, 6), TEMPERATURES)
@few
def test_protocpc_agrees_with_the_written_out_sum(seed, n, prototypes, temperature):
    student, teacher = views(seed, n, prototypes)
    p = np.exp(teacher) / np.exp(teacher).sum(-1, keepdims=True)
    q = p.mean(0)
    expected = -np.mean(
        [
            sum(p[i, c] * student[i, c] / temperature for c in range(prototypes))
            - math.log(sum(q[c] * math.exp(student[i, c] / temperature) for c in range(prototypes)))
            for i in range(n)
        ]
    )
    value = protocpc(*tensors(student, p), temperature=temperature)
    assert value.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(SEEDS, ROWS, st.integers(1, 4), st.integers(1, 6), st.floats(1e-3, 0.5), TEMPERATURES)
@few
def test_kscl_agrees_with_explicit_projection_matrices(seed, n, k, dims, ridge, temperature):
    z, shots = array(seed, n, dims), array(seed + 1, n, k, dims)

    def length(q, s):
        a = s / np.linalg.norm(s, axis=-1, keepdims=True)
        return math.sqrt(q @ a.T @ np.linalg.inv(a @ a.T + ridge * np.eye(k)) @ a @ q)

    value = kscl(*tensors(z, shots), temperature=temperature, ridge=ridge)
    assert value.item() == pytest.approx(written_out_kscl(z, shots, temperature, length), rel=1e-6, abs=1e-8)


@given(SEEDS, ROWS, st.integers(1, 3))
@few
def test_kscl_without_ridge_measures_the_projection_on_the_span(seed, n, k):
    z, shots = array(seed, n, 5), array(seed + 1, n, k, 5)

    def length(q, s):
        return np.linalg.norm(s.T @ np.linalg.lstsq(s.T, q, rcond=None)[0])

    value = kscl(*tensors(z, shots), ridge=1e-12)
    assert value.item() == pytest.approx(written_out_kscl(z, shots, 0.2, length), rel=1e-6)


def test_kscl_with_one_view_of_each_is_infonce_with_absolute_cosines():
    z, view = tensors(*views(0, 6, 4))
    expected = np.mean(
        [cross_entropy(row, row[i]) for i, row in enumerate(torch.abs(similarities(z, view) / 0.2).tolist())]
    )
    assert kscl(z, view[:, None], ridge=0.0).item() == pytest.approx(expected, rel=1e-9)


@given(SEEDS, ROWS, DIMS)
@few
def test_cosine_losses_see_directions_only(seed, n, dims):
    z, v = tensors(*views(seed, n, dims))
    shots = torch.tensor(array(seed, n, 2, dims))
    a, b, c = tensors(positive(seed + 1, n, 1), positive(seed + 2, n, 1), positive(seed + 3, n, 2, 1))
    torch.testing.assert_close(infonce(a * z, b * v), infonce(z, v))
    torch.testing.assert_close(simclr(a * z, b * v), simclr(z, v))
    torch.testing.assert_close(kscl(a * z, c * shots), kscl(z, shots))


@given(SEEDS, ROWS, st.integers(2, 5))
@few
def test_rotating_all_embeddings_changes_nothing(seed, n, dims):
    z, v = tensors(*views(seed, n, dims))
    shots, turn = tensors(array(seed, n, 2, dims), rotation(seed, dims))
    for kind in SIMILARITY:
        torch.testing.assert_close(infonce(z @ turn, v @ turn, similarity=kind), infonce(z, v, similarity=kind))
    torch.testing.assert_close(simclr(z @ turn, v @ turn), simclr(z, v))
    torch.testing.assert_close(kscl(z @ turn, shots @ turn), kscl(z, shots))
    bilinear = torch.tensor(array(seed + 1, dims, dims))
    torch.testing.assert_close(cpc(z @ turn, v @ turn, turn.T @ bilinear @ turn), cpc(z, v, bilinear))


@given(SEEDS, ROWS)
@few
def test_order_of_coordinates_does_not_matter(seed, n):
    z, v = tensors(*views(seed, n, 5))
    shots = torch.tensor(array(seed, n, 2, 5))
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    for loss in (infonce, simclr, lambda a, b: protocpc(a, torch.softmax(b, -1))):
        torch.testing.assert_close(loss(z[:, order], v[:, order]), loss(z, v))
    torch.testing.assert_close(kscl(z[:, order], shots[..., order]), kscl(z, shots))
    torch.testing.assert_close(kscl(z, shots.flip(1)), kscl(z, shots))


def test_euclidean_similarity_does_not_depend_on_the_origin_and_cosine_does():
    z, v = tensors(*views(0, 6, 3))
    torch.testing.assert_close(infonce(z + 3, v + 3, similarity="euclidean"), infonce(z, v, similarity="euclidean"))
    assert not torch.isclose(infonce(z + 3, v + 3), infonce(z, v), rtol=1e-2)


def test_distances_far_from_the_origin_keep_their_digits_in_single_precision():
    """‖a‖² + ‖b‖² − 2ab around 10⁶ has no digit left after the point."""
    z, v = tensors(*views(0, 8, 16))
    far = similarities((z + 1000).float(), (v + 1000).float(), "euclidean")
    exact = similarities((z + 1000).float().double(), (v + 1000).float().double(), "euclidean")
    torch.testing.assert_close(far.double(), exact, rtol=1e-4, atol=1e-3)


@given(SEEDS, ROWS, DIMS)
@few
def test_views_can_be_swapped_in_simclr_but_not_in_infonce(seed, n, dims):
    z, v = tensors(*views(seed, n, dims))
    torch.testing.assert_close(simclr(z, v), simclr(v, z))
    z, v = tensors(*views(seed, 5, 3))
    assert not torch.isclose(infonce(z, v), infonce(v, z), rtol=1e-9)


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_corners_of_a_simplex_reach_the_optimum(n, temperature):
    z = 3 * simplex(n)
    assert infonce(z, z, temperature=temperature).item() == pytest.approx(infonce_optimum(n, temperature), rel=1e-9)
    assert simclr(z, z, temperature=temperature).item() == pytest.approx(simclr_optimum(n, temperature), rel=1e-9)


@pytest.mark.parametrize("n", [2, 5])
def test_orthogonal_subspaces_reach_the_optimum_of_kscl(n):
    shots = torch.eye(2 * n, dtype=torch.float64).reshape(n, 2, 2 * n)
    shots = torch.stack([shots.sum(1), 2 * shots[:, 0]], 1)  # other vectors of the same planes
    z = shots[:, 0] + 0.3 * shots[:, 1]
    value = kscl(z, shots, temperature=0.3, ridge=1e-12)
    assert value.item() == pytest.approx(kscl_optimum(n, 0.3), rel=1e-6)
    assert kscl(z, shots, temperature=0.3, ridge=0.1).item() > kscl_optimum(n, 0.3)


@pytest.mark.parametrize("c", [2, 5])
def test_a_certain_balanced_teacher_reaches_the_optimum_of_protocpc(c):
    classes = torch.eye(c, dtype=torch.float64).repeat(3, 1)
    assert protocpc(20 * classes, classes).item() == pytest.approx(protocpc_optimum(c), rel=1e-9)
    one_class = torch.eye(c, dtype=torch.float64)[:1].repeat(6, 1)
    assert protocpc(20 * one_class, one_class).item() == pytest.approx(0.0, abs=1e-9)


def test_cpc_goes_to_zero_for_pairs_that_the_bilinear_form_tells_apart():
    z = torch.eye(4, dtype=torch.float64)
    assert cpc(z, z, 3 * z).item() == pytest.approx(math.log1p(3 * math.exp(-3)), rel=1e-9)
    assert cpc(z, z, 50 * z).item() == pytest.approx(0.0, abs=1e-12)


@given(SEEDS, ROWS, st.integers(1, 9), TEMPERATURES, st.floats(0.0, 1.0))
@few
def test_no_value_lies_below_the_known_optimum(seed, n, dims, temperature, noise):
    """Starting near the optimum (little noise) or far from it."""
    near = np.eye(n, max(n, dims)) - 1 / n
    z = near + noise * array(seed, *near.shape)
    v = near + noise * array(seed + 1, *near.shape)
    shots = near[:, None] + noise * array(seed + 2, n, 2, near.shape[1])
    z, v, shots = tensors(z, v, shots)
    assert infonce(z, v, temperature=temperature).item() >= infonce_optimum(n, temperature) - 1e-9
    assert simclr(z, v, temperature=temperature).item() >= simclr_optimum(n, temperature) - 1e-9
    if noise > 1e-3:
        bound = kscl_optimum(n, temperature) - 1e-6
        assert kscl(z, shots, temperature=temperature, ridge=1e-9).item() >= bound
    teacher = torch.softmax(v / (noise + 1e-3), -1)
    assert protocpc(z, teacher, temperature=temperature).item() >= protocpc_optimum(v.shape[-1]) - 1e-9
    assert cpc(z, v, torch.tensor(array(seed, z.shape[1], z.shape[1]))).item() >= 0.0


def test_a_prototype_no_teacher_uses_takes_no_part():
    """Its weight is 0, so however large the student's score there the loss does not see it."""
    teacher = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    student = torch.tensor([[0.3, -0.2, 1e4], [0.1, 0.4, -1e4]], requires_grad=True)
    value = protocpc(student, teacher)
    torch.testing.assert_close(value, protocpc(student[:, :2], teacher[:, :2]))
    value.backward()
    assert student.grad[:, 2].tolist() == [0.0, 0.0]


def test_an_unknown_similarity_is_refused_by_name():
    z = torch.randn(4, 2)
    with pytest.raises(UsageError, match="one of cosine, euclidean, dot, not 'manhattan'"):
        infonce(z, z, similarity="manhattan")
