"""`Fitted`: settings, and what was learned with them; in memory, in files and in pickles."""

from __future__ import annotations

import inspect
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _fastvae
from ._answers import Estimate, IdArray, Scores
from ._data import Columns, id_column
from ._fastvae import Ids, Interactions
from ._progress import Progress

if TYPE_CHECKING:
    from typing_extensions import Self

Callback: TypeAlias = Callable[[dict[str, Any]], object]

Titles: TypeAlias = Any
"""What items are called: a dict or series by item, one title for each item in order, or the path of a file that has columns
of items and titles."""


class NotFittedError(ValueError, AttributeError):
    """A model was asked for something before `fit`; scikit-learn's error of this name has the same bases."""


class Fitted:
    """Settings, and what was learned with them.

    A method is a dataclass of its settings. Models are compared by identity, and shown with what differs from the defaults.
    """

    _kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Any]]] = {}

    random_state: int | None
    num_threads: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Subclasses of people do not take over the loading of files.
        Fitted._kinds.setdefault(getattr(cls, "_kind", ""), cls)

    # ---- settings, as in scikit-learn

    @classmethod
    def _parameters(cls) -> dict[str, Any]:
        """The settings with their defaults; those of a base class too, where they are handed on to it."""
        found: dict[str, Any] = {}
        for of in (of for of in cls.__mro__ if "__init__" in vars(of)):
            own = list(inspect.signature(vars(of)["__init__"]).parameters.values())[1:]
            found = {each.name: each.default for each in own if each.kind is not each.VAR_KEYWORD} | found
            if not any(each.kind is each.VAR_KEYWORD for each in own):
                break
        return found

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, by name."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **params: Any) -> Self:
        """Change settings; they count from the next `fit` on."""
        names = self._parameters()
        for name, value in params.items():
            if name not in names:
                raise ValueError(f"{type(self).__name__} has no setting {name!r}; it has {', '.join(names)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults, given = self._parameters(), self.get_params()
        changed = [f"{name}={value!r}" for name, value in given.items() if not _same(value, defaults[name])]
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

    _trained_: _fastvae.Model | None = None
    _passes_: Sequence[Mapping[str, Any]] = ()
    _names_: npt.NDArray[Any] | None = None
    _titles_: npt.NDArray[Any] | None = None
    _near_users_: _fastvae.Vectors | None = None
    _columns_: Columns = Columns()

    @property
    def _trained(self) -> _fastvae.Model:
        if self._trained_ is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit, or load a file")
        return self._trained_

    def _take(self, trained: _fastvae.Model, columns: Columns | None = None) -> None:
        self._trained_ = trained
        # Tables that are asked about later have the columns of the one that was learned from.
        self._columns_ = columns or Columns()
        self._names_ = self._titles_ = self._near_users_ = None

    def _learn(
        self,
        data: Interactions,
        columns: Columns,
        titles: Titles,
        show_progress: bool,
        callback: Callback | None,
        total: int,
        validation: Interactions | None = None,
        refit: bool | None = None,
    ) -> None:
        passes: list[dict[str, Any]] = []
        with Progress(type(self).__name__, total, show_progress) as progress:

            def observer(message: str) -> bool:
                event = json.loads(message)
                again = event.get("refit", False)
                if "step" in event:
                    done = event["epoch"] - 1 + event["step"] / event["n_steps"]
                    progress.at(done, again, loss=event["loss"])
                    return False
                progress.at(event["epoch"], again, loss=event["loss"], validation=event.get("validation"))
                if event["epoch"] == 0:
                    return False
                passes.append(_flat(event))
                return callback is not None and bool(callback(passes[-1]))

            settings = as_json({"model": self._kind, **self._settings()})
            named = None if titles is None else _titles(titles, data.item_ids)
            trained = _fastvae.fit(data, settings, named, validation, refit, self.num_threads, observer)
        self._take(trained, columns)
        self._passes_ = passes

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
            self._names_ = array(self._trained.item_ids)
        return self._names_

    @property
    def user_ids_(self) -> IdArray:
        """The identifier of each training user, in the order of their positions."""
        return array(self._users().user_ids)

    @property
    def item_counts_(self) -> npt.NDArray[np.int64]:
        """How many users touched each item in training."""
        return self._trained.item_counts

    @property
    def titles_(self) -> npt.NDArray[Any] | None:
        """The title of each item, in the order of their positions, None for items without; None without any titles."""
        if self._titles_ is None:
            titles = self._trained.titles()
            self._titles_ = None if titles is None else np.array(titles, dtype=object)
        return self._titles_

    @property
    def description_(self) -> dict[str, Any]:
        """Where the model comes from: ``settings``, ``statistics`` of the data, what of them it has ``learned`` from,
        how it did on the ``validation`` part, ``epochs``, ``search``, and so on, as in the file."""
        return dict(json.loads(self._trained.description()))

    @property
    def validation_(self) -> dict[str, Estimate]:
        """How well the model did on the part that its epochs were chosen by; empty where there was none."""
        validation = self.description_["validation"] or {"metrics": {}}
        return {name: Estimate(**value) for name, value in validation["metrics"].items()}

    @property
    def history_(self) -> dict[str, list[Any]]:
        """What every epoch or pass saw, column by column: ``pandas.DataFrame(model.history_)``.

        ``refit`` tells the epochs of a training on everything, once they are chosen. Files of baselines hold no history.
        """
        passes = [_flat(epoch) for epoch in self.description_["epochs"]] or self._passes_
        names = dict.fromkeys(name for each in passes for name in each)
        return {name: [each.get(name) for each in passes] for name in names}

    @property
    def item_factors(self) -> Scores:
        """Item vectors, ``n_items x latent``; AttributeError for methods without."""
        return self._trained.item_factors()

    @property
    def user_factors(self) -> Scores:
        """The training users' vectors, ``n_users x latent``, computed on demand.

        ``user_factors @ item_factors.T`` are the scores, where the model has no item biases and no linear part.
        """
        users = self._users()
        rows = np.arange(users.n_users)
        return self._trained.user_factors(users, rows, self._known_users(users.user_ids, rows), self.num_threads)

    # ---- files

    def save(self, path: str | os.PathLike[str], *, users: bool = False) -> None:
        """Write the model to a file that `fastvae_cf.load` and the command line read.

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
        state: dict[str, Any] = {"params": self.get_params(), "file": None, "passes": self._passes_}
        if self._trained_ is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "model.fastvae")
                self.save(path, users=self._trained_.users is not None)
                state["file"] = path.read_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state["params"].items():
            setattr(self, name, value)
        self._passes_ = state["passes"]
        if state["file"] is not None:
            # The file is mapped, and stays so after its name is gone.
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                path = Path(folder, "model.fastvae")
                path.write_bytes(state["file"])
                self._take(_fastvae.Model.load(os.fspath(path)))

    @classmethod
    def _from_file(cls, trained: _fastvae.Model, settings: Mapping[str, Any]) -> Self:
        defaults, own = cls._parameters(), json.loads(_fastvae.default_settings(cls._kind))
        renamed = {"seed": "random_state", "threads": "num_threads"}
        # None stands for the library's own, which a file spells out.
        given = {
            renamed.get(name, name): value
            for name, value in settings.items()
            if defaults.get(name, "") is not None or value != own.get(name)
        }
        model = cls(**{name: value for name, value in given.items() if name in defaults})
        model._take(trained)
        return model

    def _users(self) -> Interactions:
        users = self._trained.users
        if users is None:
            raise ValueError(
                "the model was saved without what the users did; give user_items or a history, or save with users=True"
            )
        return users

    def _known_users(self, ids: Ids, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Positions among the users that the method has vectors for, -1 for others."""
        known = self._trained.vector_user_ids
        if known is None:
            return np.full(rows.size, -1)
        return known.positions(id_column(array(ids)[rows], "user"))


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


def array(ids: Ids) -> IdArray:
    names = ids.names()
    if isinstance(names, np.ndarray):
        return names
    # Strings of NumPy all take the room of the longest.
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def _titles(titles: Titles, items: Ids) -> str | list[str]:
    """The path of a file of titles, or one for each item, empty for those without."""
    if isinstance(titles, (str, os.PathLike)):
        return os.fspath(titles)
    if not hasattr(titles, "keys"):
        each = [title if isinstance(title, str) else "" for title in titles]
        if len(each) != len(items):
            raise ValueError(f"{len(each)} titles for {len(items)} items; give one for each, or a dict by item")
        return each
    each = [""] * len(items)
    positions = items.positions(id_column(list(titles.keys()), "item"))
    for position, (_, title) in zip(positions, titles.items(), strict=True):
        if position >= 0 and isinstance(title, str):
            each[position] = title
    return each


def _flat(epoch: dict[str, Any]) -> dict[str, Any]:
    """A record of the library without its nested part."""
    flat = {name: value for name, value in epoch.items() if name not in ("proposal", "epochs")}
    if "epochs" not in epoch:
        flat.setdefault("refit", False)
    for name, value in (epoch.get("proposal") or {}).items():
        flat[f"proposal_{name}"] = value
    return flat


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
