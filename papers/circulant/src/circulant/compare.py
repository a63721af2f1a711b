"""The recorded comparison: dense, uniform sizes, and searched sizes that cost no more, over several seeds.

For each seed: a dense network; from it every other one by conversion and the same fine-tuning with distillation, the
dense one too ("dense, fine-tuned"), so that nothing is owed to the additional epochs alone. All accuracies are of all
test pictures and of the last epoch; no epoch is picked by them.
"""

from __future__ import annotations

import copy
import itertools
import json
import platform
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import nn

from . import sensitivity
from .blocks import CPU, SIZES, Kind
from .convert import convert, sites, uniform
from .data import Split
from .linearise import NUMBER, Search, by_number, linearise
from .relus import Unit, count
from .search import Costs, costs_of, search
from .sensitivity import Form, Table
from .training import (
    Architecture,
    Options,
    Teacher,
    device_of,
    evaluate,
    load_network,
    recorded,
    train,
    with_sizes,
    write,
)

# Gradients of so many samples at a time are squared.
FISHER_BATCH = 4


def rises(
    network: nn.Module, importance: dict[str, torch.Tensor], omega: Table, data: Split, kind: Kind = Kind.SKEW
) -> list[dict[str, Any]]:
    """For each layer and size above 1: `omega`, what it might be instead, and the true rise in loss over `data`.

    Each time one layer alone is converted, its loss-aware fit and Frobenius' one by one; nothing is trained.
    """
    dense = evaluate(network, data).loss
    diagonal = sensitivity.diagonal_table(network, importance, kind)
    distance = sensitivity.distance_table(network, kind)
    rows = []
    for name, sizes in omega.items():
        for b in sizes:
            if b == 1:
                continue
            own = evaluate(convert(network, {name: b}, kind, importance), data).loss
            plain = evaluate(convert(network, {name: b}, kind), data).loss
            rows.append(
                {
                    "layer": name,
                    "b": b,
                    "omega": sizes[b],
                    "omega_diagonal": diagonal[name][b],
                    "squared_distance": distance[name][b],
                    "rise": own - dense,
                    "rise_frobenius": plain - dense,
                }
            )
    return rows


def rank_correlation(rows: Sequence[dict[str, Any]], of: str, against: str) -> float:
    """Spearman's, between two columns of `rises`."""
    return float(spearmanr([row[of] for row in rows], [row[against] for row in rows]).statistic)


