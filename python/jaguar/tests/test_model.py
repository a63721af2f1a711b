"""Compiling, planning, simulating, telling accuracy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaguar
import numpy as np
import pytest
from conftest import TINY, UNSUPPORTED, images
from jaguar import _inputs


def test_a_path_and_bytes_make_the_same_network(model: jaguar.Model) -> None:
    other = jaguar.compile(TINY.read_bytes(), images(12), name="other")
    assert (other.name, other.labels) == ("other", ())
    assert (model.name, model.input_shape, model.outputs) == ("tiny", (3, 16, 16), 4)
    assert model.activation_bits == other.activation_bits
    assert model.id != other.id, "every compiled model has a secret of its own"
    x = images(3, seed=1)
    for a, b in zip(model.simulate(x), other.simulate(x), strict=True):
        assert a.integers is not None and b.integers is not None
        np.testing.assert_array_equal(a.integers, b.integers)


def test_agreement_is_told(model: jaguar.Model) -> None:
    assert model.agreement is not None and model.held_out is not None
    assert model.agreement.images == 12
    assert model.agreement.worst_relative_error < 0.01, "the bound that widths are chosen by"
    assert "same class" in str(model.agreement)
    [output] = model.agreement.outputs
    assert (output.name, output.values) == ("logits", 4)
    assert output.typical_relative_error <= output.worst_relative_error == model.agreement.worst_relative_error


def test_names_of_the_file_are_kept_on_request() -> None:
    def names(model: jaguar.Model) -> list[str]:
        return [layer["name"] for layer in model.plan(measure="off").data["layers"]]

    kept = jaguar.compile(TINY, images(12), activation_bits=16, keep_names=True)
    assert {"conv1", "relu1", "full"} <= set(names(kept))
    with pytest.raises(jaguar.OptionError, match="input_map"):
        jaguar.compile(TINY, images(12), input_map="hidden")


def test_a_saved_model_is_the_same(model: jaguar.Model, tmp_path: Path) -> None:
    path = tmp_path / "tiny.jaguar"
    model.save(path)
    model.save(path)
    loaded = jaguar.Model.load(str(path))
    assert (loaded.id, loaded.labels, loaded.agreement) == (model.id, model.labels, None)
    x = images(2, seed=2)
    assert [p.label for p in loaded.simulate(x)] == [p.label for p in model.simulate(x)]
    assert path.stat().st_mode & 0o777 == 0o600, "it holds a secret"
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.jaguar"], "nothing is left beside it"


def test_only_a_model_is_overwritten(model: jaguar.Model, tmp_path: Path) -> None:
    path = tmp_path / "precious.txt"
    path.write_text("precious")
    with pytest.raises(jaguar.OptionError, match="is no compiled model"):
        model.save(path)
    assert path.read_text() == "precious"
    with pytest.raises(jaguar.ModelError, match="not a compiled model"):
        jaguar.Model.load(path)


def test_what_is_shown(model: jaguar.Model, tmp_path: Path) -> None:
    """In a notebook, an object's name stands for it: short, and with what tells it from others."""
    assert repr(model) == f"<jaguar.Model tiny ({model.id}): input 3 x 16 x 16, 4 outputs>"
    [found] = model.simulate(images(1))
    assert found.probabilities is not None
    assert repr(found) == f"<jaguar.Prediction: {found.name!r}, label {found.label}, {100 * found.probabilities.max():.1f} %>"
    # Arrays in it make no trouble: it is equal to itself, and may be in a set.
    assert found != model.simulate(images(1))[0] and len({found, found}) == 1


def test_probabilities_are_a_softmax(model: jaguar.Model) -> None:
    [found] = model.simulate(images(1, seed=3))
    assert found.logits is not None and found.probabilities is not None
    assert found.logits.shape == found.probabilities.shape == (4,)
    powers = np.exp(found.logits - found.logits.max())
    np.testing.assert_allclose(found.probabilities, powers / powers.sum(), rtol=1e-12)
    assert found.label == int(np.argmax(found.logits))
    assert found.name == model.labels[found.label]
    top = found.top(2)
    assert top[0] == (found.name, found.probabilities.max())
    assert len(top) == 2 and top[0][1] >= top[1][1]


