"""The distributions that negatives are drawn from, for research: draws and ln Q of every kind.

>>> import numpy as np
>>> from fastvae_cf.proposals import KINDS, Proposal
>>> random = np.random.default_rng(0)
>>> items = random.normal(size=(500, 16)).astype("float32")
>>> query = random.normal(size=16).astype("float32")
>>> proposal = Proposal("midx-uniform", items, codewords=8)
>>> drawn, log_q = proposal.sample(query, 1000)
>>> drawn.shape, bool(np.isclose(np.exp(proposal.log_q(query)).sum(), 1, atol=1e-4))
((1000,), True)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import _fastvae
from ._fitted import as_json
from ._recommender import Recommender

__all__ = ["KINDS", "Proposal"]

KINDS: tuple[str, ...] = (
    "uniform",
    "popularity",
    "softmax",
    "kernel",
    "dns",
    "midx-exact",
    "midx-uniform",
    "midx-popularity",
)
"""Every kind of proposal."""


class Proposal:
    """A distribution over items given a query, Q(item | query), over fixed item vectors.

    Parameters
    ----------
    kind
        One of `KINDS`.
    item_factors
        Item vectors, ``n_items x latent``.
    item_counts
        How many users touched each item, for kinds by popularity; all alike by default.
    item_bias
        Item biases, where the model has them.
    codewords, codebooks, quantizer
        The index of the ``midx`` kinds: see `fastvae_cf.FastVAE`.
    popularity
        The function of an item's count: ``"log"``, ``"count"`` or ``"power"``.
    random_state
        Seed of the codebooks.
    num_threads
        Worker threads, 0 for one per core.
    """

    def __init__(
        self,
        kind: str,
        item_factors: npt.ArrayLike,
        item_counts: npt.ArrayLike | None = None,
        *,
        item_bias: npt.ArrayLike | None = None,
        codewords: int = 32,
        codebooks: int = 2,
        quantizer: str = "product",
        popularity: str = "log",
        random_state: int = 0,
        num_threads: int = 0,
    ) -> None:
        vectors = np.ascontiguousarray(item_factors, dtype=np.float32)
        if vectors.ndim != 2:
            raise ValueError(f"item_factors have {vectors.ndim} dimensions; give n_items x latent")
        counts = np.ones(vectors.shape[0]) if item_counts is None else np.asarray(item_counts)
        config: dict[str, Any] = {
            "proposal": kind,
            "latent": vectors.shape[1],
            "codewords": codewords,
            "codebooks": codebooks,
            "quantizer": quantizer,
            "popularity": popularity,
        }
        self.kind = kind
        self.num_threads = num_threads
        self._proposal = _fastvae.Proposal(
            as_json(config),
            vectors,
            np.ascontiguousarray(counts, dtype=np.int64),
            None if item_bias is None else np.ascontiguousarray(item_bias, dtype=np.float32),
            random_state,
            num_threads,
        )

    @classmethod
    def of(cls, model: Recommender, kind: str, **settings: Any) -> Proposal:
        """A proposal over the items of a fitted model."""
        bias = model._trained.item_biases()
        return cls(kind, model.item_factors, model.item_counts_, item_bias=bias, **settings)

    def sample(
        self, query: npt.ArrayLike, n: int, random_state: int = 0
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Draw ``n`` items with replacement, for one query or for each row of several; and their ln Q."""
        queries = np.ascontiguousarray(query, dtype=np.float32)
        items, log_q = self._proposal.sample(np.atleast_2d(queries), n, random_state, self.num_threads)
        return (items[0], log_q[0]) if queries.ndim == 1 else (items, log_q)

    def log_q(self, query: npt.ArrayLike, items: npt.ArrayLike | None = None) -> npt.NDArray[np.float32]:
        """ln Q of ``items`` (the whole catalogue by default), for one query or for each row of several."""
        queries = np.ascontiguousarray(query, dtype=np.float32)
        of = None if items is None else np.ascontiguousarray(items, dtype=np.int64)
        log_q = self._proposal.log_q(np.atleast_2d(queries), of, self.num_threads)
        return log_q[0] if queries.ndim == 1 else log_q
