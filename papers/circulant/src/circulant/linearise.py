"""Which ReLUs a network can do without: gates `c·max(x, 0) + (1 - c)·x`, trained with the weights under a budget.

Source: Selective Network Linearization (Cho, Joshi, Garg, Reagen, Hegde, ICML 2022, arXiv 2202.02340): gates of one
value each, a lasso on their sum, then the gates are rounded, frozen, and the network is tuned with the dense one as
teacher. Here the lasso's weight is not an option: after each step it is what brings the sum down to the budget of that
step, which falls from all ReLUs to the bound. Gates may be of whole channels, and values may have costs by layer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .data import Split
from .relus import GatedReLU, Unit, count, each_gate, each_partial, shapes, with_gates, with_masks
from .search import SearchError
from .training import Architecture, Options, Teacher, save_network, train

# The budget has come down to the bound after this share of the steps; from there on it stays.
DESCENT = 0.8
# Where it comes down to less, to nothing say, it does so in the last of these steps.
LEAST = 1e-3
# Halvings of the interval of the lasso's weight.
HALVINGS = 24


@dataclass(frozen=True)
class Prices:
    """What a network costs without ReLUs, and each value's ReLU besides, by the ReLU's name."""

    measure: str
    without: float
    each: Mapping[str, float]


# So many ReLUs, each the same: the measure that needs no plan.
NUMBER = "relus"
# Of a plan, both parties together: which stages count, and whether seconds or bytes.
PLANNED = {
    "seconds": (("offline", "online"), "seconds"),
    "online-seconds": (("online",), "seconds"),
    "bytes": (("offline", "online"), "bytes"),
    "online-bytes": (("online",), "bytes"),
}


def by_number(network: nn.Module, inputs: int) -> Prices:
    """Each ReLU costs one."""
    return Prices(NUMBER, 0.0, dict.fromkeys(shapes(network, inputs), 1.0))


def by_plans(measure: str, dense: Path, without: Path, network: nn.Module, inputs: int) -> Prices:
    """From `jaguar plan MODEL --json` of the dense network, and of the same without its ReLUs (`export --no-relus`).

    What the plans differ by is shared out among the ReLUs as the first plan has them: for a linear value costs
    something, too, and no plan of the dense network tells. Raises SearchError.
    """
    before, after = _figures(dense, measure), _figures(without, measure)
    values = {name: math.prod(shape) for name, shape in shapes(network, inputs).items()}
    missing = values.keys() - before.keys()
    if missing:
        raise SearchError(
            f"{dense} has no ReLU called {', '.join(sorted(missing))}"
            " (jaguar compile keeps the layers' names with --keep-names only)"
        )
    there = values.keys() & after.keys()
    if there:
        raise SearchError(f"{without} has ReLUs ({', '.join(sorted(there))}): export --no-relus leaves them out")
    saved = sum(before.values()) - sum(after.values())
    relus = sum(before[name] for name in values)
    if not 0 < saved or not 0 < relus:
        raise SearchError(f"{dense} and {without}: the network without ReLUs is no cheaper")
    each = {name: before[name] / number * saved / relus for name, number in values.items()}
    return Prices(measure, sum(after.values()), each)


def _figures(path: Path, measure: str) -> dict[str, float]:
    """What each node of a plan costs, by name. Nodes of one name count together."""
    stages, what = PLANNED[measure]
    try:
        plan = json.loads(path.read_text())
        found: dict[str, float] = {}
        for layer, node in zip(plan["layers"], plan["prediction"]["nodes"], strict=True):
            cost = 0.0
            for stage in (node[stage] for stage in stages):
                parts = stage["seconds"].values() if what == "seconds" else (stage["bytes_up"], stage["bytes_down"])
                cost += sum(float(part) for part in parts)
            if not math.isfinite(cost) or cost < 0:
                raise ValueError(f"{layer['name']} costs {cost}")
            found[str(layer["name"])] = found.get(str(layer["name"]), 0.0) + cost
    except FileNotFoundError:
        raise SearchError(f"{path} is missing: jaguar plan MODEL --json > {path}") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SearchError(
            f"{path} is not what jaguar plan MODEL --json writes on a measured machine ({error!r})"
        ) from None
    return found


@dataclass(frozen=True)
class Search:
    """A bound on what a network costs, and how gates move.

    `pace`: how far a gate of typical gradient would move over all steps, at the full rate, if the gradient stayed. Too
    little of it leaves gates between 0 and 1, which rounding then changes.
    """

    unit: Unit
    prices: Prices
    bound: float
    pace: float = 40.0


class Descent:
    """After each step of training: gates move by their gradients, then down until the step's budget holds.

    The sum of what open gates cost falls from that of all to the bound, by the same factor each step. Gates move by the
    gradient of what they cost a unit of, and then all down by the same: `clamp(moved - lasso, 0, 1)`, the nearest point
    within the budget where distances are weighed by the costs. The lasso's weight is found by halving.
    """

    def __init__(self, network: nn.Module, search: Search, steps: int) -> None:
        named = list(each_gate(network))
        self._gates = [module for _, module in named]
        costs = [search.prices.each[name] * values_of_each(module) * module.mask.flatten() for name, module in named]
        self._costs = torch.cat(costs).double()
        self._all = float(self._costs.sum())
        self._bound = search.bound - search.prices.without
        if self._bound < 0:
            raise SearchError(
                f"no choice meets {search.prices.measure} <= {search.bound:g}: without any ReLU it is "
                f"{search.prices.without:g}"
            )
        # Fixed once: summed in another order the same costs might differ in the last bit.
        self._share = (self._costs / max(self._all, 1e-300)).float()
        self._open = torch.cat([module.mask.flatten() for module in self._gates])
        self._pace = search.pace / steps

    def budget(self, share: float) -> float:
        """What open gates may cost after `share` of the steps, of all that they cost at first."""
        last = min(self._bound / max(self._all, 1e-300), 1.0)
        return max(last, LEAST) ** (share / DESCENT) if share < DESCENT else last

    @torch.no_grad()
    def __call__(self, share: float, rate: float) -> None:
        """`share` of the steps are done; `rate` is this step's share of the full rate."""
        gradient = torch.cat([_gradient(module).flatten() for module in self._gates])
        gates = torch.cat([module.gate.flatten() for module in self._gates])
        gain = torch.where(self._open, gradient / self._share.clamp_min(1e-30), 0)
        typical = gain.abs().sum() / self._open.sum().clamp_min(1)
        moved = gates - self._pace * rate / typical.clamp_min(1e-30) * gain
        moved = self._within(torch.where(self._open, moved, 0), self.budget(share))
        at = 0
        for module in self._gates:
            size = module.gate.numel()
            module.gate.copy_(moved[at : at + size].view_as(module.gate))
            module.gate.grad = None
            at += size

    def _within(self, moved: Tensor, budget: float) -> Tensor:
        """Nothing waits for the device here: the work is the same at each step."""
        low, high = moved.new_zeros(()), moved.max().clamp_min(0)
        within = (moved.clamp(0, 1) * self._share).sum() <= budget
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            over = ((moved - middle).clamp(0, 1) * self._share).sum() > budget
            low, high = torch.where(over, middle, low), torch.where(over, high, middle)
        return (moved - torch.where(within, torch.zeros_like(high), high)).clamp(0, 1)


