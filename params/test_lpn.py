"""Tests of the LPN estimates: `python3 -m unittest discover params`."""

from __future__ import annotations

import itertools
import json
import math
import random
import tempfile
import unittest
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

import lpn
import lpn_demo
import lpn_tables
from lpn import Lpn, Part


def quiet(_: str) -> None:
    pass


class Attacks(unittest.TestCase):
    def test_guesses_succeed_as_often_as_predicted(self):
        # Fixed seeds; twelve instances each, so that a deviation is 29 %.
        for number, (shape, _) in enumerate(lpn_demo.BROKEN):
            guesses, expected, wrong = lpn_demo.tries(shape, 12, 7 + number, quiet)
            self.assertEqual(wrong, 0)
            self.assertLess(abs(math.log2(12 / expected)), 1, f"{guesses} guesses")

    def test_the_attack_fails_where_it_should(self):
        self.assertEqual(lpn_demo.stands(2025, quiet), 0)

    def test_stationary_noise_falls_only_where_something_else_stays(self):
        self.assertEqual(lpn_demo.stationary(quiet), 0)

    def test_a_life_that_starts_itself_gives_no_more_than_lives_that_do_not(self):
        self.assertEqual(lpn_demo.chains(quiet), 0)

    def test_linearisation_follows_the_series(self):
        self.assertEqual(lpn_demo.by_algebra(lpn_demo.ALGEBRA[:3], quiet), 0)


class SubMatrices(unittest.TestCase):
    def test_no_set_of_a_small_matrix_beats_the_bound(self):
        # Every set of columns of a small matrix, against the first moment with 2^-40 to spare.
        shape = Lpn(12, 4, 15, weight=3)
        rng = random.Random(5)
        rows = [[rng.randrange(shape.k) for _ in range(shape.weight)] for _ in range(shape.n)]
        masks = [sum(1 << p for p in set(places)) for places in rows]
        for size in range(3, shape.k + 1):
            most = max(
                sum(mask & ~sum(1 << c for c in chosen) == 0 for mask in masks)
                for chosen in itertools.combinations(range(shape.k), size)
            )
            self.assertLessEqual(most, lpn.rows_inside(shape, "least", size / shape.k))

    def test_choices_are_ordered(self):
        for shape in (Lpn(68_900, 1023, 512), Lpn(156_300, 4096, 512, m=4)):
            at_random, greedy, least = (lpn.smallest(shape, choice) for choice in lpn.SETS[1:])
            self.assertLess(least, greedy)
            self.assertLess(greedy, at_random)
            # Random: sigma = (k/n)^(1/9).
            self.assertAlmostEqual(at_random, (shape.k / shape.n) ** (1 / 9), 4)

    def test_the_finding_is_reproduced(self):
        # The former main instance: 120 bits by Gauss (2.8) and 89 with free elimination, in the review's trial.
        before = Lpn(323_584, 1024, 4096)
        part = lpn.parts(before, "least")[0]
        self.assertAlmostEqual(part.columns / before.k, 0.606, 3)
        success = lpn.log2_keep(before, before.t, part.unknowns, 1.0)
        self.assertAlmostEqual(2.8 * math.log2(part.unknowns) + success, 120.0, delta=0.3)
        self.assertLess(lpn.enumeration(part), 89.3)


class Series(unittest.TestCase):
    def test_hilbert_is_the_product(self):
        # (1 + 5z)^3·(1 + 4z + 2z^2)^2 / (1 + z)^4, multiplied out.
        def times(p, q):
            out = [0] * 5
            for i, x in enumerate(p):
                for j, y in enumerate(q):
                    if i + j < 5:
                        out[i + j] += x * y
            return out

        product = lpn.hilbert([(3, [1, 5]), (2, [1, 4, 2])], 4, 4)
        for _ in range(4):
            product = times(product, [1, 1])
        want = [1]
        for factor in [[1, 5]] * 3 + [[1, 4, 2]] * 2:
            want = times(want, factor)
        self.assertEqual(product, want)

    def test_algebra_breaks_many_samples_with_few_unknowns(self):
        # k < b·sqrt(t): no guess is needed, so the cost is one linearisation.
        shape = Lpn(40_000, 4971, 2048)
        part = Part(shape, shape.k, shape.n, True)
        self.assertTrue(lpn.solvable(part, 1, 0, 2, False))
        self.assertLess(lpn.algebra(part), 2.8 * lpn.log2_binomial(part.unknowns, 2) + 1)


    def test_the_hybrid_costs_what_its_authors_say(self):
        # Their script has 126.6 for this one: ferret-setup, truncated to whole bins.
        self.assertAlmostEqual(lpn.hybrid(Part(Lpn(35_680, 1269, 480), 35_680, 609_120, True)), 126.6, delta=0.5)

    def test_the_lightest_combination_is_that_of_the_first_moment(self):
        # The whole sum instead of its largest term.
        for shape in (Lpn(40, 8, 20, weight=4), Lpn(60, 10, 30, weight=6)):
            def expected(w: int) -> float:
                powers = ((1 - 2 * j / shape.k) ** (shape.weight * w) for j in range(shape.k + 1))
                even = sum(math.comb(shape.k, j) * p for j, p in enumerate(powers)) / 2**shape.k
                return math.comb(shape.n, w) * even

            w = lpn.lightest(shape)
            self.assertGreaterEqual(expected(w), 1)
            self.assertLess(expected(w - 2), 1)


