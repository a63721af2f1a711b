"""Stronger changes of training pictures than shifts and mirrors, for transformers: on the pictures' device, by batch.

Sources: RandAugment (Cubuk, Zoph, Shlens, Le, 2019, arXiv 1909.13719): two random operations a picture. Mixup (Zhang et
al., 2018) and CutMix (Yun et al., 2019): two pictures in one, and their classes by their shares, a batch alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

# Each takes a strength from -1 to 1; what has one direction only takes its size.
MOVES = ("rotate", "shear-x", "shear-y", "shift-x", "shift-y")
COLOURS = ("brightness", "contrast", "colour", "sharpness", "solarise", "posterise", "autocontrast")
OPERATIONS = MOVES + COLOURS
# Of these two are taken for each picture.
EACH = 2
# What strength 1 is: radians, shears and halves of the side; factors beside 1; how far the threshold falls; bits lost.
ANGLE, SHEAR, SHIFT, FACTOR, THRESHOLD, BITS = math.pi / 6, 0.3, 0.5, 0.8, 0.7, 4
# Of the share's Beta distribution, as timm's recipes have them; and how much of a label all classes share.
MIXUP, CUTMIX, SMOOTHING = 0.8, 1.0, 0.1


@dataclass(frozen=True)
class Strong:
    """All that is random in an epoch, drawn on the processor: `operations` and `strengths` are `[n, EACH]`."""

    operations: Tensor
    strengths: Tensor
    mixed: list[tuple[bool, float, float, float]]

    @staticmethod
    def drawn(rng: np.random.Generator, count: int, batches: int, device: torch.device) -> Strong:
        operations = torch.from_numpy(rng.integers(0, len(OPERATIONS), (count, EACH))).to(device)
        strengths = torch.from_numpy(rng.uniform(-1, 1, (count, EACH)).astype(np.float32)).to(device)
        mixed = []
        for _ in range(batches):
            cut = bool(rng.random() < 0.5)
            share = rng.beta(CUTMIX, CUTMIX) if cut else rng.beta(MIXUP, MIXUP)
            mixed.append((cut, float(share), float(rng.random()), float(rng.random())))
        return Strong(operations, strengths, mixed)


def strengths_of(operations: Tensor, strengths: Tensor) -> dict[str, Tensor]:
    """By operation, how much of it each picture gets, `[n]`: 0 where it was not drawn."""
    return {name: (strengths * (operations == k)).sum(1).clamp(-1, 1) for k, name in enumerate(OPERATIONS)}


def moved(images: Tensor, by: dict[str, Tensor]) -> Tensor:
    """Rotated, sheared and shifted, all in one; what comes from beyond the edge is the data's mean colour, 0."""
    angle = by["rotate"] * ANGLE
    cosine, sine = angle.cos(), angle.sin()
    x, y = by["shear-x"] * SHEAR, by["shear-y"] * SHEAR
    first = torch.stack([cosine - sine * y, cosine * x - sine, by["shift-x"] * SHIFT], 1)
    second = torch.stack([sine + cosine * y, sine * x + cosine, by["shift-y"] * SHIFT], 1)
    grid = F.affine_grid(torch.stack([first, second], 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="zeros", align_corners=False)


def coloured(pixels: Tensor, by: dict[str, Tensor]) -> Tensor:
    """Of pixels from 0 to 1, `[n, channels, h, w]`."""
    by = {name: strength.view(-1, 1, 1, 1) for name, strength in by.items()}
    pixels = pixels * (1 + FACTOR * by["brightness"])
    grey = pixels.mean(1, keepdim=True)
    middle = grey.mean((2, 3), keepdim=True)
    pixels = middle + (pixels - middle) * (1 + FACTOR * by["contrast"])
    grey = pixels.mean(1, keepdim=True)
    pixels = (grey + (pixels - grey) * (1 + FACTOR * by["colour"])).clamp(0, 1)
    soft = F.avg_pool2d(pixels, 3, 1, 1, count_include_pad=False)
    pixels = (soft + (pixels - soft) * (1 + FACTOR * by["sharpness"])).clamp(0, 1)
    bright = (by["solarise"] != 0) & (pixels >= 1 - THRESHOLD * by["solarise"].abs())
    pixels = torch.where(bright, 1 - pixels, pixels)
    steps = 2 ** (8 - (BITS * by["posterise"].abs()).ceil())
    pixels = torch.where(by["posterise"] != 0, (pixels * steps).floor() / steps, pixels)
    least, most = pixels.amin((1, 2, 3), keepdim=True), pixels.amax((1, 2, 3), keepdim=True)
    wide = (pixels - least) / (most - least).clamp_min(1e-3)
    return torch.where(by["autocontrast"] != 0, wide, pixels)


def mixed(images: Tensor, labels: Tensor, classes: int, how: tuple[bool, float, float, float]) -> tuple[Tensor, Tensor]:
    """Each picture with one of the same batch, and labels `[n, classes]` by their shares, smoothed.

    `how`: whether a box is cut out (else both are laid over one another), the share of the picture itself, and where
    the box's middle is, from 0 to 1.
    """
    cut, share, row, column = how
    other = images.flip(0)
    if cut:
        side = images.shape[-1]
        half = side * math.sqrt(1 - share) / 2
        top, bottom = (min(max(round(row * side + d), 0), side) for d in (-half, half))
        left, right = (min(max(round(column * side + d), 0), side) for d in (-half, half))
        images = images.clone()
        images[:, :, top:bottom, left:right] = other[:, :, top:bottom, left:right]
        share = 1 - (bottom - top) * (right - left) / side**2
    else:
        images = share * images + (1 - share) * other
    own = F.one_hot(labels, classes).float()
    both = share * own + (1 - share) * own.flip(0)
    return images, (1 - SMOOTHING) * both + SMOOTHING / classes
