"""Exports the three networks of Hyena's paper with random weights, for `jaguar-bench hyena`.

    .venv/torch/bin/python papers/hyena/export_hyena.py [--to models] [NAME ...]

(`make torch-models` makes that environment.) The networks are VGG-16, ResNet-20 in its ImageNet form and MobileNetV1,
all on pictures of 224x224. The paper does not print ResNet-20's layers. It says that there are seventeen convolutions,
of which nine have inputs of 32x32 or more, and its Table 2 has 64 channels at 56x56 and 128 at 28x28: those are
ResNet-18's, and with the three shortcuts of 1x1 they are twenty. MobileNetV1 has 27 convolutions and plain ReLUs, as
its paper does (Howard et al., Table 1).

What private inference costs does not depend on the values. Weights are He-initialised, and batch norms see some noise,
as in `tools/export_torchvision.py`; the exporter folds the norms into the convolutions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torchvision

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from export_torchvision import block, export_named, head

SIZE = 224
# Channels and stride of MobileNetV1's separable convolutions, behind a first one of 32 channels and stride 2.
SEPARABLE = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]


def mobilenet_v1(width: float = 1.0, classes: int = 1000) -> torch.nn.Module:
    """MobileNetV1. All channels are multiplied by `width`."""
    channels = int(32 * width)
    layers = block(3, channels, 3, 2)
    for out, stride in SEPARABLE:
        out = int(out * width)
        layers += block(channels, channels, 3, stride, channels) + block(channels, out, 1)
        channels = out
    return torch.nn.Sequential(*layers, *head(channels, classes))


NETWORKS = {
    "vgg16": (lambda: torchvision.models.vgg16_bn(weights=None), SIZE),
    "resnet20_imagenet": (lambda: torchvision.models.resnet18(weights=None), SIZE),
    "mobilenet_v1": (mobilenet_v1, SIZE),
}


def convolutions(model: torch.nn.Module) -> list[torch.nn.Conv2d]:
    return [module for module in model.modules() if isinstance(module, torch.nn.Conv2d)]


if __name__ == "__main__":
    sys.exit(export_named(__doc__, NETWORKS))
