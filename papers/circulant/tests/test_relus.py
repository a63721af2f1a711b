"""Networks with few ReLUs: masks, gates, budgets, runs that continue, and the files that are written."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from conftest import OPTIONS, SMALL, SOURCE

from circulant.cli import main
from circulant.compare import Fewer, compare_fewer, merged
from circulant.convert import convert, uniform
from circulant.data import Split
from circulant.export import export
from circulant.linearise import (
    NUMBER,
    Descent,
    Prices,
    Search,
    by_number,
    by_plans,
    chosen,
    cost_of,
    linearise,
)
from circulant.networks import build
from circulant.relus import (
    GatedReLU,
    PartialReLU,
    ReluError,
    Unit,
    count,
    each_gate,
    each_partial,
    shapes,
    with_gates,
    with_masks,
)
from circulant.search import SearchError
from circulant.training import Teacher, load_network, train

WIDTH = 0.125


def random_masks(network: torch.nn.Module, unit: Unit, share: float = 0.3) -> dict[str, torch.Tensor]:
    """Each ReLU keeps a random part of its values, the second all and the third none."""
    masks = {name: torch.rand(unit.of(shape)) < share for name, shape in shapes(network, 1).items()}
    names = list(masks)
    masks[names[1]][:] = True
    masks[names[2]][:] = False
    return masks


def relus_of(path: Path) -> dict[str, int]:
    """How many values each ReLU of an ONNX file takes, by onnx's own inference of shapes."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
    known = {value.name: value.type.tensor_type.shape.dim for value in model.graph.value_info}
    nodes = [node for node in model.graph.node if node.op_type == "Relu"]
    return {node.name: int(np.prod([dim.dim_value for dim in known[node.output[0]]])) for node in nodes}


def test_a_mask_keeps_the_relu_where_it_is_set_and_leaves_the_rest() -> None:
    x = torch.tensor([[[[-1.0, 2.0], [-3.0, 4.0]], [[-5.0, 6.0], [7.0, -8.0]]]])
    by_value = torch.tensor([[[True, True], [False, False]], [[False, True], [True, True]]])
    found = PartialReLU(by_value, (2, 2, 2))(x)
    assert found.tolist() == [[[[0, 2], [-3, 4]], [[-5, 6], [7, 0]]]]
    by_channel = torch.tensor([[[False]], [[True]]])
    found = PartialReLU(by_channel, (2, 2, 2))(x)
    assert found.tolist() == [[[[-1, 2], [-3, 4]], [[0, 6], [7, 0]]]]
    assert (PartialReLU(by_value, (2, 2, 2)).kept(), PartialReLU(by_channel, (2, 2, 2)).kept()) == (5, 4)


@pytest.mark.parametrize("kind", [PartialReLU, GatedReLU])
@pytest.mark.parametrize("unit", list(Unit))
def test_maps_stay_channels_last_and_of_their_type(kind: type[PartialReLU | GatedReLU], unit: Unit) -> None:
    shape = (16, 8, 8)
    module = kind(torch.rand(unit.of(shape)) < 0.5, shape)
    x = torch.randn(4, *shape, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last).requires_grad_()
    y = module(x)
    gradient = torch.autograd.grad(y, x, torch.ones_like(y))[0]
    for maps in (y, gradient):
        assert maps.is_contiguous(memory_format=torch.channels_last) and maps.dtype == torch.bfloat16


def test_a_gate_is_the_mean_of_the_relu_and_of_nothing_and_so_is_its_gradient() -> None:
    gated = GatedReLU(torch.ones(2, 3, 3), (2, 3, 3))
    c, x = torch.rand(2, 3, 3), torch.randn(4, 2, 3, 3)
    with torch.no_grad():
        gated.gate.copy_(c)
    upwards = torch.randn(4, 2, 3, 3)
    taken = x.clone().requires_grad_()
    (gated(taken) * upwards).sum().backward()
    wanted, free = x.clone().requires_grad_(), c.clone().requires_grad_()
    expected = free * torch.relu(wanted) + (1 - free) * wanted
    assert torch.allclose(gated(x), expected, atol=1e-6)
    (expected * upwards).sum().backward()
    assert gated.gate.grad is not None and free.grad is not None and taken.grad is not None
    assert torch.allclose(gated.gate.grad, free.grad, atol=1e-5)
    assert torch.allclose(taken.grad, wanted.grad, atol=1e-6)


