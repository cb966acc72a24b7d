"""The plot of a speed report: run by `benchmarks/speed`.

  plot_speed.py REPORT.json TARGET      writes TARGET.svg and TARGET.png
"""
import json
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import matplotlib.ticker

# Okabe and Ito's colours, which stay apart for every kind of colour vision.
OURS, FULL, PEER = "#0072B2", "#56B4E9", "#E69F00"
LINES = {
    "midx-popularity": ("#0072B2", "o"), "midx-uniform": ("#56B4E9", "s"), "uniform": ("#009E73", "^"),
    "popularity": ("#F0E442", "v"), "dns": ("#999999", "P"), "softmax": ("#CC79A7", "D"), "midx-exact": ("#D55E00", "X"),
    "kernel": ("#666666", "p"), "mult-vae": ("#000000", "*"), "PyTorch Mult-VAE": ("#E69F00", "h"),
}


def median(row, key="seconds"):
    values = [run[key] for run in row["runs"] if run.get(key) is not None]
    return (statistics.median(values), min(values), max(values)) if values else None


def bars(axes, rows, dataset):
    rows = [(row, median(row)) for row in rows if row["dataset"] == dataset and row["group"] in ("epoch", "peer")]
    rows = sorted(((row, value) for row, value in rows if value), key=lambda pair: pair[1][0])
    for at, (row, (middle, least, most)) in enumerate(rows):
        colour = PEER if row["peer"] else FULL if row["label"] == "mult-vae" else OURS
        axes.barh(at, middle, color=colour, xerr=[[middle - least], [most - middle]], ecolor="#444444", capsize=2)
        axes.annotate(f"{middle:.2g} s", (most, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    names = [("fastvae mult-vae" if row["label"] == "mult-vae" else row["label"]) for row, _ in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axes.margins(x=0.25)
    axes.set_xlabel("seconds an epoch (log scale)")
    axes.set_title(dataset)


def lines(axes, rows):
    for label, (colour, marker) in LINES.items():
        points = [(row["n_items"], median(row)) for row in rows if row["group"] == "catalogue" and row["label"] == label]
        points = sorted((n, value) for n, value in points if value)
        if points:
            sizes, values = [n for n, _ in points], [value for _, value in points]
            errors = [[m - least for m, least, _ in values], [most - m for m, _, most in values]]
            name = "fastvae mult-vae" if label == "mult-vae" else label
            axes.errorbar(sizes, [m for m, _, _ in values], yerr=errors, color=colour, marker=marker, label=name, capsize=2,
                          markeredgecolor="#444444", markeredgewidth=0.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("items in the catalogue")
    axes.set_ylabel("seconds an epoch")
    axes.set_title("same users, interactions and negatives")
    axes.legend(fontsize=7, ncols=2, frameon=False)
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def main(source, target):
    report = json.load(open(source))
    rows = report["rows"]
    datasets = [d for d in dict.fromkeys(r["dataset"] for r in rows if r["group"] in ("epoch", "peer"))
                if any(median(r) for r in rows if r["dataset"] == d)]
    sized = any(row["group"] == "catalogue" and median(row) for row in rows)
    n = len(datasets) + sized
    if n == 0:
        print("no epochs were measured: nothing to plot", file=sys.stderr)
        return
    figure, panels = plt.subplots(1, n, figsize=(4.8 * n, 4.6), layout="constrained", squeeze=False)
    for axes, dataset in zip(panels[0], datasets):
        bars(axes, rows, dataset)
    if sized:
        lines(panels[0][-1], rows)
    for axes in panels[0]:
        axes.spines[["top", "right"]].set_visible(False)
    machine = report["machine"]
    threads = report["settings"].get("threads", machine["cores"])
    figure.suptitle(f"Time of an epoch, {machine['cpu']}, {threads} threads; blue: fastvae, orange: other libraries", fontsize=9)
    for extension in ("svg", "png"):
        figure.savefig(f"{target}.{extension}", dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
