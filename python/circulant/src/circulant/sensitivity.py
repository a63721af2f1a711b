"""How much blocks of each size hurt each layer: Omega = dw^T diag(F) dw, with F the squared gradients.

Source: PrivCirNet, equation 2. F belongs to the *fused* weight (batch norm's scale inside), the one that must have the
structure. It is the mean over samples of the squared gradient of one sample's loss.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .blocks import Kind, expand, fit
from .convert import Site, sites
from .data import Split

Labels = Literal["true", "model"]


def fisher(
    network: nn.Module, data: Split, batch: int = 1, labels: Labels = "true", seed: int = 0
) -> dict[str, Tensor]:
    """F of each layer's fused weight, by name, over all of `data`.

    With `batch` above 1 gradients of small batches are squared and multiplied by the batch's size: the same in
    expectation where the gradients' mean is zero, as in a trained network, and faster. `labels`: "true" is the task's
    loss as in the paper; "model" draws each label from the network's own prediction, which gives the Gauss-Newton
    matrix's diagonal and does not fade where the network has learnt its samples by heart.
    """
    network = copy.deepcopy(network).eval()
    found = list(sites(network))
    weights = [site.layer.weight for site in found]
    sums = [torch.zeros_like(weight) for weight in weights]
    draw = torch.Generator().manual_seed(seed)
    steps = len(data) // batch
    if steps == 0:
        raise ValueError(f"{len(data)} samples do not fill one batch of {batch}")
    for step in range(steps):
        images = data.images[step * batch : (step + 1) * batch]
        target = data.labels[step * batch : (step + 1) * batch]
        logits = network(images)
        if labels == "model":
            target = torch.multinomial(logits.detach().softmax(1), 1, generator=draw).squeeze(1)
        gradients = torch.autograd.grad(F.cross_entropy(logits, target), weights)
        for total, gradient in zip(sums, gradients, strict=True):
            total.addcmul_(gradient, gradient, value=batch / steps)
    return {site.name: _fused(site, total) for site, total in zip(found, sums, strict=True)}


def _fused(site: Site, importance: Tensor) -> Tensor:
    """F of the fused weight from F of the layer's own: divided by the square of the norm's scale."""
    square = (site.row_scale() ** 2).clamp_min(1e-20)
    return importance / square.view(-1, *[1] * (importance.dim() - 1))


def omega(weight: Tensor, importance: Tensor, block: int, kind: Kind, loss_aware: bool = True) -> float:
    """Omega of one layer for one size, after the loss-aware fit (or after Frobenius'). 0 for block 1."""
    fitted = expand(fit(weight, block, kind, importance if loss_aware else None), kind)
    return float((importance.double() * (fitted.double() - weight.double()) ** 2).sum())


def squared_distance(weight: Tensor, block: int, kind: Kind) -> float:
    """The Frobenius baseline's measure: the squared distance to the nearest weight with the structure."""
    return float(((expand(fit(weight, block, kind), kind).double() - weight.double()) ** 2).sum())


def table(
    network: nn.Module, importance: Mapping[str, Tensor], kind: Kind, baseline: bool = False
) -> dict[str, dict[int, float]]:
    """By layer and block size: Omega, or with `baseline` the squared distance."""
    result: dict[str, dict[int, float]] = {}
    for site in sites(network):
        weight = site.fused_weight()
        result[site.name] = {
            b: squared_distance(weight, b, kind) if baseline else omega(weight, importance[site.name], b, kind)
            for b in site.sizes
        }
    return result