def test_pictures_are_preprocessed(tmp_path: Path) -> None:
    """Pixels, and the tensor that a hand makes of them as the model says, give the same."""
    how = jaguar.Preprocessing(pixel_scale=1 / 255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))
    pixels = np.random.default_rng(4).integers(0, 256, size=(12, 16, 16, 3), dtype=np.uint8)
    model = jaguar.compile(TINY, pixels, preprocessing=how)
    by_hand = (pixels / 255 - np.array(how.mean)) / np.array(how.std)
    tensors = by_hand.transpose(0, 3, 1, 2).astype(np.float32)
    for a, b in zip(model.simulate(pixels), model.simulate(tensors), strict=True):
        assert a.logits is not None and b.logits is not None
        np.testing.assert_allclose(a.logits, b.logits, atol=0.02)
    (tmp_path / "pictures").mkdir()
    for number, picture in enumerate(pixels[:3]):
        header = b"P6 16 16 255\n"
        (tmp_path / "pictures" / f"{number}.ppm").write_bytes(header + picture.tobytes())
    (tmp_path / "pictures" / "notes.txt").write_text("no picture")
    with pytest.warns(jaguar.JaguarWarning, match=r"1 file is skipped"):
        from_files = model.simulate(tmp_path / "pictures")
    assert [p.integers.tolist() for p in from_files if p.integers is not None] == [
        p.integers.tolist() for p in model.simulate(pixels[:3]) if p.integers is not None
    ]


def test_a_plan_prints_and_adds_up(model: jaguar.Model) -> None:
    plan = model.plan(measure="off")
    assert plan.bytes_up > 0 and plan.bytes_down > 0 and plan.rounds > 0 and plan.hint_bytes > 0
    assert plan.online_seconds is None, "nothing was measured"
    text = str(plan)
    assert text.startswith("tiny (model ") and "conv 1" in text and "conv1" not in text and "query: online" in text
    assert "seconds: not measured" in text
    assert "<jaguar.Plan of tiny" in repr(plan)
    why = model.plan(measure="off", explain=True)
    assert len(str(why)) > len(text) and "explanation" in why.data


def test_accuracy_of_arrays(model: jaguar.Model) -> None:
    x = images(20, seed=5)
    labels = [p.label for p in model.simulate(x)]
    labels[0] = (labels[0] + 1) % 4
    found = model.evaluate(x, labels, private=2)
    assert repr(found).startswith("<jaguar.Accuracy: float top-1 95.0 % of 20, integer top-1 95.0 % of 20, private top-1 ")
    names = model.evaluate(x, [model.labels[label] for label in labels], top=2)
    assert list(names.integer.top) == [2] and names.integer.top[2] >= 19 / 20
    assert found.integer.inputs == 20
    assert found.integer.top[1] == 19 / 20
    low, high = found.integer.interval[1]
    # Wilson's interval of 19 of 20, by the formula in textbooks.
    assert [low, high] == pytest.approx([0.7639, 0.9911], abs=1e-4)
    assert found.float is not None and found.float.inputs == 20, "the float network is known where it was compiled"
    assert found.private is not None and found.integer_on_those is not None
    assert found.private.inputs == found.integer_on_those.inputs == 2
    assert "private" in str(found) and "with 95 % confidence" in str(found)


def test_accuracy_of_a_folder(model: jaguar.Model, tmp_path: Path) -> None:
    x = images(6, seed=6)
    for number, (tensor, answer) in enumerate(zip(x, model.simulate(x), strict=True)):
        folder = tmp_path / str(answer.label)
        folder.mkdir(exist_ok=True)
        np.save(folder / f"{number}.npy", tensor)
    found = model.evaluate(tmp_path, limit=5)
    assert (found.integer.inputs, found.integer.top[1], found.private) == (5, 1.0, None)
    assert found.labels_by == "folder number"
    model.save(tmp_path / "tiny.jaguar")
    loaded = jaguar.Model.load(tmp_path / "tiny.jaguar")
    assert loaded.evaluate(tmp_path).float is None
    assert loaded.evaluate(tmp_path, float_model=TINY).float is not None


