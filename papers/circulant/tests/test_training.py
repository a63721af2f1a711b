"""Data, training that survives a kill, the sensitivity against the truth, and the command line."""

import copy
import gzip
import json
import os
import signal
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import OPTIONS, SMALL, SOURCE
from PIL import Image

from circulant import sensitivity
from circulant.blocks import Kind, expand, fit
from circulant.cli import main
from circulant.compare import merged, rank_correlation, rises
from circulant.convert import convert, each_block_layer, uniform
from circulant.data import CIFAR10, DataError, Split, _augmented, fashion_mnist, read, read_idx
from circulant.front import Point, pareto, plot_harm
from circulant.layers import BlockLinear, GroupedBatchNorm2d
from circulant.training import (
    Architecture,
    Options,
    RunError,
    Teacher,
    device_named,
    distillation,
    evaluate,
    load_network,
    optimiser_of,
    train,
)


def test_pictures_are_padded_and_normalised(splits: tuple[Split, Split], data_folder: Path) -> None:
    raw = read_idx(data_folder / "t10k-images-idx3-ubyte.gz")
    image = splits[1].images[7, 0] * 0.3530 + 0.2860
    assert image.shape == (32, 32)
    assert torch.allclose(image[2:30, 2:30] * 255, torch.from_numpy(raw[7].astype(np.float32)), atol=1e-3)
    assert image[:2].abs().max() < 1e-6 and image[:, 30:].abs().max() < 1e-6


@pytest.fixture()
def cifar_folder(tmp_path: Path) -> Path:
    """Six training pictures in each file and four of the test, of random pixels."""
    rng = np.random.default_rng(3)
    for name, count in [(f"data_batch_{k}", 6) for k in range(1, 6)] + [("test_batch", 4)]:
        Image.fromarray(rng.integers(0, 256, (count, 1024, 3), np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "train_lables.json").write_text(json.dumps([k % 10 for k in range(30)]))
    (tmp_path / "test_lables.json").write_text("[3, 8, 8, 0]")
    return tmp_path


def test_cifar_is_read_in_order_and_normalised(cifar_folder: Path) -> None:
    data, test = read(cifar_folder, train=True), read(cifar_folder, train=False)
    assert (len(data), data.source, test.labels.tolist()) == (30, CIFAR10, [3, 8, 8, 0])
    with Image.open(cifar_folder / "data_batch_2.png") as image:
        # The second file's first picture is the seventh; its pixel (row 5, column 9) is number 5 * 32 + 9.
        pixel = torch.tensor(image.getpixel((5 * 32 + 9, 0)))
    found = data.images[6, :, 5, 9] * torch.tensor(CIFAR10.std) + torch.tensor(CIFAR10.mean)
    assert torch.allclose(found * 255, pixel.float(), atol=1e-3)
    moved = next(data.shuffled(30, 1, 0, True))[0]
    assert moved.shape == (30, 3, 32, 32) and data.first(2).source == CIFAR10


def test_a_shift_repeats_the_edge() -> None:
    images = torch.arange(2 * 3 * 32 * 32).float().reshape(2, 3, 32, 32)
    moved = _augmented(images, torch.tensor([[-3, 0], [0, 4]]), torch.tensor([False, True]))
    assert torch.equal(moved[0, :, 3:], images[0, :, :-3])
    assert torch.equal(moved[0, :, :3], images[0, :, :1].expand(3, 3, 32))
    assert torch.equal(moved[1, :, :, 4:], images[1, :, :, 4:].flip(2))
    assert torch.equal(moved[1, :, :, :4], images[1, :, :, 31:].expand(3, 32, 4))


def test_cifar_that_is_wrong_is_refused(cifar_folder: Path) -> None:
    labels = cifar_folder / "test_lables.json"
    for content, says in (
        ("[3, 8, 8]", "shape"),
        ("[3, 8, 8, 10]", "classes 3 to 10"),
        ("[", "test_lables"),
        ("[0.5]", "integers"),
    ):
        labels.write_text(content)
        with pytest.raises(DataError, match=says):
            read(cifar_folder, train=False)
    Image.new("RGB", (32, 32)).save(cifar_folder / "test_batch.png")
    with pytest.raises(DataError, match="expected RGB of"):
        read(cifar_folder, train=False)
    (cifar_folder / "data_batch_3.png").write_bytes(b"none")
    with pytest.raises(DataError, match="data_batch_3"):
        read(cifar_folder, train=True)


def test_batches_depend_on_seed_epoch_and_step_only(splits: tuple[Split, Split]) -> None:
    data = splits[1]
    twice = [list(data.shuffled(32, 5, 2, True)) for _ in range(2)]
    assert len(twice[0]) == 6
    for (a, la), (b, lb) in zip(*twice, strict=True):
        assert torch.equal(a, b) and torch.equal(la, lb)
    other = next(data.shuffled(32, 5, 3, True))
    assert not torch.equal(other[0], twice[0][0][0])
    plain = next(data.shuffled(32, 5, 2, False))
    # Shifts within the padding and mirrors move pixels and lose none.
    assert torch.equal(plain[1], twice[0][0][1])
    assert torch.allclose(plain[0].flatten(1).sort(1).values, twice[0][0][0].flatten(1).sort(1).values)


def test_pictures_held_back_are_the_last(splits: tuple[Split, Split]) -> None:
    kept, held = splits[0].apart(300)
    assert len(kept) == 500 and len(held) == 300
    assert torch.equal(torch.cat([kept.images, held.images]), splits[0].images)
    with pytest.raises(DataError, match="hold back 800"):
        splits[0].apart(800)


def test_files_that_are_wrong_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="apt-get install dataset-fashion-mnist"):
        fashion_mnist(tmp_path, True)
    path = tmp_path / "x.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(DataError, match="not a gzipped idx file"):
        read_idx(path)
    for content in (
        struct.pack(">xxBB", 13, 1) + struct.pack(">I", 1) + b"1234",
        struct.pack(">xxBB", 8, 1) + struct.pack(">I", 5) + b"1234",
        struct.pack(">xxBB", 8, 1) + struct.pack(">I", 3) + b"1234",
        struct.pack(">xxBB", 8, 3) + struct.pack(">3I", 2**31, 2**31, 2**31),
    ):
        path.write_bytes(gzip.compress(content))
        with pytest.raises(DataError):
            read_idx(path)


