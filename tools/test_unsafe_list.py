"""Tests of the list of `unsafe`: `python3 -m unittest discover tools`."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import unsafe_list

CODE = '''
//! Says `unsafe` in a comment, and "unsafe" in a string below.
fn plain() -> &'static str {
    "unsafe { }"
}
fn reads(x: &[u8]) -> u8 {
    // SAFETY: there is one,
    // which was looked at.
    unsafe { *x.as_ptr() }
}
fn silent(x: &[u8]) -> u8 {
    unsafe { *x.as_ptr() }
}
/// # Safety
/// It has one.
#[inline]
unsafe fn of_caller(x: *const u8) {}
// SAFETY: plain bytes.
unsafe impl Send for Bytes {}
#[test]
fn compares() {}
'''


class UnsafeList(unittest.TestCase):
    def found(self, code: str) -> list[unsafe_list.Unsafe]:
        return unsafe_list.unsafe_in("crates/x/src/lib.rs", code)

    def problems(self, code: str, tests: dict[str, list[str]]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "crates/x/src/lib.rs"
            path.parent.mkdir(parents=True)
            path.write_text(code)
            return unsafe_list.problems(Path(folder), unsafe_list.collect(Path(folder)), tests)

    def test_kinds_places_and_reasons(self):
        self.assertEqual(
            [(u.kind, u.item, u.reason) for u in self.found(CODE)],
            [
                ("block", "`reads`", "there is one, which was looked at."),
                ("block", "`silent`", ""),
                ("function", "`of_caller`", "It has one."),
                ("implementation", "`impl Send for Bytes`", "plain bytes."),
            ],
        )

    def test_what_has_no_reason_or_no_test_is_a_problem(self):
        file = "crates/x/src/lib.rs"
        bad = self.problems(CODE, {})
        self.assertEqual(len(bad), 2)
        self.assertIn("without a SAFETY comment", bad[0])
        self.assertIn("no test is named", bad[1])
        sound = CODE.replace("fn silent(x: &[u8]) -> u8 {\n", "fn silent(x: &[u8]) -> u8 {\n    // SAFETY: one.\n")
        self.assertEqual(self.problems(sound, {file: [f"{file}::compares"]}), [])
        self.assertEqual(len(self.problems(sound, {file: [f"{file}::gone"]})), 1)
        self.assertEqual(len(self.problems("fn safe() {}", {file: [f"{file}::compares"]})), 1)

    def test_a_new_one_changes_the_page(self):
        before = unsafe_list.page(self.found(CODE), {})
        more = CODE + "fn more() {\n    // SAFETY: another.\n    unsafe { f() }\n}\n"
        self.assertNotEqual(before, unsafe_list.page(self.found(more), {}))

    def test_the_page_is_what_the_code_gives(self):
        found = unsafe_list.collect(unsafe_list.ROOT)
        self.assertEqual(unsafe_list.problems(unsafe_list.ROOT, found, unsafe_list.TESTS), [])
        self.assertEqual(unsafe_list.PAGE.read_text(), unsafe_list.page(found, unsafe_list.TESTS))


if __name__ == "__main__":
    unittest.main()
