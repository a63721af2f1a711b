"""The client in Node: its answers, and the module under faults and changed bytes.

Run: python3 web/tests/test_node.py (JAGUAR: the program, as for test_browser.py). Where there is no Node, it says so and ends.
"""

import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import network  # noqa: E402
import test_browser  # noqa: E402

NODE = shutil.which("node")
# Of the fuzzer here. More, and others: docs/fuzzing.md.
CASES, SEED = 100, 1
# Of the faults that are not a closed connection, one in so many.
EVERY = 11


def version():
    """Node's, as two numbers."""
    return tuple(map(int, subprocess.check_output([NODE, "--version"], text=True)[1:].split(".")[:2]))


def missing():
    """Why nothing can be tested here; None if it can."""
    if NODE is None:
        return "node is not installed"
    if version() < (20, 16):
        return f"node {'.'.join(map(str, version()))} is too old (20.16)"
    return None if test_browser.program() else "nobody built the program (cargo build --release)"


def node(*arguments, seconds=300):
    """What Node prints; an error if it ends with one."""
    flags = [] if version() >= (22, 0) else ["--experimental-websocket", "--no-warnings"]
    done = subprocess.run([NODE, *flags, *map(str, arguments)], capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise RuntimeError(f"node ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class Node(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="jaguar-node-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        cls.servers = {}
        for name, onnx, side in [("six", network.six_layers(), 32), ("two", network.two_layers(), 8)]:
            model = test_browser.compiled(cls.path / name, onnx, side)
            cls.servers[name] = test_browser.Server(model)
            cls.addClassCleanup(cls.servers[name].end)

    def script(self, text):
        """A program beside which the package is installed."""
        package = self.path / "node_modules" / "@jaguar"
        if not package.exists():
            package.mkdir(parents=True)
            (package / "client").symlink_to(ROOT / "web" / "client")
        path = self.path / "program.mjs"
        path.write_text(text)
        return path

    def url(self, name):
        return f"ws://127.0.0.1:{self.servers[name].port}"

    def test_the_documents_example_gives_the_native_clients_class(self):
        (example,) = re.findall(r"```js\n(.*?)```", (ROOT / "docs" / "browser.md").read_text(), re.DOTALL)
        self.assertLessEqual(len(example.splitlines()), 30)
        program = self.script(example)
        for number in range(3):
            png, rgb = test_browser.picture(number)
            (self.path / "shown.png").write_bytes(png)
            (self.path / "shown.ppm").write_bytes(b"P6\n32 32\n255\n" + rgb)
            native = test_browser.native_logits(self.servers["six"], self.path / "shown.png")
            best = max(range(len(native)), key=native.__getitem__)
            probability = 1 / sum(math.exp(logit - native[best]) for logit in native)
            said = node(program, self.url("six"), self.path / "shown.ppm")
            label, percent = re.fullmatch(r"class (\d+), ([\d.]+) % \([\d.]+ s\)\n", said).groups()
            self.assertEqual(int(label), best)
            self.assertAlmostEqual(float(percent), 100 * probability, delta=0.5)

    def test_errors_have_their_kinds(self):
        program = self.script("""
            import { Client } from '@jaguar/client';
            const [url] = process.argv.slice(2);
            const kind = async (promise) => { try { await promise; return 'done'; } catch (error) { return error.kind ?? error.name; } };
            const pixels = (width, height) => ({ data: new Uint8Array(4 * width * height), width, height });
            const heard = [await kind(Client.connect('ws://127.0.0.1:9/')), await kind(Client.connect(url, { model: 'other' }))];
            const client = await Client.connect(url, { hints: 'keep' });
            for (const picture of [new Blob(['no picture']), null, { ...pixels(8, 8), width: 9 }, pixels(0, 8), { ...pixels(8, 8), width: 8.5 }]) {
              heard.push(await kind(client.predict(picture)));
            }
            const seen = await client.look(pixels(80, 60));
            heard.push([seen.width, seen.height, seen.data.length].join());
            heard.push(await kind(client.predict(pixels(80, 60))), client.closed);
            client.close();
            // (A session's first query takes a while behind its first word.)
            const other = await Client.connect(url), stop = new AbortController();
            other.addEventListener('progress', () => stop.abort(), { once: true });
            heard.push(await kind(other.prepare({ signal: stop.signal })), await kind(other.prepare()));
            console.log(heard.join(' '));
        """)
        expected = "connection aborted input input input input input 8,8,256 done false AbortError AbortError\n"
        self.assertEqual(node(program, self.url("two")), expected)

    def test_a_connection_that_fails_is_said_to_be_lost(self):
        wire = test_browser.Wire(self.servers["two"].port)
        self.addCleanup(wire.end)
        program = self.script("""
            import { Client } from '@jaguar/client';
            const said = async (url) => {
              try {
                const client = await Client.connect(url);
                await client.prepare();
                await client.predict({ data: new Uint8Array(256), width: 8, height: 8 });
                client.close();
                return client.traffic.received;
              } catch (error) {
                return error.kind;
              }
            };
            console.log(await said(process.argv[2]));
        """)
        whole = int(node(program, f"ws://127.0.0.1:{wire.port}"))
        for cut in (0, 60, *(whole * quarter // 4 for quarter in (1, 2, 3))):
            wire.change = lambda passed, data, _, cut=cut: data[: cut - passed] if passed < cut else None
            self.assertEqual(node(program, f"ws://127.0.0.1:{wire.port}"), "connection\n", f"cut at {cut} of {whole}")

    def test_the_module_holds_what_fails_around_it(self):
        said = node(HERE / "replay.mjs", "faults", self.servers["two"].port, EVERY, seconds=900)
        self.assertRegex(said, r"^a session of [1-9]\d+ messages")
        print(said, end="")

    def test_the_module_holds_whatever_bytes_come(self):
        print(node(HERE / "replay.mjs", "fuzz", self.servers["two"].port, CASES, SEED, seconds=900), end="")


if __name__ == "__main__":
    why = missing()
    if why:
        print(f"skip: {why}: the client in Node is not tested")
        sys.exit(0)
    unittest.main(verbosity=1)