def test_inputs_that_are_always_the_same() -> None:
    x = images(12)
    with pytest.raises(jaguar.ModelError, match='"shift", which is to be constant, is none'):
        jaguar.compile(TINY, x, constants={"shift": 1.5})
    with pytest.raises(jaguar.ModelError, match="numbers were given"):
        jaguar.compile(TINY, x, constants={"image": np.zeros((2, 3))})


def test_odd_samples_are_named(tmp_path: Path) -> None:
    x = images(12)
    x[3] = x[1]
    x[5] = 0.25
    with pytest.warns(jaguar.JaguarWarning) as told:
        model = jaguar.compile(TINY, x)
    assert len(told) == len(model.warnings) == 2
    assert "input 1, input 3 are the same picture" in model.warnings[0]
    assert "input 5 is of one colour" in model.warnings[1]
    for number, one in enumerate(images(8)):
        np.save(tmp_path / f"{number}.npy", one * (40 if number == 6 else 1))
    with pytest.warns(jaguar.JaguarWarning):
        model = jaguar.compile(TINY, tmp_path, activation_bits=18)
    assert any("8 calibration inputs are few" in warning for warning in model.warnings)
    assert any("6.npy is unlike the others: it reaches " in warning for warning in model.warnings), model.warnings


def test_wrong_networks() -> None:
    x = images(10)
    with pytest.warns(jaguar.JaguarWarning, match="Sqrt, Exp cannot be run privately"):
        jaguar.compile(UNSUPPORTED, x)
    for nothing in (b"", b"x\n"):
        with pytest.raises(jaguar.ModelError, match="the file holds no graph: it is empty, or no ONNX model"):
            jaguar.compile(nothing, x)
    with pytest.raises(jaguar.ModelError, match=r"absent\.onnx"):
        jaguar.compile("absent.onnx", x)
    with pytest.raises(jaguar.ModelError):
        jaguar.compile(b"no network", x)
    with pytest.raises(jaguar.InputError, match=r"a dict: a torch\.nn\.Module"):
        jaguar.compile({}, x)
    with pytest.raises(jaguar.InputError, match=r"x\.jaguar: a compiled model; jaguar\.Model\.load"):
        jaguar.compile("x.jaguar", x)


def test_labelled_pictures_choose_the_width(model: jaguar.Model, tmp_path: Path) -> None:
    x = images(40)
    rows = []
    for i, answer in enumerate(model.simulate(x)):
        np.save(tmp_path / f"{i}.npy", x[i])
        rows.append(f"{i}.npy,{answer.label}")
    data = tmp_path / "list.csv"
    data.write_text("\n".join(rows), encoding="utf-8")
    chosen = jaguar.compile(TINY, images(10), data=data, loss=10)
    assert chosen.activation_bits < model.activation_bits
    for loss in (-1, 100):
        with pytest.raises(jaguar.OptionError, match="from 0 to below 1"):
            jaguar.compile(TINY, images(10), data=data, loss=loss)


