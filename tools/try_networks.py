"""Runs networks privately as a new user would, and compares with onnxruntime. Prints the table of docs/models.md.

    .venv/torch/bin/python tools/try_networks.py [--pictures 2] [FILE.onnx ...]
    .venv/torch/bin/python tools/try_networks.py --pictures 1 --record docs/figures/try-networks.json FILE.onnx ...

For each network, by default those of `models/torchvision/`:

1. `jaguar compile` with default options, on ten pictures of `models/images` as `.npy` tensors;
   (A file's name has its pictures' side behind a `_`, or height and width, as `48x320`.) With `--lines` they are lines of text that are drawn here,
   black on white, and pixels go from -1 to 1, as PP-OCR's recogniser takes them;
2. `jaguar serve` and `jaguar predict` as two processes on this machine, on pictures that had no part in 1;
3. the private answer beside that of onnxruntime. Of a model whose tail is left out (a detector's) it is the tail's: onnxruntime computes it of
   the private values.

Networks are compiled first, `--at-once` of them side by side; then they are asked one after the other, so that a query has the machine for itself.
`--record` adds a network to a file of figures, with its seconds and bytes, or puts it in the place of an earlier try. What a table has, `benchmark_tables.py` puts into the page.
Needs what `tools/export_torchvision.py` needs, Pillow, and a release build of the command. Exits with 1 if a network fails or
is off by 2 % of the spread of its logits or more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from operator_parts import ROOT, Client, Place, Server, free_port

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
# What is taken from pixels of 0 to 1, and what they are then divided by: as torchvision, YOLOs and PP-OCR do.
SCALINGS = {"torchvision": (MEAN, STD), "plain": (0, 1), "lines": (0.5, 0.5)}
SEED = 20260101
CALIBRATION = 10
# What the goal of the project allows, in parts of the spread.
BOUND = 0.02


def tensor(path: Path, size: tuple[int, int], scaling: str) -> np.ndarray:
    """A picture of that height and width, `[1, 3, height, width]`, by one of `SCALINGS`."""
    from PIL import Image

    with Image.open(path) as picture:
        picture = picture.convert("RGB").resize(size[::-1], Image.Resampling.BILINEAR)
    mean, deviation = SCALINGS[scaling]
    pixels = (np.asarray(picture, np.float32) / 255 - mean) / deviation
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], np.float32)


def lines(folder: Path, count: int, size: tuple[int, int]) -> list[Path]:
    """Pictures of lines of text: a word of random letters or digits each, by the font that Pillow has within."""
    from PIL import Image, ImageDraw, ImageFont

    rng, font, paths = np.random.default_rng(SEED), ImageFont.load_default(0.7 * size[0]), []
    for number in range(count):
        picture = Image.new("RGB", size[::-1], "white")
        word = "".join(rng.choice(list("abcdefghijkmnopqrstuvwxyzABCDEFGHKLMNPRSTUVWXYZ23456789"), rng.integers(6, 11)))
        ImageDraw.Draw(picture).text((6, 0.05 * size[0]), word, "black", font)
        paths.append(folder / f"line-{number:02}.png")
        picture.save(paths[-1])
    return paths


def logit_error(got: np.ndarray, want: np.ndarray) -> float:
    """Root mean square of the difference over the deviation of `want`, both without what all logits have in common."""
    got, want = got.ravel().astype(np.float64), want.ravel().astype(np.float64)
    difference = got - want
    return float(np.sqrt(np.square(difference - difference.mean()).sum() / np.square(want - want.mean()).sum()))


class Failure(Exception):
    """What a command said when it failed."""


@dataclass
class Done:
    """What a command said and warned of, how many seconds of processors it took, and how many GiB of memory at most."""

    said: str
    warned: str
    seconds: float
    peak: float


def run(command: list[str], folder: Path, patience: float) -> Done:
    """Runs a command for at most so many seconds."""
    with (folder / "said").open("w+") as said, (folder / "warned").open("w+") as warned:
        process = subprocess.Popen(command, stdout=said, stderr=warned)
        clock = threading.Timer(patience, process.kill)
        clock.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode, late = os.waitstatus_to_exitcode(status), not clock.is_alive()
        clock.cancel()
        said.seek(0)
        warned.seek(0)
        out, err = said.read(), warned.read()
    if late:
        raise Failure(f"compiling took more than {patience:.0f} s")
    if process.returncode != 0:
        last = [line for line in err.splitlines() if line.startswith("error")] or err.splitlines() or [f"status {process.returncode}"]
        raise Failure(" ".join(last[-1:]))
    return Done(out, err, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)


def fixed(model: Path, size: tuple[int, int], path: Path) -> None:
    """The model with sizes in place of those that it leaves open: one picture of that height and width."""
    loaded = onnx.load(model)
    for dim, value in zip(loaded.graph.input[0].type.tensor_type.shape.dim, (1, 3, *size), strict=True):
        if dim.dim_value <= 0:
            dim.dim_value = value
    onnx.save(loaded, path)


def left_out(said: str) -> list[str]:
    """The values that a model's tail takes, in the order of the answer, where compiling says that it is left out."""
    told = re.search(r"last .* would take, (.*), and whoever gets it does the rest", said)
    return re.findall(r"([^\s,]\S*) \[[\d, ]*\]", told[1]) if told else []


