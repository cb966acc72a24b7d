"""One whole training of what people use today, and how good it is: run by `benchmarks/front` in a throw-away environment.

  front_peers.py MODEL TRAIN.npz TEST.npz --threads N     prints one JSON object

The two files are SciPy matrices, users x items. Seconds are those of fitting alone: reading and evaluation are apart. Lists are
scored as `fastvae evaluate` scores them: the items that a user has are never ranked, and recall is over the test items.
"""
import argparse
import json
import math
import time

import numpy
import scipy.sparse

CUT_OFFS = [20, 50]
BLOCK = 512


class Clock:
    """Seconds and processor seconds of what runs inside."""

    def __init__(self):
        self.seconds = self.cpu_seconds = 0.0

    def __enter__(self):
        self.begun = time.perf_counter(), time.process_time()

    def __exit__(self, *_):
        wall, processor = self.begun
        self.seconds += time.perf_counter() - wall
        self.cpu_seconds += time.process_time() - processor


def accuracy(scores, train, test):
    """Means over the users with test items; `scores(users)` is a dense row for each."""
    most = max(CUT_OFFS)
    gains = 1 / numpy.log2(numpy.arange(2, most + 2))
    ideal = numpy.concatenate([[0], numpy.cumsum(gains)])
    sums = {f"{name}@{k}": 0.0 for name in ("ndcg", "recall") for k in CUT_OFFS}
    users = numpy.flatnonzero(numpy.diff(test.indptr))
    for first in range(0, len(users), BLOCK):
        block = users[first : first + BLOCK]
        rows = numpy.asarray(scores(block), dtype=numpy.float32)
        for row, user in zip(rows, block):
            row[train.indices[train.indptr[user] : train.indptr[user + 1]]] = -numpy.inf
            best = numpy.argpartition(-row, most)[:most]
            best = best[numpy.argsort(-row[best], kind="stable")]
            held = test.indices[test.indptr[user] : test.indptr[user + 1]]
            hits = numpy.isin(best, held)
            for k in CUT_OFFS:
                sums[f"ndcg@{k}"] += (gains[:k] * hits[:k]).sum() / ideal[min(k, len(held))]
                sums[f"recall@{k}"] += hits[:k].sum() / len(held)
    return {name: value / len(users) for name, value in sums.items()}


def als(train, arguments):
    """With the library's defaults. An alpha of 20 in the place of 1 takes as long and is better: with 64 factors NDCG@50 is .154 on
    Gowalla and .304 on ML10M (a tenth of the users)."""
    from implicit.als import AlternatingLeastSquares

    clock = Clock()
    model = AlternatingLeastSquares(
        factors=arguments.factors, iterations=15, num_threads=arguments.threads, use_gpu=False, random_state=0
    )
    with clock:
        model.fit(train, show_progress=False)
    yield clock, lambda users: model.user_factors[users] @ model.item_factors.T


def neighbours(train, arguments):
    from implicit.nearest_neighbours import BM25Recommender, TFIDFRecommender

    clock = Clock()
    model = {"tf-idf": TFIDFRecommender, "bm25": BM25Recommender}[arguments.model](K=100, num_threads=arguments.threads)
    with clock:
        model.fit(train, show_progress=False)
    likeness = scipy.sparse.csr_matrix(model.similarity)
    yield clock, lambda users: (train[users] @ likeness).toarray()


def ease(train, arguments):
    clock = Clock()
    with clock:
        gram = (train.T @ train).toarray().astype(numpy.float32)
        diagonal = numpy.diag_indices(len(gram))
        gram[diagonal] += 400.0
        weights = numpy.linalg.inv(gram)
        weights /= -numpy.diag(weights)
        weights[diagonal] = 0
    yield clock, lambda users: train[users] @ weights


def warp(train, arguments):
    from lightfm import LightFM

    clock = Clock()
    model = LightFM(no_components=arguments.factors, loss="warp", random_state=0)
    with clock:
        model.fit(train.tocoo(), epochs=30, num_threads=arguments.threads)
    items = model.item_embeddings.T
    yield clock, lambda users: model.user_embeddings[users] @ items + model.item_biases


def mult_vae(train, arguments):
    """Mult-VAE (Liang et al., 2018), 600-200 as published, until the processor seconds are spent; told of as it goes."""
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    n_items, (hidden, latent) = train.shape[1], (600, 200)
    starts, items = (torch.from_numpy(part.astype(numpy.int64)) for part in (train.indptr, train.indices))
    clock = Clock()

    class MultVae(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.EmbeddingBag(n_items, hidden, mode="sum")
            self.bias = torch.nn.Parameter(torch.zeros(hidden))
            self.head = torch.nn.Linear(hidden, 2 * latent)
            self.items = torch.nn.Linear(latent, n_items)
            torch.nn.init.normal_(self.encoder.weight, std=math.sqrt(2 / (n_items + hidden)))

        def forward(self, batch, dropout):
            lengths = starts[batch + 1] - starts[batch]
            offsets = torch.cumsum(lengths, 0) - lengths
            row = torch.repeat_interleave(torch.arange(len(batch)), lengths)
            history = items[torch.arange(len(row)) - offsets[row] + starts[batch][row]]
            weights = torch.nn.functional.dropout(lengths.float().rsqrt()[row], 0.5, training=dropout)
            inside = torch.tanh(self.encoder(history, offsets, per_sample_weights=weights) + self.bias)
            mean, log_variance = self.head(inside).chunk(2, dim=1)
            latent = mean + torch.randn_like(mean) * torch.exp(log_variance / 2) if dropout else mean
            return self.items(latent), mean, log_variance, row, history

    model = MultVae()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    users = torch.nonzero(starts[1:] > starts[:-1]).flatten()

    def scores(block):
        with torch.no_grad():
            return model(torch.from_numpy(block.astype(numpy.int64)), False)[0].numpy()

    step, told = 0, 0.0
    while clock.cpu_seconds < arguments.cut:
        with clock:
            for batch in users[torch.randperm(len(users))].split(500):
                logits, mean, log_variance, row, history = model(batch, True)
                likelihood = torch.log_softmax(logits, dim=1)[row, history].sum()
                divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
                beta = min(0.2, 0.2 * step / 20_000)
                optimizer.zero_grad(set_to_none=True)
                ((beta * divergence - likelihood) / len(batch)).backward()
                optimizer.step()
                step += 1
        # Told of each time that half as much again was spent.
        if clock.cpu_seconds > 1.5 * told or clock.cpu_seconds >= arguments.cut:
            told = clock.cpu_seconds
            yield clock, scores


MODELS = {"als": als, "tf-idf": neighbours, "bm25": neighbours, "ease": ease, "warp": warp, "mult-vae": mult_vae}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--cut", type=float, default=600.0, help="processor seconds after which mult-vae ends")
    arguments = parser.parse_args()
    train, test = (scipy.sparse.load_npz(path).tocsr() for path in (arguments.train, arguments.test))
    shape = tuple(max(sizes) for sizes in zip(train.shape, test.shape))
    for matrix in (train, test):
        matrix.resize(shape)
        matrix.data = numpy.ones(len(matrix.data), dtype=numpy.float32)
    points = []
    for clock, scores in MODELS[arguments.model](train, arguments):
        point = {"seconds": clock.seconds, "cpu_seconds": clock.cpu_seconds}
        points.append(point | accuracy(scores, train, test))
    print(json.dumps(points))


if __name__ == "__main__":
    main()
