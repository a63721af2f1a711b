"""From a trained network to a compiled model, and what can be asked of that before anything is served."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaguar import _export, _inputs, _native, _options
from jaguar._inputs import Images
from jaguar._progress import Listener, Progress
from jaguar.errors import InputError, OptionError
from jaguar.results import Prediction, prediction

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Preprocessing:
    """How pictures become the tensor that the network was trained on: a channel's value v (0 to 255) becomes
    `(v * pixel_scale - mean) / std`. Recorded in the model, and applied by the client."""

    #: "exact"; the pixels that the shorter side gets before the centre is cut out; "crop-pct=0.875" (timm's) or "centre=0.875"
    #: (TensorFlow's: the central square first).
    resize: str | int = "exact"
    #: Whether the network takes blue, green, red.
    bgr: bool = False
    pixel_scale: float = 1.0
    #: One number, or one per channel in the network's order.
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    #: How pixels are found: as Pillow's "nearest", "box", "bilinear", "hamming", "bicubic" or "lanczos"; or "interpolate", bilinear
    #: without antialiasing as `tf.image.resize`.
    filter: str = "bilinear"

    @classmethod
    def imagenet(cls, resize: str | int = 256) -> Preprocessing:
        """As most of torchvision's networks were trained."""
        return cls(resize, False, 1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class OutputAgreement:
    """One part of the output beside the float network's, over inputs: of a network with several outputs, or one that is packed of what
    different layers make."""

    name: str
    values: int
    mean_error: float
    max_error: float
    #: The largest absolute value of the float network.
    largest: float
    #: The largest error of an input, and that of half of the inputs or more, as a part of the spread of this part's own values.
    worst_relative_error: float
    typical_relative_error: float


@dataclass(frozen=True)
class Agreement:
    """The integer network beside the float network, over inputs."""

    images: int
    #: For how many both give the same class.
    same_class: int
    #: The mean and the largest difference of a logit, in the model's own units.
    mean_error: float
    max_error: float
    #: The largest absolute logit of the float network.
    largest_logit: float
    #: The largest error of an input's logits, as a part of their spread over the classes; each part of the output by itself.
    worst_relative_error: float
    #: By part of the output.
    outputs: tuple[OutputAgreement, ...] = ()

    def __str__(self) -> str:
        return (
            f"same class {self.same_class}/{self.images}, logits off by {self.mean_error:.4f} on average and "
            f"{self.max_error:.4f} at most (largest logit {self.largest_logit:.2f}; "
            f"{100 * self.worst_relative_error:.2f} % of their spread)"
        )


@dataclass(frozen=True)
class Score:
    """How often the right class came out."""

    #: Of how many inputs.
    inputs: int
    #: By k: for which part the right class is among the first k.
    top: dict[int, float]
    #: By k: where that part lies with 95 % confidence, were the inputs drawn by chance (Wilson's interval).
    interval: dict[int, tuple[float, float]]
    #: For which part the class is that of the integer network.
    same_class: float


def _score(found: dict[str, Any] | None) -> Score | None:
    if found is None:
        return None
    interval = {int(k): (float(low), float(high)) for k, (low, high) in found["interval"].items()}
    top = {int(k): float(part) for k, part in found["top"].items()}
    return Score(found["pictures"], top, interval, found["same_class"])


@dataclass(frozen=True, repr=False)
class Accuracy:
    """Of the integer network, of the float network where it is known, and of private runs where they were asked for. `print` shows a
    table."""

    classes: int
    #: How the classes were told.
    labels_by: str
    integer: Score
    float: Score | None
    private: Score | None
    #: The integer network on the inputs that were run privately.
    integer_on_those: Score | None

    def __repr__(self) -> str:
        scores = [("float", self.float), ("integer", self.integer), ("private", self.private)]
        told = []
        for name, score in scores:
            if score is not None:
                k, part = next(iter(score.top.items()))
                told.append(f"{name} top-{k} {100 * part:.1f} % of {score.inputs}")
        return f"<jaguar.Accuracy: {', '.join(told)}>"

    def __str__(self) -> str:
        lines = [f"{self.classes} classes, labels by {self.labels_by}"]
        for name, score in [
            ("float", self.float),
            ("integer", self.integer),
            ("private", self.private),
            ("integer, on those", self.integer_on_those),
        ]:
            if score is not None:
                parts = [
                    f"top-{k} {100 * part:.2f} % ({100 * score.interval[k][0]:.1f} to {100 * score.interval[k][1]:.1f})"
                    for k, part in score.top.items()
                ]
                same = f"class of the integer network {100 * score.same_class:.2f} %"
                lines.append(f"{name:18} {score.inputs:6} inputs  {'  '.join(parts)}  {same}")
        lines.append("(in brackets: where it lies with 95 % confidence, were the inputs drawn by chance)")
        return "\n".join(lines)


class Plan:
    """What is done in each layer and what a query will cost. `print` shows the tables of `jaguar plan`."""

    def __init__(self, text: str, document: str) -> None:
        self._text = text
        #: Everything, as `jaguar plan --json` gives it.
        self.data: dict[str, Any] = json.loads(document)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<jaguar.Plan of {self.data['network']}: {self.bytes_up} bytes up, {self.bytes_down} down, {self.rounds} rounds>"

    @property
    def images(self) -> int:
        """How many images a query has. All figures are of a whole query; `data["batch"]` has the linear layers beside those of as many
        queries of one image."""
        return int(self.data["choices"]["images"])

    def _sum(self, what: str) -> int:
        found = self.data["prediction"]
        return int(found["offline"][what]) + int(found["online"][what])

    @property
    def bytes_up(self) -> int:
        """From the client to the server, of one query."""
        return self._sum("bytes_up")

    @property
    def bytes_down(self) -> int:
        """From the server to the client, of one query; the hint is not counted."""
        return self._sum("bytes_down")

    @property
    def rounds(self) -> int:
        """How often the client waits for an answer, in one query."""
        return self._sum("rounds")

    @property
    def hint_bytes(self) -> int:
        """What a client fetches once."""
        return int(self.data["prediction"]["hint_bytes"])

    @property
    def offline_seconds(self) -> float | None:
        """Before the input; None where this machine was not measured."""
        seconds = self.data["prediction"]["offline"]["seconds"]
        return None if seconds is None else float(seconds)

    @property
    def online_seconds(self) -> float | None:
        """From the input to the result; None where this machine was not measured."""
        seconds = self.data["prediction"]["online"]["seconds"]
        return None if seconds is None else float(seconds)


def planning(
    link: PathLike | None, prefer: str, backends: Sequence[str] | None, measure: str, cache: PathLike | None, lpn_noise: str
) -> dict[str, Any]:
    """Options that are the same wherever something is planned, as the native part takes them."""
    return {
        "link": None if link is None else os.fspath(link),
        "prefer": prefer,
        "backends": None if backends is None else _options.names("backends", backends),
        "measure": measure,
        "cache": None if cache is None else Path(cache),
        "lpn_noise": lpn_noise,
    }


@dataclass(repr=False, eq=False)
class Model:
    """A compiled model: the quantised network, its weights, and the server's secret. It stays with the server."""

    _native: _native.Model = field(repr=False)
    #: How it agrees with the float network on the calibration inputs; None for a model that was loaded.
    agreement: Agreement | None = None
    #: The same, with scales from one half of them, on the other half: closer to what new inputs will see.
    held_out: Agreement | None = None
    #: What may cost accuracy, as it was told when the model was compiled.
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shape = " x ".join(str(n) for n in self.input_shape)
        return f"<jaguar.Model {self.name} ({self.id}): input {shape}, {self.outputs} outputs>"

    @staticmethod
    def load(path: PathLike) -> Model:
        """Reads a compiled model (`Model.save`, `jaguar compile`)."""
        return Model(_native.Model.load(_options.path("path", path)))

    def save(self, path: PathLike) -> None:
        """Writes it. The file holds the weights and a secret: keep it on the server. Only a compiled model is overwritten."""
        self._native.save(_options.place("path", path))

    @property
    def name(self) -> str:
        """The network's name."""
        return self._native.name

    @property
    def id(self) -> str:
        """The model's public name: it commits to the weights and tells nothing of them."""
        return self._native.id

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the outputs; empty if none were given."""
        return tuple(self._native.labels)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self._native.input_shape
        return channels, height, width

    @property
    def outputs(self) -> int:
        """How many logits there are."""
        return self._native.outputs

    @property
    def activation_bits(self) -> int:
        """Bits of activations, guard bits besides."""
        return self._native.bits[0]

    @property
    def guard_bits(self) -> int:
        """Bits below the activations' last place: the answer's noise hides how values were rounded to these."""
        return self._native.bits[1]

    @property
    def weight_bits(self) -> int:
        """Significant bits of weights."""
        return self._native.bits[2]

    @property
    def hidden_for(self) -> float | None:
        """For how many queries of one image the answers' noise hides every hidden unit; None if that was not measured."""
        return self._native.hidden_for

    def hiding_for(self, queries: float) -> Model:
        """The same model, its hidden units hidden for another number of queries of one image. 1 is faster, has no noise, and lets a
        client that repeats its queries learn hidden values and weights."""
        queries = _options.queries("queries", queries)
        return Model(self._native.hiding_for(queries), self.agreement, self.held_out, self.warnings)

    def plan(
        self,
        link: PathLike = "loopback",
        *,
        prefer: str = "query",
        backends: Sequence[str] | None = None,
        batch: int = 1,
        explain: bool = False,
        report: PathLike | None = None,
        measure: str = "auto",
        cache: PathLike | None = None,
        lpn_noise: str = "fresh",
        progress: Progress = None,
    ) -> Plan:
        """What is done in each layer, and what a query will cost over `link`: "loopback", "lan", "wan", or a file of
        `jaguar measure --link-to`.

        `prefer`: "query", or "online" for a short answer. `batch`: images of a query, a power of two up to 64; the tables then tell by
        layer what such a query takes beside as many of one image, and where that pays. `explain`: for every choice, what else there
        was. `report`: a file for the same as a web page, with sliders for the link. `measure`: "auto" measures this machine once, for a
        few seconds, "anew" does so again, "off" leaves it, and gives no seconds. `lpn_noise`: "fresh", or "stationary", by which
        correlations take a third of the bytes under a younger assumption; clients must ask for it too.
        """
        options = planning(link, prefer, backends, measure, cache, lpn_noise)
        batch = _options.batch(batch)
        report = None if report is None else _options.place("report", report)
        with Listener(progress, "plan") as listener, _options.checked(options):
            return Plan(*self._native.plan(options, batch, explain, report, listener))

    def report(self, path: PathLike, images: Images | None = None, *, progress: Progress = None) -> Path:
        """Writes a web page of how it was compiled: agreement with the float network, each layer's range, error and histogram, what is
        clipped, and the images that agree least. On the calibration inputs, and on `images`, which had no part in calibration.

        For a model that was compiled in this process, from calibration files that are still there.
        """
        path = _options.place("path", path)
        others = [] if images is None else _inputs.many(images)
        with Listener(progress, "report") as listener:
            self._native.report(path, others, listener)
        return path

    def simulate(self, images: Images, *, progress: Progress = None) -> list[Prediction]:
        """What the integer network says of each image, exactly. (Private runs differ from it by how they round.)"""
        names = self.labels
        with Listener(progress, "simulate") as listener:
            answers = self._native.simulate(_inputs.many(images), listener)
        return [prediction(answer, names) for answer in answers]

    def evaluate(
        self,
        images: Images,
        labels: Sequence[int] | Sequence[str] | Any | None = None,
        *,
        private: int = 0,
        top: int | Sequence[int] = (),
        limit: int | None = None,
        float_model: bytes | PathLike | None = None,
        backends: Sequence[str] | None = None,
        progress: Progress = None,
    ) -> Accuracy:
        """How often the right class comes out, with confidence intervals.

        `images`: with `labels`, any images and the number or the name of each one's class. Without, a folder with one folder a class
        (named as the model's labels, or by the class's number), or a list of files and classes (.csv: two columns). `private`: how many
        of them are run privately too, both parties here. `limit`: take only so many, evenly spread. `float_model`: the ONNX network that a
        loaded model was compiled from (a model that was compiled in this process knows it).
        """
        settings = {
            "private": private,
            "top": [top] if isinstance(top, int) else list(top),
            "limit": limit,
            "float": float_model if float_model is None or isinstance(float_model, bytes) else Path(float_model),
            "backends": None if backends is None else _options.names("backends", backends),
        }
        with Listener(progress, "evaluate") as listener, _options.checked(settings):
            if labels is None:
                if not isinstance(images, (str, os.PathLike)):
                    raise InputError("labels are missing: only a folder or a list of files tells them itself")
                found = json.loads(self._native.evaluate_files(images, settings, listener))
            else:
                numbers = _classes(labels, self.labels)
                if any(number < 0 for number in numbers):
                    raise InputError(f"class {min(numbers)} is none of the model's: they are 0 to {self.outputs - 1}")
                found = json.loads(self._native.evaluate(_inputs.many(images), numbers, settings, listener))
        integer = _score(found["integer"])
        assert integer is not None
        return Accuracy(
            found["classes"],
            found["labels_by"],
            integer,
            _score(found["float"]),
            _score(found["private"]),
            _score(found["integer_on_those"]),
        )


def _classes(labels: Any, names: tuple[str, ...]) -> list[int]:
    """Numbers of classes, as NumPy, torch or a list has them or their names."""
    array = np.asarray(labels.detach().cpu() if hasattr(labels, "detach") else labels)
    if array.dtype.kind == "U":
        unknown = sorted(set(array.reshape(-1).tolist()) - set(names))
        if unknown:
            raise InputError(f"labels: {unknown[0]!r} is none of the model's {len(names)} names; numbers of classes are possible too")
        return [names.index(label) for label in array.reshape(-1).tolist()]
    if array.dtype.kind not in "iu" and array.size > 0:
        raise InputError(f"labels of {array.dtype}: the number of each image's class is needed (0 for the first one), or its name")
    return [int(label) for label in array.reshape(-1)]


def _labels(labels: Sequence[str] | PathLike | None) -> list[str]:
    if labels is None:
        return []
    if isinstance(labels, (str, os.PathLike)):
        try:
            return [line.strip() for line in Path(labels).read_text(encoding="utf-8").splitlines()]
        except OSError as error:
            raise OptionError(f"labels: {error}") from error
        except UnicodeDecodeError:
            raise OptionError(f"labels: {os.fspath(labels)} is no text in UTF-8: one name a line is needed") from None
    return list(labels)


def compile(
    model: Any,
    calibration: Images,
    *,
    preprocessing: Preprocessing | None = None,
    name: str | None = None,
    labels: Sequence[str] | PathLike | None = None,
    input_shape: Sequence[int] | None = None,
    outputs: Sequence[str] = (),
    constants: Mapping[str, Any] | None = None,
    activation_bits: int | str = "auto",
    weight_bits: int = 15,
    hide_for: float = 1e6,
    signs: str = "exact",
    accuracy_bound: float = 1.0,
    data: PathLike | None = None,
    loss: float = 0.2,
    headroom: float = 4.0,
    keep_names: bool = False,
    input_map: str = "auto",
    force: bool = False,
    exporter: str = "auto",
    progress: Progress = None,
) -> Model:
    """Quantises a network by what it does on `calibration`: ten or more images, like those that will come.

    `model`: a `torch.nn.Module`, the path of an ONNX file, or its bytes. `preprocessing`: how pictures become tensors, as the network
    was trained. `labels`: names of the classes, or a file with one a line. `input_shape`: with the batch, as (1, 3, 224, 224), where
    neither the network nor the calibration tells it. `outputs`: which to compute; all, where none is named. `constants`: inputs
    besides the picture that are always the same, by name: a number, or an array.

    `activation_bits`: 8 to 24, "auto" for 16 or as many as keep `accuracy_bound`, "fewest" for 12 or as many as keep it.
    `hide_for`: for how many queries of one image hidden units stay hidden, by noise in the answers and guard bits below the activations';
    1 has neither, and lets a client that repeats its queries learn hidden values and weights.
    `accuracy_bound`: by how much logits may be off, in percent of their spread over the classes. `data`: labelled pictures, a folder with
    one folder a class, or a list of files and classes; the fewest bits are then taken that find the right class as often as the float
    network does, less `loss` percent of the pictures. `signs`: "reduced" lets comparisons
    leave out low bits where the bound is kept. `keep_names`: clients get the names that the file has for nodes and outputs, instead of
    kinds and numbers. `input_map`: what becomes of factors and offsets that the network has right behind the input, as a batch
    normalisation there: "secret" in the weights, "public" for every client, "auto" for secret where that costs nothing.
    `force`: make a model even if it does not answer as the float network does. `exporter`: "legacy", "dynamo", or "auto" for the first
    that takes the module.

    Warnings are `jaguar.JaguarWarning`s. Raises `UnsupportedModelError` with all operators that cannot be run privately.
    """
    if signs not in ("exact", "reduced"):
        raise OptionError(f'signs={signs!r}: "exact", "reduced" are possible')
    _export.check(exporter)
    how = Preprocessing() if preprocessing is None else preprocessing
    if not isinstance(how, Preprocessing):
        raise OptionError(f"preprocessing={how!r}: a Preprocessing is needed, as jaguar.Preprocessing.imagenet()")
    if input_shape is not None:
        input_shape = _shape(input_shape)
    samples = _inputs.many(calibration)
    onnx: bytes | PathLike
    if _export.is_module(model):
        onnx = _export.export(model, input_shape or _shape_of(calibration), exporter)
        name = name or type(model).__name__
    elif isinstance(model, (bytes, bytearray, memoryview)):
        onnx = bytes(model)
    elif isinstance(model, (str, os.PathLike)):
        onnx = Path(model)
        if onnx.suffix == ".jaguar":
            raise InputError(f"{onnx}: a compiled model; jaguar.Model.load reads it")
    else:
        raise InputError(f"a {type(model).__name__}: a torch.nn.Module, the path of an ONNX file, or its bytes are needed")
    settings = {
        "name": name,
        "labels": _labels(labels),
        "resize": str(how.resize),
        "filter": how.filter,
        "bgr": how.bgr,
        "pixel_scale": how.pixel_scale,
        "mean": _options.numbers("mean", how.mean),
        "std": _options.numbers("std", how.std),
        "activation_bits": str(activation_bits),
        "hide_for": _options.queries("hide_for", hide_for),
        "weight_bits": weight_bits,
        "reduced_signs": signs == "reduced",
        "accuracy_bound": accuracy_bound,
        "data": None if data is None else os.fspath(data),
        "loss": loss,
        "headroom": headroom,
        "keep_names": keep_names,
        "input_map": input_map,
        "force": force,
        "input_shape": input_shape,
        "outputs": _options.names("outputs", outputs),
        "constants": [(name, _options.numbers(f"constants: {name}", value)) for name, value in (constants or {}).items()],
    }
    with Listener(progress, "compile") as listener, _options.checked(settings):
        native, about = _native.compile(onnx, samples, settings, listener)
    found = json.loads(about)
    return Model(native, _agreement(found["agreement"]), _agreement(found["held_out"]), tuple(found["warnings"]))


def _agreement(found: dict[str, Any]) -> Agreement:
    outputs = tuple(OutputAgreement(**output) for output in found.pop("outputs"))
    return Agreement(**found, outputs=outputs)


def _shape(given: Sequence[int]) -> list[int]:
    """An input shape with the batch."""
    try:
        shape = [int(n) for n in given]
    except (TypeError, ValueError):
        shape = []
    if len(shape) in (2, 4) and all(n > 0 for n in shape):
        return shape
    raise OptionError(f"input_shape={given!r}: with the batch, as (1, 3, 224, 224)")


def _shape_of(calibration: Images) -> list[int]:
    """The input shape of a module, which calibration tensors tell."""
    shape: Sequence[int] = getattr(calibration, "shape", ())
    dtype = str(getattr(calibration, "dtype", ""))
    if not shape and isinstance(calibration, Sequence) and not isinstance(calibration, str) and len(calibration) > 0:
        shape = getattr(calibration[0], "shape", ())
        dtype = str(getattr(calibration[0], "dtype", ""))
        shape = [1, *shape] if len(shape) in (1, 3) else shape
    if "float" not in dtype or len(shape) not in (2, 4):
        raise OptionError("input_shape is missing: pictures do not tell the module's input, as (1, 3, 224, 224)")
    return [1, *(int(n) for n in shape[1:])]
