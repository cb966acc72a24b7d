"""Every form of input gives the same model."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import fastvae_cf as fastvae
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from fastvae_cf._data import interactions


def columns(matrix: Any) -> tuple[Any, Any, Any]:
    coo = matrix.tocoo()
    return coo.row, coo.col, coo.data


def same(a: fastvae.Interactions, b: fastvae.Interactions) -> bool:
    difference = abs(a.to_csr() - b.to_csr())
    return a.shape == b.shape and difference.nnz == 0 and a.user_ids == b.user_ids and a.item_ids == b.item_ids


@pytest.fixture(scope="module")
def weighted() -> Any:
    random = np.random.default_rng(3)
    matrix = sp.random(60, 40, density=0.3, format="csr", random_state=random, dtype=np.float32)
    matrix.data = np.ceil(matrix.data * 4).astype(np.float32)
    return matrix


def test_matrices_survive_the_round_trip(weighted: Any) -> None:
    for kind in (sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array):
        for dtype in (np.float32, np.float64, np.int8, np.uint64):
            found = interactions(kind(weighted.astype(dtype))).to_csr()
            assert (found != weighted).nnz == 0
    long = weighted.copy()
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    assert (interactions(long).to_csr() != weighted).nnz == 0
    assert (interactions(weighted.toarray()).to_csr() != weighted).nnz == 0


def test_untidy_matrices_mean_what_scipy_means(weighted: Any) -> None:
    # Unsorted, repeated and explicit zero entries, against SciPy's own tidying.
    coo = weighted.tocoo()
    random = np.random.default_rng(0)
    order = random.permutation(2 * coo.nnz)
    row, column, data = (np.tile(a, 2)[order] for a in (coo.row, coo.col, coo.data))
    data[::7] = 0
    untidy = sp.csr_matrix((60, 40), dtype=np.float32)
    by_row = np.argsort(row, kind="stable")
    untidy.indices, untidy.data = column[by_row].astype(np.int32), data[by_row]
    untidy.indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=60))]).astype(np.int32)
    tidy = untidy.copy()
    tidy.sum_duplicates()
    tidy.eliminate_zeros()
    found = interactions(untidy).to_csr()
    assert found.nnz == tidy.nnz and abs(found - tidy).max() < 1e-6


def test_damaged_matrices_are_value_errors(weighted: Any) -> None:
    for change in ("indices", "indptr"):
        damaged = weighted.copy()
        getattr(damaged, change)[3] = 10_000
        with pytest.raises(ValueError, match="10000"):
            interactions(damaged)
    nan = weighted.copy()
    nan.data[5] = np.nan
    with pytest.raises(ValueError, match="finite"):
        interactions(nan)


def test_frames_columns_and_files_agree(weighted: Any, tmp_path: Path) -> None:
    users, items, weights = columns(weighted)
    # Identifiers that are no positions.
    users, items = users * 10 + 5, items * 3 + 1
    expected = interactions((users, items, weights))
    frame = pd.DataFrame({"who": users, "what": items, "much": weights})
    chosen = fastvae._data.Columns("who", "what", "much")
    path, parquet = tmp_path / "plays.csv", tmp_path / "plays.parquet"
    frame.to_csv(path, index=False)
    frame.to_parquet(parquet)
    for form in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), path, str(path), parquet):
        assert same(interactions(form, chosen), expected), type(form)

    class OnlyArrow:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.Table.from_pandas(frame).__arrow_c_stream__(requested_schema)

    assert same(interactions(OnlyArrow(), chosen), expected)


def test_strings_stay_strings_in_every_frame() -> None:
    data = {"user": ["b", "a", "b", "c"], "item": ["10", "9", "10", "x"]}
    forms = [
        pd.DataFrame(data),
        pd.DataFrame(data).astype("category"),
        pl.DataFrame(data),
        pa.table(data),
        (data["user"], data["item"]),
    ]
    for form in forms:
        found = interactions(form)
        assert found.user_ids.names() == ["b", "a", "c"]
        assert found.item_ids.names() == ["10", "9", "x"]
    only_digits = interactions((["1", "2"], ["007", "8"]))
    assert only_digits.item_ids.names() == ["007", "8"]


def test_columns_are_found_by_their_usual_names_or_asked_for() -> None:
    frame = pd.DataFrame({"user_id": [1, 2], "itemId": [3, 4], "when": [0, 1]})
    assert interactions(frame).shape == (2, 2)
    with pytest.raises(ValueError, match=r"no column of a, b looks like the users; name it with user_col"):
        interactions(pd.DataFrame({"a": [1], "b": [2]}))
    with pytest.raises(ValueError, match=r"no column 'c'; the table has a, b"):
        interactions(pd.DataFrame({"a": [1], "b": [2]}), fastvae._data.Columns("c", "b"))


def test_timestamps_of_every_kind_split_by_time() -> None:
    seconds = np.arange(40) * 86_400
    users, items = np.arange(40) % 4, np.arange(40) % 11
    forms = [seconds, seconds.astype("datetime64[s]"), pd.Series(pd.to_datetime(seconds, unit="s"))]
    for times in forms:
        frame = pd.DataFrame({"user": users, "item": items, "t": times})
        train, test = fastvae.split(frame, "temporal:0.8", timestamp_col="t")
        assert train.timestamps.max() < test.timestamps.min()
        assert (train.nnz, test.nnz) == (32, 8)


def test_what_holds_no_interactions_is_a_type_error() -> None:
    for wrong in (3, {"user": [1]}, object(), (np.arange(3),)):
        with pytest.raises(TypeError, match="holds no interactions"):
            interactions(wrong)
    with pytest.raises(ValueError, match="2 users and 3 items"):
        interactions(([1, 2], [1, 2, 3]))
    with pytest.raises(ValueError, match="float64; give integers or strings"):
        interactions((np.array([1.0, np.nan]), [1, 2]))
    with pytest.raises(ValueError, match="row 1 has the identifier None"):
        interactions((["a", None], [1, 2]))


def test_a_missing_file_is_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        fastvae.read(tmp_path / "absent.csv")
    assert error.value.filename == str(tmp_path / "absent.csv")
    broken = tmp_path / "broken.csv"
    broken.write_text("user,item,weight\n1,2,3\n1,2,many\n")
    with pytest.raises(ValueError, match=r"broken.csv:3"):
        fastvae.read(broken)


def test_splits_divide_and_repeat(plays: Any) -> None:
    for by in ("ratio:0.7", "leave-one-out"):
        train, test = fastvae.split(plays, by)
        assert (train + test != plays).nnz == 0
        again, _ = fastvae.split(plays, by)
        other, _ = fastvae.split(plays, by, random_state=1)
        assert (again != train).nnz == 0 and (other != train).nnz > 0
    with pytest.raises(ValueError, match="split_users"):
        fastvae.split(plays, "users:0.1")
    with pytest.raises(ValueError, match="not a split"):
        fastvae.split(plays, "half")


def test_k_core_and_read_options(tmp_path: Path) -> None:
    path = tmp_path / "ratings.tsv"
    path.write_text("".join(f"{u}\t{i}\t{1 + (u + i) % 5}\n" for u in range(20) for i in range(u % 9)))
    core = fastvae.read(path, k_core=5)
    indptr, indices, _ = core.csr_arrays()
    assert np.diff(indptr).min() >= 5 and np.bincount(indices).min() >= 5
    assert fastvae.read(path, user_col="0", item_col="1", rating_col="2", min_rating=4).nnz < fastvae.read(path).nnz


def test_a_matrix_is_copied_once() -> None:
    psutil = pytest.importorskip("psutil")
    process = psutil.Process()
    n_users, each = 2_000, 5_000
    indices = np.tile(np.arange(each, dtype=np.int32), n_users)
    matrix = sp.csr_matrix(
        (np.ones(indices.size, dtype=np.float32), indices, np.arange(0, indices.size + 1, each, dtype=np.int64)),
        shape=(n_users, each),
    )
    gc.collect()
    before = process.memory_info().rss
    held = interactions(matrix)
    grown = process.memory_info().rss - before
    # The items take 4 bytes each; weights of 1 take nothing. A second copy would be another 40 MB.
    assert held.nnz * 4 <= grown + 5e6 and grown < held.nnz * 4 * 1.5, f"{grown / 1e6:.0f} MB"