def block_run(trained: Path) -> tuple[Architecture, torch.nn.Module, Teacher]:
    architecture, teacher = load_network(trained)
    sizes = uniform(teacher, 4)
    return replace(architecture, sizes=sizes), convert(teacher, sizes), Teacher(teacher)


def test_a_run_that_was_stopped_continues_to_the_same_result(
    splits: tuple[Split, Split], trained: Path, tmp_path: Path
) -> None:
    data, test = splits[0].first(400), splits[1]
    options = replace(OPTIONS, epochs=2)
    architecture, network, teacher = block_run(trained)
    expected = train(tmp_path / "whole", architecture, network, data, test, options, teacher, False)
    assert expected["steps"] == 16 and len(expected["epochs"]) == 2
    # After 4 and then 5 more steps, neither of which is a checkpoint's: steps are done again.
    for stop in (4, 5, None):
        architecture, again, teacher = block_run(trained)
        found = train(tmp_path / "parts", architecture, again, data, test, options, teacher, False, stop)
    for key, value in network.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key
    assert found["epochs"] == expected["epochs"] and found["steps"] == expected["steps"]
    kept = json.loads((tmp_path / "parts" / "curves.json").read_text())
    assert kept["epochs"] == expected["epochs"]
    _, loaded = load_network(tmp_path / "parts" / "final.pt")
    assert torch.equal(loaded(test.images[:4]), network(test.images[:4]))


def test_a_run_with_other_options_is_refused(splits: tuple[Split, Split], trained: Path, tmp_path: Path) -> None:
    architecture, network, teacher = block_run(trained)
    data, test = splits[0].first(100), splits[1].first(50)
    train(tmp_path, architecture, network, data, test, replace(OPTIONS, epochs=1), teacher, False)
    with pytest.raises(RunError, match="other options"):
        train(tmp_path, architecture, network, data, test, replace(OPTIONS, epochs=2), teacher, False)
    with pytest.raises(RunError, match="is missing"):
        load_network(tmp_path / "none.pt")
    (tmp_path / "broken.pt").write_bytes(b"no checkpoint")
    with pytest.raises(RunError, match="not a checkpoint"):
        load_network(tmp_path / "broken.pt")


