"""Small networks as ONNX files, with random weights."""

import random
import struct

CLASSES = 10


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    """A field of a protocol buffer: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name, dims, values):
    dims = b"".join(field(1, d) for d in dims)
    return dims + field(2, 1) + field(8, name) + field(9, struct.pack(f"<{len(values)}f", *values))


def integers(name, values):
    return field(5, field(1, name) + b"".join(field(8, v) for v in values) + field(20, 7))


def node(kind, inputs, output, attributes=b""):
    names = b"".join(field(1, name) for name in inputs)
    return field(1, names + field(2, output) + field(3, output) + field(4, kind) + attributes)


def value(name, shape):
    dims = b"".join(field(1, field(1, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))


def layers(name, size, convolutions, classes, seed):
    """Convolutions of 3 x 3 with ReLUs, each by its channels and whether an average pool follows, and a layer of classes."""
    draw = random.Random(seed)
    nodes, constants = b"", b""
    at, channels, side = "image", 3, size
    for i, (out, pools) in enumerate(convolutions):
        spread = (2 / (9 * channels)) ** 0.5
        weights = [draw.gauss(0, spread) for _ in range(out * channels * 9)]
        constants += field(5, tensor(f"w{i}", [out, channels, 3, 3], weights))
        shape = integers("kernel_shape", [3, 3]) + integers("pads", [1] * 4)
        nodes += node("Conv", [at, f"w{i}"], f"c{i}", shape) + node("Relu", [f"c{i}"], f"r{i}")
        at, channels = f"r{i}", out
        if pools:
            pool = integers("kernel_shape", [2, 2]) + integers("strides", [2, 2])
            nodes += node("AveragePool", [at], f"p{i}", pool)
            at, side = f"p{i}", side // 2
    wide = channels * side * side
    weights = [draw.gauss(0, wide**-0.5) for _ in range(classes * wide)]
    constants += field(5, tensor("wf", [wide, classes], weights))
    nodes += node("Flatten", [at], "flat") + node("MatMul", ["flat", "wf"], "logits")
    graph = nodes + field(2, name) + constants
    graph += field(11, value("image", [1, 3, size, size])) + field(12, value("logits", [1, classes]))
    return field(1, 8) + field(8, field(1, "") + field(2, 13)) + field(7, graph)


def six_layers(seed=7):
    """Five convolutions, three pools, and a layer of ten classes, for pictures as of CIFAR-10."""
    return layers("six", 32, [(32, False), (32, True), (64, False), (64, True), (128, True)], CLASSES, seed)


def two_layers(seed=7):
    """As little as has every kind of step, for pictures of 8 x 8 pixels."""
    return layers("two", 8, [(4, True)], 4, seed)
