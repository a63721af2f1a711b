"""Export to ONNX: batch norms folded, weights in full, and the blocks as public metadata `jaguar.blocks`.

The form is in docs/circulant.md. Each linear node gets the name of its module and each weight that name with `.weight`,
so that the plan's layers, the metadata and torch's modules go by one name.
"""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

from .blocks import Kind, StructureError, compress
from .data import Split
from .fuse import fold, plain
from .layers import BlockConv2d, BlockLinear
from .networks import ViT
from .relus import MovedReLU, moved
from .search import node_path

KEY = "jaguar.blocks"
LINEAR = ("Conv", "Gemm", "MatMul")


class ExportError(ValueError):
    """A network that cannot be written, or a file whose metadata are wrong."""


def export(network: nn.Module, path: Path, shape: tuple[int, ...] = (1, 1, 32, 32), opset: int = 17) -> dict[str, int]:
    """Writes `network`, folded, to `path`; returns the block size of each layer that has blocks.

    The file is checked as it was written (`check`), and refused where a weight lacks its blocks.
    """
    inference, blocks = plain(moved(fold(network)))
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            inference.eval(),
            (torch.zeros(shape),),
            buffer,  # type: ignore[arg-type]
            opset_version=opset,
            dynamo=False,
            do_constant_folding=True,
            input_names=["input"],
            output_names=["logits"],
        )
    model = onnx.load_from_string(buffer.getvalue())
    found = _name_nodes(model, inference)
    _name_relus(model, inference)
    missing = blocks.keys() - found
    if missing:
        raise ExportError(f"layers {sorted(missing)} are in no node of the exported file")
    value = {f"{name}.weight": {"b": b, "kind": str(kind)} for name, (b, kind) in blocks.items()}
    onnx.helper.set_model_props(model, {KEY: json.dumps(value)})
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    check(path)
    return {name: b for name, (b, _) in blocks.items()}


def export_products(network: ViT, folder: Path, data: Split) -> dict[str, int]:
    """Each linear layer of a transformer as a network of its own, for plans and private runs layer by layer.

    `folder/NAME.onnx` is a 1x1 convolution over a map of tokens, `[C, 16, 16]` for 256 (the patches' is as it stands);
    `folder/NAME/NUMBER.npy` are its inputs for the pictures of `data`. Returns the block size by name.
    """
    kinds = BlockLinear | nn.Linear | nn.Conv2d
    layers = {name: module for name, module in network.named_modules() if isinstance(module, kinds)}
    inputs: dict[str, torch.Tensor] = {}

    def listener(name: str) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        def listen(_: nn.Module, taken: tuple[torch.Tensor, ...]) -> None:
            inputs[name] = taken[0]

        return listen

    handles = [module.register_forward_pre_hook(listener(name)) for name, module in layers.items()]
    with torch.no_grad():
        network.eval()(data.images)
    for handle in handles:
        handle.remove()
    sizes = {}
    for name, module in layers.items():
        product, maps = (module, inputs[name]) if isinstance(module, nn.Conv2d) else _product(module, inputs[name])
        sizes[name] = export(nn.Sequential(product), folder / f"{name}.onnx", (1, *maps.shape[1:])).get("0", 1)
        (folder / name).mkdir(exist_ok=True)
        for number, values in enumerate(maps):
            np.save(folder / name / f"{number:05}.npy", values.numpy())
    return sizes


@torch.no_grad()
def _product(layer: BlockLinear | nn.Linear, tokens: torch.Tensor) -> tuple[nn.Module, torch.Tensor]:
    """The same layer as a 1x1 convolution; and its input, `[N, C]` or `[N, tokens, C]`, as maps."""
    maps = tokens.reshape(len(tokens), -1, layer.in_features).transpose(1, 2)
    side = math.isqrt(maps.shape[2])
    if side * side != maps.shape[2]:
        raise ExportError(f"{maps.shape[2]} tokens are no square map")
    conv: BlockConv2d | nn.Conv2d
    if isinstance(layer, BlockLinear):
        conv = BlockConv2d(layer.in_features, layer.out_features, 1, layer.block, layer.kind)
        conv.compressed.copy_(layer.compressed[..., None, None])
    else:
        conv = nn.Conv2d(layer.in_features, layer.out_features, 1)
        conv.weight.copy_(layer.weight[..., None, None])
    if conv.bias is not None:
        conv.bias.zero_() if layer.bias is None else conv.bias.copy_(layer.bias)
    return conv, maps.reshape(*maps.shape[:2], side, side).contiguous()


