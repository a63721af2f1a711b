"""From a dense network to one with blocks, given the size for each layer.

Layers are named as torch names modules ("blocks.3.first.conv"). A convolution that stands in a `ConvBN` is converted
together with its batch norm: what must have the structure is the product of the two, since that is what runs. So is a
layer together with the layer norm in front of it, whose gamma multiplies its input channels.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .blocks import SIZES, Kind, StructureError, check_size, fit
from .layers import BlockConv2d, BlockLinear, GroupedBatchNorm2d, GroupedLayerNorm, by_group
from .networks import ConvBN, EncoderLayer


@dataclass(frozen=True)
class Site:
    """A layer that may get blocks: where it stands, the batch norm behind it, and the layer norm in front, by name."""

    name: str
    layer: nn.Conv2d | nn.Linear
    norm: nn.BatchNorm2d | None
    before: tuple[str, nn.LayerNorm] | None = None

    @property
    def outputs(self) -> int:
        return self.layer.weight.shape[0]

    @property
    def inputs(self) -> int:
        return self.layer.weight.shape[1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The block sizes that divide both numbers of channels, 1 among them."""
        return tuple(b for b in SIZES if self.outputs % b == 0 and self.inputs % b == 0)

    def row_scale(self) -> Tensor:
        """What the batch norm multiplies each output channel by in evaluation, `[O]`; ones without one."""
        if self.norm is None:
            return torch.ones(self.outputs, device=self.layer.weight.device)
        return norm_scale(self.norm)

    def weight(self) -> Tensor:
        """The weight times the gamma of the norm in front of it."""
        weight = self.layer.weight.detach()
        return weight if self.before is None else weight * self.before[1].weight.detach()

    def fused_weight(self) -> Tensor:
        """That times `row_scale`: what runs in private inference."""
        weight = self.weight()
        return weight * _rows(self.row_scale(), weight)


def norm_scale(norm: nn.BatchNorm2d) -> Tensor:
    """gamma / sqrt(running variance + eps), `[C]`."""
    if norm.running_var is None or norm.weight is None:
        raise StructureError("a batch norm without running statistics or without gamma cannot be folded")
    return (norm.weight * (norm.running_var + norm.eps).rsqrt()).detach()


def _rows(values: Tensor, weight: Tensor) -> Tensor:
    return values.view(-1, *[1] * (weight.dim() - 1))


def sites(network: nn.Module) -> Iterator[Site]:
    """The dense layers of `network` that may get blocks, in the order of its modules: not those in groups."""
    behind = {
        f"{name}.conv".lstrip("."): module.bn for name, module in network.named_modules() if isinstance(module, ConvBN)
    }
    in_front = {behind: (norm, network.get_submodule(norm)) for norm, behind in fed(network)}
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d) and module.groups == 1 and module.dilation == (1, 1):
            norm = behind.get(name)
            yield Site(name, module, norm if isinstance(norm, nn.BatchNorm2d) else None)
        elif isinstance(module, nn.Linear):
            found = in_front.get(name)
            before = (found[0], found[1]) if found is not None and isinstance(found[1], nn.LayerNorm) else None
            yield Site(name, module, None, before)


def fed(network: nn.Module) -> Iterator[tuple[str, str]]:
    """Names of layer norms, and of the layers that alone take what these make."""
    for name, module in network.named_modules():
        if isinstance(module, EncoderLayer):
            for norm, behind in module.feeds:
                yield f"{name}.{norm}".lstrip("."), f"{name}.{behind}".lstrip(".")


def uniform(network: nn.Module, block: int) -> dict[str, int]:
    """Size `block` for every layer, or the largest below it that fits. The last layer stays dense, as is usual."""
    found = list(sites(network))
    sizes = {site.name: max(b for b in site.sizes if b <= block) for site in found}
    sizes[found[-1].name] = 1
    return sizes


def convert(
    network: nn.Module,
    sizes: Mapping[str, int],
    kind: Kind = Kind.SKEW,
    importance: Mapping[str, Tensor] | None = None,
    average_norm: bool = False,
) -> nn.Module:
    """A copy of `network` whose layers named in `sizes` have blocks of that size; others stay as they are.

    `importance` holds F for the *fused* weights, as `sensitivity.fisher` gives it; without it the fit is Frobenius'.
    By default the batch norm's scales by channel go into the weight before the fit, and the new norm has one scale a
    group: before the fit nothing is lost. With `average_norm` the weight is fitted as it stands and gamma and variance
    are averaged over groups, as PrivCirNet's Section 3.4 does. A layer norm's scales in front of a layer go into the
    weight either way, and the new norm has one a group of input channels. Raises StructureError for a name or size that
    does not fit.
    """
    network = copy.deepcopy(network)
    known = {site.name: site for site in sites(network)}
    for name, block in sizes.items():
        if name not in known:
            raise StructureError(f"no layer {name!r} that may get blocks; there are {', '.join(known)}")
        site = known[name]
        try:
            check_size(site.outputs, site.inputs, block)
        except StructureError as error:
            raise StructureError(f"layer {name}: {error}") from None
        if block > 1:
            weight = None if importance is None else importance.get(name)
            _convert_one(network, site, block, kind, weight, average_norm)
    return network