def test_wrong_options(model: jaguar.Model, tmp_path: Path) -> None:
    x = images(10)
    latin = tmp_path / "latin.txt"
    latin.write_bytes("käse\n".encode("latin-1"))
    for options, part in [
        ({"labels": ["a", "b"]}, "2 label names for 4 classes"),
        ({"accuracy_bound": 0.0}, "more than 0"),
        ({"activation_bits": "many"}, "a number of bits"),
        ({"hide_for": 0.5}, "1 or more"),
        ({"hide_for": "many"}, "a number of queries"),
        ({"signs": "no"}, "reduced"),
        ({"data": "absent"}, "data: absent: "),
        ({"data": "absent", "activation_bits": 16}, "labelled pictures choose activation_bits"),
        ({"preprocessing": jaguar.Preprocessing(mean=(1.0, 2.0))}, "mean has 2 numbers"),
        ({"preprocessing": jaguar.Preprocessing(resize="wide")}, "resize='wide'"),
        ({"preprocessing": jaguar.Preprocessing(resize=0)}, "resize='0'"),
        ({"weight_bits": "many"}, "weight_bits='many': 'str' object"),
        ({"weight_bits": -1}, "weight_bits=-1: out of range"),
        ({"labels": [1, 2, 3, 4]}, r"labels=\[1, 2, 3, 4\]: "),
        ({"input_shape": (3, 16, 16)}, r"input_shape=\(3, 16, 16\): with the batch"),
        ({"input_shape": "wide"}, "input_shape='wide'"),
        ({"exporter": "none"}, '"auto", "legacy"'),
        ({"preprocessing": "imagenet"}, "preprocessing='imagenet': a Preprocessing is needed"),
        ({"preprocessing": jaguar.Preprocessing(mean="dark")}, "mean='dark': a number"),  # type: ignore[arg-type]
        ({"constants": {"mask": "none"}}, "constants: mask='none': a number"),
        ({"labels": "absent.txt"}, r"labels: .*absent\.txt"),
        ({"labels": latin}, r"latin\.txt is no text in UTF-8"),
        ({"preprocessing": jaguar.Preprocessing(filter="cubic")}, "filter='cubic': there are nearest"),
    ]:
        with pytest.raises(jaguar.OptionError, match=part):
            jaguar.compile(TINY, x, **options)  # type: ignore[arg-type]
    for planning, part in [
        ({"link": "string and cans"}, "neither loopback, lan or wan nor a file"),
        ({"prefer": "nothing"}, '"query", "online"'),
        ({"measure": "never"}, '"auto"'),
        ({"backends": ["magic"]}, "backends="),
        ({"backends": "magic"}, 'backends="magic"'),
        ({"backends": 3}, "backends="),
        ({"measure": 3}, "measure=3"),
        ({"lpn_noise": "loud"}, '"fresh", "stationary"'),
    ]:
        with pytest.raises(jaguar.OptionError, match=part):
            model.plan(**{"measure": "off"} | planning)  # type: ignore[operator]


def test_wrong_images(model: jaguar.Model) -> None:
    for bad, part in [
        (images(1)[:, :2], r"the tensor's shape is \[2, 16, 16\]"),
        (np.full((3, 16, 16), np.nan, np.float32), "finite numbers are needed"),
        (np.zeros((3, 16, 16), np.int32), "an array of int32"),
        (np.zeros((4, 16, 16), np.uint8), r"a picture of shape \[4, 16, 16\]"),
        ("absent.png", "absent.png"),
    ]:
        with pytest.raises(jaguar.InputError, match=part):
            model.simulate(bad)
    for several in (["a.jpg", "b.jpg"], [images(1)[0], images(1)[0][:1]]):
        with pytest.raises(jaguar.InputError, match=r"a list is no image: .* simulate and evaluate take several"):
            _inputs.one(several)
    with pytest.raises(jaguar.InputError, match=r"3 inputs in an array of shape \[3, 3, 16, 16\]; predict_many, "):
        _inputs.one(images(3))
    with pytest.raises(jaguar.InputError, match="a folder; predict_many, "):
        _inputs.one(TINY.parent)
    assert model.simulate([images(1)])[0].label == model.simulate(images(1))[0].label, "an input with its batch"
    for strange, part in [
        (None, "a NoneType is no image"),
        ([images(1)[0], np.full((3, 16, 16), np.inf, np.float32)], "input 1: the tensor has a value inf"),
        (np.stack([images(1)[0], np.full((3, 16, 16), np.nan, np.float32)]), "input 1: the tensor has a value NaN"),
        ([images(1)[0], {"a": 1}], "input 1: a dict is no image"),
    ]:
        with pytest.raises(jaguar.InputError, match=part):
            model.simulate(strange)
    for labels, part in [
        (["bird"], "'bird' is none of the model's 4 names"),
        ([0.5], "the number of each"),
        ([[None]], "the number of each"),
    ]:
        with pytest.raises(jaguar.InputError, match=part):
            model.evaluate(images(1), labels)
    with pytest.raises(jaguar.InputError, match="3 inputs and 2 labels"):
        model.evaluate(images(3), [0, 1])
    with pytest.raises(jaguar.InputError, match="class 4 is none"):
        model.evaluate(images(1), [4])
    with pytest.raises(jaguar.InputError, match="labels are missing"):
        model.evaluate(images(1))
    with pytest.warns(jaguar.JaguarWarning, match="input 0"):
        model.simulate(1000 * images(1))


