"""Lists: shapes, filters, identifiers, against slow computations in NumPy."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import warnings
from pathlib import Path
from typing import Any

import fastvae_cf as fastvae
import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conftest import SMALL


def oracle(model: fastvae.Recommender, seen: Any, n: int) -> Any:
    """The best items by the vectors, without what was seen."""
    scores = model.user_factors @ model.item_factors.T
    scores[seen.toarray() > 0] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :n], scores


def test_shapes_and_types_are_those_of_implicit(model: fastvae.FastVAE, parts: Any) -> None:
    train, _ = parts
    ids, scores = model.recommend(3, train[3], N=7)
    assert (ids.shape, ids.dtype, scores.shape, scores.dtype) == ((7,), np.int32, (7,), np.float32)
    users = np.array([3, 8, 9])
    ids, scores = model.recommend(users, train[users], N=7)
    assert (ids.shape, ids.dtype, scores.shape, scores.dtype) == ((3, 7), np.int32, (3, 7), np.float32)
    assert np.array_equal(ids[0], model.recommend(3, train[3], N=7)[0])


def test_lists_are_the_best_scores_of_the_vectors(model: fastvae.FastVAE, parts: Any) -> None:
    train, _ = parts
    ids, scores = model.recommend(np.arange(train.shape[0]), train, N=20)
    expected, all_scores = oracle(model, train, 20)
    assert np.allclose(np.take_along_axis(all_scores, expected, 1), scores, atol=1e-4)
    assert (ids == expected).mean() > 0.999
    assert (np.diff(scores, axis=1) <= 0).all()


def test_the_training_data_are_the_default_history(model: fastvae.FastVAE, parts: Any) -> None:
    train, _ = parts
    assert np.array_equal(model.recommend([4, 5])[0], model.recommend([4, 5], train[[4, 5]])[0])
    other = model.recommend([4], train[[5]], filter_already_liked_items=False)[0]
    assert np.array_equal(other[0], model.recommend(5, filter_already_liked_items=False)[0])
    assert np.array_equal(model.recommend(history=train[4].indices)[0], model.recommend(4)[0])
    both = model.recommend(history=[train[4].indices, list(train[5].indices)])[0]
    assert np.array_equal(both, model.recommend([4, 5])[0])


def test_filters_hold(model: fastvae.FastVAE, parts: Any) -> None:
    train, _ = parts
    seen = set(train[3].indices)
    best = model.recommend(3, N=10)[0]
    assert not seen & set(best)
    assert seen & set(model.recommend(3, N=100, filter_already_liked_items=False)[0])
    without = model.recommend(3, N=10, filter_items=best[:4])[0]
    assert not set(without) & set(best[:4]) and np.array_equal(without[:6], best[4:])
    only = model.recommend(3, N=10, items=best[::-1][:5])[0]
    assert np.array_equal(only, best[5:])
    for users in ([3], [3, 4]):
        few = [*list(seen)[:2], int(best[0])]
        ids, scores = model.recommend(users, N=10, items=few)
        assert ids.shape == (len(users), 3)
        assert ids[0].tolist() == [best[0], -1, -1] and scores[0, 1] == np.finfo(np.float32).min
    assert model.recommend(3, N=10, items=[int(best[0]), *seen])[0].tolist() == [best[0]]
    assert model.recommend(3, N=0)[0].size == 0
    assert model.recommend(3, N=10_000)[0].size == model.n_items - len(seen)


def test_wrong_questions_are_errors_of_the_right_type(model: fastvae.FastVAE, parts: Any) -> None:
    train, _ = parts
    with pytest.raises(IndexError, match="user 5000 is out of range"):
        model.recommend(5000)
    with pytest.raises(IndexError, match="user -1"):
        model.recommend(-1)
    with pytest.raises(IndexError, match="item 300"):
        model.similar_items(300)
    with pytest.raises(IndexError, match="item 300"):
        model.recommend(3, filter_items=[300])
    with pytest.raises(IndexError, match="item 300"):
        model.explain(3, 300)
    with pytest.raises(ValueError, match="1 row for every user"):
        model.recommend(3, train)
    with pytest.raises(ValueError, match="200 items, not the 300"):
        model.recommend(3, train[3, :200])
    with pytest.raises(ValueError, match="either userid or history"):
        model.recommend()
    with pytest.raises(ValueError, match="N is -1"):
        model.recommend(3, N=-1)
    with pytest.raises(AttributeError, match="no item vectors"):
        _ = fastvae.EASE().fit(train, show_progress=False).item_factors


def test_similar_items_are_cosines_with_the_item_first(model: fastvae.FastVAE) -> None:
    vectors = model.item_factors / np.linalg.norm(model.item_factors, axis=1, keepdims=True)
    expected = vectors @ vectors.T
    ids, scores = model.similar_items([5, 9], N=12)
    assert ids[:, 0].tolist() == [5, 9]
    for row, item in enumerate([5, 9]):
        order = np.sort(expected[item])[::-1][:12]
        assert np.allclose(scores[row], order, atol=1e-5)
        assert np.allclose(expected[item][ids[row]], scores[row], atol=1e-5)
    single = model.similar_items(5, N=4, filter_items=[5, ids[0, 1]])[0]
    assert np.array_equal(single, ids[0, 2:6])
    assert np.array_equal(model.similar_items(5, items=ids[0, 6:9])[0], ids[0, 6:9])


def test_similar_users_are_cosines(model: fastvae.FastVAE) -> None:
    vectors = model.user_factors / np.linalg.norm(model.user_factors, axis=1, keepdims=True)
    ids, scores = model.similar_users([7, 30], N=9)
    for row, user in enumerate([7, 30]):
        assert ids[row, 0] == user
        assert np.allclose(scores[row], np.sort(vectors @ vectors[user])[::-1][:9], atol=1e-5)
    assert np.array_equal(model.similar_users(7, N=9)[0], ids[0])


def test_reasons_are_what_leaving_out_takes_away(model: fastvae.FastVAE, parts: Any) -> None:
    history = parts[0][3].indices.tolist()
    ids, scores = model.recommend(history=history, N=1)
    reasons = model.explain(history, ids[0], N=100)
    assert reasons == model.explain(3, ids[0], N=100)
    assert abs(sum(reason.share for reason in reasons) - 1) < 1e-4
    for reason in reasons[:5]:
        rest = [item for item in history if item != reason.item]
        without = model.recommend(history=rest, N=1, items=[ids[0]])[1][0]
        assert abs(scores[0] - without - reason.contribution) < 1e-3


def test_strings_in_strings_out(parts: Any) -> None:
    coo = parts[0].tocoo()
    frame = pd.DataFrame({"user": [f"u{u}" for u in coo.row], "item": [f"i{i}" for i in coo.col]})
    model = fastvae.FastVAE(**SMALL).fit(frame, show_progress=False)
    ids, _ = model.recommend("u3", N=4)
    assert all(isinstance(item, str) and item.startswith("i") for item in ids)
    many, _ = model.recommend(["u3", "u4"], N=4)
    assert many[0].tolist() == ids.tolist()
    assert model.recommend(["u3"], N=4, items=[ids[0], *frame.item[frame.user == "u3"][:1]])[0].tolist() == [
        [ids[0], None]
    ]
    assert model.similar_items(ids[0], N=2)[0][0] == ids[0]
    assert model.similar_users("u3", N=2)[0][0] == "u3"
    assert model.explain("u3", ids[0])[0].item in set(frame.item[frame.user == "u3"])
    assert model.user_ids_[0] == frame.user[0] and set(model.item_ids_) == set(frame.item)
    by_frame, _ = model.recommend("u3", frame[frame.user == "u3"], N=4)
    assert by_frame.tolist() == ids.tolist()
    with pytest.warns(UserWarning, match="1 items of the history are not known: zebra"):
        assert model.recommend(history=[ids[0], "zebra"], N=3)[0].size == 3
    with pytest.raises(KeyError, match="unknown item 'zebra'"):
        model.similar_items("zebra")
    with pytest.raises(KeyError, match="unknown user 'nobody'"):
        model.recommend("nobody")


def test_tables_are_read_as_at_fit(parts: Any) -> None:
    coo = parts[0].tocoo()
    frame = pd.DataFrame({"who": [f"u{u}" for u in coo.row], "what": [f"i{i}" for i in coo.col]})
    model = fastvae.ItemKNN().fit(frame, show_progress=False, user_col="who", item_col="what")
    assert model.recommend("u3", frame, N=4)[0].tolist() == model.recommend("u3", N=4)[0].tolist()
    assert fastvae.evaluate(model, frame, frame, ["ndcg@5"])["ndcg@5"] == 0, "what is known is not ranked"


def best_by(scores: Any, seen: Any, n: int) -> list[int]:
    scores = np.where(seen, -np.inf, scores)
    order: list[int] = np.argsort(-scores, kind="stable")[:n].tolist()
    return order


def test_knobs_are_those_of_the_library(model: fastvae.FastVAE, parts: Any) -> None:
    train, _ = parts
    seen = train[3].toarray()[0] > 0
    plain = model.user_factors[3] @ model.item_factors.T
    fewer = plain - 0.5 * np.log1p(model.item_counts_)
    ids, scores = model.recommend(3, N=10, popularity_penalty=0.5)
    assert ids.tolist() == best_by(fewer, seen, 10) and np.allclose(scores, fewer[ids], atol=1e-4)
    assert model.recommend(3, N=10, popularity_penalty=0.0)[0].tolist() == best_by(plain, seen, 10)
    vectors = model.item_factors / np.linalg.norm(model.item_factors, axis=1, keepdims=True)

    def alikeness(ids: Any) -> float:
        return float((vectors[ids] @ vectors[ids].T).mean())

    assert alikeness(model.recommend(3, N=10, diversity=0.8)[0]) < alikeness(model.recommend(3, N=10)[0])
    drawn = [model.recommend(3, N=10, temperature=2.0, seed=seed)[0].tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and not set(drawn[0]) & set(np.flatnonzero(seen))
    knobs: dict[str, Any] = {"popularity_penalty": 0.3, "diversity": 0.4, "temperature": 0.5, "seed": 7}
    many = model.recommend([3, 4, 5], train[[3, 4, 5]], N=6, filter_items=[1, 2], **knobs)[0]
    single = [model.recommend(user, N=6, filter_items=[1, 2], **knobs)[0].tolist() for user in (3, 4, 5)]
    assert many.tolist() == single
    for name, value in (("popularity_penalty", 3), ("diversity", 2), ("temperature", -1)):
        with pytest.raises(ValueError, match=f"`{name}`: is {value}; give 0 to"):
            model.recommend(3, **{name: value})


def test_approximate_lists_say_so(model: fastvae.FastVAE, parts: Any) -> None:
    found = model.ask([3, 4], N=5, approximate=True)
    assert found.is_approximate == [True, True]
    exact = np.concatenate([model.user_factors[[user]] @ model.item_factors[found.items[row]].T for row, user in enumerate([3, 4])])
    assert np.allclose(found.scores, exact, atol=1e-4), "what is found has its exact score"
    assert model.ask(3, N=5, approximate=True).items.tolist() == found.items[0].tolist()
    assert model.ask(3, N=5).is_approximate is False
    ease = fastvae.EASE().fit(parts[0], show_progress=False)
    assert ease.ask(3, approximate=True).is_approximate is False, "there is no index over what is not a vector"


@pytest.mark.parametrize("method", ["FastVAE", "EASE", "ALS", "ItemKNN", "BPR", "Popularity"])
def test_nobody_gets_the_answer_to_nobody_or_what_is_popular(method: str, model: Any, parts: Any) -> None:
    if method != "FastVAE":
        model = getattr(fastvae, method)().fit(parts[0], show_progress=False)
    nothing = sp.csr_matrix((2, 300), dtype=np.float32)
    popular = np.argsort(-model.item_counts_, kind="stable")[:5].tolist()
    own = method == "FastVAE"
    with pytest.warns(UserWarning, match="2 items of the history are not known: 900, 901"):
        unknown = model.ask(history=[900, 901], N=5)
    for answer in (model.ask(history=[], N=5), model.ask(9000, nothing[:1], N=5), unknown):
        assert answer.fallback == ("nobody" if own else "popularity")
        assert own or answer.items.tolist() == popular
        assert own or answer.scores.tolist() == model.item_counts_[popular].tolist()
    both = model.ask([9000, 9001], nothing, N=5)
    assert both.fallback == [answer.fallback] * 2 and both.items.tolist() == [answer.items.tolist()] * 2
    assert model.recommend(history=[], N=5)[0].tolist() == answer.items.tolist()
    assert model.ask([3, 4], N=5).fallback == [None, None]


@pytest.mark.parametrize("method", ["FastVAE", "EASE", "ALS", "ItemKNN"])
def test_weights_of_histories_count(method: str, model: Any, parts: Any) -> None:
    if method != "FastVAE":
        model = getattr(fastvae, method)().fit(parts[0], show_progress=False)
    weighted = {8: 1.0, 3: 20.0, 5: 1.0}
    row = sp.csr_matrix((list(weighted.values()), ([0] * 3, list(weighted))), shape=(1, 300), dtype=np.float32)
    ids, scores = model.recommend(history=weighted, N=10)
    for again in (
        model.recommend(9000, row, N=10),
        [part[0] for part in model.recommend([9000], row, N=10)],
        [part[1] for part in model.recommend(history=[{1: 1.0}, weighted], N=10)],
    ):
        assert again[0].tolist() == ids.tolist() and np.allclose(again[1], scores, rtol=1e-4)
    assert not np.allclose(model.recommend(history=[8, 3, 5], N=10)[1], scores, rtol=1e-3)
    reasons = model.explain(weighted, ids[0], N=5)
    without = model.recommend(history={8: 1.0, 5: 1.0}, items=[ids[0]])[1][0]
    by_item = {reason.item: reason.contribution for reason in reasons}
    if 3 in by_item:
        assert by_item[3] == pytest.approx(scores[0] - without, rel=1e-3, abs=1e-4)


def test_reasons_of_every_list(model: fastvae.FastVAE, parts: Any) -> None:
    for of in (model, fastvae.EASE().fit(parts[0], show_progress=False), fastvae.ALS(factors=8).fit(parts[0], show_progress=False)):
        answer = of.ask([3, 4], N=4, reasons=3)
        assert answer.titles is None and answer.items.shape == (2, 4)
        for row, user in enumerate([3, 4]):
            assert answer.reasons[row] == [of.explain(user, item, N=3) for item in answer.items[row]]
            assert all(reason.item in set(parts[0][user].indices) for each in answer.reasons[row] for reason in each)
    assert model.ask(3, N=4).reasons == []


def command_line() -> str | None:
    built = Path(__file__).parents[3] / "target" / "debug" / "fastvae"
    return os.environ.get("FASTVAE_BINARY") or (str(built) if built.exists() else None)


def told(*arguments: Any) -> Any:
    """What the command line prints as JSON."""
    done = subprocess.run([command_line() or "", *map(str, arguments), "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


CONTRACT: list[dict[str, Any]] = [
    {},
    {"n": 30, "keep-seen": True},
    {"exclude": ["i2", "i4", "i6"], "popularity-penalty": 0.4},
    {"only": ["i1", "i3", "i5", "i7", "i9", "i30"], "diversity": 0.5},
    {"temperature": 0.7, "seed": 5, "popularity-penalty": 0.1},
    {"approximate": True},
]


@pytest.mark.parametrize("method", ["FastVAE", "ItemKNN", "ALS", "EASE"])
def test_every_face_gives_the_same_lists(method: str, parts: Any, tmp_path: Path) -> None:
    coo = parts[0].tocoo()
    frame = pd.DataFrame({"user": [f"u{u}" for u in coo.row], "item": [f"i{i}" for i in coo.col], "count": 1 + coo.row % 3})
    settings = SMALL | {"epochs": 5} if method == "FastVAE" else {}
    titles = {f"i{item}": f"Film {item}" for item in range(300)}
    model = getattr(fastvae, method)(**settings).fit(frame, weight_col="count", titles=titles, show_progress=False)
    path = tmp_path / "model.fastvae"
    model.save(path, users=True)
    loaded = fastvae.load(path)
    if command_line() is None:
        print("skipped: the command line: FASTVAE_BINARY names none and target/debug/fastvae is not built")
    history = {"i8": 4.0, "i3": 1.0, "i5": 9.0}
    for wanted in CONTRACT:
        asked: dict[str, Any] = {
            "N": wanted.get("n", 10),
            "filter_items": wanted.get("exclude"),
            "items": wanted.get("only"),
            "filter_already_liked_items": "keep-seen" not in wanted,
            "popularity_penalty": wanted.get("popularity-penalty", 0.0),
            "diversity": wanted.get("diversity", 0.0),
            "temperature": wanted.get("temperature", 0.0),
            "seed": wanted.get("seed", 0),
            "approximate": wanted.get("approximate", False),
        }
        flags: list[str] = []
        for name, value in wanted.items():
            flags += [f"--{name}" if len(name) > 1 else f"-{name}"]
            flags += [] if value is True else [",".join(value) if isinstance(value, list) else str(value)]
        weights = ",".join(str(weight) for weight in history.values())
        for who, words in (
            ({"history": history}, ["--history", ",".join(history), "--weights", weights]),
            ({"history": list(history)}, ["--history", ",".join(history)]),
            ({"userid": "u7"}, ["--user", "u7"]),
        ):
            answer = model.ask(**who, **asked, reasons=3)
            assert loaded.ask(**who, **asked, reasons=3).items.tolist() == answer.items.tolist()
            several = {name: [value, value] if name == "userid" else [value] * 2 for name, value in who.items()}
            assert [row[: len(answer.items)].tolist() for row in model.recommend(**several, **asked)[0]] == [answer.items.tolist()] * 2
            if command_line() is None:
                continue
            listed = told("recommend", path, *words, *flags, "--explain")
            assert [item["item"] for item in listed["items"]] == answer.items.tolist(), (who, wanted)
            assert [item["title"] for item in listed["items"]] == answer.titles.tolist()
            assert np.allclose([item["score"] for item in listed["items"]], answer.scores, rtol=1e-5)
            assert listed["is_approximate"] == answer.is_approximate and listed["fallback"] == answer.fallback
            because = [[reason["item"] for reason in item["because"]] for item in listed["items"]]
            assert because == [[reason.item for reason in reasons] for reasons in answer.reasons]


@pytest.mark.skipif(command_line() is None, reason="the command line is not built")
def test_files_are_those_of_the_command_line(model: fastvae.FastVAE, parts: Any, tmp_path: Path) -> None:
    program = command_line()
    assert program is not None
    ours, theirs, data = tmp_path / "ours.fastvae", tmp_path / "theirs.fastvae", tmp_path / "plays.tsv"
    model.save(ours, users=True)
    listed = told("recommend", ours, "--user", "3", "-n", "5")["items"]
    assert [int(item["item"]) for item in listed] == model.recommend(3, N=5)[0].tolist()
    coo = parts[0].tocoo()
    data.write_text("".join(f"{user}\t{item}\n" for user, item in zip(coo.row, coo.col, strict=True)))
    network_alone = {"ridge.weight": SMALL["ridge"]["weight"]}
    flat = {key: value for key, value in SMALL.items() if key != "ridge"} | network_alone
    settings = [word for key, value in flat.items() for word in ("--set", f"{key}={value}")]
    trained = [program, "-q", "train", data, "-o", theirs, "--store-users", *settings]
    subprocess.run(trained, check=True, capture_output=True)
    loaded = fastvae.load(theirs)
    # The same data, settings and seed: the same parameters, bit for bit.
    assert np.array_equal(loaded.item_factors, fastvae.FastVAE(**SMALL).fit(data, show_progress=False).item_factors)
    assert repr(loaded) == repr(model)


def test_integers_that_are_no_positions_are_identifiers() -> None:
    users, items = np.repeat(np.arange(40), 6) * 7 + 100, np.tile(np.arange(24), 10) * 5 + 1000
    model = fastvae.ItemKNN().fit((users, items), show_progress=False)
    ids, _ = model.recommend(107, N=3)
    assert ids.dtype == np.int64 and np.isin(ids, items).all()
    assert not set(ids) & set(items[users == 107])


@pytest.mark.parametrize("baseline", ["Popularity", "ItemKNN", "EASE", "ALS", "BPR", "WARP", "AOBPR", "DNS", "PRIS", "SA"])
def test_baselines_answer_the_same_calls(baseline: str, parts: Any, tmp_path: Path) -> None:
    train, test = parts
    model = getattr(fastvae, baseline)()
    if "epochs" in model.get_params():
        model.set_params(epochs=25, batch=128)
    model.fit(train, show_progress=False)
    users = np.arange(train.shape[0])
    ids, scores = model.recommend(users, train, N=20)
    assert not any(set(ids[user]) & set(train[user].indices) for user in range(50))
    hits = np.mean([np.isin(ids[user], test[user].indices).sum() / max(1, test[user].nnz) for user in users])
    assert abs(fastvae.evaluate(model, train, test, ["recall@20"])["recall@20"] - hits) < 1e-9
    floor = 0.05 if baseline == "Popularity" else 0.3
    assert hits > floor, hits
    path = tmp_path / "baseline.fastvae"
    model.save(path, users=True)
    loaded = fastvae.load(path)
    # What the library chose in place of None stands in the file.
    given = {key: value for key, value in model.get_params().items() if value is not None}
    assert type(loaded) is type(model) and loaded.get_params() | given == loaded.get_params()
    assert np.array_equal(loaded.recommend(users, train, N=20)[0], ids)
    if baseline == "Popularity":
        with pytest.raises(ValueError):
            model.similar_items(1)
    else:
        assert model.similar_items(1, N=3)[0][0] == 1
    if baseline in ("BPR", "ALS"):
        assert np.allclose((model.user_factors @ model.item_factors.T)[0, ids[0]], scores[0], atol=1e-3)
    if baseline == "BPR":
        with pytest.raises(ValueError):
            model.recommend(history=[1, 2])


def test_files_and_pickles_keep_the_model(model: fastvae.FastVAE, tmp_path: Path) -> None:
    expected = model.recommend(np.arange(50), N=10)
    path = tmp_path / "model.fastvae"
    model.save(path, users=True)
    assert path.read_bytes()[8:9] == b"{", "safetensors: data only"
    joblib.dump(model, tmp_path / "model.joblib")
    copies = [fastvae.load(path), pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")]
    for copied in copies:
        assert isinstance(copied, fastvae.FastVAE)
        ids, scores = copied.recommend(np.arange(50), N=10)
        assert np.array_equal(ids, expected[0]) and np.array_equal(scores, expected[1])
        assert copied.history_ == model.history_
        assert repr(copied) == repr(model)
    model.save(path)
    bare = fastvae.load(path)
    with pytest.raises(ValueError, match="save with users=True"):
        bare.recommend(3)
    assert bare.recommend(history=[1, 2], N=3)[0].size == 3
    assert pickle.loads(pickle.dumps(bare)).recommend(history=[1, 2], N=3)[0].size == 3
    unfitted = pickle.loads(pickle.dumps(fastvae.FastVAE(latent=4)))
    assert repr(unfitted) == "FastVAE(latent=4)"


def test_damaged_files_are_value_errors(model: fastvae.FastVAE, tmp_path: Path) -> None:
    path = tmp_path / "model.fastvae"
    model.save(path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not a model at all"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="model.fastvae"):
            fastvae.load(path)
    with pytest.raises(FileNotFoundError):
        fastvae.load(tmp_path / "absent.fastvae")
    with pytest.raises((FileNotFoundError, NotADirectoryError)):
        model.save(tmp_path / "absent" / "model.fastvae")


def test_no_warning_comes_from_plain_use(model: fastvae.FastVAE, parts: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.recommend(3, parts[0][3])
        model.plot()
