"""Images as Python has them, for the native part."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jaguar import _native
from jaguar.errors import InputError, JaguarWarning

Image = Any
"""One input: the path of a picture or of a `.npy` tensor; a picture as an array `[H, W, 3]` (or `[H, W]`, grey) of `uint8`, or of PIL;
a tensor that is preprocessed already, an array `[C, H, W]` of floats, of NumPy or torch."""

Images = Any
"""Inputs: a list of them; an array of them (a dimension more in front); a folder of files."""


_SEVERAL = "predict_many, iterate, simulate and evaluate take several"


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))


def _array(value: Any) -> NDArray[Any]:
    """Of NumPy, torch, or what NumPy understands, PIL's pictures among it (as red, green, blue)."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    elif hasattr(value, "convert") and hasattr(value, "getbands"):
        value = value.convert("RGB")
    try:
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            return array
    except ValueError:  # lists in a list that are not of one length
        pass
    several = f"; {_SEVERAL}" if isinstance(value, (list, tuple)) else ""
    raise InputError(
        f"a {type(value).__name__} is no image: a path, pixels (an array of uint8, or a picture of PIL), or a tensor (an array of floats) "
        f"is needed{several}"
    )


def one(value: Image) -> _native.Input:
    """One input."""
    if isinstance(value, _native.Input):
        return value
    if _is_path(value):
        if Path(value).is_dir():
            raise InputError(f"{os.fspath(value)}: a folder; {_SEVERAL}")
        return _native.Input.file(Path(value))
    array = _array(value)
    if array.ndim == 4 and array.shape[0] == 1:
        array = array[0]
    elif array.ndim == 4:
        raise InputError(f"{array.shape[0]} inputs in an array of shape {list(array.shape)}; {_SEVERAL}")
    if array.dtype == np.uint8:
        if array.ndim == 2:
            array = np.repeat(array[:, :, None], 3, axis=2)
        if array.ndim != 3 or array.shape[2] != 3:
            raise InputError(
                f"a picture of shape {list(array.shape)}: bytes (uint8) are pixels, [height, width, 3] or [height, width]; "
                "a tensor that is preprocessed has floats"
            )
        height, width, _ = array.shape
        return _native.Input.pixels(np.ascontiguousarray(array).tobytes(), height, width)
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"an array of {array.dtype}: pixels are uint8, tensors are of floats")
    return _native.Input.tensor(np.ascontiguousarray(array, dtype=np.float32).tobytes(), list(array.shape))


def many(values: Images) -> list[_native.Input]:
    """All of them."""
    if _is_path(values):
        files, skipped = _native.collect([values])
        for text in skipped:
            warnings.warn(text, JaguarWarning, stacklevel=3)
        return [one(path) for path in files]
    if isinstance(values, Sequence) or (isinstance(values, Iterable) and not hasattr(values, "shape")):
        found: list[_native.Input] = []
        for value in values:
            try:
                found += many(value) if _is_path(value) else [one(value)]
            except InputError as error:
                raise error if _is_path(value) else InputError(f"input {len(found)}: {error}") from None
        return found
    array = _array(values)
    # A batch has a dimension more than one input: [N, H, W, 3] of bytes, [N, C, H, W] of floats.
    return many(list(array)) if array.ndim == 4 else [one(array)]
