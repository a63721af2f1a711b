"""Images as Python has them, for the native part. What is taken is in the package's page, as a table: nothing here guesses beyond it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jaguar import _native
from jaguar.errors import InputError, JaguarWarning

Image = Any
"""One input: the path of a picture or of a `.npy` tensor; such a file as `bytes`, or open for reading; a picture as an array of `uint8`,
`[H, W]` or `[H, W, 1]` (grey), `[H, W, 3]`, `[H, W, 4]` (RGBA), or of PIL; a tensor that is preprocessed already, an array `[C, H, W]` of
floats, of NumPy or torch."""

Images = Any
"""Inputs: a list of them; an array of them (a dimension more in front); a folder of files."""


_SEVERAL = "predict_many, iterate, simulate and evaluate take several"
_NEEDED = (
    "a path, a picture's bytes, a file that is open for reading, pixels (an array of uint8, or a picture of PIL), or a tensor "
    "(an array of floats) is needed"
)

#: Channels of a picture's last dimension: grey, colours, colours and transparency.
_CHANNELS = (1, 3, 4)

#: EXIF's tag of how a camera was held, and its value for upright.
_ORIENTATION, _UPRIGHT = 0x0112, 1

#: How many bytes a file may have that is read here; the native part refuses as many.
_LONGEST = 1 << 28


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_bytes(value: object) -> bool:
    """What a picture's file holds. (A view of an array with several dimensions is an array.)"""
    return isinstance(value, (bytes, bytearray)) or (isinstance(value, memoryview) and value.ndim == 1 and value.itemsize == 1)


def _is_file(value: object) -> bool:
    """Anything with bytes to read: of `open`, of `io`, of an archive."""
    return callable(getattr(value, "read", None))


def _is_single(value: object) -> bool:
    """What cannot be several."""
    return _is_bytes(value) or _is_file(value)


def _path(value: str | os.PathLike[Any]) -> _native.Input:
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        raise InputError(f"{value}: an address on the web, which is not fetched; a file's path, or the picture's bytes, are needed")
    path = Path(os.fsdecode(value))
    if path.is_dir():
        raise InputError(f"{path}: a folder; {_SEVERAL}")
    return _native.Input.file(path)


def _bytes(value: Any) -> _native.Input:
    given = bytes(value)
    if 0 < len(given) < 4096 and b"\0" not in given and os.path.exists(given):
        raise InputError(f"{given!r}: bytes are a picture's own, and these are a file's name: give it as a str, or as a pathlib.Path")
    return _native.Input.encoded(given, None)


def _file(value: Any) -> _native.Input:
    """From where it stands to its end."""
    name = getattr(value, "name", None)
    told = name if isinstance(name, str) else f"a {type(value).__name__}"
    found = bytearray()
    while len(found) <= _LONGEST:  # (A pipe gives what it has, and may have more.)
        try:
            part = value.read(_LONGEST + 1 - len(found))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{told}: it cannot be read: {error}") from None
        if isinstance(part, str):
            raise InputError(f'{told}: it was opened as text; a picture has bytes: open(..., "rb")')
        if not isinstance(part, (bytes, bytearray, memoryview)):
            raise InputError(f"{told}: reading it gives a {type(part).__name__}, not bytes")
        if len(part) == 0:
            break
        found += part
    if not found:
        raise InputError(f"{told}: nothing is left to read; after writing or reading, seek(0) goes back to the beginning")
    return _native.Input.encoded(bytes(found), told)


def _of_pil(value: Any) -> NDArray[Any]:
    """Its pixels as they are, as red, green and blue."""
    mode = str(getattr(value, "mode", ""))
    if mode.startswith(("I", "F")):
        raise InputError(
            f"a picture of PIL in mode {mode!r}, with more than 8 bits a pixel, which PIL would cut off: give the file's path, or scale it "
            'to 8 bits first (mode "L" or "RGB")'
        )
    try:
        orientation = value.getexif().get(_ORIENTATION, _UPRIGHT) if hasattr(value, "getexif") else _UPRIGHT
        array = np.asarray(value.convert("RGB"))
    except (OSError, ValueError) as error:
        raise InputError(f"a picture of PIL: {error}") from None
    if orientation != _UPRIGHT:
        warnings.warn(
            f"the picture's camera was not held upright (EXIF orientation {orientation}), and PIL leaves it as it lies: "
            "PIL.ImageOps.exif_transpose(picture) turns it. (A path's picture is turned here.)",
            JaguarWarning,
            stacklevel=2,
        )
    return array


def _array(value: Any) -> NDArray[Any]:
    """Of NumPy, torch, or what NumPy understands, PIL's pictures among it."""
    if callable(getattr(value, "detach", None)) and callable(getattr(value, "cpu", None)):
        try:
            value = value.detach().cpu().numpy()
        except (RuntimeError, TypeError) as error:
            raise InputError(
                f"a tensor of torch, {getattr(value, 'dtype', type(value).__name__)}, that NumPy cannot hold ({error}): "
                ".float() makes one that it can"
            ) from None
    elif hasattr(value, "convert") and hasattr(value, "getbands"):
        return _of_pil(value)
    several = f"; {_SEVERAL}" if isinstance(value, (list, tuple)) else ""
    try:
        array = np.asarray(value)
    except (RuntimeError, TypeError, ValueError):  # lists in a list that are not of one length, and the like
        raise InputError(f"a {type(value).__name__} is no image: {_NEEDED}{several}") from None
    if array.dtype.kind in "biuf" and array.ndim > 0:
        return array
    if isinstance(value, np.ndarray):
        raise InputError(f"an array of {array.dtype}, {list(array.shape)}, is no image: pixels are uint8, tensors are of floats{several}")
    raise InputError(f"a {type(value).__name__} is no image: {_NEEDED}{several}")


