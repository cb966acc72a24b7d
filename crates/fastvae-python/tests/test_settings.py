"""Settings: the library's keys and defaults, scikit-learn's habits."""

from __future__ import annotations

import copy
import json

import fastvae_cf as fastvae
import numpy as np
import pytest
from fastvae_cf import _fastvae
from sklearn.base import clone

BASELINES = [
    fastvae.Popularity,
    fastvae.ItemKNN,
    fastvae.ItemRidge,
    fastvae.EASE,
    fastvae.ALS,
    fastvae.BPR,
    fastvae.WARP,
    fastvae.AOBPR,
    fastvae.DNS,
    fastvae.PRIS,
    fastvae.SA,
]


def test_the_model_has_the_keys_and_defaults_of_the_library() -> None:
    expected = json.loads(_fastvae.default_settings())
    expected["random_state"], expected["num_threads"] = expected.pop("seed"), expected.pop("threads")
    given = fastvae.FastVAE().get_params()
    # None stands for the library's own; these three are nested or absent there.
    assert {name for name, value in given.items() if value is None} == {"kl", "ridge", "decay", "clip"}
    assert list(given) == [{"seed": "random_state", "threads": "num_threads"}.get(k, k) for k in expected_order()]
    assert {k: v for k, v in given.items() if v is not None} == {
        k: v for k, v in expected.items() if k not in ("kl", "ridge", "decay", "clip")
    }


def expected_order() -> list[str]:
    # The library's JSON keeps the order of its struct only as text.
    pairs = json.loads(_fastvae.default_settings(), object_pairs_hook=list)
    return [key for key, _ in pairs]


@pytest.mark.parametrize("baseline", BASELINES)
def test_baselines_have_the_keys_and_defaults_of_the_library(baseline: type[fastvae.Recommender]) -> None:
    expected = json.loads(_fastvae.default_settings(baseline._kind))
    del expected["model"]
    if "seed" in expected:
        expected["random_state"] = expected.pop("seed")
    given = baseline().get_params()
    assert given.pop("num_threads") == 0
    # What is None is left to the library.
    left = {key for key, value in given.items() if value is None}
    assert left <= {"alpha", "negatives", "regularization"}
    assert {key: given[key] for key in given.keys() - left} == {key: expected[key] for key in expected.keys() - left}


def test_every_baseline_of_the_library_is_a_class() -> None:
    with pytest.raises(ValueError, match="use one of") as error:
        _fastvae.default_settings("no such")
    names = str(error.value).split("use one of ")[1].split(", ")
    assert sorted(names) == sorted(baseline._kind for baseline in BASELINES)


@pytest.mark.parametrize("cls", [fastvae.FastVAE, *BASELINES])
def test_scikit_learn_clones(cls: type[fastvae.Recommender]) -> None:
    original = cls(num_threads=1)
    copied = clone(original)
    assert copied is not original and copied.get_params() == original.get_params()


def test_a_clone_is_not_fitted(model: fastvae.FastVAE) -> None:
    with pytest.raises(fastvae.NotFittedError, match="not fitted"):
        clone(model).recommend(0)


def test_settings_are_set_and_shown() -> None:
    model = fastvae.FastVAE(latent=8).set_params(epochs=3)
    assert repr(model) == "FastVAE(latent=8, epochs=3)"
    with pytest.raises(ValueError, match="no setting 'epoch'"):
        model.set_params(epoch=3)


def test_the_paper_preset_is_the_library_s() -> None:
    paper = fastvae.FastVAE.paper(epochs=7)
    assert (paper.hidden, paper.latent, paper.epochs) == (200, 32, 7)
    assert paper.kl == {"anneal_steps": 0, "beta": 1.0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latent": 0}, "`latent`: is 0"),
        ({"latent": -1}, "`latent`: "),
        ({"hidden": "wide"}, "`hidden`: invalid type"),
        ({"proposal": "guess"}, "`proposal`: unknown variant `guess`"),
        ({"kl": {"alpha": 1}}, "`kl`: unknown field `alpha`"),
        ({"kl": {"beta": 1, "gamma": 1}}, "has both beta and gamma"),
        ({"hidden": object()}, "is no setting"),
    ],
)
def test_wrong_settings_are_value_errors_that_name_the_key(settings: dict[str, object], message: str) -> None:
    pairs = (np.arange(20) % 5, np.arange(20) % 7)
    with pytest.raises(ValueError, match=message):
        fastvae.FastVAE(**settings).fit(pairs, show_progress=False)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_settings(plays: object) -> None:
    model = fastvae.FastVAE(
        hidden=np.int64(16), latent=np.int32(8), dropout=np.float32(0.25), epochs=1, codewords=8,  # type: ignore[arg-type]
        ridge={"weight": np.float32(2.0)},  # type: ignore[dict-item]
    )
    assert model.fit(plays, show_progress=False).item_factors.shape == (300, 8)


def test_deep_copies_recommend_alike(model: fastvae.FastVAE) -> None:
    assert np.array_equal(copy.deepcopy(model).recommend(5)[0], model.recommend(5)[0])
