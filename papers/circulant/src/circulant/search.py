"""Which block size each layer gets: least sum of Omega under a bound on what `jaguar plan` says the layers cost.

Source: PrivCirNet, equation 3. The costs are read from `jaguar plan MODEL --json --block-sizes` of the dense network
(docs/circulant.md has its form); layers are matched by the names of their ONNX nodes, which `export` sets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

# Names here, and members of the planner's `figures`.
MEASURES = {
    "seconds": "seconds",
    "weighed": "weighed",
    "online-seconds": "online_seconds",
    "bytes": "bytes",
    "online-bytes": "online_bytes",
    "hint": "hint_bytes",
}
# By layer and size.
Table = Mapping[str, Mapping[int, float]]


class SearchError(ValueError):
    """Costs that cannot be used, or a bound that nothing meets."""


@dataclass(frozen=True)
class Costs:
    """What layers cost by block size, in seconds or bytes, and the size that each size really runs as."""

    figures: Mapping[str, Mapping[int, Mapping[str, float | None]]]
    effective: Mapping[str, Mapping[int, int]]

    def table(self, measure: str) -> dict[str, dict[int, float]]:
        """One measure of MEASURES. Raises SearchError where the planner did not know it."""
        if measure not in MEASURES:
            raise SearchError(f"measure {measure!r}: expected one of {', '.join(MEASURES)}")
        result: dict[str, dict[int, float]] = {}
        for name, sizes in self.figures.items():
            result[name] = {}
            for b, figures in sizes.items():
                cost = figures.get(MEASURES[measure])
                if cost is None:
                    raise SearchError(
                        f"layer {name}, block size {b}: the plan has no {MEASURES[measure]}; was the machine measured? "
                        "(jaguar measure, then jaguar plan --json --block-sizes again)"
                    )
                result[name][b] = cost
        return result

    def of(self, measure: str, sizes: Mapping[str, int]) -> float:
        """What all layers of the plan cost together; those that `sizes` does not name are dense."""
        table = self.table(measure)
        unknown = sizes.keys() - table.keys()
        if unknown:
            raise SearchError(f"the plan has no layer {', '.join(sorted(unknown))}")
        total = 0.0
        for name, costs in table.items():
            b = sizes.get(name, 1)
            if b not in costs:
                raise SearchError(f"layer {name}: the plan has no cost for block size {b}, only for {sorted(costs)}")
            total += costs[b]
        return total

    def for_layers(self, sizes: Mapping[str, Sequence[int]]) -> Costs:
        """The same for the layers of `sizes` (the block sizes that each may have), by their names in torch.

        A plan of a whole transformer calls a layer by the last node that is folded into it, "/layers/layers.0/up/Add"
        for "layers.0.up", and has layers besides that torch has none for: rows of norms, say. A layer that the plan
        calls otherwise and that is dense in any case costs nothing here. Plans that lack a layer with a choice stay as
        they are, for `search` to refuse.
        """
        by_path: dict[str, list[str]] = {}
        for name in self.figures:
            by_path.setdefault(name.rsplit("/", 1)[0], []).append(name)
        figures, effective = {}, {}
        for name, choices in sizes.items():
            found = [name] if name in self.figures else by_path.get(node_path(name), [])
            if len(found) == 1:
                figures[name], effective[name] = self.figures[found[0]], self.effective[found[0]]
            elif list(choices) == [1]:
                figures[name], effective[name] = {1: dict.fromkeys(MEASURES.values(), 0.0)}, {1: 1}
            else:
                return self
        return Costs(figures, effective)

    def as_they_run(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Each size replaced by that which it runs as: a larger one would cost accuracy for nothing."""
        return {name: self.effective.get(name, {}).get(b, b) for name, b in sizes.items()}


def node_path(name: str) -> str:
    """How torch's exporter spells a module: parts of a Sequential carry its name."""
    parts: list[str] = []
    for part in name.split("."):
        parts.append(f"{parts[-1]}.{part}" if part.isdigit() and parts else part)
    return "/" + "/".join(parts)


