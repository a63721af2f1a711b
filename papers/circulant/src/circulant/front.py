"""The Pareto front: accuracy against what the linear layers cost, as numbers and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Point:
    """One network: where it belongs ("uniform", "searched"...), its cost, its accuracy in percent, and the spread."""

    label: str
    group: str
    cost: float
    accuracy: float
    spread: float = 0.0


def pareto(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats: cheaper and as accurate, or more accurate and as cheap. By cost."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.accuracy)):
        if not best or point.accuracy > best[-1].accuracy:
            best.append(point)
    return best


def points_of(results: Any, measure: str) -> list[Point]:
    """The summary of a results file (`compare` writes it). Raises ValueError where it lacks `measure`."""
    try:
        points = []
        for row in results["summary"]:
            if measure not in row["costs"]:
                raise ValueError(f"{row['name']} has no cost {measure!r}, only {', '.join(row['costs'])}")
            points.append(
                Point(
                    row["name"], row["group"], row["costs"][measure], row["accuracy_mean"], row["accuracy_std"] or 0.0
                )
            )
        return points
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a results file of this package ({error!r})") from None


def plot(points: Sequence[Point], path: Path, label: str, title: str) -> None:
    """Draws accuracy against cost, one colour a group, bars for spreads, the front as a line. By the name's ending."""
    import matplotlib

    matplotlib.use("Agg")
    # The same picture gives the same file.
    matplotlib.rcParams["svg.hashsalt"] = "circulant"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2))
    for group in dict.fromkeys(point.group for point in points):
        own = [point for point in points if point.group == group]
        axes.errorbar(
            [p.cost for p in own], [p.accuracy for p in own], [p.spread for p in own], fmt="o", capsize=3, label=group
        )
    for point in points:
        axes.annotate(point.label, (point.cost, point.accuracy), textcoords="offset points", xytext=(5, 5), fontsize=8)
    front = pareto(points)
    axes.plot([p.cost for p in front], [p.accuracy for p in front], color="grey", linewidth=0.8, label="Pareto front")
    axes.set_xlabel(label)
    axes.set_ylabel("accuracy (%)")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    # Room for the names beside the points.
    axes.margins(0.2)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
