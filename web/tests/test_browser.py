"""The page of `jaguar serve --web` in headless Chromium, against a real server and beside the native client.

Run: python3 web/tests/test_browser.py (JAGUAR: the program; without it target/release/jaguar, or that of the dev profile). Where there is
no Chromium, it says so and ends.
"""

import base64
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
import zlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import network  # noqa: E402
import webdriver  # noqa: E402

CONNECT = "const { Client } = await import('/client/jaguar.js'); const url = location.origin.replace('http', 'ws');"
BYTES = "const blob = new Blob([Uint8Array.from(atob(args[0]), (c) => c.charCodeAt(0))]);"

# Of an answer about a picture, on a connection of its own: its class, the bytes that came, and those of the model's hint.
ASKED = (
    CONNECT
    + BYTES
    + """
    window.asked = async (options, blob) => {
        const client = await Client.connect(url, options);
        await client.prepare();
        const { label } = await client.predict(blob);
        client.close();
        return [label, client.traffic.received, client.model.hint_bytes];
    };
    window.hints = async () => {
        const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('jaguar-hints', { create: true });
        const files = [];
        for await (const file of folder.values()) files.push(file);
        return { folder, files };
    };
    window.content = async (bytes) => {
        const { files: [file] } = await hints();
        if (!bytes) return new Uint8Array(await (await file.getFile()).arrayBuffer());
        const stream = await file.createWritable();
        await stream.write(bytes);
        await stream.truncate(bytes.length);
        await stream.close();
    };
"""
)


def program():
    """The `jaguar` to test; None if nobody built one."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    named = [os.environ.get("JAGUAR"), target / "release" / "jaguar", target / "debug" / "jaguar"]
    return next((str(path) for path in named if path and pathlib.Path(path).exists()), None)


def png(width, height, pixel):
    """A picture, of RGB pixels by column and row; and its pixels."""
    rows = [bytes(channel for x in range(width) for channel in pixel(x, y)) for y in range(height)]

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b""), b"".join(rows)


def picture(number, side=32):
    """One of some pictures, all their pixels different from their neighbours."""
    return png(side, side, lambda x, y: ((7 * x + number) % 256, (5 * y + 3 * x) % 256, (x * y + 11 * number) % 256))


def ran(arguments):
    """What the program prints."""
    done = subprocess.run([program(), *map(str, arguments)], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout


def compiled(folder, onnx, side):
    """A network's model, in this folder; it takes pictures of so many pixels."""
    samples = folder / "samples"
    samples.mkdir(parents=True)
    (folder / "network.onnx").write_bytes(onnx)
    for number in range(6):
        (samples / f"{number}.png").write_bytes(picture(number, side)[0])
    model = folder / "model.jaguar"
    ran(["compile", folder / "network.onnx", "--calibrate", samples, "--pixel-scale", str(1 / 255), "-o", model])
    return model


def native_logits(server, path):
    """The native client's logits."""
    line = ran(["predict", "--json", "--no-cache", "--server", f"127.0.0.1:{server.port}", path])
    said = json.loads(line)
    (scale,) = said["logit_scales"]
    return [logit / scale for logit in said["logits"]]


