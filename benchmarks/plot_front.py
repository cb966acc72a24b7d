"""The plot of a front report: run by `benchmarks/front`.

  plot_front.py REPORT.json TARGET      writes TARGET.svg and TARGET.png
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import matplotlib.ticker

# Okabe and Ito's colours, which stay apart for every kind of colour vision.
OURS, PEERS = "#0072B2", "#E69F00"
PRESETS = ["quick", "default", "best"]
# Far below the rest: shown, they would press it together.
LEAST = 0.55


def panel(axes, dataset, points, metric):
    most = max(point[metric] for point in points)
    points = [point for point in points if point[metric] > LEAST * most]
    ours = sorted((point for point in points if point["ours"]), key=lambda point: point["cpu_seconds"])
    peers = [point for point in points if not point["ours"]]
    front, best = [], 0.0
    for point in ours:
        if point[metric] > best:
            best = point[metric]
            front.append(point)
    axes.plot([p["cpu_seconds"] for p in front], [p[metric] for p in front], color=OURS, linewidth=1.2, zorder=1)
    course = [point for point in peers if point["name"] == "PyTorch Mult-VAE"]
    axes.plot([p["cpu_seconds"] for p in course], [p[metric] for p in course], color=PEERS, linewidth=1.2, zorder=1)
    for group, colour, marker in ((ours, OURS, "o"), (peers, PEERS, "s")):
        axes.scatter([p["cpu_seconds"] for p in group], [p[metric] for p in group], color=colour, marker=marker, s=28, zorder=2)
    labelled = [point for point in ours + peers if point["name"] != "PyTorch Mult-VAE" and "epochs" not in point["name"]]
    for point in labelled + course[-1:]:
        bold = "bold" if point["name"] in PRESETS else "normal"
        axes.annotate(point["name"], (point["cpu_seconds"], point[metric]), xytext=(0, -11), textcoords="offset points", ha="center",
                      fontsize=7, fontweight=bold, color="#222222")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.set_xlabel("processor seconds of the training (log scale)")
    axes.set_ylabel(metric.replace("ndcg", "NDCG"))
    axes.set_title(dataset)
    axes.margins(x=0.15, y=0.12)
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def main(source, target):
    report = json.load(open(source))
    n = len(report["data"])
    figure, panels = plt.subplots(1, n, figsize=(5.4 * n, 4.8), layout="constrained", squeeze=False)
    for axes, (dataset, points) in zip(panels[0], report["data"].items()):
        panel(axes, dataset, points, report["metrics"][dataset])
    machine, threads = report["machine"], report["settings"]["threads"]
    figure.suptitle(f"Accuracy for training time, {machine['cpu']}, {threads} threads; blue: fastvae, orange: other libraries", fontsize=9)
    for extension in ("svg", "png"):
        figure.savefig(f"{target}.{extension}", dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
