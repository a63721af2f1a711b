"""What `run.py` compares: each network as an ONNX file for ours, and as a function of jax for SPU, of the same weights.

The weights are random, from a fixed seed, and pass signals: linear layers of deviation 1/sqrt(inputs), factors of norms 0.5 to 1.5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import helper, numpy_helper

SEED = 20260101
OPSET = 20
# Of ViT-Tiny: tokens, width, heads; and what its MLP widens to.
TOKENS, WIDTH, HEADS, HIDDEN = 197, 192, 3, 768
# Of ConvNeXt-Tiny's third stage: channels, height and width.
CHANNELS, SIDE = 384, 14
EPSILON = 1e-6

Weights = dict[str, np.ndarray]
Function = Callable[..., jax.Array]


def gelu_of_pieces(x: jax.Array) -> jax.Array:
    """GELU by a cubic on [-4, -1.95) and a polynomial of degree six on [-1.95, 3], zero below and x above: PUMA (Dong et al., 2023),
    section 4.1, which SPU's own examples of transformers take."""
    low, middle, high = x < -4.0, x < -1.95, x > 3.0
    square = jnp.square(x)
    cube, fourth = x * square, jnp.square(square)
    left = -0.011034134030615728 * cube - 0.11807612951181953 * square - 0.42226581151983866 * x - 0.5054031199708174
    centre = (0.0018067462606141187 * jnp.square(cube) - 0.037688200365904236 * fourth + 0.3603292692789629 * square
              + 0.5 * x + 0.008526321541038084)
    return high * x + (low ^ middle) * left + (middle ^ high ^ True) * centre


def gelu_by_tanh(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=True)


def silu_by_tanh(x: jax.Array) -> jax.Array:
    """x * sigmoid(x), by SPU's tanh, in a fifth of the time that its logistic function takes."""
    return x * (0.5 + 0.5 * jnp.tanh(0.5 * x))


def softmax_clipped(x: jax.Array) -> jax.Array:
    """As PUMA and SPU's examples have it: e^x is zero below -14, where SPU's exponential is no longer right."""
    x = x - jnp.max(x, -1, keepdims=True)
    powers = jnp.exp(x) * (x > -14)
    return powers / jnp.sum(powers, -1, keepdims=True)


def layer_norm(x: jax.Array, factors: jax.Array, offsets: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), -1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + EPSILON) * factors + offsets


