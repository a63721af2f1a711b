"""Exports networks of torchvision and timm with random weights, to try what runs and what it costs.

    python3 -m venv .venv/torch
    .venv/torch/bin/pip install torch==2.8.0 torchvision==0.23.0 onnx==1.19.0 onnxruntime==1.31.1 onnxscript==0.7.2 \
      pillow==13.0.0
    .venv/torch/bin/python tools/export_torchvision.py [--variants] [NAME ...]

No package ships trained full-width weights of these networks. What private inference costs does not depend on
the values, but a network whose activations vanish or explode would make its accuracy figures meaningless: so the
weights are He-initialised from a fixed seed and the batch norms see a few batches of noise in training mode, after
which every layer's outputs are of order one. Where a library's own weights would let blocks do nothing, they are drawn
anew (`random_weights.py`); norms of features have factors from 0.5 to 1.5. torch's PyPI wheel needs its CUDA packages to be importable, GPU or
not: some 6 GB in all.

Each file is checked with onnxruntime against torch, and lands in `models/torchvision/` (those of the benchmarks in
`models/`), which git ignores. `--variants` exports the small networks once more in the ways that people do: opsets 9,
13, 17 and 21, torch's newer exporter, and with the batch left open. `tools/try_networks.py` runs what it finds there.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torchvision

from random_weights import liven

SEED = 20260101
MODELS = Path(__file__).resolve().parent.parent / "models"


@dataclass(frozen=True)
class Network:
    """A network at one input size. `options` are its library's own."""

    name: str
    size: int
    options: dict = field(default_factory=dict)
    # For CIFAR's small pictures: a first convolution of 3x3 without a stride, no max-pool behind it, 10 classes.
    cifar: bool = False
    # Of timm instead of torchvision.
    timm: bool = False

    @property
    def file(self) -> str:
        name = self.name.removesuffix("_patch16_224")
        return f"{name}_cifar_{self.size}" if self.cifar else f"{name}_{self.size}"


# Where training has another head, it is left off.
NO_HEADS = {"aux_logits": False, "init_weights": True}
NETWORKS = [
    Network("resnet18", 32),
    Network("resnet18", 224),
    Network("mobilenet_v2", 32),
    Network("mobilenet_v2", 224),
    Network("mobilenet_v3_small", 64),
    Network("mobilenet_v3_small", 224),
    Network("mobilenet_v3_large", 224),
    Network("mnasnet1_0", 64),
    Network("mnasnet1_0", 224),
    Network("shufflenet_v2_x1_0", 64),
    Network("shufflenet_v2_x1_0", 224),
    Network("regnet_x_400mf", 64),
    Network("regnet_x_400mf", 224),
    Network("resnext50_32x4d", 64),
    Network("resnext50_32x4d", 224),
    Network("densenet121", 64),
    Network("densenet121", 224),
    Network("googlenet", 64, NO_HEADS),
    Network("googlenet", 224, NO_HEADS),
    Network("inception_v3", 96, NO_HEADS),
    Network("inception_v3", 299, NO_HEADS),
    Network("vgg16_bn", 224),
    Network("efficientnet_b0", 224),
    Network("regnet_y_400mf", 224),
    Network("convnext_tiny", 224),
    Network("efficientnet_v2_s", 224),
    Network("swin_t", 224),
    Network("vit_tiny_patch16_224", 224, timm=True),
    Network("deit_small_patch16_224", 224, timm=True),
    Network("mobilevit_s", 256, timm=True),
    Network("resnet18", 32, cifar=True),
    Network("resnet50", 32, cifar=True),
    Network("resnet101", 32, cifar=True),
]
# What the benchmarks and the tests of whole networks take, under the names by which they do.
BENCHMARKS = {
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "mobilenet_v2": "mobilenetv2",
    "densenet121": "densenet121",
}
# The usual ways to export: opset, the newer exporter, open batch.
VARIANTS = {
    "opset9": (9, False, False),
    "opset17": (17, False, False),
    "opset21": (21, True, False),
    "dynamo": (18, True, False),
    "batch": (13, False, True),
}


