"""Pairs of user and item for readers that need another format: run by `benchmarks/speed`.

  convert.py SOURCE TARGET      from .csv, .tsv.zst (no header) or .mtx to .npz (SciPy, users x items) or .parquet
"""
import sys


def main(source, target):
    if source.endswith(".mtx"):
        import scipy.io

        return save_matrix(scipy.io.mmread(source), target)
    import pyarrow
    import pyarrow.csv

    table = pyarrow.csv.read_csv(
        pyarrow.input_stream(source),
        pyarrow.csv.ReadOptions(column_names=["user_id", "item_id"]),
        pyarrow.csv.ParseOptions(delimiter="," if source.endswith(".csv") else "\t"),
    )
    if target.endswith(".parquet"):
        import pyarrow.parquet

        return pyarrow.parquet.write_table(table, target)
    import numpy
    import scipy.sparse

    users, items = (table[name].to_numpy() for name in table.column_names)
    save_matrix(scipy.sparse.coo_matrix((numpy.ones(len(users), dtype=numpy.float32), (users, items))), target)


def save_matrix(matrix, target):
    import scipy.sparse

    scipy.sparse.save_npz(target, scipy.sparse.csr_matrix(matrix), compressed=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