@pytest.mark.parametrize("name", ["resnet18"])
@pytest.mark.parametrize("unit", list(Unit))
def test_with_all_gates_open_and_all_masks_set_the_network_is_the_same(name: str, unit: Unit) -> None:
    network, x = build(name, WIDTH).eval(), torch.randn(2, 1, 32, 32)
    gated = with_gates(network, unit, 1)
    assert torch.equal(gated(x), network(x))
    masks = {name: torch.ones(unit.of(shape)) for name, shape in shapes(network, 1).items()}
    kept = with_masks(network, masks, 1)
    assert torch.equal(kept(x), network(x)) and count(kept, 1) == count(network, 1)
    assert len(masks) == 17 and sum(count(network, 1).values()) == 69632


@pytest.mark.parametrize("unit", list(Unit))
def test_the_file_has_as_many_relus_as_the_masks_and_the_same_outputs(unit: Unit, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    network = build("resnet18", WIDTH)
    network.train()(torch.randn(8, 1, 32, 32))
    masks = random_masks(network, unit)
    partial, path = with_masks(network, masks, 1).eval(), tmp_path / "few.onnx"
    export(partial, path)
    kept = {name: number for name, number in count(partial, 1).items() if number}
    assert relus_of(path) == kept
    assert sum(kept.values()) == sum(module.kept() for _, module in each_partial(partial))
    # Nothing but moves was added: no Where, no product by a mask.
    allowed = {"Conv", "Relu", "Add", "Gather", "Concat", "Flatten", "Reshape", "Constant", "GlobalAveragePool", "Gemm"}
    assert {node.op_type for node in onnx.load(path).graph.node} <= allowed

    x = torch.randn(1, 1, 32, 32)
    (found,) = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"input": x.numpy()})
    expected = partial(x).detach().numpy()
    assert np.allclose(found, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))
    # It matters: with all ReLUs the outputs are others.
    assert not np.allclose(found, network.eval()(x).detach().numpy(), atol=1e-2 * np.abs(expected).max())


@pytest.mark.parametrize("unit", list(Unit))
def test_an_activations_moves_are_the_mask_bit_for_bit(unit: Unit, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    mask, path = torch.rand(unit.of((6, 4, 5))) < 0.4, tmp_path / "one.onnx"
    partial = PartialReLU(mask, (6, 4, 5))
    export(torch.nn.Sequential(partial), path, (1, 6, 4, 5))
    x = torch.randn(1, 6, 4, 5)
    (found,) = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"input": x.numpy()})
    assert np.array_equal(found, partial(x).numpy())


def test_blocks_and_few_relus_go_together(tmp_path: Path) -> None:
    dense = build("resnet18", WIDTH)
    network = convert(dense, uniform(dense, 4))
    network.train()(torch.randn(4, 1, 32, 32))
    partial = with_masks(network, random_masks(network, Unit.CHANNEL), 1)
    sizes = export(partial, tmp_path / "few.onnx")
    assert sizes == {layer: b for layer, b in uniform(dense, 4).items() if b > 1}
    assert sum(relus_of(tmp_path / "few.onnx").values()) == sum(count(partial, 1).values())


def test_masks_of_another_network_are_refused() -> None:
    network = build("resnet18", WIDTH)
    masks = random_masks(network, Unit.CHANNEL)
    with pytest.raises(ReluError, match="blocks.7.act"):
        with_masks(network, {name: mask for name, mask in masks.items() if name != "blocks.7.act"}, 1)
    with pytest.raises(ReluError, match="stem.act: a mask of"):
        with_masks(network, {**masks, "stem.act": torch.ones(8, 32, 31)}, 1)
    with pytest.raises(ReluError, match="no ReLU"):
        shapes(build("vit", WIDTH), 1)
    by_value = with_masks(network, random_masks(network, Unit.PIXEL), 1)
    with pytest.raises(ReluError, match="take --unit pixel"):
        with_gates(by_value, Unit.CHANNEL, 1)


def gated_with(gates: dict[str, float], unit: Unit, gradients: dict[str, float]) -> torch.nn.Module:
    """ResNet-18 with gates, and gradients that say what a rise of each gate would do to the loss."""
    network = with_gates(build("resnet18", WIDTH), unit, 1)
    for name, module in each_gate(network):
        with torch.no_grad():
            module.gate.fill_(gates.get(name, 1.0))
        module.gate.grad = torch.full_like(module.gate, gradients.get(name, 0.0))
    return network


def open_cost(network: torch.nn.Module, prices: Prices) -> float:
    total = 0.0
    for name, module in each_gate(network):
        values = module.shape[0] * module.shape[1] * module.shape[2] / module.gate.numel()
        total += prices.each[name] * values * float(module.gate.detach().double().sum())
    return total


