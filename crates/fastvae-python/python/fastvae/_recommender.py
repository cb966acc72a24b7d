"""`Recommender`: what every model and every baseline can be asked for, with implicit's calls."""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _fastvae
from ._data import Columns, UserItems, id_column, interactions
from ._fastvae import Ids, Interactions

if TYPE_CHECKING:
    from typing_extensions import Self

IdArray: TypeAlias = npt.NDArray[Any]
"""Items or users: int32 positions, or the identifiers (int64, or strings) of the data that the model was trained on."""

Scores: TypeAlias = npt.NDArray[np.float32]

Callback: TypeAlias = Callable[[dict[str, Any]], object]


class NotFittedError(ValueError, AttributeError):
    """A model was asked for something before `fit`; scikit-learn's error of this name has the same bases."""


class Reason(NamedTuple):
    """An item of a history and its part in a recommendation."""

    item: int | str
    """The item of the history, as the model names it."""
    contribution: float
    """What the recommended item's score loses when this item is left out."""
    share: float
    """Its share of all that speaks for the recommendation, from 0 to 1."""


class Recommender:
    """What every model and baseline can be asked for. Use a subclass: `FastVAE`, `ALS`, `EASE` and so on.

    Users and items are positions (rows and columns) where a model was fitted on a matrix. Fitted on columns, a frame or
    a file whose identifiers are anything else than 0, 1, 2 and so on, it takes and returns these identifiers.
    """

    _kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Recommender]]] = {}

    random_state: int | None
    num_threads: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Subclasses of people do not take over the loading of files.
        Recommender._kinds.setdefault(cls._kind, cls)

    # ---- settings, as in scikit-learn

    @classmethod
    def _parameter_names(cls) -> list[str]:
        names = list(inspect.signature(cls.__init__).parameters)
        return names[1:]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Change settings; they count from the next `fit` on."""
        names = self._parameter_names()
        for name, value in params.items():
            if name not in names:
                raise ValueError(f"{type(self).__name__} has no setting {name!r}; it has {', '.join(names)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        signature = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if not _same(value, signature[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _settings(self) -> dict[str, Any]:
        """The settings under the library's keys."""
        settings = self.get_params()
        settings.pop("num_threads", None)
        if "random_state" in settings:
            seed = settings.pop("random_state")
            settings["seed"] = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        return {name: value for name, value in settings.items() if value is not None}

    # ---- what was learned

    _trained_: _fastvae.Recommender | None = None
    _names_: npt.NDArray[Any] | None = None
    _near_users_: _fastvae.Vectors | None = None
    _columns_: Columns = Columns()

    @property
    def _trained(self) -> _fastvae.Recommender:
        if self._trained_ is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit, or load a file")
        return self._trained_

    def _take(self, trained: _fastvae.Recommender, columns: Columns | None = None) -> None:
        self._trained_ = trained
        # Tables that are asked about later have the columns of the one that was learned from.
        self._columns_ = columns or Columns()
        self._names_ = None
        self._near_users_ = None

    def __sklearn_is_fitted__(self) -> bool:
        return self._trained_ is not None

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        return self._trained.n_items

    @property
    def item_ids_(self) -> IdArray:
        """The identifier of each item, in the order of their positions."""
        if self._names_ is None:
            self._names_ = _array(self._trained.item_ids)
        return self._names_

    @property
    def user_ids_(self) -> IdArray:
        """The identifier of each training user, in the order of their positions."""
        return _array(self._users().user_ids)

    @property
    def item_counts_(self) -> npt.NDArray[np.int64]:
        """How many users touched each item in training."""
        return self._trained.item_counts

    @property
    def item_factors(self) -> Scores:
        """Item vectors, ``n_items x latent``; AttributeError for methods without."""
        return self._trained.item_factors()

    @property
    def user_factors(self) -> Scores:
        """The training users' vectors, ``n_users x latent``, computed on demand.

        ``user_factors @ item_factors.T`` are the scores, where the model has no item biases.
        """
        users = self._users()
        rows = np.arange(users.n_users)
        return self._trained.user_factors(users, rows, self._known_users(users.user_ids, rows), self.num_threads)

    # ---- questions

    def recommend(
        self,
        userid: Any = None,
        user_items: UserItems = None,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        items: Any = None,
        *,
        history: Any = None,
    ) -> tuple[IdArray, Scores]:
        """Recommend items to one user or to many.

        Parameters
        ----------
        userid
            A user, or an array of users.
        user_items
            What these users did. A sparse matrix has one row for each user of ``userid``, in the same order; anything
            else that `fit` takes is looked up by the user's identifier. Where absent, what the users did in training.
        N
            How many items.
        filter_already_liked_items
            Leave out what the user has already touched.
        filter_items
            Items that are not recommended to anybody.
        items
            The only items that may be recommended.
        history
            Instead of users: the items that somebody touched, or a list of such lists. Unknown items are left out,
            with a warning.

        Returns
        -------
        ids, scores
            One-dimensional for one user, at most ``N`` long; two-dimensional for an array of users, where a row is
            filled up with -1 (None for strings) and the smallest float32 if fewer than ``N`` items are allowed.

        Examples
        --------
        >>> import fastvae
        >>> plays = fastvae.datasets.generate(users=200, items=100, interactions=3000)
        >>> model = fastvae.EASE().fit(plays, show_progress=False)
        >>> ids, scores = model.recommend([3, 4], plays[[3, 4]], N=5)
        >>> ids.shape
        (2, 5)
        >>> ids, scores = model.recommend(history=[1, 2, 3], N=4)
        >>> len(ids), set(ids) & {1, 2, 3}
        (4, set())
        """
        histories, rows, users, scalar = self._viewers(userid, user_items, history)
        ids, scores = self._trained.recommend(
            histories,
            rows,
            users,
            _count(N),
            self._items(filter_items),
            None if items is None else self._items(items),
            not filter_already_liked_items,
            self.num_threads,
        )
        if scalar:
            kept = ids[0] >= 0
            return self._named(ids[0][kept]), scores[0][kept]
        return self._named(ids), scores

    def similar_items(
        self, itemid: Any, N: int = 10, filter_items: Any = None, items: Any = None
    ) -> tuple[IdArray, Scores]:
        """Items like an item, or like each of an array of items; nearest first.

        As in implicit the item itself comes first. Scores are cosines of item vectors where the method has vectors.

        Parameters
        ----------
        itemid
            An item, or an array of items.
        N
            How many items.
        filter_items
            Items that are left out.
        items
            The only items that may appear.

        Returns
        -------
        ids, scores
            One-dimensional for one item, two-dimensional for an array.

        Examples
        --------
        >>> import fastvae
        >>> plays = fastvae.datasets.generate(users=200, items=100, interactions=3000)
        >>> ids, scores = fastvae.ItemKNN().fit(plays, show_progress=False).similar_items(7, N=3)
        >>> int(ids[0])
        7
        """
        asked = self._items(itemid)
        ids, scores = self._trained.similar_items(
            asked,
            _count(N),
            self._items(filter_items),
            None if items is None else self._items(items),
            self.num_threads,
        )
        if np.ndim(itemid) == 0:
            kept = ids[0] >= 0
            return self._named(ids[0][kept]), scores[0][kept]
        return self._named(ids), scores

    def similar_users(self, userid: Any, N: int = 10) -> tuple[IdArray, Scores]:
        """Training users like a training user, or like each of an array of them; the user itself is among them.

        Scores are cosines of `user_factors`, which are computed at the first call and kept.

        Examples
        --------
        >>> import fastvae
        >>> plays = fastvae.datasets.generate(users=200, items=100, interactions=3000)
        >>> model = fastvae.ALS(factors=8).fit(plays, show_progress=False)
        >>> ids, scores = model.similar_users(7, N=3)
        >>> int(ids[0]), round(float(scores[0]), 3)
        (7, 1.0)
        """
        users = self._users()
        if self._near_users_ is None:
            self._near_users_ = _fastvae.Vectors(self.user_factors)
        rows = _positions(users.user_ids, userid, "user")
        ids, scores = self._near_users_.nearest(rows, _count(N), self.num_threads)
        named = ids if users.user_ids.is_range else _array(users.user_ids)[ids]
        return (named[0], scores[0]) if np.ndim(userid) == 0 else (named, scores)

    # ---- files

    def save(self, path: str | os.PathLike[str], *, users: bool = False) -> None:
        """Write the model to a file that `fastvae.load` and the command line read.

        The file appears whole or not at all, and holds data only: opening one runs no code.

        Parameters
        ----------
        path
            Where to.
        users
            Also store what the training users did, so that the file can recommend to them by name.
        """
        self._trained.save(os.fspath(path), users)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"params": self.get_params(), "file": None, "extra": self._extra_state()}
        if self._trained_ is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "model.fastvae")
                self.save(path, users=self._trained_.users is not None)
                state["file"] = path.read_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state["params"].items():
            setattr(self, name, value)
        for name, value in state["extra"].items():
            setattr(self, name, value)
        if state["file"] is not None:
            # The file is mapped, and stays so after its name is gone.
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                path = Path(folder, "model.fastvae")
                path.write_bytes(state["file"])
                self._take(_fastvae.Recommender.load(os.fspath(path)))

    def _extra_state(self) -> dict[str, Any]:
        """What a pickle keeps beside the settings and the file."""
        return {}

    @classmethod
    def _from_file(cls, trained: _fastvae.Recommender, settings: Mapping[str, Any]) -> Self:
        names = cls._parameter_names()
        renamed = {"seed": "random_state", "threads": "num_threads"}
        params = {renamed.get(name, name): value for name, value in settings.items()}
        model = cls(**{name: value for name, value in params.items() if name in names})
        model._take(trained)
        return model

    # ---- from and to identifiers

    def _users(self) -> Interactions:
        users = self._trained.users
        if users is None:
            raise ValueError(
                "the model was saved without what the users did; give user_items or a history, or save with users=True"
            )
        return users

    def _items(self, ids: Any) -> npt.NDArray[np.int64]:
        if ids is None:
            return np.empty(0, dtype=np.int64)
        return _positions(self._trained.item_ids, ids, "item")

    def _named(self, positions: npt.NDArray[np.int32]) -> IdArray:
        ids = self._trained.item_ids
        if ids.is_range:
            return positions
        named = self.item_ids_[positions]
        missing = positions < 0
        if missing.any():
            named[missing] = -1 if ids.is_integers else None
        return named

    def _known_users(self, ids: Ids, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Positions among the users that the method has vectors for, -1 for others."""
        known = self._trained.vector_user_ids
        if known is None:
            return np.full(rows.size, -1)
        return known.positions(id_column(_array(ids)[rows], "user"))

    def _viewers(
        self, userid: Any, user_items: UserItems, history: Any
    ) -> tuple[Interactions, npt.NDArray[np.int64], npt.NDArray[np.int64], bool]:
        """Histories, the rows that are asked about, who they are, and whether it is a single one."""
        if (userid is None) == (history is None):
            raise ValueError("give either userid or history")
        if history is not None:
            if user_items is not None:
                raise ValueError("a history stands for user_items; give one of them")
            histories, scalar = self._histories(history)
            rows = np.arange(histories.n_users)
            return histories, rows, np.full(rows.size, -1), scalar
        scalar = np.ndim(userid) == 0
        if user_items is None or not hasattr(user_items, "tocsr"):
            if user_items is None:
                histories = self._users()
            else:
                histories = interactions(user_items, self._columns_, items=self._trained.item_ids)
            rows = _positions(histories.user_ids, userid, "user")
            return histories, rows, self._known_users(histories.user_ids, rows), scalar
        asked = id_column([userid] if scalar else userid, "user")
        if user_items.shape[0] != len(asked):
            raise ValueError(
                f"user_items has {user_items.shape[0]} rows for {len(asked)} users; it must contain 1 row for every "
                "user in userid, as in user_items[userid]"
            )
        histories = interactions(user_items, items=self._trained.item_ids)
        known = self._trained.vector_user_ids
        users = np.full(len(asked), -1) if known is None else known.positions(asked)
        return histories, np.arange(len(asked)), users, scalar

    def _histories(self, history: Any) -> tuple[Interactions, bool]:
        lists = list(history)
        scalar = not lists or np.ndim(lists[0]) == 0
        lists = [lists] if scalar else [list(each) for each in lists]
        ids = self._trained.item_ids
        found, ends, unknown = [], [0], []
        for each in lists:
            positions = ids.positions(id_column(each, "item"))
            unknown += [item for item, position in zip(each, positions, strict=True) if position < 0]
            found.append(np.unique(positions[positions >= 0]))
            ends.append(ends[-1] + found[-1].size)
        if unknown:
            shown = ", ".join(str(item) for item in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            warnings.warn(f"{len(unknown)} items of the history are not known: {shown}", stacklevel=4)
        indices = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
        return Interactions.from_csr(np.array(ends), indices, None, len(ids), None, ids), scalar


def load(path: str | os.PathLike[str]) -> Recommender:
    """Open a model or baseline that `Recommender.save` or the command line wrote.

    Examples
    --------
    >>> import pathlib, tempfile, fastvae
    >>> plays = fastvae.datasets.generate(users=200, items=100, interactions=3000)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "plays.fastvae"
    >>> fastvae.EASE(regularization=50.0).fit(plays, show_progress=False).save(path)
    >>> fastvae.load(path)
    EASE(regularization=50.0)
    """
    trained = _fastvae.Recommender.load(os.fspath(path))
    description = json.loads(trained.description())
    return Recommender._kinds[description["kind"]]._from_file(trained, description["settings"])


def fit_columns(
    user_col: str | None, item_col: str | None, weight_col: str | None, timestamp_col: str | None
) -> Columns:
    """The columns that `fit` was told."""
    return Columns(user_col, item_col, weight_col, timestamp_col)


def as_json(settings: Mapping[str, Any]) -> str:
    """Settings with whatever numbers NumPy made of them."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        raise ValueError(f"{value!r} is no setting; give numbers, strings or dicts of them")

    return json.dumps(settings, default=plain)


def _array(ids: Ids) -> IdArray:
    names = ids.names()
    if isinstance(names, np.ndarray):
        return names
    # Strings of NumPy all take the room of the longest.
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def _positions(ids: Ids, asked: Any, what: str) -> npt.NDArray[np.int64]:
    column = id_column([asked] if np.ndim(asked) == 0 else asked, what)
    if ids.is_range and isinstance(column, np.ndarray):
        # Out of range is for whoever takes positions to tell: IndexError.
        return column
    positions = ids.positions(column)
    if (positions < 0).any():
        unknown = list(column)[int(np.argmax(positions < 0))]
        unknown = unknown.item() if isinstance(unknown, np.generic) else unknown
        raise KeyError(f"unknown {what} {unknown!r}; give one of the training data, spelt as it is there")
    return positions


def _count(n: Any) -> int:
    if int(n) < 0:
        raise ValueError(f"N is {n}; give how many items are wanted")
    return int(n)


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