@torch.no_grad()
def _convert_one(
    network: nn.Module, site: Site, block: int, kind: Kind, importance: Tensor | None, average_norm: bool
) -> None:
    layer = site.layer
    scale = site.row_scale()
    norm = None if site.norm is None else _grouped_norm(site.norm, scale, block, average_norm)
    if site.norm is None or average_norm:
        # F of the fused weight is F of the plain one over the square of the scale.
        plain = None if importance is None else importance * _rows(scale**2, layer.weight)
        compressed = fit(site.weight(), block, kind, plain)
    else:
        assert norm is not None
        by_row = norm.scale()[::block]
        compressed = fit(site.fused_weight(), block, kind, importance)
        compressed /= by_row.view(-1, *[1] * (compressed.dim() - 1))
        # Means are smaller than what they are of. As large as the dense weight again, since the norm takes any factor
        # out: how far a training step turns a weight depends on its size.
        _stretch(norm, compressed, float((layer.weight.square().sum() / (block * compressed.square().sum())).sqrt()))
    replaced = block_layer(layer, block, kind).to(layer.weight.device)
    replaced.compressed.copy_(compressed)
    if layer.bias is not None and replaced.bias is not None:
        replaced.bias.copy_(layer.bias)
    network.set_submodule(site.name, replaced)
    if site.before is not None and replaced.bias is not None:
        name, before = site.before
        replaced.bias.add_(layer.weight @ before.bias)
        grouped = GroupedLayerNorm(site.inputs, block, before.eps).to(layer.weight.device)
        network.set_submodule(name, grouped)
    if norm is not None:
        network.set_submodule(site.name.removesuffix("conv") + "bn", norm)


def _stretch(norm: GroupedBatchNorm2d, compressed: Tensor, factor: float) -> None:
    """The weight times `factor`, and the norm behind it such that nothing changes."""
    if not 0 < factor < math.inf:
        return
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt() / factor
    compressed *= factor
    norm.running_mean *= factor
    norm.running_var *= factor**2
    norm.weight.copy_(scale * (norm.running_var + norm.eps).sqrt())


def block_layer(layer: nn.Conv2d | nn.Linear, block: int, kind: Kind) -> BlockConv2d | BlockLinear:
    """A layer with blocks of the dense one's shape, with fresh weights."""
    if isinstance(layer, nn.Linear):
        return BlockLinear(layer.in_features, layer.out_features, block, kind, layer.bias is not None)
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        raise StructureError(f"padding {layer.padding!r} of mode {layer.padding_mode}: expected numbers and zeros")
    kernel, stride, padding = (_pair(values) for values in (layer.kernel_size, layer.stride, layer.padding))
    has_bias = layer.bias is not None
    return BlockConv2d(layer.in_channels, layer.out_channels, kernel, block, kind, stride, padding, has_bias)


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    return values[0], values[1]


def _grouped_norm(norm: nn.BatchNorm2d, scale: Tensor, block: int, average: bool) -> GroupedBatchNorm2d:
    """The norm with one scale a group: the mean of gamma and of the variance where `average`, else positive scales,
    the root mean square of the channels', with means and biases such that nothing changes once the weight has the
    rest."""
    assert norm.running_mean is not None and norm.running_var is not None
    grouped = GroupedBatchNorm2d(norm.num_features, block, norm.eps, norm.momentum or 0.1).to(norm.weight.device)
    grouped.bias.copy_(norm.bias)
    if average:
        grouped.weight.copy_(by_group(norm.weight, block))
        grouped.running_var.copy_(by_group(norm.running_var, block))
        grouped.running_mean.copy_(norm.running_mean)
        return grouped
    shared = by_group(scale**2, block).sqrt().clamp_min(1e-12)
    ratio = scale / shared.repeat_interleave(block)
    grouped.running_mean.copy_(norm.running_mean * ratio)
    grouped.running_var.copy_(by_group(norm.running_var * ratio**2, block))
    grouped.weight.copy_(shared * (grouped.running_var + norm.eps).sqrt())
    return grouped


def each_block_layer(network: nn.Module) -> Iterator[tuple[str, BlockConv2d | BlockLinear]]:
    """The layers with blocks, by name."""
    for name, module in network.named_modules():
        if isinstance(module, BlockConv2d | BlockLinear):
            yield name, module
