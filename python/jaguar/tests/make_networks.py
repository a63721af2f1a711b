"""Makes the networks of these tests: `tiny.onnx`, one that takes a vector, and one with operators that cannot be run privately.

    python make_networks.py

Needs `onnx` and NumPy. The tests need neither this script nor `onnx`.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
rng = np.random.default_rng(20261122)


def weights(name: str, *shape: int) -> onnx.TensorProto:
    """Of a size that keeps activations as large as they are (He)."""
    fan_in = int(np.prod(shape[1:]))
    return numpy_helper.from_array((rng.normal(size=shape) * np.sqrt(2 / fan_in)).astype(np.float32), name)


def save(
    name: str, nodes: list[onnx.NodeProto], tensors: list[onnx.TensorProto], outputs: int, inputs: tuple[int, ...] = (3, 16, 16)
) -> None:
    x = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, *inputs])
    y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, outputs])
    graph = helper.make_graph(nodes, name, [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, HERE / f"{name}.onnx")


# Three-channel pictures of 16 x 16, four classes.
save(
    "tiny",
    [
        helper.make_node("Conv", ["image", "w1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"], name="relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"], name="average"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w3"], ["logits"], name="full", transB=1),
    ],
    [weights("w1", 8, 3, 3, 3), weights("w2", 12, 8, 3, 3), weights("w3", 4, 12)],
    4,
)
save(
    "unsupported",
    [
        helper.make_node("Conv", ["image", "w1"], ["c1"], name="conv1"),
        helper.make_node("Sqrt", ["c1"], ["t1"], name="sqroot"),
        helper.make_node("GlobalAveragePool", ["t1"], ["g"], name="average"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Exp", ["f"], ["logits"], name="exponentiation"),
    ],
    [weights("w1", 4, 3, 3, 3)],
    4,
)
# Twelve numbers, four classes.
save(
    "vector",
    [
        helper.make_node("Gemm", ["image", "w1"], ["f1"], name="full1", transB=1),
        helper.make_node("Relu", ["f1"], ["r1"], name="relu1"),
        helper.make_node("Gemm", ["r1", "w2"], ["logits"], name="full2", transB=1),
    ],
    [weights("w1", 16, 12), weights("w2", 4, 16)],
    4,
    (12,),
)
