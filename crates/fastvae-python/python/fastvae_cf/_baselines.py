"""The methods that a model must beat, with the same calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ._data import UserItems, interactions
from ._fitted import Callback, Titles, fit_columns
from ._recommender import Recommender

if TYPE_CHECKING:
    from typing_extensions import Self


class _Baseline(Recommender):
    _kind: ClassVar[str] = "baseline"

    def fit(
        self,
        user_items: UserItems,
        show_progress: bool = True,
        callback: Callback | None = None,
        *,
        titles: Titles = None,
        user_col: str | None = None,
        item_col: str | None = None,
        weight_col: str | None = None,
        timestamp_col: str | None = None,
    ) -> Self:
        """Learn from interactions, and keep titles, in any form that `FastVAE.fit` takes.

        ``callback`` is told of each pass; what it answers is ignored, what it raises ends the fit. Ctrl-C ends it after
        the pass under way.
        """
        columns = fit_columns(user_col, item_col, weight_col, timestamp_col)
        total = int(getattr(self, "epochs", getattr(self, "iterations", 1)))
        told = None if callback is None else lambda epoch: callback(epoch) and False
        self._learn(interactions(user_items, columns), columns, titles, show_progress, told, total)
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class Popularity(_Baseline):
    """The most popular items for everyone.

    Parameters
    ----------
    num_threads
        Worker threads, 0 for one per core.
    """

    _kind: ClassVar[str] = "popularity"

    num_threads: int = 0


@dataclass(kw_only=True, eq=False, repr=False)
class ItemKNN(_Baseline):
    """Items like those of the history.

    Parameters
    ----------
    weighting
        How an interaction counts in its item's vector: ``"tf-idf"``, ``"cosine"`` or ``"bm25"``.
    neighbours
        Nearest items that each item keeps.
    k1, b
        Saturation of repeated interactions, and how much long vectors are discounted (``"bm25"``).
    num_threads
        Worker threads, 0 for one per core.
    """

    _kind: ClassVar[str] = "item-knn"

    weighting: str = "tf-idf"
    neighbours: int = 200
    k1: float = 1.2
    b: float = 0.75
    num_threads: int = 0


@dataclass(kw_only=True, eq=False, repr=False)
class EASE(_Baseline):
    """A linear model from items to items (Steck, 2019). Memory grows with the square of the catalogue.

    Parameters
    ----------
    regularization
        Weight of the squared coefficients.
    num_threads
        Worker threads, 0 for one per core.
    """

    _kind: ClassVar[str] = "ease"

    regularization: float = 400.0
    num_threads: int = 0


@dataclass(kw_only=True, eq=False, repr=False)
class ItemRidge(_Baseline):
    """A ridge regression of every item on its nearest items, in closed form: nearly what `EASE` learns, for catalogues of any
    size.

    Parameters
    ----------
    neighbours
        Nearest items that each item is explained by.
    penalty
        Pull of the weights towards zero, in interactions.
    power
        How little long histories count: a user with n items counts n to the minus `power`.
    popularity
        What ln(1 + count) of an item adds to its score, times this.
    num_threads
        Worker threads, 0 for one per core.
    """

    _kind: ClassVar[str] = "item-ridge"

    neighbours: int = 64
    penalty: float = 50.0
    power: float = 0.5
    popularity: float = 0.0
    num_threads: int = 0


@dataclass(kw_only=True, eq=False, repr=False)
class ALS(_Baseline):
    """Weighted matrix factorisation by alternating least squares (Hu et al., 2008).

    Parameters
    ----------
    factors
        Length of the vectors.
    alpha
        How much more an interaction of weight 1 counts than none; None chooses it from how sparse the data are.
    regularization, exponent
        Pull of the vectors to zero (None chooses it from how many interactions there are), and how it grows with what a vector
        explains, 0 to 1.
    iterations, steps
        Times that users and items are solved for, and steps of conjugate gradient each time.
    random_state
        Seed of the first item vectors; None draws one.
    num_threads
        Worker threads, 0 for one per core.
    """

    _kind: ClassVar[str] = "wrmf"

    factors: int = 128
    alpha: float | None = None
    regularization: float | None = None
    exponent: float = 1.0
    iterations: int = 15
    steps: int = 3
    random_state: int | None = 0
    num_threads: int = 0


@dataclass(kw_only=True, eq=False, repr=False)
class _Pairwise(_Baseline):
    """Item and user vectors learned from pairs."""

    _kind: ClassVar[str] = "pairwise"

    factors: int = 64
    epochs: int = 40
    optimizer: str = "adam"
    learning_rate: float = 0.005
    regularization: float = 0.005
    batch: int = 4096
    negatives: int | None = None
    random_state: int | None = 0
    num_threads: int = 0


class BPR(_Pairwise):
    """Pairwise ranking against uniform negatives (Rendle et al., 2009).

    As all pairwise methods, it recommends to training users only, not to a history alone.

    Parameters
    ----------
    factors
        Length of the vectors.
    epochs
        Passes over the interactions.
    optimizer
        How vectors follow their gradients: ``"adam"``, or ``"sgd"`` as the methods were published, which wants ten times the
        rate and small batches.
    learning_rate
        Step size at the start; it falls in a straight line to nothing.
    regularization
        Pull of the vectors of a pair to zero.
    batch
        Pairs per step.
    negatives
        Draws for each pair: negatives, or the candidates of which one is taken. None for as many as suit the method: 5, for
        `WARP` and `SA` 50, `AOBPR` 2, `DNS` 10, `PRIS` 20.
    random_state
        Seed of everything; None draws one.
    num_threads
        Worker threads, 0 for one per core.
    """

    _kind: ClassVar[str] = "bpr"


class WARP(_Pairwise):
    """Weighted approximate-rank pairwise loss (Weston et al., 2010).

    The settings are those of `BPR`.
    """

    _kind: ClassVar[str] = "warp"


@dataclass(kw_only=True, eq=False, repr=False)
class AOBPR(_Pairwise):
    """BPR against items oversampled by the factors' ranks (Rendle & Freudenthaler, 2014).

    The other settings are those of `BPR`.

    Parameters
    ----------
    rank_scale
        Scale of the geometric distribution over ranks.
    """

    _kind: ClassVar[str] = "aobpr"

    rank_scale: float = 500.0


class DNS(_Pairwise):
    """BPR against the best of a few uniform draws (Zhang et al., 2013).

    The settings are those of `BPR`.
    """

    _kind: ClassVar[str] = "dns"


@dataclass(kw_only=True, eq=False, repr=False)
class PRIS(_Pairwise):
    """Pairwise ranking with importance sampling from clusters (Lian et al., 2020).

    The other settings are those of `BPR`.

    Parameters
    ----------
    clusters
        Clusters of items.
    temperature
        What scores are divided by in the softmax of the weights.
    """

    _kind: ClassVar[str] = "pris"

    clusters: int = 16
    temperature: float = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class SA(_Pairwise):
    """Pairwise ranking with self-adversarial weights (Sun et al., 2019).

    The other settings are those of `BPR`.

    Parameters
    ----------
    temperature
        What scores are divided by in the softmax of the weights.
    """

    _kind: ClassVar[str] = "sa"

    temperature: float = 1.0
