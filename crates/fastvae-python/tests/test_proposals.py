"""Proposals: probabilities that sum to one and describe the draws."""

from __future__ import annotations

import fastvae_cf as fastvae
import numpy as np
import pytest
from fastvae_cf.proposals import KINDS, Proposal

N_ITEMS = 200


@pytest.fixture(scope="module")
def world() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    vectors = random.normal(size=(N_ITEMS, 12)).astype(np.float32) / 2
    return vectors, random.normal(size=(3, 12)).astype(np.float32), random.integers(0, 90, size=N_ITEMS)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_follow_log_q(kind: str, world: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    vectors, queries, counts = world
    proposal = Proposal(kind, vectors, counts, codewords=6)
    log_q = proposal.log_q(queries)
    assert log_q.shape == (3, N_ITEMS) and np.allclose(np.exp(log_q.astype(float)).sum(axis=1), 1, atol=1e-3)
    items, of_draws = proposal.sample(queries, 40_000)
    assert items.dtype == np.int32 and items.shape == of_draws.shape == (3, 40_000)
    for row in range(3):
        assert np.allclose(of_draws[row], log_q[row][items[row]], atol=1e-4)
        observed = np.bincount(items[row], minlength=N_ITEMS)
        expected = np.exp(log_q[row].astype(float)) * 40_000
        # Chi-squared with 199 degrees of freedom: mean 199, deviation 20; six deviations are never seen.
        assert ((observed - expected) ** 2 / expected.clip(1e-9)).sum() < 199 + 6 * 20
    assert np.allclose(proposal.log_q(queries[1], [4, 2]), log_q[1][[4, 2]])
    assert np.array_equal(proposal.sample(queries, 50)[0], proposal.sample(queries, 50)[0])
    assert not np.array_equal(proposal.sample(queries, 50)[0], proposal.sample(queries, 50, random_state=1)[0])


def test_the_softmax_is_the_softmax(world: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    vectors, queries, counts = world
    bias = np.linspace(-1, 1, N_ITEMS, dtype=np.float32)
    logits = queries @ vectors.T + bias
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert np.allclose(Proposal("softmax", vectors, item_bias=bias).log_q(queries), expected, atol=1e-4)


def test_kinds_are_the_library_s_and_models_have_proposals(model: fastvae.FastVAE) -> None:
    with pytest.raises(ValueError, match="unknown variant") as error:
        Proposal("guess", np.ones((9, 4)))
    assert all(f"`{kind}`" in str(error.value) for kind in KINDS)
    assert str(error.value).count("`") == 2 * len(KINDS) + 4, "no kind is left out"
    assert Proposal.of(model, "midx-popularity", codewords=8).log_q(model.user_factors[:2]).shape == (2, 300)
    with pytest.raises(ValueError, match="length 5 for item vectors of length 16"):
        Proposal.of(model, "uniform").log_q(np.ones(5))
