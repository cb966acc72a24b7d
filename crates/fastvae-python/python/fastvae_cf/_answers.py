"""What a model answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

IdArray: TypeAlias = npt.NDArray[Any]
"""Items or users: int32 positions, or the identifiers (int64, or strings) of the data that the model was trained on."""

Scores: TypeAlias = npt.NDArray[np.float32]


class Estimate(float):
    """A mean over users that knows its standard error.

    Examples
    --------
    >>> from fastvae_cf import Estimate
    >>> value = Estimate(0.25, 0.01)
    >>> value, value.standard_error, value > 0.2
    (0.2500 ± 0.0100, 0.01, True)
    """

    standard_error: float | None
    """The sample deviation over users divided by sqrt(users); None for one user, and for coverage."""

    def __new__(cls, mean: float, standard_error: float | None = None) -> Estimate:
        self = super().__new__(cls, mean)
        self.standard_error = standard_error
        return self

    def __getnewargs__(self) -> tuple[float, float | None]:  # type: ignore[override]
        return float(self), self.standard_error

    @property
    def mean(self) -> float:
        """The mean as a plain number."""
        return float(self)

    def __repr__(self) -> str:
        return f"{float(self):.4f}" if self.standard_error is None else f"{float(self):.4f} ± {self.standard_error:.4f}"


class Reason(NamedTuple):
    """An item of a history and its part in a recommendation."""

    item: int | str
    """The item of the history, as the model names it."""
    contribution: float
    """What the recommended item's score loses when this item is left out."""
    share: float
    """Its share of all that speaks for the recommendation, from 0 to 1."""
    title: str | None = None
    """The title of the item of the history, where it has one."""


@dataclass(frozen=True)
class Answer:
    """A list of items and how it came about, or such lists for many users."""

    items: IdArray
    """The items, best first; shaped as `Recommender.recommend` tells."""
    scores: Scores
    """Their scores, less the popularity penalty."""
    titles: npt.NDArray[Any] | None
    """Their titles, None for items without; None altogether where the model has no titles."""
    fallback: Any
    """What stands in for a taste where nothing is known of who asks: ``"nobody"``, what the method answers to an empty
    history, or ``"popularity"``, the most popular items where it has no such answer; None where something is known. A
    list with one for each of many users."""
    is_approximate: Any
    """Whether only some cells of the index were looked at; a list with one for each of many users."""
    reasons: list[Any]
    """For each item its `Reason`s, strongest first; empty where none were asked for. A list of such lists for many
    users."""
