"""Tests that every check of these tools finds what it must, and fails on it as a program.

    python3 -m unittest discover tools

The larger ones are in test_check_layers.py and test_check_names.py, those of parameters beside these.
"""

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import benchmark_tables
import beside_opencheetah
import check_layers
import check_names
import fuzz
import sbom
import secrets_in_memory
import unsafe_list
import unused_dependencies
from planted import ROOT, Planted, run, tree


class EveryCheck(Planted):
    def test_each_check_that_the_lint_runs_has_a_test_that_plants_something(self):
        """A check that is added to `make lint` is added here, with the test that shows that it finds what it must."""
        planted = {
            "tools/check_layers.py": "tools/test_check_layers.py",
            "tools/check_names.py": "tools/test_check_names.py",
            "tools/unused_dependencies.py": "tools/test_checks.py",
            "tools/unsafe_list.py": "tools/test_checks.py",
            "tools/sbom.py": "tools/test_checks.py",
            "tools/fuzz.py": "tools/test_checks.py",
            "tools/benchmark_tables.py": "tools/test_checks.py",
            "params/rlwe.py": "params/test_rlwe.py",
            "params/lpn.py": "params/test_lpn.py",
            "params/lpn_tables.py": "params/test_lpn.py",
            "papers/convfhe/params/ckks.py": "papers/convfhe/params/test_ckks.py",
            "papers/convfhe/params/relu.py": "papers/convfhe/params/test_relu.py",
        }
        lint = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
        self.assertEqual(set(re.findall(r"\$\(PYTHON\) ([\w/]+\.py)", lint)), set(planted))
        for check, test in planted.items():
            self.assertIn(Path(check).stem, (ROOT / test).read_text())
        for folder in ("tools", "params", "papers/convfhe/params", "papers/convfhe", "papers/hyena"):
            self.assertIn(f"unittest discover {folder}", lint)

    def test_a_program_fails_on_what_it_finds(self):
        for check in (check_layers, check_names, fuzz):
            for planted in ([], ["one thing", "another"]):
                with mock.patch.object(check, "problems", return_value=planted):
                    told = "".join(f"{line}\n" for line in planted)
                    self.assertEqual(run(check.main, "--check"), (int(bool(planted)), told), check)


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


class Unsafe(Planted):
    FILE = "crates/x/src/lib.rs"
    SOUND = CODE.replace("fn silent(x: &[u8]) -> u8 {\n", "fn silent(x: &[u8]) -> u8 {\n    // SAFETY: one.\n") + "\n"

    def check(self, code: str, of: str | None = None, tests: dict[str, list[str]] | None = None) -> tuple[int, str]:
        """Checks code with the page of the code `of`."""
        tests = {self.FILE: [f"{self.FILE}::compares"]} if tests is None else tests
        with tree({self.FILE: code if of is None else of}) as root:
            page = root / "page.md"
            page.write_text(unsafe_list.page(unsafe_list.collect(root), tests))
            (root / self.FILE).write_text(code)
            with mock.patch.multiple(unsafe_list, ROOT=root, PAGE=page, TESTS=tests):
                return run(unsafe_list.main, "--check")

    def test_kinds_places_and_reasons(self):
        self.assertEqual(
            [(u.kind, u.item, u.reason) for u in unsafe_list.unsafe_in(self.FILE, CODE)],
            [
                ("block", "`reads`", "there is one, which was looked at."),
                ("block", "`silent`", ""),
                ("function", "`of_caller`", "It has one."),
                ("implementation", "`impl Send for Bytes`", "plain bytes."),
            ],
        )

    def test_it_fails_on_what_it_must_find(self):
        self.assertEqual(self.check(self.SOUND), (0, ""))
        more = "fn more() {\n    // SAFETY: another.\n    unsafe { f() }\n}\n"
        far = "// SAFETY: far away.\n\nfn f() {\n    unsafe { g() }\n}\n"
        for code, of, tests, said in (
            (self.SOUND + more, self.SOUND, None, "is not what the code gives"),
            (CODE, None, None, "an unsafe block without a SAFETY comment"),
            (self.SOUND + far, None, None, "an unsafe block without a SAFETY comment"),
            (self.SOUND + "unsafe impl Send for A {}\n", None, None, "implementation without a SAFETY comment"),
            (self.SOUND + "#[unsafe(no_mangle)]\nfn h() {}\n", None, None, "unsafe attribute without a SAFETY comment"),
            (self.SOUND, None, {}, "no test is named"),
            (self.SOUND, None, {self.FILE: [f"{self.FILE}::gone"]}, "there is no test"),
            ("fn safe() {}\n#[test]\nfn compares() {}\n", None, None, "has no `unsafe`"),
        ):
            failed, told = self.check(code, of, tests)
            self.assertEqual(failed, 1, (code, told))
            self.finds(told.splitlines(), said)


