"""Tests of the estimates for sparse secrets: `python3 -m unittest discover params`."""

from __future__ import annotations

import json
import math
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import ckks


class Lines(unittest.TestCase):
    # What ePrint 2026/279's own script prints, with its β and ζ: guess, meet ("estimator"), square root.
    PRINTED = [
        (1 << 16, 1553, ((128.7, 324, 12.8), (123.8, 306, 13.3), (122.6, 302, 13.3))),
        (1 << 15, 767, ((129.5, 327, 11.9), (124.7, 308, 12.4), (123.3, 304, 12.5))),
    ]

    def test_no_line_is_above_the_printed_one(self):
        for n, log_q, lines in self.PRINTED:
            for name, (printed, beta, log_zeta) in zip(("guess", "meet", "square_root"), lines, strict=True):
                zeta = round(2**log_zeta)
                near = min(ckks.attack(n, log_q, 192, b, zeta)[name] for b in range(beta - 8, beta + 9, 2))
                self.assertLess(near, printed + 0.5, (n, name))
                self.assertGreater(near, printed - 3, (n, name))

    def test_rotations_help_by_their_number_at_most(self):
        for _, chance in ckks.guesses(1 << 16, 192, 8192):
            self.assertLessEqual(chance, 0)
        alone = ckks.log_binomial((1 << 16) - 8192, 192) - ckks.log_binomial(1 << 16, 192)
        rotated = ckks.guesses(1 << 16, 192, 8192)[0][1]
        self.assertAlmostEqual(rotated - alone, 16, delta=0.1)

    def test_sums_of_logarithms(self):
        self.assertAlmostEqual(ckks.add(3, 3), 4)
        self.assertEqual(ckks.add(-math.inf, 5), 5)
        self.assertAlmostEqual(ckks.log_binomial(10, 3), math.log2(120))


class Claims(unittest.TestCase):
    def test_a_wrong_claim_is_told(self):
        record = json.loads(ckks.RECORD.read_text())
        first = record["sets"][0]
        row = f"{{{first['log_n']}, {first['log2_q']}, {first['weight']}, "
        bits = ckks.decides(first["bits"])
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()) as told:
            source = Path(folder, "records.go")
            for text, wrong in ((f"{row}{bits}}}", 0), (f"{row}{bits + 1}}}", 1), ("", 1)):
                source.write_text(text)
                self.assertEqual(ckks.check_claims(record, source), wrong, text)
            self.assertIn("claims", told.getvalue())
