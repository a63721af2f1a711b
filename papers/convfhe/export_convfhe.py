"""Exports the networks of ConvFHE's paper with random weights.

    .venv/torch/bin/python papers/convfhe/export_convfhe.py [--to models] [NAME ...]

(`make torch-models` makes that environment.) k3-d20-w1 is Plain-20: kernels of 3, depth 20, width 1 (the paper's Table
VII and Appendix E); k5-d8-w3, k3-d14-w3 and k3-d20-w3 are the wide ones of Table IV. plain18 and plain18-k5 are for
ImageNet; of these the server evaluates the last eight layers only, and the client what comes before, in the clear
(`jaguar compile --last 8`).

Weights are He-initialised, and batch norms see some noise, as in `tools/export_torchvision.py`; the exporter folds the norms
into the convolutions.

    .venv/torch/bin/python papers/convfhe/export_convfhe.py --trained target/convfhe/weights.pt [--to models]

exports those that `train_convfhe.py` trained, under the same names with `-trained` behind. Their inputs are pixels of
0..1, less the mean and by the deviation of CIFAR-10's training pictures.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from export_torchvision import MODELS, block, export, export_named, head, noise


def plain(kernel: int, depth: int, width: int) -> torch.nn.Module:
    layers, channels = block(3, 16, kernel), 16
    for stage in range(3):
        out = 16 * width << stage
        for i in range((depth - 2) // 3):
            layers += block(channels, out, kernel, 2 if stage and i == 0 else 1)
            channels = out
    return torch.nn.Sequential(*layers, *head(channels, 10))


def plain18(late_kernel: int) -> torch.nn.Module:
    layers = block(3, 64, 7, 2) + [torch.nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, kernel in enumerate((3, 3, late_kernel, late_kernel)):
        out = 64 << stage
        for i in range(4):
            layers += block(channels, out, kernel, 2 if stage and i == 0 else 1)
            channels = out
    return torch.nn.Sequential(*layers, *head(channels, 1000))


# Kernel, depth and width.
SHAPES = [(3, 20, 1), (5, 20, 1), (7, 20, 1), (5, 8, 3), (3, 14, 3), (3, 20, 3)]
NETWORKS = {f"k{k}-d{depth}-w{width}": (functools.partial(plain, k, depth, width), 32) for k, depth, width in SHAPES}
NETWORKS |= {"plain18": (lambda: plain18(3), 224), "plain18-k5": (lambda: plain18(5), 224)}


def export_trained(weights: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for name, state in torch.load(weights, weights_only=True).items():
        kernel, depth, width = (int(number) for number in re.findall(r"\d+", name))
        network = plain(kernel, depth, width)
        network.load_state_dict({key: t.float() if t.is_floating_point() else t for key, t in state.items()})
        export(network.eval(), noise(1, 32), to / f"{name}-trained.onnx", 13, False, False)


def main() -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--trained", type=Path)
    parser.add_argument("--to", type=Path, default=MODELS)
    args, _ = parser.parse_known_args()
    if args.trained is None:
        return export_named(__doc__, NETWORKS)
    export_trained(args.trained, args.to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
