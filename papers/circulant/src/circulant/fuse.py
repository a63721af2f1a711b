"""Folding for inference: batch norm into convolutions, and the inverted residual's two linear layers into one.

Both keep the blocks. Source: PrivCirNet, Section 3.4.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from .blocks import Kind, StructureError, compress, expand, multiply
from .convert import fed, norm_scale
from .layers import BlockConv2d, BlockLinear, GroupedBatchNorm2d, GroupedLayerNorm
from .networks import ConvBN, InvertedResidual, MobileNetV2


class FoldError(ValueError):
    """Layers that cannot become one."""


@torch.no_grad()
def fold(network: nn.Module) -> nn.Module:
    """A copy for inference whose `ConvBN`s are a convolution with bias and the activation. Blocks stay blocks.

    Layer norms' scales and shifts are in the layers behind them.

    Raises FoldError where a norm's scale differs within a block.
    """
    network = copy.deepcopy(network).eval()
    for name, module in list(network.named_modules()):
        if isinstance(module, ConvBN) and not isinstance(module.bn, nn.Identity):
            try:
                module.conv = _folded(module.conv, module.bn)
            except FoldError as error:
                raise FoldError(f"layer {name}: {error}") from None
            module.bn = nn.Identity()
    for norm, behind in list(fed(network)):
        network.set_submodule(norm, _into(network.get_submodule(norm), network.get_submodule(behind)))
    return network


def _into(norm: nn.Module, layer: nn.Module) -> nn.Module:
    """Puts a layer norm's scale and shift into the layer behind it, and gives what is left of the norm."""
    if isinstance(norm, GroupedLayerNorm) and isinstance(layer, BlockLinear):
        weight, scale = layer.dense_weight(), norm.weight
        layer.compressed.mul_(scale.view(1, -1, 1))
    elif isinstance(norm, nn.LayerNorm) and isinstance(layer, nn.Linear):
        weight = layer.weight.clone()
        layer.weight.mul_(norm.weight)
    else:
        raise FoldError(f"cannot fold a {type(norm).__name__} into a {type(layer).__name__}")
    assert layer.bias is not None
    layer.bias.add_(weight @ norm.bias)
    return nn.LayerNorm(norm.bias.numel(), norm.eps, device=norm.bias.device)