def noise(batch: int, size: int) -> torch.Tensor:
    """Pictures as normalised inputs go: blurred noise, mean 0, deviation 1, neighbours alike."""
    coarse = torch.randn(batch, 3, max(size // 8, 4), max(size // 8, 4))
    fine = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear", align_corners=False)
    fine = fine + 0.3 * torch.randn_like(fine)
    return (fine - fine.mean()) / fine.std()


def build(network: Network) -> torch.nn.Module:
    torch.manual_seed(SEED)
    classes = {"num_classes": 10} if network.cifar else {}
    if network.timm:
        import timm

        return settle(timm.create_model(network.name, pretrained=False, **network.options), network.size)
    model = torchvision.models.get_model(network.name, weights=None, **network.options, **classes)
    if network.cifar:
        model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
        torch.nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = torch.nn.Identity()
    return settle(model, network.size)


def settle(model: torch.nn.Module, size: int) -> torch.nn.Module:
    """The model with batch norms that have seen noise of `size` by `size`, ready to be exported."""
    if any(isinstance(module, torch.nn.LayerNorm) for module in model.modules()):
        liven(model)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
        if isinstance(module, torch.nn.BatchNorm2d):
            # Average over all batches alike instead of forgetting the first ones slowly.
            module.momentum = None
            # As in trained networks, scales and offsets differ from channel to channel.
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, std=0.2)
    model.train()
    with torch.no_grad():
        for _ in range(4):
            model(noise(8, size))
    return model.eval()


def export(model: torch.nn.Module, x: torch.Tensor, path: Path, opset: int, dynamo: bool, batch: bool) -> None:
    """Writes the model, and fails if onnxruntime computes something else than torch."""
    axes = {"input": {0: "batch"}, "logits": {0: "batch"}} if batch else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), str(path), input_names=["input"], output_names=["logits"],
                          opset_version=opset, dynamo=dynamo, dynamic_axes=axes, external_data=False)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    with torch.no_grad():
        want = model(x).numpy()
    (got,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"input": x.numpy()})
    error = float(np.abs(got - want).max() / np.abs(want).max())
    if error > 1e-3:
        raise SystemExit(f"{path} differs from torch by {error:.2g} of the largest logit")
    operators = sorted({node.op_type for node in onnx.load(path).graph.node})
    print(f"{path} ({path.stat().st_size / 1e6:.0f} MB): logits deviate by {want.std():.2f}; {', '.join(operators)}")


def block(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[torch.nn.Module]:
    """A convolution, a batch norm and a ReLU."""
    convolution = torch.nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    torch.nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return [convolution, torch.nn.BatchNorm2d(out), torch.nn.ReLU()]


def head(channels: int, classes: int) -> list[torch.nn.Module]:
    """What such networks end in."""
    return [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(channels, classes)]


def refuse_others(parser: argparse.ArgumentParser, names: list[str], known: set[str]) -> None:
    """Ends the program where a name is none of those that are known."""
    if unknown := set(names) - known:
        parser.error(f"there is no network {', '.join(sorted(unknown))}")


def export_named(about: str, networks: dict[str, tuple[Callable[[], torch.nn.Module], int]]) -> int:
    """The program of `export_hyena.py` and `export_convfhe.py`. By name: what makes a network, its pictures' side."""
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(networks)}; all of them unless named")
    parser.add_argument("--to", type=Path, default=MODELS)
    args = parser.parse_args()
    refuse_others(parser, args.names, set(networks))
    args.to.mkdir(parents=True, exist_ok=True)
    for name in args.names or networks:
        make, size = networks[name]
        torch.manual_seed(SEED)
        export(settle(make(), size), noise(1, size), args.to / f"{name}.onnx", 13, False, False)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="networks by their libraries' names; all of them unless named")
    parser.add_argument("--variants", action="store_true", help="the small ones in other ways too")
    parser.add_argument("--to", type=Path, default=MODELS)
    args = parser.parse_args()
    refuse_others(parser, args.names, {network.name for network in NETWORKS} | set(BENCHMARKS))
    folder = args.to / "torchvision"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [n for n in NETWORKS if not args.names or n.name in args.names]
    for network in wanted:
        model, x = build(network), noise(1, network.size)
        # (torch's older exporter has scaled dot products from opset 14 on.)
        export(model, x, folder / f"{network.file}.onnx", 17 if network.timm else 13, False, False)
        if args.variants and network.size < 100:
            for name, way in VARIANTS.items():
                export(model, x, folder / f"{network.file}_{name}.onnx", *way)
    for name, file in BENCHMARKS.items():
        if not args.names or name in args.names:
            network = Network(name, 224)
            export(build(network), noise(1, 224), args.to / f"{file}.onnx", 13, False, False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
