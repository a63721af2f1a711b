"""Options as Python has them, for the native part."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from jaguar import _native
from jaguar.errors import OptionError


@contextmanager
def checked(*given: Mapping[str, Any]) -> Iterator[None]:
    """An option of a type that cannot be is an `OptionError` with its name. `given`: options by name."""
    try:
        yield
    except TypeError as error:
        field = re.fullmatch(r"failed to extract field \w+\.(\w+)", str(error))
        where = next((options for options in given if field and field[1] in options), None)
        if field is None or where is None:
            raise
        why = "out of range" if isinstance(error.__cause__, OverflowError) else str(error.__cause__)
        raise OptionError(f"{field[1]}={where[field[1]]!r}: {why}") from None


def whole(option: str, value: int, least: int, most: int) -> int:
    """A whole number from `least` to `most`."""
    try:
        value = operator.index(value)
    except TypeError:
        raise OptionError(f"{option}={value!r}: a whole number is needed") from None
    if not least <= value <= most:
        raise OptionError(f"{option}={value}: {least} to {most} are possible")
    return value


def queries(option: str, value: float) -> float:
    """A number of queries, at least one."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise OptionError(f"{option}={value!r}: a number of queries is needed") from None
    if not 1 <= number < float("inf"):
        raise OptionError(f"{option}={value}: 1 or more queries are possible")
    return number


def seconds(option: str, value: float) -> float:
    """A time, 0 to 65000 seconds."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise OptionError(f"{option}={value!r}: a number of seconds is needed") from None
    if not 0 <= number <= 65000:
        raise OptionError(f"{option}={value}: 0 to 65000 seconds are possible")
    return number


def batch(value: int) -> int:
    """How many images a query has."""
    images = whole("batch", value, -(2**63), 2**63 - 1)
    _native.check_batch("batch", images)
    return images


def path(option: str, value: Any) -> Path:
    """The path of a file."""
    try:
        return Path(os.fsdecode(value))
    except TypeError:
        raise OptionError(f"{option}={value!r:.60}: a path is needed, a str or a pathlib.Path") from None


def place(option: str, value: Any) -> Path:
    """The path of a file that is to be written: where that cannot be is told before the work."""
    file = path(option, value)
    if file.is_dir():
        raise OptionError(f"{option}: {file} is a folder; a file's name is needed")
    if not file.parent.is_dir():
        raise OptionError(f"{option}: {file}: {file.parent} is no folder")
    return file


def names(option: str, given: str | Sequence[str]) -> list[str]:
    """One name, or several."""
    if not isinstance(given, Sequence):
        raise OptionError(f"{option}={given!r}: a name, or a list of names, is needed")
    return [given] if isinstance(given, str) else list(given)


def numbers(option: str, value: Any) -> list[float]:
    """One number, or an array of them."""
    try:
        return [float(v) for v in np.asarray(value, dtype=np.float64).reshape(-1)]
    except (TypeError, ValueError):
        raise OptionError(f"{option}={value!r}: a number, or an array of numbers, is needed") from None
