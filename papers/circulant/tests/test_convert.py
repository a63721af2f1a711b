"""Conversion, folding and the fusion of linear layers: what must not change the network's function does not."""

import pytest
import torch
from torch import nn

from circulant.blocks import Kind, StructureError, compress, expand, fit
from circulant.convert import convert, each_block_layer, sites, uniform
from circulant.data import Split
from circulant.fuse import FoldError, FusedMobileNetV2, FusedPair, check_blocks, fold, plain
from circulant.layers import BlockConv2d, GroupedBatchNorm2d, GroupedLayerNorm
from circulant.networks import ConvBN, build
from circulant.sensitivity import diagonal_table, distance_table, fisher, full_table, omega, squared_distance

KINDS = list(Kind)


def lively(network: nn.Module) -> nn.Module:
    """Norms with scales and statistics far from one, some negative."""
    for module in network.modules():
        if isinstance(module, nn.LayerNorm):
            with torch.no_grad():
                module.weight.uniform_(0.5, 1.5)
                module.weight[0].neg_()
                module.bias.normal_(0, 0.2)
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_norm_in_front_is_part_of_what_gets_blocks(kind: Kind) -> None:
    """Where the product of the weight and gamma has blocks, nothing changes; its shift is in the bias."""
    dense = lively(build("vit", 0.125))
    layer = dense.get_submodule("layers.0")
    with torch.no_grad():
        for norm, linear in ((layer.norm1, layer.attention.qkv), (layer.norm2, layer.up)):
            blocks = torch.randn(linear.out_features // 4, linear.in_features // 4, 4)
            linear.weight.copy_(expand(blocks, kind) / norm.weight)
    network = convert(dense, {"layers.0.attention.qkv": 4, "layers.0.up": 4}, kind).eval()
    x = torch.randn(2, 1, 32, 32)
    assert torch.allclose(network(x), dense(x), atol=1e-4)
    norms = [module for module in network.modules() if isinstance(module, GroupedLayerNorm)]
    assert [(norm.block, norm.weight.shape) for norm in norms] == [(4, (8,)), (4, (8,))]


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
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2", "vit"])
def test_folding_keeps_the_function_and_the_blocks(name: str, kind: Kind) -> None:
    network = convert(lively(build(name, 0.125)), uniform(build(name, 0.125), 4), kind)
    network.train()(torch.randn(4, 1, 32, 32))
    network.eval()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, GroupedLayerNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.2)
    x = torch.randn(2, 1, 32, 32)
    folded = fold(network)
    assert torch.allclose(folded(x), network(x), atol=1e-4)
    factors = [norm.weight for norm in folded.modules() if isinstance(norm, nn.LayerNorm)]
    assert all(torch.equal(factor, torch.ones_like(factor)) for factor in factors[:-1]), "all but the head's are folded"
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
    """Against gradients of the weight before folding, over the norm's scale, one sample at a time."""
    network = nn.Sequential(lively(ConvBN(1, 8, 3)), nn.Flatten(), nn.Linear(8 * 16, 3)).eval()
    data = Split(torch.randn(6, 1, 4, 4), torch.randint(0, 3, (6,)))
    found = fisher(network, data)
    weight = network[0].conv.weight
    scale = next(sites(network)).row_scale().view(-1, 1, 1, 1)
    expected = torch.zeros_like(weight)
    for image, label in zip(data.images, data.labels, strict=True):
        loss = nn.functional.cross_entropy(network(image[None]), label[None])
        expected += (torch.autograd.grad(loss, weight)[0] / scale) ** 2 / 6
    assert torch.allclose(found["0.conv"], expected.detach(), rtol=1e-3, atol=1e-9)


def test_full_omega_is_the_curvature_along_the_move() -> None:
    """For a network without hidden layers the Gauss-Newton matrix is the Hessian: against second differences of the
    loss under the network's own labels, that is of the divergence from its own prediction."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8)).double()
    data = Split(torch.randn(400, 1, 4, 4).double(), torch.zeros(400, dtype=torch.int64))
    repeated = Split(data.images.repeat(25, 1, 1, 1), data.labels.repeat(25))
    found = full_table(network, None, repeated, Kind.SKEW, batch=10)["1"]
    before = network(data.images).log_softmax(1).detach()
    weight = network[1].weight.detach().clone()
    for b in (2, 4, 8):
        move = expand(fit(weight, b, Kind.SKEW), Kind.SKEW) - weight
        step = 1e-3
        with torch.no_grad():
            network[1].weight.copy_(weight + step * move)
            after = network(data.images).log_softmax(1)
            network[1].weight.copy_(weight)
        divergence = nn.functional.kl_div(after, before, reduction="batchmean", log_target=True)
        assert found[b] == pytest.approx(float(2 * divergence / step**2), rel=0.15)
    assert found[1] == 0


def test_only_the_full_form_sees_gradients_that_go_together() -> None:
    """Inputs of one sign: a move of all weights of a row together costs far more than the diagonal says."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8))
    data = Split(1 + 0.1 * torch.randn(300, 1, 4, 4), torch.zeros(300, dtype=torch.int64))
    with torch.no_grad():
        network[1].weight.copy_(torch.arange(8.0)[:, None].expand(8, 16) / 8)
    importance = fisher(network, data, labels="model")
    full = full_table(network, importance, data, Kind.CIRCULANT)["1"][8]
    diagonal = diagonal_table(network, importance, Kind.CIRCULANT)["1"][8]
    assert full > 5 * diagonal


def test_omega_is_least_after_the_loss_aware_fit() -> None:
    weight, importance = torch.randn(16, 16), torch.rand(16, 16) ** 4
    for kind in KINDS:
        aware = [omega(weight, importance, b, kind) for b in (1, 2, 4, 8, 16)]
        plain_fit = [omega(weight, importance, b, kind, loss_aware=False) for b in (1, 2, 4, 8, 16)]
        assert aware[0] == plain_fit[0] == 0
        assert all(a < p for a, p in zip(aware[1:], plain_fit[1:], strict=True))
        assert squared_distance(weight, 4, kind) > 0


def test_tables_have_every_layer_and_size() -> None:
    network = lively(build("resnet18", 0.125))
    data = Split(torch.randn(8, 1, 32, 32), torch.randint(0, 10, (8,)))
    importance = fisher(network, data, batch=4)
    full = full_table(network, importance, data, Kind.SKEW, batch=4)
    for rows in (full, diagonal_table(network, importance, Kind.SKEW), distance_table(network, Kind.SKEW)):
        assert {name: tuple(sizes) for name, sizes in rows.items()} == {s.name: s.sizes for s in sites(network)}
        assert all((v == 0) == (b == 1) for sizes in rows.values() for b, v in sizes.items())
