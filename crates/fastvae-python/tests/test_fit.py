"""Fitting: reproducible, watched, interruptible, beside other Python threads and in forked processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fastvae_cf as fastvae
import numpy as np
import pandas as pd
import pytest

from conftest import SMALL


def test_the_same_seed_gives_the_same_model_on_any_number_of_threads(model: fastvae.FastVAE, parts: Any) -> None:
    again = fastvae.FastVAE(**SMALL, num_threads=1).fit(parts[0], show_progress=False)
    assert np.array_equal(again.item_factors, model.item_factors)
    other = fastvae.FastVAE(**SMALL, random_state=1).fit(parts[0], show_progress=False)
    assert not np.array_equal(other.item_factors, model.item_factors)


def test_the_history_is_a_table(model: fastvae.FastVAE) -> None:
    table = pd.DataFrame(model.history_)
    table = table[~table.refit]
    assert table.epoch.tolist() == list(range(1, 31))
    assert table.loss.iloc[-1] < table.loss.iloc[0]
    assert table.validation.notna().sum() == 6, "every fifth epoch"
    assert "proposal_kl_to_softmax" in table


def test_a_given_validation_part_is_used(parts: Any) -> None:
    train, test = parts
    model = fastvae.FastVAE(**SMALL).fit(train, validation=test, show_progress=False)
    validated = [value for value in model.history_["validation"] if value is not None]
    assert len(validated) == 6 and not any(model.history_["refit"]), "all of the data was learned from the first time"
    # The kept parameters are those of one of the validations, measured on the very same part.
    assert min(abs(fastvae.evaluate(model, train, test, ["ndcg@50"])["ndcg@50"] - v) for v in validated) < 1e-6
    with pytest.raises(ValueError, match="the matrix has 200 items, not the 300"):
        fastvae.FastVAE(**SMALL).fit(train, validation=test[:, :200], show_progress=False)
    with pytest.raises(ValueError, match="the validation part has 0 interactions"):
        fastvae.FastVAE(**SMALL).fit(train, validation=test * 0, show_progress=False)


def test_callbacks_see_epochs_and_can_stop(parts: Any) -> None:
    seen: list[dict[str, Any]] = []

    def callback(epoch: dict[str, Any]) -> bool:
        seen.append(epoch)
        return len(seen) == 3

    model = fastvae.FastVAE(**SMALL).fit(parts[0], show_progress=False, callback=callback)
    assert [epoch["epoch"] for epoch in seen] == [1, 2, 3] == model.history_["epoch"]
    assert [epoch["loss"] for epoch in seen] == model.history_["loss"]
    losses: list[Any] = []
    fastvae.ALS(factors=8, iterations=4).fit(parts[0], show_progress=False, callback=losses.append)
    assert [epoch["epoch"] for epoch in losses] == [1, 2, 3, 4]
    popular: list[Any] = []
    stopping = fastvae.BPR(epochs=3).fit(parts[0], show_progress=False, callback=lambda epoch: popular.append(epoch) or True)
    assert len(popular) == 3 == len(stopping.history_["loss"]), "a baseline is not stopped by an answer"


def test_models_know_what_they_have_learned_from(parts: Any) -> None:
    train, test = parts
    shares = {}
    for refit in (None, False, True):
        model = fastvae.FastVAE(**SMALL | {"epochs": 10}).fit(train, show_progress=False, refit=refit)
        learned = model.description_["learned"]
        assert learned["of"] == train.nnz and learned["refit"] == any(model.history_["refit"])
        shares[refit] = learned["interactions"] / learned["of"]
        assert set(model.validation_) == {"ndcg@50", "recall@50"} and model.validation_["ndcg@50"].standard_error > 0
    assert shares[False] < 1 and shares[True] == 1
    # A tenth of the users lack a fifth of their items: about 2 %, beyond which nothing is left aside.
    assert shares[None] == 1 or shares[False] >= 0.98
    both = fastvae.FastVAE(**SMALL | {"epochs": 10}).fit(train, validation=test, show_progress=False, refit=True)
    assert both.description_["learned"] | {"epochs": 0} == {
        "interactions": train.nnz + test.nnz, "of": train.nnz + test.nnz, "epochs": 0, "refit": True, "pair": False
    }
    assert both._users().nnz == train.nnz + test.nnz
    plain = fastvae.FastVAE(**SMALL | {"epochs": 2}, patience=0).fit(train, show_progress=False, refit=True)
    assert len(plain.history_["epoch"]) == 2 and plain.validation_ == {}, "there is nothing to train again on"


def test_a_linear_part_stands_beside_the_network_or_in_its_place(parts: Any) -> None:
    train, test = parts
    measured = {}
    for name, changes in {"network": {}, "both": {"ridge": {"weight": 2}}, "chosen": {"ridge": None}}.items():
        model = fastvae.FastVAE(**SMALL | changes).fit(train, show_progress=False)
        measured[name] = fastvae.evaluate(model, train, test, ["ndcg@50"])["ndcg@50"]
        blend = model.description_["blend"]
        assert (blend is None) == (name == "network")
        answer = model.ask(history=[3, 17, 42], reasons=2)
        assert len(answer.items) == 10 and all(answer.reasons)
    assert measured["both"] > measured["network"]
    assert measured["chosen"] > measured["network"] and blend["trainings"] > 1
    alone = fastvae.ItemRidge(penalty=20.0).fit(train)
    assert fastvae.evaluate(alone, train, test, ["ndcg@50"])["ndcg@50"] > 0.4


def test_titles_come_along(parts: Any, tmp_path: Path) -> None:
    train, _ = parts
    path = tmp_path / "titles.csv"
    path.write_text("item,title\n" + "".join(f"{item},Film {item}\n" for item in range(0, 300, 2)))
    every = [f"Film {item}" if item % 2 == 0 else None for item in range(300)]
    by_item = {item: title for item, title in enumerate(every) if title}
    for titles in (path, str(path), every, by_item, pd.Series(by_item), pd.Series(every, dtype=object)):
        model = fastvae.ItemKNN().fit(train, titles=titles, show_progress=False)
        assert model.titles_.tolist() == every, type(titles)
    model = fastvae.FastVAE(**SMALL | {"epochs": 1}).fit(train, titles=by_item, show_progress=False)
    model.save(tmp_path / "model.fastvae")
    for known in (model, fastvae.load(tmp_path / "model.fastvae"), pickle.loads(pickle.dumps(model))):
        answer = known.ask(history=[2, 3], N=20, reasons=2)
        assert answer.titles.tolist() == [every[item] for item in answer.items]
        assert all(reason.title == every[reason.item] for reasons in answer.reasons for reason in reasons)
    assert fastvae.Popularity().fit(train, show_progress=False).titles_ is None
    for wrong, message in (
        (every[:7], "7 titles for 300 items"),
        ({"a": "Film a"}, "none of the titles is of one of the 300 items"),
        ({}, "none of the titles"),
    ):
        with pytest.raises(ValueError, match=message):
            fastvae.Popularity().fit(train, titles=wrong, show_progress=False)
    with pytest.raises(FileNotFoundError):
        fastvae.Popularity().fit(train, titles=tmp_path / "absent.csv", show_progress=False)


@pytest.mark.parametrize("estimator", [fastvae.FastVAE(**SMALL), fastvae.BPR(epochs=3)])
def test_what_a_callback_raises_ends_the_fit(estimator: Any, parts: Any) -> None:
    def callback(epoch: dict[str, Any]) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        estimator.fit(parts[0], show_progress=False, callback=callback)
    with pytest.raises(fastvae.NotFittedError):
        estimator.recommend(3)


def test_divergence_is_a_floating_point_error(parts: Any) -> None:
    with pytest.raises(FloatingPointError, match="lower `learning_rate`"):
        fastvae.FastVAE(**SMALL | {"learning_rate": 1e30}, patience=0).fit(parts[0], show_progress=False)


@pytest.mark.parametrize("estimator", ["FastVAE(epochs=100000, patience=0)", "BPR(epochs=100000)"])
def test_ctrl_c_interrupts_a_fit(estimator: str) -> None:
    program = f"""
