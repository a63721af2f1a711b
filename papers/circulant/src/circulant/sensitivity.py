"""How much blocks of each size hurt each layer: Omega = dw^T F dw, dw being what conversion adds to the weight.

F is the Fisher matrix, which stands for the Hessian of the loss, of the *fused* weight: the one that must have the
structure, batch norm's scale inside. Two forms of it:

    diagonal    dw^T diag(F) dw, with the mean of squared gradients on the diagonal. PrivCirNet, equation 2.
    full        E[(g^T dw)^2], over the gradients g of single samples: the same with all of F, which need not be stored.

The fit of blocks to a weight has its closed form for the diagonal only, so `fisher` gives that. For Omega the full form
takes hardly longer and ranks layers far better: activations behind a ReLU are of one sign, so gradients of the weights
of one output go up and down together, and what is beside the diagonal adds up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .blocks import Kind, expand, fit
from .convert import Site, sites
from .data import Split
from .fuse import fold

Labels = Literal["true", "model"]
Table = dict[str, dict[int, float]]


def _gradients(
    folded: nn.Module, found: list[Site], data: Split, batch: int, labels: Labels, seed: int
) -> Iterator[tuple[Tensor, ...]]:
    """Gradients of the loss of each batch by the fused weights, times the root of the batch's size."""
    weights = [site.layer.weight for site in found]
    device = weights[0].device
    data = data.to(device)
    draw = torch.Generator(device).manual_seed(seed)
    if len(data) < batch:
        raise ValueError(f"{len(data)} samples do not fill one batch of {batch}")
    for step in range(len(data) // batch):
        images = data.images[step * batch : (step + 1) * batch]
        target = data.labels[step * batch : (step + 1) * batch]
        logits = folded(images)
        if labels == "model":
            target = torch.multinomial(logits.detach().softmax(1), 1, generator=draw).squeeze(1)
        loss = F.cross_entropy(logits, target)
        yield torch.autograd.grad(loss * batch**0.5, weights)


def fisher(
    network: nn.Module, data: Split, batch: int = 1, labels: Labels = "true", seed: int = 0
) -> dict[str, Tensor]:
    """The Fisher matrix's diagonal for each layer's fused weight, by name and in its shape, over all of `data`.

    `labels`: "true" is the task's loss as in the paper; "model" draws each label from the network's own prediction,
    which gives the Gauss-Newton matrix and does not fade where the network has learnt its samples by heart. With
    `batch` above 1 gradients of small batches are squared and multiplied by the batch's size: faster, and the same in
    expectation where the mean of the gradients is zero, as it is with labels of the model.
    """
    folded = fold(network)
    found = list(sites(folded))
    sums = [torch.zeros_like(site.layer.weight, requires_grad=False) for site in found]
    steps = len(data) // batch
    for gradients in _gradients(folded, found, data, batch, labels, seed):
        for total, gradient in zip(sums, gradients, strict=True):
            total.addcmul_(gradient, gradient, value=1 / steps)
    return {site.name: total for site, total in zip(found, sums, strict=True)}


def full_table(
    network: nn.Module,
    importance: Mapping[str, Tensor] | None,
    data: Split,
    kind: Kind,
    batch: int = 1,
    labels: Labels = "model",
    seed: int = 0,
) -> Table:
    """Omega in its full form by layer and block size. `importance`, `fisher`'s, is for the fit; None is Frobenius'."""
    folded = fold(network)
    found = list(sites(folded))
    moves, sums = [], []
    for site in found:
        weight = site.layer.weight.detach()
        own = None if importance is None else importance[site.name]
        moved = [(expand(fit(weight, b, kind, own), kind) - weight).flatten() for b in site.sizes]
        moves.append(torch.stack(moved))
        sums.append(torch.zeros(len(site.sizes), dtype=torch.float64, device=weight.device))
    for gradients in _gradients(folded, found, data, batch, labels, seed):
        for total, move, gradient in zip(sums, moves, gradients, strict=True):
            total += (move @ gradient.flatten()).double() ** 2
    steps = len(data) // batch
    return {
        site.name: {b: v / steps for b, v in zip(site.sizes, total.tolist(), strict=True)}
        for site, total in zip(found, sums, strict=True)
    }


def omega(weight: Tensor, importance: Tensor, block: int, kind: Kind, loss_aware: bool = True) -> float:
    """Omega of one layer in its diagonal form, after the loss-aware fit (or after Frobenius'). 0 for block 1."""
    fitted = expand(fit(weight, block, kind, importance if loss_aware else None), kind)
    return float((importance.double() * (fitted.double() - weight.double()) ** 2).sum())


def squared_distance(weight: Tensor, block: int, kind: Kind) -> float:
    """The Frobenius baseline's measure: the squared distance to the nearest weight with the structure."""
    return float(((expand(fit(weight, block, kind), kind).double() - weight.double()) ** 2).sum())


def diagonal_table(network: nn.Module, importance: Mapping[str, Tensor], kind: Kind) -> Table:
    """Omega in its diagonal form by layer and block size."""
    return {
        site.name: {b: omega(site.fused_weight(), importance[site.name], b, kind) for b in site.sizes}
        for site in sites(network)
    }


def distance_table(network: nn.Module, kind: Kind) -> Table:
    """`squared_distance` by layer and block size."""
    return {
        site.name: {b: squared_distance(site.fused_weight(), b, kind) for b in site.sizes} for site in sites(network)
    }


def weights_table(network: nn.Module) -> Table:
    """By layer and block size, how many weights blocks give up: n·(1 − 1/b) of n."""
    return {site.name: {b: site.layer.weight.numel() * (1 - 1 / b) for b in site.sizes} for site in sites(network)}


class Form(StrEnum):
    """What a search takes for the harm of a block."""

    FULL = "full"
    DIAGONAL = "diagonal"
    DISTANCE = "distance"
    WEIGHTS = "weights"


def table(
    form: Form,
    network: nn.Module,
    importance: Mapping[str, Tensor],
    data: Split,
    kind: Kind,
    batch: int = 1,
) -> Table:
    """The harm by layer and block size: Omega in either form, the squared distance, or the weights given up.

    Raises ValueError where `data` does not fill one batch.
    """
    match form:
        case Form.FULL:
            return full_table(network, importance, data, kind, batch)
        case Form.DIAGONAL:
            return diagonal_table(network, importance, kind)
        case Form.DISTANCE:
            return distance_table(network, kind)
        case Form.WEIGHTS:
            return weights_table(network)
