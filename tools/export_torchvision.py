"""Exports torchvision's ResNet-18, ResNet-50 and MobileNetV2 with random weights, to measure time and bytes.

    python3 -m venv .venv/torch
    .venv/torch/bin/pip install torch==2.8.0 torchvision==0.23.0 onnx==1.19.0 onnxruntime==1.31.1
    .venv/torch/bin/python tools/export_torchvision.py

No package ships trained full-width weights of these networks. What private inference costs does not depend on
the values, but a network whose activations vanish or explode would make its accuracy figures meaningless: so the
weights are He-initialised from a fixed seed and the batch norms see a few batches of noise in training mode, after
which every layer's outputs are of order one. torch's PyPI wheel needs its CUDA packages to be importable, GPU or
not: some 6 GB in all.

Each file is checked with onnxruntime against torch, and lands in `models/`, which git ignores.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torchvision

MODELS = {"resnet18": "resnet18", "resnet50": "resnet50", "mobilenet_v2": "mobilenetv2"}
SEED = 20260101


def noise(batch: int) -> torch.Tensor:
    """Pictures as normalised inputs go: blurred noise, mean 0, deviation 1, neighbours alike."""
    coarse = torch.randn(batch, 3, 28, 28)
    fine = torch.nn.functional.interpolate(coarse, size=(224, 224), mode="bilinear", align_corners=False)
    fine = fine + 0.3 * torch.randn_like(fine)
    return (fine - fine.mean()) / fine.std()


def network(name: str) -> torch.nn.Module:
    torch.manual_seed(SEED)
    model = torchvision.models.get_model(name, weights=None)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            # Average over all batches alike instead of forgetting the first ones slowly.
            module.momentum = None
            # As in trained networks, scales and offsets differ from channel to channel.
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, std=0.2)
    model.train()
    with torch.no_grad():
        for _ in range(4):
            model(noise(8))
    return model.eval()


def report(model: torch.nn.Module, x: torch.Tensor) -> tuple[float, float]:
    """The smallest and largest standard deviation of any ReLU's output."""
    spread = []
    hooks = [m.register_forward_hook(lambda _m, _i, out: spread.append(float(out.std())))
             for m in model.modules() if isinstance(m, (torch.nn.ReLU, torch.nn.ReLU6))]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return min(spread), max(spread)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--to", type=Path, default=Path(__file__).resolve().parent.parent / "models")
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    for name, file in MODELS.items():
        model = network(name)
        x = noise(1)
        low, high = report(model, x)
        if not (0.05 < low and high < 50):
            print(f"{name}: activations of deviation {low:.3g} to {high:.3g} are of no use", file=sys.stderr)
            return 1
        path = args.to / f"{file}.onnx"
        torch.onnx.export(model, (x,), str(path), input_names=["input"], output_names=["logits"],
                          opset_version=13, dynamo=False)
        onnx.checker.check_model(onnx.load(path), full_check=True)
        with torch.no_grad():
            want = model(x).numpy()
        (got,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"input": x.numpy()})
        error = float(np.abs(got - want).max() / np.abs(want).max())
        if error > 1e-4:
            print(f"{path} differs from torch by {error:.2g} of the largest logit", file=sys.stderr)
            return 1
        operators = sorted({node.op_type for node in onnx.load(path).graph.node})
        print(f"{path} ({path.stat().st_size / 1e6:.0f} MB): ReLU outputs deviate by {low:.2f} to {high:.2f}, "
              f"logits by {want.std():.2f}; {', '.join(operators)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
