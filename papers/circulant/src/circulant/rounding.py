"""Activations rounded to few bits in the forward pass of training, so that a network learns to stand them.

Private inference holds every layer's output as integers of one scale a layer, and adds rounding errors of the same
size to large and small values. A network that was trained with such errors answers alike with fewer bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from .networks import BasicBlock, ConvBN, EncoderLayer, InvertedResidual

# What is one integer tensor in private inference: a convolution with its norm and activation, and a sum.
HELD = ConvBN | BasicBlock | InvertedResidual | EncoderLayer


class _Rounded(torch.autograd.Function):
    """To multiples of 2^(1 - bits) of the largest value; the gradient passes as it is."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, bits: int) -> Tensor:
        least, most = torch.aminmax(x)
        step = (torch.maximum(-least, most) * 2.0 ** (1 - bits)).clamp_min(1e-30)
        return (x / step).round_().mul_(step)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def rounded(x: Tensor, bits: int) -> Tensor:
    """`x` as integers of `bits` bits, sign included, times one step: the largest value is 2^(bits - 1) of them."""
    y: Tensor = _Rounded.apply(x, bits)  # type: ignore[no-untyped-call]
    return y


@contextmanager
def rounding(network: nn.Module, bits: int | None) -> Iterator[None]:
    """Within it `network` rounds its activations while in training mode; in evaluation mode it is as it was."""

    def hook(module: nn.Module, _: Any, y: Tensor) -> Tensor:
        assert bits is not None
        return rounded(y, bits) if module.training else y

    held = [m for m in network.modules() if isinstance(m, HELD)] if bits is not None else []
    handles = [module.register_forward_hook(hook) for module in held]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
