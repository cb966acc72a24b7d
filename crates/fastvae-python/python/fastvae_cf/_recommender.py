"""`Recommender`: what every model and every baseline can be asked for, with implicit's calls."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _fastvae
from ._answers import Answer, IdArray, Reason, Scores
from ._data import UserItems, id_column, interactions
from ._fastvae import Ids, Interactions
from ._fitted import Fitted, array


class Recommender(Fitted):
    """What every model and baseline can be asked for. Use a subclass: `FastVAE`, `ALS`, `EASE` and so on.

    Users and items are positions (rows and columns) where a model was fitted on a matrix. Fitted on columns, a frame or
    a file whose identifiers are anything else than 0, 1, 2 and so on, it takes and returns these identifiers.
    """

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
        popularity_penalty: float = 0.0,
        diversity: float = 0.0,
        temperature: float = 0.0,
        seed: int = 0,
        approximate: bool = False,
    ) -> tuple[IdArray, Scores]:
        """Recommend items to one user or to many.

        Parameters
        ----------
        userid
            A user, or an array of users.
        user_items
            What these users did. A sparse matrix has one row for each user of ``userid``, in the same order; anything
            else that `fit` takes is looked up by the user's identifier. Where absent, what the users did in training.
            Values are weights.
        N
            How many items.
        filter_already_liked_items
            Leave out what the user has already touched.
        filter_items
            Items that are not recommended to anybody.
        items
            The only items that may be recommended.
        history
            Instead of users: the items that somebody touched, or a dict of them with weights; or a list of such lists or
            dicts. Unknown items are left out, with a warning.
        popularity_penalty
            Subtracted from each score for each unit of ln(1 + count of the item), 0 to 2.
        diversity
            From 0, the best scores, to 1, items as unlike each other as possible.
        temperature, seed
            Above 0 the list is drawn, without replacement, from the softmax of score / temperature; and the seed of that
            draw.
        approximate
            Whether the list may come from the index, faster and nearly the same, instead of from every item.

        Returns
        -------
        ids, scores
            One-dimensional for one user, at most ``N`` long; two-dimensional for an array of users, where a row is
            filled up with -1 (None for strings) and the smallest float32 if fewer than ``N`` items are allowed. An empty
            history gets what stands in for a taste; `ask` tells of it.

        Examples
        --------
        >>> import fastvae_cf as fastvae
        >>> plays = fastvae.datasets.generate(users=200, items=100, interactions=3000)
        >>> model = fastvae.EASE().fit(plays, show_progress=False)
        >>> ids, scores = model.recommend([3, 4], plays[[3, 4]], N=5)
        >>> ids.shape
        (2, 5)
        >>> ids, scores = model.recommend(history=[1, 2, 3], N=4)
        >>> len(ids), set(ids) & {1, 2, 3}
        (4, set())
        """
        answer = self.ask(
            userid,
            user_items,
            N,
            filter_already_liked_items,
            filter_items,
            items,
            history=history,
            popularity_penalty=popularity_penalty,
            diversity=diversity,
            temperature=temperature,
            seed=seed,
            approximate=approximate,
        )
        return answer.items, answer.scores

    def ask(
        self,
        userid: Any = None,
        user_items: UserItems = None,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        items: Any = None,
        *,
        history: Any = None,
        popularity_penalty: float = 0.0,
        diversity: float = 0.0,
        temperature: float = 0.0,
        seed: int = 0,
        approximate: bool = False,
        reasons: int = 0,
    ) -> Answer:
        """As `recommend`, with titles, up to ``reasons`` reasons for each item, and how the list came about.

        Reasons are exact: what an item's score loses when an item of the history is left out.

        Examples
        --------
        >>> import fastvae_cf as fastvae
        >>> plays = fastvae.datasets.generate(users=200, items=100, interactions=3000)
        >>> model = fastvae.EASE().fit(plays, titles={3: "Solaris", 4: "Stalker"}, show_progress=False)
        >>> answer = model.ask(history={1: 2.0, 2: 1.0}, items=[3, 4], reasons=1)
        >>> sorted(answer.titles), answer.fallback, len(answer.reasons)
        (['Solaris', 'Stalker'], None, 2)
        >>> model.ask(history=[]).fallback
        'popularity'
        """
        histories, rows, users, scalar = self._viewers(userid, user_items, history)
        wanted: _fastvae.Wanted = {
            "n": _count(N),
            "exclude": self._items(filter_items),
            "only": None if items is None else self._items(items),
            "keep_seen": not filter_already_liked_items,
            "popularity_penalty": popularity_penalty,
            "diversity": diversity,
            "temperature": temperature,
            "seed": seed,
            "approximate": approximate,
            "reasons": reasons,
        }
        ids, scores, fallback, is_approximate, why = self._trained.answer(
            histories, rows, users, wanted, self.num_threads
        )
        named = [[[self._reason(*reason) for reason in each] for each in of_user] for of_user in why]
        if scalar:
            kept = ids[0] >= 0
            ids, scores = ids[0][kept], scores[0][kept]
            return Answer(self._named(ids), scores, self._titled(ids), fallback[0], is_approximate[0], named[0])
        return Answer(self._named(ids), scores, self._titled(ids), fallback, is_approximate, named)

    def explain(self, userid_or_history: Any, itemid: Any, N: int = 10) -> list[Reason]:
        """Why an item is recommended: the items of the history that speak for it, strongest first.

        Exact: what the item's score loses when each item of the history is left out.

        Parameters
        ----------
        userid_or_history
            A training user, or a list of items, or a dict of items with weights.
        itemid
            The recommended item.
        N
            How many reasons, at most.

        Examples
        --------
        >>> import fastvae_cf as fastvae
        >>> plays = fastvae.datasets.generate(users=300, items=200, interactions=6000)
        >>> model = fastvae.FastVAE(hidden=32, latent=16, epochs=5, codewords=8).fit(plays, show_progress=False)
        >>> ids, _ = model.recommend(history=[3, 5, 8], N=1)
        >>> reasons = model.explain([3, 5, 8], ids[0])
        >>> all(reason.item in {3, 5, 8} for reason in reasons)
        True
        """
        who = "history" if isinstance(userid_or_history, Mapping) or np.ndim(userid_or_history) else "userid"
        asked: dict[str, Any] = {who: userid_or_history, "items": [itemid]}
        reasons = self.ask(**asked, N=1, filter_already_liked_items=False, reasons=_count(N)).reasons
        return list(reasons[0]) if reasons else []

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
        >>> import fastvae_cf as fastvae
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
        >>> import fastvae_cf as fastvae
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
        named = ids if users.user_ids.is_range else array(users.user_ids)[ids]
        return (named[0], scores[0]) if np.ndim(userid) == 0 else (named, scores)

    # ---- from and to identifiers

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

    def _titled(self, positions: npt.NDArray[np.int32]) -> npt.NDArray[Any] | None:
        if self.titles_ is None:
            return None
        titles = self.titles_[positions]
        titles[positions < 0] = None
        return titles

    def _reason(self, position: int, contribution: float, share: float) -> Reason:
        title = None if self.titles_ is None else self.titles_[position]
        return Reason(self.item_ids_[position : position + 1].tolist()[0], contribution, share, title)

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
        weighted = isinstance(history, Mapping)
        lists = [history] if weighted else list(history)
        scalar = weighted or not any(isinstance(each, Mapping) or np.ndim(each) for each in lists[:1])
        if scalar and not weighted:
            lists = [lists]
        ids = self._trained.item_ids
        found, weights, ends, unknown = [np.empty(0, dtype=np.int64)], [np.empty(0)], [0], []
        for each in lists:
            named = list(each)
            positions = ids.positions(id_column(named, "item"))
            unknown += [item for item, position in zip(named, positions, strict=True) if position < 0]
            known, first = np.unique(positions, return_index=True)
            of_items = np.array(list(each.values()) if isinstance(each, Mapping) else [1.0] * len(named), dtype=float)
            found.append(known[known >= 0])
            weights.append(of_items[first][known >= 0])
            ends.append(ends[-1] + found[-1].size)
        if unknown:
            shown = ", ".join(str(item) for item in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            warnings.warn(f"{len(unknown)} items of the history are not known: {shown}", stacklevel=5)
        values = np.concatenate(weights).astype(np.float32)
        return Interactions.from_csr(np.array(ends), np.concatenate(found), values, len(ids), None, ids), scalar


def load(path: str | os.PathLike[str]) -> Recommender:
    """Open a model or baseline that `Recommender.save` or the command line wrote.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import fastvae_cf as fastvae
    >>> plays = fastvae.datasets.generate(users=200, items=100, interactions=3000)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "plays.fastvae"
    >>> fastvae.EASE(regularization=50.0).fit(plays, show_progress=False).save(path)
    >>> fastvae.load(path)
    EASE(regularization=50.0)
    """
    trained = _fastvae.Model.load(os.fspath(path))
    settings = json.loads(trained.description())["settings"]
    # The variational autoencoder has more than one name.
    kind: type[Recommender] = Fitted._kinds.get(settings["model"], Fitted._kinds["fastvae"])
    return kind._from_file(trained, settings)


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
