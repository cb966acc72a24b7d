"""Recall and latency of known indexes on a model's own vectors, one thread, beside `benchmarks/serve`.

    python3 -m venv .venv && .venv/bin/pip install numpy faiss-cpu hnswlib
    .venv/bin/python benchmarks/search_baselines.py MODEL NAME

Queries are the model's, for 500 histories of 20 popular items. Each index is set as cheaply as reaches the recall
asked for (0.95 of the exact best 20); its latency is the mean of single queries. faiss' own multi-index (IMI) does not
search by inner product, so its inverted file stands here alone.
"""

import json
import pathlib
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


def queries(model):
    """The encoder's means for histories of 20 of the 1,000 most popular items."""
    latent = model["items"].shape[1]
    popular = np.argsort(-model["item_counts"].astype(np.int64), kind="stable")[:1000]
    histories = np.random.default_rng(7).choice(popular, (N_QUERIES, 20))
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


def cheapest(name, settings, set_to, search, asked, exact, build_seconds):
    """The first of the ascending settings that reaches the recall."""
    for setting in settings:
        set_to(setting)
        found, milliseconds = timed(search, asked)
        recall = np.mean([len(set(a) & set(b)) / K for a, b in zip(found, exact)])
        if recall >= TARGET:
            break
    return {"index": name, "setting": setting, "recall@20": round(float(recall), 4), "mean_ms": round(milliseconds, 4), "build_seconds": round(build_seconds, 1)}


def main():
    model = tensors(sys.argv[1])
    items = np.ascontiguousarray(model["items"])
    asked = queries(model)
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(items.shape[1])
    flat.add(items)
    exact, milliseconds = timed(lambda q: flat.search(q, K)[1], asked)
    rows = [{"index": "faiss Flat (exact)", "recall@20": 1.0, "mean_ms": round(milliseconds, 4)}]
    powers = [2**power for power in range(15)]

    lists = int(4 * np.sqrt(len(items)))
    name = f"IVF{lists},Flat"
    start = time.perf_counter()
    index = faiss.index_factory(items.shape[1], name, faiss.METRIC_INNER_PRODUCT)
    index.train(items)
    index.add(items)
    build = time.perf_counter() - start
    parameters = faiss.ParameterSpace()
    rows.append(cheapest(f"faiss {name}", powers, lambda n: parameters.set_index_parameter(index, "nprobe", n), lambda q: index.search(q, K)[1], asked, exact, build))

    start = time.perf_counter()
    graph = hnswlib.Index("ip", items.shape[1])
    graph.init_index(len(items), ef_construction=100, M=16)
    graph.add_items(items, num_threads=2)
    build = time.perf_counter() - start
    graph.set_num_threads(1)
    rows.append(cheapest("hnswlib M=16", [e for e in powers if e >= K], graph.set_ef, lambda q: graph.knn_query(q, K)[0], asked, exact, build))
    result = {"n_items": len(items), "latent": items.shape[1], "rows": rows}
    to = pathlib.Path(__file__).parent / "results" / "serve" / f"{sys.argv[2]}-baselines.json"
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(result, indent=2) + "\n")
    print(to.read_text())


main()
