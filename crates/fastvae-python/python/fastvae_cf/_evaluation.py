"""How well models do, and whether one does better than another."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _fastvae
from ._answers import Estimate
from ._data import Columns, UserItems, interactions
from ._recommender import Recommender


def evaluate(
    model: Recommender,
    train: UserItems,
    test: UserItems,
    metrics: Iterable[str] = ("ndcg@50", "recall@50"),
    *,
    user_col: str | None = None,
    item_col: str | None = None,
) -> dict[str, Estimate]:
    """Rank the whole catalogue for every user with test items, and measure the ranking.

    Parameters
    ----------
    model
        A fitted model or baseline.
    train
        What the model is shown of each user, and never ranks: the training data, or for users that it has never seen
        the part that is folded in.
    test
        What it must find; row u is the same user as row u of ``train``.
    metrics
        ``recall``, ``recall-min``, ``ndcg``, ``precision``, ``map``, ``mrr``, ``hit-rate`` or ``coverage``, each with
        its cut-off.
    user_col, item_col
        Columns of tables and files; those of `fit` by default.

    Returns
    -------
    dict
        An `Estimate` for each metric: a float with a ``standard_error``.

    Examples
    --------
    >>> import fastvae_cf as fastvae
    >>> train, test = fastvae.split(fastvae.datasets.generate(users=200, items=100, interactions=3000))
    >>> model = fastvae.EASE(regularization=50.0).fit(train, show_progress=False)
    >>> result = fastvae.evaluate(model, train, test, ["recall@10"])
    >>> 0 < result["recall@10"].standard_error < result["recall@10"] < 1
    True
    """
    columns = model._columns_ if user_col is None and item_col is None else Columns(user_col, item_col)
    histories, held = _aligned(model, train, test, columns)
    _, values = _fastvae.evaluate(model._trained, histories, held, list(metrics), model.num_threads)
    return {name: Estimate(mean, error) for name, mean, error in values}


@dataclass(frozen=True)
class Comparison:
    """What `compare` found."""

    rows: list[dict[str, Any]]
    """One dict for each model, best first: ``model``, an `Estimate` for each metric, ``seconds`` of training, and
    ``p_value`` of the paired test over users against the best model (None for the best)."""
    metric: str
    """The metric that models are ordered and tested by."""

    def to_dict(self) -> dict[str, list[Any]]:
        """Column by column: ``pandas.DataFrame(comparison.to_dict())``."""
        return {name: [row[name] for row in self.rows] for name in self.rows[0]}

    def __str__(self) -> str:
        cells = [list(self.rows[0])] + [[_cell(value) for value in row.values()] for row in self.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells)


def compare(
    models: Mapping[str, Recommender] | Sequence[Recommender],
    user_items: UserItems,
    *,
    folds: int = 5,
    metrics: Sequence[str] = ("ndcg@50", "recall@50"),
    random_state: int = 0,
    show_progress: bool = False,
    user_col: str | None = None,
    item_col: str | None = None,
) -> Comparison:
    """Train several models on the same folds and test the differences over users.

    Models are trained anew with their settings; those that are given stay as they are.

    Parameters
    ----------
    models
        Models by name, or a sequence of them.
    user_items
        Interactions in any form that `FastVAE.fit` takes.
    folds
        Folds of the cross-validation: every interaction is tested once.
    metrics
        What is measured; models are ordered and tested by the first.
    random_state
        Seed of the folds.
    show_progress
        Whether fits show their bars.
    user_col, item_col
        Columns of a table or file.

    Examples
    --------
    >>> import fastvae_cf as fastvae
    >>> plays = fastvae.datasets.generate(users=200, items=100, interactions=4000)
    >>> found = fastvae.compare([fastvae.Popularity(), fastvae.EASE(regularization=50.0)], plays, folds=2)
    >>> [row["model"] for row in found.rows]
    ['EASE', 'Popularity']
    >>> found.rows[1]["p_value"] < 0.05
    True
    """
    if not isinstance(models, Mapping):
        names = [type(model).__name__ for model in models]
        if len(set(names)) < len(names):
            raise ValueError(f"two of {', '.join(names)} have one name; give a dict of models by name")
        models = dict(zip(names, models, strict=True))
    metrics = list(metrics)
    if not models or not metrics:
        raise ValueError("there is nothing to compare; give at least one model and one metric")
    data = interactions(user_items, Columns(user_col, item_col))
    # Metric by metric, the values of all folds' users in one order for all models.
    values: dict[str, list[list[npt.NDArray[np.float64]]]] = {name: [[] for _ in metrics] for name in models}
    seconds = dict.fromkeys(models, 0.0)
    for fold in range(folds):
        train, test = data.fold(folds, fold, random_state)
        for name, model in models.items():
            fresh: Any = type(model)(**model.get_params())
            start = time.perf_counter()
            fresh.fit(train, show_progress=show_progress)
            seconds[name] += time.perf_counter() - start
            for at, metric in enumerate(metrics):
                _, found = _fastvae.evaluate_users(fresh._trained, train, test, metric, model.num_threads)
                values[name][at].append(found)
    joined = {name: [np.concatenate(of_folds) for of_folds in found] for name, found in values.items()}
    order = sorted(models, key=lambda name: -float(joined[name][0].mean()))
    rows = []
    for name in order:
        row: dict[str, Any] = {"model": name}
        for metric, found in zip(metrics, joined[name], strict=True):
            row[metric] = Estimate(float(found.mean()), float(found.std(ddof=1) / np.sqrt(found.size)))
        row["seconds"] = seconds[name]
        row["p_value"] = None
        if name != order[0]:
            row["p_value"] = _fastvae.paired_difference(joined[order[0]][0], joined[name][0])[2]
        rows.append(row)
    return Comparison(rows, metrics[0])


def _aligned(
    model: Recommender, train: UserItems, test: UserItems, columns: Columns
) -> tuple[_fastvae.Interactions, _fastvae.Interactions]:
    items = model._trained.item_ids
    histories = interactions(train, columns, items=items)
    # A matrix has no names of its own: its rows are those of the other.
    return histories, interactions(test, columns, users=histories.user_ids, items=items)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float) and not isinstance(value, Estimate):
        return f"{value:.3g}"
    return str(repr(value)) if isinstance(value, Estimate) else str(value)
