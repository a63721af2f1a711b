"""Tests of the record of RLWE estimates: `python3 -m unittest discover params`."""

from __future__ import annotations

import io
import json
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import rlwe


class Formula(unittest.TestCase):
    record = json.loads(rlwe.RECORD.read_text())

    def test_it_is_never_above_the_estimator(self):
        both = [e["bits"] for e in self.record["sets"] if {"formula", "matzov"} <= e["bits"].keys()]
        self.assertGreaterEqual(len(both), 8)
        for bits in both:
            self.assertTrue(0 <= bits["matzov"] - bits["formula"] <= 1.6, bits)

    def test_a_set_comes_out_as_recorded_and_a_wrong_one_is_found(self):
        entry = next(e for e in self.record["sets"] if (e["n"], e["log2_q"], e["secret"]) == (2048, 48, "ternary"))
        with redirect_stdout(io.StringIO()):
            self.assertEqual(rlwe.by_formula([entry]), 0)
            self.assertEqual(rlwe.by_formula([entry | {"bits": {"formula": 143.0}}]), 1)
            self.assertEqual(rlwe.by_formula([entry | {"bits": entry["bits"] | {"matzov": 140.0}}]), 1)

    def test_the_code_may_claim_only_what_the_estimator_gave(self):
        entry = next(e for e in self.record["sets"] if e["secret"] == "ternary" and "matzov" in e["bits"])
        right = f"({entry['n']}, {entry['log2_q']}, {round(10 * entry['bits']['matzov'])})"
        more = f"({entry['n']}, {entry['log2_q']}, {round(10 * entry['bits']['matzov']) + 1})"
        # One is a figure by formula only, and one on no record.
        unknown, formula = "(2048, 47, 1400)", "(16384, 430, 1282)"
        for rows, wrong in (([right], 0), ([more], 1), ([right, more], 1), ([], 1), ([formula], 1), ([unknown], 1)):
            table = "const ESTIMATES: &[(usize, u32, u32)] = &[\n" + "".join(f"    {row},\n" for row in rows) + "];"
            quiet = io.StringIO()
            with tempfile.TemporaryDirectory() as folder, redirect_stderr(quiet), redirect_stdout(quiet):
                source = Path(folder, "mod.rs")
                source.write_text(table)
                self.assertEqual(rlwe.check_claims(self.record, source), wrong, rows)
                source.write_text("no table")
                self.assertEqual(rlwe.check_claims(self.record, source), 1)