@pytest.mark.parametrize("unit", list(Unit))
def test_after_each_step_open_gates_cost_the_steps_budget(unit: Unit) -> None:
    network = gated_with({}, unit, {"stem.act": -1e-3, "blocks.0.act": 2e-3})
    names = list(shapes(network, 1))
    prices = Prices("seconds", 0.5, {name: 1e-6 * (1 + k % 3) for k, name in enumerate(names)})
    total = open_cost(network, prices)
    descent = Descent(network, Search(unit, prices, 0.5 + 0.1 * total, 5), 100)
    for share in (0.1, 0.4, 0.7, 0.8, 1.0):
        for _, module in each_gate(network):
            module.gate.grad = torch.randn_like(module.gate) * 1e-3
        descent(share, 1.0)
        assert open_cost(network, prices) == pytest.approx(descent.budget(share) * total, rel=1e-3)
        gates = torch.cat([module.gate.detach().flatten() for _, module in each_gate(network)])
        assert 0 <= float(gates.min()) and float(gates.max()) <= 1
    assert descent.budget(1.0) == pytest.approx(0.1)
    kept = with_masks(network, chosen(network, Search(unit, prices, 0.5 + 0.1 * total)), 1)
    assert 0.5 < cost_of(kept, prices) <= 0.5 + 0.1 * total


def test_gates_that_the_loss_needs_stay_open_and_cheap_ones_before_dear_ones() -> None:
    """All gates but one layer's have no gradient; and of two layers with the same gradient the dearer one closes."""
    network = gated_with({}, Unit.PIXEL, {})
    prices = Prices("seconds", 0.0, {name: 2.0 if name == "blocks.1.act" else 1.0 for name in shapes(network, 1)})
    numbers = count(build("resnet18", WIDTH), 1)
    bound = 2.0 * numbers["blocks.0.act"]
    search = Search(Unit.PIXEL, prices, bound, 5)
    descent = Descent(network, search, 100)
    for step in range(1, 101):
        for name, module in each_gate(network):
            needed = {"stem.act": 1e-4, "blocks.0.act": -2e-3, "blocks.1.act": -2e-3}.get(name, 0.0)
            module.gate.grad = torch.full_like(module.gate, needed)
        descent(step / 100, 1.0)
    kept = {name: int(mask.sum()) for name, mask in chosen(network, search).items()}
    assert kept["stem.act"] == 0 and kept["blocks.0.act"] == numbers["blocks.0.act"]
    assert kept["blocks.1.act"] < numbers["blocks.1.act"]


def test_gates_without_a_mask_stay_closed() -> None:
    start = with_masks(build("resnet18", WIDTH), random_masks(build("resnet18", WIDTH), Unit.PIXEL, 0.5), 1)
    network = with_gates(start, Unit.PIXEL, 1)
    search = Search(Unit.PIXEL, by_number(start, 1), 5000, 1)
    descent = Descent(network, search, 2)
    for share in (0.5, 1.0):
        for _, module in each_gate(network):
            module.gate.grad = -torch.rand_like(module.gate)
        descent(share, 1.0)
    masks = chosen(network, search)
    assert 0 < sum(int(mask.sum()) for mask in masks.values()) <= 5000
    for name, module in each_partial(start):
        assert not bool((masks[name] & ~module.mask).any())


