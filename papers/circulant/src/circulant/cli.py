"""The command line: `python -m circulant train|sensitivity|search|finetune|linearise|export|front|harm|compare|...`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from . import sensitivity as sensitivities
from .blocks import SIZES, Kind
from .compare import Comparison, Fewer, compare, compare_fewer, correlations, merged, rises
from .convert import convert, uniform
from .data import Split, folder, read
from .export import export, export_products, write_samples
from .front import plot, plot_harm, points_of
from .fuse import FusedMobileNetV2, fold
from .linearise import NUMBER, PLANNED, Prices, Search, by_number, by_plans, linearise
from .networks import NETWORKS, MobileNetV2, ViT
from .relus import Unit, all_kept, count, shapes, with_masks
from .search import MEASURES, costs_of, joined, read_costs, search
from .sensitivity import Form
from .training import Architecture, Options, Teacher, device_named, evaluate, load_network, train, with_sizes


class UsageError(ValueError):
    """Options that do not go together, or a file that is not what it should be."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 with one line on stderr where something is wrong; 2 for a wrong command line."""
    args = _parser().parse_args(arguments)
    torch.set_num_threads(args.threads)
    try:
        args.run(args)
    except (ValueError, OSError) as error:
        print(f"circulant {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"circulant {args.command}: stopped; the same command continues", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="circulant", description="Block-circulant networks for private inference.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        added.add_argument("--threads", type=_count, default=1, help="of the processor (default 1)")
        return added

    one = command("train", _train, "Train a dense network.")
    _network(one)
    _training(one, epochs=30, rate=0.1)

    one = command("sensitivity", _sensitivity, "Omega of each layer for each block size, and F for the fit.")
    one.add_argument("--model", type=Path, required=True, help="final.pt of a dense network")
    one.add_argument("--out", type=Path, required=True, help="a .json; F goes beside it, as .pt")
    one.add_argument("--samples", type=_count, default=2048, help="training pictures (default 2048)")
    one.add_argument("--batch", type=_count, default=1, help="gradients of so many at a time are squared (default 1)")
    forms = [str(form) for form in Form]
    one.add_argument(
        "--form", choices=forms, default="full", help="of a block's harm; diagonal is the paper's (default full)"
    )
    one.add_argument("--rise", type=_count, metavar="N", help="measure the true rise in loss over N pictures too")
    _kind(one)
    _data(one)
    _device(one)

    one = command("join", _join, "The plans of networks of one linear layer each (export --products) as one.")
    one.add_argument("--plans", type=Path, required=True, help="folder of LAYER.plan.json, by `jaguar plan --json`")
    one.add_argument("--out", type=Path, required=True, help="a .json, for --costs")

    one = command("search", _search, "Choose a block size for each layer under a bound.")
    one.add_argument("--sensitivity", type=Path, required=True, help="what `sensitivity` wrote")
    one.add_argument("--costs", type=Path, required=True, help="what `jaguar plan MODEL --json --block-sizes` wrote")
    one.add_argument(
        "--limit",
        type=_limit,
        action="append",
        default=[],
        metavar="MEASURE=NUMBER",
        help=f"at most that; may be repeated. Measures: {', '.join(MEASURES)}",
    )
    one.add_argument("--as-uniform", type=int, choices=SIZES, help="at most what size B everywhere costs")
    one.add_argument("--model", type=Path, help="the dense network, for --as-uniform")
    one.add_argument("--measure", choices=list(MEASURES), default="weighed", help="for --as-uniform (default weighed)")
    one.add_argument("--out", type=Path, required=True, help="a .json with the sizes")

    one = command("finetune", _finetune, "Give a dense network blocks and fine-tune it, with the dense one as teacher.")
    one.add_argument("--model", type=Path, required=True, help="final.pt of a dense network")
    which = one.add_mutually_exclusive_group(required=True)
    which.add_argument("--sizes", type=Path, help="what `search` wrote")
    which.add_argument("--uniform", type=int, choices=SIZES, help="this size wherever it fits, the last layer dense")
    one.add_argument("--sensitivity", type=Path, help="what `sensitivity` wrote: the loss-aware fit (else Frobenius')")
    one.add_argument("--average-norm", action="store_true", help="average batch norms as the paper, do not fold them")
    _kind(one)
    _training(one, epochs=20, rate=0.05)

    one = command("linearise", _linearise, "Leave out ReLUs within a bound, then fine-tune with the teacher.")
    one.add_argument("--model", type=Path, required=True, help="final.pt: of a dense network, or of this command")
    one.add_argument("--teacher", type=Path, help="final.pt of the dense network (default --model)")
    which = one.add_mutually_exclusive_group(required=True)
    which.add_argument("--times", type=_times, help="so many times fewer ReLUs than the network has when all are kept")
    which.add_argument(
        "--limit",
        type=_relu_limit,
        metavar="MEASURE=NUMBER",
        help=f"at most that. Measures: {NUMBER} (how many); of a query by --costs: {', '.join(PLANNED)}",
    )
    one.add_argument(
        "--costs",
        type=Path,
        nargs=2,
        metavar=("DENSE", "WITHOUT"),
        help="what `jaguar plan MODEL --json` wrote of the dense network, and of the one by export --no-relus",
    )
    one.add_argument(
        "--unit", choices=[str(unit) for unit in Unit], default="channel", help="what a gate is for (default channel)"
    )
    _gates(one)
    _training(one, epochs=20, rate=0.05)

    one = command("export", _export, "Write a network as ONNX, with its blocks as metadata.")
    one.add_argument("--model", type=Path, required=True, help="final.pt, dense or with blocks")
    one.add_argument("--out", type=Path, required=True, help="the .onnx file")
    one.add_argument("--no-relus", action="store_true", help="all ReLUs left out: for what the rest costs")
    one.add_argument("--fuse", action="store_true", help="MobileNetV2: projection and next expansion as one layer")
    one.add_argument("--products", type=Path, help="vit: also each linear layer as a network, with 4 inputs")
    one.add_argument("--samples", type=Path, help="also write test pictures as .npy, in folders by class")
    one.add_argument("--count", type=_count, default=100, help="how many (default 100)")
    _data(one)

    one = command("front", _front, "Draw accuracy against cost, with the Pareto front.")
    one.add_argument("--results", type=Path, required=True, help="what `compare` wrote")
    one.add_argument("--measure", choices=list(MEASURES), default="weighed", help="of the cost (default weighed)")
    one.add_argument("--out", type=Path, required=True, help="a .svg, .pdf or .png")

    one = command("harm", _harm, "Draw what blocks harm by layer, and the sizes that were searched by it.")
    one.add_argument("--sensitivity", type=Path, nargs="+", required=True, help="what `sensitivity` wrote, a form each")
    one.add_argument("--sizes", type=Path, nargs="+", required=True, help="what `search` wrote for each of them")
    one.add_argument("--out", type=Path, required=True, help="a .svg, .pdf or .png")

    one = command("compare", _compare, "Dense, uniform and searched sizes over several seeds; continues where it was.")
    _network(one)
    _training(one, epochs=30, rate=0.1)
    one.add_argument("--tuning-epochs", type=_count, default=20)
    one.add_argument("--tuning-rate", type=float, default=0.05)
    one.add_argument("--tuning-samples", type=_count, help="training pictures for fine-tuning (default as --samples)")
    one.add_argument("--fisher-samples", type=_count, default=2048)
    one.add_argument("--rise-samples", type=_count, default=1000, help="for the true rise in loss (default 1000)")
    one.add_argument("--rise-seeds", type=int, nargs="*", default=[0], help="for which seeds it is (default 0)")
    one.add_argument("--costs", type=Path, required=True, help="what `jaguar plan MODEL --json --block-sizes` wrote")
    one.add_argument(
        "--measures",
        nargs="+",
        choices=list(MEASURES),
        default=["hint"],
        help="what searched sizes may take no more of than uniform ones, all at once (default hint)",
    )
    one.add_argument("--blocks", type=int, nargs="*", choices=SIZES, default=[4, 8], help="uniform sizes to meet")
    one.add_argument(
        "--faster",
        type=_times,
        nargs="+",
        default=[],
        metavar="N",
        help="besides, sizes searched such that layers cost so many times less than dense ones",
    )
    one.add_argument(
        "--by", nargs="+", choices=forms, default=["full"], help="what sizes are searched by, once each (default full)"
    )
    one.add_argument(
        "--plain", action="store_true", help="uniform sizes with Frobenius' fit, and with averaged norms, besides"
    )
    one.add_argument(
        "--groups",
        type=_count,
        default=0,
        metavar="N",
        help="besides, of N groups of layers each one dense, all others with the largest blocks",
    )
    one.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    one.add_argument("--results", type=Path, required=True, help="a .json")

    one = command("compare-relus", _compare_relus, "Dense and with fewer ReLUs over several seeds; continues.")
    _network(one)
    _training(one, epochs=30, rate=0.1)
    one.add_argument(
        "--times",
        type=_times_and_bits,
        nargs="+",
        default=[(5.0, None), (10.0, None)],
        metavar="N[@BITS]",
        help="how many times fewer; tuned with activations rounded to so many bits (default 5 10)",
    )
    units = [str(unit) for unit in Unit]
    one.add_argument(
        "--units", choices=units, nargs="+", default=["channel"], help="what gates are for (default channel)"
    )
    _gates(one)
    one.add_argument("--tuning-epochs", type=_count, default=20)
    one.add_argument("--tuning-rate", type=float, default=0.05)
    one.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    one.add_argument("--results", type=Path, required=True, help="a .json")

    one = command("merge", _merge, "Results of `compare` over different seeds, as processes side by side make them.")
    one.add_argument("parts", type=Path, nargs="+", help="their .json files")
    one.add_argument("--out", type=Path, required=True, help="a .json")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected a number from 1")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError("expected a number above 0")
    return value


def _times(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 1):
        raise argparse.ArgumentTypeError("expected a number from 1 on")
    return value


def _times_and_bits(text: str) -> tuple[float, int | None]:
    times, at, bits = text.partition("@")
    return _times(times), int(bits) if at else None


def _limit(text: str) -> tuple[str, float]:
    measure, _, number = text.partition("=")
    if measure not in MEASURES:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(MEASURES)} before the =")
    return measure, float(number)


