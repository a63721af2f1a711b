"""The integer program against all choices, and errors for what it cannot use."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from circulant.search import Costs, SearchError, read_costs, search

SIZES = (1, 2, 4, 8, 16)


def random_case(rng: np.random.Generator, layers: int) -> tuple[dict, Costs]:
    omega, figures = {}, {}
    for k in range(layers):
        sizes = SIZES[: rng.integers(1, 6)]
        growing = np.cumsum(rng.exponential(10.0 ** rng.integers(-4, 2), len(sizes)))
        omega[f"l{k}"] = {b: float(v) if b > 1 else 0.0 for b, v in zip(sizes, growing, strict=True)}
        base = rng.uniform(1, 1000)
        figures[f"l{k}"] = {
            b: {"seconds": base / b * rng.uniform(0.8, 1.2), "hint_bytes": float(rng.integers(1, 50) * 1000 // b)}
            for b in sizes
        }
    effective = {name: {b: b for b in sizes} for name, sizes in figures.items()}
    return omega, Costs(figures, effective)


@pytest.mark.parametrize("case", range(40))
def test_against_brute_force(case: int) -> None:
    rng = np.random.default_rng(case)
    omega, costs = random_case(rng, 5)
    dense = dict.fromkeys(omega, 1)
    limits = {"seconds": costs.of("seconds", dense) * rng.uniform(0.15, 0.9)}
    if case % 2:
        limits["hint"] = costs.of("hint", dense) * rng.uniform(0.3, 0.9)
    best = None
    for sizes in itertools.product(*omega.values()):
        chosen = dict(zip(omega, sizes, strict=True))
        if all(costs.of(measure, chosen) <= limit for measure, limit in limits.items()):
            value = sum(omega[name][b] for name, b in chosen.items())
            best = value if best is None else min(best, value)
    if best is None:
        with pytest.raises(SearchError, match="no choice meets"):
            search(omega, costs, limits)
        return
    found = search(omega, costs, limits)
    assert all(costs.of(measure, found.sizes) <= limit for measure, limit in limits.items())
    largest = max(max(sizes.values()) for sizes in omega.values())
    assert best <= found.omega * (1 + 1e-12) and found.omega <= best + 1e-6 * largest


def test_some_cases_have_and_some_lack_an_answer() -> None:
    """So that the test above tests both."""
    answers = 0
    for case in range(40):
        rng = np.random.default_rng(case)
        omega, costs = random_case(rng, 5)
        limit = costs.of("seconds", dict.fromkeys(omega, 1)) * rng.uniform(0.15, 0.9)
        try:
            search(omega, costs, {"seconds": limit})
            answers += 1
        except SearchError:
            pass
    assert 5 < answers < 40


def plan(seconds: float | None = 0.5) -> dict:
    figures = {"seconds": seconds, "bytes": 100, "hint_bytes": 7}
    costs = [{"b": b, "kind": "skew", "effective": min(b, 2), "figures": figures} for b in (1, 2, 4)]
    return {"block_sizes": [{"node": 0, "name": "a", "shape": [4, 2, 2], "own": 1, "costs": costs}]}


def written(folder: Path, value: object) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(value))
    return path


def test_a_plan_is_read(tmp_path: Path) -> None:
    costs = read_costs(written(tmp_path, plan()))
    assert costs.table("hint") == {"a": {1: 7.0, 2: 7.0, 4: 7.0}}
    assert costs.as_they_run({"a": 4}) == {"a": 2}
    assert costs.of("bytes", {}) == 100


def test_what_is_no_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SearchError, match="is missing"):
        read_costs(tmp_path / "none.json")
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(SearchError, match="not JSON"):
        read_costs(tmp_path / "plan.json")
    broken = plan()
    del broken["block_sizes"][0]["costs"][1]["effective"]
    without_dense = plan()
    del without_dense["block_sizes"][0]["costs"][0]
    negative = plan(-1.0)
    twice = {"block_sizes": plan()["block_sizes"] * 2}
    for value in ([], {}, {"block_sizes": [3]}, broken, without_dense, negative, twice):
        with pytest.raises(SearchError):
            read_costs(written(tmp_path, value))


def test_a_whole_transformers_plan_is_matched_by_paths(tmp_path: Path) -> None:
    own = plan()["block_sizes"][0]
    norm = {**own, "name": "/layers/layers.0/norm1/LayerNormalization", "costs": own["costs"][:1]}
    layers = [{**own, "name": "/layers/layers.0/up/Add"}, norm, norm, {**own, "name": "head"}]
    costs = read_costs(written(tmp_path, {"block_sizes": layers}))
    known = costs.for_layers({"layers.0.up": [1, 2], "head": [1, 2], "patches": [1]})
    assert known.figures.keys() == {"layers.0.up", "head", "patches"}
    assert known.table("hint")["layers.0.up"] == {1: 7.0, 2: 7.0, 4: 7.0} and known.table("hint")["patches"] == {1: 0.0}
    assert known.as_they_run({"layers.0.up": 4, "patches": 1}) == {"layers.0.up": 2, "patches": 1}
    # A layer with a choice that no plan has is for the search to refuse.
    with pytest.raises(SearchError, match="layers differ"):
        search({"layers.1.up": {1: 0.0, 2: 1.0}}, costs.for_layers({"layers.1.up": [1, 2]}), {"bytes": 1000})


def test_bounds_and_layers_must_fit(tmp_path: Path) -> None:
    costs = read_costs(written(tmp_path, plan(None)))
    omega = {"a": {1: 0.0, 2: 1.0}}
    with pytest.raises(SearchError, match="was the machine measured"):
        search(omega, costs, {"seconds": 1.0})
    with pytest.raises(SearchError, match="least possible is 100"):
        search(omega, costs, {"bytes": 99})
    with pytest.raises(SearchError, match="layers differ"):
        search({"b": {1: 0.0}}, costs, {"bytes": 100})
    with pytest.raises(SearchError, match="expected one of"):
        search(omega, costs, {"miles": 100})
    with pytest.raises(SearchError, match="no bound"):
        search(omega, costs, {})
    assert search(omega, costs, {"bytes": 100}).sizes == {"a": 1}
