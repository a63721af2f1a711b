"""What training does to pictures and activations on purpose: strong augmentation, and rounding to few bits."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import OPTIONS, SMALL
from torch.nn.functional import cross_entropy

from circulant.augment import OPERATIONS, SMOOTHING, Strong, coloured, mixed, moved, strengths_of
from circulant.data import Split
from circulant.rounding import rounded, rounding
from circulant.training import Options, RunError, Teacher, load_network, train

NONE = {name: torch.zeros(3) for name in OPERATIONS}


def strength(name: str, *values: float) -> dict[str, torch.Tensor]:
    return {**NONE, name: torch.tensor(values)}


def test_strength_zero_changes_nothing() -> None:
    pixels = torch.rand(3, 3, 32, 32)
    assert torch.allclose(moved(pixels, NONE), pixels, atol=1e-5)
    assert torch.allclose(coloured(pixels, NONE), pixels, atol=1e-6)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_changes_the_pictures_that_drew_it_and_no_other(name: str) -> None:
    pixels = torch.rand(3, 3, 32, 32) * 0.7 + 0.1
    by = strength(name, 1.0, 0.0, -0.9)
    changed = coloured(moved(pixels, by).clamp(0, 1), by)
    assert torch.allclose(changed[1], pixels[1], atol=1e-5)
    assert all((changed[k] - pixels[k]).abs().mean() > 1e-3 for k in (0, 2))
    assert 0 <= changed.min() and changed.max() <= 1 and changed.isfinite().all()


def test_moves_are_their_definitions() -> None:
    pixels = torch.rand(3, 1, 32, 32)
    # The whole strength is a quarter of the side; what was beyond the edge is 0.
    shifted = moved(pixels, strength("shift-x", 1.0, 0.0, 0.0))
    assert torch.allclose(shifted[0, 0, :, :24], pixels[0, 0, :, 8:], atol=1e-4)
    assert shifted[0, 0, :, 24:].abs().max() < 1e-4
    # Three turns of 30 degrees of a smooth picture are one of 90.
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, 32)] * 2, indexing="ij")
    spot = torch.exp(-8 * ((x - 0.4) ** 2 + y**2)).expand(1, 1, 32, 32)
    one = {name: values[:1] for name, values in strength("rotate", 1.0, 0.0, 0.0).items()}
    turned = moved(moved(moved(spot, one), one), one)
    assert min((turned - torch.rot90(spot, k, (2, 3))).abs().max() for k in (1, 3)) < 0.05


def test_colours_are_their_definitions() -> None:
    pixels = torch.full((3, 3, 4, 4), 0.5)
    assert coloured(pixels, strength("brightness", 1.0, 0.0, -1.0))[:, 0, 0, 0].tolist() == pytest.approx(
        [0.9, 0.5, 0.1]
    )
    ramp = torch.arange(16).view(1, 1, 4, 4).expand(3, 3, 4, 4) / 20
    assert coloured(ramp, strength("autocontrast", 1.0, 0.0, 0.0))[0, 0].flatten().tolist() == pytest.approx(
        [k / 15 for k in range(16)]
    )
    # The threshold falls to 0.3: what is brighter is turned round.
    turned = coloured(ramp, strength("solarise", 1.0, 0.0, 0.0))[0, 0].flatten()
    assert turned[5] == pytest.approx(0.25) and turned[7] == pytest.approx(0.65)
    # Four bits are left.
    assert (coloured(ramp, strength("posterise", 1.0, 0.0, 0.0))[0] * 16 % 1).abs().max() == 0


def test_two_pictures_in_one_have_labels_by_their_shares() -> None:
    images = torch.stack([torch.full((3, 32, 32), float(k)) for k in range(4)])
    labels = torch.tensor([5, 6, 7, 8])
    over, shares = mixed(images, labels, 10, (False, 0.75, 0.0, 0.0))
    assert torch.allclose(over[:, 0, 0, 0], torch.tensor([0.75, 1.25, 1.75, 2.25]))
    assert shares[0, 5] == pytest.approx(0.9 * 0.75 + 0.01) and shares[0, 8] == pytest.approx(0.9 * 0.25 + 0.01)
    assert torch.allclose(shares.sum(1), torch.ones(4))
    # A box at the corner: half of its side either way is inside.
    cut, shares = mixed(images, labels, 10, (True, 0.75, 0.0, 0.0))
    own = (cut[0, 0] == 0).float().mean()
    assert own == 1 - (8 / 32) ** 2 and (cut[0, 0, :8, :8] == 3).all()
    assert shares[0, 8] == pytest.approx((1 - SMOOTHING) * float(1 - own) + SMOOTHING / 10)
    assert images[0].abs().max() == 0  # the batch itself is as it was


def test_strong_batches_depend_on_seed_and_epoch_only(splits: tuple[Split, Split]) -> None:
    data = splits[0]
    first = [(x.clone(), y.clone()) for x, y in data.shuffled(100, 1, 2, True, strong=True)]
    again = list(data.shuffled(100, 1, 2, True, strong=True))
    assert all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(first, again, strict=True))
    other = next(iter(data.shuffled(100, 1, 3, True, strong=True)))
    assert not torch.equal(first[0][0], other[0])
    plain = next(iter(data.shuffled(100, 1, 2, True)))
    assert plain[1].dim() == 1 and first[0][1].shape == (100, 10)
    # The order, shifts and mirrors are those without: what is drawn besides comes after them.
    drawn = Strong.drawn(np.random.default_rng(0), 200, 2, torch.device("cpu"))
    operations = strengths_of(drawn.operations, drawn.strengths)
    assert sum(int((s != 0).sum()) for s in operations.values()) > 300
    assert max(float(s.abs().max()) for s in operations.values()) <= 1


def test_rounded_values_are_multiples_of_the_step_and_gradients_pass() -> None:
    x = torch.tensor([-1.0, -0.3, 0.02, 0.26, 0.9], requires_grad=True)
    y = rounded(x, 3)  # the step is a quarter of the largest
    assert y.tolist() == [-1.0, -0.25, 0.0, 0.25, 1.0]
    (y * torch.arange(5.0)).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 1, 2, 3, 4]
    assert rounded(torch.zeros(3), 8).tolist() == [0, 0, 0]


def test_activations_are_rounded_while_training_only() -> None:
    network = SMALL.build()
    seen: dict[str, torch.Tensor] = {}
    block = network.get_submodule("blocks.1")
    # What the next block takes: behind the hook that rounds.
    network.get_submodule("blocks.2.first.conv").register_forward_pre_hook(lambda _, x: seen.update(x=x[0]))
    x = torch.randn(4, 1, 32, 32)
    whole, hooks = network.eval()(x), len(block._forward_hooks)
    with rounding(network, 4):
        assert torch.equal(network(x), whole)
        network.train()(x)
        steps = seen["x"].detach() / seen["x"].abs().max() * 8
        assert torch.allclose(steps, steps.round(), atol=1e-4) and 4 < len(steps.round().unique()) <= 9
    assert len(block._forward_hooks) == hooks
    network(x)
    assert len(seen["x"].unique()) > 100
    with rounding(network, None):
        network(x)
        assert len(seen["x"].unique()) > 100


def test_a_network_that_was_trained_rounded_stands_it(
    splits: tuple[Split, Split], trained: Path, tmp_path: Path
) -> None:
    architecture, start = load_network(trained)
    teacher = Teacher(start)
    options = replace(OPTIONS, epochs=5, rate=0.02)

    def tuned(bits: int | None) -> float:
        network = load_network(trained)[1]
        train(
            tmp_path / str(bits), architecture, network, *splits, replace(options, bits=bits), teacher, progress=False
        )
        # In training mode norms take the batch's own statistics; so do both of these networks.
        with rounding(network.train(), 3), torch.no_grad():
            return float(cross_entropy(network(splits[1].images), splits[1].labels))

    # The loss, and not how many answers are right: of 200 pictures these go up and down by several percent.
    assert tuned(3) < 0.85 * tuned(None)


def test_a_run_has_its_bits_and_augmentation(splits: tuple[Split, Split], trained: Path, tmp_path: Path) -> None:
    architecture, network = load_network(trained)
    options = replace(OPTIONS, epochs=1, strong=True, augment=True)
    curves = train(tmp_path, architecture, network, *splits, options, progress=False)
    assert curves["options"]["strong"] is True and "bits" not in curves["options"]
    assert math.isfinite(curves["epochs"][0]["train_loss"])
    for other in (replace(options, strong=False), replace(options, bits=8)):
        with pytest.raises(RunError, match="other options"):
            train(tmp_path, architecture, network, *splits, other, progress=False)
    teacher = Teacher(network)
    teacher.begin("batches")
    with pytest.raises(RunError, match="other batches"):
        train(tmp_path / "new", architecture, network, *splits, options, teacher, progress=False)
    with pytest.raises(ValueError, match="2 to 16"):
        Options(bits=1)
