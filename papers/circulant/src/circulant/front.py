"""Pictures: accuracy against cost of the linear layers, with the Pareto front; what blocks harm, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    # The same picture gives the same file.
    matplotlib.rcParams["svg.hashsalt"] = "circulant"
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    _pyplot().close(figure)


def plot(points: Sequence[Point], path: Path, label: str, title: str) -> None:
    """Draws accuracy against cost, one colour a group, bars for spreads, the front as a line. By the name's ending."""
    figure, axes = _pyplot().subplots(figsize=(6.4, 4.2))
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
    _save(figure, path)


def plot_harm(
    harms: Sequence[tuple[str, Mapping[str, Mapping[int, float]]]],
    sizes: Sequence[Mapping[str, int]],
    path: Path,
    title: str,
) -> None:
    """Draws what blocks harm, one column a form: above by layer, a line for each size; below the sizes searched by it.

    `harms` are the forms' names and tables, `sizes` what was searched by each. Layers without a choice are left out.
    PrivCirNet's Figure 5. Raises ValueError where there are not as many of both, or a layer has no size.
    """
    if len(harms) != len(sizes):
        raise ValueError(f"{len(harms)} tables of harm and {len(sizes)} of sizes")
    figure, axes = _pyplot().subplots(2, len(harms), figsize=(5.2 * len(harms), 5.2), squeeze=False, sharex="col")
    for column, ((form, table), chosen) in enumerate(zip(harms, sizes, strict=True)):
        layers = [name for name, row in table.items() if len(row) > 1]
        missing = [name for name in layers if name not in chosen]
        if missing:
            raise ValueError(f"no size for layer {missing[0]}")
        above, below = axes[0][column], axes[1][column]
        for b in sorted({b for name in layers for b in table[name] if b > 1}):
            places = [place for place, name in enumerate(layers) if b in table[name]]
            above.plot(
                places, [table[layers[place]][b] for place in places], marker=".", linewidth=0.8, label=f"b = {b}"
            )
        above.set_yscale("log")
        above.set_title(form, fontsize=10)
        above.grid(alpha=0.3)
        above.legend(fontsize=8)
        below.bar(range(len(layers)), [chosen[name] for name in layers])
        below.set_yscale("log", base=2)
        below.set_ylim(0.9, 20)
        below.set_yticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
        below.set_xlabel("layer")
        below.grid(alpha=0.3, axis="y")
    axes[0][0].set_ylabel("harm")
    axes[1][0].set_ylabel("block size")
    figure.suptitle(title, fontsize=10)
    _save(figure, path)
