"""One small data set and one model of it for all tests."""

from __future__ import annotations

from typing import Any

import fastvae_cf as fastvae
import pytest

SMALL: dict[str, Any] = {
    "hidden": 64,
    "latent": 16,
    "epochs": 30,
    "codewords": 8,
    "negatives": 100,
    "batch": 64,
    "learning_rate": 0.01,
    # The network alone, which data so small might do without.
    "ridge": {"neighbours": 0, "power": 0.5, "weight": 0.0},
}


@pytest.fixture(scope="session")
def plays() -> Any:
    return fastvae.datasets.generate(users=500, items=300, interactions=12_000)


@pytest.fixture(scope="session")
def parts(plays: Any) -> tuple[Any, Any]:
    return fastvae.split(plays)


@pytest.fixture(scope="session")
def model(parts: tuple[Any, Any]) -> fastvae.FastVAE:
    return fastvae.FastVAE(**SMALL).fit(parts[0], show_progress=False)