def _scale_and_shift(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """What the norm does in evaluation, by channel."""
    if isinstance(norm, GroupedBatchNorm2d):
        return norm.scale(), norm.shift()
    if isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None:
        scale = norm_scale(norm)
        return scale, norm.bias - norm.running_mean * scale
    raise FoldError(f"cannot fold a {type(norm).__name__}")


def _folded(conv: nn.Module, norm: nn.Module) -> nn.Module:
    scale, shift = _scale_and_shift(norm)
    bias: Tensor | None
    folded: BlockConv2d | nn.Conv2d
    if isinstance(conv, BlockConv2d):
        groups = scale.view(-1, conv.block)
        if not torch.equal(groups, groups[:, :1].expand_as(groups)):
            raise FoldError(f"the norm's scale differs within blocks of {conv.block}: it needs a GroupedBatchNorm2d")
        folded = BlockConv2d(
            conv.in_channels, conv.out_channels, conv.kernel_size, conv.block, conv.kind, conv.stride, conv.padding
        ).to(conv.compressed.device)
        folded.compressed.copy_(conv.compressed * groups[:, 0].view(-1, 1, 1, 1, 1))
        bias = conv.bias
    elif isinstance(conv, nn.Conv2d):
        folded = copy.deepcopy(conv)
        folded.weight.mul_(scale.view(-1, 1, 1, 1))
        folded.bias = nn.Parameter(conv.weight.new_zeros(conv.out_channels))
        bias = conv.bias
    else:
        raise FoldError(f"cannot fold into a {type(conv).__name__}")
    assert folded.bias is not None
    folded.bias.copy_(shift if bias is None else shift + bias * scale)
    return folded


def plain(network: nn.Module) -> tuple[nn.Module, dict[str, tuple[int, Kind]]]:
    """A copy without this package's layers: ordinary ones with expanded weights; and the blocks, by layer's name."""
    network = copy.deepcopy(network)
    blocks: dict[str, tuple[int, Kind]] = {}
    for name, module in list(network.named_modules()):
        if not isinstance(module, BlockConv2d | BlockLinear):
            continue
        has_bias = module.bias is not None
        if isinstance(module, BlockLinear):
            dense: nn.Linear | nn.Conv2d = nn.Linear(module.in_features, module.out_features, has_bias)
        else:
            dense = nn.Conv2d(
                module.in_channels,
                module.out_channels,
                module.kernel_size,
                module.stride,
                module.padding,
                bias=has_bias,
            )
        with torch.no_grad():
            dense.weight.copy_(module.dense_weight())
            if module.bias is not None and dense.bias is not None:
                dense.bias.copy_(module.bias)
        network.set_submodule(name, dense)
        if module.block > 1:
            blocks[name] = (module.block, module.kind)
    return network, blocks


class FusedPair(nn.Module):
    """`expand(x + project(d))` as one 1x1 convolution over the channels of x and d.

    With P, p the projection's weight and bias, E, e the expansion's: E (x + P d + p) + e =
    [E | E P] [x; d] + (E p + e).
    The block's own output x + P d + p is what a skip connection further on takes; then rows [I | P] stand behind.
    `skip`: x is added (the block is a residual one). Nothing is decrypted or shared anew between the two layers.
    """

    def __init__(self, project: nn.Module, expand_conv: nn.Module, skip: bool, output: bool) -> None:
        super().__init__()
        p, e = _matrix(project), _matrix(expand_conv)
        block, kind = p[1], p[2]
        if (block, kind) != (e[1], e[2]):
            raise FoldError(f"blocks of {block} ({kind}) and of {e[1]} ({e[2]}) do not multiply: sizes must be equal")
        (inner, p_bias), (outer, e_bias) = (p[0], p[3]), (e[0], e[3])
        rows = [[multiply(outer, inner, kind)]]
        bias = [expand(outer, kind) @ p_bias + e_bias]
        if skip:
            rows[0].insert(0, outer)
        if output:
            rows.append([inner])
            bias.append(p_bias)
            if skip:
                identity = torch.zeros(inner.shape[0], inner.shape[0], block)
                identity[:, :, 0] = torch.eye(inner.shape[0])
                rows[1].insert(0, identity)
        weight = torch.cat([torch.cat(row, 1) for row in rows])
        self.skip, self.expanded = skip, outer.shape[0] * block
        outputs, inputs = weight.shape[0] * block, weight.shape[1] * block
        self.conv: nn.Module = BlockConv2d(inputs, outputs, 1, block, kind)
        assert isinstance(self.conv, BlockConv2d) and self.conv.bias is not None
        with torch.no_grad():
            self.conv.compressed.copy_(weight[..., None, None])
            self.conv.bias.copy_(torch.cat(bias))

    def forward(self, x: Tensor, d: Tensor) -> tuple[Tensor, Tensor | None]:
        """The expansion's result before its activation; and the block's output where it was asked for."""
        y: Tensor = self.conv(torch.cat([x, d], 1) if self.skip else d)
        if y.shape[1] == self.expanded:
            return y, None
        return y[:, : self.expanded], y[:, self.expanded :]


def _matrix(conv: nn.Module) -> tuple[Tensor, int, Kind, Tensor]:
    """A folded 1x1 convolution as compressed matrix, block size, kind and bias."""
    if not isinstance(conv, BlockConv2d | nn.Conv2d) or conv.bias is None:
        raise FoldError(f"a {type(conv).__name__} is no folded convolution")
    if conv.kernel_size != (1, 1) or conv.stride not in (1, (1, 1)) or conv.padding not in (0, (0, 0)):
        raise FoldError("only 1x1 convolutions without stride and padding become one matrix")
    if isinstance(conv, BlockConv2d):
        return conv.compressed.detach()[..., 0, 0], conv.block, conv.kind, conv.bias.detach()
    if conv.groups != 1:
        raise FoldError("a convolution in groups is no matrix")
    return conv.weight.detach()[:, :, None, 0, 0], 1, Kind.SKEW, conv.bias.detach()


class FusedMobileNetV2(nn.Module):
    """A folded MobileNetV2 with each projection and the expansion that follows in one layer where blocks are equal."""

    def __init__(self, network: MobileNetV2) -> None:
        super().__init__()
        network = copy.deepcopy(network)
        self.stem, self.head = network.stem, network.head
        blocks = [block for block in network.blocks if isinstance(block, InvertedResidual)]
        if len(blocks) != len(network.blocks):
            raise FoldError("expected a MobileNetV2 of inverted residuals")
        self.first = blocks[0].expand
        self.depthwise = nn.ModuleList(block.depthwise for block in blocks)
        self.residual = [block.residual for block in blocks]
        self.joints = nn.ModuleList()
        self.fused = 0
        for here, after in zip(blocks, [*blocks[1:], None], strict=True):
            follows = network.last if after is None else after.expand
            self.joints.append(self._joint(here, follows, output=after is not None and after.residual))

    def _joint(self, here: InvertedResidual, follows: nn.Module, output: bool) -> nn.Module:
        assert isinstance(here.project, ConvBN)
        if not isinstance(follows, ConvBN) or not isinstance(here.project.bn, nn.Identity):
            raise FoldError("fold the batch norms first")
        try:
            pair = FusedPair(here.project.conv, follows.conv, here.residual, output)
        except FoldError as error:
            if "do not multiply" not in str(error):
                raise
            return nn.ModuleList([here.project, follows])
        self.fused += 1
        return nn.ModuleList([pair, follows.act])

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        hidden = self.first(x)
        for depthwise, joint, residual in zip(self.depthwise, self.joints, self.residual, strict=True):
            d = depthwise(hidden)
            assert isinstance(joint, nn.ModuleList)
            if isinstance(joint[0], FusedPair):
                before, output = joint[0](x, d)
                hidden = joint[1](before)
                # Where no output comes out, no skip connection takes it.
                x = x if output is None else output
            else:
                y = joint[0](d)
                x = x + y if residual else y
                hidden = joint[1](x)
        y = nn.functional.adaptive_avg_pool2d(hidden, 1).flatten(1)
        logits: Tensor = self.head(y)
        return logits


def check_blocks(network: nn.Module, blocks: dict[str, tuple[int, Kind]]) -> None:
    """Raises StructureError unless the plain layers named in `blocks` have exactly those blocks."""
    for name, (block, kind) in blocks.items():
        weight = network.get_submodule(name).weight
        assert isinstance(weight, Tensor)
        try:
            compress(weight.detach(), block, kind)
        except StructureError as error:
            raise StructureError(f"layer {name}: {error}") from None
