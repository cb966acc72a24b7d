"""Recommendations for implicit feedback from large catalogues, at Rust's speed.

>>> import fastvae_cf as fastvae
>>> from fastvae_cf.datasets import generate
>>> train, test = fastvae.split(generate(users=400, items=300, interactions=8000))
>>> model = fastvae.FastVAE(hidden=64, latent=16, batch=64, learning_rate=0.01, codewords=8)
>>> model = model.fit(train, show_progress=False)
>>> ids, scores = model.recommend(7, train[7], N=5)
>>> ids.shape, ids.dtype, scores.dtype
((5,), dtype('int32'), dtype('float32'))
>>> result = fastvae.evaluate(model, train, test, metrics=["ndcg@50"])
>>> result["ndcg@50"] > 0.3
True
"""

from . import datasets, proposals
from ._answers import Answer, Estimate, Reason
from ._baselines import ALS, AOBPR, BPR, DNS, EASE, PRIS, SA, WARP, ItemKNN, ItemRidge, Popularity
from ._data import read, split, split_users
from ._evaluation import Comparison, compare, evaluate
from ._fastvae import Ids, Interactions, __version__
from ._fitted import NotFittedError
from ._model import FastVAE
from ._recommender import Recommender, load

__all__ = [
    "ALS",
    "AOBPR",
    "BPR",
    "DNS",
    "EASE",
    "PRIS",
    "SA",
    "WARP",
    "Answer",
    "Comparison",
    "Estimate",
    "FastVAE",
    "Ids",
    "Interactions",
    "ItemKNN",
    "ItemRidge",
    "NotFittedError",
    "Popularity",
    "Reason",
    "Recommender",
    "__version__",
    "compare",
    "datasets",
    "evaluate",
    "load",
    "proposals",
    "read",
    "split",
    "split_users",
]