def answer_of(reply: dict, model: Path, tail: list[str], folder: Path) -> np.ndarray:
    """What the model's own (first) output is, as a client has it: where the tail is left out, onnxruntime computes it of the private values."""
    values = [np.array(output["values"], np.float32).reshape(output["shape"]) for output in reply["outputs"]]
    if not tail:
        return values[0]
    name = onnx.load(model).graph.output[0].name
    # (Sizes of the tail may follow from the input's. Its values do not.)
    graph = onnx.load(model).graph
    picture = graph.input[0].name
    onnx.utils.extract_model(str(model), str(folder / "tail.onnx"), [*tail, picture], [name])
    session = onnxruntime.InferenceSession(folder / "tail.onnx", providers=["CPUExecutionProvider"])
    taken = {given.name for given in session.get_inputs()}
    given = dict(zip(tail, values, strict=True))
    given[picture] = np.zeros([dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim], np.float32)
    (found,) = session.run(None, {name: value for name, value in given.items() if name in taken})
    return found


def side(model: Path) -> tuple[int, int]:
    """Height and width of its pictures, by its name."""
    height, width = re.search(r"_(\d+)(?:x(\d+))?(?:_|$)", model.stem).groups()
    return int(height), int(width or height)


@dataclass
class Compiled:
    """A network that may be asked: its compiled model, onnxruntime's, and the pictures that had no part in compiling."""

    folder: Path
    bundle: Path
    session: onnxruntime.InferenceSession
    pictures: list[Path]
    bits: str
    tail: list[str]
    done: Done


def compiled(model: Path, pictures: list[Path], count: int, scaling: str, jaguar: str, folder: Path, patience: float) -> Compiled:
    """Compiles one network."""
    size = side(model)
    fixed(model, size, folder / "fixed.onnx")
    session = onnxruntime.InferenceSession(folder / "fixed.onnx", providers=["CPUExecutionProvider"])
    tensors = []
    for index, picture in enumerate(pictures[:CALIBRATION + count]):
        path = folder / f"{index:02}.npy"
        np.save(path, tensor(picture, size, scaling))
        tensors.append(path)
    bundle = folder / "model.jaguar"
    command = [jaguar, "compile", str(folder / "fixed.onnx"), "--calibrate", *map(str, tensors[:CALIBRATION]), "-o", str(bundle)]
    done = run(command, folder, patience)
    bits = re.findall(r"^activations of (\d+)", done.said, re.MULTILINE)[-1]
    return Compiled(folder, bundle, session, tensors[CALIBRATION:], bits, left_out(done.warned), done)


def attempt(network: Compiled, scaling: str, jaguar: str) -> dict:
    """Asks one network; a row of the table."""
    folder, session, tail, asked = network.folder, network.session, network.tail, network.pictures
    given = session.get_inputs()[0]
    place = Place(folder, jaguar)
    try:
        server = Server(place, "server", [str(network.bundle)], (free_port(), free_port()), tls="off")
        options = ["--json", "--no-cache", "--keep", "0"]
        client = Client(place, [jaguar, "predict", "--server", server.address, *options, *map(str, asked)])
        if (complaint := client.end()) and client.process.returncode != 0:
            raise Failure(complaint)
    finally:
        place.end()
    errors, same = [], 0
    for path, reply in zip(asked, client.answers, strict=True):
        want = session.run(None, {given.name: np.load(path)})[0]
        got = answer_of(reply, folder / "fixed.onnx", tail, folder)
        errors.append(max(logit_error(a, b) for a, b in parts(got, want, tail)))
        # (Of a line of text, the letter at each place.)
        axis = -1 if scaling == "lines" else None
        same += int(np.all(got.argmax(axis) == want.argmax(axis)))
    cost = client.answers[-1]["cost"]

    def mib(stage: str) -> float:
        return sum(cost[stage][way] for way in ("bytes_up", "bytes_down")) / 2**20

    return {
        "bits": network.bits, "error": max(errors), "same": same, "of": len(asked), "tail": bool(tail),
        "mib": mib("offline") + mib("online"), "before": mib("offline"), "online": mib("online"), "once": mib("client"),
        "offline_seconds": cost["offline_seconds"], "online_seconds": cost["online_seconds"],
        "compile_seconds": network.done.seconds, "compile_peak": network.done.peak,
        "rounds": cost["online"]["rounds"], "peak": max(cost["client_peak_kib"], cost["server_peak_kib"]) / 2**20,
    }