class Licences(Planted):
    def check(self, *parts: dict) -> tuple[int, str]:
        with (
            mock.patch.object(sbom, "cargo_metadata", return_value={}),
            mock.patch.object(sbom, "bill", return_value={"components": list(parts)}),
        ):
            return run(sbom.main, "--check")

    def test_it_fails_on_what_it_must_find(self):
        part = {"purl": "pkg:cargo/x@1", "scope": "excluded", "licenses": [{"expression": "MIT"}]}
        tool = {"purl": "pkg:pypi/x@1", "scope": "excluded"}
        module = {"name": "example.org/new", "version": "v1", "scope": "required"}
        self.assertEqual(self.check(part, tool), (0, ""))
        for wrong, said in (
            (part | {"licenses": [{"expression": "GPL-3.0-only"}]}, "is not allowed by deny.toml"),
            (part | {"licenses": []}, "no licence"),
            (tool | {"scope": "required"}, "no licence"),
            (module | {"purl": "pkg:golang/example.org/new@v1"}, "no licence"),
        ):
            failed, told = self.check(part, tool, wrong)
            self.assertEqual(failed, 1, told)
            self.finds(told.splitlines(), said)

    def test_a_module_and_a_package_that_no_table_knows_have_no_licence(self):
        files = {
            "papers/convfhe/oracle/go.mod": "require (\n\texample.org/new v1.2.3\n)\n",
            "python/jaguar/pyproject.toml": "[project]\ndependencies = ['new>=1']\n",
        }
        with tree(files | {f"{name}/requirements.txt": "" for name in sbom.REQUIREMENTS}) as root:
            parts = sbom.go_modules(root) + sbom.python_packages(root)
        self.finds(sbom.licence_problems(parts, {"MIT"}), "example.org/new", "pkg:pypi/new")

    def test_a_module_whose_text_reads_otherwise_is_a_problem(self):
        name, version = "github.com/ALTree/bigfloat", "v0.2.0"
        part = {"purl": f"pkg:golang/{name}@{version}", "name": name, "version": version}
        text = "Permission is hereby granted, free of charge, to any person"
        for licence, said in ((text, []), ("GNU GENERAL PUBLIC LICENSE", ["does not read as MIT"])):
            with tree({"github.com/!a!l!tree/bigfloat@v0.2.0/LICENSE": licence}) as modules:
                self.finds(sbom.go_problems(modules, [part]), *said)

    def test_expressions(self):
        allow = {"MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"}
        for expression, allowed in [
            ("MIT", True),
            ("GPL-3.0-only", False),
            ("GPL-3.0-only OR MIT", True),
            ("GPL-3.0-only AND MIT", False),
            ("(MIT OR GPL-3.0-only) AND Unicode-3.0", True),
            ("MIT OR GPL-3.0-only AND Unicode-3.0", True),
            ("GPL-3.0-only OR GPL-2.0-only AND MIT", False),
            ("Apache-2.0 WITH LLVM-exception", True),
            ("MIT WITH LLVM-exception", False),
        ]:
            self.assertEqual(sbom.allowed_by(expression, allow), allowed, expression)
        for broken in ("", "()", "MIT OR", "(MIT", "MIT Apache-2.0", "MIT (MIT)", "AND MIT"):
            with self.assertRaises(ValueError, msg=broken):
                sbom.allowed_by(broken, allow)


