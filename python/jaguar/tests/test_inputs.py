"""What may be given as an image: the table of the package's page, and the errors for what is not in it."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaguar
import numpy as np
import pytest
from conftest import TINY, VECTOR, images
from jaguar import _inputs
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

HOW = jaguar.Preprocessing(pixel_scale=1 / 255, mean=0.5, std=0.25)


def pixels(*shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, size=shape, dtype=np.uint8)


@pytest.fixture(scope="module")
def of_pictures() -> jaguar.Model:
    return jaguar.compile(TINY, pixels(12, 16, 16, 3, seed=1), preprocessing=HOW)


def png(array: Pixels) -> bytes:
    """A picture as a PNG file has it, in grey, colours, or with transparency."""
    height, width, channels = array.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + row.tobytes() for row in array)
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def logits(found: list[jaguar.Prediction]) -> list[list[int]]:
    return [one.integers.tolist() for one in found if one.integers is not None]


class OfPil:
    """As much of a picture of PIL as is asked for: the tests' environment has no PIL (with it: `test_torch.py`)."""

    def __init__(self, array: Pixels, mode: str = "RGB", orientation: int | None = None) -> None:
        self.array, self.mode, self.orientation = array, mode, orientation

    def getbands(self) -> tuple[str, ...]:
        return tuple(self.mode)

    def getexif(self) -> dict[int, int]:
        return {} if self.orientation is None else {0x0112: self.orientation}

    def convert(self, mode: str) -> Pixels:
        assert mode == "RGB"
        if self.array.size == 0:
            raise OSError("image file is truncated (0 bytes not processed)")
        return self.array


def test_a_picture_in_every_form(of_pictures: jaguar.Model, tmp_path: Path) -> None:
    """Grey, in colours, and with transparency: as an array, encoded, in files, of PIL. All are the same picture."""
    for channels in (1, 3, 4):
        whole = pixels(16, 16, channels, seed=channels)
        colours = np.repeat(whole, 3, axis=2) if channels == 1 else whole[:, :, :3]
        encoded = png(whole)
        path = tmp_path / f"{channels}.png"
        path.write_bytes(encoded)
        forms: list[Any] = [whole, whole[None], encoded, bytearray(encoded), memoryview(encoded), path, str(path), io.BytesIO(encoded)]
        forms += [OfPil(colours), OfPil(colours, orientation=1), np.asfortranarray(whole), whole[::-1][::-1], whole.view(np.ndarray)]
        if channels == 1:
            forms += [whole[:, :, 0], whole[None, :, :, 0], whole[None, None, :, :, 0][0]]
        expected = logits(of_pictures.simulate([np.ascontiguousarray(colours)]))
        assert len(expected) == 1
        for form in forms:
            if not isinstance(form, io.BytesIO):
                assert logits(of_pictures.simulate(form)) == expected, (channels, form)
            assert logits(of_pictures.simulate([form])) == expected, (channels, form)
        with path.open("rb") as file:
            assert logits(of_pictures.simulate(file)) == expected
        with path.open("rb", buffering=0) as raw:
            assert logits(of_pictures.simulate([raw])) == expected
    tensor = images(1, seed=4)[0] * np.float32(0.3)
    saved = io.BytesIO()
    np.save(saved, tensor)
    expected = logits(of_pictures.simulate([tensor]))
    assert logits(of_pictures.simulate(saved.getvalue())) == expected, "a .npy file's bytes are a tensor"
    saved.seek(0)
    assert logits(of_pictures.simulate([saved])) == expected


def test_several_are_a_dimension_more(of_pictures: jaguar.Model) -> None:
    for shape in [(5, 16, 16), (5, 16, 16, 1), (5, 1, 16, 16), (5, 16, 16, 3), (5, 16, 16, 4), (2, 20, 9)]:
        batch = pixels(*shape, seed=sum(shape))
        one_by_one = logits(of_pictures.simulate(list(batch)))
        assert len(one_by_one) == shape[0], shape
        assert logits(of_pictures.simulate(batch)) == one_by_one, shape
        with pytest.raises(jaguar.InputError, match=rf"{shape[0]} inputs in an array of shape .*; predict_many, "):
            _inputs.one(batch)
    # Pictures of one batch may be encoded, each, and of every kind.
    mixed = [png(pixels(16, 16, 3)), io.BytesIO(png(pixels(9, 12, 1))), pixels(16, 16), OfPil(pixels(16, 16, 3))]
    assert len(of_pictures.simulate(mixed)) == 4
    assert len(of_pictures.simulate(one for one in [pixels(16, 16), png(pixels(8, 8, 4))])) == 2
    assert of_pictures.simulate([]) == of_pictures.simulate(pixels(0, 16, 16, 3)) == []


