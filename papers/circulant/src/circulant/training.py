"""Training and fine-tuning with distillation. A run that was killed continues to the same result.

A run's folder holds `checkpoint.pt` (weights, optimiser, random state, place in the run), `curves.json` (losses and
accuracies by epoch) and, once it is done, `final.pt`. What a step does depends on the options and on the checkpoint
only: the order of the samples and their augmentation come from the seed, the epoch and the step.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from .blocks import Kind
from .convert import convert, each_block_layer
from .data import Split
from .fuse import fold
from .networks import build
from .relus import Unit, all_kept, each_gate
from .replay import Replayed
from .rounding import rounding


class RunError(ValueError):
    """A checkpoint is missing, broken, or of another run."""


@dataclass(frozen=True)
class Architecture:
    """All that is needed to build a network before its weights are loaded. `relus`: what its masks of ReLUs are by."""

    network: str
    width: float = 1.0
    sizes: Mapping[str, int] | None = None
    kind: Kind = Kind.SKEW
    inputs: int = 1
    classes: int = 10
    relus: Unit | None = None

    def build(self) -> nn.Module:
        network = build(self.network, self.width, self.inputs, self.classes)
        if self.sizes is not None:
            network = convert(network, self.sizes, self.kind)
        return network if self.relus is None else all_kept(network, self.relus, self.inputs)


@dataclass(frozen=True)
class Options:
    """How to train. The rate rises over `warmup` of the steps and falls to zero along a cosine.

    `distil` is the weight of the teacher's part of the loss, the rest is cross entropy; `temperature` softens both
    sides of it. `bf16`: convolutions and products in bfloat16 while training; accuracies are always measured in float.
    `compiled`: through torch.compile. `cuda_graph`: on a GPU, steps are recorded and replayed (`replay.py`).
    `bits`: activations are rounded to so many bits while training (`rounding`). `strong`: pictures are changed as
    `augment.py` does it, besides; for transformers.
    `checkpoint_steps`: a checkpoint every so many steps, and one at the end.
    """

    epochs: int = 1
    batch: int = 64
    rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warmup: float = 0.1
    optimiser: str = "sgd"
    distil: float = 0.5
    temperature: float = 2.0
    augment: bool = True
    bf16: bool = False
    compiled: bool = False
    cuda_graph: bool = False
    seed: int = 0
    checkpoint_steps: int = 100
    bits: int | None = None
    strong: bool = False

    def __post_init__(self) -> None:
        if self.optimiser not in ("sgd", "adamw"):
            raise ValueError(f"optimiser {self.optimiser!r}: expected sgd or adamw")
        if self.epochs < 1 or self.batch < 1 or self.checkpoint_steps < 1 or self.rate <= 0:
            raise ValueError("epochs, batch, checkpoint steps and rate must be above zero")
        if not 0 <= self.distil <= 1 or self.temperature <= 0 or not 0 <= self.warmup < 1:
            raise ValueError("expected a weight of distillation in 0..1, temperature above 0, warm-up in 0..1")
        if self.bits is not None and not 2 <= self.bits <= 16:
            raise ValueError(f"activations of {self.bits} bits: expected 2 to 16")

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate of one step of `steps`."""
        warm = self.warmup * steps
        if step < warm:
            return self.rate * (step + 1) / (warm + 1)
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1)))


@dataclass
class Measured:
    """Mean cross entropy and share of right answers over a split."""

    loss: float
    accuracy: float


def device_named(name: str) -> torch.device:
    """`auto` is a GPU where there is one. Raises ValueError for `cuda` where there is none."""
    found = torch.cuda.is_available()
    if name == "auto":
        name = "cuda" if found else "cpu"
    if name == "cuda":
        if not found:
            raise ValueError("torch finds no GPU: take --device cpu")
        # What is measured in float is so in all 24 bits; training has --bf16.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
    return torch.device(name)


def _channels_last(network: nn.Module) -> nn.Module:
    """Convolutions' weights in that order, in place: GPUs are faster by it. Compressed ones have no such order."""
    for parameter in network.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return network


def device_of(network: nn.Module) -> torch.device:
    """Where its weights are."""
    return next(network.parameters()).device


