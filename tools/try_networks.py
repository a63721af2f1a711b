"""Runs networks privately as a new user would, and compares with onnxruntime. Prints the table of docs/models.md.

    .venv/torch/bin/python tools/try_networks.py [--pictures 2] [FILE.onnx ...]

For each network, by default those of `models/torchvision/`:

1. `jaguar compile` with default options, on ten pictures of `models/images` as `.npy` tensors;
2. `jaguar serve` and `jaguar predict` as two processes on this machine, on pictures that had no part in 1;
3. the private logits beside those of onnxruntime.

Needs what `tools/export_torchvision.py` needs, Pillow, and a release build of the command. Exits with 1 if a network fails or
is off by 2 % of the spread of its logits or more.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from operator_parts import ROOT, Client, Place, Server, free_port

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
CALIBRATION = 10
# What the goal of the project allows, in parts of the spread.
BOUND = 0.02


def tensor(path: Path, size: int) -> np.ndarray:
    """A picture as torchvision prepares it, `[1, 3, size, size]`."""
    from PIL import Image

    with Image.open(path) as picture:
        picture = picture.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    pixels = (np.asarray(picture, np.float32) / 255 - MEAN) / STD
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def logit_error(got: np.ndarray, want: np.ndarray) -> float:
    """Root mean square of the difference over the deviation of `want`, both without what all logits have in common."""
    got, want = got.ravel().astype(np.float64), want.ravel().astype(np.float64)
    difference = got - want
    return float(np.sqrt(np.square(difference - difference.mean()).sum() / np.square(want - want.mean()).sum()))


class Failure(Exception):
    """What a command said when it failed."""


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.startswith("error")] or done.stderr.splitlines()
        raise Failure(" ".join(last[-1:]))
    return done.stdout


def attempt(model: Path, pictures: list[Path], count: int, jaguar: str, folder: Path) -> dict:
    """One network; a row of the table."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    size = given.shape[2]
    tensors = []
    for index, picture in enumerate(pictures[:CALIBRATION + count]):
        path = folder / f"{index:02}.npy"
        np.save(path, tensor(picture, size))
        tensors.append(path)
    bundle = folder / "model.jaguar"
    said = run([jaguar, "compile", str(model), "--calibrate", *map(str, tensors[:CALIBRATION]), "-o", str(bundle)])
    bits = re.findall(r"^(\d+) activation bits", said, re.MULTILINE)[-1]
    place, asked = Place(folder, jaguar), tensors[CALIBRATION:]
    try:
        server = Server(place, "server", [str(bundle)], (free_port(), free_port()), tls="off")
        options = ["--json", "--no-cache", "--keep", "0"]
        client = Client(place, [jaguar, "predict", "--server", server.address, *options, *map(str, asked)])
        if (complaint := client.end()) and client.process.returncode != 0:
            raise Failure(complaint)
    finally:
        place.end()
    errors, same = [], 0
    for path, answer in zip(asked, client.answers, strict=True):
        (want,) = session.run(None, {given.name: np.load(path)})
        got = np.array(answer["logits"]) / answer["logit_scale"]
        errors.append(logit_error(got, want))
        same += int(got.argmax() == want.argmax())
    total = client.answers[-1]["cost"]
    sent = sum(total[stage][way] for stage in ("offline", "online") for way in ("bytes_up", "bytes_down"))
    return {"bits": bits, "error": max(errors), "same": same, "of": len(asked), "mib": sent / 2**20}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--pictures", type=int, default=2, help="how many to ask about")
    parser.add_argument("--images", type=Path, default=ROOT / "models" / "images")
    parser.add_argument("--jaguar", default=str(ROOT / "target" / "release" / "jaguar"))
    args = parser.parse_args()
    models = args.models or sorted((ROOT / "models" / "torchvision").glob("*.onnx"))
    if not models:
        print("no networks: run tools/export_torchvision.py first", file=sys.stderr)
        return 1
    print("| network | activation bits | logits off by, worst | same class | MiB a query |\n|---|---|---|---|---|")
    failed = False
    for model in models:
        small = re.search(r"_(32)(_|\.)", model.name)
        pictures = sorted(args.images.glob("cifar10_*" if small else "imagenet_*"))
        with tempfile.TemporaryDirectory() as folder:
            try:
                row = attempt(model, pictures, args.pictures, args.jaguar, Path(folder))
            except (Failure, RuntimeError) as failure:
                failed = True
                print(f"| {model.stem} | {' '.join(str(failure).split())} | | | |", flush=True)
                continue
        failed |= row["error"] >= BOUND
        print(f"| {model.stem} | {row['bits']} | {100 * row['error']:.2f} % | {row['same']}/{row['of']} | {row['mib']:.0f} |",
              flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