class Tables(unittest.TestCase):
    BEGIN, END = "<!-- params/lpn.py: begin -->\n", "<!-- params/lpn.py: end -->"

    def checked(self, tables: str, write: bool = False) -> tuple[int, str]:
        """What the check gives for a page with these tables, and the page afterwards."""
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
            page = Path(folder, "page.md")
            page.write_text(f"before\n{self.BEGIN}{tables}{self.END}\nafter\n")
            return lpn_tables.check_tables(page, write), page.read_text()

    def test_a_table_that_is_not_the_record_s_is_told(self):
        right = lpn_tables.tables()
        self.assertEqual(self.checked(right)[0], 0)
        digit = next(i for i, letter in enumerate(right) if letter in "123456789")
        for wrong in (right[:digit] + "0" + right[digit + 1 :], right.replace("|", "| |", 1), right[:-1], ""):
            self.assertEqual(self.checked(wrong)[0], 1)
            self.assertIn(f"{self.BEGIN}{right}{self.END}", self.checked(wrong, write=True)[1])

    def test_a_page_without_the_marks_is_no_page(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(ValueError):
            page = Path(folder, "page.md")
            page.write_text("no marks")
            lpn_tables.check_tables(page, False)


class Record(unittest.TestCase):
    def test_a_figure_that_does_not_come_out_is_told(self):
        record = json.loads(lpn.RECORD.read_text())
        entry = min(record["sets"], key=lambda e: e["k"])
        unsafe, other = {"safe": not entry["safe"]}, {"bits": entry["bits"] | {"gauss": [1.0] * 4}}
        for sets, wrong in (([entry], 0), ([entry | unsafe], 1), ([entry | other], 1)):
            with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
                path = Path(folder, "lpn.json")
                path.write_text(json.dumps(record | {"sets": sets}))
                with mock.patch.object(lpn, "RECORD", path):
                    self.assertEqual(lpn.compare() > 0, bool(wrong))

    def claims(self, source: str) -> int:
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
            path = Path(folder, "ferret.rs")
            path.write_text(source)
            return lpn.check_claims(path)

    def test_every_line_of_what_is_safe_is_at_least_the_target(self):
        for entry in json.loads(lpn.RECORD.read_text())["sets"]:
            self.assertEqual(entry["safe"], lpn.enough(entry["bits"], entry["iterations"]), entry["name"])
            lines = [name for name in lpn.ATTACKS if entry["m"] > 1 or name != "algebra_joint"]
            self.assertEqual(list(entry["bits"]), lines)

    def test_all_have_bits_to_spare_for_their_iterations(self):
        # What makes a first secret runs once, in either direction.
        used_once = {"B7", "V6", "V7"}
        for entry in json.loads(lpn.RECORD.read_text())["sets"]:
            if entry["safe"]:
                life = entry.get("life", 1)
                self.assertEqual(
                    entry["iterations"] + math.log2(life), 1 if entry["name"] in used_once else lpn.ITERATIONS, entry["name"]
                )
                # Far from where rank alone would find the rows, were the matrices the same.
                self.assertTrue(life == 1 or entry["m"] > 1 and 8 * entry["m"] * life <= entry["t"])
                # And far from where values made of rows could cancel each other along a chain.
                self.assertLess(2 * (life - 1) * entry["t"], entry["k"])

    def test_claims_fail_for_weak_unrecorded_and_missing_instances(self):
        weak = "const MAIN: Self = Self { secret: 323_584, bins: 1024, log_bin: 12 };"
        safe = "const MAIN: Self = Self { secret: 68_900, bins: 1023, log_bin: 9 };"
        vector = "const V: Lpn =\n    Lpn { secret: 141_900, bins: 2048, log_bin: 9, width: 4 };"
        short = "[Lpn::bits(68_900, 1023, 9), Lpn::vectors(141_900, 2048, 9)]"
        lines = "[Lpn::bit_lines(71_900, 2048, 8), Lpn::vector_lines(77_400, 2048, 8)]"
        literal = "const V: Lpn = Lpn { secret: 77_400, bins: 2048, log_bin: 8, width: Width::Vector, lanes: 4 };"
        self.assertEqual(self.claims(weak), 1)
        self.assertEqual(self.claims(safe), 0)
        self.assertEqual(self.claims(vector), 0)
        self.assertEqual(self.claims(short), 0)
        self.assertEqual(self.claims(short.replace("vectors", "bits")), 1)
        self.assertEqual(self.claims(lines + literal), 0)
        self.assertEqual(self.claims(lines + "pub(crate) const LIFE: u64 = 16;"), 0)
        self.assertEqual(self.claims(lines + "pub(crate) const LIFE: u64 = 32;"), 2)
        self.assertEqual(self.claims(lines.replace("bit_lines", "vector_lines")), 1)
        self.assertEqual(self.claims(literal.replace("lanes: 4", "lanes: 1")), 1)
        self.assertEqual(self.claims(short + "pub struct Lpn { secret: usize, bins: usize, log_bin: usize }"), 0)
        self.assertEqual(self.claims(safe + weak), 1)
        self.assertEqual(self.claims(safe.replace("68_900", "68_910")), 1)
        self.assertEqual(self.claims(vector.replace(", width: 4", "")), 1)
        self.assertEqual(self.claims("no instance"), 1)
        self.assertEqual(self.claims(safe + "#[cfg(test)]" + weak), 0)
        self.assertEqual(self.claims(safe + "#[cfg(test)]\nmod tests {\n    fn f() { g(); }\n" + weak + "}"), 0)
        # What follows the tests is no test.
        self.assertEqual(self.claims(safe + "#[cfg(test)]\nmod tests;\n" + weak), 1)
        self.assertEqual(self.claims(safe + "#[cfg(test)]\nmod tests {\n    fn f() { g(); }\n}\n" + weak), 1)
