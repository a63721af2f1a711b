"""Tests that every check of these tools fails, as a program, on what it must find: `python3 -m unittest discover tools`.

What a check finds in detail is tested beside it: test_check_layers.py, test_check_names.py, test_unused_dependencies.py,
test_unsafe_list.py, test_sbom.py, test_tools.py; of params/ in params/test_*.py.
"""

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

import benchmark_tables
import docs_site
import fuzz
import python_reference
import sbom
import secrets_in_memory
import unsafe_list

ROOT = Path(__file__).resolve().parent.parent


def run(main: Callable[[], int], *arguments: str) -> tuple[int, str]:
    """A program's exit status, and what it said to standard error."""
    with (
        mock.patch.object(sys, "argv", ["program", *arguments]),
        contextlib.redirect_stderr(io.StringIO()) as said,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        return main(), said.getvalue()


class EveryCheck(unittest.TestCase):
    def test_each_check_that_the_lint_runs_has_a_test_that_plants_something(self):
        """A check that is added to `make lint` is added here, with the test that shows that it finds what it must."""
        planted = {
            "tools/check_layers.py": "tools/test_check_layers.py",
            "tools/check_names.py": "tools/test_check_names.py",
            "tools/unused_dependencies.py": "tools/test_unused_dependencies.py",
            "tools/unsafe_list.py": "tools/test_unsafe_list.py",
            "tools/sbom.py": "tools/test_sbom.py",
            "tools/fuzz.py": "tools/test_checks.py",
            "tools/benchmark_tables.py": "tools/test_checks.py",
            "params/rlwe.py": "params/test_rlwe.py",
            "params/lpn.py": "params/test_lpn.py",
            "params/lpn_tables.py": "params/test_lpn.py",
            "params/ckks.py": "params/test_ckks.py",
            "params/relu.py": "params/test_relu.py",
        }
        lint = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
        self.assertEqual(set(re.findall(r"\$\(PYTHON\) ([\w/]+\.py)", lint)), set(planted))
        for check, test in planted.items():
            self.assertIn(Path(check).stem, (ROOT / test).read_text())
        for folder in ("tools", "params"):
            self.assertIn(f"unittest discover {folder}", lint)


class Unsafe(unittest.TestCase):
    FILE = "crates/x/src/lib.rs"
    CODE = "#[test]\nfn compares() {}\nfn f() {\n    // SAFETY: one.\n    unsafe { g() }\n}\n"

    def check(self, code: str, page: str | None, tests: dict[str, list[str]] | None = None) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / self.FILE).parent.mkdir(parents=True)
            (root / self.FILE).write_text(code)
            (root / "page.md").write_text(page or "")
            tests = {self.FILE: [f"{self.FILE}::compares"]} if tests is None else tests
            if page is None:
                (root / "page.md").write_text(unsafe_list.page(unsafe_list.collect(root), tests))
            with mock.patch.multiple(unsafe_list, ROOT=root, PAGE=root / "page.md", TESTS=tests):
                return run(unsafe_list.main, "--check")

    def test_it_fails_on_what_it_must_find(self):
        self.assertEqual(self.check(self.CODE, None), (0, ""))
        for code, page, tests, said in (
            (self.CODE, "an old page", None, "is not what the code gives"),
            (self.CODE.replace("// SAFETY: one.", "// One."), None, None, "without a SAFETY comment"),
            (
                "// SAFETY: far away.\n\n" + self.CODE.replace("// SAFETY: one.", ""),
                None,
                None,
                "without a SAFETY comment",
            ),
            (self.CODE + "unsafe impl Send for A {}\n", None, None, "unsafe implementation without a SAFETY comment"),
            (self.CODE + "#[unsafe(no_mangle)]\nfn h() {}\n", None, None, "unsafe attribute without a SAFETY comment"),
            (self.CODE, None, {}, "no test is named"),
            (self.CODE, None, {self.FILE: [f"{self.FILE}::gone"]}, "there is no test"),
            ("fn safe() {}\n#[test]\nfn compares() {}\n", None, None, "has no `unsafe`"),
        ):
            failed, told = self.check(code, page, tests)
            self.assertEqual(failed, 1, (code, told))
            self.assertIn(said, told)


