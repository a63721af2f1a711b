"""Tests of Figure 7's record: `python3 -m unittest discover papers/convfhe`."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import figure7

# 1,000 pictures, three runs each.
RESULTS = {
    "device": "a card", "hardware_threads": 2, "torch": "1", "command": "train_convfhe.py --data /elsewhere --out a.json --epochs 4", "seconds": 9.0,
    "options": {"epochs": 4, "bf16": True, "test_pictures": 1000},
    "networks": [
        {"name": f"k{k}-d{d}-w{w}", "kernel": k, "depth": d, "width": w, "epochs": 4, "right": right}
        for k, d, w, right in ((3, 8, 1, [800, 810, 820]), (5, 8, 1, [830, 830, 836]), (3, 20, 1, [820, 825, 830]), (5, 20, 1, [900, 900, 900]))
    ],
}
# k7-d8-w1 and k7-d20-w1 were not trained.
PLANS = [
    {"network": f"k{k}-d{d}-w1", "kernel": k, "depth": d, "width": 1, "bootstraps": cost // 10, "cost": cost}
    for k, d, cost in ((3, 8, 100), (5, 8, 120), (7, 8, 120), (3, 20, 200), (5, 20, 230), (7, 20, 250))
]


class Figure7(unittest.TestCase):
    def setUp(self):
        # Half a second a unit in two of three.
        measured = {"k3-d8-w1": 50.0, "k3-d20-w1": 100.0, "k5-d20-w1": 230.0, "elsewhere": 1.0}
        self.rows = figure7.networks(RESULTS, measured, PLANS)
        self.trained = [row for row in self.rows if row["right"]]

    def test_means_and_seconds(self):
        first, second, third = self.rows[:3]
        self.assertEqual((first["mean"], first["predicted"], first["measured"], first["bootstraps"]), (81.0, 50.0, 50.0, 10))
        self.assertEqual((second["predicted"], second["measured"]), (60.0, None))
        self.assertEqual((third["predicted"], third["mean"], third["right"]), (60.0, None, []))

    def test_the_front_is_what_no_other_beats(self):
        self.assertEqual([row["name"] for row in figure7.front(self.trained)], ["k3-d8-w1", "k5-d8-w1", "k5-d20-w1"])

    def test_tables_have_a_cell_for_each_column(self):
        grid, networks, front = figure7.tables(self.rows)
        self.assertEqual(grid["rows"], [["8", "1", "81.00", "83.20", "-", "50", "60", "60"], ["20", "1", "82.50", "90.00", "-", "100", "115", "125"]])
        self.assertIn("4 of the 6 networks", grid["notes"])
        self.assertEqual(networks["rows"][0], ["k3-d8-w1", "81.00", "80.00", "82.00", "10", "50", "50.0", "-", "-"])
        self.assertEqual([row[-2:] for row in networks["rows"] if row[0] == "k3-d20-w1"], [["90.39", "368"]])
        for table in (grid, networks, front):
            self.assertEqual({len(row) for row in table["rows"]}, {len(table["header"])})

    def test_pictures_have_a_mark_for_each_network(self):
        for draw in (figure7.figure7, figure7.figure1):
            svg = draw(self.trained)
            # The legend has one of each.
            self.assertEqual(svg.count("<circle"), 2 + 1)
            self.assertEqual(svg.count("<polygon"), 2 + 2)
            self.assertIn("<title>", svg)

    def test_what_it_writes(self):
        table = {"name": "networks", "header": ["network", "processor"], "rows": [["k3-d8-w1", "50.0"]]}
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder)
            (figures / "convfhe-networks.json").write_text(json.dumps({"tables": [table]}))
            (figures / "convfhe-plans.json").write_text(json.dumps({"figures": {"plans": PLANS}}))
            (figures / "results.json").write_text(json.dumps(RESULTS))
            with mock.patch("sys.argv", ["figure7.py", str(figures / "results.json"), "--commit", "0123abc", "--figures", folder]):
                with contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(figure7.main(), 0)
            setting = json.loads((figures / "convfhe-accuracy.json").read_text())["setting"]
            self.assertEqual((setting["commit"], setting["repeats"], setting["link"]), ("0123abc", 3, "4 epochs"))
            self.assertEqual(setting["command"], "papers/convfhe/train_convfhe.py --epochs 4")
            self.assertTrue(all((figures / f"convfhe-{name}.svg").exists() for name in ("accuracy", "seconds")))


if __name__ == "__main__":
    unittest.main()
