"""The extension module; `tests/test_types.py` compares this file with it."""

from collections.abc import Callable
from typing import Any, TypedDict, final, type_check_only

import numpy as np
import numpy.typing as npt

__all__ = [
    "Ids",
    "Interactions",
    "Model",
    "Proposal",
    "Vectors",
    "__version__",
    "default_settings",
    "evaluate",
    "evaluate_users",
    "fit",
    "paired_difference",
]

__version__: str

_Ints = npt.NDArray[np.int64]
_Indices = npt.NDArray[np.int32] | npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float32]
_Lists = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]
_Names = npt.NDArray[np.int64] | list[str]
_Observer = Callable[[str], object]
_Reasons = list[list[tuple[int, float, float]]]

# What a list is asked for with.
@type_check_only
class Wanted(TypedDict):
    n: int
    exclude: _Ints
    only: _Ints | None
    keep_seen: bool
    popularity_penalty: float
    diversity: float
    temperature: float
    seed: int
    approximate: bool
    reasons: int

@final
class Ids:
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: Any
    @property
    def is_range(self) -> bool: ...
    @property
    def is_integers(self) -> bool: ...
    def names(self) -> _Names: ...
    def positions(self, ids: _Names) -> _Ints: ...

@final
class Interactions:
    @staticmethod
    def from_csr(
        indptr: _Indices,
        indices: _Indices,
        weights: _Floats | None,
        n_items: int,
        user_ids: Ids | None = None,
        item_ids: Ids | None = None,
    ) -> Interactions: ...
    @staticmethod
    def from_columns(
        users: _Names,
        items: _Names,
        weights: _Floats | None = None,
        timestamps: _Ints | None = None,
        user_ids: Ids | None = None,
        item_ids: Ids | None = None,
    ) -> tuple[Interactions, int]: ...
    @staticmethod
    def read(
        path: str,
        *,
        format: str | None = None,
        user_col: str | None = None,
        item_col: str | None = None,
        rating_col: str | None = None,
        weight_col: str | None = None,
        timestamp_col: str | None = None,
        min_rating: float | None = None,
        binarize: bool = False,
        k_core: int | None = None,
        user_ids: Ids | None = None,
        item_ids: Ids | None = None,
    ) -> Interactions: ...
    @staticmethod
    def generate(users: int, items: int, interactions: int, genres: int, seed: int) -> Interactions: ...
    @property
    def n_users(self) -> int: ...
    @property
    def n_items(self) -> int: ...
    @property
    def nnz(self) -> int: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def user_ids(self) -> Ids: ...
    @property
    def item_ids(self) -> Ids: ...
    @property
    def timestamps(self) -> _Ints | None: ...
    def csr_arrays(self) -> tuple[_Ints, npt.NDArray[np.int32], _Floats | None]: ...
    def to_csr(self) -> Any: ...
    def split(self, by: str, seed: int) -> tuple[Interactions, Interactions, Interactions | None]: ...
    def fold(self, n_folds: int, fold: int, seed: int) -> tuple[Interactions, Interactions]: ...
    def k_core(self, k: int) -> Interactions: ...

@final
class Model:
    @staticmethod
    def load(path: str) -> Model: ...
    def save(self, path: str, users: bool) -> None: ...
    def description(self) -> str: ...
    @property
    def n_items(self) -> int: ...
    @property
    def item_ids(self) -> Ids: ...
    @property
    def vector_user_ids(self) -> Ids | None: ...
    @property
    def users(self) -> Interactions | None: ...
    @property
    def item_counts(self) -> _Ints: ...
    def titles(self) -> list[str | None] | None: ...
    def item_factors(self) -> _Floats: ...
    def item_biases(self) -> _Floats | None: ...
    def user_factors(self, histories: Interactions, rows: _Ints, users: _Ints, threads: int) -> _Floats: ...
    def answer(
        self, histories: Interactions, rows: _Ints, users: _Ints, wanted: Wanted, threads: int
    ) -> tuple[npt.NDArray[np.int32], _Floats, list[str | None], list[bool], list[_Reasons]]: ...
    def similar_items(
        self, items: _Ints, n: int, exclude: _Ints, only: _Ints | None, threads: int
    ) -> _Lists: ...

@final
class Vectors:
    def __new__(cls, vectors: _Floats) -> Vectors: ...
    def __len__(self) -> int: ...
    def nearest(self, rows: _Ints, n: int, threads: int) -> _Lists: ...

@final
class Proposal:
    def __new__(
        cls, config: str, vectors: _Floats, counts: _Ints, bias: _Floats | None, seed: int, threads: int
    ) -> Proposal: ...
    def sample(self, queries: _Floats, n: int, seed: int, threads: int) -> _Lists: ...
    def log_q(self, queries: _Floats, items: _Ints | None, threads: int) -> _Floats: ...

def fit(
    data: Interactions,
    settings: str,
    titles: str | list[str] | None = None,
    validation: Interactions | None = None,
    refit: bool | None = None,
    threads: int = 0,
    observer: _Observer | None = None,
) -> Model: ...
def default_settings(model: str = "fastvae", preset: str = "default") -> str: ...
def evaluate(
    model: Model, histories: Interactions, test: Interactions, metrics: list[str], threads: int
) -> tuple[int, list[tuple[str, float, float | None]]]: ...
def evaluate_users(
    model: Model, histories: Interactions, test: Interactions, metric: str, threads: int
) -> tuple[_Ints, npt.NDArray[np.float64]]: ...
def paired_difference(
    first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]
) -> tuple[float, float, float]: ...