def test_the_last_dimension_tells_channels(of_pictures: jaguar.Model) -> None:
    """Three dimensions of bytes are one picture where the last one is 1, 3 or 4: also for pictures that are so narrow."""
    for channels in (1, 3, 4):
        assert len(of_pictures.simulate(pixels(5, 16, channels))) == 1
    assert len(of_pictures.simulate(pixels(5, 16, 3, 1))) == 5, "grey ones of three columns have their channel"
    # Of another size than the network's: it is brought to it, as the model says.
    assert len(of_pictures.simulate(pixels(40, 31, 3))) == 1
    for channels in (3, 4):
        part = rf"\[{channels}, 16, 16\]: {channels} channels come last"
        for take in (_inputs.one, of_pictures.simulate):
            with pytest.raises(jaguar.InputError, match=rf"{part}.*or are they {channels} grey"):
                take(pixels(channels, 16, 16))
        with pytest.raises(jaguar.InputError, match=rf"input 0: a picture of shape {part}"):
            of_pictures.simulate(pixels(2, channels, 16, 16))
    with pytest.raises(jaguar.InputError, match=r"\[5, 16, 2\]: two channels"):
        of_pictures.simulate(pixels(5, 16, 2))


def test_tensors_of_a_network_that_takes_a_vector(tmp_path: Path) -> None:
    """A dimension more than one input has, of however many dimensions that is."""
    x = np.random.default_rng(2).normal(size=(12, 12)).astype(np.float32)
    model = jaguar.compile(VECTOR, x)
    assert model.agreement is not None and model.agreement.images == 12
    expected = logits(model.simulate(list(x)))
    for form in (x, x[:, None], x[:, :, None, None], x.astype(np.float64), x.astype(">f4")):
        assert logits(model.simulate(form)) == expected, form.shape
    assert logits(model.simulate(x[0])) == logits(model.simulate(x[:1])) == expected[:1]
    assert model.simulate(x[:0]) == []
    accuracy = model.evaluate(x, [one.label for one in model.simulate(x)])
    assert accuracy.integer.top[1] == 1.0
    model.report(tmp_path / "page.html", x[:2])
    with jaguar.Server(model, max_batch=2, measure="off") as server, jaguar.Client(server.address, cache=False) as client:
        assert [one.label for one in client.predict_many(x[:3])] == [one.label for one in model.simulate(x[:3])]
        assert len(client.predict_many(x[:3], batch=2)) == 3
        assert client.predict(x[0]).label == model.simulate(x[:1])[0].label
        with pytest.raises(jaguar.InputError, match=r"\[3, 12\]; the network takes"):
            client.predict(x[:3])


def test_encoded_pictures_are_asked_about(of_pictures: jaguar.Model) -> None:
    files = [png(pixels(16, 16, channels, seed=channels)) for channels in (1, 3, 4)]
    with jaguar.Server(of_pictures, measure="off") as server, jaguar.Client(server.address, cache=False) as client:
        [exact] = of_pictures.simulate(files[1])
        assert client.predict(files[1]).label == client.predict(io.BytesIO(files[1])).label == exact.label
        assert len(client.predict_many([io.BytesIO(file) for file in files])) == 3
        with pytest.raises(jaguar.InputError, match=r"input 1: neither an image nor a tensor; JPEG, PNG"):
            client.predict_many([files[0], b"no picture"])
        assert client.predict(files[1]).label == exact.label, "the client goes on"


class Reader:
    """A file of whatever is read from it."""

    name = "somewhere"

    def __init__(self, read: Callable[[int], Any]) -> None:
        self.read = read


def closed() -> io.BytesIO:
    file = io.BytesIO(b"x")
    file.close()
    return file


def at_its_end() -> io.BytesIO:
    file = io.BytesIO()
    file.write(b"x")
    return file


