"""A `torch.nn.Module` as ONNX."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Sequence
from typing import Any

from jaguar.errors import ExportError, OptionError

OPSET = 18


def is_module(model: object) -> bool:
    """Whether it is a module of torch, which need not be installed."""
    return any(base.__module__.partition(".")[0] == "torch" and base.__name__ == "Module" for base in type(model).__mro__)


def _legacy(torch: Any, module: Any, example: Any, file: io.BytesIO) -> None:
    torch.onnx.export(module, (example,), file, opset_version=OPSET, dynamo=False, do_constant_folding=True)


def _dynamo(torch: Any, module: Any, example: Any, file: io.BytesIO) -> None:
    program = torch.onnx.export(module, (example,), dynamo=True, opset_version=OPSET, verbose=False)
    # In one piece, weights and all.
    file.write(program.model_proto.SerializeToString())


_EXPORTERS = {"legacy": _legacy, "dynamo": _dynamo}


def check(exporter: str) -> None:
    """Raises an `OptionError` where there is no such exporter."""
    if exporter not in ("auto", *_EXPORTERS):
        raise OptionError(f'exporter={exporter!r}: "auto", "legacy" and "dynamo" are possible')


def export(module: Any, input_shape: Sequence[int], exporter: str) -> bytes:
    """The module as it does inference, for an input of this shape (with the batch, which is 1)."""
    import torch

    check(exporter)
    example = torch.zeros(tuple(input_shape))
    parameter = next(module.parameters(), None)
    if parameter is not None:
        example = example.to(device=parameter.device, dtype=parameter.dtype)
    training = {part: part.training for part in module.modules()}
    failures: list[str] = []
    # The older one gives the same graph with every release of torch; the newer one takes modules that cannot be traced.
    names = list(_EXPORTERS) if exporter == "auto" else [exporter]
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    module.eval()
    try:
        for name in names:
            file = io.BytesIO()
            try:
                with warnings.catch_warnings(), torch.no_grad():
                    warnings.simplefilter("ignore")
                    quiet.setLevel(logging.ERROR)
                    _EXPORTERS[name](torch, module, example, file)
                return file.getvalue()
            except Exception as error:  # whatever the exporters raise
                reason = str(error).strip().splitlines() or [type(error).__name__]
                failures.append(f"  the {name} exporter: {reason[0]}")
    finally:
        quiet.setLevel(level)
        for part, was in training.items():
            part.training = was
    raise ExportError("torch cannot export this module as ONNX:\n" + "\n".join(failures))
