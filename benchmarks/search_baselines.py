"""Recall against exact and latency of a model's own search, beside known indexes on the same vectors, one thread each.

    python3 -m venv .venv && .venv/bin/pip install numpy faiss-cpu hnswlib
    .venv/bin/python benchmarks/search_baselines.py MODEL NAME [flags of `fastvae serve`]

Queries are the model's, for 500 histories of 20 popular items. Each index is set as cheaply as reaches the recall
asked for (0.95 of the exact best 20); its latency is the mean of single queries. The service's is the time inside its
handler, encoder and names included. faiss' multi-index (IMI) measures by distance alone, so it is given vectors with one
more column that makes distances order as inner products do.
"""

import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import faiss
import hnswlib
import numpy as np

K, TARGET, N_QUERIES = 20, 0.95, 500


def tensors(path):
    """The arrays of a safetensors file, mapped."""
    raw = np.memmap(path, np.uint8, "r")
    length = int.from_bytes(raw[:8].tobytes(), "little")
    header = json.loads(raw[8 : 8 + length].tobytes())
    kinds = {"F32": np.float32, "U32": np.uint32, "U64": np.uint64, "I64": np.int64, "U8": np.uint8}
    body = raw[8 + length :]
    return {
        name: body[slice(*entry["data_offsets"])].view(kinds[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def sampled_histories(model):
    """Histories of 20 of the 1,000 most popular items."""
    popular = np.argsort(-model["item_counts"].astype(np.int64), kind="stable")[:1000]
    return np.random.default_rng(7).choice(popular, (N_QUERIES, 20))


def queries(model, histories):
    """The encoder's means for the histories."""
    latent = model["items"].shape[1]
    state = np.stack([model["encoder"][np.unique(h)].sum(0) / np.sqrt(len(np.unique(h))) for h in histories])
    hidden = np.maximum(0, state + model["hidden_bias"])
    return np.ascontiguousarray(hidden @ model["head"][:, :latent] + model["head_bias"][:latent], np.float32)


def timed(search, asked):
    """Ids of every query and the mean milliseconds of one."""
    for query in asked[:20]:
        search(query[None])
    start = time.perf_counter()
    found = [search(query[None]) for query in asked]
    return np.concatenate(found), (time.perf_counter() - start) / len(asked) * 1e3


def recall_of(found, exact):
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(found, exact)]))


def cheapest(name, settings, set_to, search, asked, exact, build_seconds):
    """The first of the ascending settings that reaches the recall."""
    for setting in settings:
        set_to(setting)
        found, milliseconds = timed(search, asked)
        recall = recall_of(found, exact)
        if recall >= TARGET:
            break
    return {"index": name, "setting": setting, "recall@20": round(recall, 4), "mean_ms": round(milliseconds, 4), "build_seconds": round(build_seconds, 1)}


