"""The recorded comparison: dense, uniform sizes, and searched sizes that cost no more, over several seeds.

For each seed: a dense network; from it every other one by conversion and the same fine-tuning with distillation, the
dense one too ("dense, fine-tuned"), so that nothing is owed to the additional epochs alone. All accuracies are of all
test pictures and of the last epoch; no epoch is picked by them.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import nn

from . import sensitivity
from .blocks import Kind
from .convert import convert, uniform
from .data import Split
from .search import Costs, costs_of, search
from .training import Architecture, Options, evaluate, load_network, train, with_sizes


def rises(
    network: nn.Module, importance: dict[str, torch.Tensor], data: Split, kind: Kind = Kind.SKEW
) -> list[dict[str, Any]]:
    """For each layer and size above 1: Omega, the squared distance, and the true rise in loss over `data`.

    Each time one layer alone is converted, its loss-aware fit and Frobenius' one by one; nothing is trained.
    """
    dense = evaluate(network, data).loss
    aware = sensitivity.table(network, importance, kind)
    distance = sensitivity.table(network, importance, kind, baseline=True)
    rows = []
    for name, sizes in aware.items():
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
                    "squared_distance": distance[name][b],
                    "rise": own - dense,
                    "rise_frobenius": plain - dense,
                }
            )
    return rows


def rank_correlation(rows: Sequence[dict[str, Any]], of: str, against: str) -> float:
    """Spearman's, between two columns of `rises`."""
    return float(spearmanr([row[of] for row in rows], [row[against] for row in rows]).statistic)


def sizes_for(
    network: nn.Module, omega: dict[str, dict[int, float]], costs: Costs, blocks: Sequence[int], measure: str
) -> dict[str, dict[str, int]]:
    """By run: all layers of size b as far as they run as such, and searched ones of at most the same cost."""
    runs: dict[str, dict[str, int]] = {"dense, fine-tuned": {name: 1 for name in omega}}
    for b in blocks:
        runs[f"uniform {b}"] = costs.as_they_run(uniform(network, b))
        limit = costs.of(measure, runs[f"uniform {b}"])
        runs[f"searched as {b}"] = search(omega, costs, {measure: limit}).sizes
    return runs


def compare(
    folder: Path,
    architecture: Architecture,
    data: Split,
    test: Split,
    dense: Options,
    tuning: Options,
    tuning_samples: int | None,
    costs: Costs,
    measure: str,
    blocks: Sequence[int],
    seeds: Sequence[int],
    fisher_samples: int,
    rise_samples: int,
    watch: int = 2000,
    kind: Kind = Kind.SKEW,
    progress: bool = True,
) -> dict[str, Any]:
    """Does what is not done yet and returns the results. `watch` test pictures are looked at after each epoch."""
    results: dict[str, Any] = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "cores": os.cpu_count(),
        },
        "architecture": {"network": architecture.network, "width": architecture.width, "kind": str(kind)},
        "data": {
            "train": len(data),
            "tuning": tuning_samples or len(data),
            "test": len(test),
            "fisher": fisher_samples,
            "rise": rise_samples,
        },
        "dense_options": asdict(dense),
        "tuning_options": asdict(tuning),
        "measure": measure,
        "runs": [],
        "correlation": [],
    }
    for seed in seeds:
        inside = folder / f"seed{seed}"
        torch.manual_seed(seed)
        network = architecture.build()
        curves = train(
            inside / "dense", architecture, network, data, test.first(watch), replace(dense, seed=seed), None, progress
        )
        _, teacher = load_network(inside / "dense" / "final.pt")
        sizes = {name: 1 for name in costs.figures}
        _add(results, seed, "dense", "dense", sizes, costs, teacher, test, curves)
        importance = _importance(inside / "fisher.pt", teacher, data.first(fisher_samples))
        omega = sensitivity.table(teacher, importance, kind)
        rows = _rises(inside / "rises.json", teacher, importance, data.first(rise_samples), kind)
        results["correlation"].append(
            {
                "seed": seed,
                "pairs": len(rows),
                "omega": rank_correlation(rows, "omega", "rise"),
                "squared_distance": rank_correlation(rows, "squared_distance", "rise_frobenius"),
                "loss_aware_is_better": sum(row["rise"] < row["rise_frobenius"] for row in rows),
            }
        )
        for name, chosen in sizes_for(teacher, omega, costs, blocks, measure).items():
            changed = convert(teacher, chosen, kind, importance)
            before = evaluate(changed, test.first(watch)).accuracy
            curves = train(
                inside / name.replace(" ", "-").replace(",", ""),
                with_sizes(architecture, chosen, kind),
                changed,
                data.first(tuning_samples),
                test.first(watch),
                replace(tuning, seed=seed),
                teacher,
                progress,
            )
            _add(results, seed, name, name.split()[0].strip(","), chosen, costs, changed, test, curves, before)
    results["summary"] = _summary(results["runs"])
    return results


def _add(
    results: dict[str, Any],
    seed: int,
    name: str,
    group: str,
    sizes: dict[str, int],
    costs: Costs,
    network: nn.Module,
    test: Split,
    curves: dict[str, Any],
    before: float | None = None,
) -> None:
    """Measures a network that is trained and appends it. `before`: its accuracy when just converted."""
    network.eval()
    parameters = sum(p.numel() for p in network.parameters())
    results["runs"].append(
        {
            "seed": seed,
            "name": name,
            "group": group,
            "accuracy": evaluate(network, test).accuracy,
            "accuracy_before_tuning": before,
            "parameters": parameters,
            "sizes": sizes,
            "costs": costs_of(costs, sizes),
            "cpu_seconds": curves["cpu_seconds"],
            "epochs": curves["epochs"],
        }
    )


def _importance(path: Path, network: nn.Module, data: Split) -> dict[str, torch.Tensor]:
    if not path.exists():
        torch.save(sensitivity.fisher(network, data, batch=4), path)
    kept: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
    return kept


def _rises(
    path: Path, network: nn.Module, importance: dict[str, torch.Tensor], data: Split, kind: Kind
) -> list[dict[str, Any]]:
    if not path.exists():
        path.write_text(json.dumps(rises(network, importance, data, kind)))
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return rows


def _summary(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means and standard deviations over seeds, in percent; losses are against "dense, fine-tuned", seed by seed."""
    control = {run["seed"]: run["accuracy"] for run in runs if run["name"] == "dense, fine-tuned"}
    rows = []
    for name in dict.fromkeys(run["name"] for run in runs):
        own = [run for run in runs if run["name"] == name]
        accuracies = [100 * run["accuracy"] for run in own]
        losses = [100 * (control[run["seed"]] - run["accuracy"]) for run in own]
        costs = {m: statistics.mean(run["costs"][m] for run in own) for m in own[0]["costs"]}
        rows.append(
            {
                "name": name,
                "group": own[0]["group"],
                "seeds": len(own),
                "costs": costs,
                "accuracy_mean": statistics.mean(accuracies),
                "accuracy_std": _deviation(accuracies),
                "loss_mean": statistics.mean(losses),
                "loss_std": _deviation(losses),
                "losses": losses,
            }
        )
    return rows


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