def _gradient(module: GatedReLU) -> Tensor:
    """Zeros where nothing of the loss depends on the gates."""
    return torch.zeros_like(module.gate) if module.gate.grad is None else module.gate.grad


def values_of_each(module: GatedReLU) -> int:
    """How many values of a picture one of its gates is for."""
    c, h, w = module.shape
    return c * h * w // module.gate.numel()


@torch.no_grad()
def chosen(network: nn.Module, search: Search) -> dict[str, Tensor]:
    """Masks within the bound: the gates that are most open."""
    named = list(each_gate(network))
    gates = torch.cat([module.gate.flatten() for _, module in named]).cpu()
    costs = torch.cat(
        [
            torch.full((module.gate.numel(),), search.prices.each[name] * values_of_each(module), dtype=torch.float64)
            for name, module in named
        ]
    )
    order = torch.argsort(gates, descending=True, stable=True)
    fits = search.prices.without + costs[order].cumsum(0) <= search.bound
    kept = torch.zeros_like(gates, dtype=torch.bool)
    kept[order] = fits & (gates[order] > 0)
    masks, at = {}, 0
    for name, module in named:
        size = module.gate.numel()
        masks[name] = kept[at : at + size].view_as(module.gate)
        at += size
    return masks


def cost_of(network: nn.Module, prices: Prices) -> float:
    """What a network with masks costs."""
    return prices.without + sum(prices.each[name] * module.kept() for name, module in each_partial(network))


def linearise(
    folder: Path,
    architecture: Architecture,
    start: nn.Module,
    teacher: Teacher,
    data: Split,
    test: Split,
    search: Search,
    seeking: Options,
    tuning: Options,
    progress: bool = True,
    inside: Path | None = None,
) -> dict[str, Any]:
    """Finds which of the ReLUs of `start` stay within the bound, and tunes the network without the others.

    `inside` (`folder/search`) is the run with gates, `folder` the run behind it; both continue after a kill. Several
    runs may go on from one search. Returns what is in
    `folder/relus.json`: how many ReLUs there are, by name, and the curves of the tuning.
    """
    changed = replace(architecture, relus=search.unit)
    gated = with_gates(start, search.unit, architecture.inputs)
    prices = search.prices
    settings = {
        "linearise": {
            "unit": str(search.unit),
            "measure": prices.measure,
            "bound": search.bound,
            "pace": search.pace,
            "without": prices.without,
            "each": dict(prices.each),
        }
    }
    inside = inside or folder / "search"
    descent = Descent(gated, search, max(seeking.epochs * (len(data) // seeking.batch), 1))
    found = train(inside, changed, gated, data, test, seeking, teacher, progress, after=descent, settings=settings)
    network = with_masks(gated, chosen(gated, search), architecture.inputs)
    # With gates it was no network that anybody loads.
    save_network(inside / "final.pt", changed, network)
    curves = train(folder, changed, network, data, test, tuning, teacher, progress, settings=settings)
    kept = count(network, architecture.inputs)
    report = {
        "unit": str(search.unit),
        "measure": prices.measure,
        "bound": search.bound,
        "cost": cost_of(network, prices),
        "relus": sum(kept.values()),
        "relus_before": sum(math.prod(shape) for shape in shapes(start, architecture.inputs).values()),
        "by_layer": kept,
        "search_epochs": found["epochs"],
        "epochs": curves["epochs"],
        "cpu_seconds": round(found["cpu_seconds"] + curves["cpu_seconds"], 1),
    }
    (folder / "relus.json").write_text(json.dumps(report, indent=1) + "\n")
    return report
