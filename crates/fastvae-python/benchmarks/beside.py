"""The package beside the command line (fit) and beside implicit (lists for all users), in one run.

    python benchmarks/beside.py gowalla.train.tsv.zst --binary target/release/fastvae [--epochs 2] [--latent 64]

Prints one JSON object. Both sides take turns, and the smallest of their times counts: machines are noisy. Processor
seconds, over all threads, are told beside those on the wall.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fastvae_cf as fastvae
import implicit.als
import numpy as np


def times(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def best(found: dict[str, list[tuple[float, float]]]) -> dict[str, object]:
    """The smallest times of each side, and the ratios of the first to the second."""
    least = {name: [min(column) for column in zip(*each, strict=True)] for name, each in found.items()}
    first, second = least.values()
    kinds = ("seconds", "cpu_seconds")
    table: dict[str, object] = {name: dict(zip(kinds, each, strict=True)) for name, each in least.items()}
    return table | {"ratio": {kind: a / b for kind, a, b in zip(kinds, first, second, strict=True)}}


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
    train = [options.binary, "-q", "train", options.data, "--json", "--set", f"latent={options.latent}"]
    train += ["--set", f"epochs={options.epochs}", "--set", "patience=0"]
    fits: dict[str, list[tuple[float, float]]] = {"python": [], "command_line": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            report = subprocess.run([*train, "-o", Path(folder, "m.fastvae")], check=True, capture_output=True, text=True)
            told = json.loads(report.stdout)
            fits["command_line"].append((told["seconds_per_epoch"], told["cpu_seconds_per_epoch"]))
            model.fit(data, show_progress=False)
            epochs = model.history_
            fits["python"].append((float(np.mean(epochs["seconds"])), float(np.mean(epochs["cpu_seconds"]))))

    user_items = data.to_csr()
    users = np.arange(user_items.shape[0])
    als = implicit.als.AlternatingLeastSquares(factors=options.latent, iterations=1)
    als.fit(user_items, show_progress=False)
    lists: dict[str, list[tuple[float, float]]] = {"fastvae": [], "implicit_als": []}
    for _ in range(options.rounds):
        lists["fastvae"].append(times(lambda: model.recommend(users, user_items, N=50)))
        lists["implicit_als"].append(times(lambda: als.recommend(users, user_items, N=50)))
    about = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {processor()}",
        "versions": {"python": platform.python_version(), "fastvae": fastvae.__version__, "implicit": implicit.__version__},
        "data": options.data.name,
        "n_users": len(users),
        "latent": options.latent,
    }
    print(json.dumps(about | {"epoch": best(fits), "lists_of_50": best(lists)}, indent=1))


def processor() -> str:
    """Its name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
