"""Fashion-MNIST from Debian's package `dataset-fashion-mnist`, padded to 32x32. Nothing is downloaded."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

# Where Debian puts the four idx files; --data or the variable CIRCULANT_DATA name another folder.
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
CLASSES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
# The training pictures' mean and deviation, of pixels scaled to 0..1, before padding.
MEAN, STD = 0.2860, 0.3530
SIDE = 32
# An idx file is refused beyond this many bytes.
MOST = 1 << 30


class DataError(ValueError):
    """The data set is missing or its files are not what they should be."""


@dataclass(frozen=True)
class Split:
    """Pictures `[n, 1, 32, 32]`, normalised, and their classes `[n]`."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Split:
        """All of them on `device`, in one piece."""
        return Split(self.images.to(device), self.labels.to(device))

    def first(self, count: int | None) -> Split:
        """The first `count` of them (all, where that is None). Raises DataError where there are fewer."""
        if count is None:
            return self
        if not 0 < count <= len(self):
            raise DataError(f"asked for {count} pictures of {len(self)}")
        return Split(self.images[:count], self.labels[:count])

    def apart(self, count: int) -> tuple[Split, Split]:
        """All but the last `count`, and these: to choose options by. Raises DataError unless both have some."""
        if not 0 < count < len(self):
            raise DataError(f"asked to hold back {count} pictures of {len(self)}")
        kept = len(self) - count
        return Split(self.images[:kept], self.labels[:kept]), Split(self.images[kept:], self.labels[kept:])

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All of them in order."""
        for start in range(0, len(self), size):
            yield self.images[start : start + size], self.labels[start : start + size]

    def shuffled(self, size: int, seed: int, epoch: int, augment: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch in an order that depends on `seed` and `epoch` only; a last batch that is not full is left out.

        With `augment` every picture is mirrored half of the time and shifted by up to 2 pixels either way, the width
        of the padding. All is drawn at the epoch's start, on the processor: batch k is the same whether or not those
        before it were taken, which resuming rests on, and the same on every device.
        """
        rng, count, device = np.random.default_rng([seed, epoch]), len(self), self.images.device
        order = torch.from_numpy(rng.permutation(count)).to(device)
        shifts = torch.from_numpy(rng.integers(-2, 3, (2, count))).to(device)
        mirrored = torch.from_numpy(rng.random(count) < 0.5).to(device)
        for step in range(count // size):
            at = slice(step * size, (step + 1) * size)
            images = self.images[order[at]]
            if augment:
                images = _augmented(images, shifts[:, at], mirrored[at])
            yield images, self.labels[order[at]]


def _augmented(images: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:
    """Rows and columns shifted around the edge by `shifts`, `[2, n]`; then mirrored where `mirrored` says so."""
    places = torch.arange(SIDE, device=images.device)
    rows = (places + shifts[0, :, None]) % SIDE
    columns = (places + shifts[1, :, None]) % SIDE
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    picture = torch.arange(len(images), device=images.device)[:, None, None]
    return images.squeeze(1)[picture, rows[:, :, None], columns[:, None, :]].unsqueeze(1)


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
    """The folder of the idx files: `given`, else the variable CIRCULANT_DATA, else Debian's."""
    return Path(given or os.environ.get("CIRCULANT_DATA") or DEBIAN)


def fashion_mnist(where: Path, part: str) -> Split:
    """`part` is "train" (60,000 pictures) or "t10k" (10,000). Raises DataError."""
    pictures = read_idx(where / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(where / f"{part}-labels-idx1-ubyte.gz")
    if pictures.shape[1:] != (28, 28) or labels.shape != pictures.shape[:1]:
        raise DataError(f"{where}: pictures {pictures.shape} and labels {labels.shape}, expected (n, 28, 28) and (n,)")
    if labels.size and labels.max() >= len(CLASSES):
        raise DataError(f"{where}: class {labels.max()}, expected 0 to {len(CLASSES) - 1}")
    padded = np.pad(pictures, ((0, 0), (2, 2), (2, 2)))
    images = (torch.from_numpy(padded).float().div_(255).sub_(MEAN).div_(STD)).unsqueeze(1)
    return Split(images, torch.from_numpy(labels.astype(np.int64)))