def test_wrong_inputs_say_what_and_what_to_do(of_pictures: jaguar.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text.jpg"
    text.write_text("no picture")
    (tmp_path / "empty.png").touch()
    (tmp_path / "cut.png").write_bytes(png(pixels(16, 16, 3))[:60])
    np.save("objects.npy", np.array([{}, None]), allow_pickle=True)
    np.save("nan.npy", np.array([[[1.0, np.nan]]], np.float32))
    np.save("columns.npy", np.asfortranarray(np.zeros((3, 16, 16), np.float32)))
    np.save("rows.npy", np.zeros((16, 16, 3), np.uint8))
    np.save("fields.npy", np.zeros(2, [("a", "<f4"), ("b", "<f4")]))
    (tmp_path / "text.npy").write_text("1, 2, 3")
    (tmp_path / "empty.npy").touch()
    for bad, part in [
        ("absent.jpg", r"absent\.jpg: No such file"),
        ("https://example.org/cat.jpg", r"https://example\.org/cat\.jpg: an address on the web"),
        (b"text.jpg", r"b'text\.jpg': .* a file's name: give it as a str"),
        (text, r"text\.jpg: neither an image nor a tensor; JPEG, PNG"),
        ("empty.png", r"empty\.png: nothing is in it"),
        ("cut.png", r"cut\.png: the picture cannot be decoded, it may be damaged or cut off"),
        ("objects.npy", r"objects\.npy: the values are of type '\|O'; .*astype\(numpy\.float32\)"),
        ("nan.npy", r"nan\.npy: the tensor has a value NaN at \[0, 0, 1\]: finite numbers"),
        ("columns.npy", r"columns\.npy: the tensor is in Fortran order; .*ascontiguousarray"),
        ("rows.npy", r"rows\.npy: the tensor's shape is \[16, 16, 3\]; the network takes \[3, 16, 16\]"),
        ("fields.npy", r"fields\.npy: the values are of type \[\('a', '<f4'\), \('b', '<f4'\)\]"),
        ("text.npy", r"text\.npy: no \.npy file: .*; numpy\.save writes one"),
        ("empty.npy", r"empty\.npy: nothing is in it \(0 bytes\)"),
        (b"", r"input 0: nothing is in it \(0 bytes\)"),
        (b"\x93NUMPY", r"input 0: "),
        (io.BytesIO(b"no picture"), r"a BytesIO: neither an image nor a tensor"),
        (at_its_end(), r"a BytesIO: nothing is left to read; .*seek\(0\)"),
        (closed(), r"a BytesIO: it cannot be read: I/O operation on closed file"),
        (io.StringIO("x"), r'a StringIO: it was opened as text; .*open\(\.\.\., "rb"\)'),
        (Reader(lambda _: np.zeros(3)), r"somewhere: reading it gives a ndarray, not bytes"),
        (OfPil(pixels(0, 0, 3)), r"a picture of PIL: image file is truncated"),
        (OfPil(pixels(1, 1, 3), "I;16"), r"mode 'I;16', with more than 8 bits"),
        (OfPil(pixels(1, 1, 3), "F"), r"mode 'F', with more than 8 bits"),
        (pixels(48), r"a picture of shape \[48\]: an encoded picture is given as bytes: array\.tobytes\(\)"),
        (pixels(16, 16, 2), r"\[16, 16, 2\]: two channels, .*array\[:, :, 0\]"),
        (pixels(1, 2, 3, 4, 5), r"a picture of shape \[1, 2, 3, 4, 5\]: bytes \(uint8\) are pixels"),
        (pixels(0, 0, 3), r"a picture of 0 rows and 0 columns"),
        (pixels(40000, 1), r"an image of 1x40000 pixels is out of range: a side has 1 to 32768"),
        (np.zeros((16, 16, 3), np.int64), r"an array of int64: .*astype\(numpy\.uint8\)"),
        (np.zeros((16, 16, 3), np.uint16), r"an array of uint16: "),
        (np.zeros((16, 16, 3), bool), r"an array of bool: "),
        (np.zeros((3, 16, 16), complex), r"an array of complex128, .* is no image"),
        (np.zeros(3, object), r"an array of object, .* is no image"),
        (
            np.zeros((16, 16, 3), np.float32),
            r"\[16, 16, 3\]; .* \(an array of floats is .*; pixels are an array of uint8\)",
        ),
        (np.full((3, 16, 16), np.nan, np.float32), r"the tensor has a value NaN at \[0, 0, 0\]: finite numbers are needed"),
        (np.full((3, 16, 16), 1e300), r"the tensor has a value inf at \[0, 0, 0\]"),
        (np.float32(1), r"a float32 is no image: a path"),
        (7, r"a int is no image: a path"),
        (None, r"a NoneType is no image: a path"),
    ]:
        with pytest.raises(jaguar.InputError, match=part):
            of_pictures.simulate([bad])
    for bad, part in [
        ({"cat": "cat.jpg"}, r"a dict is no list of images: .*list\(given\.values\(\)\)"),
        ({"cat.jpg"}, r"a set has no order"),
        (tmp_path / "nowhere", r"nowhere: No such file"),
        ([text, [pixels(16, 16), 3]], r"input 1: a list is no image"),
    ]:
        with pytest.raises(jaguar.InputError, match=part):
            of_pictures.simulate(bad)
    with pytest.raises(jaguar.InputError, match=r"a folder; predict_many"):
        _inputs.one(tmp_path)
    with pytest.warns(jaguar.JaguarWarning, match=r"EXIF orientation 6\).*exif_transpose"):
        of_pictures.simulate([OfPil(pixels(16, 16, 3), orientation=6)])


def test_encoded_calibration(tmp_path: Path) -> None:
    """Compiling takes them too, and knows pictures from tensors."""
    arrays = pixels(12, 16, 16, 3, seed=1)
    model = jaguar.compile(TINY, [png(one) for one in arrays], preprocessing=HOW)
    same = jaguar.compile(TINY, arrays, preprocessing=HOW)
    assert logits(model.simulate(arrays[:2])) == logits(same.simulate(arrays[:2]))
    page = model.report(tmp_path / "page.html", [io.BytesIO(png(arrays[0]))]).read_text()
    assert "a BytesIO" in page and "data:image" in page
    with pytest.warns(jaguar.JaguarWarning, match="pixel_scale=1/255"):
        jaguar.compile(TINY, [io.BytesIO(png(one)) for one in arrays])
