"""Conversion, folding and the fusion of linear layers: what must not change the network's function does not."""

import copy

import pytest
import torch
from torch import nn

from circulant.blocks import Kind, StructureError, compress
from circulant.convert import convert, each_block_layer, sites, uniform
from circulant.data import Split
from circulant.fuse import FoldError, FusedMobileNetV2, FusedPair, check_blocks, fold, plain
from circulant.layers import BlockConv2d, GroupedBatchNorm2d
from circulant.networks import ConvBN, build
from circulant.sensitivity import fisher, omega, squared_distance, table

KINDS = list(Kind)


def lively(network: nn.Module) -> nn.Module:
    """Norms with scales and statistics far from one, some negative."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            with torch.no_grad():
                module.weight.uniform_(0.5, 1.5)
                module.weight[0].neg_()
                module.bias.normal_(0, 0.2)
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 2)
    return network.eval()


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2", "vit"])
def test_conversion_gives_every_layer_its_size(name: str) -> None:
    network = build(name, 0.125)
    sizes = uniform(network, 8)
    converted = convert(network, sizes)
    found = {layer: module.block for layer, module in each_block_layer(converted)}
    assert found == {layer: b for layer, b in sizes.items() if b > 1}
    assert max(found.values()) == 8 and list(sizes.values())[-1] == 1
    x = torch.randn(2, 1, 32, 32)
    assert converted.train()(x).shape == (2, 10)
    for module in converted.modules():
        if isinstance(module, ConvBN) and isinstance(module.conv, BlockConv2d):
            assert isinstance(module.bn, GroupedBatchNorm2d) and module.bn.block == module.conv.block


def test_depthwise_and_stem_get_no_blocks() -> None:
    network = build("mobilenetv2", 0.25)
    names = {site.name: site for site in sites(network)}
    assert not any("depthwise" in name for name in names)
    assert names["stem.conv"].sizes == (1,) and names["head"].sizes == (1, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_conversion_of_a_fused_weight_with_blocks_changes_nothing(kind: Kind) -> None:
    """Norms with unequal scales in a group: folding them first keeps the function, averaging them does not."""
    layer = lively(ConvBN(8, 16, 3))
    shape = BlockConv2d(8, 16, 3, 4, kind)
    with torch.no_grad():
        # The *product* of weight and scale has blocks, the weight alone has not.
        scale = next(sites(layer)).row_scale()
        layer.conv.weight.copy_(shape.dense_weight() / scale.view(-1, 1, 1, 1))
    x = torch.randn(2, 8, 6, 6)
    converted = convert(layer, {"conv": 4}, kind).eval()
    assert torch.allclose(converted(x), layer(x), atol=1e-4)
    averaged = convert(layer, {"conv": 4}, kind, average_norm=True).eval()
    assert not torch.allclose(averaged(x), layer(x), atol=1e-2)


def test_averaging_is_the_papers_rule() -> None:
    layer = lively(ConvBN(8, 8, 1))
    norm = convert(layer, {"conv": 4}, average_norm=True).bn
    assert torch.allclose(norm.weight, layer.bn.weight.view(2, 4).mean(1))
    assert torch.allclose(norm.running_var, layer.bn.running_var.view(2, 4).mean(1))


def test_sizes_that_do_not_fit_are_refused() -> None:
    network = build("resnet18", 0.125)
    with pytest.raises(StructureError, match="no layer 'stem'"):
        convert(network, {"stem": 2})
    with pytest.raises(StructureError, match="layer stem.conv: block size 2 does not divide"):
        convert(network, {"stem.conv": 2})
    with pytest.raises(StructureError, match="block size 3"):
        convert(network, {"head": 3})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2"])
def test_folding_keeps_the_function_and_the_blocks(name: str, kind: Kind) -> None:
    network = convert(lively(build(name, 0.125)), uniform(build(name, 0.125), 4), kind)
    network.train()(torch.randn(4, 1, 32, 32))
    network.eval()
    x = torch.randn(2, 1, 32, 32)
    folded = fold(network)
    assert torch.allclose(folded(x), network(x), atol=1e-4)
    inference, blocks = plain(folded)
    assert torch.equal(inference(x), folded(x))
    assert len(blocks) > 10
    check_blocks(inference, blocks)
    weight = inference.get_submodule(next(iter(blocks))).weight
    with torch.no_grad():
        weight[0, 0] *= 1.0001
    with pytest.raises(StructureError):
        check_blocks(inference, blocks)


def test_a_norm_that_would_break_blocks_is_refused() -> None:
    layer = lively(ConvBN(8, 8, 1))
    layer.conv = BlockConv2d(8, 8, 1, 4, bias=False)
    with pytest.raises(FoldError, match="differs within blocks of 4"):
        fold(layer)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize("block", [1, 4])
def test_a_projection_and_an_expansion_become_one_layer(block: int, skip: bool, output: bool) -> None:
    project, expansion = BlockConv2d(24, 8, 1, block), BlockConv2d(8, 48, 1, block)
    for conv in (project, expansion):
        nn.init.normal_(conv.bias)
    pair = FusedPair(project, expansion, skip, output)
    x, d = torch.randn(2, 8, 5, 5), torch.randn(2, 24, 5, 5)
    between = project(d) + (x if skip else 0)
    y, z = pair(x, d)
    assert torch.allclose(y, expansion(between), atol=1e-5)
    assert (z is not None) == output
    if z is not None:
        assert torch.allclose(z, between, atol=1e-5)
    compress(pair.conv.dense_weight().detach(), block, Kind.SKEW)


def test_unequal_blocks_do_not_fuse() -> None:
    with pytest.raises(FoldError, match="sizes must be equal"):
        FusedPair(BlockConv2d(8, 8, 1, 4), BlockConv2d(8, 8, 1, 2), True, True)
    with pytest.raises(FoldError, match="only 1x1"):
        FusedPair(BlockConv2d(8, 8, 3, 4, padding=1), BlockConv2d(8, 8, 1, 4), True, True)


def test_a_fused_mobilenet_is_the_same_network() -> None:
    dense = lively(build("mobilenetv2", 0.25))
    sizes = {name: 4 if b >= 4 else 1 for name, b in uniform(dense, 4).items()}
    x = torch.randn(2, 1, 32, 32)
    for chosen, fused_at_least in ((sizes, 17), ({**sizes, "blocks.3.project.conv": 2}, 16)):
        network = convert(dense, chosen).eval()
        fused = FusedMobileNetV2(fold(network)).eval()
        assert fused.fused == fused_at_least
        expected = network(x)
        assert torch.allclose(fused(x), expected, atol=1e-4 * float(expected.detach().abs().max()))


def test_fisher_is_the_mean_of_squared_gradients_of_the_fused_weight() -> None:
    """Against autograd through an explicit fused weight, one sample at a time."""
    network = nn.Sequential(lively(ConvBN(1, 8, 3)), nn.Flatten(), nn.Linear(8 * 16, 3)).eval()
    data = Split(torch.randn(6, 1, 4, 4), torch.randint(0, 3, (6,)))
    found = fisher(network, data)
    folded = fold(network)
    expected = torch.zeros_like(folded[0].conv.weight)
    for image, label in zip(data.images, data.labels, strict=True):
        loss = nn.functional.cross_entropy(folded(image[None]), label[None])
        expected += torch.autograd.grad(loss, folded[0].conv.weight)[0] ** 2 / 6
    assert torch.allclose(found["0.conv"], expected, rtol=1e-3, atol=1e-9)


def test_omega_is_least_after_the_loss_aware_fit() -> None:
    weight, importance = torch.randn(16, 16), torch.rand(16, 16) ** 4
    for kind in KINDS:
        aware = [omega(weight, importance, b, kind) for b in (1, 2, 4, 8, 16)]
        plain_fit = [omega(weight, importance, b, kind, loss_aware=False) for b in (1, 2, 4, 8, 16)]
        assert aware[0] == plain_fit[0] == 0
        assert all(a < p for a, p in zip(aware[1:], plain_fit[1:], strict=True))
        assert squared_distance(weight, 4, kind) > 0


def test_the_loss_aware_fit_hurts_a_network_less() -> None:
    """The converted network's output moves less, in the metric that F stands for."""
    network = lively(build("resnet18", 0.125))
    data = Split(torch.randn(16, 1, 32, 32), torch.randint(0, 10, (16,)))
    importance = fisher(copy.deepcopy(network), data, batch=4)
    for baseline in (False, True):
        rows = table(network, importance, Kind.SKEW, baseline)
        assert rows.keys() == importance.keys()
        assert all(sizes[1] == 0 for sizes in rows.values())
        assert all(v > 0 for sizes in rows.values() for b, v in sizes.items() if b > 1)
