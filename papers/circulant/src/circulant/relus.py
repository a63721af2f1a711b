"""Networks with few ReLUs: places where `max(x, 0)` became x. Masks, how they count, and how they are written as ONNX.

A private ReLU takes a comparison; x itself takes none. Which places keep theirs is public, as the architecture is.
`linearise` finds them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from enum import StrEnum

import torch
from torch import Tensor, nn

from .networks import SIDE


class ReluError(ValueError):
    """A network without ReLUs, or masks that are not for it."""


class Unit(StrEnum):
    """What keeps or loses its ReLU as a whole: one value of a map, or a channel."""

    PIXEL = "pixel"
    CHANNEL = "channel"

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a mask for maps of `[C, H, W]`."""
        return shape if self is Unit.PIXEL else (shape[0], 1, 1)


def _channels_last(values: Tensor) -> Tensor:
    """`[C, H, W]` as they are, in the order in which maps lie in memory while training: so a map is walked once."""
    return values.permute(1, 2, 0).contiguous().permute(2, 0, 1)


class PartialReLU(nn.Module):
    """`max(x, 0)` where `mask` is set, x elsewhere. Maps are `[N, C, H, W]`, the mask is `[C, H, W]` or `[C, 1, 1]`."""

    mask: Tensor

    def __init__(self, mask: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("mask", _channels_last(mask.to(torch.bool)))

    def forward(self, x: Tensor) -> Tensor:
        # Not masked_fill: its result is never channels last, and every convolution behind it would be slower.
        return torch.where((x < 0) & self.mask, 0.0, x)

    def kept(self) -> int:
        """How many values of a picture keep their ReLU."""
        return int(self.mask.expand(self.shape).sum())


class MovedReLU(nn.Module):
    """The same function as a `PartialReLU` of moves and one ReLU over what keeps it: so it stands in an ONNX file.

    Moves cost two parties nothing, where a product by a mask would be a layer. Places are by channel where the mask is
    `[C, 1, 1]`, else in row-major order.
    """

    kept: Tensor
    other: Tensor
    back: Tensor

    def __init__(self, mask: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = (-1, *shape)
        self.flat = mask.shape == shape
        places = mask.flatten()
        kept, other = places.nonzero()[:, 0], (~places).nonzero()[:, 0]
        self.register_buffer("kept", kept)
        self.register_buffer("other", other)
        self.register_buffer("back", torch.argsort(torch.cat([kept, other])))

    def forward(self, x: Tensor) -> Tensor:
        values = x.flatten(1) if self.flat else x
        rectified = torch.relu(values.index_select(1, self.kept))
        y = torch.cat([rectified, values.index_select(1, self.other)], 1).index_select(1, self.back)
        return y.reshape(self.sizes) if self.flat else y


class GatedReLU(nn.Module):
    """`c·max(x, 0) + (1 - c)·x`, a gate c from 0 to 1 for each value or channel; where `mask` is not set it is 0."""

    mask: Tensor

    def __init__(self, mask: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("mask", _channels_last(mask.to(torch.bool)))
        self.gate = nn.Parameter(_channels_last(mask.to(torch.float32)))

    def forward(self, x: Tensor) -> Tensor:
        # What is negative is taken 1 - c times.
        return torch.where(x < 0, x * (1 - self.gate).to(x.dtype), x)


RELUS = nn.ReLU | PartialReLU | GatedReLU


def sites(network: nn.Module) -> list[str]:
    """The names of a network's ReLUs, whole ones and those with masks or gates, in the order in which it has them."""
    return [name for name, module in network.named_modules() if isinstance(module, RELUS)]


@torch.no_grad()
def shapes(network: nn.Module, inputs: int) -> dict[str, tuple[int, ...]]:
    """The map `[C, H, W]` behind each ReLU, for pictures of `inputs` channels. Raises ReluError where there is none."""
    network = copy.deepcopy(network).cpu().eval()
    found: dict[str, tuple[int, ...]] = {}

    def listener(name: str) -> object:
        def listen(_: nn.Module, __: object, y: Tensor) -> None:
            if name in found:
                raise ReluError(f"{name} stands for several ReLUs")
            found[name] = tuple(y.shape[1:])

        return listen

    for name in sites(network):
        network.get_submodule(name).register_forward_hook(listener(name))  # type: ignore[arg-type]
    network(torch.zeros(1, inputs, SIDE, SIDE))
    if not found:
        raise ReluError("the network has no ReLU")
    return found


def with_masks(network: nn.Module, masks: Mapping[str, Tensor], inputs: int) -> nn.Module:
    """A copy whose ReLUs are kept where `masks` says so. Raises ReluError unless they are for its ReLUs."""
    network = copy.deepcopy(network)
    known, device = shapes(network, inputs), next(network.parameters()).device
    if masks.keys() != known.keys():
        raise ReluError(f"masks for {sorted(masks.keys() ^ known.keys())} are missing or too many")
    for name, mask in masks.items():
        if tuple(mask.shape) not in (known[name], Unit.CHANNEL.of(known[name])):
            raise ReluError(f"{name}: a mask of {tuple(mask.shape)} for maps of {known[name]}")
        network.set_submodule(name, PartialReLU(mask.to(device), known[name]))
    return network


def all_kept(network: nn.Module, unit: Unit, inputs: int) -> nn.Module:
    """A copy with masks that keep every ReLU: the same function, for masks to be loaded into."""
    masks = {name: torch.ones(unit.of(shape)) for name, shape in shapes(network, inputs).items()}
    return with_masks(network, masks, inputs)


def each_partial(network: nn.Module) -> Iterator[tuple[str, PartialReLU]]:
    """Its ReLUs with masks, by name."""
    return ((name, module) for name, module in network.named_modules() if isinstance(module, PartialReLU))


def count(network: nn.Module, inputs: int) -> dict[str, int]:
    """How many values of a picture go through a ReLU, by ReLU."""
    masks = {name: module.kept() for name, module in each_partial(network)}
    return {name: masks.get(name, shape[0] * shape[1] * shape[2]) for name, shape in shapes(network, inputs).items()}


def moved(network: nn.Module) -> nn.Module:
    """A copy for export: masks that keep all are ReLUs, masks that keep none are nothing, others `MovedReLU`s."""
    network = copy.deepcopy(network)
    for name, module in list(each_partial(network)):
        other: nn.Module = MovedReLU(module.mask, module.shape)
        if module.mask.all():
            other = nn.ReLU()
        elif not module.mask.any():
            other = nn.Identity()
        network.set_submodule(name, other)
    return network


def each_gate(network: nn.Module) -> Iterator[tuple[str, GatedReLU]]:
    """Its ReLUs with gates, by name."""
    return ((name, module) for name, module in network.named_modules() if isinstance(module, GatedReLU))


def with_gates(network: nn.Module, unit: Unit, inputs: int) -> nn.Module:
    """A copy with an open gate for each value (or channel) that has a ReLU; those without keep to be without.

    Raises ReluError where masks by value would have to become gates by channel.
    """
    known, device = shapes(network, inputs), next(network.parameters()).device
    masks: dict[str, Tensor] = {}
    for name, shape in known.items():
        module = network.get_submodule(name)
        mask = module.mask if isinstance(module, PartialReLU) else torch.ones(unit.of(shape), dtype=torch.bool)
        mask = mask.to(device)
        if unit is Unit.PIXEL:
            mask = mask.expand(shape).contiguous()
        elif tuple(mask.shape) != unit.of(shape):
            raise ReluError(f"{name} has a mask by value: take --unit pixel")
        masks[name] = mask
    network = with_masks(network, masks, inputs)
    for name, mask in masks.items():
        network.set_submodule(name, GatedReLU(mask, known[name]))
    return network