def test_a_teacher_gives_the_same_loss_when_it_is_asked_again(
    splits: tuple[Split, Split], trained: Path, tmp_path: Path
) -> None:
    data, test = splits[0].first(200), splits[1].first(50)
    options = replace(OPTIONS, epochs=2)
    architecture, network, teacher = block_run(trained)
    first = train(tmp_path / "first", architecture, network, data, test, options, teacher, False)
    architecture, network, _ = block_run(trained)
    # Now from what it kept; and a new one once more.
    again = train(tmp_path / "again", architecture, network, data, test, options, teacher, False)
    architecture, network, anew = block_run(trained)
    third = train(tmp_path / "third", architecture, network, data, test, options, anew, False)
    assert first["epochs"] == again["epochs"] == third["epochs"]
    with pytest.raises(RunError, match="other batches"):
        train(tmp_path / "other", architecture, network, data, test, replace(options, seed=1), teacher, False)


def test_results_of_seeds_are_merged() -> None:
    def part(seed: int, accuracy: float) -> dict:
        runs = [
            {"seed": seed, "name": name, "accuracy": value, "costs": {"hint": 10.0}}
            for name, value in (("dense, fine-tuned", 0.9), ("uniform 8", accuracy))
        ]
        return {"machine": "x", "runs": runs, "correlation": [{"seed": seed}], "harm": [{"seed": seed}], "summary": []}

    found = merged([part(1, 0.8), part(0, 0.7)])
    assert found["correlation"] == found["harm"] == [{"seed": 0}, {"seed": 1}]
    assert [run["seed"] for run in found["runs"]] == [0, 0, 1, 1]
    row = found["summary"][1]
    assert row["seeds"] == 2 and abs(row["loss_mean"] - 15) < 1e-9 and abs(row["loss_std"] - 50**0.5) < 1e-9
    older = {name: value for name, value in part(2, 0.8).items() if name != "harm"}
    assert merged([part(0, 0.7), older])["harm"] == [{"seed": 0}]
    with pytest.raises(ValueError, match="same seed"):
        merged([part(1, 0.8), part(1, 0.7)])
    with pytest.raises(ValueError, match="different machines"):
        merged([part(1, 0.8), {**part(0, 0.7), "machine": "y"}])
    with pytest.raises(ValueError, match="not results files"):
        merged([{"machine": "x"}])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("block", [1, 4])