def parts(got: np.ndarray, want: np.ndarray, tail: list[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """What is judged by its own spread: of a detector's `[1, 4 + classes, anchors]` the boxes, and the scores."""
    if not tail:
        return [(got, want)]
    return [(got[:, :4], want[:, :4]), (got[:, 4:], want[:, 4:])]


HEADER = ["network", "s of processors to compile", "GiB to compile", "activation bits", "MiB once", "MiB before the input", "MiB online", "s before the input", "s online", "rounds online",
          "GiB of memory, the larger party", "off by, worst", "same class"]


def shown(name: str, row: dict) -> list[str]:
    """A network's row of the record."""
    return [name, f"{row['compile_seconds']:.0f}", f"{row['compile_peak']:.1f}", row["bits"], *(f"{row[key]:.0f}" for key in ("once", "before", "online")),
            *(f"{row[key]:.1f}" for key in ("offline_seconds", "online_seconds")), str(row["rounds"]), f"{row['peak']:.1f}",
            f"{100 * row['error']:.2f} %", "(detector)" if row["tail"] else f"{row['same']}/{row['of']}"]


def record(path: Path, rows: list[list[str]], args: argparse.Namespace, load: float) -> None:
    """Adds rows to the file of figures."""
    def said(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()

    chosen = [f"--pictures {args.pictures}", *(["--without " + " ".join(args.without)] if args.without else [])]
    old = json.loads(path.read_text())["tables"][0]["rows"] if path.exists() else []
    if any(len(row) != len(HEADER) for row in old):
        raise SystemExit(f"{path} has other columns")
    names = [row[0] for row in rows]
    kept = [row for row in old if row[0] not in names]
    cpu = [line.split(":", 1)[1].strip() for line in said("lscpu").splitlines() if line.startswith("Model name")]
    setting = {
        "commit": args.commit or said("git", "rev-parse", "--short=7", "HEAD"),
        "command": f"tools/try_networks.py {' '.join(chosen)} --record FILE NETWORK.onnx ...",
        "machine": (cpu or [platform.machine()])[0], "hardware_threads": os.cpu_count(), "kernel": "the kernels that it chooses",
        "threads": "both parties on all threads", "link": "TCP on loopback", "statistic": "the last", "repeats": args.pictures,
        "load_before": load, "load_after": os.getloadavg()[0],
    }
    table = {"name": "networks", "title": "Networks at full size", "header": HEADER, "numbers_from": 1, "rows": kept + rows, "notes": ""}
    path.write_text(json.dumps({"setting": setting, "tables": [table], "figures": []}, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--pictures", type=int, default=2, help="how many to ask about")
    parser.add_argument("--images", type=Path, default=ROOT / "models" / "images")
    parser.add_argument("--without", nargs="+", default=[], help="pictures by parts of their names that are not used, as compiling advises of one unlike the others")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--plain", action="store_true", help="pixels over 255, without torchvision's mean and deviation")
    kinds.add_argument("--lines", action="store_true", help="lines of text that are drawn here, pixels from -1 to 1")
    parser.add_argument("--at-once", type=int, default=1, help="how many to compile side by side")
    parser.add_argument("--patience", type=float, default=3600, help="seconds that compiling one may take")
    parser.add_argument("--record", type=Path, help="a file of figures to add to")
    parser.add_argument("--commit", help="of which the command is; this checkout's, unless told")
    parser.add_argument("--jaguar", default=str(ROOT / "target" / "release" / "jaguar"))
    args = parser.parse_args()
    models = args.models or sorted((ROOT / "models" / "torchvision").glob("*.onnx"))
    if not models:
        print("no networks: run tools/export_torchvision.py first", file=sys.stderr)
        return 1
    print("| network | activation bits | logits off by, worst | same class | MiB a query |\n|---|---|---|---|---|")
    failed, load, scaling = False, os.getloadavg()[0], "lines" if args.lines else "plain" if args.plain else "torchvision"
    with ExitStack() as stack:
        pool, folders = stack.enter_context(ThreadPoolExecutor(args.at_once)), stack.enter_context(tempfile.TemporaryDirectory())
        made: dict[Path, Future[Compiled]] = {}
        for number, model in enumerate(models):
            folder = Path(folders) / str(number)
            folder.mkdir()
            small = re.search(r"_(32)(_|\.)", model.name)
            pictures = sorted(args.images.glob("cifar10_*" if small else "imagenet_*"))
            pictures = [picture for picture in pictures if not any(name in picture.name for name in args.without)]
            if args.lines:
                pictures = lines(folder, CALIBRATION + args.pictures, side(model))
            made[model] = pool.submit(compiled, model, pictures, args.pictures, scaling, args.jaguar, folder, args.patience)
        for model, future in made.items():
            if (problem := future.exception()) and not isinstance(problem, (Failure, RuntimeError)):
                raise problem
            print(f"{model.stem}: {problem or f'compiled in {future.result().done.seconds:.0f} s of processors'}", file=sys.stderr, flush=True)
        for model, future in made.items():
            try:
                row = attempt(future.result(), scaling, args.jaguar)
            except (Failure, RuntimeError) as failure:
                failed = True
                print(f"| {model.stem} | {' '.join(str(failure).split())} | | | |", flush=True)
                continue
            failed |= row["error"] >= BOUND
            print(f"| {model.stem} | {row['bits']} | {100 * row['error']:.2f} % | {row['same']}/{row['of']} | {row['mib']:.0f} |",
                  flush=True)
            if args.record:
                record(args.record, [shown(model.stem, row)], args, load)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