class Server:
    """A `jaguar serve --web`."""

    def __init__(self, model, *options):
        # (Each connection fetches a hint, more than a server makes for one address.)
        many = ["--new-hints-per-address-and-hour", "100000", "--new-hints-per-hour", "100000"]
        command = [program(), "serve", str(model), "--web", "--listen", "127.0.0.1:0", "--measure", "off", *many, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log = []
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"listening on 127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stdout), daemon=True)
                self.reader.start()
                return
        raise RuntimeError("the server does not listen: " + "".join(self.log))

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()


class Wire:
    """Passes on what a browser and a server say, remembers what the browser sends, and cuts the connection when told.

    `change`: what becomes of the server's bytes on a WebSocket; None cuts the connection. It hears how many came before, too, and what the
    browser sends there.
    """

    change = None

    def __init__(self, port):
        self.target, self.sent, self.open, self.lock = port, [], [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            said = bytearray()
            with self.lock:
                self.sent.append(said)
                self.open += [near, far]
            threading.Thread(target=self.pump, args=(near, far, said, None), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, None, said), daemon=True).start()

    def pump(self, source, sink, said, asked):
        passed = 0
        try:
            while data := source.recv(1 << 16):
                if said is not None:
                    said += data
                elif self.change and upgrades(asked):
                    passed, data = passed + len(data), self.change(passed, data, asked)
                    if data is None:
                        break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        with self.lock:
            for end in self.open:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def upgraded(self):
        """What browsers sent on each connection that became a WebSocket."""
        with self.lock:
            return [said for said in self.sent if upgrades(said)]

    def messages(self):
        """What browsers sent over WebSockets, unmasked, a string of bytes for each connection."""
        return [unmasked(bytes(said)) for said in self.upgraded()]

    def end(self):
        self.listener.close()
        self.cut()


def upgrades(said):
    """Whether what was said asks for a WebSocket."""
    return b"upgrade: websocket" in bytes(said[:4096]).lower()


def unmasked(said):
    """The payloads of a browser's WebSocket frames (RFC 6455, Section 5.2), behind the request."""
    at, payloads = said.index(b"\r\n\r\n") + 4, []
    while at + 6 <= len(said):
        length, at = said[at + 1] & 127, at + 2
        if length == 126:
            length, at = int.from_bytes(said[at : at + 2]), at + 2
        elif length == 127:
            length, at = int.from_bytes(said[at : at + 8]), at + 8
        mask, data = said[at : at + 4], said[at + 4 : at + 4 + length]
        at += 4 + length
        key = int.from_bytes((mask * (len(data) // 4 + 1))[: len(data)])
        payloads.append((int.from_bytes(data) ^ key).to_bytes(len(data)))
    return b"".join(payloads)


def windows(data, size, step=1):
    return {data[i : i + size] for i in range(0, len(data) - size + 1, step)}


def pixels_in(sent, pixels):
    """Whether twelve bytes of a picture, in order, are in what was sent: four pixels as they are, or twelve of one channel."""
    views = [pixels, *(pixels[c::3] for c in range(3))]
    rgba = b"".join(pixels[i : i + 3] + b"\xff" for i in range(0, len(pixels), 3))
    return any(window in sent for view in [*views, rgba] for window in windows(view, 12, 12))


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="jaguar-web-")
        cls.model = compiled(pathlib.Path(cls.folder.name), network.six_layers(), 32)
        cls.server = Server(cls.model)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.server.end)
        cls.browser = webdriver.Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def wire(self, server=None):
        wire = Wire((server or self.server).port)
        self.addCleanup(wire.end)
        return wire

    def file(self, number):
        path = pathlib.Path(self.folder.name) / f"shown-{number}.png"
        path.write_bytes(picture(number)[0])
        return path

    def ready(self):
        self.browser.wait("!document.getElementById('ask').disabled", 300)

    def asked(self):
        self.browser.run("document.getElementById('answer').hidden = true; document.getElementById('ask').click();")
        self.browser.wait("!document.getElementById('answer').hidden", 300)
        return self.browser.run("return document.getElementById('best').textContent;")

    def problem(self):
        return self.browser.wait("!document.getElementById('problem').hidden && document.getElementById('problem').innerText", 60)

    def test_the_answer_is_the_native_clients_and_no_pixel_is_sent(self):
        wire = self.wire()
        self.browser.log()  # (What other tests left there.)
        self.browser.open(f"http://127.0.0.1:{wire.port}/")
        path = self.file(3)
        self.browser.choose_file("#file", path)
        self.ready()
        native = native_logits(self.server, path)
        best = max(range(len(native)), key=native.__getitem__)
        self.assertEqual(self.asked(), f"class {best}")
        # The same picture again, from the query that was prepared meanwhile.
        self.ready()
        before = len(wire.messages()[0])
        self.assertEqual(self.asked(), f"class {best}")
        (sent,) = wire.messages()
        self.assertGreater(len(sent), 100_000)
        pixels = picture(3)[1]
        self.assertFalse(pixels_in(sent, pixels))
        self.assertTrue(pixels_in(sent[:5000] + pixels[300:400] + sent[5000:], pixels), "planted ones are found")
        # Nothing of what was sent for one picture is sent again for the same one. (Windows with many zeros are of heads and plans.)
        again = windows(sent[:before], 24, 24) & windows(sent[before:], 24)
        again = {window for window in again if len(set(window)) > 16}
        self.assertFalse(again)
        self.assertEqual([line for line in self.browser.log() if line["level"] == "SEVERE"], [])

    def test_logits_are_the_native_clients_but_for_noise(self):
        self.browser.open(f"http://127.0.0.1:{self.server.port}/")
        for number in (1, 4):
            path = self.file(number)
            native, other = native_logits(self.server, path), native_logits(self.server, path)
            script = CONNECT + BYTES + "const client = await Client.connect(url); await client.prepare();"
            script += "const answer = await client.predict(blob); client.close(); return answer;"
            answer = self.browser.run(script, base64.b64encode(path.read_bytes()).decode())
            spread = max(native) - min(native)
            off = max(abs(a - b) for a, b in zip(native, answer["logits"], strict=True))
            noise = max(abs(a - b) for a, b in zip(native, other, strict=True))
            self.assertLess(noise, spread / 50)
            self.assertLess(off, spread / 50)
            self.assertEqual(answer["label"], max(range(len(native)), key=native.__getitem__))
            self.assertEqual(answer["top"][0]["class"], answer["label"])

    def test_a_lost_connection_is_said_and_mended(self):
        wire = self.wire()
        self.browser.open(f"http://127.0.0.1:{wire.port}/")
        self.browser.choose_file("#file", self.file(2))
        self.ready()
        wire.cut()
        self.assertIn("The connection was lost", self.problem())
        self.browser.run("document.getElementById('again').click();")
        self.ready()
        self.assertTrue(self.asked().startswith("class "))
        # Who chooses a picture before there is a connection has it used once there is one.
        again = BYTES + "const data = new File([blob], 'early.png'); const files = new DataTransfer(); files.items.add(data);"
        again += "document.getElementById('again').click(); const chooser = document.getElementById('file');"
        again += "chooser.files = files.files; chooser.dispatchEvent(new Event('change'));"
        self.browser.run(again, base64.b64encode(picture(4)[0]).decode())
        self.ready()
        self.assertTrue(self.browser.run("return document.getElementById('picture-problem').hidden;"))
        # In the middle of a call, too.
        self.browser.run("document.getElementById('again').click();")
        self.browser.wait("document.querySelector('[data-stage=prepare]').className === 'now'")
        wire.cut()
        self.assertIn("The connection was lost", self.problem())

    def test_a_connection_that_fails_anywhere_is_said_to_be_lost(self):
        wire = self.wire()
        self.browser.open(f"http://127.0.0.1:{wire.port}/client/nothing")
        script = CONNECT + BYTES + """
            let closed = null;
            try {
                const client = await Client.connect(url);
                client.addEventListener('closed', ({ detail }) => { closed = detail.kind; });
                await client.prepare();
                const answer = await client.predict(blob);
                const { received } = client.traffic;
                return [answer.label, received];
            } catch (error) {
                return [error.kind, closed ?? error.kind];
            }
        """
        data = base64.b64encode(picture(1)[0]).decode()
        label, whole = self.browser.run(script, data)
        self.assertIn(label, range(10))
        for cut in [0, 60, *(whole * tenth // 10 for tenth in range(1, 10))]:
            wire.change = lambda passed, data, _, cut=cut: data[: cut - passed] if passed < cut else None
            self.assertEqual(self.browser.run(script, data), ["connection"] * 2, f"cut at {cut} of {whole}")

        def insert(what):
            return lambda passed, data, _: data if passed else data.replace(b"\r\n\r\n", b"\r\n\r\n" + what, 1)

        for what in (b"\x81\x02no", b"\xff" * 40, b"\x88\x00", b"\x82\x00"):
            wire.change = insert(what)
            kind = self.browser.run(script, data)[0]
            # (Nothing in a message is nothing.)
            self.assertEqual(kind, label if what == b"\x82\x00" else "connection", what)

    def test_who_looks_elsewhere_keeps_the_connection_and_a_silent_server_is_given_up(self):
        wire = self.wire()
        self.browser.open(f"http://127.0.0.1:{wire.port}/client/nothing")
        script = CONNECT + BYTES + """
            Object.assign(window, { blob, hidden: 0 });
            window.alive = await Client.connect(url);
            window.stalled = await Client.connect(url);
            await alive.prepare();
        """
        self.browser.run(script, base64.b64encode(picture(1)[0]).decode())
        # The second connection brings nothing from here on, and nobody sees the page.
        stalled = wire.upgraded()[1]
        wire.change = lambda passed, data, asked: b"" if asked is stalled else data
        script = """
            window.kind = null;
            stalled.prepare().catch((error) => { window.kind = error.kind; });
            window.since = performance.now();
            window.watch = setInterval(() => { if (document.hidden) window.hidden += 1; }, 100);
        """
        self.browser.run(script)
        with self.browser.elsewhere():
            time.sleep(20)
        hidden, kind = self.browser.run("clearInterval(watch); return [hidden, kind];")
        self.assertGreater(hidden, 10)
        self.assertEqual(kind, "connection")
        self.assertIn(self.browser.run("return (await alive.predict(blob)).label;"), range(10))

    def hints(self, wire=None):
        """Opens a page that keeps hints, none so far; of an answer without them: the class, the bytes that come, and those of the hint."""
        self.browser.open(f"http://127.0.0.1:{(wire or self.server).port}/client/nothing")
        picture_data = base64.b64encode(picture(5)[0]).decode()
        script = ASKED + "window.blob = blob; await Client.forgetHints(); return await asked({}, blob);"
        label, without, hint = self.browser.run(script, picture_data)
        self.assertGreater(hint, 1_000_000)
        return label, without, hint

    def asked_with(self, options="{ hints: 'keep' }"):
        return self.browser.run(f"return await asked({options}, blob);")[:2]

    def test_a_kept_hint_is_not_fetched_again_and_a_damaged_one_is(self):
        wire = self.wire()
        label, without, hint = self.hints(wire)
        slack = hint // 20
        for part in ("hints: 'none'", "hints: 'keep'"):
            answer, came = self.asked_with(f"{{ {part} }}")
            self.assertEqual((answer, abs(came - without) < slack), (label, True), part)
        answer, again = self.asked_with()
        self.assertEqual(answer, label)
        self.assertLess(abs(without - hint - again), slack)
        # Who keeps a hint has a name, which the server sees each time; who keeps none is new each time. The seed never leaves.
        head = bytes(self.browser.run("return [...(await content()).slice(0, 136)];"))
        name, seed = head[72:104], head[104:136]
        self.assertEqual([name in said for said in wire.messages()], [False, False, True, True])
        self.assertFalse(any(seed in said for said in wire.messages()))
        # What is not sound comes anew, and what is sound before it does not: how much of the hint comes then.
        for change, least, most in [
            ("data[data.length >> 1] ^= 1;", 0.3, 0.7),
            ("data = data.slice(0, data.length >> 1);", 0.3, 0.7),
            ("data = data.slice(0, data.length - 1);", 0.0, 0.7),
            ("data[140] ^= 128;", 0.9, 1.1),
            ("data[20] ^= 1;", 0.9, 1.1),
            ("data = data.slice(0, 100);", 0.9, 1.1),
            ("data = data.slice(0, 0);", 0.9, 1.1),
            ("data.fill(255);", 0.9, 1.1),
            ("data = Uint8Array.from([...data, ...data.slice(0, 5000)]);", -0.1, 0.1),
        ]:
            self.browser.run(f"let data = await content(); {change} await content(data);")
            answer, came = self.asked_with()
            self.assertEqual(answer, label, change)
            self.assertTrue(least * hint < came - again < most * hint, f"{change} {came} {again} {hint}")
            answer, came = self.asked_with()
            self.assertEqual((answer, abs(came - again) < slack), (label, True), change)

    def test_a_hint_that_cannot_be_kept_is_done_without(self):
        label, without, hint = self.hints()
        slack = hint // 20
        files = "return (await hints()).files.map((file) => file.name);"

        def fetched(options="{ hints: 'keep' }"):
            answer, came = self.asked_with(options)
            self.assertEqual((answer, abs(came - without) < slack), (label, True), options)

        def plant(size):
            stream = "const stream = await (await (await hints()).folder.getFileHandle('0.hint', { create: true })).createWritable();"
            self.browser.run(f"{stream} await stream.write(new Uint8Array({size})); await stream.close();")

        # No room that this page gives: nothing goes for what cannot come.
        plant(1000)
        fetched(f"{{ hints: 'keep', hintBytes: {hint // 2} }}")
        self.assertEqual(self.browser.run(files), ["0.hint"])
        self.assertEqual(self.browser.run(CONNECT + "return await Client.forgetHints();"), 0)
        # No room that the browser gives.
        origin = f"http://127.0.0.1:{self.server.port}"
        self.browser.cdp("Storage.overrideQuotaForOrigin", origin=origin, quotaSize=hint // 2)
        fetched()
        fetched()
        self.browser.cdp("Storage.overrideQuotaForOrigin", origin=origin)
        self.assertEqual(self.browser.run(files), [])
        # What was written first makes room.
        plant(hint)
        fetched(f"{{ hints: 'keep', hintBytes: {hint + hint // 2} }}")
        (file,) = self.browser.run(files)
        self.assertNotEqual(file, "0.hint")
        # Another session has the file, in this tab or another one.
        self.browser.run(CONNECT + "window.first = await Client.connect(url, { hints: 'keep' }); await first.prepare();")
        fetched()
        self.assertEqual(self.browser.run(CONNECT + "return await Client.forgetHints();"), 1)
        self.browser.run("first.close();")
        answer, came = self.asked_with()
        self.assertEqual((answer, came < without - hint // 2), (label, True))
        self.assertEqual(self.browser.run(CONNECT + "return await Client.forgetHints();"), 0)
        self.assertEqual(self.browser.run(files), [])

    def test_the_page_keeps_a_hint_when_it_is_told_to(self):
        label, without, hint = self.hints()
        files = "return (await hints()).files.length;"

        def visit():
            self.browser.open(f"http://127.0.0.1:{self.server.port}/")
            self.browser.choose_file("#file", self.file(5))
            self.ready()
            self.assertEqual(self.asked(), f"class {label}")
            return self.browser.run(ASKED + files, "")

        self.assertEqual(visit(), 0)
        self.assertIn("The server recognises this browser", self.browser.text())
        self.browser.run("document.getElementById('keep').click();")
        self.assertEqual(visit(), 1)
        self.assertEqual(visit(), 1)
        self.browser.run("document.getElementById('keep').click();")
        self.browser.wait("document.readyState === 'complete' && !document.getElementById('keep').checked")
        self.assertEqual(visit(), 0)

    def test_a_busy_server_has_a_line(self):
        server = Server(self.model, "--max-clients", "1")
        self.addCleanup(server.end)
        self.browser.open(f"http://127.0.0.1:{server.port}/client/nothing")
        self.browser.run(CONNECT + "window.first = await Client.connect(url);")
        kind = self.browser.run(CONNECT + "try { await Client.connect(url); return 'no'; } catch (error) { return error.kind; }")
        self.assertEqual(kind, "busy")
        script = "window.placed = null; window.second = Client.connect(url, { wait: 60, onqueued: ({ detail }) => { window.placed = detail.place; } });"
        self.browser.run(CONNECT + script)
        self.assertEqual(self.browser.wait("window.placed"), 1)
        self.browser.run("window.first.close(); const second = await window.second; await second.prepare();")
        self.browser.open("about:blank")

    def test_calls_end_when_they_are_told_to_and_pictures_that_are_none_cost_nothing(self):
        self.browser.open(f"http://127.0.0.1:{self.server.port}/")
        script = CONNECT + """
            const kind = async (promise) => { try { await promise; return 'done'; } catch (error) { return error.kind ?? error.name; } };
            const client = await Client.connect(url);
            const bad = await kind(client.predict(new Blob(['no picture'])));
            const after = client.closed;
            const stop = new AbortController();
            const stopped = kind(client.prepare({ signal: stop.signal }));
            setTimeout(() => stop.abort(), 50);
            return [bad, after, await stopped, client.closed, await kind(client.prepare())];
        """
        self.assertEqual(self.browser.run(script), ["input", False, "AbortError", True, "AbortError"])
        script = CONNECT + "try { await Client.connect(url, { model: 'other' }); } catch (error) { return error.kind; }"
        self.assertEqual(self.browser.run(script), "aborted")

    def test_pages_are_isolated_and_others_are_not_let_in(self):
        address = f"127.0.0.1:{self.server.port}"
        with urllib.request.urlopen(f"http://{address}/") as answer:
            self.assertIn("default-src 'none'", answer.headers["Content-Security-Policy"])
            self.assertEqual(answer.headers["Cross-Origin-Embedder-Policy"], "require-corp")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{address}/etc/passwd")
        self.assertEqual(refused.exception.code, 404)
        refused.exception.close()
        upgrade = "GET / HTTP/1.1\r\nHost: {}\r\nOrigin: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        upgrade += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: jaguar\r\n\r\n"
        for host, origin, status in [
            (address, f"http://{address}", "101"),
            (address, "http://evil.example", "403"),
            # A name of a stranger's that now means this machine.
            (f"evil.example:{self.server.port}", f"http://evil.example:{self.server.port}", "403"),
        ]:
            with socket.create_connection(("127.0.0.1", self.server.port)) as stream:
                stream.sendall(upgrade.format(host, origin).encode())
                self.assertEqual(stream.recv(64).split()[1].decode(), status, origin)


if __name__ == "__main__":
    why = webdriver.missing() or (None if program() else "nobody built the program (cargo build --release)")
    if why:
        print(f"skip: {why}: the page for browsers is not tested")
        sys.exit(0)
    unittest.main(verbosity=1)