def _gates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--search-epochs", type=_count, default=10, help="with gates (default 10)")
    parser.add_argument("--search-rate", type=_positive, default=0.02, help="of the weights meanwhile (default 0.02)")
    parser.add_argument("--pace", type=_positive, default=40.0, help="how far gates move in all (default 40)")


def _relu_limit(text: str) -> tuple[str, float]:
    measure, _, number = text.partition("=")
    if measure not in (NUMBER, *PLANNED):
        raise argparse.ArgumentTypeError(f"expected one of {', '.join((NUMBER, *PLANNED))} before the =")
    if not math.isfinite(float(number)):
        raise argparse.ArgumentTypeError("expected a number behind the =")
    return measure, float(number)


def _network(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--network", choices=sorted(NETWORKS), required=True)
    parser.add_argument("--width", type=float, default=1.0, help="factor on all numbers of channels (default 1)")


def _kind(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", choices=[str(kind) for kind in Kind], default="skew", help="of blocks (default skew)")


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", help="folder of Fashion-MNIST or CIFAR-10 (default: CIRCULANT_DATA, else Debian's)")


def _device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto is a GPU where there is one (default)"
    )


def _training(parser: argparse.ArgumentParser, epochs: int, rate: float) -> None:
    _data(parser)
    _device(parser)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; the same command continues it")
    parser.add_argument("--samples", type=_count, help="training pictures (default all)")
    parser.add_argument("--test-samples", type=_count, help="test pictures after each epoch (default all)")
    parser.add_argument(
        "--hold-back", type=_count, metavar="N", help="the last N training pictures in place of the test's: for options"
    )
    parser.add_argument("--epochs", type=_count, default=epochs)
    parser.add_argument("--batch", type=_count, default=64)
    parser.add_argument("--rate", type=float, default=rate)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--optimiser", choices=("sgd", "adamw"), default="sgd", help="adamw for a ViT, at rate 0.001")
    parser.add_argument("--distil", type=float, default=0.5, help="weight of the teacher (fine-tuning only)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true", help="train in bfloat16")
    parser.add_argument("--bits", type=_count, metavar="B", help="round activations to B bits while training")
    parser.add_argument("--strong", action="store_true", help="RandAugment, mixup and CutMix besides: for vit")
    parser.add_argument("--compile", action="store_true", help="through torch.compile: pays for vit on a GPU")
    parser.add_argument("--cuda-graph", action="store_true", help="steps are recorded once on a GPU, and replayed")
    parser.add_argument("--checkpoint-steps", type=_count, default=100)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _options(args: argparse.Namespace) -> Options:
    return Options(
        epochs=args.epochs,
        batch=args.batch,
        rate=args.rate,
        weight_decay=args.weight_decay,
        optimiser=args.optimiser,
        distil=args.distil,
        seed=args.seed,
        bf16=args.bf16,
        compiled=args.compile,
        cuda_graph=args.cuda_graph,
        checkpoint_steps=args.checkpoint_steps,
        bits=args.bits,
        strong=args.strong,
    )


def _splits(args: argparse.Namespace) -> tuple[Split, Split]:
    where = folder(args.data)
    data = read(where, train=True)
    if args.hold_back is None:
        return data.first(args.samples), read(where, train=False)
    kept, held = data.apart(args.hold_back)
    return kept.first(args.samples), held


def _train(args: argparse.Namespace) -> None:
    data, test = _splits(args)
    architecture = Architecture(args.network, args.width, inputs=data.source.channels)
    torch.manual_seed(args.seed)
    network = architecture.build().to(device_named(args.device))
    watched = test.first(args.test_samples)
    curves = train(args.out, architecture, network, data, watched, _options(args), None, not args.quiet)
    _report(args.out, curves)


def _report(out: Path, curves: dict[str, Any]) -> None:
    last = curves["epochs"][-1]
    print(
        f"{out / 'final.pt'}: accuracy {100 * last['test_accuracy']:.2f} %, {curves['cpu_seconds']:.0f} s of processor"
    )


def _dense(path: Path) -> tuple[Architecture, torch.nn.Module]:
    architecture, network = load_network(path)
    if architecture.sizes is not None:
        raise UsageError(f"{path} has blocks already: take the dense network")
    return architecture, network


def _sensitivity(args: argparse.Namespace) -> None:
    architecture, network = _dense(args.model)
    network.to(device_named(args.device))
    kind = Kind(args.kind)
    data = read(folder(args.data), train=True)
    samples = data.first(args.samples)
    importance = sensitivities.fisher(network, samples, args.batch)
    result: dict[str, Any] = {
        "network": architecture.network,
        "width": architecture.width,
        "kind": args.kind,
        "samples": args.samples,
        "form": args.form,
        "omega": sensitivities.table(Form(args.form), network, importance, samples, kind, args.batch),
    }
    if args.rise is not None:
        full = result["omega"]
        if args.form != Form.FULL:
            full = sensitivities.full_table(network, importance, samples, kind, args.batch)
        rows = rises(network, importance, full, data.first(args.rise), kind)
        result["rises"] = rows
        result["rank_correlation"] = found = correlations(rows)
        print(
            f"rank correlation with the rise in loss: Omega full {found['omega']:.3f}, diagonal "
            f"{found['omega_diagonal']:.3f}; squared distance {found['squared_distance']:.3f}"
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    torch.save(importance, args.out.with_suffix(".pt"))
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{args.out}: {len(importance)} layers")


def _read(path: Path, *members: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict) or any(not isinstance(value.get(member), dict) for member in members):
        raise UsageError(f"{path}: expected an object with {' and '.join(members)}")
    return value


def _omega(path: Path) -> dict[str, dict[int, float]]:
    value = _read(path, "omega")["omega"]
    try:
        return {name: {int(b): float(v) for b, v in sizes.items()} for name, sizes in value.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: omega is not a table of layers by size ({error})") from None


def _join(args: argparse.Namespace) -> None:
    plans = {path.name.removesuffix(".plan.json"): path for path in sorted(args.plans.glob("*.plan.json"))}
    if not plans:
        raise UsageError(f"{args.plans}: no file called LAYER.plan.json")
    args.out.write_text(json.dumps(joined(plans)) + "\n")
    print(f"{args.out}: {len(plans)} layers")


def _search(args: argparse.Namespace) -> None:
    omega = _omega(args.sensitivity)
    costs = read_costs(args.costs).for_layers({name: list(sizes) for name, sizes in omega.items()})
    limits = dict(args.limit)
    if args.as_uniform is not None:
        if args.model is None:
            raise UsageError("--as-uniform needs --model")
        sizes = costs.as_they_run(uniform(_dense(args.model)[1], args.as_uniform))
        limits[args.measure] = costs.of(args.measure, sizes)
    chosen = search(omega, costs, limits)
    result = {"sizes": chosen.sizes, "omega": chosen.omega, "limits": limits, "costs": chosen.costs}
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    dense = costs_of(costs, {})
    for measure, cost in chosen.costs.items():
        print(f"{measure:15} {cost:14.6g}   dense {dense[measure]:14.6g}   limit {limits.get(measure, float('inf')):g}")
    print("sizes: " + ", ".join(f"{name} {b}" for name, b in chosen.sizes.items()))


def _finetune(args: argparse.Namespace) -> None:
    architecture, teacher = _dense(args.model)
    device = device_named(args.device)
    teacher.to(device)
    kind = Kind(args.kind)
    sizes = _sizes(args.sizes) if args.sizes is not None else uniform(teacher, args.uniform)
    importance = None
    if args.sensitivity is not None:
        importance = torch.load(args.sensitivity.with_suffix(".pt"), map_location=device, weights_only=True)
    network = convert(teacher, sizes, kind, importance, args.average_norm)
    data, test = _splits(args)
    watched = test.first(args.test_samples)
    if not (args.out / "checkpoint.pt").exists():
        print(f"just converted: accuracy {100 * evaluate(network, watched).accuracy:.2f} %")
    changed = with_sizes(architecture, sizes, kind)
    curves = train(
        args.out, changed, network, data, watched, _options(args), Teacher(teacher, args.compile), not args.quiet
    )
    _report(args.out, curves)


def _linearise(args: argparse.Namespace) -> None:
    architecture, start = load_network(args.model)
    if args.teacher is None and architecture.relus is not None:
        raise UsageError(f"{args.model} has lost ReLUs already: name the dense network with --teacher")
    teacher = start if args.teacher is None else load_network(args.teacher)[1]
    device = device_named(args.device)
    tuning = _options(args)
    seeking = replace(tuning, epochs=args.search_epochs, rate=args.search_rate, bits=None)
    data, test = _splits(args)
    report = linearise(
        args.out,
        architecture,
        start.to(device),
        Teacher(teacher.to(device), args.compile),
        data,
        test.first(args.test_samples),
        Search(Unit(args.unit), *_bound(args, start, architecture.inputs), args.pace),
        seeking,
        tuning,
        not args.quiet,
    )
    print(
        f"{args.out / 'relus.json'}: {report['relus']} of {report['relus_before']} ReLUs, "
        f"{report['measure']} {report['cost']:g} of at most {report['bound']:g}"
    )
    _report(args.out, report)


def _bound(args: argparse.Namespace, network: torch.nn.Module, inputs: int) -> tuple[Prices, float]:
    """What each ReLU costs, and how much all may."""
    if args.costs is not None and (args.times is not None or args.limit[0] == NUMBER):
        raise UsageError("--costs says nothing about a number of ReLUs")
    if args.times is not None:
        return by_number(network, inputs), sum(
            count(all_kept(network, Unit.CHANNEL, inputs), inputs).values()
        ) // args.times
    measure, bound = args.limit
    if measure == NUMBER:
        return by_number(network, inputs), bound
    if args.costs is None:
        raise UsageError(f"--limit {measure}={bound:g} needs --costs")
    dense, without = args.costs
    return by_plans(measure, dense, without, network, inputs), bound


def _sizes(path: Path) -> dict[str, int]:
    value = _read(path, "sizes")["sizes"]
    if any(b not in SIZES for b in value.values()):
        raise UsageError(f"{path}: block sizes must be of {SIZES}")
    return {str(name): int(b) for name, b in value.items()}


def _export(args: argparse.Namespace) -> None:
    architecture, network = load_network(args.model)
    if args.fuse:
        if not isinstance(network, MobileNetV2):
            raise UsageError("--fuse is for MobileNetV2")
        fused = FusedMobileNetV2(fold(network))  # type: ignore[arg-type]
        print(f"{fused.fused} of {len(fused.joints)} pairs of linear layers are one layer now")
        network = fused
    if args.no_relus:
        shape_of = shapes(network, architecture.inputs)
        none = {name: torch.zeros(Unit.CHANNEL.of(shape)) for name, shape in shape_of.items()}
        network = with_masks(network, none, architecture.inputs)
    blocks = export(network, args.out, (1, architecture.inputs, 32, 32))
    print(f"{args.out}: {len(blocks)} layers with blocks, checked bit for bit")
    if args.products is not None:
        if not isinstance(network, ViT):
            raise UsageError("--products is for vit")
        products = export_products(network, args.products, read(folder(args.data), train=False).first(4))
        print(f"{args.products}: {len(products)} products")
    if args.samples is not None:
        count = write_samples(read(folder(args.data), train=False).first(args.count), args.samples)
        print(f"{args.samples}: {count} pictures in folders by class")


def _front(args: argparse.Namespace) -> None:
    results = _read(args.results, "architecture")
    points = points_of(results, args.measure)
    unit = "bytes" if args.measure in ("bytes", "online-bytes", "hint") else "seconds"
    network = results["architecture"]
    title = f"{network['network']}, width {network['width']}, {results['data']['name']}"
    plot(points, args.out, f"linear layers: {args.measure} ({unit})", title)
    print(f"{args.out}: {len(points)} networks")


def _harm(args: argparse.Namespace) -> None:
    harms = [(str(_read(path, "omega").get("form")), _omega(path)) for path in args.sensitivity]
    first = _read(args.sensitivity[0], "omega")
    title = f"{first.get('network')}, width {first.get('width')}"
    plot_harm(harms, [_sizes(path) for path in args.sizes], args.out, title)
    print(f"{args.out}: {len(harms)} forms")


def _kept_in(path: Path) -> Callable[[dict[str, Any]], None]:
    """What writes results there."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def keep(results: dict[str, Any]) -> None:
        path.write_text(json.dumps(results, indent=1) + "\n")

    return keep


def _compare(args: argparse.Namespace) -> None:
    data, test = _splits(args)
    dense = _options(args)
    tuning = Options(
        epochs=args.tuning_epochs,
        batch=args.batch,
        rate=args.tuning_rate,
        weight_decay=args.weight_decay,
        optimiser=args.optimiser,
        distil=args.distil,
        bf16=args.bf16,
        compiled=args.compile,
        cuda_graph=args.cuda_graph,
        checkpoint_steps=args.checkpoint_steps,
        bits=args.bits,
        strong=args.strong,
    )
    comparison = Comparison(
        architecture=Architecture(args.network, args.width, inputs=data.source.channels),
        costs=read_costs(args.costs),
        measures=args.measures,
        blocks=args.blocks,
        faster=args.faster,
        dense=dense,
        tuning=tuning,
        tuning_samples=args.tuning_samples,
        fisher_samples=args.fisher_samples,
        rise_samples=args.rise_samples,
        rise_seeds=args.rise_seeds,
        by=[Form(form) for form in args.by],
        plain=args.plain,
        groups=args.groups,
        watch=args.test_samples or len(test),
        device=device_named(args.device),
    )
    _print(compare(args.out, comparison, data, test, args.seeds, _kept_in(args.results), not args.quiet))


def _compare_relus(args: argparse.Namespace) -> None:
    data, test = _splits(args)
    dense = _options(args)
    tuning = replace(dense, epochs=args.tuning_epochs, rate=args.tuning_rate)
    comparison = Fewer(
        architecture=Architecture(args.network, args.width, inputs=data.source.channels),
        units=[Unit(unit) for unit in args.units],
        times=args.times,
        pace=args.pace,
        dense=dense,
        seeking=replace(tuning, epochs=args.search_epochs, rate=args.search_rate),
        tuning=tuning,
        watch=args.test_samples or len(test),
        device=device_named(args.device),
    )
    _print(compare_fewer(args.out, comparison, data, test, args.seeds, _kept_in(args.results), not args.quiet))


def _merge(args: argparse.Namespace) -> None:
    results = merged([_read(path, "architecture") for path in args.parts])
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    _print(results)


def _print(results: dict[str, Any]) -> None:
    for row in results["summary"]:
        accuracy = f"{row['accuracy_mean']:6.2f} % {_spread(row['accuracy_std'])}"
        lost = "" if row["loss_mean"] is None else f"lost {row['loss_mean']:5.2f} {_spread(row['loss_std'])}"
        costs = "  ".join(f"{measure} {row['costs'][measure]:.6g}" for measure in results["measures"])
        print(f"{row['name']:26} {accuracy}   {lost:16}   {costs}")
    for row in results["correlation"]:
        print(
            f"seed {row['seed']}: rank correlation with the rise in loss {row['omega']:.3f} (Omega full), "
            f"{row['omega_diagonal']:.3f} (diagonal), {row['squared_distance']:.3f} (squared distance)"
        )


def _spread(deviation: float | None) -> str:
    return "(one seed)" if deviation is None else f"± {deviation:.2f}"