class Licences(unittest.TestCase):
    def check(self, *parts: dict) -> tuple[int, str]:
        with (
            mock.patch.object(sbom, "cargo_metadata", return_value={}),
            mock.patch.object(sbom, "bill", return_value={"components": list(parts)}),
        ):
            return run(sbom.main, "--check")

    def test_it_fails_on_what_it_must_find(self):
        part = {"purl": "pkg:cargo/x@1", "scope": "required", "licenses": [{"expression": "MIT"}]}
        self.assertEqual(self.check(part), (0, ""))
        for wrong, said in (
            (part | {"licenses": [{"expression": "GPL-3.0-only"}]}, "is not allowed by deny.toml"),
            (part | {"licenses": []}, "no licence"),
            (
                {
                    "purl": "pkg:golang/example.org/new@v1",
                    "name": "example.org/new",
                    "version": "v1",
                    "scope": "required",
                },
                "no licence",
            ),
        ):
            failed, told = self.check(part, wrong)
            self.assertEqual(failed, 1, told)
            self.assertIn(said, told)

    def test_a_module_and_a_package_that_no_table_knows_have_no_licence(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "fhe").mkdir()
            (root / "fhe/go.mod").write_text("require (\n\texample.org/new v1.2.3\n)\n")
            (root / "python/jaguar").mkdir(parents=True)
            (root / "python/jaguar/pyproject.toml").write_text("[project]\ndependencies = ['new>=1']\n")
            for name in sbom.REQUIREMENTS:
                (root / name).mkdir(parents=True, exist_ok=True)
                (root / name / "requirements.txt").write_text("")
            parts = sbom.go_modules(root) + sbom.python_packages(root)
            self.assertEqual(len(parts), 2)
            self.assertEqual(len(sbom.licence_problems(parts, {"MIT"})), 2)


class Tables(unittest.TestCase):
    REPORT = {
        "setting": {
            "command": "jaguar-bench x",
            "machine": "a machine",
            "hardware_threads": 2,
            "kernel": "scalar",
            "threads": "one thread",
            "link": "none",
            "repeats": 3,
            "load_before": 1.0,
            "load_after": 1.0,
            "commit": "0123456789ab",
        },
        "tables": [{"name": "all", "header": ["name", "ms"], "numbers_from": 1, "notes": "", "rows": [["a", "1.0"]]}],
    }

    def check(self, change: Callable[[str], str] = lambda page: page, request: str = "x all") -> tuple[int, str]:
        """Fills a page, changes it, and checks it."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "x.json").write_text(json.dumps(self.REPORT))
            page = root / "page.md"
            page.write_text(f"<!-- figures: {request} -->\n<!-- end of figures -->\n")
            run(benchmark_tables.main, str(page), "--figures", folder)
            page.write_text(change(page.read_text()))
            return run(benchmark_tables.main, str(page), "--figures", folder, "--check")

    def test_it_fails_on_what_it_must_find(self):
        self.assertEqual(self.check(), (0, ""))
        for change, request, said in (
            (lambda page: page.replace("1.0 |", "1.1 |"), "x all", "does not show"),
            (lambda page: page.replace("| a |", "| b |"), "x all", "does not show"),
            (lambda page: page.replace("a machine", "another"), "x all", "does not show"),
            (lambda page: page, "gone all", "gone.json is not recorded"),
            (lambda page: page, "x gone", "there is no table 'gone'"),
            (lambda page: page, "x plot", "x.svg is not recorded"),
            # No request that is read as one.
            (lambda page: page.replace("x all -->", "x -->"), "x all", "1 comments ask for figures, and 0 are read"),
            (lambda page: page.replace("<!-- end of figures -->", ""), "x all", "and 0 are read"),
        ):
            failed, told = self.check(change, request)
            self.assertEqual(failed, 1, (request, told))
            self.assertIn(said, told)


class FuzzingRecord(unittest.TestCase):
    RECORD = {
        "one": {
            "executions": 1000,
            "edges": 20,
            "inputs": 3,
            "peak_bytes": 2**20,
            "peak_input": 7,
            "slowest_seconds": 0,
        },
        "two": {"executions": 5, "edges": 2, "inputs": 1, "peak_bytes": 2**21, "peak_input": 1, "slowest_seconds": 1},
    }

    def check(self, shown: dict[str, dict], change: Callable[[str], str] = lambda page: page) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            page.write_text(f"before\n{fuzz.BEGIN}old{fuzz.END}\nafter\n")
            fuzz.put(page, fuzz.page(shown, list(shown)))
            page.write_text(change(page.read_text()))
            return fuzz.problems(page, self.RECORD)

    def test_it_fails_on_what_it_must_find(self):
        self.assertEqual(self.check(self.RECORD), [])
        one = {"one": self.RECORD["one"]}
        for shown, change, said in (
            (one, lambda page: page, "two is recorded and not shown"),
            (self.RECORD | {"three": self.RECORD["two"]}, lambda page: page, "three is shown and not recorded"),
            (self.RECORD, lambda page: page.replace("1,000", "9,000"), "not that of the record"),
            (self.RECORD, lambda page: page.replace("1,005", "2,005"), "not that of the record"),
        ):
            found = self.check(shown, change)
            self.assertEqual(len(found), 1, found)
            self.assertIn(said, found[0])

    def test_the_program_fails_on_it(self):
        self.assertEqual(run(fuzz.main, "--check"), (0, ""))
        with mock.patch.object(fuzz, "problems", return_value=["something"]):
            self.assertEqual(run(fuzz.main, "--check"), (1, "something\n"))

    def test_what_the_fuzzer_says_is_read(self):
        log = """#2 INITED cov: 10 ft: 12 corp: 1/1b exec/s: 0 rss: 40Mb
