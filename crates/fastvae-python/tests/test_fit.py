"""Fitting: reproducible, watched, interruptible, beside other Python threads and in forked processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import fastvae
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
    assert table.epoch.tolist() == list(range(1, 31))
    assert table.loss.iloc[-1] < table.loss.iloc[0]
    assert table.validation.notna().sum() == 6, "every fifth epoch"
    assert "proposal_kl_to_softmax" in table


def test_a_given_validation_part_is_used(parts: Any) -> None:
    train, test = parts
    model = fastvae.FastVAE(**SMALL).fit(train, validation=test, show_progress=False)
    validated = [value for value in model.history_["validation"] if value is not None]
    assert len(validated) == 6
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
import signal, sys, fastvae
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
    assert axes.lines[0].get_ydata().tolist() == model.history_["loss"]
