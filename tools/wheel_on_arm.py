"""Installs the Python package's wheel for 64-bit Arm beside a Python for it, and does there what a newcomer does, under qemu.

    python3 tools/wheel_on_arm.py target/python/dist-aarch64-unknown-linux-gnu    # `make test-wheel-arm`

Debian's Python 3.11 for arm64 is unpacked into target/arm/python (apt-get with lists of its own: this machine's stay as they are, and
nobody needs to be root), and pip installs the wheel and NumPy as that Python would: it refuses a wheel whose tag is not right there.
Then python/jaguar/tests/try_wheel.py runs: import, compile, serve, ask. Says which tool is missing, and ends well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The oldest libc that the wheel is for is 2.17; NumPy's wheels ask for 2.28.
PLATFORMS = ["manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64"]
PACKAGES = ["python3.11", "libstdc++6"]


def apt(folder: Path, *arguments: str) -> bool:
    """Runs apt-get for arm64 with its state in a folder, and says whether it could."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    options = {
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "APT::Sandbox::User": "", "Debug::NoLocking": "1",
        "Dir::State": folder / "state", "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return subprocess.run(["apt-get", "-qq", *words, *arguments], stdout=subprocess.DEVNULL, check=False).returncode == 0


def python(folder: Path) -> Path | None:
    """The root of a Debian with a Python for arm64; nothing, where apt cannot get it."""
    root, ready = folder / "root", folder / "ready"
    if not ready.exists():
        fetch = ["install", "--yes", "--no-install-recommends", "--download-only", *PACKAGES]
        if not (apt(folder, "update") and apt(folder, *fetch)):
            return None
        for package in sorted((folder / "cache/archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, root], check=True)
        ready.touch()
    return root


def main(dist: Path) -> int:
    wheels = list(dist.glob("*_aarch64.whl"))
    if len(wheels) != 1:
        print(f"{dist} has {len(wheels)} wheels for 64-bit Arm: make wheel WHEEL_TARGET=aarch64-unknown-linux-gnu", file=sys.stderr)
        return 1
    if lacks := [tool for tool in ("qemu-aarch64", "apt-get", "dpkg-deb") if shutil.which(tool) is None]:
        print(f"skip: the wheel is not tried on 64-bit Arm, as there is no {', no '.join(lacks)}")
        return 0
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "arm/python"
    root = python(folder)
    if root is None:
        print(f"skip: the wheel is not tried on 64-bit Arm, as apt-get cannot fetch {' and '.join(PACKAGES)} for arm64")
        return 0
    site = folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", site, "--only-binary", ":all:", "--python-version", "3.11"]
    if subprocess.run([*pip, *platforms, wheels[0]], check=False).returncode != 0:
        print(f"pip does not install {wheels[0]} for Python 3.11 on {', '.join(PLATFORMS)}", file=sys.stderr)
        return 1
    print(f"{wheels[0].name} and {', '.join(sorted(found.stem for found in site.glob('numpy-*.dist-info')))}, in Debian's Python 3.11", flush=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(folder / "home")}
    command = ["qemu-aarch64", "-L", root, root / "usr/bin/python3.11", "try_wheel.py"]
    return subprocess.run(command, cwd=ROOT / "python/jaguar/tests", env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