class Service:
    """`fastvae serve` with one thread that computes."""

    def __init__(self, binary, path, *flags):
        command = [binary, "-q", "serve", path, "--port", "0", "--threads", "1", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        address = re.search(r"http://([0-9.:]+)", self.process.stdout.readline())[1]
        self.connection = http.client.HTTPConnection(address)

    def get(self, path):
        self.connection.request("GET", path)
        return self.connection.getresponse().read().decode()

    def recommend(self, history, approximate):
        body = {"history": history, "n": K, "exclude_seen": False, "approximate": approximate}
        self.connection.request("POST", "/v1/recommend", json.dumps(body), {"content-type": "application/json"})
        answer = json.loads(self.connection.getresponse().read())
        return [entry["item"] for entry in answer["recommendations"]]

    def times(self):
        """Sum, count and cumulative buckets of the time inside the handler."""
        text = self.get("/metrics")
        value = lambda name: float(re.search(rf"^fastvae_compute_seconds_{name} (\S+)", text, re.M)[1])
        buckets = re.findall(r'^fastvae_compute_seconds_bucket\{le="([0-9.e-]+)"\} (\d+)', text, re.M)
        return value("sum"), value("count"), {float(end): int(count) for end, count in buckets}

    def row(self, name, histories, exact, approximate=False):
        for history in histories[:20]:
            self.recommend(history, approximate)
        before = self.times()
        found = [self.recommend(history, approximate) for history in histories]
        after = self.times()
        count = after[1] - before[1]
        row = {"index": name, "recall@20": round(recall_of(found, exact), 4), "mean_ms": round((after[0] - before[0]) / count * 1e3, 4)}
        row["p50_ms"] = round(median({end: after[2][end] - before[2][end] for end in after[2]}, count) * 1e3, 3)
        row["resident_mb"] = round(float(re.search(r"^fastvae_resident_bytes (\S+)", self.get("/metrics"), re.M)[1]) / 1e6)
        return row

    def stop(self):
        self.process.terminate()
        self.process.wait()


def median(buckets, count):
    """The middle of cumulative buckets, on a straight line inside the one that holds it."""
    start, below = 0.0, 0
    for end, up_to in sorted(buckets.items()):
        if up_to >= count / 2:
            return start + (end - start) * (count / 2 - below) / max(1, up_to - below)
        start, below = end, up_to
    return start


def item_names(model):
    """The outside names of the items, as the service writes them."""
    if "item_ids.integers" in model:
        return [str(name) for name in model["item_ids.integers"]]
    if "item_ids.bytes" in model:
        text, ends = model["item_ids.bytes"].tobytes(), model["item_ids.ends"].astype(np.int64)
        return [text[start:end].decode() for start, end in zip(np.concatenate([[0], ends[:-1]]), ends)]
    return [str(name) for name in range(len(model["item_counts"]))]


def service_rows(binary, path, model, histories, exact, more=()):
    """The service: every item, every item as bytes, and over the index."""
    names = item_names(model)
    named = [[names[item] for item in history] for history in histories]
    wanted = [[names[item] for item in best] for best in exact]
    rows = []
    for flags, kinds in ([], [("exact", False), ("approximate", True)]), (["--vectors", "int8"], [("exact, int8", False)]):
        service = Service(binary, path, *flags, *more)
        search = json.loads(service.get("/v1/model"))["search"]
        for name, approximate in kinds:
            rows.append(service.row(f"fastvae serve ({name})", named, wanted, approximate))
            if approximate:
                rows[-1]["setting"] = search["cells"]
        service.stop()
    return rows


def inverted_file(name, items, asked, exact, metric):
    start = time.perf_counter()
    index = faiss.index_factory(items.shape[1], name, metric)
    index.train(items)
    index.add(items)
    build = time.perf_counter() - start
    set_to = lambda probes: faiss.ParameterSpace().set_index_parameter(index, "nprobe", probes)
    return cheapest(f"faiss {name}", [2**power for power in range(15)], set_to, lambda q: index.search(q, K)[1], asked, exact, build)


def by_distance(items, asked):
    """Vectors and queries whose distances order as the inner products do: all vectors get one length."""
    squares = (items.astype(np.float64) ** 2).sum(1)
    more = np.sqrt(squares.max() - squares)
    # Two columns, so that the halves of a multi-index are as long.
    longer = np.column_stack([items, more, np.zeros(len(items))])
    return longer.astype(np.float32), np.column_stack([asked, np.zeros((len(asked), 2))]).astype(np.float32)


def main():
    path, name = sys.argv[1:3]
    binary = os.environ.get("FASTVAE", pathlib.Path(__file__).parent.parent / "target/release/fastvae")
    model = tensors(path)
    items = np.ascontiguousarray(model["items"])
    histories = sampled_histories(model)
    asked = queries(model, histories)
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(items.shape[1])
    flat.add(items)
    exact, milliseconds = timed(lambda q: flat.search(q, K)[1], asked)
    rows = service_rows(binary, path, model, histories, exact, sys.argv[3:])
    rows.append({"index": "faiss Flat (exact)", "recall@20": 1.0, "mean_ms": round(milliseconds, 4)})
    lists = int(4 * np.sqrt(len(items)))
    rows.append(inverted_file(f"IVF{lists},Flat", items, asked, exact, faiss.METRIC_INNER_PRODUCT))
    bits = 6 if len(items) < 300_000 else 7
    rows.append(inverted_file(f"IMI2x{bits},Flat", *by_distance(items, asked), exact, faiss.METRIC_L2))

    start = time.perf_counter()
    graph = hnswlib.Index("ip", items.shape[1])
    graph.init_index(len(items), ef_construction=100, M=16)
    graph.add_items(items, num_threads=2)
    build = time.perf_counter() - start
    graph.set_num_threads(1)
    beams = [2**power for power in range(15) if 2**power >= K]
    rows.append(cheapest("hnswlib M=16", beams, graph.set_ef, lambda q: graph.knn_query(q, K)[0], asked, exact, build))
    result = {"n_items": len(items), "latent": items.shape[1], "flags": " ".join(sys.argv[3:]), "rows": rows}
    to = pathlib.Path(__file__).parent / "results" / "serve" / f"{name}-search.json"
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(result, indent=2) + "\n")
    print(to.read_text())


if __name__ == "__main__":
    main()
