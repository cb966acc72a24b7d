"""Measures: against implicit's, on its own splits, and against plain Python."""

from __future__ import annotations

from typing import Any

import fastvae_cf as fastvae
import implicit.evaluation
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from conftest import SMALL


def test_implicit_splits_trains_and_measures_our_model(plays: Any) -> None:
    train, test = implicit.evaluation.train_test_split(plays, train_percentage=0.8, random_state=3)
    model = fastvae.FastVAE(**SMALL).fit(train, show_progress=False)
    theirs = implicit.evaluation.ranking_metrics_at_k(model, train, test, K=10, show_progress=False)
    ours = fastvae.evaluate(model, train, test, ["ndcg@10", "map@10"])
    # The two measures whose definitions agree.
    assert abs(ours["ndcg@10"] - theirs["ndcg"]) < 1e-6
    assert abs(ours["map@10"] - theirs["map"]) < 1e-6
    # Popularity reaches 0.05 here, EASE 0.54.
    assert ours["ndcg@10"] > 0.4


@pytest.mark.parametrize("baseline", [fastvae.EASE(), fastvae.BPR(epochs=4), fastvae.Popularity()])
def test_implicit_measures_our_baselines(baseline: Any, parts: Any) -> None:
    train, test = parts
    baseline.fit(train, show_progress=False)
    theirs = implicit.evaluation.ranking_metrics_at_k(baseline, train, test, K=10, show_progress=False)
    assert abs(fastvae.evaluate(baseline, train, test, ["ndcg@10"])["ndcg@10"] - theirs["ndcg"]) < 1e-6


def test_means_and_errors_are_those_over_users(model: fastvae.FastVAE, parts: Any) -> None:
    train, test = parts
    ids, _ = model.recommend(np.arange(train.shape[0]), train, N=20)
    recall = [np.isin(ids[u], test[u].indices).sum() / test[u].nnz for u in range(500) if test[u].nnz]
    found = fastvae.evaluate(model, train, test, ["recall@20", "coverage@20"])
    assert abs(found["recall@20"] - np.mean(recall)) < 1e-9
    assert found["recall@20"].standard_error == pytest.approx(stats.sem(recall), rel=1e-6)
    assert found["coverage@20"] == np.unique(ids).size / 300
    assert found["coverage@20"].standard_error is None


def test_frames_are_aligned_by_their_identifiers(parts: Any) -> None:
    frames = []
    for part in parts:
        coo = part.tocoo()
        frame = pd.DataFrame({"user": [f"u{u}" for u in coo.row], "item": [f"i{i}" for i in coo.col]})
        frames.append(frame.sample(frac=1, random_state=1))
    model = fastvae.EASE(regularization=50.0).fit(parts[0], show_progress=False)
    named = fastvae.EASE(regularization=50.0).fit(frames[0], show_progress=False)
    known = frames[1][frames[1].item.isin(named.item_ids_)]
    left_out = len(frames[1]) - len(known)
    expected = fastvae.evaluate(model, *parts, ["ndcg@10"])["ndcg@10"]
    if left_out:
        with pytest.warns(UserWarning, match=f"{left_out} rows with an unknown"):
            fastvae.evaluate(named, *frames, ["ndcg@10"])
    found = fastvae.evaluate(named, frames[0], known, ["ndcg@10"])["ndcg@10"]
    assert abs(found - expected) < 0.005


def test_unseen_users_are_folded_in(plays: Any) -> None:
    train, history, test = fastvae.split_users(plays, 0.2)
    model = fastvae.FastVAE(**SMALL).fit(train, show_progress=False)
    assert fastvae.evaluate(model, history, test, ["ndcg@50"])["ndcg@50"] > 0.4


def test_wrong_metrics_and_shapes_are_value_errors(model: fastvae.FastVAE, parts: Any) -> None:
    train, test = parts
    with pytest.raises(ValueError, match="`ndgc@5` is not a measure"):
        fastvae.evaluate(model, train, test, ["ndgc@5"])
    with pytest.raises(ValueError, match="the matrix has 10 users"):
        fastvae.evaluate(model, train, test[:10], ["ndcg@5"])


def test_comparisons_are_paired_over_the_same_users(plays: Any) -> None:
    models = {"ease": fastvae.EASE(regularization=50.0), "same": fastvae.EASE(regularization=50.0), "top": fastvae.Popularity()}
    found = fastvae.compare(models, plays, folds=2, metrics=["ndcg@10", "recall@10"])
    table = pd.DataFrame(found.to_dict()).set_index("model")
    assert table.index[-1] == "top" and table.p_value["top"] < 1e-3
    assert table.p_value[table.index[1]] == 1.0, "equal models do not differ"
    assert table["ndcg@10"]["ease"] == table["ndcg@10"]["same"]
    assert str(found).splitlines()[0].split() == ["model", "ndcg@10", "recall@10", "seconds", "p_value"]
    with pytest.raises(ValueError, match="one name"):
        fastvae.compare([fastvae.EASE(), fastvae.EASE()], plays)
    with pytest.raises(fastvae.NotFittedError):
        models["ease"].recommend(0)


def test_paired_differences_agree_with_scipy() -> None:
    random = np.random.default_rng(0)
    first, second = random.normal(0.02, 1, 5000), random.normal(0, 1, 5000)
    mean, error, p_value = fastvae._fastvae.paired_difference(first, second)
    theirs = stats.ttest_rel(first, second)
    assert mean / error == pytest.approx(theirs.statistic, rel=1e-9)
    assert p_value == pytest.approx(theirs.pvalue, abs=1e-3)