def vit_block(gelu: Function, softmax: Function) -> Function:
    def run(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
        x = x[0, 0]
        y = layer_norm(x, w["factors1"], w["offsets1"]) @ w["qkv"] + w["qkv_bias"]
        q, k, v = jnp.transpose(y.reshape(TOKENS, 3, HEADS, WIDTH // HEADS), (1, 2, 0, 3))
        scores = jnp.matmul(q, jnp.transpose(k, (0, 2, 1))) * (WIDTH // HEADS) ** -0.5
        mixed = jnp.transpose(jnp.matmul(softmax(scores), v), (1, 0, 2)).reshape(TOKENS, WIDTH)
        x = x + mixed @ w["out"] + w["out_bias"]
        y = gelu(layer_norm(x, w["factors2"], w["offsets2"]) @ w["up"] + w["up_bias"])
        return x + y @ w["down"] + w["down_bias"]

    return run


def convnext_block(gelu: Function) -> Function:
    """Its depthwise convolution as a batch of products of matrices, [places, 49] by [49, 1] for each channel."""
    def run(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
        padded = jnp.pad(x[0], ((0, 0), (3, 3), (3, 3)))
        windows = jnp.stack([padded[:, i:i + SIDE, j:j + SIDE].reshape(CHANNELS, -1) for i in range(7) for j in range(7)], -1)
        y = jnp.matmul(windows, w["window"].reshape(CHANNELS, 49, 1))[..., 0] + w["window_bias"][:, None]
        y = gelu(layer_norm(y.T, w["factors"], w["offsets"]) @ w["up"] + w["up_bias"])
        y = (y @ w["down"] + w["down_bias"]) * w["scale"]
        return x[0] + y.T.reshape(CHANNELS, SIDE, SIDE)

    return run


def vit_weights(rng: np.random.Generator) -> Weights:
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    return linear(rng, shapes) | norm(rng, WIDTH, "1") | norm(rng, WIDTH, "2")


def convnext_weights(rng: np.random.Generator) -> Weights:
    shapes = {"up": (CHANNELS, 4 * CHANNELS), "down": (4 * CHANNELS, CHANNELS)}
    window = {"window": rng.normal(0, 1 / 7, (CHANNELS, 1, 7, 7)), "window_bias": rng.normal(0, 0.2, CHANNELS), "scale": rng.uniform(0.5, 1.5, CHANNELS)}
    return linear(rng, shapes) | norm(rng, CHANNELS) | {name: value.astype(np.float32) for name, value in window.items()}


def linear(rng: np.random.Generator, shapes: dict[str, tuple[int, int]]) -> Weights:
    """Matrices [inputs, outputs] and biases."""
    made = {name: rng.normal(0, shape[0] ** -0.5, shape) for name, shape in shapes.items()}
    made |= {f"{name}_bias": rng.normal(0, 0.2, shape[1]) for name, shape in shapes.items()}
    return {name: value.astype(np.float32) for name, value in made.items()}


def norm(rng: np.random.Generator, width: int, number: str = "") -> Weights:
    return {f"factors{number}": rng.uniform(0.5, 1.5, width).astype(np.float32), f"offsets{number}": rng.normal(0, 0.2, width).astype(np.float32)}


VIT_NODES = [
    ("Squeeze", ["x", "one"], "tokens", {}),
    ("LayerNormalization", ["tokens", "factors1", "offsets1"], "n1", {"epsilon": EPSILON}),
    ("MatMul", ["n1", "qkv"], "a", {}), ("Add", ["a", "qkv_bias"], "b", {}),
    ("Reshape", ["b", "heads"], "c", {}), ("Transpose", ["c"], "d", {"perm": [2, 0, 3, 1, 4]}),
    *(("Gather", ["d", index], name, {"axis": 0}) for index, name in (("zero", "q"), ("first", "k"), ("second", "v"))),
    ("Transpose", ["k"], "kt", {"perm": [0, 1, 3, 2]}), ("MatMul", ["q", "kt"], "qk", {}), ("Mul", ["qk", "root"], "scores", {}),
    ("Softmax", ["scores"], "p", {"axis": -1}), ("MatMul", ["p", "v"], "pv", {}),
    ("Transpose", ["pv"], "e", {"perm": [0, 2, 1, 3]}), ("Reshape", ["e", "flat"], "f", {}),
    ("MatMul", ["f", "out"], "g", {}), ("Add", ["g", "out_bias"], "h", {}), ("Add", ["tokens", "h"], "i", {}),
    ("LayerNormalization", ["i", "factors2", "offsets2"], "n2", {"epsilon": EPSILON}),
    ("MatMul", ["n2", "up"], "j", {}), ("Add", ["j", "up_bias"], "k2", {}), ("Gelu", ["k2"], "l", {}),
    ("MatMul", ["l", "down"], "m", {}), ("Add", ["m", "down_bias"], "n", {}), ("Add", ["i", "n"], "y", {}),
]
VIT_CONSTANTS = {
    "one": np.array([1]), "heads": np.array([1, TOKENS, 3, HEADS, WIDTH // HEADS]), "zero": np.array(0), "first": np.array(1), "second": np.array(2),
    "root": np.float32((WIDTH // HEADS) ** -0.5), "flat": np.array([1, TOKENS, WIDTH]),
}
CONVNEXT_NODES = [
    ("Conv", ["x", "window", "window_bias"], "a", {"group": CHANNELS, "kernel_shape": [7, 7], "pads": [3, 3, 3, 3]}),
    ("Transpose", ["a"], "b", {"perm": [0, 2, 3, 1]}), ("LayerNormalization", ["b", "factors", "offsets"], "c", {"epsilon": EPSILON}),
    ("MatMul", ["c", "up"], "d", {}), ("Add", ["d", "up_bias"], "e", {}), ("Gelu", ["e"], "f", {}),
    ("MatMul", ["f", "down"], "g", {}), ("Add", ["g", "down_bias"], "h", {}), ("Mul", ["h", "scale"], "i", {}),
    ("Transpose", ["i"], "j", {"perm": [0, 3, 1, 2]}), ("Add", ["x", "j"], "y", {}),
]


@dataclass(frozen=True)
class Case:
    """A network of one input `x`, `[1, C, H, W]`, of deviation `deviation`, and one output `y`."""

    name: str
    shape: tuple[int, int, int, int]
    # Operator, inputs, output, attributes.
    nodes: list[tuple[str, list[str], str, dict]]
    # By name of the form, the most accurate first: functions of the input and the weights.
    forms: dict[str, Function]
    weigh: Callable[[np.random.Generator], Weights] = lambda rng: {}
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    deviation: float = 1.0

    def weights(self) -> Weights:
        return self.weigh(np.random.default_rng(SEED))

    def inputs(self, count: int) -> list[np.ndarray]:
        rng = np.random.default_rng([SEED, 1])
        return [rng.normal(0, self.deviation, self.shape).astype(np.float32) for _ in range(count)]

    def export(self, path: Path) -> None:
        nodes = [helper.make_node(operator, inputs, [output], **attributes) for operator, inputs, output, attributes in self.nodes]
        values = [numpy_helper.from_array(np.asarray(value), name) for name, value in (self.weights() | self.constants).items()]
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self.shape)
        y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, self.name, [x], [y], values)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        onnx.save(onnx.shape_inference.infer_shapes(model, strict_mode=True), path)


# Half as many values as the MLP of ViT-Tiny has.
CURVE = (1, 1, TOKENS, HIDDEN // 2)
CASES = [
    Case("GELU", CURVE, [("Gelu", ["x"], "y", {})],
         {"by its tanh": lambda x, w: gelu_by_tanh(x), "by PUMA's pieces": lambda x, w: gelu_of_pieces(x)}, deviation=2.0),
    Case("SiLU", CURVE, [("Sigmoid", ["x"], "s", {}), ("Mul", ["x", "s"], "y", {})],
         {"by its tanh": lambda x, w: silu_by_tanh(x)}, deviation=2.0),
    Case("LayerNorm", (1, 1, TOKENS, WIDTH), [("LayerNormalization", ["x", "factors", "offsets"], "y", {"epsilon": EPSILON})],
         {"by its rsqrt": lambda x, w: layer_norm(x, w["factors"], w["offsets"])}, lambda rng: norm(rng, WIDTH)),
    # (At the very end ours leaves a softmax to the client.)
    Case("softmax", (1, HEADS, TOKENS, TOKENS), [("Softmax", ["x"], "p", {"axis": -1}), ("Mul", ["p", "two"], "y", {})],
         {"of jax": lambda x, w: 2 * jax.nn.softmax(x, -1), "clipped, as PUMA's": lambda x, w: 2 * softmax_clipped(x)}, constants={"two": np.float32(2)}, deviation=2.0),
    Case("ConvNeXt block", (1, CHANNELS, SIDE, SIDE), CONVNEXT_NODES,
         {"GELU by PUMA's pieces": convnext_block(gelu_of_pieces)}, convnext_weights),
    Case("ViT-Tiny block", (1, 1, TOKENS, WIDTH), VIT_NODES,
         {"GELU by PUMA's pieces": vit_block(gelu_of_pieces, softmax_clipped)},
         vit_weights, VIT_CONSTANTS),
]