def _name_nodes(model: onnx.ModelProto, network: nn.Module) -> set[str]:
    """Gives linear nodes and their weights the names of the modules; returns those."""
    modules = {name for name, module in network.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    named: set[str] = set()
    for node in model.graph.node:
        weight = tensors.get(node.input[1]) if node.op_type in LINEAR and len(node.input) > 1 else None
        if weight is None:
            continue
        name = weight.name.removesuffix(".weight")
        if name not in modules:
            # A product of tokens takes its weight transposed, under a made-up name; the node's path has the module's.
            name = _module_of(node.name, modules)
        if name in named:
            raise ExportError(f"two nodes belong to layer {name}")
        named.add(name)
        node.name = name
        for other in model.graph.node:
            for at, taken in enumerate(other.input):
                if taken == weight.name:
                    other.input[at] = f"{name}.weight"
        weight.name = f"{name}.weight"
    return named


def _name_relus(model: onnx.ModelProto, network: nn.Module) -> None:
    """Gives ReLUs the names of the modules, those of a `MovedReLU` too."""
    modules = {
        node_path(name): name for name, module in network.named_modules() if isinstance(module, nn.ReLU | MovedReLU)
    }
    for node in model.graph.node:
        if node.op_type == "Relu":
            node.name = modules.get(node.name.rsplit("/", 1)[0], node.name)


def _module_of(node: str, modules: set[str]) -> str:
    """The module that the exporter's path of a node stands for: "/layers/layers.0/up/MatMul" is "layers.0.up"."""
    fitting = [name for name in modules if node_path(name) == node.rsplit("/", 1)[0]]
    if len(fitting) != 1:
        raise ExportError(f"cannot tell which layer the node {node} is")
    return fitting[0]


def check(path: Path) -> dict[str, tuple[int, Kind]]:
    """Reads the blocks of an ONNX file and checks that its weights have them, bit for bit. By the weight's name.

    Raises ExportError for metadata that are not as docs/circulant.md has them, StructureError for other weights.
    """
    model = onnx.load(path)
    text = next((entry.value for entry in model.metadata_props if entry.key == KEY), "{}")
    try:
        value = json.loads(text)
        blocks = {str(name): (entry["b"], Kind(entry["kind"])) for name, entry in value.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ExportError(f"{path}: {KEY} is not as docs/circulant.md has it ({error!r})") from None
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, (block, kind) in blocks.items():
        takers = [node for node in model.graph.node if node.op_type in LINEAR and name in (node.input[1], node.name)]
        if not takers:
            raise ExportError(f"{path}: {KEY} names {name}, which no linear layer takes")
        for node in takers:
            if node.input[1] not in tensors:
                raise ExportError(f"{path}: the weight of {node.name} is no constant")
            weight = _as_rows(node, numpy_helper.to_array(tensors[node.input[1]]))
            try:
                compress(torch.from_numpy(weight.copy()), block, kind)
            except StructureError as error:
                raise StructureError(f"{path}: {name}: {error}") from None
    return blocks


def _as_rows(node: onnx.NodeProto, weight: np.ndarray) -> np.ndarray:
    """The weight with outputs first. MatMul takes `[inputs, outputs]`, and so does Gemm without transB."""
    transposed = node.op_type == "MatMul" or (
        node.op_type == "Gemm" and not any(a.name == "transB" and a.i for a in node.attribute)
    )
    return weight.T if transposed else weight


def write_samples(data: Split, folder: Path) -> int:
    """Samples as `jaguar` takes them, `folder/CLASS/NUMBER.npy` of `[channels, 32, 32]` floats. Returns how many.

    They are normalised already, as `data` does it: no preprocessing flags are needed.
    """
    for number, (image, label) in enumerate(zip(data.images, data.labels, strict=True)):
        inside = folder / data.source.classes[int(label)].replace(" ", "-")
        inside.mkdir(parents=True, exist_ok=True)
        np.save(inside / f"{number:05}.npy", image.numpy())
    return len(data)