class Parts(Planted):
    def test_every_go_module_is_listed(self):
        listed = {part["name"]: part["version"] for part in sbom.go_modules(sbom.ROOT)}
        required = re.findall(r"([\w.-]+\.[\w.]+/[\w./-]+) (v\S+)", (sbom.ROOT / "papers/convfhe/oracle/go.mod").read_text())
        self.assertEqual(listed, dict(required))
        self.assertEqual(set(listed), set(sbom.GO_LICENCES))
        self.assertEqual({part["scope"] for part in sbom.go_modules(sbom.ROOT)}, {"excluded"})

    def test_every_pinned_package_of_python_is_listed(self):
        listed = {part["purl"] for part in sbom.python_packages(sbom.ROOT)}
        for folder in sbom.REQUIREMENTS:
            for line in (sbom.ROOT / folder / "requirements.txt").read_text().splitlines():
                if "==" in line:
                    name, version = line.split("==")
                    self.assertIn(f"pkg:pypi/{name.lower()}@{version}", listed)
        self.assertIn("pkg:pypi/numpy", listed)

    def test_what_only_tests_need_is_not_shipped(self):
        def package(name: str) -> dict[str, str]:
            return {"id": name, "name": name, "version": "1", "license": "MIT/Apache-2.0"}

        def dep(name: str, kind: str | None) -> dict[str, Any]:
            return {"pkg": name, "dep_kinds": [{"kind": kind}]}

        metadata = {
            "packages": [package("jaguar-cli"), package("used"), package("below"), package("tests")],
            "resolve": {
                "nodes": [
                    {"id": "jaguar-cli", "deps": [dep("used", None), dep("tests", "dev")]},
                    {"id": "used", "deps": [dep("below", None)]},
                    {"id": "below", "deps": []},
                    {"id": "tests", "deps": [dep("below", None)]},
                ]
            },
        }
        lock = {"package": [{"name": "used", "version": "1", "checksum": "00"}]}
        components, graph = sbom.crates(metadata, lock)
        scopes = {part["name"]: part["scope"] for part in components}
        runs = dict.fromkeys(("jaguar-cli", "used", "below"), "required")
        self.assertEqual(scopes, runs | {"tests": "excluded"})
        self.assertEqual([part.get("hashes") for part in components][1], [{"alg": "SHA-256", "content": "00"}])
        self.assertEqual(components[0]["licenses"], [{"expression": "MIT OR Apache-2.0"}])
        self.assertEqual(graph[0]["dependsOn"], ["pkg:cargo/tests@1", "pkg:cargo/used@1"])


KINDS = {"dependencies": None, "dev-dependencies": "dev", "build-dependencies": "build"}


