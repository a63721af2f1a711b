"""Tests of the record of the one-round protocol's secrets: `python3 -m unittest discover papers/convfhe/params`."""

from __future__ import annotations

import json
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import ckks


class Claims(unittest.TestCase):
    def test_a_wrong_claim_is_told(self):
        record = json.loads(ckks.RECORD.read_text())
        first = record["sets"][0]
        row = f"Record {{ log_n: {first['log_n']}, log_modulus: {first['log2_q']}, weight: {first['weight']}, bits: "
        bits = ckks.decides(first["bits"])
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()) as told:
            source = Path(folder, "params.rs")
            for text, wrong in ((f"{row}{bits} }}", 0), (f"{row}{bits + 1} }}", 1), ("", 1)):
                source.write_text(text)
                self.assertEqual(ckks.check_claims(record, source), wrong, text)
            self.assertIn("claims", told.getvalue())
