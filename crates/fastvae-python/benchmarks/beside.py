"""The package beside the command line (fit) and beside implicit (lists for all users), in one run.

    python benchmarks/beside.py gowalla.train.tsv.zst --binary target/release/fastvae [--epochs 2] [--latent 64]

Prints one JSON object. Fits take turns, and the smallest of their times counts: machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fastvae
import implicit.als
import numpy as np


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--latent", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    data = fastvae.read(options.data)
    model = fastvae.FastVAE(latent=options.latent, epochs=options.epochs, patience=0)
    train = [options.binary, "-q", "train", options.data, "--split", "none", "--json", "--set", f"latent={options.latent}"]
    train += ["--set", f"epochs={options.epochs}", "--set", "patience=0"]
    fits: dict[str, list[float]] = {"python": [], "command_line": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            report = subprocess.run([*train, "-o", Path(folder, "m.fastvae")], check=True, capture_output=True, text=True)
            fits["command_line"].append(json.loads(report.stdout)["training_seconds"])
            # As the command line counts: refreshes and steps, without reading and diagnostics.
            model.fit(data, show_progress=False)
            fits["python"].append(sum(model.history_["seconds"]))

    user_items = data.to_csr()
    users = np.arange(user_items.shape[0])
    als = implicit.als.AlternatingLeastSquares(factors=options.latent, iterations=1)
    als.fit(user_items, show_progress=False)
    lists: dict[str, list[float]] = {"fastvae": [], "implicit_als": []}
    for _ in range(options.rounds):
        lists["fastvae"].append(seconds(lambda: model.recommend(users, user_items, N=50)))
        lists["implicit_als"].append(seconds(lambda: als.recommend(users, user_items, N=50)))
    best_fits = {name: min(times) for name, times in fits.items()}
    best_lists = {name: min(times) for name, times in lists.items()}
    print(
        json.dumps(
            {
                "data": options.data.name,
                "n_users": len(users),
                "latent": options.latent,
                "fit_seconds": best_fits,
                "fit_ratio": best_fits["python"] / best_fits["command_line"],
                "recommend_seconds": best_lists,
                "recommend_ratio": best_lists["fastvae"] / best_lists["implicit_als"],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
