"""What people use today, timed by the epoch: run by `benchmarks/speed` and `benchmarks/als` in a throw-away environment.

  peers.py MODEL DATA.npz --epochs N --threads N [--device cuda] [--test TEST.npz]     prints one JSON object

DATA.npz is a SciPy matrix, users x items. Each model learns from the same interactions on the same threads; what it builds
before its first epoch is not counted. With --test, the models of `implicit` are also tested on held-out items: NDCG and
recall at 50 over the users that have some, as `fastvae evaluate` defines them.
"""
import argparse
import json
import math
import os
import resource
import sys
import time


class Clock:
    """Wall and processor seconds of each epoch."""

    def __init__(self):
        self.epochs, self.cpu = [], []

    def __enter__(self):
        self.wall, self.processor = time.perf_counter(), time.process_time()

    def __exit__(self, *_):
        self.lap()

    def lap(self, *_):
        """Ends an epoch and begins the next; the libraries call it with what they know."""
        self.epochs.append(time.perf_counter() - self.wall)
        self.cpu.append(time.process_time() - self.processor)
        self.__enter__()


def mult_vae(matrix, arguments, clock):
    """Mult-VAE (Liang et al., 2018) with the full softmax and the paper's sizes and weight decay, as one writes it in PyTorch.

    The input layer is an embedding bag over the items that a user has, since a product with the dense row of 0 and 1
    would only be slower. The likelihood is taken from `log_softmax`, the quicker way; `torch-mult-vae-logsumexp` writes it
    as the formula says, the logit of each positive less the `logsumexp` of all.
    """
    import numpy
    import torch

    torch.set_num_threads(arguments.threads)
    torch.set_default_device(arguments.device)
    torch.manual_seed(0)
    n_users, n_items = matrix.shape
    starts, items = (
        torch.from_numpy(part.astype(numpy.int64)).to(arguments.device) for part in (matrix.indptr, matrix.indices)
    )

    class MultVae(torch.nn.Module):
        def __init__(self, hidden, latent):
            super().__init__()
            self.encoder = torch.nn.EmbeddingBag(n_items, hidden, mode="sum")
            self.bias = torch.nn.Parameter(torch.zeros(hidden))
            self.head = torch.nn.Linear(hidden, 2 * latent)
            self.items = torch.nn.Linear(latent, n_items, bias=False)
            torch.nn.init.normal_(self.encoder.weight, std=math.sqrt(2 / (n_items + hidden)))

        def forward(self, history, offsets, weights):
            hidden = torch.relu(self.encoder(history, offsets, per_sample_weights=weights) + self.bias)
            mean, log_variance = self.head(hidden).chunk(2, dim=1)
            latent = mean + torch.randn_like(mean) * torch.exp(log_variance / 2)
            return self.items(latent), mean, log_variance

    model = MultVae(arguments.hidden, arguments.latent)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=0.01)
    users = torch.nonzero(starts[1:] > starts[:-1]).flatten()
    for _ in range(arguments.epochs):
        with clock:
            for batch in users[torch.randperm(len(users))].split(256):
                lengths = starts[batch + 1] - starts[batch]
                offsets = torch.cumsum(lengths, 0) - lengths
                row = torch.repeat_interleave(torch.arange(len(batch)), lengths)
                history = items[torch.arange(len(row)) - offsets[row] + starts[batch][row]]
                weights = torch.nn.functional.dropout(lengths.float().rsqrt()[row], 0.5)
                logits, mean, log_variance = model(history, offsets, weights)
                if arguments.model == "torch-mult-vae-logsumexp":
                    likelihood = (logits[row, history] - torch.logsumexp(logits, dim=1)[row]).sum()
                else:
                    likelihood = torch.log_softmax(logits, dim=1)[row, history].sum()
                divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
                optimizer.zero_grad(set_to_none=True)
                (divergence - likelihood).backward()
                optimizer.step()
            if arguments.device != "cpu":
                torch.cuda.synchronize()


def als(matrix, arguments, clock):
    from implicit.als import AlternatingLeastSquares as Model

    return fit_implicit(Model, matrix, arguments, clock)


def bpr(matrix, arguments, clock):
    from implicit.bpr import BayesianPersonalizedRanking as Model

    return fit_implicit(Model, matrix, arguments, clock)


def fit_implicit(kind, matrix, arguments, clock):
    options = {"iterations": arguments.epochs, "num_threads": arguments.threads, "use_gpu": False, "random_state": 0}
    model = kind(factors=arguments.factors, **options)
    clock.__enter__()
    model.fit(matrix, show_progress=False, callback=clock.lap)
    return model


def accuracy(model, matrix, test, k=50):
    """Mean NDCG and recall of the k best items that a user does not have yet."""
    import numpy

    gains = 1 / numpy.log2(numpy.arange(2, k + 2))
    ideal = numpy.concatenate([[0], numpy.cumsum(gains)])
    users = numpy.flatnonzero(numpy.diff(test.indptr))
    found, _ = model.recommend(users, matrix[users], N=k, filter_already_liked_items=True)
    ndcg, recall = [], []
    for user, items in zip(users, found):
        held = test.indices[test.indptr[user] : test.indptr[user + 1]]
        hits = numpy.isin(items, held)
        ndcg.append((gains * hits).sum() / ideal[min(k, len(held))])
        recall.append(hits.sum() / len(held))
    return {f"ndcg@{k}": float(numpy.mean(ndcg)), f"recall@{k}": float(numpy.mean(recall))}


def warp(matrix, arguments, clock):
    from lightfm import LightFM

    model = LightFM(no_components=arguments.factors, loss="warp", random_state=0)
    entries = matrix.tocoo()
    for _ in range(arguments.epochs):
        with clock:
            model.fit_partial(entries, epochs=1, num_threads=arguments.threads)


MODELS = {"torch-mult-vae": mult_vae, "torch-mult-vae-logsumexp": mult_vae, "als": als, "bpr": bpr, "warp": warp}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--latent", type=int, default=32)
    parser.add_argument("--device", default="cpu", help="of PyTorch's models")
    parser.add_argument("--test", help="held-out items, for the models of implicit")
    arguments = parser.parse_args()

    import numpy
    import scipy.sparse

    matrix = scipy.sparse.load_npz(arguments.data).tocsr()
    matrix.data = numpy.ones(len(matrix.data), dtype=numpy.float32)
    clock = Clock()
    model = MODELS[arguments.model](matrix, arguments, clock)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    report = {"epochs": clock.epochs, "cpu_epochs": clock.cpu, "peak_rss_bytes": peak}
    if arguments.test:
        report |= accuracy(model, matrix, scipy.sparse.load_npz(arguments.test).tocsr())
    print(json.dumps(report))


if __name__ == "__main__":
    main()
