"""From what people have (sparse matrices, columns, frames, files) to `Interactions`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ._fastvae import Ids, Interactions

UserItems: TypeAlias = Any
"""A SciPy sparse matrix (users x items), ``(users, items[, weights[, timestamps]])`` columns, a data frame (pandas,
polars, Arrow), the path of a file, or `Interactions`."""

# The names that are looked for in a frame, in this order.
_USER_NAMES = ("user", "user_id", "userid", "userId", "UserID", "uid")
_ITEM_NAMES = ("item", "item_id", "itemid", "itemId", "ItemID", "movieId", "iid")


@dataclass(frozen=True)
class Columns:
    """Which columns of a frame or file are read."""

    user: str | None = None
    item: str | None = None
    weight: str | None = None
    timestamp: str | None = None


def interactions(
    data: UserItems,
    columns: Columns | None = None,
    *,
    users: Ids | None = None,
    items: Ids | None = None,
) -> Interactions:
    """`data` as `Interactions`, under the identifiers `users` and `items` where they are given.

    Rows of columns, frames and files whose user or item is not among them are left out, with a warning.
    """
    columns = columns or Columns()
    if isinstance(data, Interactions):
        return _renamed(data, users, items)
    if isinstance(data, (str, os.PathLike)):
        return Interactions.read(
            os.fspath(data),
            user_col=columns.user,
            item_col=columns.item,
            weight_col=columns.weight,
            timestamp_col=columns.timestamp,
            user_ids=users,
            item_ids=items,
        )
    if hasattr(data, "tocsr"):
        return _from_csr(data.tocsr(), users, items)
    if isinstance(data, np.ndarray) and data.ndim == 2:
        from scipy.sparse import csr_matrix

        return _from_csr(csr_matrix(data), users, items)
    if isinstance(data, (tuple, list)) and 2 <= len(data) <= 4:
        return _from_columns(data, users, items)
    frame = _frame(data)
    if frame is None:
        raise TypeError(
            f"{type(data).__name__} holds no interactions; give a SciPy sparse matrix, (users, items) columns, "
            "a pandas, polars or Arrow table, the path of a file, or fastvae.Interactions"
        )
    names = _names(frame)
    user = _column_name(columns.user, _USER_NAMES, names, "user")
    item = _column_name(columns.item, _ITEM_NAMES, names, "item")
    chosen = [frame[user], frame[item], None, None]
    for place, name in ((2, columns.weight), (3, columns.timestamp)):
        if name is not None:
            chosen[place] = frame[_column_name(name, (), names, "")]
    return _from_columns(chosen, users, items)


def read(
    path: str | os.PathLike[str],
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
) -> Interactions:
    """Read interactions from a file.

    CSV and TSV (delimiter, header and columns are detected), MovieLens ``::``, RecBole, LightGCN, MatrixMarket,
    SciPy ``.npz``, MATLAB ``.mat``, Parquet and fastvae's own cache; ``.gz`` and ``.zst`` too.

    Parameters
    ----------
    path
        The file.
    format
        Its format, where it should not be detected.
    user_col, item_col, rating_col, weight_col, timestamp_col
        Names or numbers (from 0) of columns, where they should not be detected.
    min_rating
        Leave out rows with a lower rating.
    binarize
        Leave out the weights.
    k_core
        Keep only users and items with at least this many interactions among each other.

    Returns
    -------
    Interactions
        With the identifiers of the file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import fastvae_cf as fastvae
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "plays.csv"
    >>> _ = path.write_text("user,item\\nann,x\\nann,y\\nbob,y\\n")
    >>> fastvae.read(path)
    <Interactions: 2 users x 2 items, 3 interactions>
    """
    return Interactions.read(
        os.fspath(path),
        format=format,
        user_col=user_col,
        item_col=item_col,
        rating_col=rating_col,
        weight_col=weight_col,
        timestamp_col=timestamp_col,
        min_rating=min_rating,
        binarize=binarize,
        k_core=k_core,
    )


def split(
    user_items: UserItems,
    by: str = "ratio:0.8",
    *,
    random_state: int = 0,
    user_col: str | None = None,
    item_col: str | None = None,
    weight_col: str | None = None,
    timestamp_col: str | None = None,
) -> tuple[Any, Any]:
    """Divide interactions into a part to learn from and a part to test on.

    Parameters
    ----------
    user_items
        Interactions in any form that `FastVAE.fit` takes.
    by
        ``"ratio:0.8"``: 80 % of each user's items are trained on. ``"leave-one-out"``: each user's latest item is
        tested, a random one without timestamps. ``"temporal:0.8"``: what happened before this quantile of all
        timestamps is trained on.
    random_state
        Seed of the draw.
    user_col, item_col, weight_col, timestamp_col
        Columns of a frame or file.

    Returns
    -------
    train, test
        CSR matrices where a sparse matrix was given, otherwise `Interactions`. Both have all users and items.

    Examples
    --------
    >>> import fastvae_cf as fastvae
    >>> train, test = fastvae.split(fastvae.datasets.generate(users=100, items=50, interactions=1000))
    >>> train.shape == test.shape
    True
    """
    if by.startswith("users"):
        raise ValueError("a split by users has three parts; use fastvae.split_users")
    whole = interactions(user_items, Columns(user_col, item_col, weight_col, timestamp_col))
    train, test, _ = whole.split(by, random_state)
    if hasattr(user_items, "tocsr"):
        return train.to_csr(), test.to_csr()
    return train, test


def split_users(
    user_items: UserItems,
    share: float = 0.1,
    *,
    random_state: int = 0,
    user_col: str | None = None,
    item_col: str | None = None,
    weight_col: str | None = None,
    timestamp_col: str | None = None,
) -> tuple[Any, Any, Any]:
    """Hold a share of the users out altogether, to test on users that a model has never seen.

    Returns
    -------
    train, history, test
        What the other users did; 80 % of what each held-out user did, to show to the model; the rest. CSR matrices
        where a sparse matrix was given, otherwise `Interactions`.

    Examples
    --------
    >>> import fastvae_cf as fastvae
    >>> data = fastvae.datasets.generate(users=100, items=50, interactions=1000)
    >>> train, history, test = fastvae.split_users(data, 0.2)
    >>> train.shape, history.shape, test.shape
    ((80, 50), (20, 50), (20, 50))
    """
    whole = interactions(user_items, Columns(user_col, item_col, weight_col, timestamp_col))
    train, test, history = whole.split(f"users:{share}", random_state)
    assert history is not None, "a split by users has a history"
    if hasattr(user_items, "tocsr"):
        return train.to_csr(), history.to_csr(), test.to_csr()
    return train, history, test


def id_column(values: Any, what: str) -> npt.NDArray[np.int64] | list[str]:
    """Identifiers as the extension takes them: an array of int64 or a list of strings."""
    array = np.asarray(values)
    if array.ndim == 0:
        array = array.reshape(1)
    if array.ndim != 1:
        raise ValueError(f"the {what}s have {array.ndim} dimensions; give a column")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{what} {array.max()} does not fit 64 bits with a sign; give strings")
    if array.dtype.kind in "iu":
        return np.ascontiguousarray(array, dtype=np.int64)
    if array.dtype.kind in "US" or array.size == 0:
        return [] if array.size == 0 else [str(value) for value in array.astype(str).tolist()]
    if array.dtype.kind in "OT":
        names: list[Any] = array.tolist()
        if all(isinstance(name, (int, np.integer)) and not isinstance(name, bool) for name in names):
            return np.array(names, dtype=np.int64)
        return names
    raise ValueError(
        f"the {what}s are {array.dtype}; give integers or strings (a column of integers with missing values is "
        "float: drop those rows first)"
    )


def _from_csr(matrix: Any, users: Ids | None, items: Ids | None) -> Interactions:
    if matrix.ndim != 2:
        raise ValueError(f"the matrix has {matrix.ndim} dimensions; give users x items")
    values: npt.NDArray[Any] = np.asarray(matrix.data)
    weights: npt.NDArray[np.float32] | None
    if values.dtype.kind not in "fiub":
        raise ValueError(f"the matrix holds {values.dtype}; give real numbers")
    if values.dtype == np.float32:
        weights = np.ascontiguousarray(values)
    elif bool((values == 1).all()):
        weights = None
    else:
        weights = values.astype(np.float32)
    indptr, indices = (_indices(array) for array in (matrix.indptr, matrix.indices))
    return Interactions.from_csr(indptr, indices, weights, int(matrix.shape[1]), users, items)


def _indices(array: Any) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
    array = np.asarray(array)
    kind = np.int32 if array.dtype == np.int32 else np.int64
    return np.ascontiguousarray(array, dtype=kind)


def _from_columns(columns: Sequence[Any], users: Ids | None, items: Ids | None) -> Interactions:
    user, item, weight, timestamp = [*columns, None, None][:4]
    weights = None if weight is None else np.ascontiguousarray(np.asarray(weight), dtype=np.float32)
    times = None if timestamp is None else _seconds(np.asarray(timestamp))
    found, skipped = Interactions.from_columns(
        id_column(user, "user"), id_column(item, "item"), weights, times, users, items
    )
    if skipped:
        warnings.warn(f"{skipped} rows with an unknown user or item are left out", stacklevel=4)
    return found


def _seconds(times: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if times.dtype.kind == "M":
        times = times.astype("datetime64[s]")
    return np.ascontiguousarray(times.astype(np.int64))


def _renamed(data: Interactions, users: Ids | None, items: Ids | None) -> Interactions:
    if (users is None or data.user_ids == users) and (items is None or data.item_ids == items):
        return data
    indptr, indices, weights = data.csr_arrays()
    rows = np.repeat(np.arange(data.n_users), np.diff(indptr))
    named = [np.asarray(ids.names())[at] for ids, at in ((data.user_ids, rows), (data.item_ids, indices))]
    return _from_columns([*named, weights, data.timestamps], users or data.user_ids, items)


def _frame(data: Any) -> Any:
    """`data` where it is a frame whose columns can be taken by name."""
    if (hasattr(data, "columns") or hasattr(data, "column_names")) and hasattr(data, "__getitem__"):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        import pyarrow

        return pyarrow.table(data)
    return None


def _names(frame: Any) -> list[str]:
    # An Arrow table's `columns` are the arrays; its names have their own attribute.
    return [str(name) for name in (frame.column_names if hasattr(frame, "column_names") else frame.columns)]


def _column_name(given: str | None, usual: tuple[str, ...], names: list[str], what: str) -> str:
    if given is not None:
        if given not in names:
            raise ValueError(f"there is no column {given!r}; the table has {', '.join(names)}")
        return given
    for name in usual:
        if name in names:
            return name
    raise ValueError(f"no column of {', '.join(names)} looks like the {what}s; name it with {what}_col")
