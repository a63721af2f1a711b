"""What queries give: predictions, and what they cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jaguar.errors import OptionError

if TYPE_CHECKING:
    import pandas

    from jaguar import _native


class Cost:
    """What a query cost, layer by layer and stage by stage, beside what the plan predicted. `print` shows the command's tables.

    In a batch it is the cost of all images together, and the predictions of one query have one `Cost`."""

    def __init__(self, document: str, line: str, tables: str) -> None:
        #: Everything, as `jaguar predict --json` gives it: the keys `cost` and `predicted`, and of a batch `batch`.
        self.data: dict[str, Any] = json.loads(document)
        #: How many images the query had.
        self.images = 1
        #: How many of them were inputs; the others were zeros.
        self.inputs = 1
        if "batch" in self.data:
            self.images, self.inputs = int(self.data["batch"]["images"]), int(self.data["batch"]["inputs"])
            filled = f" (filled up to {self.images})" if self.inputs < self.images else ""
            line = f"{self.inputs} {'image' if self.inputs == 1 else 'images'}{filled}: {line}"
        #: The cost in a line.
        self.summary = line
        self._tables = tables

    def __str__(self) -> str:
        return f"{self.summary}\n\n{self._tables}"

    def __repr__(self) -> str:
        return f"<jaguar.Cost: {self.summary}>"

    @property
    def offline_seconds(self) -> float:
        """From the request to a prepared query: before the input."""
        return float(self.data["cost"]["offline_seconds"])

    @property
    def online_seconds(self) -> float:
        """From the input to the result."""
        return float(self.data["cost"]["online_seconds"])

    @property
    def bytes_up(self) -> int:
        """From the client to the server, before the input and with it."""
        cost = self.data["cost"]
        return int(cost["offline"]["bytes_up"]) + int(cost["online"]["bytes_up"])

    @property
    def bytes_down(self) -> int:
        """From the server to the client, before the input and with it; the hint, which comes once, is not counted."""
        cost = self.data["cost"]
        return int(cost["offline"]["bytes_down"]) + int(cost["online"]["bytes_down"])

    @property
    def rounds(self) -> int:
        """How often the client waited for an answer."""
        cost = self.data["cost"]
        return int(cost["offline"]["rounds"]) + int(cost["online"]["rounds"])

    def rows(self) -> list[dict[str, Any]]:
        """A flat dictionary for each layer: `name`, `operation`, `cots`, ..., `online_bytes_up`, ..."""
        found = []
        for row in self.data["cost"]["rows"]:
            flat: dict[str, Any] = {}
            for key, value in row.items():
                if isinstance(value, dict):
                    flat.update({f"{key}_{part}": number for part, number in value.items()})
                else:
                    flat[key] = value
            found.append(flat)
        return found

    def to_dataframe(self) -> pandas.DataFrame:
        """`rows` as a table of pandas, which must be installed."""
        import pandas

        return pandas.DataFrame(self.rows())


@dataclass(frozen=True, repr=False, eq=False)
class Prediction:
    """What a network says of one input."""

    #: The class that comes first. Of equal logits it is the one with the smaller number.
    label: int
    #: Its name: "class N" in a model without labels.
    name: str
    #: The model's logits, `[classes]` of float64. None where the server reveals the label alone.
    logits: NDArray[np.float64] | None
    #: What the model ends in (softmax, sigmoid) makes of them; a softmax over all where it ends in nothing.
    probabilities: NDArray[np.float64] | None
    #: The integer logits, `[classes]` of int64: what the two parties computed.
    integers: NDArray[np.int64] | None
    #: What the query cost: all images of a batch together. None where there was none (`Model.simulate`).
    cost: Cost | None = None
    _names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        sure = "" if self.probabilities is None else f", {100 * self.probabilities[self.label]:.1f} %"
        return f"<jaguar.Prediction: {self.name!r}, label {self.label}{sure}>"

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The names and probabilities of the classes that come first; nothing where only the label was revealed."""
        if self.integers is None or self.probabilities is None:
            return []
        if not isinstance(count, (int, np.integer)):
            raise OptionError(f"count={count!r}: a whole number is needed")
        order = np.argsort(-self.integers, kind="stable")[: max(count, 0)]
        names = self._names
        return [(names[i] if names else f"class {i}", float(self.probabilities[i])) for i in order]


def prediction(answer: _native.Answer, names: tuple[str, ...], cost: Cost | None = None) -> Prediction:
    """Of what the native part gives."""

    def floats(values: bytes | None) -> NDArray[np.float64] | None:
        return None if values is None else np.frombuffer(values, dtype=np.float64)

    integers = None if answer.integers is None else np.frombuffer(answer.integers, dtype=np.int64)
    logits, probabilities = floats(answer.logits), floats(answer.probabilities)
    return Prediction(answer.label, answer.name, logits, probabilities, integers, cost, names)
