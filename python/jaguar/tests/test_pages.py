"""The Python on the pages runs: each block as it stands, with small networks and pictures in place of the reader's."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import jaguar
import numpy as np
import pytest
from conftest import TINY

ROOT = Path(__file__).resolve().parents[3]


def blocks(page: str) -> list[str]:
    """The blocks of Python on a page."""
    text = (ROOT / page).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)


def ppm(path: Path, seed: int) -> None:
    """A picture of nothing, in a format that any reader knows by its content."""
    pixels = np.random.default_rng(seed).integers(0, 256, size=(20, 24, 3), dtype=np.uint8)
    path.write_bytes(b"P6 24 20 255\n" + pixels.tobytes())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages speak of: photographs, labelled ones, and one of a cat."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photographs").mkdir()
    for number in range(12):
        ppm(tmp_path / "photographs" / f"{number}.ppm", number)
    for label in range(4):
        (tmp_path / "labelled" / str(label)).mkdir(parents=True)
        ppm(tmp_path / "labelled" / str(label) / "a.ppm", 20 + label)
    ppm(tmp_path / "cat.jpg", 30)
    return tmp_path


def stand_in_for_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torchvision.models.resnet18(...)` gives the path of the small network: trained weights would be downloaded."""
    models = types.SimpleNamespace(resnet18=lambda weights: TINY)
    module: Any = types.ModuleType("torchvision")
    module.models = models
    monkeypatch.setitem(sys.modules, "torchvision", module)


def test_the_snippets_of_the_package_run(desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in_for_torchvision(monkeypatch)
    (desk / "birds.onnx").write_bytes(TINY.read_bytes())
    first, several, many = blocks("python/jaguar/README.md")
    # The small network takes small pictures. No test measures the machine.
    text = first.replace("224, 224", "16, 16").replace("imagenet()", "imagenet(resize=16)")
    text = text.replace('plan(link="wan")', 'plan(link="wan", measure="off")').replace("private=5", "private=1")
    text = text.replace("Server(model)", 'Server(model, measure="off")')
    names: dict[str, Any] = {}
    exec(compile(text, "README.md", "exec"), names)
    shown = capsys.readouterr().out
    for part in ("same class", "query: online", "private", "offline (before the input)"):
        assert part in shown, part
    assert jaguar.Model.load(desk / "resnet18.jaguar").outputs == 4
    exec(compile(several, "README.md", "exec"), names)
    assert "'flowers': 'jaguar'" in capsys.readouterr().out
    text = many.replace("plan(batch=16)", 'plan(batch=16, measure="off")').replace("max_batch=16", 'max_batch=16, measure="off"')
    exec(compile(text, "README.md", "exec"), names)
    assert capsys.readouterr().out.splitlines()[-1] == "16 12", "twelve photographs in one query"


@pytest.mark.filterwarnings("default::jaguar.JaguarWarning")
def test_the_start_page_goes_from_a_network_to_an_answer(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """(What makes the network there needs torch: `test_torch.py`.)"""
    _, text = blocks("docs/start.md")
    (desk / "own.onnx").write_bytes(TINY.read_bytes())
    (desk / "demo").symlink_to(ROOT / "demo")
    text = text.replace('plan(link="lan")', 'plan(link="lan", measure="off")').replace("Server(model)", 'Server(model, measure="off")')
    exec(compile(text, "start.md", "exec"), {})
    shown = capsys.readouterr().out
    for part in ("same class", "query: online", "s before the input"):
        assert part in shown, part
    pictures = len(list((ROOT / "demo" / "calibration").iterdir()))
    assert [line.startswith("class ") for line in shown.splitlines()[-pictures:]] == [True] * pictures
    assert (desk / "own.html").exists() and jaguar.Model.load(desk / "own.jaguar").outputs == 4


def test_pages_have_no_snippet_that_nothing_runs() -> None:
    """Whoever adds one has to say here what runs it."""
    run_here = {"python/jaguar/README.md", "docs/start.md"}
    run_by_test_torch = {"docs/start.md", "docs/circulant.md"}
    run_by_try_gateway = {"docs/gateway.md"}  # tools/try_gateway.py (make test-gateway) runs it
    run_by_test_ray = {"docs/ray.md"}  # make test-ray
    found = {
        str(path.relative_to(ROOT))
        for path in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("python/*/README.md"), *ROOT.glob("*/README.md")]
        if blocks(str(path.relative_to(ROOT)))
    }
    run = run_here | run_by_test_torch | run_by_try_gateway | run_by_test_ray
    assert found <= run, found - run
    assert run_here <= found
