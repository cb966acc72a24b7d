"""Bars for fits: tqdm's where it is installed (notebooks included), a line on a terminal otherwise."""

from __future__ import annotations

import sys
from typing import Any


class Progress:
    """How far a fit of ``total`` passes has come. Shows nothing unless ``show``."""

    def __init__(self, label: str, total: int, show: bool) -> None:
        self._label = label
        self._total = total
        self._bar: Any = None
        self._line = False
        if not show:
            return
        try:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc=label, unit="epoch")
        except ImportError:
            # Without a terminal a line that is written over would fill a log.
            self._line = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._line:
            sys.stderr.write("\n")

    def at(self, done: float, again: bool = False, **values: float | None) -> None:
        """Shows that ``done`` passes are over, with the latest values; ``again`` on everything."""
        label = f"{self._label}, on everything" if again else self._label
        known = {name: f"{value:.4g}" for name, value in values.items() if value is not None}
        if self._bar is not None:
            # A later `set_postfix` writes once; rounding hides the noise of adding fractions.
            self._bar.n = round(done, 2)
            self._bar.set_description(label, refresh=False)
            self._bar.set_postfix(known)
        if self._line:
            text = "  ".join(f"{name} {value}" for name, value in known.items())
            sys.stderr.write(f"\r{label} {done:.1f}/{self._total}  {text}\x1b[K")
            sys.stderr.flush()