@torch.no_grad()
def evaluate(network: nn.Module, data: Split, batch: int = 250) -> Measured:
    """In evaluation mode and in float, on the network's device; the network's mode is put back."""
    was = network.training
    network.eval()
    data = data.to(device_of(network))
    loss = torch.zeros((), dtype=torch.float64, device=data.images.device)
    right = torch.zeros((), dtype=torch.int64, device=data.images.device)
    for images, labels in data.batches(batch):
        logits = network(images.contiguous(memory_format=torch.channels_last))
        loss += F.cross_entropy(logits, labels, reduction="sum")
        right += (logits.argmax(1) == labels).sum()
    network.train(was)
    return Measured(float(loss) / len(data), int(right) / len(data))


class Teacher:
    """A dense network's logits for the batches of a run.

    Runs with the same seed, samples and batch see the same pictures, moved alike: what was asked in one is kept for the
    next, 40 bytes a picture and epoch. Runs of other batches need a teacher of their own. `compiled`: through
    torch.compile.
    """

    def __init__(self, network: nn.Module, compiled: bool = False) -> None:
        # Folded it is the same function with fewer passes over the maps.
        folded = _channels_last(fold(network))
        self._network: Callable[[Tensor], Tensor] = torch.compile(folded, dynamic=False) if compiled else folded
        self._batches: object = None
        self._kept: dict[int, Tensor] = {}

    def begin(self, batches: object) -> None:
        """`batches` is all that they depend on. Raises RunError where another run had others."""
        if self._batches not in (None, batches):
            raise RunError("a teacher's kept answers are for other batches")
        self._batches = batches

    @torch.no_grad()
    def __call__(self, step: int, images: Tensor) -> Tensor:
        if step not in self._kept:
            self._kept[step] = self._network(images).float()
        return self._kept[step]


