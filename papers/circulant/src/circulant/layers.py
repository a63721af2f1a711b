"""Layers whose weights are block-circulant. They store the compressed weight and expand it in every forward pass."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

from .blocks import Kind, check_size, expand


class BlockLinear(nn.Module):
    """`nn.Linear` with blocks: `[..., inputs]` to `[..., outputs]`. Parameter `compressed`: `[O/b, I/b, b]`."""

    def __init__(self, inputs: int, outputs: int, block: int, kind: Kind = Kind.SKEW, bias: bool = True) -> None:
        super().__init__()
        check_size(outputs, inputs, block)
        self.in_features, self.out_features = inputs, outputs
        self.block, self.kind = block, Kind(kind)
        self.compressed = nn.Parameter(torch.empty(outputs // block, inputs // block, block))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        # The variance of nn.Linear's own initialisation; expansion keeps the variance of every entry.
        nn.init.uniform_(self.compressed, -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))

    def dense_weight(self) -> Tensor:
        """The weight that the layer applies, `[O, I]`."""
        return expand(self.compressed, self.kind)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.dense_weight(), self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, block={self.block}, kind={self.kind}"


class BlockConv2d(nn.Module):
    """`nn.Conv2d` with blocks and one group: `[N, C, H, W]` to `[N, O, H', W']`.

    Parameter `compressed`: `[O/b, C/b, b, kh, kw]`.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, int],
        block: int,
        kind: Kind = Kind.SKEW,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_size(outputs, inputs, block)
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        self.in_channels, self.out_channels = inputs, outputs
        self.kernel_size, self.stride, self.padding = (kh, kw), stride, padding
        self.block, self.kind = block, Kind(kind)
        self.compressed = nn.Parameter(torch.empty(outputs // block, inputs // block, block, kh, kw))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        nn.init.normal_(self.compressed, std=math.sqrt(2 / (inputs * kh * kw)))

    def dense_weight(self) -> Tensor:
        """The weight that the layer applies, `[O, C, kh, kw]`."""
        return expand(self.compressed, self.kind)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.dense_weight(), self.bias, self.stride, self.padding)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, {self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding}, block={self.block}, kind={self.kind}"
        )


def by_group(values: Tensor, block: int) -> Tensor:
    """The mean over each group of `block` channels: `[C]` to `[C/b]`."""
    return values.reshape(-1, block).mean(1)