worst: 900 bytes for 3 bytes of input
worst: 5000 bytes for 12 bytes of input
#90 NEW cov: 31 ft: 40 corp: 6/30b lim: 4 exec/s: 0 rss: 41Mb
stat::number_of_executed_units: 12345
stat::slowest_unit_time_sec: 2
"""
        wanted = {
            "executions": 12345,
            "edges": 31,
            "inputs": 6,
            "peak_bytes": 5000,
            "peak_input": 12,
            "slowest_seconds": 2,
        }
        self.assertEqual(fuzz.figures(log), wanted)


class SecretsInMemory(unittest.TestCase):
    """With a program in place of valgrind that says what a case would make it say."""

    LINES = ["fn f() {", "    if secret == 0 {}", "    meant[secret] = 1;", "}"]

    def run_with(
        self, reports: dict[str, list[int]], cases: dict[str, dict[str, str]], secrets: int = 1, ends: int = 0
    ) -> tuple[int, str]:
        """`reports`: for each case of the program the lines that memcheck names. A leak on purpose is among them."""
        reports = {"PLANTED": [2]} | reports
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source.rs"
            source.write_text("\n".join(self.LINES) + "\n")
            said = {
                case: "".join(
                    f"==1== Conditional jump or move depends on uninitialised value(s)\n==1==    at 0x1: f ({source}:{line})\n"
                    for line in lines
                )
                for case, lines in reports.items()
            }
            (Path(folder) / "said.json").write_text(json.dumps(said))
            start = f"#!{sys.executable}\nimport json, sys\nsaid = json.load(open({str(Path(folder) / 'said.json')!r}))\n"
            fakes = {
                "program": "print(*said, sep='\\n')\n",
                "valgrind": "log = next(a for a in sys.argv if a.startswith('--log-file=')).partition('=')[2]\n"
                f"open(log, 'w').write(said[sys.argv[-1]])\nprint('secret bytes: 3\\n' * {secrets}, end='')\nsys.exit({ends})\n",
            }
            for name, text in fakes.items():
                (Path(folder) / name).write_text(start + text)
                (Path(folder) / name).chmod(0o755)
            path = f"{folder}{os.pathsep}{os.environ['PATH']}"
            with mock.patch.dict(os.environ, PATH=path), mock.patch.object(secrets_in_memory, "CASES", cases):
                return run(secrets_in_memory.main, "cases", str(Path(folder) / "program"))

    def test_only_what_is_meant_passes(self):
        meant = {"source.rs: meant[secret]": "the answer"}
        for reports, cases, failed in (
            ({"a": []}, {}, 0),
            ({"a": [3]}, {"a": meant}, 0),
            # A branch on a secret; one beside what is meant; what is meant and not there; a leak on purpose that is not seen.
            ({"a": [2]}, {}, 1),
            ({"a": [3, 2]}, {"a": meant}, 1),
            ({"a": []}, {"a": meant}, 1),
            ({"PLANTED": []}, {}, 1),
            ({"a": [], "b": [2]}, {}, 1),
        ):
            self.assertEqual(self.run_with(reports, cases)[0], failed, (reports, cases))

    def test_a_case_that_marks_no_secret_is_none(self):
        for secrets in (0, 2):
            with self.assertRaises(SystemExit) as caught:
                self.run_with({"a": []}, {}, secrets)
            self.assertIn("no secret was marked", str(caught.exception))

    def test_a_program_that_fails_is_told(self):
        with self.assertRaises(SystemExit) as caught:
            self.run_with({"a": []}, {}, ends=3)
        self.assertIn("ended with 3", str(caught.exception))

    def test_a_case_that_went_is_told(self):
        with self.assertRaises(SystemExit) as caught:
            self.run_with({"a": []}, {"gone": {}})
        self.assertIn("has no cases ['gone']", str(caught.exception))

    def test_a_session_in_which_nothing_secret_is_sent_is_none(self):
        for report, found in (("writev(vector[...]) points to", True), ("write(buf) points to", True), ("x", False)):
            said = f"==1== Syscall param {report} uninitialised byte(s)"
            self.assertEqual(bool(secrets_in_memory.SENT.search(said)), found, report)


class Site(unittest.TestCase):
    def test_a_link_that_leads_nowhere_is_a_warning(self):
        """mkdocs runs with `--strict`: a warning is an error."""
        page = mock.Mock()
        page.file.src_uri = "start.md"
        for text, count in (
            ("[a](models.md)", 0),
            ("[a](gone.md)", 1),
            ("[a](../crates/gone.rs) and [b](gone.md#part)", 2),
            ("`[a](b)` [c](../Makefile)", 0),
        ):
            with mock.patch.object(docs_site.LOG, "warning") as warned:
                docs_site.on_page_markdown(text.replace("`[a](b)` ", ""), page, None, None)
            self.assertEqual(warned.call_count, count, text)
        self.assertIn("build --strict", (ROOT / "Makefile").read_text())

    def test_a_public_name_without_its_line_in_the_reference_is_seen(self):
        names = python_reference.exported()
        with (
            mock.patch.object(python_reference, "exported", return_value=[*names, "NewThing"]),
            self.assertRaises(KeyError),
        ):
            python_reference.page()


if __name__ == "__main__":
    unittest.main()
