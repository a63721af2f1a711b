"""Modules of torch, and the example. They run where torch is installed."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import jaguar
import numpy as np
import pytest
from conftest import TINY, images

pytest.importorskip("torch")
pytest.importorskip("onnxscript")
import torch
from test_pages import blocks

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def small() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Dropout(0.5),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 8 * 8, 5),
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("exporter", ["auto", "legacy", "dynamo"])
def test_a_module_compiles(exporter: str) -> None:
    module = small().train()
    x = torch.from_numpy(images(12))
    model = jaguar.compile(module, x, exporter=exporter)
    assert module.training and module[4].training, "left as it was"
    assert (model.name, model.input_shape, model.outputs) == ("Sequential", (3, 16, 16), 5)
    with torch.no_grad():
        expected = module.eval()(x[:3]).numpy()
    for found, want in zip(model.simulate(x[:3]), expected, strict=True):
        assert found.logits is not None
        np.testing.assert_allclose(found.logits, want, atol=0.02 * np.ptp(want))


def test_tensors_and_pictures_of_libraries(tmp_path: Path) -> None:
    """What torch and PIL have is taken as the table in the package's page says."""
    pil = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, size=(12, 16, 16, 3), dtype=np.uint8)
    how = jaguar.Preprocessing(pixel_scale=1 / 255, mean=0.5, std=0.25)
    model = jaguar.compile(TINY, torch.from_numpy(pixels), preprocessing=how)
    [expected] = [one.integers.tolist() for one in model.simulate(pixels[:1]) if one.integers is not None]
    picture = pil.fromarray(pixels[0])
    alpha = picture.copy()
    alpha.putalpha(7)
    alpha.save(tmp_path / "alpha.png")
    with pil.open(tmp_path / "alpha.png") as opened:
        forms = [torch.from_numpy(pixels[0]), picture, alpha, opened, np.asarray(alpha), tmp_path / "alpha.png"]
        forms += [torch.from_numpy(pixels[0]).permute(2, 0, 1).permute(1, 2, 0)]
        for form in forms:
            assert [one.integers.tolist() for one in model.simulate(form) if one.integers is not None] == [expected], form
    grey = picture.convert("L")
    assert model.simulate(grey)[0].label == model.simulate(np.asarray(grey))[0].label
    for wrong, part in [
        (torch.from_numpy(pixels[0]).permute(2, 0, 1), "3 channels come last"),
        (torch.zeros(3, 16, 16, dtype=torch.bfloat16), r"torch\.bfloat16.*\.float\(\)"),
        (pil.new("I;16", (16, 16)), "more than 8 bits"),
    ]:
        with pytest.raises(jaguar.InputError, match=part):
            model.simulate(wrong)
    turned = picture.copy()
    turned.getexif()[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=turned.getexif())
    with pil.open(tmp_path / "turned.jpg") as opened, pytest.warns(jaguar.JaguarWarning, match="EXIF orientation 6"):
        model.simulate(opened)
    model.simulate(tmp_path / "turned.jpg")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_that_takes_a_vector_compiles() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    x = np.random.default_rng(2).normal(size=(12, 12)).astype(np.float32)
    for calibration in (x, torch.from_numpy(x), list(x)):
        assert jaguar.compile(module, calibration, exporter="legacy").input_shape == (12, 1, 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_no_exporter_takes() -> None:
    class Broken(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("not today")

    with pytest.raises(jaguar.ExportError, match="the legacy exporter: not today"):
        jaguar.compile(Broken(), images(10))
    with pytest.raises(jaguar.OptionError, match="input_shape is missing"):
        jaguar.compile(small(), np.zeros((10, 16, 16, 3), np.uint8))
    with pytest.raises(jaguar.OptionError, match='"legacy" and "dynamo"'):
        jaguar.compile(small(), images(10), exporter="pencil")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_start_page_exports_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, _ = blocks("docs/start.md")
    exec(compile(text, "start.md", "exec"), {})
    pixels = np.random.default_rng(7).integers(0, 256, size=(12, 64, 64, 3), dtype=np.uint8)
    model = jaguar.compile("own.onnx", pixels, preprocessing=jaguar.Preprocessing.imagenet(resize=64))
    assert (model.input_shape, model.outputs) == ((3, 64, 64), 10)


def test_the_page_on_circulant_networks_marks_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(TINY.read_bytes())
    [text] = blocks("docs/circulant.md")
    exec(compile(text, "circulant.md", "exec"), {"onnx": onnx, "json": json})
    [entry] = onnx.load("net.onnx").metadata_props
    assert entry.key == "jaguar.blocks" and json.loads(entry.value)["layer1.0.conv1.weight"]["b"] == 8


def test_the_example_on_fashion_mnist_runs(tmp_path: Path) -> None:
    """On pictures of nothing, in the files' format: the true ones are a package of Debian's."""
    rng = np.random.default_rng(8)
    for part, count in [("train", 512), ("t10k", 1000)]:
        pictures = rng.integers(0, 256, size=(count, 28, 28), dtype=np.uint8)
        classes = rng.integers(0, 10, size=count, dtype=np.uint8)
        with gzip.open(tmp_path / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(bytes(16) + pictures.tobytes())
        with gzip.open(tmp_path / f"{part}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(bytes(8) + classes.tobytes())
    options = ["--data", str(tmp_path), "--seconds", "2", "--private", "2", "--measure", "off", "--report", str(tmp_path / "r.html")]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, str(EXAMPLES / "fashion_mnist.py"), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "of 2; float " in done.stdout and "trained for 2 s" in done.stdout
    assert (tmp_path / "r.html").read_text().rstrip().endswith("</html>")


def test_the_example_runs(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, str(EXAMPLES / "resnet18.py"), "--size", "32", "--measure", "off"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    clear, private = last.removeprefix("in the clear: ").split("; privately: ")
    assert clear == private
    assert "offline (before the input)" in done.stdout
