"""Block-circulant weights: how they are stored, expanded, fitted, checked and multiplied.

A weight `[O, I, *taps]` (taps: nothing for a matrix, `kh, kw` for a convolution) falls into blocks of b output by b
input channels. In one block, for each tap, entry (i, j) is

    w[(i - j) mod b]                                     circulant: products modulo X^b - 1
    w[(i - j) mod b], with a minus sign where i < j      skew:      products modulo X^b + 1

so b numbers stand for b^2. The *compressed* form is `[O/b, I/b, b, *taps]`; its third axis is w, the block's first
column. Source: PrivCirNet, Section 2 (circulant); docs/circulant.md (skew).
"""

from __future__ import annotations

import math
from enum import StrEnum
from functools import cache

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

# Block sizes that the backends know.
SIZES = (1, 2, 4, 8, 16)
CPU = torch.device("cpu")


class Kind(StrEnum):
    """What wraps around in a block, and with which sign."""

    SKEW = "skew"
    CIRCULANT = "circulant"


class StructureError(ValueError):
    """A weight does not have the structure, or a size does not fit it."""


def check_size(outputs: int, inputs: int, block: int) -> None:
    """Raises StructureError unless `block` is one of SIZES and divides both numbers of channels."""
    if block not in SIZES:
        raise StructureError(f"block size {block}: expected one of {SIZES}")
    if outputs % block or inputs % block:
        raise StructureError(f"block size {block} does not divide {outputs} outputs and {inputs} inputs")


@cache
def _places(block: int, kind: Kind, device: torch.device = CPU) -> tuple[Tensor, Tensor]:
    """For the entries of a block, row by row: which w they hold, and with which sign. Both `[b * b]`."""
    row = torch.arange(block, device=device)[:, None]
    column = torch.arange(block, device=device)[None, :]
    place = (row - column) % block
    sign = torch.where(row < column, -1.0 if kind is Kind.SKEW else 1.0, 1.0)
    return place.flatten(), sign.flatten()


@cache
def _entries_of(block: int, device: torch.device) -> Tensor:
    """For each w, the b entries of a block that hold it: `[b * b]`, w by w."""
    w, column = torch.arange(block, device=device)[:, None], torch.arange(block, device=device)[None, :]
    return ((w + column) % block * block + column).flatten()


class _Spread(torch.autograd.Function):
    """Values of blocks `[P, Q, b, *taps]` to their entries `[P, Q, b * b, *taps]`.

    Both ways by index_select, which only reads at random: torch's own gradient adds at random, which is slow on GPUs
    and rounds in another order each time.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor, kind: Kind) -> Tensor:
        block, taps = values.shape[2], values.dim() - 3
        ctx.kind = kind  # type: ignore[attr-defined]
        place, sign = _places(block, kind, values.device)
        entries = values.index_select(2, place)
        return entries * _over(sign, taps, entries) if kind is Kind.SKEW else entries

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        kind: Kind = ctx.kind  # type: ignore[attr-defined]
        block, taps = math.isqrt(gradient.shape[2]), gradient.dim() - 3
        if kind is Kind.SKEW:
            gradient = gradient * _over(_places(block, kind, gradient.device)[1], taps, gradient)
        return _along_diagonals(gradient), None


def _over(sign: Tensor, taps: int, like: Tensor) -> Tensor:
    return sign.to(like.dtype).view(-1, *[1] * taps)


def expand(compressed: Tensor, kind: Kind) -> Tensor:
    """`[O/b, I/b, b, *taps]` to the dense weight `[O, I, *taps]`. Copies (and negates), so exact. Differentiable."""
    p, q, b, *taps = compressed.shape
    if b == 1:
        return compressed.squeeze(2)
    entries: Tensor = _Spread.apply(compressed, kind)  # type: ignore[no-untyped-call]
    return entries.reshape(p, q, b, b, *taps).transpose(1, 2).reshape(p * b, q * b, *taps)


def _entries(dense: Tensor, block: int) -> Tensor:
    """`[O, I, *taps]` to `[O/b, I/b, b * b, *taps]`."""
    o, i, *taps = dense.shape
    check_size(o, i, block)
    parts = dense.reshape(o // block, block, i // block, block, *taps).transpose(1, 2)
    return parts.reshape(o // block, i // block, block * block, *taps)


def fit(dense: Tensor, block: int, kind: Kind, importance: Tensor | None = None) -> Tensor:
    """The compressed weight nearest to `dense`: it minimises the sum over entries of importance * (difference)^2.

    `importance` (>= 0, of dense's shape) is PrivCirNet's F, the squared gradients, which gives its loss-aware
    initialisation E[W o F]_diag / E[F]_diag (Section 3.3). Without it every entry counts the same: the Frobenius norm,
    a plain mean along each diagonal. The plain mean also stands in where a whole diagonal has no importance.
    """
    if importance is not None and importance.shape != dense.shape:
        raise StructureError(f"importance has shape {list(importance.shape)}, the weight {list(dense.shape)}")
    if block == 1:
        check_size(dense.shape[0], dense.shape[1], block)
        return dense.unsqueeze(2).clone()
    sign = _places(block, kind, dense.device)[1]
    values = _entries(dense, block) * _over(sign, dense.dim() - 2, dense)
    mean = _along_diagonals(values) / block
    if importance is None:
        return mean
    weight = _entries(importance, block)
    total = _along_diagonals(weight)
    fitted = _along_diagonals(values * weight) / total
    return torch.where((total > 0) & fitted.isfinite(), fitted, mean)


def _along_diagonals(entries: Tensor) -> Tensor:
    """Sums of `[P, Q, b * b, *taps]` over the entries that hold the same w: `[P, Q, b, *taps]`."""
    p, q, count, *taps = entries.shape
    block = math.isqrt(count)
    return entries.index_select(2, _entries_of(block, entries.device)).reshape(p, q, block, block, *taps).sum(3)


def compress(dense: Tensor, block: int, kind: Kind) -> Tensor:
    """The compressed form of a weight that has the structure exactly. Raises StructureError where it has not."""
    o, i, *taps = dense.shape
    check_size(o, i, block)
    columns = dense.reshape(o // block, block, i, *taps)[:, :, ::block]
    compressed = columns.transpose(1, 2).contiguous()
    # Compared as numbers: -0 and 0 are the same weight.
    wrong = expand(compressed, kind) != dense
    if wrong.any():
        at = [int(k) for k in wrong.nonzero()[0]]
        raise StructureError(
            f"not {kind} in blocks of {block}: {int(wrong.sum())} of {dense.numel()} entries differ, the first at {at}"
        )
    return compressed


def multiply(left: Tensor, right: Tensor, kind: Kind) -> Tensor:
    """The product of two block matrices of one kind and size, both compressed: `[P, Q, b]` by `[Q, R, b]`.

    Blocks are polynomials modulo X^b + 1 (skew) or X^b - 1 (circulant), so the product has the structure again.
    """
    p, q, b = left.shape
    if right.dim() != 3 or right.shape[0] != q or right.shape[2] != b:
        raise StructureError(f"cannot multiply blocks {list(left.shape)} by {list(right.shape)}")
    r = right.shape[1]
    # The first columns of the right matrix give the first columns of the product.
    columns = right.transpose(1, 2).reshape(q * b, r)
    return (expand(left, kind) @ columns).reshape(p, b, r).transpose(1, 2).contiguous()
