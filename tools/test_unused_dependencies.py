"""Tests of the check of dependencies, by what it must find: `python3 -m unittest discover tools`."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

import unused_dependencies

KINDS = {"dependencies": None, "dev-dependencies": "dev", "build-dependencies": "build"}


class Dependencies(unittest.TestCase):
    def found(
        self, files: dict[str, str], name: str = "one-thing", table: str = "dependencies", rename: str | None = None
    ) -> list[str]:
        """What is said of a crate with one dependency."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            targets = [{"kind": ["custom-build"], "src_path": str(root / "build.rs")}] if "build.rs" in files else []
            package: dict[str, Any] = {
                "name": "jaguar-x",
                "manifest_path": str(root / "Cargo.toml"),
                "targets": targets,
                "dependencies": [{"name": name, "rename": rename, "kind": KINDS[table]}],
            }
            return unused_dependencies.unused(package)

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
                self.assertEqual(len(found), 1, (text, table))
                self.assertIn(f"{table}: one-thing is named nowhere", found[0])
        self.assertEqual(len(self.found({"src/lib.rs": "use one_thing::A;"}, rename="other")), 1)
        self.assertEqual(len(self.found({"src/lib.rs": "use one_thing::A;"}, table="build-dependencies")), 1)

    def test_what_only_tests_name_belongs_to_them(self):
        for files in (
            {"src/lib.rs": "#[cfg(test)]\nmod tests {\n    use one_thing::A;\n}"},
            {"src/tests.rs": "use one_thing::A;"},
            {"tests/a.rs": "use one_thing::A;"},
        ):
            found = self.found(files)
            self.assertEqual(len(found), 1, files)
            self.assertIn("only tests name it", found[0])

    def test_an_exception_holds_and_one_too_many_is_told(self):
        with mock.patch.object(unused_dependencies, "NAMED_NOWHERE", {("jaguar-x", "one-thing"): "it is linked"}):
            self.assertEqual(self.found({"src/lib.rs": ""}), [])
            self.assertIn("needs no exception", self.found({"src/lib.rs": "use one_thing::A;"})[0])

    def test_what_the_workspace_offers_and_none_takes_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "Cargo.toml").write_text(
                "[workspace]\nmembers = ['crates/*']\n[workspace.dependencies]\ntaken = '1'\nleft = '1'\nlinux = '1'\n"
            )
            (root / "crates/x").mkdir(parents=True)
            (root / "crates/x/Cargo.toml").write_text(
                "[package]\nname = 'x'\n[dev-dependencies]\ntaken.workspace = true\n[target.'cfg(unix)'.dependencies]\nlinux = { workspace = true }\n"
            )
            self.assertEqual(
                unused_dependencies.offered(root), ["Cargo.toml: workspace.dependencies: no crate takes left"]
            )

    def test_the_tree_as_it_is_has_none(self):
        with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(unused_dependencies.main(), 0, told.getvalue())

    def test_the_program_fails_on_what_it_finds(self):
        package = {
            "name": "jaguar-x",
            "manifest_path": "/nowhere/Cargo.toml",
            "targets": [],
            "dependencies": [{"name": "a", "rename": None, "kind": None}],
        }
        with (
            mock.patch.object(unused_dependencies, "metadata", return_value={"packages": [package]}),
            contextlib.redirect_stderr(io.StringIO()) as told,
        ):
            self.assertEqual(unused_dependencies.main(), 1)
        self.assertIn("a is named nowhere", told.getvalue())


if __name__ == "__main__":
    unittest.main()