def write_plans(folder: Path, network: torch.nn.Module) -> tuple[Path, Path]:
    """Plans as `jaguar plan --json` writes them: a ReLU costs 2e-6 s a value, x itself 5e-7, convolutions 0.01."""

    def node(seconds: float, amount: int) -> dict[str, object]:
        half = {"bytes_up": amount // 2, "bytes_down": amount // 2, "rounds": 1}
        sides = {"client": seconds / 4, "server": seconds / 4}
        return {"offline": {**half, "seconds": sides}, "online": {"bytes_up": 0, "bytes_down": 0, "seconds": sides}}

    paths = (folder / "dense.plan.json", folder / "none.plan.json")
    for path, each in zip(paths, (2e-6, 5e-7), strict=True):
        layers, nodes = [{"name": "stem.conv"}], [node(0.01, 1000)]
        for name, number in count(network, 1).items():
            layers.append({"name": name if each > 1e-6 else f"{name}.conv"})
            nodes.append(node(each * number, int(1e7 * each) * number))
        path.write_text(json.dumps({"layers": layers, "prediction": {"nodes": nodes}}))
    return paths


def test_costs_are_what_the_plans_differ_by(tmp_path: Path) -> None:
    network = build("resnet18", WIDTH)
    dense, none = write_plans(tmp_path, network)
    prices = by_plans("seconds", dense, none, network, 1)
    assert prices.without == pytest.approx(0.01 + 5e-7 * 69632)
    assert set(prices.each) == set(count(network, 1))
    assert all(value == pytest.approx(1.5e-6) for value in prices.each.values())
    assert by_plans("online-seconds", dense, none, network, 1).each["stem.act"] == pytest.approx(0.75e-6)
    assert by_plans("bytes", dense, none, network, 1).each["stem.act"] == pytest.approx(15)
    with pytest.raises(SearchError, match="has ReLUs"):
        by_plans("seconds", dense, dense, network, 1)
    with pytest.raises(SearchError, match="--keep-names"):
        by_plans("seconds", none, none, network, 1)
    with pytest.raises(SearchError, match="is missing"):
        by_plans("seconds", tmp_path / "nowhere", none, network, 1)
    plan = json.loads(dense.read_text())
    plan["prediction"]["nodes"][3]["online"]["seconds"] = None
    dense.write_text(json.dumps(plan))
    with pytest.raises(SearchError, match="measured machine"):
        by_plans("seconds", dense, none, network, 1)
    assert by_plans("bytes", dense, none, network, 1).without == pytest.approx(1000 + 5 * 69632)


SEEKING = replace(OPTIONS, epochs=2, rate=0.02)
TUNING = replace(OPTIONS, epochs=2)


def few(folder: Path, model: Path, data: Iterable[Split], search: Search) -> dict[str, object]:
    architecture, dense = load_network(model)
    return linearise(folder, architecture, dense, Teacher(dense), *data, search, SEEKING, TUNING, progress=False)


@pytest.mark.parametrize("unit", list(Unit))
def test_a_budget_is_kept_and_the_network_has_learnt(
    unit: Unit,
    trained: Path,
    splits: tuple[Split, Split],
    tmp_path: Path,
) -> None:
    dense = load_network(trained)[1]
    search = Search(unit, by_number(dense, 1), 69632 // 5)
    report = few(tmp_path / "few", trained, splits, search)
    architecture, network = load_network(tmp_path / "few" / "final.pt")
    kept = count(network, 1)
    assert architecture.relus == unit
    assert 0.9 * 69632 / 5 < sum(kept.values()) <= 69632 / 5
    assert report["by_layer"] == kept and report["relus"] == report["cost"] == sum(kept.values())
    # Of ten classes.
    assert report["epochs"][-1]["test_accuracy"] > 0.5  # type: ignore[index]
    # The network with gates can be loaded as well: its masks are those that were chosen.
    assert count(load_network(tmp_path / "few" / "search" / "final.pt")[1], 1) == kept


def test_a_run_in_pieces_is_the_run_in_one(
    trained: Path,
    splits: tuple[Split, Split],
    tmp_path: Path,
) -> None:
    dense = load_network(trained)[1]
    search = Search(Unit.CHANNEL, by_number(dense, 1), 69632 // 4)
    few(tmp_path / "one", trained, splits, search)
    architecture = replace(SMALL, relus=Unit.CHANNEL)
    settings = json.loads((tmp_path / "one" / "search" / "curves.json").read_text())["linearise"]
    for _ in range(2):
        # Gates are in the checkpoint: what is left of them after so many steps goes on.
        gated = with_gates(dense, Unit.CHANNEL, 1)
        train(
            tmp_path / "two" / "search",
            architecture,
            gated,
            *splits,
            SEEKING,
            Teacher(dense),
            progress=False,
            stop_after=11,
            after=Descent(gated, search, SEEKING.epochs * (len(splits[0]) // SEEKING.batch)),
            settings={"linearise": settings},
        )
    few(tmp_path / "two", trained, splits, search)
    one, two = (load_network(tmp_path / name / "final.pt")[1].state_dict() for name in ("one", "two"))
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)
    with pytest.raises(ValueError, match="other options"):
        few(tmp_path / "two", trained, splits, replace(search, bound=search.bound - 64))


def test_a_killed_command_continues_to_the_same_masks(data_folder: Path, trained: Path, tmp_path: Path) -> None:
    def command(out: Path) -> list[str]:
        options = (
            "linearise --times 4 --unit pixel --epochs 2 --search-epochs 3 --batch 50 --checkpoint-steps 2 --quiet"
        )
        return [sys.executable, "-m", "circulant", *options.split(), "--model", str(trained), "--out", str(out)]

    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "CIRCULANT_DATA": str(data_folder)}
    subprocess.run(command(tmp_path / "one"), env=environment, check=True)
    process = subprocess.Popen(command(tmp_path / "two"), env=environment)
    checkpoint = tmp_path / "two" / "search" / "checkpoint.pt"
    until = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert checkpoint.exists() and not (tmp_path / "two" / "final.pt").exists()
    subprocess.run(command(tmp_path / "two"), env=environment, check=True)
    one, two = (load_network(tmp_path / name / "final.pt")[1].state_dict() for name in ("one", "two"))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_the_command_line(data_folder: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = f"--data {data_folder} --batch 50 --quiet --epochs 1 --search-epochs 1"
    dense, none = write_plans(tmp_path, load_network(trained)[1])

    def call(text: str) -> int:
        return main(text.split())

    assert call(f"linearise --model {trained} --limit seconds=0.08 --out {tmp_path}/a {run}") == 1
    assert "needs --costs" in capsys.readouterr().err
    costs = f"--costs {dense} {none}"
    assert call(f"linearise --model {trained} --limit seconds=0.01 {costs} --out {tmp_path}/a {run}") == 1
    assert "no choice meets seconds <= 0.01" in capsys.readouterr().err
    assert call(f"linearise --model {trained} --limit seconds=0.08 {costs} --out {tmp_path}/b {run}") == 0
    report = json.loads((tmp_path / "b" / "relus.json").read_text())
    assert 0.075 < report["cost"] <= 0.08 and report["cost"] == pytest.approx(
        0.01 + 5e-7 * 69632 + 1.5e-6 * report["relus"]
    )
    again = f"linearise --model {tmp_path}/b/final.pt --limit {NUMBER}=5000 --out {tmp_path}/c {run}"
    assert call(again) == 1 and "--teacher" in capsys.readouterr().err
    assert call(f"{again} --teacher {trained}") == 0
    for wrong in (
        "--times 0.5",
        "--times nan",
        "--limit relus=nan",
        "--times 5 --search-rate 0",
        "--times 5 --pace -1",
    ):
        with pytest.raises(SystemExit):
            call(f"linearise --model {trained} {wrong} --out {tmp_path}/d {run}")
        assert "expected a number" in capsys.readouterr().err
    assert call(f"linearise --model {trained} --times 5 {costs} --out {tmp_path}/d {run}") == 1
    assert "--costs says nothing" in capsys.readouterr().err
    assert call(f"export --model {tmp_path}/c/final.pt --out {tmp_path}/c.onnx") == 0
    written = sum(relus_of(tmp_path / "c.onnx").values())
    assert 0 < written <= 5000 and written == json.loads((tmp_path / "c" / "relus.json").read_text())["relus"]
    assert call(f"export --model {trained} --no-relus --out {tmp_path}/none.onnx") == 0
    assert relus_of(tmp_path / "none.onnx") == {}
    names = [node.name for node in onnx.load(tmp_path / "none.onnx").graph.node if node.op_type == "Conv"]
    assert len(names) == 20 and "stem.conv" in names


def test_the_comparison_continues_and_its_parts_merge(splits: tuple[Split, Split], tmp_path: Path) -> None:
    short = replace(OPTIONS, epochs=1)
    fewer = Fewer(SMALL, [Unit.CHANNEL], [(5, None), (5, 4)], 40, short, short, short, watch=100)
    kept: list[dict[str, object]] = []
    parts = [compare_fewer(tmp_path, fewer, *splits, [seed], kept.append, progress=False) for seed in (0, 1)]
    again = compare_fewer(tmp_path, fewer, *splits, [0], kept.append, progress=False)
    assert [run["accuracy"] for run in again["runs"]] == [run["accuracy"] for run in parts[0]["runs"]]
    results = merged(parts)
    few = ["channels, 5 times fewer", "channels, 5 times fewer, 4 bits"]
    assert [row["name"] for row in results["summary"]] == ["dense", "dense, fine-tuned", *few]
    # Both go on from one search, and are two networks.
    plain, bits = (tmp_path / "seed0" / name for name in ("channel-5", "channel-5-bits-4"))
    assert (plain / "search" / "final.pt").exists() and not (bits / "search").exists()
    masks = [{name: m.mask for name, m in each_partial(load_network(run / "final.pt")[1])} for run in (plain, bits)]
    assert all(torch.equal(mask, masks[1][name]) for name, mask in masks[0].items())
    assert json.loads((bits / "curves.json").read_text())["options"]["bits"] == 4
    assert "bits" not in json.loads((plain / "curves.json").read_text())["options"]
    row = results["summary"][2]
    assert row["seeds"] == 2 and 0.8 * 69632 / 5 < row["costs"][NUMBER] <= 69632 / 5
    # As many epochs for the control as for search and tuning together.
    assert len(results["runs"][1]["epochs"]) == 2
