"""Tests of the estimates by formula: `python3 -m unittest discover params`."""

from __future__ import annotations

import math
import unittest

import hybrid


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
                near = min(hybrid.attack(n, log_q, 192, b, zeta)[name] for b in range(beta - 8, beta + 9, 2))
                self.assertLess(near, printed + 0.5, (n, name))
                self.assertGreater(near, printed - 3, (n, name))

    def test_rotations_help_by_their_number_at_most(self):
        for _, chance in hybrid.guesses(1 << 16, 192, 8192):
            self.assertLessEqual(chance, 0)
        alone = hybrid.log2_binomial((1 << 16) - 8192, 192) - hybrid.log2_binomial(1 << 16, 192)
        rotated = hybrid.guesses(1 << 16, 192, 8192)[0][1]
        self.assertAlmostEqual(rotated - alone, 16, delta=0.1)

    def test_sums_of_logarithms(self):
        self.assertAlmostEqual(hybrid.add(3, 3), 4)
        self.assertEqual(hybrid.add(-math.inf, 5), 5)
        self.assertAlmostEqual(hybrid.log2_binomial(10, 3), math.log2(120))