def _machine(device: torch.device) -> dict[str, Any]:
    return {
        "processor": platform.machine(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


@dataclass(frozen=True)
class Comparison:
    """What is compared, and how it is trained. `watch` test pictures are looked at after each epoch.

    `blocks`: uniform sizes, and sizes searched that cost no more. `faster`: sizes searched that cost so many times less
    than the dense network. `by`: what sizes are searched by, once each. `plain`: besides, uniform sizes without the
    loss-aware fit, and (where there are batch norms) without folding norms. `groups`: so many groups of layers that
    follow each other, and for each a run in which it alone is dense, and all others have the largest blocks
    (PrivCirNet's Table 3).
    """

    architecture: Architecture
    costs: Costs
    measures: Sequence[str]
    blocks: Sequence[int]
    dense: Options
    tuning: Options
    tuning_samples: int | None = None
    fisher_samples: int = 2048
    rise_samples: int = 1000
    rise_seeds: Sequence[int] = (0,)
    faster: Sequence[float] = ()
    by: Sequence[Form] = (Form.FULL,)
    plain: bool = False
    groups: int = 0
    watch: int = 2000
    kind: Kind = Kind.SKEW
    device: torch.device = CPU

    def described(self, data: Split, test: Split) -> dict[str, Any]:
        """The head of the results."""
        return {
            "machine": _machine(self.device),
            "architecture": {
                "network": self.architecture.network,
                "width": self.architecture.width,
                "kind": str(self.kind),
            },
            "data": {
                "name": data.source.name,
                "train": len(data),
                "tuning": self.tuning_samples or len(data),
                "test": len(test),
                "fisher": self.fisher_samples,
                "rise": self.rise_samples,
            },
            "dense_options": recorded(self.dense),
            "tuning_options": recorded(self.tuning),
            "measures": list(self.measures),
        }


@dataclass(frozen=True)
class Way:
    """How a network gets its blocks: the size for each layer, and how blocks are fitted and norms folded."""

    sizes: dict[str, int]
    loss_aware: bool = True
    average_norm: bool = False

    def convert(self, network: nn.Module, kind: Kind, importance: dict[str, torch.Tensor]) -> nn.Module:
        """A copy of `network` with them."""
        return convert(network, self.sizes, kind, importance if self.loss_aware else None, self.average_norm)


def ways(network: nn.Module, tables: Mapping[Form, Table], comparison: Comparison) -> dict[str, Way]:
    """By run: dense; sizes searched by each of `tables` that cost no more than size b in all layers; that; the rest.
    Before these, sizes searched that cost so many times less than the dense network.

    A size is what a layer runs as, which may be less than what a run is called by. Raises SearchError.
    """
    c = comparison
    layers = [site.name for site in sites(network)]
    runs = {"dense, fine-tuned": Way({name: 1 for name in layers})}

    def searched(name: str, limits: dict[str, float]) -> None:
        for form, table in tables.items():
            runs[name if form == Form.FULL else f"{name} by {form}"] = Way(search(table, c.costs, limits).sizes)

    for times in c.faster:
        limits = {measure: c.costs.of(measure, {}) / times for measure in c.measures}
        searched(f"searched, {times:g} times faster", limits)
    for b in c.blocks:
        alike = c.costs.as_they_run(uniform(network, b))
        limits = {measure: c.costs.of(measure, alike) for measure in c.measures}
        # What is asked for first: a comparison that is stopped lacks the other ones.
        searched(f"searched as {b}", limits)
        runs[f"uniform {b}"] = Way(alike)
        if c.plain:
            runs[f"uniform {b}, Frobenius' fit"] = Way(alike, loss_aware=False)
            if any(site.norm is not None for site in sites(network)):
                runs[f"uniform {b}, norms averaged"] = Way(alike, average_norm=True)
    largest = c.costs.as_they_run(uniform(network, max(SIZES)))
    for group in range(c.groups):
        dense = set(layers[len(layers) * group // c.groups : len(layers) * (group + 1) // c.groups])
        sizes = "-".join("1" if other == group else str(max(SIZES)) for other in range(c.groups))
        runs[f"groups {sizes}"] = Way({name: 1 if name in dense else b for name, b in largest.items()})
    return runs


def compare(
    folder: Path,
    comparison: Comparison,
    data: Split,
    test: Split,
    seeds: Sequence[int],
    keep: Callable[[dict[str, Any]], None],
    progress: bool = True,
) -> dict[str, Any]:
    """Does what is not done yet in `folder` and returns the results; `keep` gets them after each run."""
    layers = {site.name: site.sizes for site in sites(comparison.architecture.build())}
    c = replace(comparison, costs=comparison.costs.for_layers(layers))
    results = {**c.described(data, test), "runs": [], "correlation": [], "harm": [], "summary": []}
    data, test = data.to(c.device), test.to(c.device)
    watched = test.first(c.watch)

    add = _adding(results, keep)
    for seed in seeds:
        inside = folder / f"seed{seed}"
        dense, curves = _dense(inside / "dense", c, seed, data, watched, progress)
        everywhere = {name: 1 for name in c.costs.figures}
        add(seed=seed, name="dense", **_run(inside / "dense", dense, everywhere, c.costs, test, curves))
        samples = data.first(c.fisher_samples)
        importance = _importance(inside / "fisher.pt", dense, samples)
        tables = _tables(inside / "harm.json", c.by, dense, importance, samples, c.kind)
        results["harm"].append({"seed": seed, **{str(form): found for form, found in tables.items()}})
        if seed in c.rise_seeds:
            omega = tables.get(Form.FULL) or sensitivity.full_table(dense, importance, samples, c.kind, FISHER_BATCH)
            rows = _rises(inside / "rises.json", dense, importance, omega, data.first(c.rise_samples), c.kind)
            results["correlation"].append({"seed": seed, **correlations(rows)})
        teacher = Teacher(dense, c.tuning.compiled)
        for name, way in ways(dense, tables, c).items():
            run = inside / re.sub("[^a-z0-9-]+", "-", name.lower())
            changed = way.convert(dense, c.kind, importance)
            before = evaluate(changed, watched).accuracy
            architecture, options = with_sizes(c.architecture, way.sizes, c.kind), replace(c.tuning, seed=seed)
            samples = data.first(c.tuning_samples)
            curves = train(run, architecture, changed, samples, watched, options, teacher, progress)
            row = _run(run, changed, way.sizes, c.costs, test, curves)
            add(seed=seed, name=name, accuracy_before_tuning=before, **row)
    return results


def _adding(results: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
    """What adds a run to the results, and its row to their summary; `keep` gets them then."""

    def add(**run: Any) -> None:
        results["runs"].append(run)
        results["summary"] = _summary(results["runs"])
        keep(results)

    return add


def _dense(
    folder: Path, comparison: Comparison | Fewer, seed: int, data: Split, watched: Split, progress: bool
) -> tuple[nn.Module, dict[str, Any]]:
    """The dense network of a seed as it was trained in `folder`, and its curves."""
    c = comparison
    torch.manual_seed(seed)
    # Drawn on the processor: the same weights to begin with on every device.
    fresh = c.architecture.build().to(c.device)
    curves = train(folder, c.architecture, fresh, data, watched, replace(c.dense, seed=seed), None, progress)
    return load_network(folder / "final.pt")[1].to(c.device), curves


# How many times fewer ReLUs, and to how many bits activations are rounded in the tuning (None: they are not).
Times = tuple[float, int | None]


@dataclass(frozen=True)
class Fewer:
    """What networks with few ReLUs are compared by: `times` fewer by each unit, found and tuned as `linearise` does it.

    The dense network is tuned for as many epochs as the others are searched and tuned.
    """

    architecture: Architecture
    units: Sequence[Unit]
    times: Sequence[Times]
    pace: float
    dense: Options
    seeking: Options
    tuning: Options
    watch: int = 2000
    device: torch.device = CPU

    def described(self, data: Split, test: Split) -> dict[str, Any]:
        """The head of the results."""
        return {
            "machine": _machine(self.device),
            "architecture": {"network": self.architecture.network, "width": self.architecture.width},
            "data": {"name": data.source.name, "train": len(data), "test": len(test)},
            "pace": self.pace,
            "dense_options": recorded(self.dense),
            "search_options": recorded(self.seeking),
            "tuning_options": recorded(self.tuning),
            "measures": [NUMBER],
        }


def compare_fewer(
    folder: Path,
    comparison: Fewer,
    data: Split,
    test: Split,
    seeds: Sequence[int],
    keep: Callable[[dict[str, Any]], None],
    progress: bool = True,
) -> dict[str, Any]:
    """Does what is not done yet in `folder` and returns the results; `keep` gets them after each run."""
    c = comparison
    results = {**c.described(data, test), "runs": [], "correlation": [], "summary": []}
    data, test = data.to(c.device), test.to(c.device)
    watched = test.first(c.watch)

    keep_run = _adding(results, keep)

    def add(
        seed: int, name: str, inside: Path, network: nn.Module, epochs: list[Any], seconds: float, **more: Any
    ) -> None:
        relus = count(network, c.architecture.inputs)
        run = {
            "seed": seed,
            "name": name,
            "accuracy": _accuracy(inside, network, test),
            "costs": {NUMBER: sum(relus.values())},
            "relus": relus,
            "cpu_seconds": seconds,
            "epochs": epochs,
            **more,
        }
        keep_run(**run)

    for seed in seeds:
        inside = folder / f"seed{seed}"
        dense, curves = _dense(inside / "dense", c, seed, data, watched, progress)
        add(seed, "dense", inside / "dense", dense, curves["epochs"], curves["cpu_seconds"])
        teacher = Teacher(dense, c.tuning.compiled)
        seeking, tuning = replace(c.seeking, seed=seed), replace(c.tuning, seed=seed)
        prices = by_number(dense, c.architecture.inputs)
        total = sum(count(dense, c.architecture.inputs).values())
        longer = replace(tuning, epochs=seeking.epochs + tuning.epochs)
        run, tuned = inside / "dense-fine-tuned", copy.deepcopy(dense)
        curves = train(run, c.architecture, tuned, data, watched, longer, teacher, progress)
        add(seed, "dense, fine-tuned", run, tuned, curves["epochs"], curves["cpu_seconds"])
        for unit, (times, bits) in itertools.product(c.units, c.times):
            searched_in = inside / f"{unit}-{times:g}"
            run = searched_in if bits is None else inside / f"{unit}-{times:g}-bits-{bits}"
            plan, tuned_by = Search(unit, prices, total // times, c.pace), replace(tuning, bits=bits)
            report = linearise(
                run,
                c.architecture,
                dense,
                teacher,
                data,
                watched,
                plan,
                seeking,
                tuned_by,
                progress,
                searched_in / "search",
            )
            network = load_network(run / "final.pt")[1].to(c.device)
            searched = {"search_epochs": report["search_epochs"]}
            name = f"{unit}s, {times:g} times fewer" + ("" if bits is None else f", {bits} bits")
            add(seed, name, run, network, report["epochs"], report["cpu_seconds"], **searched)
    return results


def merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The results of several calls, over different seeds, as those of one. Raises ValueError if they do not belong."""
    lists = ("runs", "correlation", "harm", "summary")
    try:
        heads = [{key: value for key, value in part.items() if key not in lists} for part in parts]
        if any(head != heads[0] for head in heads):
            raise ValueError("these results are of different machines, data or options")
        runs = sorted((run for part in parts for run in part["runs"]), key=lambda run: run["seed"])
        if len({(run["seed"], run["name"]) for run in runs}) != len(runs):
            raise ValueError("two of these results have the same seed")
        return {
            **heads[0],
            "runs": runs,
            # (Older results have no harm.)
            **{
                name: sorted((row for part in parts for row in part.get(name, [])), key=lambda row: row["seed"])
                for name in ("correlation", "harm")
            },
            "summary": _summary(runs),
        }
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"not results files of this package ({error!r})") from None


def correlations(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of all measures with the rise in loss, over all pairs of layer and size, and over those of each size."""
    # A rank correlation of fewer than three pairs says nothing.
    sizes = sorted(b for b in {row["b"] for row in rows} if sum(row["b"] == b for row in rows) > 2)
    return {
        "pairs": len(rows),
        "omega": rank_correlation(rows, "omega", "rise"),
        "omega_diagonal": rank_correlation(rows, "omega_diagonal", "rise"),
        "squared_distance": rank_correlation(rows, "squared_distance", "rise_frobenius"),
        "omega_by_size": {b: rank_correlation([r for r in rows if r["b"] == b], "omega", "rise") for b in sizes},
        "loss_aware_is_better": sum(row["rise"] < row["rise_frobenius"] for row in rows),
    }


def _run(
    folder: Path, network: nn.Module, sizes: dict[str, int], costs: Costs, test: Split, curves: dict[str, Any]
) -> dict[str, Any]:
    """A trained network's row."""
    return {
        "accuracy": _accuracy(folder, network, test),
        "parameters": sum(p.numel() for p in network.parameters()),
        "sizes": sizes,
        "costs": costs_of(costs, sizes),
        "cpu_seconds": curves["cpu_seconds"],
        "epochs": curves["epochs"],
    }


def _accuracy(folder: Path, network: nn.Module, test: Split) -> float:
    """Measured once, and kept beside the network's weights."""
    measured = folder / "accuracy.json"
    if not measured.exists():
        measured.write_text(json.dumps(evaluate(network, test).accuracy))
    accuracy: float = json.loads(measured.read_text())
    return accuracy


def _importance(path: Path, network: nn.Module, data: Split) -> dict[str, torch.Tensor]:
    if not path.exists():
        torch.save(sensitivity.fisher(network, data, FISHER_BATCH), path)
    kept: dict[str, torch.Tensor] = torch.load(path, map_location=device_of(network), weights_only=True)
    return kept


def _tables(
    path: Path,
    by: Sequence[Form],
    network: nn.Module,
    importance: dict[str, torch.Tensor],
    data: Split,
    kind: Kind,
) -> dict[Form, Table]:
    """What a size harms each layer by, in each form. Measured once: a run that is continued has the same sizes."""
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    missing = [form for form in by if form not in kept]
    if missing:
        kept |= {str(form): sensitivity.table(form, network, importance, data, kind, FISHER_BATCH) for form in missing}
        write(path, lambda beside: beside.write_text(json.dumps(kept)))
    return {form: {name: {int(b): v for b, v in row.items()} for name, row in kept[form].items()} for form in by}


def _rises(
    path: Path, network: nn.Module, importance: dict[str, torch.Tensor], omega: Table, data: Split, kind: Kind
) -> list[dict[str, Any]]:
    if not path.exists():
        path.write_text(json.dumps(rises(network, importance, omega, data, kind)))
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return rows


def _summary(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means and standard deviations over seeds, in percent; losses are against "dense, fine-tuned", seed by seed."""
    control = {run["seed"]: run["accuracy"] for run in runs if run["name"] == "dense, fine-tuned"}
    rows = []
    for name in dict.fromkeys(run["name"] for run in runs):
        own = [run for run in runs if run["name"] == name]
        accuracies = [100 * run["accuracy"] for run in own]
        losses = [100 * (control[run["seed"]] - run["accuracy"]) for run in own if run["seed"] in control]
        rows.append(
            {
                "name": name,
                "group": name.split()[0].strip(","),
                "seeds": len(own),
                "costs": {m: statistics.mean(run["costs"][m] for run in own) for m in own[0]["costs"]},
                "accuracy_mean": statistics.mean(accuracies),
                "accuracy_std": _deviation(accuracies),
                "loss_mean": statistics.mean(losses) if losses else None,
                "loss_std": _deviation(losses),
                "losses": losses,
            }
        )
    return rows


def _deviation(values: Sequence[float]) -> float | None:
    """The sample's standard deviation; a single value has none."""
    return statistics.stdev(values) if len(values) > 1 else None
