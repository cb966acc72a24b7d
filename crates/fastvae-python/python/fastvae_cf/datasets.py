"""Data to try things on."""

from __future__ import annotations

from typing import Any

from ._fastvae import Interactions

__all__ = ["generate"]


def generate(
    users: int = 1000, items: int = 500, interactions: int = 20_000, *, genres: int = 24, random_state: int = 1
) -> Any:
    """Interactions with tastes that a model can find: every user likes a few genres.

    The same as ``fastvae generate`` on the command line.

    Returns
    -------
    scipy.sparse.csr_matrix
        ``users x items``, all values 1; ``interactions`` of them within a few percent.

    Examples
    --------
    >>> from fastvae_cf.datasets import generate
    >>> generate(users=100, items=50, interactions=1000).shape
    (100, 50)
    """
    return Interactions.generate(users, items, interactions, genres, random_state).to_csr()
