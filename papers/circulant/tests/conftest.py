"""Every test starts from the same random state and runs on one thread, so none passes or fails by chance.

Pictures to train on are drawn, and a small network learns them once.
"""

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from circulant.data import Split, fashion_mnist
from circulant.training import Architecture, Options, train


@pytest.fixture(autouse=True)
def same_start() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(20260101)


SOURCE = Path(__file__).resolve().parent.parent / "src"


def stripes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures 28x28 of ten classes: waves of five directions and two lengths, with random phase and much noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    y, x = np.mgrid[:28, :28]
    angle = (labels % 5 * np.pi / 5)[:, None, None]
    length = np.where(labels < 5, 5.0, 9.0)[:, None, None]
    phase = rng.uniform(0, 2 * np.pi, count)[:, None, None]
    waves = np.sin((np.cos(angle) * x + np.sin(angle) * y) * 2 * np.pi / length + phase)
    return (128 + 50 * waves + 45 * rng.standard_normal(waves.shape)).clip(0, 255).astype(np.uint8), labels


def write_idx(path: Path, values: np.ndarray) -> None:
    head = struct.pack(">xxBB", 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
    path.write_bytes(gzip.compress(head + values.astype(np.uint8).tobytes(), 1))


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for part, count in (("train", 800), ("t10k", 200)):
        images, labels = stripes(count, count)
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
    return folder


@pytest.fixture(scope="session")
def splits(data_folder: Path) -> tuple[Split, Split]:
    return fashion_mnist(data_folder, True), fashion_mnist(data_folder, False)


SMALL = Architecture("resnet18", 0.125)
OPTIONS = Options(epochs=3, batch=50, rate=0.05, augment=False, checkpoint_steps=3)


@pytest.fixture(scope="session")
def trained(splits: tuple[Split, Split], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense network that has learnt the stripes."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("dense")
    train(folder, SMALL, SMALL.build(), *splits, replace(OPTIONS, epochs=4), progress=False)
    return folder / "final.pt"