def read_costs(path: Path) -> Costs:
    """Raises SearchError for a file that is not what `jaguar plan --json --block-sizes` writes."""
    try:
        plan = json.loads(path.read_text())
    except FileNotFoundError:
        raise SearchError(f"{path} is missing: jaguar plan MODEL --json --block-sizes > {path}") from None
    except (OSError, ValueError) as error:
        raise SearchError(f"{path}: not JSON ({error})") from None
    if not isinstance(plan, dict) or not isinstance(plan.get("block_sizes"), list):
        raise SearchError(f"{path}: no list block_sizes: jaguar plan MODEL --json --block-sizes writes it")
    figures: dict[str, dict[int, dict[str, float | None]]] = {}
    effective: dict[str, dict[int, int]] = {}
    for layer in plan["block_sizes"]:
        try:
            name = str(layer["name"])
            if name in figures:
                if [cost["b"] for cost in layer["costs"]] == [1] and list(figures[name]) == [1]:
                    continue  # Two rows of a norm, say. Nobody asks for them.
                raise SearchError(f"{path}: two layers are called {name}")
            figures[name], effective[name] = {}, {}
            for cost in layer["costs"]:
                b = int(cost["b"])
                figures[name][b] = {m: _number(path, name, cost["figures"].get(m)) for m in MEASURES.values()}
                effective[name][b] = int(cost["effective"])
            if 1 not in figures[name]:
                raise SearchError(f"{path}: layer {name} has no cost for block size 1")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, SearchError):
                raise
            raise SearchError(
                f"{path}: a layer of block_sizes is not as docs/circulant.md has it ({error!r})"
            ) from None
    return Costs(figures, effective)


def joined(plans: Mapping[str, Path]) -> dict[str, Any]:
    """The plans of networks of one linear layer each, by the layer's name, as one that `read_costs` takes.

    For a network that no plan takes whole. Raises SearchError.
    """
    layers = []
    for name, path in plans.items():
        read_costs(path)
        own = json.loads(path.read_text())["block_sizes"]
        if len(own) != 1:
            raise SearchError(f"{path}: {len(own)} linear layers, expected one")
        layers.append({**own[0], "name": name})
    return {"block_sizes": layers}


def _number(path: Path, name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise SearchError(f"{path}: layer {name} costs {value!r}, expected a number from 0")
    return float(value)


@dataclass(frozen=True)
class Chosen:
    """Sizes by layer, the sum of their Omega, and what they cost by measure."""

    sizes: dict[str, int]
    omega: float
    costs: dict[str, float]


def search(omega: Table, costs: Costs, limits: Mapping[str, float]) -> Chosen:
    """Least sum of `omega` such that each measure in `limits` stays within its bound. An integer program (HiGHS).

    Layers of `omega` and of the plan must be the same; a size is a choice where both know it. Layers of the plan
    that `omega` lacks are an error, as are bounds that nothing meets. Among sizes of the same Omega any may come out.
    """
    if not limits:
        raise SearchError("no bound: give at least one, such as seconds or hint")
    if omega.keys() != costs.figures.keys():
        raise SearchError(
            f"layers differ: only with a sensitivity {sorted(omega.keys() - costs.figures.keys())}, "
            f"only in the plan {sorted(costs.figures.keys() - omega.keys())}"
            " (jaguar compile keeps the layers' names with --keep-names only)"
        )
    tables = {measure: costs.table(measure) for measure in limits}
    for measure, limit in limits.items():
        least = sum(min(row[b] for b in omega[name] if b in row) for name, row in tables[measure].items())
        if not least <= limit:
            raise SearchError(f"no choice meets {measure} <= {limit:g}: the least possible is {least:g}")
    choices = [(name, b) for name, sizes in omega.items() for b in sizes if b in costs.figures[name]]
    values = np.array([omega[name][b] for name, b in choices])
    if not np.isfinite(values).all() or (values < 0).any():
        raise SearchError("a sensitivity is negative or no number")
    # Scaled to order one for the solver's tolerances; its own slack is taken off the bound where it shows.
    scale = max(values.max(), 1e-300)
    names = list(omega)
    one_each = np.array([[float(name == n) for n, _ in choices] for name in names])
    for slack in (0.0, 1e-7, 1e-6, 1e-5):
        rows = [one_each] + [
            np.array([[tables[m][n][b] / max(limit, 1e-300) for n, b in choices]]) for m, limit in limits.items()
        ]
        upper = [1.0] * len(names) + [1.0 - slack] * len(limits)
        lower = [1.0] * len(names) + [0.0] * len(limits)
        solved = milp(
            values / scale,
            integrality=np.ones(len(choices)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(np.concatenate(rows), lower, upper),
            options={"mip_rel_gap": 0.0},
        )
        if solved.x is None:
            raise SearchError(f"no choice meets all bounds together ({solved.message})")
        sizes = {name: b for (name, b), x in zip(choices, solved.x, strict=True) if x > 0.5}
        if all(sum(tables[m][n][b] for n, b in sizes.items()) <= limit for m, limit in limits.items()):
            break
    else:
        raise SearchError("the solver stayed outside of a bound")
    return Chosen(sizes, sum(omega[n][b] for n, b in sizes.items()), costs_of(costs, sizes))


def costs_of(costs: Costs, sizes: Mapping[str, int]) -> dict[str, float]:
    """Every measure that the plan knows."""
    found = {}
    for measure in MEASURES:
        try:
            found[measure] = costs.of(measure, sizes)
        except SearchError as error:
            if "the plan has no " + MEASURES[measure] not in str(error):
                raise
    return found
