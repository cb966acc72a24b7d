"""The whole API in one file: mypy --strict accepts it, and it runs."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import fastvae_cf as fastvae
import numpy as np
import numpy.typing as npt


def stop_early(epoch: dict[str, Any]) -> bool:
    return bool(epoch["loss"] < 0)


def main() -> None:
    plays = fastvae.datasets.generate(users=300, items=200, interactions=6000)
    train, test = fastvae.split(plays, "ratio:0.8", random_state=1)
    model = fastvae.FastVAE(
        hidden=32, latent=16, epochs=3, codewords=8, kl={"gamma": 0.005}, ridge={"weight": 2}, decay={"schedule": "constant"}
    )
    names = {item: f"Film {item}" for item in range(200)}
    model.set_params(random_state=2).fit(train, test, show_progress=False, callback=stop_early, titles=names, refit=False)
    ids, scores = model.recommend(7, train[7], N=5, filter_items=[1], items=None)
    first: float = float(scores[0])
    many, _ = model.recommend(np.arange(3), train[:3])
    unseen, _ = model.recommend(history=[1, 2, 3], N=4)
    answer: fastvae.Answer = model.ask(
        history={1: 2.0, 2: 1.0}, N=4, popularity_penalty=0.1, diversity=0.1, temperature=0.5, seed=3, reasons=2
    )
    stands_in: str | None = model.ask(history=[], approximate=True).fallback
    validated: dict[str, fastvae.Estimate] = model.validation_
    seen: int = model.description_["learned"]["interactions"]
    near, _ = model.similar_items(int(ids[0]), N=3)
    alike, _ = model.similar_users(7, N=3)
    reasons: list[fastvae.Reason] = model.explain([1, 2, 3], int(unseen[0]), N=2)
    factors: npt.NDArray[np.float32] = model.item_factors @ model.user_factors[:1].T
    history: dict[str, list[Any]] = model.history_
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.fastvae"
        model.save(path, users=True)
        loaded: fastvae.Recommender = fastvae.load(path)
        csv = Path(folder) / "plays.csv"
        csv.write_text("user,item\na,x\na,y\nb,y\n")
        data: fastvae.Interactions = fastvae.read(csv, k_core=None)
    copied: fastvae.FastVAE = pickle.loads(pickle.dumps(model))
    result: dict[str, fastvae.Estimate] = fastvae.evaluate(loaded, train, test, metrics=("ndcg@50", "recall@50"))
    comparison: fastvae.Comparison = fastvae.compare({"top": fastvae.Popularity(), "ease": fastvae.EASE()}, plays, folds=2)
    baselines: list[fastvae.Recommender] = [
        fastvae.ALS(factors=8, iterations=2).fit(train, show_progress=False),
        fastvae.BPR(epochs=1).fit(train, show_progress=False),
        fastvae.PRIS(epochs=1, clusters=4).fit(train, show_progress=False),
        fastvae.ItemKNN(weighting="bm25").fit(train, show_progress=False),
    ]
    proposal = fastvae.proposals.Proposal.of(model, "midx-uniform", codewords=8)
    drawn, log_q = proposal.sample(model.user_factors[0], 10)
    error: float | None = result["ndcg@50"].standard_error
    shown, held, hidden = fastvae.split_users(plays, 0.2)
    print(first, many.shape, near.size, alike.size, len(reasons), factors.shape, len(history), data.shape, copied)
    print(comparison, [model.recommend(0, N=1)[0].size for model in baselines], drawn.size, log_q.size, error)
    print(shown.shape, held.shape, hidden.shape, answer.titles, answer.reasons, stands_in, validated, seen)


if __name__ == "__main__":
    main()
