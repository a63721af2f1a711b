"""Figures 7 and 1 of ConvFHE's paper, from what `train_convfhe.py` measured.

    python3 papers/convfhe/figure7.py target/convfhe/accuracy.json --commit COMMIT

Writes docs/figures/convfhe-accuracy.json, with accuracies and what a query takes beside them, and two pictures:
convfhe-accuracy.svg (accuracy by depth, width and kernel) and convfhe-seconds.svg (accuracy against seconds). What a query
takes is read from two other records: of convfhe-networks.json the seconds of six networks, of convfhe-plans.json what
all 27 cost by their plans. A network's seconds are predicted as its cost times the six's median seconds of a unit.
tools/benchmark_tables.py puts the tables into pages.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).resolve().parents[2] / "docs/figures"
# Table IV, without encryption: right of 100, and seconds of one thread.
PAPER = {"k3-d20-w1": (90.39, 368), "k5-d8-w3": (92.37, 255), "k3-d14-w3": (94.04, 398), "k3-d20-w3": (94.3, 544)}
THEIRS = "The paper's seconds are of one thread of another machine, its networks trained as those of Wide ResNets: 200 epochs."
COLOURS = {3: "#0072b2", 5: "#d55e00", 7: "#009e73"}


def networks(results: dict[str, Any], measured: dict[str, float], plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All that is known of each network: right of 100 in each run, if it was trained, bootstraps, and seconds of a query."""
    unit = statistics.median(measured[plan["network"]] / plan["cost"] for plan in plans if plan["network"] in measured)
    pictures = results["options"]["test_pictures"]
    trained = {row["name"]: row for row in results["networks"]}
    found = []
    for plan in plans:
        name = plan["network"]
        row = {
            "name": name, **{key: plan[key] for key in ("kernel", "depth", "width", "bootstraps")},
            "predicted": unit * plan["cost"], "measured": measured.get(name), "epochs": 0, "right": [], "mean": None,
        }
        if name in trained:
            right = [100 * n / pictures for n in trained[name]["right"]]
            row |= {"epochs": trained[name]["epochs"], "right": right, "mean": statistics.mean(right)}
        found.append(row)
    return found