def test_grouped_norm_is_the_same_on_a_gpu(block: int) -> None:
    torch.manual_seed(2)
    norm = GroupedBatchNorm2d(16, block)
    torch.nn.init.uniform_(norm.weight, 0.5, 2)
    x, direction = torch.randn(6, 16, 9, 9) * 3 + 1, torch.randn(6, 16, 9, 9)
    found = []
    for device, order in (
        ("cpu", torch.contiguous_format),
        ("cuda", torch.contiguous_format),
        ("cuda", torch.channels_last),
    ):
        own = copy.deepcopy(norm).to(device)
        there = x.to(device).clone(memory_format=order).requires_grad_()
        y = own(there)
        (y * direction.to(device)).sum().backward()
        values = [y, there.grad, own.weight.grad, own.bias.grad, own.running_mean, own.running_var]
        found.append([value.detach().cpu() for value in values])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_network_learns_on_a_gpu_and_loads_without(
    splits: tuple[Split, Split], trained: Path, tmp_path: Path
) -> None:
    architecture, teacher = load_network(trained)
    teacher.to(device_named("cuda"))
    sizes = uniform(teacher, 2)
    importance = sensitivity.fisher(teacher, splits[0].first(100))
    network = convert(teacher, sizes, Kind.SKEW, importance)
    here = convert(teacher.cpu(), sizes, Kind.SKEW, {name: value.cpu() for name, value in importance.items()})
    assert evaluate(network, splits[1]).loss == pytest.approx(evaluate(here, splits[1]).loss, rel=1e-3)
    options = replace(OPTIONS, bf16=True)
    train(tmp_path, replace(architecture, sizes=sizes), network, *splits, options, Teacher(teacher.cuda()), False)
    after = evaluate(network, splits[1])
    assert after.accuracy > evaluate(here, splits[1]).accuracy + 0.2
    _, loaded = load_network(tmp_path / "final.pt")
    assert evaluate(loaded, splits[1]).loss == pytest.approx(after.loss, rel=1e-3, abs=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_replayed_steps_are_those_that_are_not(
    splits: tuple[Split, Split], trained: Path, tmp_path: Path, optimiser: str
) -> None:
    architecture, teacher = load_network(trained)
    teacher.to(device_named("cuda"))
    sizes = uniform(teacher, 2)
    options = replace(OPTIONS, epochs=2, optimiser=optimiser, rate=0.01 if optimiser == "sgd" else 0.001)
    found = {}
    for name, stops, replayed in (("plain", [None], False), ("whole", [None], True), ("cut", [7, None], True)):
        for stop in stops:
            curves = train(
                tmp_path / name,
                replace(architecture, sizes=sizes),
                convert(teacher, sizes),
                *splits,
                replace(options, cuda_graph=replayed, checkpoint_steps=7),
                Teacher(teacher),
                False,
                stop,
            )
        found[name] = [epoch["train_loss"] for epoch in curves["epochs"]]
    assert found["whole"] == pytest.approx(found["plain"], rel=1e-3)
    assert found["cut"] == pytest.approx(found["whole"], rel=1e-3)
    assert found["plain"][0] > 1.02 * found["plain"][1]


def test_a_graph_without_a_gpu_is_refused(splits: tuple[Split, Split], tmp_path: Path) -> None:
    options = replace(OPTIONS, cuda_graph=True)
    with pytest.raises(RunError, match="needs a GPU"):
        train(tmp_path, SMALL, SMALL.build(), *splits, options, None, False)


def test_a_killed_process_continues_to_the_same_result(data_folder: Path, trained: Path, tmp_path: Path) -> None:
    def command(out: Path) -> list[str]:
        text = f"finetune --model {trained} --uniform 8 --out {out} --data {data_folder} --samples 300 --epochs 3"
        options = f"--batch 30 --test-samples 50 --checkpoint-steps 2 --rate 0.05 --quiet {text}".split()
        return [sys.executable, "-m", "circulant", "finetune", *[o for o in options if o != "finetune"]]

    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    running = subprocess.Popen(command(tmp_path / "killed"), env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "killed" / "checkpoint.pt").exists():
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.wait()
    for out in (tmp_path / "killed", tmp_path / "whole"):
        subprocess.run(command(out), env=environment, check=True, stdout=subprocess.DEVNULL)
    killed, whole = (load_network(tmp_path / name / "final.pt")[1].state_dict() for name in ("killed", "whole"))
    assert all(torch.equal(killed[key], whole[key]) for key in whole)


def test_fine_tuning_regains_what_conversion_lost(splits: tuple[Split, Split], trained: Path, tmp_path: Path) -> None:
    _, teacher = load_network(trained)
    dense = evaluate(teacher, splits[1]).accuracy
    assert dense > 0.8
    sizes = uniform(teacher, 2)
    network = convert(teacher, sizes)
    before = evaluate(network, splits[1]).accuracy
    train(tmp_path, replace(SMALL, sizes=sizes), network, *splits, OPTIONS, Teacher(teacher), False)
    after = evaluate(network, splits[1]).accuracy
    assert before < dense - 0.2 and after > before + 0.2


def test_a_step_of_blocks_is_the_dense_step_averaged_along_diagonals() -> None:
    torch.manual_seed(4)
    layer = BlockLinear(8, 4, 4, Kind.SKEW, bias=False)
    network = torch.nn.Sequential(layer)
    before = layer.dense_weight().detach()
    x, goal = torch.randn(5, 8), torch.randn(5, 4)
    dense = before.clone().requires_grad_()
    ((x @ dense.T - goal) ** 2).sum().backward()
    options = Options(rate=0.01, momentum=0.0, weight_decay=0.3)
    expected = before - 0.01 * (expand(fit(dense.grad, 4, Kind.SKEW), Kind.SKEW) + 0.3 * before)
    # Nesterov's momentum cannot be zero, so that the first step is (1 + momentum) times the gradient.
    optimiser = optimiser_of(network, replace(options, momentum=0.5))
    for group in optimiser.param_groups:
        group["lr"] = options.rate * group["share"] / 1.5
    ((network(x) - goal) ** 2).sum().backward()
    optimiser.step()
    assert torch.allclose(layer.dense_weight(), expected, atol=1e-6)


def test_converted_weights_are_as_long_as_dense_ones(trained: Path) -> None:
    _, network = load_network(trained)
    changed = convert(network, uniform(network, 8))
    for name, layer in each_block_layer(changed):
        length = network.get_submodule(name).weight.norm()
        assert torch.allclose(layer.dense_weight().norm(), length, rtol=1e-4), name


def test_distillation_is_least_at_the_teachers_prediction() -> None:
    teacher = torch.randn(4, 10)
    at = teacher.clone().requires_grad_()
    loss = distillation(at + 3.0, teacher, 2.0)
    loss.backward()
    assert abs(float(loss.detach())) < 1e-6 and at.grad.abs().max() < 1e-6
    assert distillation(torch.randn(4, 10), teacher, 2.0) > 0.01


def test_omega_ranks_layers_as_the_true_rise_in_loss_does(splits: tuple[Split, Split], trained: Path) -> None:
    _, network = load_network(trained)
    data = splits[0].first(100)
    importance = sensitivity.fisher(network, data)
    omega = sensitivity.full_table(network, importance, data, Kind.SKEW)
    rows = rises(network, importance, omega, data, Kind.SKEW)
    assert len(rows) > 50
    found = rank_correlation(rows, "omega", "rise")
    assert found > 0.5
    assert found > rank_correlation(rows, "squared_distance", "rise_frobenius")


def test_the_front_has_what_nothing_beats() -> None:
    points = [Point("a", "g", 1, 80), Point("b", "g", 2, 79), Point("c", "g", 3, 85), Point("d", "g", 3, 84)]
    assert [point.label for point in pareto(points)] == ["a", "c"]


def fake_plan(trained: Path, path: Path) -> None:
    """Costs as a plan has them, made up: in proportion to 1/b, blocks beyond 8 run as 8."""
    _, network = load_network(trained)
    layers = []
    for name, b in uniform(network, 16).items():
        sizes = [s for s in (1, 2, 4, 8, 16) if s <= max(b, 2 if name == "head" else 1)]
        costs = [
            {
                "b": s,
                "kind": "skew",
                "effective": min(s, 8),
                "figures": {"weighed": 1 / min(s, 8), "hint_bytes": 64 // s},
            }
            for s in sizes
        ]
        layers.append({"name": name, "costs": costs})
    path.write_text(json.dumps({"block_sizes": layers}))


def test_the_command_line_from_data_to_a_front(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    def run(text: str) -> None:
        assert main(text.format(t=tmp_path, d=data_folder).split()) == 0, capsys.readouterr().err

    short = "--data {d} --samples 200 --test-samples 50 --epochs 1 --batch 50 --quiet"
    run(f"train --network resnet18 --width 0.125 --out {{t}}/dense {short}")
    dense = tmp_path / "dense" / "final.pt"
    run("sensitivity --model {t}/dense/final.pt --out {t}/s.json --samples 40 --batch 4 --rise 10 --data {d}")
    fake_plan(dense, tmp_path / "plan.json")
    run(
        "search --sensitivity {t}/s.json --costs {t}/plan.json --out {t}/b.json "
        "--model {t}/dense/final.pt --as-uniform 4"
    )
    found = json.loads((tmp_path / "b.json").read_text())
    assert found["costs"]["weighed"] <= found["limits"]["weighed"]
    assert set(found["sizes"].values()) > {1}
    run("harm --sensitivity {t}/s.json {t}/s.json --sizes {t}/b.json {t}/b.json --out {t}/harm.svg")
    assert (tmp_path / "harm.svg").read_text().lstrip().startswith("<?xml")
    table = {"a": {1: 0.0, 2: 1.0}, "b": {1: 0.0}}
    with pytest.raises(ValueError, match="1 tables of harm and 2 of sizes"):
        plot_harm([("full", table)], [{"a": 2}, {"a": 1}], tmp_path / "no.svg", "")
    with pytest.raises(ValueError, match="no size for layer a"):
        plot_harm([("full", table)], [{"b": 1}], tmp_path / "no.svg", "")
    run("finetune --model {t}/dense/final.pt --sizes {t}/b.json --sensitivity {t}/s.json --out {t}/tuned " + short)
    run("export --model {t}/tuned/final.pt --out {t}/net.onnx --samples {t}/samples --count 20 --data {d}")
    assert len(list((tmp_path / "samples").glob("*/*.npy"))) == 20
    assert np.load(next((tmp_path / "samples").glob("*/*.npy"))).shape == (1, 32, 32)
    run(
        f"compare --network resnet18 --width 0.125 --out {{t}}/all {short} --tuning-epochs 1 --fisher-samples 40 "
        "--rise-samples 10 --costs {t}/plan.json --blocks 4 --measures weighed hint --seeds 0 "
        "--by full weights --plain --groups 2 --results {t}/results.json"
    )
    results = json.loads((tmp_path / "results.json").read_text())
    names = [row["name"] for row in results["summary"]]
    searched = ["searched as 4", "searched as 4 by weights"]
    uniform_ones = ["uniform 4", "uniform 4, Frobenius' fit", "uniform 4, norms averaged"]
    assert names == ["dense", "dense, fine-tuned", *searched, *uniform_ones, "groups 1-16", "groups 16-1"]
    cost = {row["name"]: row["costs"]["weighed"] for row in results["summary"]}
    assert all(cost[name] <= cost["uniform 4"] < cost["dense"] for name in searched)
    runs = {run["name"]: run for run in results["runs"]}
    # Each is the best by what it was searched by, and they are not the same: no two have one Omega, but layers of one
    # shape may change places for the same number of weights.
    harm, sizes_of = results["harm"][0], [runs[name]["sizes"] for name in searched]
    assert sizes_of[0] != sizes_of[1]
    for form, (best, other) in (("full", sizes_of), ("weights", sizes_of[::-1])):
        best_sum, other_sum = (sum(harm[form][layer][str(b)] for layer, b in own.items()) for own in (best, other))
        assert best_sum < other_sum or (form == "weights" and best_sum == other_sum), form
    layers = list(runs["groups 1-16"]["sizes"])
    for name, others in (("groups 1-16", layers[len(layers) // 2 :]), ("groups 16-1", layers[: len(layers) // 2])):
        sizes = runs[name]["sizes"]
        # The stem has three inputs or fewer, and the last layer stays dense.
        assert all((sizes[layer] == 1) == (layer not in others) for layer in layers[1:-1])
    assert results["harm"][0]["weights"].keys() == results["harm"][0]["full"].keys() == set(layers)
    # The same folder with one form more, and with how much faster it must be instead of a size.
    run(
        f"compare --network resnet18 --width 0.125 --out {{t}}/all {short} --tuning-epochs 1 --fisher-samples 40 "
        "--rise-samples 10 --costs {t}/plan.json --blocks --faster 1.5 --measures weighed hint --seeds 0 "
        "--by full distance --results {t}/more.json"
    )
    more = json.loads((tmp_path / "more.json").read_text())
    costs = {row["name"]: row["costs"] for row in more["summary"]}
    quick = "searched, 1.5 times faster"
    assert list(costs) == ["dense", "dense, fine-tuned", quick, f"{quick} by distance"]
    for own, dense_cost in ((costs[quick][m], costs["dense"][m]) for m in ("weighed", "hint")):
        assert dense_cost / 8 < own <= dense_cost / 1.5
    assert more["harm"][0]["full"] == harm["full"] and more["harm"][0].keys() == {"seed", "full", "distance"}
    run("front --results {t}/results.json --out {t}/front.svg")
    assert (tmp_path / "front.svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sensitivity --model {t}/none.pt --out {t}/s.json", "none.pt is missing"),
        ("train --network resnet18 --out {t}/run --data {t}", "apt-get install dataset-fashion-mnist"),
        ("export --model {m} --out {t}/x.onnx --fuse", "--fuse is for MobileNetV2"),
        ("finetune --model {m} --sizes {t}/none.json --out {t}/run", "none.json"),
        ("search --sensitivity {t}/none.json --costs {t}/c.json --out {t}/b.json --limit hint=3", "none.json"),
        ("front --results {t}/none.json --out {t}/f.svg", "none.json"),
        ("harm --sensitivity {t}/none.json --sizes {t}/none.json --out {t}/f.svg", "none.json"),
    ],
)
def test_errors_are_one_line(
    text: str, message: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(text.format(t=tmp_path, m=trained).split()) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and error.startswith("circulant ")
