"""Steps of training that are recorded as a CUDA graph and replayed.

A GPU that would wait for its next kernel gets all of them at once. A step of a small transformer is some thousand
kernels of some microseconds each, so that the processor which launches them is what is waited for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# So many steps are taken as they stand: what libraries choose and allocate the first time is not recorded.
FIRST = 3


class Replayed:
    """A step over tensors of fixed shapes on one GPU: it takes the same ones, or None, each time and returns a tensor.

    The step must do the same each time: what differs must be in tensors, which stay where they are. What it returns is
    overwritten by the next step.
    """

    def __init__(self, step: Callable[..., Tensor]) -> None:
        self._step = step
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._taken = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor | None] = []
        self._made: Tensor | None = None

    def __call__(self, *inputs: Tensor | None) -> Tensor:
        if self._taken < FIRST:
            self._taken += 1
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                made = self._step(*inputs)
            torch.cuda.current_stream().wait_stream(self._stream)
            return made
        if self._graph is None:
            self._inputs = [None if given is None else given.clone() for given in inputs]
            graph = torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
            with torch.cuda.graph(graph):
                self._made = self._step(*self._inputs)
            self._graph = graph
        for kept, given in zip(self._inputs, inputs, strict=True):
            if kept is not None and given is not None and kept.shape == given.shape and kept.dtype == given.dtype:
                kept.copy_(given)
            elif kept is not None or given is not None:
                raise ValueError("a step that is replayed takes tensors of the same shapes and types each time")
        self._graph.replay()  # type: ignore[no-untyped-call]
        assert self._made is not None
        return self._made