class Dependencies(Planted):
    def found(
        self, files: dict[str, str], name: str = "one-thing", table: str = "dependencies", rename: str | None = None
    ) -> list[str]:
        """What is said of a crate with one dependency."""
        with tree(files) as root:
            targets = [{"kind": ["custom-build"], "src_path": str(root / "build.rs")}] if "build.rs" in files else []
            package: dict[str, Any] = {"name": "jaguar-x", "targets": targets}
            package["manifest_path"] = str(root / "Cargo.toml")
            package["dependencies"] = [{"name": name, "rename": rename, "kind": KINDS[table]}]
            # As the program runs.
            with mock.patch.object(unused_dependencies, "metadata", return_value={"packages": [package]}):
                failed, told = run(unused_dependencies.main)
            self.assertEqual(failed, int(bool(told)))
            return told.splitlines()

    def test_what_is_named_passes(self):
        for text in (
            "use one_thing::A;",
            "use one_thing;",
            "use ::one_thing::A;",
            "fn f() { one_thing::g() }",
            "extern crate one_thing;",
            "#[derive(one_thing::Derive)]\nstruct A;",
            "use one_thing as o;",
            "fn f() { one_thing :: g() }",
            '#[cfg_attr(feature = "x", one_thing::y)]',
        ):
            self.assertEqual(self.found({"src/lib.rs": text}), [], text)
        self.assertEqual(self.found({"src/lib.rs": "use other::A;"}, rename="other"), [])
        self.assertEqual(
            self.found({"src/lib.rs": '#[path = "../away/file.rs"]\nmod file;', "away/file.rs": "use one_thing::A;"}),
            [],
        )
        self.assertEqual(self.found({"build.rs": "use one_thing::A;"}, table="build-dependencies"), [])
        for files in (
            {"tests/a.rs": "use one_thing::A;"},
            {"examples/a.rs": "use one_thing::A;"},
            {"benches/a.rs": "use one_thing::A;"},
            {"tests/a.rs": '#[path = "../away/file.rs"]\nmod file;', "away/file.rs": "use one_thing::A;"},
            {"src/lib.rs": "#[cfg(test)]\nmod tests {\n    use one_thing::A;\n}"},
            {"src/tests.rs": "use one_thing::A;"},
            {"src/lib.rs": "/// ```\n/// use one_thing::A;\n/// ```\nfn f() {}"},
        ):
            self.assertEqual(self.found(files, table="dev-dependencies"), [], files)

    def test_what_is_not_named_is_found(self):
        for text in (
            "",
            "// use one_thing::A;",
            "/* one_thing::A */",
            'const A: &str = "one_thing::A";',
            "use one_thing_more::A;",
            "use another_one_thing::A;",
            "fn f() { a.one_thing(); }",
            "/// Of [`one_thing::A`].\nfn f() {}",
            "let one_thing = 1;",
        ):
            for table in ("dependencies", "build-dependencies"):
                found = self.found({"src/lib.rs": text, "build.rs": "fn main() {}"}, table=table)
                self.finds(found, f"{table}: one-thing is named nowhere")
        named = {"src/lib.rs": "use one_thing::A;"}
        self.finds(self.found(named, rename="other"), "one-thing is named nowhere")
        self.finds(self.found(named, table="build-dependencies"), "one-thing is named nowhere")

    def test_what_only_tests_name_belongs_to_them(self):
        for files in (
            {"src/lib.rs": "#[cfg(test)]\nmod tests {\n    use one_thing::A;\n}"},
            {"src/tests.rs": "use one_thing::A;"},
            {"tests/a.rs": "use one_thing::A;"},
        ):
            self.finds(self.found(files), "only tests name it")

    def test_an_exception_holds_and_one_too_many_is_told(self):
        with mock.patch.object(unused_dependencies, "NAMED_NOWHERE", {("jaguar-x", "one-thing"): "it is linked"}):
            self.assertEqual(self.found({"src/lib.rs": ""}), [])
            self.finds(self.found({"src/lib.rs": "use one_thing::A;"}), "needs no exception")

    def test_what_the_workspace_offers_and_none_takes_is_found(self):
        members = "[workspace]\nmembers = ['crates/*']\n[workspace.dependencies]\n"
        takes = "[package]\nname = 'x'\n[dev-dependencies]\ntaken.workspace = true\n"
        takes += "[target.'cfg(unix)'.dependencies]\nlinux = { workspace = true }\n"
        files = {"Cargo.toml": members + "taken = '1'\nleft = '1'\nlinux = '1'\n", "crates/x/Cargo.toml": takes}
        with tree(files) as root:
            self.finds(unused_dependencies.offered(root), "workspace.dependencies: no crate takes left")


