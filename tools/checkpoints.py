"""Readers for the weights that packages ship: pickled numpy arrays, torch's older checkpoints, Keras HDF5.

A pickle is a program. These readers let it build arrays and nothing else, so a checkpoint cannot run code.
"""

from __future__ import annotations

import collections
import io
import pickle
import struct

import numpy as np


class _Unpickler(pickle.Unpickler):
    """Knows the few names given to it."""

    def __init__(self, file, names: dict[tuple[str, str], object], encoding: str = "ASCII"):
        super().__init__(file, encoding=encoding)
        self.names = names

    def find_class(self, module: str, name: str):
        try:
            return self.names[(module, name)]
        except KeyError:
            raise pickle.UnpicklingError(f"the checkpoint asks for {module}.{name}, which no array needs") from None


def numpy_pickle(data: bytes):
    """A pickle of numpy arrays in plain containers."""
    # Where numpy kept its constructors before version 2; arrays pickled then name them so.
    core = getattr(np, "_core", None) or np.core
    names = {
        ("numpy.core.multiarray", "_reconstruct"): core.multiarray._reconstruct,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }
    return _Unpickler(io.BytesIO(data), names, encoding="latin1").load()


# What `torch.save` wrote before version 1.6.
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_TORCH_STORAGES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


def torch_state_dict(data: bytes) -> dict[str, np.ndarray]:
    """A state dict in torch's format of before 1.6 (pickles, then the raw storages), without torch."""
    file = io.BytesIO(data)
    plain = lambda: _Unpickler(file, {}).load()  # noqa: E731
    if plain() != _TORCH_MAGIC:
        raise ValueError("not a torch checkpoint of the old format")
    protocol, system = plain(), plain()
    if protocol != 1001 or not system["little_endian"]:
        raise ValueError(f"torch checkpoint of protocol {protocol}, {system}")

    # Tensors are views into storages whose bytes come later: note them, fill them in, then look.
    storages: dict[str, tuple[np.dtype, np.ndarray]] = {}
    views: list[tuple[str, tuple]] = []

    def rebuild(storage: str, offset: int, size: tuple, stride: tuple, *_) -> int:
        views.append((storage, (offset, size, stride)))
        return len(views) - 1

    names = {
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): rebuild,
        **{("torch", name): dtype for name, dtype in _TORCH_STORAGES.items()},
    }

    def storage(saved: tuple) -> str:
        kind, dtype, key, _location, count, _view = saved
        if kind != "storage":
            raise pickle.UnpicklingError(f"the checkpoint refers to a {kind}")
        storages[key] = (dtype, np.empty(count, dtype))
        return key

    reader = _Unpickler(file, names)
    reader.persistent_load = storage
    state = reader.load()
    for key in plain():
        dtype, values = storages[key]
        (count,) = struct.unpack("<q", file.read(8))
        if count != len(values):
            raise ValueError(f"storage {key} holds {count} values, announced were {len(values)}")
        values[:] = np.frombuffer(file.read(count * dtype.itemsize), dtype)

    tensors = {}
    for name, index in state.items():
        key, (offset, size, stride) = views[index]
        dtype, values = storages[key]
        steps = [s * dtype.itemsize for s in stride]
        tensors[name] = np.lib.stride_tricks.as_strided(values[offset:], size, steps, writeable=False).copy()
    return tensors


def keras_weights(data: bytes) -> dict[str, np.ndarray]:
    """Weights of a Keras HDF5 file, by `layer/name` (`conv2d/kernel`)."""
    import h5py

    weights = {}
    with h5py.File(io.BytesIO(data)) as file:
        def visit(name: str, entry) -> None:
            if isinstance(entry, h5py.Dataset):
                layer, *_, weight = name.split("/")
                weights[f"{layer}/{weight.removesuffix(':0')}"] = entry[()]

        file["model_weights"].visititems(visit)
    return weights
