"""Blocks and layers against their definitions, entry by entry."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from circulant.blocks import SIZES, Kind, StructureError, compress, expand, fit, multiply
from circulant.layers import BlockConv2d, BlockLinear, GroupedBatchNorm2d

KINDS = list(Kind)


def entry(w: torch.Tensor, i: int, j: int, kind: Kind) -> torch.Tensor:
    """docs/circulant.md, word by word."""
    b = len(w)
    return -w[(i - j) % b] if kind is Kind.SKEW and i < j else w[(i - j) % b]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", SIZES)
def test_expansion_is_the_definition(block: int, kind: Kind) -> None:
    compressed = torch.randn(2, 3, block, 2, 1)
    dense = expand(compressed, kind)
    assert dense.shape == (2 * block, 3 * block, 2, 1)
    for p in range(2):
        for q in range(3):
            for i in range(block):
                for j in range(block):
                    found = dense[p * block + i, q * block + j]
                    for u in range(2):
                        assert found[u, 0] == entry(compressed[p, q, :, u, 0], i, j, kind)
    assert torch.equal(compress(dense, block, kind), compressed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_is_a_product_of_polynomials(kind: Kind) -> None:
    block = 4
    w, x = torch.arange(1.0, 5.0), torch.tensor([2.0, -1.0, 3.0, 5.0])
    product = torch.zeros(block)
    for i in range(block):
        for j in range(block):
            wraps = i + j >= block
            product[(i + j) % block] += (-1 if wraps and kind is Kind.SKEW else 1) * w[i] * x[j]
    assert torch.equal(expand(w.view(1, 1, 4), kind) @ x, product)


@pytest.mark.parametrize("kind", KINDS)
def test_the_product_of_blocks_has_blocks(kind: Kind) -> None:
    left, right = torch.randn(3, 2, 8).double(), torch.randn(2, 5, 8).double()
    product = multiply(left, right, kind)
    assert torch.allclose(expand(product, kind), expand(left, kind) @ expand(right, kind))
    with pytest.raises(StructureError):
        multiply(left, torch.randn(2, 5, 4).double(), kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [2, 4, 8])
def test_the_fit_is_the_least_weighted_distance(block: int, kind: Kind) -> None:
    """Against a least-squares solver that knows nothing of diagonals."""
    dense, importance = torch.randn(block, 2 * block, 3).double(), torch.rand(block, 2 * block, 3).double()
    fitted = fit(dense, block, kind, importance)
    basis = torch.stack(
        [expand(one.view(fitted.shape), kind).flatten() for one in torch.eye(fitted.numel()).double()], 1
    )
    root = importance.flatten().sqrt()
    solved = torch.linalg.lstsq(basis * root[:, None], dense.flatten() * root).solution
    assert torch.allclose(fitted.flatten(), solved)
    plain = torch.linalg.lstsq(basis, dense.flatten()).solution
    assert torch.allclose(fit(dense, block, kind).flatten(), plain)


def test_the_fit_keeps_what_has_blocks_and_copes_without_importance() -> None:
    compressed = torch.randn(2, 2, 4)
    dense = expand(compressed, Kind.SKEW)
    assert torch.allclose(fit(dense, 4, Kind.SKEW, torch.rand(8, 8) + 0.1), compressed)
    noisy = torch.randn(8, 8)
    assert torch.equal(fit(noisy, 4, Kind.SKEW, torch.zeros(8, 8)), fit(noisy, 4, Kind.SKEW))


def test_what_has_no_structure_is_refused() -> None:
    dense = expand(torch.randn(2, 2, 4), Kind.SKEW)
    dense[1, 6] += 1e-6
    with pytest.raises(StructureError, match=r"1 of 64 entries differ, the first at \[1, 6\]"):
        compress(dense, 4, Kind.SKEW)
    with pytest.raises(StructureError):
        compress(expand(torch.randn(2, 2, 4), Kind.SKEW), 4, Kind.CIRCULANT)
    for outputs, inputs, block in ((8, 6, 4), (6, 8, 4), (8, 8, 3), (32, 32, 32)):
        with pytest.raises(StructureError):
            BlockLinear(inputs, outputs, block)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_apply_the_expanded_weight(kind: Kind) -> None:
    linear = BlockLinear(16, 8, 4, kind)
    x = torch.randn(3, 5, 16)
    dense = nn.Linear(16, 8)
    dense.load_state_dict({"weight": expand(linear.compressed, kind).detach(), "bias": linear.bias.detach()})
    assert torch.equal(linear(x), dense(x))
    for kernel, stride, padding in ((1, 1, 0), (3, 2, 1), ((3, 1), 1, (1, 0))):
        conv = BlockConv2d(16, 8, kernel, 8, kind, stride, padding)
        same = nn.Conv2d(16, 8, kernel, stride, padding)
        same.load_state_dict({"weight": expand(conv.compressed, kind).detach(), "bias": conv.bias.detach()})
        maps = torch.randn(2, 16, 9, 7)
        assert torch.equal(conv(maps), same(maps))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_the_compressed_weight(kind: Kind) -> None:
    compressed = torch.randn(2, 1, 4, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: expand(w, kind), (compressed,))


def test_grouped_norm_without_groups_is_batch_norm() -> None:
    grouped, plain = GroupedBatchNorm2d(6, 1), nn.BatchNorm2d(6)
    for _ in range(3):
        x = torch.randn(4, 6, 5, 5) * 2 + 1
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        assert torch.allclose(grouped(a), plain(b), atol=1e-5)
        up = torch.randn(4, 6, 5, 5)
        grouped(a).backward(up)
        plain(b).backward(up)
        assert torch.allclose(a.grad, b.grad, atol=1e-5)
        assert torch.allclose(grouped.weight.grad, plain.weight.grad, atol=1e-3)
    assert torch.allclose(grouped.running_mean, plain.running_mean, atol=1e-5)
    assert torch.allclose(grouped.running_var, plain.running_var, atol=1e-5)
    assert torch.allclose(grouped.eval()(x), plain.eval()(x), atol=1e-5)


def test_grouped_norm_against_elementary_operations() -> None:
    norm = GroupedBatchNorm2d(8, 4)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
    x = (torch.randn(3, 8, 4, 5) * torch.rand(8, 1, 1) * 3 + torch.randn(8, 1, 1)).requires_grad_()

    def slowly(x: torch.Tensor) -> torch.Tensor:
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        inverse = (variance.view(2, 4).mean(1) + norm.eps).rsqrt()
        scale = (norm.weight * inverse).repeat_interleave(4)
        return (x - mean.view(1, -1, 1, 1)) * scale.view(1, -1, 1, 1) + norm.bias.view(1, -1, 1, 1)

    inputs = (x, norm.weight, norm.bias)
    up = torch.randn(3, 8, 4, 5)
    assert torch.allclose(norm(x), slowly(x), atol=1e-4)
    found, expected = (torch.autograd.grad(f(x), inputs, up) for f in (norm, slowly))
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-4)


def test_the_norms_scale_is_equal_within_groups() -> None:
    norm = GroupedBatchNorm2d(8, 4)
    norm(torch.randn(2, 8, 3, 3) * 5)
    scale = norm.scale()
    assert scale[:4].unique().numel() == 1 and scale[4:].unique().numel() == 1
    x = torch.randn(2, 8, 3, 3)
    affine = x * scale.view(1, -1, 1, 1) + norm.shift().view(1, -1, 1, 1)
    assert torch.allclose(norm.eval()(x), affine)
    assert F.relu(affine).shape == x.shape