import signal, sys
import fastvae_cf as fastvae
signal.signal(signal.SIGINT, signal.default_int_handler)
plays = fastvae.datasets.generate(users=500, items=300, interactions=12000)
model = fastvae.{estimator}
def callback(epoch):
    if epoch["epoch"] == 1: print("running", flush=True)
try:
    model.fit(plays, show_progress=False, callback=callback)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    assert not model.__sklearn_is_fitted__()
    model.set_params(epochs=1).fit(plays, show_progress=False)
    print("fits again", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "running\n"
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - start < 5
        assert process.stdout.readline() == "fits again\n"
        assert process.wait(60) == 0


def test_other_threads_run_during_a_fit(parts: Any) -> None:
    # Were the interpreter held, the counter could not move while the fit is in its steps.
    running, counts = True, [0]

    def count() -> None:
        while running:
            counts[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counts[0]
        fastvae.EASE().fit(fastvae.datasets.generate(users=2000, items=1500, interactions=40_000), show_progress=False)
        grown = counts[0] - before
    finally:
        running = False
        thread.join()
    assert grown > 3


def _recommended(model: fastvae.FastVAE) -> list[int]:
    ids: list[int] = model.recommend(np.arange(20), N=3)[0].ravel().tolist()
    return ids


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_processes_recommend_and_fit(model: fastvae.FastVAE) -> None:
    expected = _recommended(model)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_recommended, [model, model]).get(timeout=60) == [expected, expected]


def test_progress_is_shown_where_it_is_wanted(parts: Any, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    fastvae.FastVAE(**SMALL | {"epochs": 2}).fit(parts[0])
    assert "FastVAE" in capfd.readouterr().err
    fastvae.FastVAE(**SMALL | {"epochs": 2}).fit(parts[0], show_progress=False)
    assert capfd.readouterr().err == ""


def test_plots_have_the_curves(model: fastvae.FastVAE) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = model.plot()
    assert sum((line.get_ydata().tolist() for line in axes.lines), []) == model.history_["loss"]
