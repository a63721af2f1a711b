"""ONNX files: names, metadata, exact blocks, and the same outputs in another runtime."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from circulant.blocks import Kind, StructureError
from circulant.convert import convert, uniform
from circulant.data import Split
from circulant.export import KEY, ExportError, check, export, export_products
from circulant.networks import build


def converted(name: str, kind: Kind = Kind.SKEW) -> torch.nn.Module:
    dense = build(name, 0.125)
    network = convert(dense, uniform(dense, 4), kind)
    network.train()(torch.randn(4, 1, 32, 32))
    return network.eval()


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2", "vit"])
def test_the_file_has_blocks_names_and_the_same_outputs(name: str, tmp_path: Path) -> None:
    network, path = converted(name), tmp_path / "net.onnx"
    sizes = export(network, path)
    assert sizes == {layer: b for layer, b in uniform(build(name, 0.125), 4).items() if b > 1}
    model = onnx.load(path)
    value = json.loads({entry.key: entry.value for entry in model.metadata_props}[KEY])
    assert value == {f"{layer}.weight": {"b": b, "kind": "skew"} for layer, b in sizes.items()}
    nodes = {node.name: node for node in model.graph.node}
    for layer in sizes:
        assert nodes[layer].input[1] == f"{layer}.weight"
    assert check(path) == {f"{layer}.weight": (b, Kind.SKEW) for layer, b in sizes.items()}
    assert not any(node.op_type == "BatchNormalization" for node in model.graph.node)

    runtime = pytest.importorskip("onnxruntime")
    x = torch.randn(1, 1, 32, 32)
    (found,) = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"input": x.numpy()})
    expected = network(x).detach().numpy()
    assert np.allclose(found, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))


def test_a_weight_that_lost_its_blocks_is_found(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    export(converted("resnet18", Kind.CIRCULANT), path)
    model = onnx.load(path)
    weight = next(t for t in model.graph.initializer if t.name == "blocks.2.first.conv.weight")
    values = numpy_helper.to_array(weight).copy()
    values[3, 1, 0, 0] = np.nextafter(values[3, 1, 0, 0], 1)
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(model, path)
    with pytest.raises(StructureError, match="blocks.2.first.conv.weight: not circulant in blocks of 4: 1 of"):
        check(path)


@pytest.mark.parametrize(
    "value",
    [
        "{",
        "[]",
        '{"blocks.2.first.conv.weight": 4}',
        '{"blocks.2.first.conv.weight": {"b": 4, "kind": "square"}}',
        '{"nothing.weight": {"b": 4, "kind": "skew"}}',
    ],
)
def test_metadata_that_are_wrong_are_refused(value: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    export(converted("resnet18"), path)
    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {KEY: value})
    onnx.save(model, path)
    with pytest.raises(ExportError, match=KEY):
        check(path)


def test_a_dense_network_has_no_blocks(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    assert export(build("resnet18", 0.125), path) == {}
    assert check(path) == {}


def test_a_transformers_products_are_networks_of_their_own(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    network = converted("vit")
    data = Split(torch.randn(2, 1, 32, 32), torch.zeros(2, dtype=torch.int64))
    sizes = export_products(network, tmp_path, data)
    assert len(sizes) == 4 * 9 + 2 and {b for name, b in sizes.items() if name.startswith("layers.")} == {4}
    outputs = {}
    network.layers[3].up.register_forward_hook(lambda _, __, y: outputs.update(up=y))
    network(data.images)
    session = runtime.InferenceSession(tmp_path / "layers.3.up.onnx", providers=["CPUExecutionProvider"])
    for number in range(2):
        values = np.load(tmp_path / "layers.3.up" / f"{number:05}.npy")
        (found,) = session.run(None, {"input": values[None]})
        expected = outputs["up"][number].T.reshape(found.shape[1:]).detach().numpy()
        assert np.allclose(found[0], expected, atol=1e-4)
