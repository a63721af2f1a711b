"""The networks: ResNet-18 and MobileNetV2 for 32x32 pictures, and a small vision transformer.

Every convolution stands with its batch norm in a `ConvBN`, so that the two can be converted and folded together.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Pictures are so many pixels wide and high.
SIDE = 32


def channels(count: int, width: float) -> int:
    """`count` scaled by `width`, to the nearest multiple of 8, at least 8 (so that blocks of 8 always fit)."""
    return max(8, int(count * width / 8 + 0.5) * 8)


def _pooled(x: Tensor) -> Tensor:
    """The mean of every map: `[N, C, H, W]` to `[N, C]`."""
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


class ConvBN(nn.Module):
    """Convolution, batch norm, and an activation ("relu", "relu6" or "none")."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, activation: str = "relu"
    ) -> None:
        super().__init__()
        self.conv: nn.Module = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn: nn.Module = nn.BatchNorm2d(outputs)
        self.act = {"relu": nn.ReLU, "relu6": nn.ReLU6, "none": nn.Identity}[activation]()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.bn(self.conv(x)))
        return y


class BasicBlock(nn.Module):
    """ResNet's block of two 3x3 convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = ConvBN(inputs, outputs, 3, stride)
        self.second = ConvBN(outputs, outputs, 3, activation="none")
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else ConvBN(inputs, outputs, 1, stride, activation="none")
        self.act: nn.Module = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.second(self.first(x)) + self.shortcut(x))
        return y


class ResNet18(nn.Module):
    """ResNet-18 in CIFAR's form: a 3x3 stem without stride or pooling. Widths 64, 128, 256, 512 times `width`."""

    def __init__(self, width: float = 1.0, inputs: int = 1, classes: int = 10) -> None:
        super().__init__()
        widths = [channels(c, width) for c in (64, 128, 256, 512)]
        self.stem = ConvBN(inputs, widths[0], 3)
        blocks, before = [], widths[0]
        for stage, after in enumerate(widths):
            blocks += [BasicBlock(before, after, 2 if stage else 1), BasicBlock(after, after, 1)]
            before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(_pooled(self.blocks(self.stem(x))))
        return y


class InvertedResidual(nn.Module):
    """MobileNetV2's block: 1x1 expansion, depthwise 3x3, 1x1 projection without activation."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand: nn.Module = ConvBN(inputs, hidden, 1, activation="relu6") if expansion > 1 else nn.Identity()
        self.depthwise: nn.Module = ConvBN(hidden, hidden, 3, stride, groups=hidden, activation="relu6")
        self.project: nn.Module = ConvBN(hidden, outputs, 1, activation="none")
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


# MobileNetV2's Table 2: expansion, channels, repeats, stride. For 32x32 the first two strides are 1.
MOBILENET = [(1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


class MobileNetV2(nn.Module):
    """MobileNetV2 for 32x32 input: stride 1 in the stem and in the first two stages."""

    def __init__(self, width: float = 1.0, inputs: int = 1, classes: int = 10) -> None:
        super().__init__()
        before = channels(32, width)
        self.stem = ConvBN(inputs, before, 3, activation="relu6")
        blocks = []
        for expansion, count, repeats, stride in MOBILENET:
            after = channels(count, width)
            for repeat in range(repeats):
                blocks.append(InvertedResidual(before, after, 1 if repeat else stride, expansion))
                before = after
        self.blocks = nn.Sequential(*blocks)
        last = channels(1280, width)
        self.last = ConvBN(before, last, 1, activation="relu6")
        self.head = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(_pooled(self.last(self.blocks(self.stem(x)))))
        return y


class Attention(nn.Module):
    """Multi-head self-attention over `[N, tokens, dim]`; one GEMM makes query, key and value."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv: nn.Module = nn.Linear(dim, 3 * dim)
        self.out: nn.Module = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, dim = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        y: Tensor = self.out(mixed.transpose(1, 2).reshape(n, tokens, dim))
        return y


class EncoderLayer(nn.Module):
    """A transformer's layer with norms before attention and before the two GEMMs with GELU between."""

    # Norms, and the layer that alone takes what each makes.
    feeds = (("norm1", "attention.qkv"), ("norm2", "up"))

    def __init__(self, dim: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.norm1: nn.Module = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.norm2: nn.Module = nn.LayerNorm(dim)
        self.up: nn.Module = nn.Linear(dim, ratio * dim)
        self.down: nn.Module = nn.Linear(ratio * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return y


class ViT(nn.Module):
    """A small vision transformer: patches of 2x2 pixels, 256 tokens, mean over tokens before the head.

    At width 1 its GEMMs have the dimensions of PrivCirNet's Figure 7: (256, 192, 576) for query, key and value.
    """

    def __init__(
        self, width: float = 1.0, inputs: int = 1, classes: int = 10, patch: int = 2, depth: int = 9, ratio: int = 4
    ) -> None:
        super().__init__()
        heads = 4
        dim = max(16, int(192 * width / 16 + 0.5) * 16)
        self.patches = nn.Conv2d(inputs, dim, patch, patch)
        self.position = nn.Parameter(torch.randn(1, (32 // patch) ** 2, dim) * 0.02)
        self.layers = nn.Sequential(*[EncoderLayer(dim, heads, ratio) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.position
        y: Tensor = self.head(self.norm(self.layers(tokens)).mean(1))
        return y


NETWORKS: dict[str, Callable[..., nn.Module]] = {"resnet18": ResNet18, "mobilenetv2": MobileNetV2, "vit": ViT}


def build(name: str, width: float = 1.0, inputs: int = 1, classes: int = 10) -> nn.Module:
    """A dense network by name, with fresh weights. Raises ValueError for a name that is not in NETWORKS."""
    if name not in NETWORKS:
        raise ValueError(f"network {name!r}: expected one of {', '.join(NETWORKS)}")
    return NETWORKS[name](width=width, inputs=inputs, classes=classes)
