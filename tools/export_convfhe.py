"""Exports the networks of ConvFHE's paper with random weights.

    .venv/torch/bin/python tools/export_convfhe.py [--to models] [NAME ...]

(`make torch-models` makes that environment.) k3-d20-w1 is Plain-20: kernels of 3, depth 20, width 1 (the paper's Table VII and
Appendix E); k5-d8-w3, k3-d14-w3 and k3-d20-w3 are the wide ones of Table IV. plain18 and plain18-k5 are for ImageNet; of these the
server evaluates the last eight layers only, and the client what comes before, in the clear (`describe --last 8`).

Weights are He-initialised, and batch norms see some noise, as in `export_torchvision.py`; the exporter folds the norms into the
convolutions.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import torch

import export_torchvision
from export_torchvision import MODELS, SEED

NAMES = ["k3-d20-w1", "k5-d20-w1", "k7-d20-w1", "k5-d8-w3", "k3-d14-w3", "k3-d20-w3", "plain18", "plain18-k5"]


def block(channels: int, out: int, kernel: int, stride: int = 1) -> list[torch.nn.Module]:
    convolution = torch.nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
    torch.nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return [convolution, torch.nn.BatchNorm2d(out), torch.nn.ReLU()]


def plain(kernel: int, depth: int, width: int) -> torch.nn.Module:
    layers, channels = block(3, 16, kernel), 16
    for stage in range(3):
        out = 16 * width << stage
        for i in range((depth - 2) // 3):
            layers += block(channels, out, kernel, 2 if stage and i == 0 else 1)
            channels = out
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(channels, 10))


def plain18(late_kernel: int) -> torch.nn.Module:
    layers = block(3, 64, 7, 2) + [torch.nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, kernel in enumerate((3, 3, late_kernel, late_kernel)):
        out = 64 << stage
        for i in range(4):
            layers += block(channels, out, kernel, 2 if stage and i == 0 else 1)
            channels = out
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(channels, 1000))


def build(name: str) -> tuple[torch.nn.Module, int]:
    """The network, and the side of its pictures."""
    torch.manual_seed(SEED)
    if name.startswith("plain18"):
        return export_torchvision.settle(plain18(5 if name.endswith("k5") else 3), 224), 224
    kernel, depth, width = map(int, re.fullmatch(r"k(\d)-d(\d+)-w(\d)", name).groups())
    return export_torchvision.settle(plain(kernel, depth, width), 32), 32


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; all of them unless named")
    parser.add_argument("--to", type=Path, default=MODELS)
    args = parser.parse_args()
    unknown = set(args.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no network {', '.join(sorted(unknown))}")
    args.to.mkdir(parents=True, exist_ok=True)
    for name in args.names or NAMES:
        model, size = build(name)
        export_torchvision.export(model, export_torchvision.noise(1, size), args.to / f"{name}.onnx", 13, False, False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
