"""Which networks of torchvision and timm compile, and why the others do not.

    .venv/torch/bin/python tools/zoo.py torchvision --jaguar target/release/jaguar --out zoo-torchvision.json
    .venv/torch/bin/python tools/zoo.py timm --jaguar target/release/jaguar --out zoo-timm.json    # needs timm
    .venv/torch/bin/python tools/zoo.py timm --import target/release/examples/import --out zoo-timm.json    # an hour, not a night
    .venv/torch/bin/python tools/zoo.py --table zoo-torchvision.json zoo-timm.json --write docs/models.md
    .venv/torch/bin/python tools/zoo.py timm --sample 200 --seed 29 --import target/release/examples/import --out zoo-sample.json
    .venv/torch/bin/python tools/zoo.py --sampled zoo-sample.json ... --write docs/models.md

`--sample` draws pretrained tags of timm instead, and tries the architecture of each, whatever kind it is, in the order drawn: weights are not
fetched. `--jobs` tries several networks at once, `--until` ends after so many seconds; the same command goes on.

Every network is exported with random weights (`random_weights.py` says which), and compiled with two
samples of noise, of some 64 or 96 pixels a side where the network takes such. With `--import` nothing is measured of what hidden
values tell, which takes `jaguar compile` most of its time: the example program `import` calibrates an integer network on noise, and
compares it, and the float graph, with what torch makes of other noise. But for samples, only convolutional networks are tried; `is_convolutional` says which these are. Of torchvision all of them are. timm has more than a thousand, most of them the same networks in other sizes: of each
family in each of its modules the first network is taken, in timm's own order; `family` says what a family is. Each network is
tried in a process of its own, with bounds on memory and time; no file is kept. A run can be continued: what stands in the
file is not done again, but what failed for memory or time; `--again` also tries anew what did not compile.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import itertools
import json
import multiprocessing
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from multiprocessing.connection import wait
from pathlib import Path

from findings import put

# ONNX files of more than 1 GiB are not read (docs/models.md): more weights are counted, but not tried.
MOST_PARAMETERS = 250_000_000
# States that another try, with more memory or time, may change.
UNTRIED = "not tried"
RETRIED = (UNTRIED, "too large", "too slow", "not made")
# States that another importer may change.
AGAIN = (*RETRIED, "refused", "not exported")
OTHER_KIND = "not convolutional"
FAR = "compiles, off by more"
# At most so many names are listed of what was not tried.
LISTED = 40
# Sides of pictures that are tried first, until one compiles: it is the same network, and takes less time. Inception's take none below 75, and
# many transformers no others than 224.
SMALL = (64, 96, 224)
# What a network's logits should be off by at most, in percent of their spread.
NEAR = 1.0
# By operator, what stands in the way, in a word for the table.
KINDS = {
    "products of large matrices (attention)": ["multiplies two matrices"],
    "products of two values": ["multiplies two values", "two values of the network"],
    "roots and inverses of what may be negative": ["may be negative"],
    "constants that vary within a channel": ["varies within a channel"],
    "exponentials, logarithms": ["(Exp of", "(Log of"],
}


def torchvision_names():
    import torchvision

    return torchvision.models.list_models(module=torchvision.models)


def parameters(model):
    return sum(p.numel() for p in model.parameters())


# Words in timm's names that say how large a network is.
SIZES = "zepto atto femto pico nano tiny small medium base large huge xlarge xxlarge giant gigantic enormous".split()


def family(name):
    """A name up to its first number (`v2`, and numbers within a word, are none), without sizes and words of one or two letters."""
    stem = re.split(r"(?<!v)\d(?![a-z]{3})", name)[0]
    return "_".join(word for word in stem.split("_") if len(word) > 2 and word not in SIZES) or name


def timm_tags(count, seed):
    """So many of timm's pretrained tags, drawn at random, by the architectures that they are of, in the order drawn; and of how many. (Not
    those that timm tests itself with.)"""
    import timm

    tags = sorted(name for name in timm.list_pretrained() if not name.startswith("test_"))
    drawn = {}
    for tag in random.Random(seed).sample(tags, count):
        drawn.setdefault(tag.split(".")[0], []).append(tag)
    return drawn, len(tags)


def timm_names():
    """Of each family in each module, the first network; not those that timm tests itself with. First comes one of each module."""
    import timm

    by_module = []
    for module in timm.list_modules():
        first = {}
        for name in timm.list_models(module=module):
            if not name.startswith("test_"):
                first.setdefault(family(name), name)
        by_module.append(list(first.values()))
    return [name for turn in itertools.zip_longest(*by_module) for name in turn if name]


# What parts of networks are called that hold queries or keys, of attention over places.
QUERIES = {"qkv", "qkvs", "to_qkv", "qkv_proj", "in_proj_qkv", "qk", "q", "q_proj", "q_norm", "wq", "to_q", "to_query", "query", "query_conv", "kv"}


def is_convolutional(model):
    """Whether no part of it has queries or keys of its own or remembers, and more than a tenth of its layers are convolutions with
    windows of more than one pixel."""
    import torch

    parts = list(model.named_modules())
    if any(name.rsplit(".", 1)[-1] in QUERIES or isinstance(m, (torch.nn.MultiheadAttention, torch.nn.RNNBase)) for name, m in parts):
        return False
    convolutions = [m for _, m in parts if isinstance(m, torch.nn.Conv2d)]
    layers = len(convolutions) + sum(isinstance(m, torch.nn.Linear) for _, m in parts)
    return 10 * sum(max(m.kernel_size) > 1 for m in convolutions) > layers


def create(library, name, side=None):
    """A network with random weights, the same ones each time, and the side of its pictures. Where its weights depend on the pictures' size
    (tables of places), they are those for `side`, if the network can be made so."""
    import torch

    torch.manual_seed(0)
    if library == "timm":
        import timm

        # Written out: torch's exporter does not take all of timm's fused attention.
        timm.layers.set_fused_attn(False)
        try:
            model = timm.create_model(name, pretrained=False, **({"img_size": side} if side else {}))
        except (TypeError, AssertionError, ValueError):
            model = timm.create_model(name, pretrained=False)
        return model, model.pretrained_cfg.get("input_size", (3, 224, 224))[1]
    import torchvision

    options = {"init_weights": True, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, **options), 299 if name == "inception_v3" else 224


def sketch(library, name):
    """The network without its weights; with them, where it cannot be made without."""
    import torch

    try:
        with torch.device("meta"):
            return create(library, name)
    except (RuntimeError, NotImplementedError):
        return create(library, name)


def sides(model, full):
    """The sides to try, in this order: small ones, of whole patches, and the network's own."""
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", None)
    patch = max(patch) if isinstance(patch, (tuple, list)) else patch or 1
    small = (-(-side // patch) * patch for side in SMALL)
    return [*dict.fromkeys(side for side in small if side < full), full]


def export(model, side, path):
    import torch
    from random_weights import liven

    torch.manual_seed(1)
    liven(model)
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
    with torch.no_grad():
        if norms:
            model.train()
            model(torch.randn(8, 3, side, side))
        model.eval()
        torch.onnx.export(model, torch.randn(1, 3, side, side), str(path), opset_version=17, dynamo=False)


def reasons(text):
    """The kinds of what stands in the way, how often by operator, and the first line of each operator; else what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not any("cannot be run privately" in line for line in lines):
        errors = [line for line in lines if line.startswith("error")] or lines[-1:]
        return {"kinds": ["other"], "why": [re.sub(r"^error: ", "", line)[:300] for line in errors[:1]]}
    kinds, operators, why = [], collections.Counter(), []
    for line in lines:
        # NODE, NODE and 7 more (OPERATOR of [1, 3, 8, 8]): why.
        found = re.match(r"(\S.*?) \((\w+)(?: of .*?)?\): ", line)
        if found is None:
            continue
        more = re.search(r" and (\d+) more$", found[1])
        operators[found[2]] += found[1].count(", ") + 1 + (int(more[1]) if more else 0)
        kinds += [kind for kind, words in KINDS.items() if any(word in line for word in words)]
        why.append(line[:300])
    return {"kinds": [kind for kind in KINDS if kind in kinds] or ["other"], "operators": dict(operators), "why": why}


def try_one(library, name, program, folder, every_kind):
    try:
        model, side = sketch(library, name)
    except Exception as error:
        return {"state": "not made", "why": str(error).splitlines()[0][:200]}
    about = {"parameters": parameters(model), "convolutional": is_convolutional(model)}
    if not (every_kind or about["convolutional"]):
        return {"state": OTHER_KIND, **about}
    if about["parameters"] > MOST_PARAMETERS:
        return {"state": "too large", **about}
    return {**about, **at_some_size(lambda side: create(library, name, side)[0], sides(model, side), program, folder)}


def at_some_size(made, sides, program, folder):
    """What came of the first size at which the model that is `made` compiles; of the last one, if it does at none.

    A small size is quicker, and may be one that the model cannot have: it may not export there, or be refused for a shape. What is
    refused for an operator is refused at every size."""
    found = {}
    for side in sides:
        found = at(made(side), side, program, folder)
        if found["state"] not in ("not exported", "refused") or set(found.get("kinds", ["other"])) != {"other"}:
            break
    return found


def at(model, side, program, folder):
    """What comes of the model with pictures of this size."""
    path = folder / "network.onnx"
    try:
        export(model, side, path)
    except MemoryError:
        raise
    except Exception as error:
        return {"state": "not exported", "why": (str(error).splitlines() or [""])[0][:200]}
    return imported(model, side, program[1], path) if program[0] == "import" else compiled(side, program[1], path)


def imported(model, side, program, path):
    """What the example program `import` says, with torch's answer beside the network."""
    import torch

    x = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        y, near = (model.eval()(x * scale).double().flatten() for scale in (1.0, 1.0 + 1e-6))
    data = [*x.flatten().tolist(), *y.tolist()]
    path.with_suffix(".io").write_bytes(struct.pack(f"<II{len(data)}f", x.numel(), y.numel(), *data))
    run = subprocess.run([program, str(path)], capture_output=True, text=True)
    if run.returncode != 0:
        return {"state": "too large", "why": f"status {run.returncode}"}
    # How far the answer moves where the input grows by a millionth, in percent of its spread: of some such networks it moves much.
    moves = 100 * float((near - y).std() / y.std())
    return {"side": side, **told(run.stdout), "moves": moves}


def told(text):
    """What `import` says of one file."""
    found = re.search(r": off by (\S+); integers of 20 bits off by (\S+) % of the spread, (\d+) out of range", text)
    if found is None:
        why = re.search(r"not quantised: .*", text)
        return {"state": "refused", **({"kinds": ["other"], "why": [why[0][:300]]} if why else reasons(text))}
    return {"state": "compiles", "float": float(found[1]), "off": float(found[2]), "beyond": int(found[3])}


def compiled(side, jaguar, path):
    """What `jaguar compile` says."""
    import numpy as np

    samples = path.parent / "samples"
    samples.mkdir(exist_ok=True)
    for seed in (1, 2):
        sample = np.random.default_rng(seed).standard_normal((1, 3, side, side))
        np.save(samples / f"{seed}.npy", sample.astype(np.float32))
    # 20 bits, and written however far logits are off.
    command = [jaguar, "compile", str(path), "--calibrate", str(samples), "--activation-bits", "20", "--force"]
    run = subprocess.run([*command, "-o", str(path.with_suffix(".jaguar"))], capture_output=True, text=True)
    if run.returncode == 0:
        return {"state": "compiles", "side": side, **off(run.stdout)}
    if run.returncode < 0:
        return {"state": "too large", "why": f"signal {-run.returncode}"}
    return {"state": "refused", **reasons(run.stderr)}


def off(text):
    """By which part of their spread, in percent, logits were off at most on the sample that was left out, as `compile` says."""
    found = re.findall(r"logits off by up to (\S+) % of their spread on inputs left out of calibration", text)
    return {"off": float(found[-1])} if found else {}


class Trial:
    """`try_one` in a process of its own, with at most so many bytes of memory (it and the compiler each) and so many seconds."""

    def __init__(self, library, name, program, every_kind, memory, seconds):
        self.name, self.began, self.seconds = name, time.monotonic(), seconds
        self.folder = tempfile.TemporaryDirectory()
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)

        def work():
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            try:
                found = try_one(library, name, program, Path(self.folder.name), every_kind)
            except (MemoryError, RuntimeError) as error:  # torch says it so
                found = {"state": "too large", "why": str(error).splitlines()[0][:200] if str(error) else "out of memory"}
            except Exception:
                found = {"state": "not made", "why": traceback.format_exc().splitlines()[-1][:200]}
            theirs.send(found)
            theirs.close()
            # The folder is the parent's to remove.
            os._exit(0)

        self.child = multiprocessing.get_context("fork").Process(target=work)
        self.child.start()
        theirs.close()

    def left(self):
        """How many seconds it has."""
        return self.began + self.seconds - time.monotonic()

    def end(self):
        """What came of it, if it told, or had its time."""
        try:
            if self.pipe.poll():
                return self.pipe.recv()
            os.killpg(self.child.pid, 9)
            return {"state": "too slow"}
        except EOFError:
            return {"state": "too large", "why": "ended without a word"}
        finally:
            self.child.join()
            self.folder.cleanup()


def trials(names, start, jobs, until):
    """Each name's trial as it ends, `jobs` at once, in the order given; what is not done by then, until the clock says `until`, is left."""
    names, running = iter(names), []
    while True:
        if time.monotonic() < until:
            running += [start(name) for name in itertools.islice(names, jobs - len(running))]
        if not running:
            return
        first = min(trial.left() for trial in running)
        ready = wait([trial.pipe for trial in running], max(0.0, min(first, until - time.monotonic())))
        late = time.monotonic() >= until
        for trial in [t for t in running if t.pipe in ready or t.left() <= 0 or late]:
            running.remove(trial)
            told, found = trial.pipe in ready or trial.left() <= 0, trial.end()
            if told:
                yield trial, found


def table(results):
    """Markdown: of each library how many compile, which, how near, and what stands in the way of which others."""
    lines = []

    def names(of):
        return ", ".join(f"`{name}`" for name in sorted(of))

    for library, every in results.items():
        untried = [name for name, found in every.items() if found["state"] == UNTRIED]
        others = sum(found["state"] == OTHER_KIND for found in every.values())
        of = {name: found for name, found in every.items() if found["state"] not in (OTHER_KIND, UNTRIED)}
        states = collections.Counter(found["state"] for found in of.values())
        told = ", ".join(f"{count} {state}" for state, count in states.most_common())
        lines.append(f"**{library}**: {len(of)} convolutional networks were tried ({others} others are none): {told}.\n")
        if untried:
            some = f": {names(untried)}" if len(untried) <= LISTED else "; `make zoo` goes on with them"
            lines.append(f"Of the list, {len(untried)} are not tried yet{some}.\n")
        lines.append(f"Compiling: {names(n for n, found in of.items() if found['state'] == 'compiles')}.\n")
        measured = {name: found["off"] for name, found in of.items() if "off" in found}
        if measured:
            far = {name: off for name, off in measured.items() if off > NEAR}
            near = f"{len(measured) - len(far)} of {len(measured)} are off by at most {NEAR:g} % of their logits' spread at 20 bits"
            lines.append(f"{near}" + (", others by more:\n" if far else ".\n"))
            if far:
                lines.append("| network | off by, % | answer moves by, %, where the input grows by a millionth |\n|---|---|---|")
                for name, much in sorted(far.items(), key=lambda pair: pair[1]):
                    moves = f"{of[name]['moves']:.2g}" if "moves" in of[name] else ""
                    lines.append(f"| `{name}` | {much:.3g} | {moves} |")
                lines.append("")
        lines.append("| in the way | networks | which |\n|---|---|---|")
        kinds = collections.Counter(kind for found in of.values() for kind in found.get("kinds", []))
        for kind, count in kinds.most_common():
            lines.append(f"| {kind} | {count} | {names(n for n, found in of.items() if kind in found.get('kinds', []))} |")
        for state in ("not exported", *RETRIED[1:]):
            if states[state]:
                lines.append(f"| {state} | {states[state]} | {names(n for n, found in of.items() if found['state'] == state)} |")
        lines.append("")
    return "\n".join(lines)


def sampled(drawn):
    """Markdown: of the tags of a sample how many compile and come near, and why others do not."""
    of, of_others = collections.Counter(), collections.Counter()
    far, refused = [], {}
    for name, found in drawn["networks"].items():
        state, tags = found["state"], len(found.get("tags", []))
        if state == "compiles" and not found["off"] <= NEAR:
            state = FAR
            moves = f", moves by {found['moves']:.2g} %" if "moves" in found else ""
            far.append(f"{name} {found['off']:.3g} %{moves}")
        if state == "refused":
            why = found.get("why", [""])[0]
            # Behind what tells which node it is.
            reason = re.sub(r"^.*?(\)\)?: |not quantised: (node \S+ )?|: node \S+: |\.onnx: )", "", why)
            reason = re.split(r"\. (?=[A-Z])|\. docs/|; ", reason)[0].rstrip(".")[:140]
            refused.setdefault(next((kind for kind in found["kinds"] if kind != "other"), reason), []).append((name, tags))
        of[state] += tags
        if not found.get("convolutional", True):
            of_others[state] += tags
    all_drawn = sum(of.values())
    tried = all_drawn - of[UNTRIED]
    near = of["compiles"]
    lines = [
        f"{all_drawn} of timm's {drawn['of']} pretrained tags, drawn with the seed {drawn['seed']}; {tried} were looked at, and {near} of these "
        f"({100 * near / max(tried, 1):.0f} %) compile and are off by at most {NEAR:g} % of their logits' spread.\n",
        "| what came of it | tags | of these not convolutional |\n|---|---:|---:|",
    ]
    words = {"compiles": f"compiles, within {NEAR:g} %", "too large": "too large: more than 250 million weights, or memory"}
    lines += [f"| {words.get(state, state)} | {count} | {of_others[state]} |" for state, count in of.most_common()]
    if refused:
        lines.append("\nRefused:\n")
        for reason, those in sorted(refused.items(), key=lambda pair: -sum(tags for _, tags in pair[1])):
            lines.append(f"- {reason}: {', '.join(name if tags == 1 else f'{name} ({tags} tags)' for name, tags in those)}.")
    if far:
        lines.append("\nOff by more (and how far the answer moves where the input grows by a millionth): " + "; ".join(far) + ".")
    for state in ("not exported", "too slow", "not made"):
        if of[state]:
            names = [name for name, found in drawn["networks"].items() if found["state"] == state]
            lines.append(f"\n{state.capitalize()}: {', '.join(names)}.")
    return "\n".join(lines)


# Between these lines of a page the table stands.
BEGIN, END = "<!-- zoo: begin (tools/zoo.py --table) -->", "<!-- zoo: end -->"
SAMPLE_BEGIN, SAMPLE_END = "<!-- sample: begin (tools/zoo.py) -->", "<!-- sample: end -->"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", nargs="?", choices=["torchvision", "timm"])
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--jaguar", default="target/release/jaguar")
    parser.add_argument("--import", dest="importer", help="the example program `import`, instead of `jaguar compile`")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--memory", type=float, default=6, help="GiB that one network may take")
    parser.add_argument("--seconds", type=float, default=900, help="that one network may take")
    parser.add_argument("--jobs", type=int, default=1, help="networks at once")
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds after which this run ends")
    parser.add_argument("--again", action="store_true", help="also try what did not compile")
    parser.add_argument("--table", nargs="+", type=Path, help="print these results as a table")
    parser.add_argument("--sample", type=int, help="of timm: so many pretrained tags, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of --sample")
    parser.add_argument("--sampled", nargs="+", type=Path, help="print what came of samples")
    parser.add_argument("--write", type=Path, help="with --table or --sampled: put it into this page")
    args = parser.parse_args()
    if args.table or args.sampled:
        if args.table:
            text = table({path.stem.removeprefix("zoo-"): json.loads(path.read_text()) for path in args.table})
        else:
            text = "\n\n".join(sampled(json.loads(path.read_text())) for path in args.sampled)
        marks = (BEGIN, END) if args.table else (SAMPLE_BEGIN, SAMPLE_END)
        if args.write:
            args.write.write_text(put(args.write.read_text(), *marks, f"\n\n{text.strip()}\n\n"))
        else:
            print(text)
        return
    if args.library is None or args.out is None:
        parser.error("a library and --out are needed")
    if args.sample and args.library != "timm":
        parser.error("--sample is of timm's tags")
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(1)
    # Once, and not in each process that is forked.
    importlib.import_module(args.library)
    tags, of = timm_tags(args.sample, args.seed) if args.sample else ({}, 0)
    names = args.names or list(tags) or (torchvision_names() if args.library == "torchvision" else timm_names())
    kept = json.loads(args.out.read_text()) if args.out.exists() else {}
    results = kept.get("networks", {}) if tags else kept
    for name in [*names, *tags]:
        results.setdefault(name, {"state": UNTRIED})
    for name, own in tags.items():
        results[name]["tags"] = own

    def save():
        whole = {"seed": args.seed, "of": of, "networks": results} if tags else results
        args.out.write_text(json.dumps(whole, indent=1))

    save()
    program = ("import", args.importer) if args.importer else ("compile", args.jaguar)
    wanted = [name for name in names if results[name]["state"] in (AGAIN if args.again else RETRIED)]
    # What was not tried yet comes first.
    wanted.sort(key=lambda name: results[name]["state"] != UNTRIED)

    def start(name):
        return Trial(args.library, name, program, bool(tags), int(args.memory * 2**30), args.seconds)

    for trial, found in trials(wanted, start, args.jobs, time.monotonic() + args.until):
        found["seconds"] = round(time.monotonic() - trial.began)
        results[trial.name] = {**found, "tags": tags.get(trial.name, [])} if tags else found
        save()
        about = found.get("kinds") or found.get("why", "")
        print(f"{trial.name}: {found['state']} {about} ({found['seconds']} s)", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