def distillation(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Kullback-Leibler divergence from the teacher's softened prediction, times the square of the temperature."""
    goal, found = (teacher / temperature).log_softmax(1), (logits / temperature).log_softmax(1)
    return F.kl_div(found, goal, reduction="batchmean", log_target=True) * temperature**2


def write(path: Path, save: Callable[[Path], Any]) -> None:
    """Beside it first, then renamed: a killed run leaves the old file or the new one."""
    beside = path.with_name(path.name + ".part")
    save(beside)
    os.replace(beside, path)


def save_network(path: Path, architecture: Architecture, network: nn.Module, **more: Any) -> None:
    """Weights with what builds their network, for `load_network`."""
    kept = {"architecture": _plain(architecture), "weights": network.state_dict(), **more}
    write(path, lambda beside: torch.save(kept, beside))


def recorded(options: Options) -> dict[str, Any]:
    """For results and checkpoints. What is newer than the first of them stands there where it is not the default."""
    defaults = {"bits": None, "strong": False, "cuda_graph": False}
    return {name: value for name, value in asdict(options).items() if value != defaults.get(name, ...)}


def _plain(architecture: Architecture) -> dict[str, Any]:
    fields = asdict(architecture)
    plain = {**fields, "kind": str(architecture.kind), "sizes": architecture.sizes and dict(architecture.sizes)}
    relus = plain.pop("relus")
    return plain if relus is None else {**plain, "relus": str(relus)}


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except Exception as error:  # torch raises many kinds for broken files
        raise RunError(f"{path}: not a checkpoint ({type(error).__name__}: {error})") from None
    if not isinstance(kept, dict) or not {"architecture", "weights"} <= kept.keys():
        raise RunError(f"{path}: not a checkpoint of this package")
    return kept


def load_network(path: Path) -> tuple[Architecture, nn.Module]:
    """What `save_network` wrote, in evaluation mode, on the processor. Raises RunError."""
    kept = _read(path)
    fields = kept["architecture"]
    relus = Unit(fields["relus"]) if fields.get("relus") else None
    architecture = Architecture(**{**fields, "kind": Kind(fields["kind"]), "relus": relus})
    network = architecture.build()
    try:
        network.load_state_dict(kept["weights"])
    except RuntimeError as error:
        raise RunError(f"{path}: {error}") from None
    return architecture, network.eval()


def train(
    folder: Path,
    architecture: Architecture,
    network: nn.Module,
    data: Split,
    test: Split,
    options: Options,
    teacher: Teacher | None = None,
    progress: bool = True,
    stop_after: int | None = None,
    after: Callable[[float, float], None] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains `network` in place, on its device, and returns the curves; continues from a checkpoint in `folder`.

    With `teacher` the loss is distilled. `stop_after` ends the run, as a kill would, after that many steps of this
    call. `after` is called behind each step with the share of the steps that are done and the step's share of the full
    rate: what it keeps must be in the network. `settings` is what it depends on. Raises RunError if the checkpoint is
    of a run with other options.
    """
    folder.mkdir(parents=True, exist_ok=True)
    steps_an_epoch = len(data) // options.batch
    if steps_an_epoch == 0:
        raise RunError(f"{len(data)} samples do not fill one batch of {options.batch}")
    steps = steps_an_epoch * options.epochs
    device = device_of(network)
    if options.cuda_graph and device.type != "cuda":
        raise RunError("a CUDA graph needs a GPU: leave --cuda-graph out")
    data, test = data.to(device), test.to(device)
    if device.type == "cuda":
        _channels_last(network)
    if options.compiled:
        # After some networks of one process torch would compile no more of them, and say nothing.
        torch.compiler.reset()
    called: Callable[[Tensor], Tensor] = torch.compile(network, dynamic=False) if options.compiled else network
    torch.manual_seed(options.seed)
    optimiser = optimiser_of(network, options)
    run = {"options": recorded(options), "samples": len(data), "distilled": teacher is not None, **(settings or {})}
    state: dict[str, Any] = {"step": 0, "epochs": [], "loss": 0.0, "steps": 0, "seconds": 0.0}
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        kept = _read(checkpoint)
        if kept["run"] != run or kept["architecture"] != _plain(architecture):
            raise RunError(f"{folder} holds a run with other options: take another folder, or remove it")
        network.load_state_dict(kept["weights"])
        optimiser.load_state_dict(kept["optimiser"])
        torch.set_rng_state(kept["random"])
        state = kept["state"]
    if options.cuda_graph:
        # Numbers would be recorded as they are.
        for group in optimiser.param_groups:
            group["lr"] = torch.zeros((), device=device)

    def move(images: Tensor, labels: Tensor, goal: Tensor | None) -> Tensor:
        loss = _loss(called, images, labels, goal, options)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return loss.detach()

    # What `after` does with gradients would not be seen by what is replayed.
    moved = Replayed(move) if options.cuda_graph and after is None else move
    if teacher is not None:
        teacher.begin((options.seed, len(data), options.batch, options.augment, options.bf16, options.strong))
    # Summed where it is made: to fetch each step's loss would wait for the device each time.
    total = torch.tensor(state["loss"], dtype=torch.float64, device=device)

    def fetched() -> float:
        value = float(total)
        if not math.isfinite(value):
            raise RunError(f"the loss is no number any more at step {state['step']}: lower the rate")
        return value

    def keep() -> None:
        state["loss"] = fetched()
        state["seconds"] += time.process_time() - since[0]
        since[0] = time.process_time()
        save_network(
            checkpoint,
            architecture,
            network,
            run=run,
            state=state,
            optimiser=optimiser.state_dict(),
            random=torch.get_rng_state(),
        )

    since = [time.process_time()]
    done, due = 0, False
    bar = tqdm(total=steps, initial=state["step"], desc=folder.name, unit="step", disable=not progress, mininterval=2)
    with bar, rounding(network, options.bits):
        for epoch in range(state["step"] // steps_an_epoch, options.epochs):
            network.train()
            first = state["step"] - epoch * steps_an_epoch
            batches = data.shuffled(options.batch, options.seed, epoch, options.augment, options.strong)
            for step, (images, labels) in enumerate(batches):
                if step < first:
                    continue
                for group in optimiser.param_groups:
                    rate = options.rate_at(state["step"], steps) * group["share"]
                    group["lr"] = group["lr"].fill_(rate) if options.cuda_graph else rate
                # Channels last is the faster order; convolutions keep it.
                images = images.contiguous(memory_format=torch.channels_last)
                goal = None
                if teacher is not None and options.distil > 0:
                    with _autocast(images, options):
                        goal = teacher(state["step"], images)
                total += moved(images, labels, goal)
                if after is not None:
                    after((state["step"] + 1) / steps, options.rate_at(state["step"], steps) / options.rate)
                state["steps"] += 1
                state["step"] += 1
                done += 1
                bar.update()
                due = due or state["step"] % options.checkpoint_steps == 0
                if due and step + 1 < steps_an_epoch:
                    keep()
                    due = False
                if done == stop_after:
                    return _curves(architecture, run, state)
            measured = evaluate(network, test)
            mean = fetched() / state["steps"]
            state["epochs"].append(
                {"epoch": epoch + 1, "train_loss": mean, "test_loss": measured.loss, "test_accuracy": measured.accuracy}
            )
            bar.set_postfix(loss=f"{mean:.3f}", accuracy=f"{100 * measured.accuracy:.2f} %")
            due = due or epoch + 1 == options.epochs
            state["steps"] = 0
            total.zero_()
            if due:
                keep()
                due = False
            curves = _curves(architecture, run, state)
            write(folder / "curves.json", lambda beside: beside.write_text(json.dumps(curves, indent=1) + "\n"))  # noqa: B023
    network.eval()
    save_network(folder / "final.pt", architecture, network)
    return _curves(architecture, run, state)


def optimiser_of(network: nn.Module, options: Options) -> torch.optim.Optimizer:
    """Its groups have a `share` of the rate."""
    # Gates move by a rule of their own.
    gates = {id(module.gate) for _, module in each_gate(network)}
    trained = [p for p in network.parameters() if id(p) not in gates]
    # Norms and biases are not decayed.
    rest = [p for p in trained if p.dim() <= 1]
    groups: list[dict[str, Any]] = [{"params": rest, "weight_decay": 0.0, "share": 1.0}]
    # A value of a block stands in b entries and gets the sum of their gradients. With 1/b of the rate what SGD does to
    # the weight that runs is a step of the full rate, averaged along diagonals; and the decay is that of a dense layer.
    block_of = {id(layer.compressed): layer.block for _, layer in each_block_layer(network)}
    by_block: dict[int, list[nn.Parameter]] = {}
    for p in trained:
        if p.dim() > 1:
            by_block.setdefault(block_of.get(id(p), 1), []).append(p)
    for b, parameters in sorted(by_block.items()):
        # Adam's steps do not depend on the gradient's size.
        b = 1 if options.optimiser == "adamw" else b
        groups.append({"params": parameters, "weight_decay": options.weight_decay * b, "share": 1 / b})
    fused = device_of(network).type == "cuda"
    if options.optimiser == "adamw":
        return torch.optim.AdamW(groups, lr=options.rate, fused=fused, capturable=options.cuda_graph)
    return torch.optim.SGD(groups, lr=options.rate, momentum=options.momentum, nesterov=True, fused=fused)


def _autocast(images: Tensor, options: Options) -> torch.autocast:
    # What is recorded makes each weight's copy in bfloat16 anew.
    return torch.autocast(images.device.type, torch.bfloat16, options.bf16, cache_enabled=not options.cuda_graph)


def _loss(
    network: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, goal: Tensor | None, options: Options
) -> Tensor:
    with _autocast(images, options):
        logits = network(images).float()
    loss = F.cross_entropy(logits, labels)
    if goal is None:
        return loss
    return (1 - options.distil) * loss + options.distil * distillation(logits, goal, options.temperature)


def _curves(architecture: Architecture, run: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "architecture": _plain(architecture),
        **run,
        "steps": state["step"],
        "cpu_seconds": round(state["seconds"], 1),
        "epochs": list(state["epochs"]),
    }


def with_sizes(architecture: Architecture, sizes: Mapping[str, int], kind: Kind) -> Architecture:
    """The same network with blocks."""
    return replace(architecture, sizes=dict(sizes), kind=kind)