def test_files_are_their_owners(model: jaguar.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have the inputs' pictures in them, and what the network makes of them: nobody else may read them, nor models, hints and keys.
    What is there already gets that mode, too."""
    before = os.umask(0o022)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    try:
        (tmp_path / "open").touch()
        assert (tmp_path / "open").stat().st_mode & 0o777 == 0o644, "else this would find nothing"
        (tmp_path / "open").rename(tmp_path / "compiled.html")
        model.report(tmp_path / "compiled.html", images(2, seed=5))
        model.plan(report=tmp_path / "plan.html", measure="off")
        model.save(tmp_path / "tiny.jaguar")
        with (
            jaguar.Server(model, "0.0.0.0:0", measure="off") as server,
            jaguar.Client(f"127.0.0.1:{server.port}", pin=server.fingerprint, cache=tmp_path / "hints") as client,
        ):
            client.predict(images(1)[0])
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    kinds = {path.suffix for path in files}
    assert kinds >= {".html", ".jaguar", ".hint", ".pem"}, files
    assert [f"{path.name} {path.stat().st_mode & 0o777:o}" for path in files if path.stat().st_mode & 0o077] == []


def test_a_report_that_cannot_be_written_leaves_what_was_there(model: jaguar.Model, tmp_path: Path) -> None:
    writers: list[Callable[[Any], object]] = [lambda place: model.plan(report=place, measure="off"), model.report, model.save]
    for place, part in [(tmp_path, "is a folder"), (tmp_path / "nowhere" / "x.html", r"nowhere is no folder"), (7, "7: a path is needed")]:
        for write in writers:
            with pytest.raises(jaguar.OptionError, match=part):
                write(place)
    assert list(tmp_path.iterdir()) == []


def test_options_of_other_types_are_named(model: jaguar.Model) -> None:
    """No raw `TypeError` of something within."""
    nobody = "127.0.0.1:1"
    strange: list[Any] = [7, "many", None]
    number, text, nothing = strange
    asked: list[tuple[Callable[[], object], str]] = [
        (lambda: model.plan(batch=text, measure="off"), "batch='many': a whole number"),
        (lambda: model.plan(batch=3, measure="off"), "batch=3: a power of two up to 64"),
        (lambda: model.hiding_for(text), "queries='many': a number of queries"),
        (lambda: jaguar.Model.load(nothing), "path=None: a path is needed"),
        (lambda: jaguar.Client(nobody, keep=text), "keep='many': a whole number"),
        (lambda: jaguar.Client(nobody, keep_memory=text), "keep_memory='many': a whole number"),
        (lambda: jaguar.Client(nobody, cache=number), "cache=7: a path is needed"),
        (lambda: model.simulate(images(1))[0].top(text), "count='many': a whole number"),
    ]
    for ask, words in asked:
        with pytest.raises(jaguar.OptionError, match=words):
            ask()


def test_reports_are_whole_pages(model: jaguar.Model, tmp_path: Path) -> None:
    page = model.report(tmp_path / "compiled.html", images(2, seed=5)).read_text()
    assert page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>")
    assert model.id in page and "test inputs" in page and "tabby, cat" in page
    assert "https://" not in page and "http://" not in page
    model.plan(report=tmp_path / "plan.html", measure="off")
    page = (tmp_path / "plan.html").read_text()
    assert model.id in page and "cheetah" in page and "jaguar plan --explain" in page
    model.plan(report=tmp_path / "plan.html", measure="off", explain=True)
    assert "conv 1: backend" in (tmp_path / "plan.html").read_text()
    model.save(tmp_path / "x.jaguar")
    with pytest.raises(jaguar.OptionError, match="loaded"):
        jaguar.Model.load(tmp_path / "x.jaguar").report(tmp_path / "y.html")
    with pytest.raises(jaguar.OptionError):
        model.report(tmp_path / "nowhere" / "y.html")