def _pixels(array: NDArray[np.uint8]) -> _native.Input:
    """One picture of `uint8`."""
    shape = list(array.shape)
    if array.ndim == 3 and shape[2] in _CHANNELS:
        # Transparency is left out, as of pictures in files.
        array = array[:, :, :3]
    elif array.ndim == 3 and shape[0] == 1:
        array = array[0]
    elif array.ndim != 2:
        raise InputError(f"a picture of shape {shape}: {_why_no_picture(shape)}")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.shape[2] == 1:
        array = np.repeat(array, 3, axis=2)
    height, width, _ = array.shape
    return _native.Input.pixels(np.ascontiguousarray(array).tobytes(), height, width)


def _why_no_picture(shape: list[int]) -> str:
    """What to do about bytes in an array that is not one picture."""
    if len(shape) == 1:
        return "an encoded picture is given as bytes: array.tobytes()"
    if len(shape) == 3 and shape[2] == 2:
        return (
            "two channels, grey with transparency? Then array[:, :, 0]; or grey pictures of two columns? Then array[..., None], where "
            "several are taken"
        )
    if len(shape) == 3 and shape[0] in _CHANNELS:
        return (
            f"{shape[0]} channels come last, [height, width, {shape[0]}]: array.transpose(1, 2, 0), of torch permute(1, 2, 0); or are they "
            f"{shape[0]} grey pictures? Then list(array), where several are taken"
        )
    return (
        "bytes (uint8) are pixels, [height, width], or [height, width, channels] with 1 channel (grey), 3 (red, green, blue) or 4 (with "
        "transparency); a tensor that is preprocessed has floats"
    )


def _tensor(array: NDArray[Any], several: bool) -> _native.Input:
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(
            f"an array of {array.dtype}: pixels are uint8 (array.astype(numpy.uint8), of numbers from 0 to 255), tensors that are "
            "preprocessed are of floats"
        )
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and named there
        values = np.ascontiguousarray(array, dtype=np.float32)
    return _native.Input.tensor(values.tobytes(), list(array.shape), several)


def one(value: Image) -> _native.Input:
    """One input."""
    if isinstance(value, _native.Input):
        return value
    if _is_path(value):
        return _path(value)
    if _is_bytes(value):
        return _bytes(value)
    if _is_file(value):
        return _file(value)
    array = _array(value)
    # With the batch, which is one; or, of bytes, a grey picture.
    if array.ndim == 4 and array.shape[0] == 1:
        array = array[0]
    elif array.ndim == 4 or (array.dtype == np.uint8 and _is_batch_of_grey(array)):
        raise InputError(f"{array.shape[0]} inputs in an array of shape {list(array.shape)}; {_SEVERAL}")
    return _pixels(array) if array.dtype == np.uint8 else _tensor(array, several=False)


def _is_batch_of_grey(array: NDArray[np.uint8]) -> bool:
    """Whether bytes in three dimensions are grey pictures, `[N, H, W]`, and nothing else that a person may mean: neither `[H, W, C]` nor
    `[C, H, W]`."""
    return array.ndim == 3 and array.shape[2] > _CHANNELS[-1] and array.shape[0] not in _CHANNELS


def many(values: Images) -> list[_native.Input]:
    """All of them."""
    if _is_path(values) and Path(os.fsdecode(values)).is_dir():
        files, skipped = _native.collect([values])
        for text in skipped:
            warnings.warn(text, JaguarWarning, stacklevel=3)
        return [_native.Input.file(path) for path in files]
    if _is_path(values) or _is_single(values):
        return [one(values)]
    if isinstance(values, Mapping):
        raise InputError(f"a {type(values).__name__} is no list of images: its values are, as list(given.values())")
    if isinstance(values, AbstractSet):
        raise InputError(f"a {type(values).__name__} has no order, and answers come in the order of the inputs: give a list")
    if isinstance(values, Sequence) or (isinstance(values, Iterable) and not hasattr(values, "shape")):
        found: list[_native.Input] = []
        for value in values:
            try:
                found += many(value) if _is_path(value) else [one(value)]
            except InputError as error:
                raise error if _is_path(value) else InputError(f"input {len(found)}: {error}") from None
        return found
    array = _array(values)
    # A batch has a dimension more than one input.
    if array.ndim == 4 or (array.dtype == np.uint8 and _is_batch_of_grey(array)):
        return many(list(array))
    if array.dtype == np.uint8:
        return [_pixels(array)]
    # Of how many dimensions one tensor is, the network says.
    return [_tensor(array, several=True)]
