"""Tests of `by_turns`, with a program in the place of `jaguar`: `python3 -m unittest discover tools`."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import by_turns


class ByTurns(unittest.TestCase):
    # Serves nothing, but listens; answers each input with what a query of so many bytes would have cost.
    PROGRAM = """#!{python}
import json, socket, sys, time
if sys.argv[1] == "serve":
    place = sys.argv[sys.argv.index("--listen") + 1].rsplit(":", 1)
    if "broken" in sys.argv[2]:
        sys.exit("no such model")
    with socket.create_server((place[0], int(place[1]))):
        time.sleep(60)
for number, line in enumerate(sys.stdin):
    stage = {{"bytes_up": 1 if number < 2 else 10, "bytes_down": 100, "rounds": 7}}
    print(json.dumps({{"cost": {{"offline": stage, "online": stage}}}}), flush=True)
"""

    def call(self, folder, *models):
        jaguar = folder / "jaguar"
        jaguar.write_text(self.PROGRAM.format(python=sys.executable))
        jaguar.chmod(0o755)
        for number in range(5):
            (folder / f"{number}.npy").touch()
        given = ["by_turns", "--jaguar", str(jaguar), "--inputs", str(folder), "--out", str(folder / "out.json")]
        said = io.StringIO()
        arguments = [*given, "--turns", "2", "--queries", "3", *models]
        told = contextlib.redirect_stdout(said), contextlib.redirect_stderr(said)
        with mock.patch.object(sys, "argv", arguments), told[0], told[1]:
            return by_turns.main(), said.getvalue()

    def test_queries_that_warm_up_do_not_count(self):
        with tempfile.TemporaryDirectory() as folder:
            code, said = self.call(Path(folder), "one.jaguar", "two.jaguar")
            self.assertEqual(code, 0, said)
            found = json.loads((Path(folder) / "out.json").read_text())
        self.assertEqual({name: len(rows) for name, rows in found["turns"].items()}, {"one": 2, "two": 2})
        self.assertEqual({(row["bytes"], row["rounds"]) for row in found["medians"].values()}, {(220, 7)})

    def test_a_server_that_gives_up_is_told_of(self):
        with tempfile.TemporaryDirectory() as folder:
            code, said = self.call(Path(folder), "broken.jaguar")
        self.assertEqual(code, 1)
        self.assertIn("the server does not listen", said)
        self.assertIn("no such model", said)


if __name__ == "__main__":
    unittest.main()
