"""Trains a small network on Fashion-MNIST for two minutes, and asks it privately.

    apt-get install dataset-fashion-mnist
    pip install jaguar-pi[torch]
    python fashion_mnist.py

The pictures are those of Debian's package; nothing is downloaded. `--seconds` trains for longer or shorter.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path

import jaguar
import numpy as np
import torch
from numpy.typing import NDArray

CLASSES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
# Of the training pictures' pixels, scaled to 0..1.
MEAN, STD = 0.2860, 0.3530


def idx(path: Path, header: int) -> NDArray[np.uint8]:
    """What an idx file holds behind its header."""
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def load(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures `[N, 28, 28]` of bytes, and their classes `[N]`. `part`: "train" or "t10k"."""
    pictures = idx(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
    return pictures, idx(folder / f"{part}-labels-idx1-ubyte.gz", 8)


def tensors(pictures: NDArray[np.uint8]) -> torch.Tensor:
    """As the network takes them, `[N, 1, 28, 28]`."""
    return torch.from_numpy((pictures[:, None].astype(np.float32) / 255 - MEAN) / STD)


def network() -> torch.nn.Module:
    """Three convolutions and a fully connected layer, some 100,000 weights."""

    def block(channels: int, more: int) -> list[torch.nn.Module]:
        convolution = torch.nn.Conv2d(channels, more, 3, padding=1, bias=False)
        return [convolution, torch.nn.BatchNorm2d(more), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]

    torch.manual_seed(1)
    return torch.nn.Sequential(*block(1, 32), *block(32, 64), *block(64, 128), torch.nn.Flatten(), torch.nn.Linear(128 * 9, 10))


def train(module: torch.nn.Module, pictures: NDArray[np.uint8], classes: NDArray[np.uint8], seconds: float) -> None:
    """Adam on batches of 256, mirrored by chance, for as long as there is time; the rate falls to nothing."""
    rng = np.random.default_rng(1)
    adam = torch.optim.Adam(module.parameters())
    began, seen, loss = time.monotonic(), 0, torch.tensor(0.0)
    while (past := time.monotonic() - began) < seconds:
        for group in adam.param_groups:
            group["lr"] = 2e-3 * (1 - past / seconds)
        which = rng.integers(len(pictures), size=256)
        x, y = tensors(pictures[which]), torch.from_numpy(classes[which].astype(np.int64))
        if rng.random() < 0.5:
            x = x.flip(3)
        adam.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(x), y)
        loss.backward()
        adam.step()
        seen += len(which)
    print(f"trained for {seconds:.0f} s on {seen / len(pictures):.1f} epochs, the last batch's loss is {loss.item():.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--seconds", type=float, default=120, help="to train for")
    parser.add_argument("--private", type=int, default=10, help="test pictures to ask privately")
    parser.add_argument("--measure", default="auto", help="whether to measure this machine: auto, anew, off")
    parser.add_argument("--report", type=Path, help="write a web page of how it was compiled")
    args = parser.parse_args()

    module = network()
    train(module, *load(args.data, "train"), args.seconds)

    # 1. Compile. Calibration pictures are from the training set: the test set stays untouched.
    samples, _ = load(args.data, "train")
    model = jaguar.compile(
        module.eval(),
        calibration=list(samples[:100]),
        preprocessing=jaguar.Preprocessing(pixel_scale=1 / 255, mean=MEAN, std=STD),
        input_shape=(1, 1, 28, 28),
        labels=CLASSES,
        name="fashion",
    )
    print(f"compiled: {model.agreement}")

    # 2. How accurate is it, in floats, in integers, and privately?
    pictures, classes = load(args.data, "t10k")
    found = model.evaluate(list(pictures[:1000]), [int(c) for c in classes[:1000]], private=args.private)
    print(found)
    if args.report:
        print(f"wrote {model.report(args.report, list(pictures[:20]))}")

    # 3. Serve it, and ask about pictures that the server does not see.
    with jaguar.Server(model, measure=args.measure) as server, jaguar.Client(server.address) as client:
        answers = client.predict_many(list(pictures[: args.private]))
    for answer, right in zip(answers, classes, strict=False):
        print(f"{answer.name:12} {100 * max(p for _, p in answer.top(1)):5.1f} %   is: {CLASSES[right]}")
    print(answers[-1].cost)
    right = sum(answer.label == c for answer, c in zip(answers, classes, strict=False))
    print(f"privately right: {right} of {len(answers)}; float {100 * found.float.top[1]:.1f} %" if found.float else "")


if __name__ == "__main__":
    main()
