"""Pictures that tests compare with, made by Pillow and torch:

    python tools/make_pictures.py          # Pillow 13, torch 2.8 made those in the tree

- `crates/graph/tests/fixtures/resized.rgb`: what Pillow makes of noise, by filter and size;
- `crates/graph/tests/fixtures/interpolated.rgb`: what torch interpolates without antialiasing;
- `crates/compile/tests/fixtures/`: one picture in many formats, each with the RGB pixels that Pillow reads (`.rgb`: width,
  height, three bytes a pixel).
"""

import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
SIZES = [(37, 23, 16, 10), (23, 37, 23, 11), (20, 20, 31, 27), (50, 9, 7, 12), (3, 2, 1, 1), (41, 30, 13, 30)]
# In the order of the crate's filters.
FILTERS = [
    Image.Resampling.NEAREST,
    Image.Resampling.BOX,
    Image.Resampling.BILINEAR,
    Image.Resampling.HAMMING,
    Image.Resampling.BICUBIC,
    Image.Resampling.LANCZOS,
]


def resized():
    folder, rng = ROOT / "crates/graph/tests/fixtures", np.random.default_rng(1)
    with open(folder / "resized.rgb", "wb") as out:
        for number, kind in enumerate(FILTERS):
            for w, h, nw, nh in SIZES:
                pixels = rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
                new = np.asarray(Image.fromarray(pixels).resize((nw, nh), kind))
                out.write(struct.pack("<5I", number, w, h, nw, nh) + pixels.tobytes() + new.tobytes())
    with open(folder / "interpolated.rgb", "wb") as out:
        for w, h, nw, nh in SIZES[:4]:
            pixels = rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
            tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
            new = torch.nn.functional.interpolate(tensor, (nh, nw), mode="bilinear", align_corners=False, antialias=False)
            new = new[0].permute(1, 2, 0).contiguous().numpy().astype("<f4")
            out.write(struct.pack("<5I", len(FILTERS), w, h, nw, nh) + pixels.tobytes() + new.tobytes())


def png(path, pixels, colour):
    """A PNG of 16 bits a value, which Pillow does not write in colour: `pixels` are [height, width, channels]."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)


def formats():
    folder = ROOT / "crates/compile/tests/fixtures"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    # Smooth, so that decoders of JPEG agree within a unit or two; nothing in it is symmetric.
    width, height = 24, 16
    y, x = np.mgrid[0:height, 0:width]
    smooth = np.stack([255 * x / (width - 1), 255 * y / (height - 1), 128 + 90 * np.sin((x + 2 * y) / 9)], axis=2)
    rgb = Image.fromarray(smooth.round().astype(np.uint8))
    alpha = Image.fromarray((255 * ((x + y) % 3 == 0)).astype(np.uint8))

    def save(name, image, expected=None, **options):
        path = folder / name
        image.save(path, **options)
        golden(path, expected or Image.open(path).convert("RGB"))

    def golden(path, image):
        data = struct.pack("<II", *image.size) + np.asarray(image).tobytes()
        path.with_name(path.name + ".rgb").write_bytes(data)

    grey_alpha = Image.merge("LA", (rgb.convert("L"), alpha))
    rgba = Image.merge("RGBA", (*rgb.split(), alpha))
    save("grey.png", rgb.convert("L"))
    save("grey-alpha.png", grey_alpha)
    save("rgba.png", rgba)
    save("palette.png", rgb.quantize(16))
    save("palette-transparent.png", rgb.quantize(16), transparency=3)
    save("black-white.png", rgb.convert("1"))
    save("grey.bmp", rgb.convert("L"))
    save("palette.bmp", rgb.quantize(16))
    save("palette.gif", rgb.quantize(16))
    save("rgba.webp", rgba, lossless=True, exact=True)
    save("grey.jpg", rgb.convert("L"), quality=95)
    save("progressive.jpg", rgb, quality=95, subsampling=0, progressive=True)
    save("cmyk.jpg", rgb.convert("CMYK"), quality=95, subsampling=0)
    save("grey.pgm", rgb.convert("L"))
    # 16 bits: v becomes round(v / 257). (Pillow cuts such grey off at 255, and drops the low byte of colours.)
    rng = np.random.default_rng(2)
    deep = rng.integers(0, 65536, (height, width, 4), dtype=np.uint16)
    eight = (np.arange(65536) / 257).round().astype(np.uint8)[deep]
    for name, channels, colour in [("16-bit-grey", [0], 0), ("16-bit", [0, 1, 2], 2), ("16-bit-rgba", [0, 1, 2, 3], 6)]:
        png(folder / f"{name}.png", deep[:, :, channels], colour)
        shown = [0, 0, 0] if len(channels) == 1 else [0, 1, 2]
        golden(folder / f"{name}.png", Image.fromarray(np.ascontiguousarray(eight[:, :, shown])))
    # By name refused.
    rgb.save(folder / "refused.tiff")


if __name__ == "__main__":
    resized()
    formats()
