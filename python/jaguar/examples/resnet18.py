"""From a module of torchvision to a private prediction.

    pip install jaguar-pi[torch] torchvision
    python resnet18.py

The weights are random here, so that nothing is downloaded: the answers mean nothing, what they cost is what trained ones cost. For
your own network put your module in place of `network()`, and pictures like those that will come in place of `pictures()`.
"""

from __future__ import annotations

import argparse

import jaguar
import numpy as np
import torch
import torchvision
from numpy.typing import NDArray


def network(size: int) -> torch.nn.Module:
    """A ResNet-18 whose batch norms have seen noise in training, so that its activations are of order one."""
    torch.manual_seed(1)
    module = torchvision.models.resnet18(weights=None, num_classes=10)
    module.train()
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(8, 3, size, size))
    return module.eval()


def pictures(count: int, seed: int) -> list[NDArray[np.uint8]]:
    """Photographs of nothing: red, green, blue of 80 x 64 pixels."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, size=(64, 80, 3), dtype=np.uint8) for _ in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64, help="height and width of the network's input")
    parser.add_argument("--measure", default="auto", help="whether to measure this machine: auto, anew, off")
    args = parser.parse_args()

    # 1. Who has the weights compiles them: quantises the network by what it does on samples.
    model = jaguar.compile(
        network(args.size),
        calibration=pictures(12, seed=1),
        preprocessing=jaguar.Preprocessing.imagenet(resize=args.size),
        input_shape=(1, 3, args.size, args.size),
        labels=[f"class {letter}" for letter in "ABCDEFGHIJ"],
    )
    print(f"compiled {model.name}: {model.agreement}")

    # 2. What will it cost, and what does the integer network say?
    plan = model.plan(link="lan", measure=args.measure)
    print(f"a query: {plan.bytes_up / 2**20:.1f} MiB up, {plan.bytes_down / 2**20:.1f} MiB down, {plan.rounds} rounds")
    [picture] = pictures(1, seed=2)
    [exact] = model.simulate([picture])

    # 3. One side serves it, the other asks. (They may be two processes, on two machines.)
    with jaguar.Server(model, measure=args.measure) as server, jaguar.Client(server.address) as client:
        private = client.predict(picture)

    print(private.cost)
    for name, probability in private.top(3):
        print(f"{100 * probability:5.1f} %  {name}")
    print(f"in the clear: {exact.name}; privately: {private.name}")


if __name__ == "__main__":
    main()