def front(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that no other beats: in fewer seconds as right, or more often right in as many."""
    best: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["predicted"], -row["mean"])):
        if not best or row["mean"] > best[-1]["mean"]:
            best.append(row)
    return best


def tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    trained = [row for row in rows if row["right"]]
    by = {(row["depth"], row["width"], row["kernel"]): row for row in rows}
    kernels = sorted({row["kernel"] for row in rows})
    grid = []
    for depth, width in sorted({(row["depth"], row["width"]) for row in rows}):
        cells = [by[depth, width, kernel] for kernel in kernels]
        grid.append([
            str(depth), str(width), *(f"{row['mean']:.2f}" if row["right"] else "-" for row in cells),
            *(f"{row['predicted']:.0f}" for row in cells),
        ])

    def of(row: dict[str, Any]) -> list[str]:
        right, seconds = PAPER.get(row["name"], ("-", "-"))
        return [str(right), str(seconds)]

    every = [[
        row["name"], f"{row['mean']:.2f}", f"{min(row['right']):.2f}", f"{max(row['right']):.2f}", str(row["bootstraps"]),
        f"{row['predicted']:.0f}", "-" if row["measured"] is None else f"{row['measured']:.1f}", *of(row),
    ] for row in trained]
    best = [[row["name"], f"{row['mean']:.2f}", str(row["bootstraps"]), f"{row['predicted']:.0f}", *of(row)] for row in front(trained)]
    seconds = "Seconds are of processors, of one query, on one thread: what the plan costs, by what the measured networks' cost takes."
    return [
        {
            "name": "grid", "title": "right of 100 by depth, width and kernel (Figure 7), and seconds of a query",
            "header": ["depth", "width", *(f"k = {k}, %" for k in kernels), *(f"k = {k}, s" for k in kernels)],
            "numbers_from": 0, "rows": grid, "notes": f"{seconds} {len(trained)} of the {len(rows)} networks were trained.",
        },
        {
            "name": "networks", "title": "each network that was trained: right of 100, and what a query takes",
            "header": ["network", "right, %", "least", "most", "bootstraps", "s, predicted", "s, measured", "paper: right, %", "paper: s"],
            "numbers_from": 1, "rows": every, "notes": f"{seconds} {THEIRS}",
        },
        {
            "name": "front", "title": "networks that no other beats by accuracy and seconds (Figure 1)",
            "header": ["network", "right, %", "bootstraps", "s, predicted", "paper: right, %", "paper: s"],
            "numbers_from": 1, "rows": best, "notes": f"{seconds} {THEIRS}",
        },
    ]


class Picture:
    """An SVG with an axis of accuracies on the left."""

    LEFT, TOP, WIDTH, HEIGHT = 62, 64, 860, 340

    def __init__(self, title: str, rows: list[dict[str, Any]]) -> None:
        self.least = int(min(min(row["right"]) for row in rows))
        self.most = -int(-max(max(row["right"]) for row in rows)) + 1
        right, bottom = self.LEFT + self.WIDTH, self.TOP + self.HEIGHT
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + 30} {bottom + 62}" font-family="sans-serif" font-size="13">',
            f"<title>{title}</title>", f'<rect width="{right + 30}" height="{bottom + 62}" fill="white"/>',
            f'<text x="{self.LEFT}" y="24" font-size="16">{title}</text>',
        ]
        for percent in range(self.least, self.most + 1):
            y = self.y(percent)
            self.parts.append(f'<line x1="{self.LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
            self.text(self.LEFT - 8, y + 4, f"{percent} %", "end")
        for i, (kernel, _) in enumerate(COLOURS.items()):
            self.dot(kernel, self.LEFT + 8 + 120 * i, 44)
            self.text(self.LEFT + 20 + 120 * i, 48, f"kernels of {kernel}", "start")

    def y(self, percent: float) -> float:
        return self.TOP + self.HEIGHT * (self.most - percent) / (self.most - self.least)

    def text(self, x: float, y: float, text: str, anchor: str = "middle", size: int = 13) -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{text}</text>')

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1.5) -> None:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def dot(self, kernel: int, x: float, y: float) -> None:
        """Each kernel has a shape of its own, too."""
        colour = COLOURS[kernel]
        corners = {3: None, 5: [(-5, -5), (5, -5), (5, 5), (-5, 5)], 7: [(0, -6), (6, 5), (-6, 5)]}[kernel]
        if corners is None:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
        else:
            places = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
            self.parts.append(f'<polygon points="{places}" fill="{colour}"/>')

    def svg(self) -> str:
        return "\n".join([*self.parts, "</svg>", ""])


def figure7(rows: list[dict[str, Any]]) -> str:
    """Accuracy by depth, width and kernel: the mean as a dot, from the least run to the most as a line."""
    picture = Picture("Accuracy on CIFAR-10 by depth, width and kernel: means and ranges of three runs", rows)
    depths, widths = sorted({row["depth"] for row in rows}), sorted({row["width"] for row in rows})
    step = picture.WIDTH / (len(depths) * len(widths))
    bottom = picture.TOP + picture.HEIGHT
    for i, (depth, width) in enumerate((d, w) for d in depths for w in widths):
        middle = picture.LEFT + step * (i + 0.5)
        picture.text(middle, bottom + 20, f"w = {width}")
        if i % len(widths) == len(widths) // 2:
            picture.text(middle, bottom + 42, f"depth {depth}")
        if i and i % len(widths) == 0:
            edge = picture.LEFT + step * i
            picture.line([(edge, picture.TOP), (edge, bottom + 46)], "#aaa", 1)
        for row in rows:
            if (row["depth"], row["width"]) == (depth, width):
                x = middle + step * 0.22 * (row["kernel"] - 5) / 2
                picture.line([(x, picture.y(min(row["right"]))), (x, picture.y(max(row["right"])))], COLOURS[row["kernel"]])
                picture.dot(row["kernel"], x, picture.y(row["mean"]))
    return picture.svg()


def figure1(rows: list[dict[str, Any]]) -> str:
    """Accuracy against seconds of a query, and a line through those that no other beats."""
    picture = Picture("Accuracy on CIFAR-10 against processor seconds of a query in one round", rows)
    most = 20 * (int(max(row["predicted"] for row in rows)) // 20 + 1)
    bottom = picture.TOP + picture.HEIGHT

    def x(seconds: float) -> float:
        return picture.LEFT + picture.WIDTH * seconds / most

    for seconds in range(0, most + 1, 20):
        picture.line([(x(seconds), picture.TOP), (x(seconds), bottom)], "#ddd", 1)
        picture.text(x(seconds), bottom + 20, str(seconds))
    picture.text(picture.LEFT + picture.WIDTH / 2, bottom + 44, "seconds of processors, predicted from the plan")
    best = front(rows)
    picture.line([(x(row["predicted"]), picture.y(row["mean"])) for row in best], "#999", 1)
    for row in rows:
        picture.dot(row["kernel"], x(row["predicted"]), picture.y(row["mean"]))
    for row in best:
        picture.text(x(row["predicted"]) - 8, picture.y(row["mean"]) - 8, row["name"], "end", 11)
    return picture.svg()


def record(results: dict[str, Any], commit: str, figures: Path) -> dict[str, Any]:
    """The record, from the results and the two other records."""
    table = next(t for t in json.loads((figures / "convfhe-networks.json").read_text())["tables"] if t["name"] == "networks")
    at = table["header"].index("processor")
    measured = {row[0]: float(row[at]) for row in table["rows"]}
    plans = json.loads((figures / "convfhe-plans.json").read_text())["figures"]["plans"]
    if len({network["epochs"] for network in results["networks"]}) != 1:
        raise SystemExit("figure7: its networks were trained for different numbers of epochs, or there are none")
    rows = networks(results, measured, plans)
    trained = [row for row in rows if row["right"]]
    options = results["options"]
    # Where files lay says nothing.
    command = re.sub(r" --(?:data|out|weights) \S+", "", results["command"])
    setting = {
        "commit": commit, "command": f"papers/convfhe/{command}", "machine": results["device"],
        "hardware_threads": results["hardware_threads"], "kernel": f"torch {results['torch']}, {'bfloat16' if options['bf16'] else 'float'}",
        "threads": f"{len(trained)} networks side by side in {results['seconds']:.0f} s", "link": f"{options['epochs']} epochs",
        "repeats": max(len(row["right"]) for row in trained), "statistic": "means", "load_before": None, "load_after": None,
    }
    return {"setting": setting, "peaks": None, "tables": tables(rows), "figures": {"options": options, "networks": rows}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--commit", required=True, help="of which the networks were trained")
    parser.add_argument("--figures", type=Path, default=FIGURES)
    args = parser.parse_args()
    made = record(json.loads(args.results.read_text()), args.commit, args.figures)
    rows = [row for row in made["figures"]["networks"] if row["right"]]
    (args.figures / "convfhe-accuracy.json").write_text(json.dumps(made, indent=1) + "\n")
    (args.figures / "convfhe-accuracy.svg").write_text(figure7(rows))
    (args.figures / "convfhe-seconds.svg").write_text(figure1(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