class _GroupNormalise(torch.autograd.Function):
    """y = (x - mean_c) * gamma_g / sqrt(var_g + eps) + beta_c, with the batch's mean by channel and variance by group.

    Written out because the same in elementary operations makes several more passes over the maps.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, gamma: Tensor, beta: Tensor, block: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        # torch's own kernels only for the statistics: var_mean takes three times as long on maps.
        if x.is_cuda:
            mean, inverse = torch.batch_norm_stats(x, eps)
        else:
            _, mean, inverse = torch.native_batch_norm(x, torch.ones_like(beta), beta, None, None, True, 0.0, eps)
        variance = by_group(inverse**-2 - eps, block)
        inverse = (variance + eps).rsqrt()
        if x.is_cuda:
            y = torch.batch_norm_elemt(x, _channels(gamma, block), beta, mean, _channels(inverse, block), eps)
        else:
            scale = _channels(gamma * inverse, block)
            y = torch.addcmul(_maps(beta - mean * scale, x), x, _maps(scale, x))
        ctx.save_for_backward(x, gamma, mean, inverse)
        ctx.block = block  # type: ignore[attr-defined]
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    def backward(ctx: FunctionCtx, dy: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, gamma, mean, inverse = ctx.saved_tensors  # type: ignore[attr-defined]
        block: int = ctx.block  # type: ignore[attr-defined]
        count = x.numel() // x.shape[1]
        if x.is_cuda:
            return *_gradients_on_cuda(dy, x, gamma, mean, inverse, block), None, None
        total = dy.sum((0, 2, 3), dtype=torch.float32)
        # By channel, sum of dy * (x - mean).
        moment = (dy * x).sum((0, 2, 3), dtype=torch.float32) - mean * total
        moment = moment.reshape(-1, block).sum(1)
        d_gamma = moment * inverse
        d_variance = -0.5 * gamma * inverse**3 * moment
        scale = _channels(gamma * inverse, block)
        slope = _channels(2 * d_variance / (count * block), block)
        dx = torch.addcmul(_maps(-scale * total / count - slope * mean, x), dy, _maps(scale, x))
        dx = torch.addcmul(dx, x, _maps(slope, x))
        return dx, d_gamma, total, None, None


def _gradients_on_cuda(
    dy: Tensor, x: Tensor, gamma: Tensor, mean: Tensor, inverse: Tensor, block: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by the kernels of torch's synchronised batch norm: a group's channels share sums as its devices do."""
    if x.is_contiguous(memory_format=torch.channels_last):
        dy = dy.contiguous(memory_format=torch.channels_last)
    else:
        dy, x = dy.contiguous(), x.contiguous()
    scale, inverses = _channels(gamma, block), _channels(inverse, block)
    total, moment, _, _ = torch.batch_norm_backward_reduce(dy, x, mean, inverses, scale, True, False, False)
    grouped = moment.reshape(-1, block).sum(1)
    count = torch.full((1,), x.numel() // x.shape[1], dtype=torch.int32, device=x.device)
    shared = _channels(grouped / block, block)
    dx = torch.batch_norm_backward_elemt(dy, x, mean, inverses, scale, total, shared, count)
    return dx, grouped * inverse, total


def _channels(values: Tensor, block: int) -> Tensor:
    """Numbers by group as numbers by channel."""
    return values.unsqueeze(1).expand(-1, block).reshape(-1)


def _maps(values: Tensor, like: Tensor) -> Tensor:
    """Numbers by channel in the type of the maps, ready to broadcast over them."""
    return values.to(like.dtype).view(1, -1, 1, 1)


class GroupedBatchNorm2d(nn.Module):
    """Batch norm whose scale is one number for a group of b channels, so that folding it keeps blocks of b.

    gamma and the variance (the mean of the channels' variances) are shared; mean and bias stay by channel, since they
    end in the convolution's bias and never touch the structure. With b = 1 it is `nn.BatchNorm2d`.
    PrivCirNet's Section 3.4 averages all four.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, block: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        check_size(channels, channels, block)
        self.num_features, self.block, self.eps, self.momentum = channels, block, eps, momentum
        self.weight = nn.Parameter(torch.ones(channels // block))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels // block))

    def scale(self) -> Tensor:
        """What evaluation multiplies each channel by, `[C]`, equal within a group."""
        return (self.weight * (self.running_var + self.eps).rsqrt()).repeat_interleave(self.block)

    def shift(self) -> Tensor:
        """What evaluation adds to each channel after that, `[C]`."""
        return self.bias - self.running_mean * self.scale()

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return torch.addcmul(_maps(self.shift(), x), x, _maps(self.scale(), x))
        y, mean, variance = _GroupNormalise.apply(x, self.weight, self.bias, self.block, self.eps)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            count = x.numel() // x.shape[1]
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / max(count - 1, 1)), self.momentum)
        result: Tensor = y
        return result

    def extra_repr(self) -> str:
        return f"{self.num_features}, block={self.block}, eps={self.eps}, momentum={self.momentum}"


class GroupedLayerNorm(nn.Module):
    """Layer norm over the last axis, whose gamma is one number for a group of b channels.

    Folded into the layer behind it, gamma keeps that layer's blocks of b. beta stays by channel, since it ends in that
    layer's bias.
    """

    def __init__(self, channels: int, block: int, eps: float = 1e-5) -> None:
        super().__init__()
        check_size(channels, channels, block)
        self.num_features, self.block, self.eps = channels, block, eps
        self.weight = nn.Parameter(torch.ones(channels // block))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.num_features,), _channels(self.weight, self.block), self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, block={self.block}, eps={self.eps}"