class Tables(Planted):
    SETTING = {
        "commit": "0123abc",
        "command": "jaguar-bench x",
        "machine": "a machine",
        "hardware_threads": 2,
        "kernel": "scalar",
        "threads": "one thread",
        "link": "none",
        "repeats": 3,
        "load_before": 1.25,
        "load_after": None,
    }
    TABLE = {
        "name": "both",
        "header": ["name", "kind", "seconds"],
        "numbers_from": 2,
        "notes": "A note.",
        "rows": [["a|b", "dense", "1.0"], ["c", "split", "2.0"]],
    }

    @contextlib.contextmanager
    def recorded(self, **setting: str | None) -> Iterator[Path]:
        """A folder with a record and a plot."""
        report = {"setting": self.SETTING | setting, "tables": [self.TABLE]}
        with tree({"x.json": json.dumps(report), "x.svg": "<svg><title>A &lt; B</title></svg>"}) as figures:
            yield figures

    def fill(self, request: str, body: str = "stale\n", **setting: str | None) -> str:
        page = f"before\n<!-- figures: {request} -->\n{body}<!-- end of figures -->\nafter\n"
        with self.recorded(**setting) as figures:
            return benchmark_tables.fill(page, figures, figures.parent)

    def check(self, change: Callable[[str], str] = lambda page: page, request: str = "x both") -> tuple[int, str]:
        """Fills a page, changes it, and checks it."""
        with self.recorded() as figures:
            page = figures / "page.md"
            page.write_text(f"<!-- figures: {request} -->\n<!-- end of figures -->\n")
            run(benchmark_tables.main, str(page), "--figures", str(figures))
            page.write_text(change(page.read_text()))
            return run(benchmark_tables.main, str(page), "--figures", str(figures), "--check")

    def test_it_fails_on_what_it_must_find(self):
        self.assertEqual(self.check(), (0, ""))
        for change, request, said in (
            (lambda page: page.replace("1.0 |", "1.1 |"), "x both", "does not show"),
            (lambda page: page.replace("| c |", "| d |"), "x both", "does not show"),
            (lambda page: page.replace("a machine", "another"), "x both", "does not show"),
            (lambda page: page, "gone both", "gone.json is not recorded"),
            (lambda page: page, "x gone", "there is no table 'gone'"),
            (lambda page: page, "gone plot", "gone.svg is not recorded"),
            # No request that is read as one.
            (lambda page: page.replace("x both -->", "x -->"), "x both", "1 comments ask for figures, and 0 are read"),
            (lambda page: page.replace("<!-- end of figures -->", ""), "x both", "and 0 are read"),
        ):
            failed, told = self.check(change, request)
            self.assertEqual(failed, 1, (request, told))
            self.assertIn(said, told)

    def test_a_table_replaces_what_was_there_and_again_is_the_same(self):
        page = self.fill("x both")
        caption = "Commit 0123abc: `jaguar-bench x`; a machine, 2 hardware"
        self.assertTrue(page.startswith(f"before\n<!-- figures: x both -->\n\n{caption}"))
        table = "| name | kind | seconds |\n|---|---|---:|\n| a\\|b | dense | 1.0 |\n| c | split | 2.0 |\n"
        self.assertIn(f"load 1.2 to ?.\n\n{table}\nA note.\n", page)
        self.assertTrue(page.endswith("<!-- end of figures -->\nafter\n"))
        self.assertNotIn("stale", page)
        body = page.split("-->\n", 1)[1].split("<!-- end", 1)[0]
        self.assertEqual(self.fill("x both", body), page)

    def test_columns_and_rows_are_chosen(self):
        page = self.fill("x both [seconds; name] (split)")
        self.assertIn("| seconds | name |\n|---:|---|\n| 2.0 | c |\n", page)
        self.assertNotIn("a\\|b", page)
        page = self.fill("x both (not split)")
        self.assertIn("| a\\|b | dense | 1.0 |\n", page)
        self.assertNotIn("| c |", page)

    def test_a_plot_is_shown_where_it_lies(self):
        self.assertRegex(self.fill("x plot"), r"\n!\[A &lt; B\]\([^/()]+/x\.svg\)\n\n<!-- end")
        self.assertIn("stale\n", self.fill("y plot"))

    def test_a_page_keeps_what_was_not_recorded(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertIn("stale\n", self.fill("y both"))
        self.assertIn("y.json is not recorded", said.getvalue())

    def test_a_record_of_no_commit_is_refused(self):
        for commit in (None, "", "unknown", "0123abc, changed"):
            with self.assertRaises(benchmark_tables.Missing) as caught:
                self.fill("x both", commit=commit)
            self.assertIn(f"{commit!r}: build from a clean commit", str(caught.exception))
        self.assertIn("Commit 0123456: ", self.fill("x both", commit="0123456789abcdef"))

    def test_every_record_says_of_which_commit_it_is(self):
        for record in sorted((ROOT / "docs/figures").glob("*.json")):
            setting = json.loads(record.read_text())["setting"]
            self.assertRegex(benchmark_tables.commit(setting), r"^[0-9a-f]{7}$", record.name)

    def test_rows_beside_other_programs_follow_from_their_turns(self):
        record = json.loads((ROOT / "docs/figures/opencheetah.json").read_text())
        turns = record["figures"]["turns"]
        rows = [beside_opencheetah.row(network, form, found) for network, found in turns.items() for form in found]
        self.assertEqual(record["tables"][0]["rows"], rows)
        self.assertEqual({row[0] for row in rows}, set(beside_opencheetah.NETWORKS))

    def test_what_is_not_there_is_named(self):
        for request, named in (("x other", "other"), ("x both [speed]", "speed"), ("x both (none)", "none")):
            with self.assertRaises(benchmark_tables.Missing) as caught:
                self.fill(request)
            self.assertIn(named, str(caught.exception))


class FuzzingRecord(Planted):
    ONE = {"executions": 1000, "edges": 20, "inputs": 3, "peak_bytes": 2**20, "peak_input": 7, "slowest_seconds": 0}
    TWO = {"executions": 5, "edges": 2, "inputs": 1, "peak_bytes": 2**21, "peak_input": 1, "slowest_seconds": 1}
    RECORD = {"one": ONE, "two": TWO}

    def check(self, shown: dict[str, dict], change: Callable[[str], str] = lambda page: page) -> list[str]:
        with tree({"page.md": f"before\n{fuzz.BEGIN}old{fuzz.END}\nafter\n"}) as root:
            page = root / "page.md"
            text = fuzz.put(page.read_text(), fuzz.BEGIN, fuzz.END, fuzz.page(shown, list(shown)))
            page.write_text(change(text))
            return fuzz.problems(page, self.RECORD)

    def test_it_fails_on_what_it_must_find(self):
        self.assertEqual(self.check(self.RECORD), [])
        one = {"one": self.ONE}
        for shown, change, said in (
            (one, lambda page: page, "two is recorded and not shown"),
            (self.RECORD | {"three": self.TWO}, lambda page: page, "three is shown and not recorded"),
            (self.RECORD, lambda page: page.replace("1,000", "9,000"), "not that of the record"),
            (self.RECORD, lambda page: page.replace("1,005", "2,005"), "not that of the record"),
        ):
            self.finds(self.check(shown, change), said)

    def test_what_the_fuzzer_says_is_read(self):
        log = """#2 INITED cov: 10 ft: 12 corp: 1/1b exec/s: 0 rss: 40Mb
worst: 900 bytes for 3 bytes of input
worst: 5000 bytes for 12 bytes of input
#90 NEW cov: 31 ft: 40 corp: 6/30b lim: 4 exec/s: 0 rss: 41Mb
stat::number_of_executed_units: 12345
stat::slowest_unit_time_sec: 2
"""
        wanted = dict(self.ONE, executions=12345, edges=31, inputs=6, peak_bytes=5000, peak_input=12, slowest_seconds=2)
        self.assertEqual(fuzz.figures(log), wanted)


class SecretsInMemory(Planted):
    """With a program in place of valgrind that says what a case would make it say."""

    LINES = ["fn f() {", "    if secret == 0 {}", "    meant[secret] = 1;", "}"]

    def run_with(
        self, reports: dict[str, list[int]], cases: dict[str, dict[str, str]], secrets: int = 1, ends: int = 0
    ) -> tuple[int, str]:
        """`reports`: for each case of the program the lines that memcheck names. A leak on purpose is among them."""
        reports = {"PLANTED": [2]} | reports
        with tree({"source.rs": "\n".join(self.LINES) + "\n"}) as folder:
            jump = "==1== Conditional jump or move depends on uninitialised value(s)\n"
            jump += f"==1==    at 0x1: f ({folder}/source.rs:%d)\n"
            said = {case: "".join(jump % line for line in lines) for case, lines in reports.items()}
            start = f"#!{sys.executable}\nimport sys\nsaid = {said!r}\n"
            fakes = {
                "program": "print(*said, sep='\\n')\n",
                "valgrind": "log = next(a for a in sys.argv if a.startswith('--log-file=')).partition('=')[2]\n"
                "open(log, 'w').write(said[sys.argv[-1]])\n"
                f"print('secret bytes: 3\\n' * {secrets}, end='')\nsys.exit({ends})\n",
            }
            for name, text in fakes.items():
                (folder / name).write_text(start + text)
                (folder / name).chmod(0o755)
            path = f"{folder}{os.pathsep}{os.environ['PATH']}"
            with mock.patch.dict(os.environ, PATH=path), mock.patch.object(secrets_in_memory, "CASES", cases):
                return run(secrets_in_memory.main, "cases", str(folder / "program"))

    def test_a_report_is_of_the_innermost_line_of_this_project(self):
        with tree({"some.rs": "fn f() {\n    if secret == 0 {}\n}\nlet other = 1;\n"}) as folder:
            source = folder / "some.rs"
            said = f"""==7== Conditional jump or move depends on uninitialised value(s)
==7==    at 0x1B0154: all<i16, a::{{closure_env#0}}> (/rustc/0123/library/core/src/slice/iter/macros.rs:315)
==7==    by 0x1B0154: a::f (in {source}:x) ({source}:2)
==7==    by 0x231165: main ({source}:4)
==7== 
==7== Use of uninitialised value of size 8
==7==    at 0x231165: main ({source}:4)
==7== Conditional jump or move depends on uninitialised value(s)
==7==    at 0x231165: ??? (in /bin/program)
"""
            found = ["some.rs:2: if secret == 0 {}", "some.rs:4: let other = 1;", "?"]
            self.assertEqual(secrets_in_memory.lines(said), found)
            self.assertEqual(secrets_in_memory.lines(said, folder), found)
            self.assertEqual(secrets_in_memory.lines(said, folder / "elsewhere"), ["?", "?", "?"])

    def test_only_what_is_meant_passes(self):
        meant, elsewhere = ({f"{file}: meant[secret]": "the answer"} for file in ("source.rs", "other.rs"))
        for reports, cases, failed in (
            ({"a": []}, {}, 0),
            ({"a": [3]}, {"a": meant}, 0),
            # A branch on a secret; one beside what is meant; what is meant and not there; the same words in another
            # file; a leak on purpose that is not seen.
            ({"a": [2]}, {}, 1),
            ({"a": [3, 2]}, {"a": meant}, 1),
            ({"a": []}, {"a": meant}, 1),
            ({"a": [3]}, {"a": elsewhere}, 1),
            ({"PLANTED": []}, {}, 1),
            ({"a": [], "b": [2]}, {}, 1),
        ):
            self.assertEqual(self.run_with(reports, cases)[0], failed, (reports, cases))

    def test_what_cannot_be_judged_is_told(self):
        for cases, secrets, ends, said in (
            ({}, 0, 0, "no secret was marked"),
            ({}, 2, 0, "no secret was marked"),
            ({}, 1, 3, "ended with 3"),
            ({"gone": {}}, 1, 0, "has no cases ['gone']"),
        ):
            with self.assertRaises(SystemExit) as caught:
                self.run_with({"a": []}, cases, secrets, ends)
            self.assertIn(said, str(caught.exception))

    def test_a_session_in_which_nothing_secret_is_sent_is_none(self):
        for report, found in (("writev(vector[...]) points to", True), ("write(buf) points to", True), ("x", False)):
            said = f"==1== Syscall param {report} uninitialised byte(s)"
            self.assertEqual(bool(secrets_in_memory.SENT.search(said)), found, report)
