"""Tests of the claims about ReLU's polynomials: `python3 -m unittest discover papers/convfhe/params`."""

from __future__ import annotations

import io
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import relu

# One polynomial, which is quick to compute, and one as a paper might print it: x^3 less than x.
BEST = relu.best((3,))
PUBLISHED = [[1.5, -0.5]]


class Claims(unittest.TestCase):
    def told(self, *entries: str, declared: int | None = None) -> tuple[int, str]:
        """What the check gives for a Rust file with these entries, and what it says."""
        with (
            tempfile.TemporaryDirectory() as folder,
            redirect_stderr(io.StringIO()) as said,
            redirect_stdout(io.StringIO()),
        ):
            source = Path(folder, "relu.rs")
            count = len(entries) if declared is None else declared
            source.write_text(f"pub const COMPOSITES: [Composite; {count}] = [\n" + "".join(f"    {entry},\n" for entry in entries) + "];\n")
            with mock.patch.object(relu, "best", lambda degrees: BEST):
                return relu.check_claims(source), said.getvalue()

    def entry(self, name: str, rows: list[list[float]], error: float) -> str:
        lines = "".join(f"            &[{', '.join(map(repr, row))}],\n" for row in rows)
        return f'Composite {{\n        name: "{name}",\n        error: {error:.9f},\n        rows: &[\n{lines}        ],\n    }}'

    def minimax(self, scale: float = 1.0, error: float = 1.0) -> str:
        return self.entry("3", [[c * scale for c in BEST[0][0]]], error * relu.measured(BEST[0]))

    def published(self, error: float = 1.0) -> str:
        return self.entry("7-7-13", PUBLISHED, error * relu.measured(PUBLISHED))

    def test_what_is_computed_passes(self):
        self.assertEqual(self.told(self.minimax()), (0, ""))
        self.assertEqual(self.told(self.published(), self.minimax()), (0, ""))

    def test_a_wrong_error_and_wrong_coefficients_are_told(self):
        for entries in (
            [self.minimax(error=0.9)],
            [self.minimax(error=1.01)],
            [self.minimax(scale=1.05)],
            [self.minimax().replace("&[\n            &[", "&[\n            &[0.1, ")],
            [self.published(error=0.9), self.minimax()],
            [self.published(error=1.01), self.minimax()],
        ):
            wrong, said = self.told(*entries)
            self.assertEqual(wrong, 1, entries)
            self.assertIn("claims", said)

    def test_a_file_without_a_composition_and_one_that_claims_nothing_are_told(self):
        self.assertEqual(self.told()[0], 1)
        self.assertEqual(self.told(self.published())[0], 1)
        # One that cannot be read, or has no error.
        silent = self.published().replace("error:", "// error:")
        self.assertEqual(self.told(self.minimax(), silent)[0], 1)
        self.assertEqual(self.told(self.minimax(), declared=2)[0], 1)

    def test_the_librarys_are_all_read(self):
        self.assertEqual([name for name, _, _ in relu.options(relu.SOURCE)], ["7-15", "7-7-7", "7-7-13"])
        self.assertTrue(relu.PUBLISHED < {name for name, _, _ in relu.options(relu.SOURCE)})
