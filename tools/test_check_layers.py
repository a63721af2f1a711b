"""Tests of the check of layers, by what it must find: `python3 -m unittest discover tools`."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

import check_layers
import import_circles

# A crate of backends as small as can be: two of them, one with a second name.
BACKENDS = {
    "crates/linear/src/lib.rs": "pub mod hyena;\npub mod jaguar;\npub mod layout;\n",
    "crates/linear/src/jaguar/layer.rs": 'fn name(&self) -> &\'static str {\n        "jaguar"\n    }\n',
    "crates/linear/src/hyena/layer.rs": "use crate::jaguar::X;\n",
    "crates/linear/src/hyena/mod.rs": """impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Blocks => "cirencode",
        }
    }
}
""",
    "crates/plan/src/kit.rs": "use jaguar_linear::{hyena, jaguar};\n",
}


def tree(folder: str, files: dict[str, str]) -> Path:
    """Writes files into a folder."""
    for name, text in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Path(folder)


class Layers(unittest.TestCase):
    def violations(self, **manifests: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in manifests.items():
                path = Path(folder) / name / "Cargo.toml"
                path.parent.mkdir()
                path.write_text(f'[package]\nname = "jaguar-{name}"\n{text}')
            return check_layers.violations(Path(folder))

    def test_downward_arrows_pass(self):
        self.assertEqual(
            self.violations(
                ring="",
                mpc="[dependencies]\njaguar-ot.workspace = true\n[dev-dependencies]\njaguar-ring.workspace = true\n",
                cli="[dependencies]\njaguar-engine.workspace = true\nserde = '1'\n",
            ),
            [],
        )

    def test_upward_arrows_are_found(self):
        for text in (
            "[dependencies]\njaguar-mpc.workspace = true\n",
            "[build-dependencies]\njaguar-mpc = { path = '../mpc' }\n",
            "[dev-dependencies]\njaguar-mpc.workspace = true\n",
            "[dependencies]\nshares = { package = 'jaguar-mpc', path = '../mpc' }\n",
            "[target.'cfg(unix)'.dependencies]\njaguar-mpc.workspace = true\n",
        ):
            found = self.violations(ot=text)
            self.assertEqual(len(found), 1, text)
            self.assertIn("mpc", found[0])

    def test_a_sideways_arrow_is_found(self):
        self.assertEqual(len(self.violations(graph="[dependencies]\njaguar-ring.workspace = true\n")), 1)

    def test_an_unknown_crate_is_found(self):
        self.assertEqual(len(self.violations(utils="")), 1)

    def test_an_arrow_that_the_workspace_renames_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = tree(
                folder,
                {
                    "Cargo.toml": "[workspace.dependencies]\nshares = { package = 'jaguar-mpc', path = 'crates/mpc' }\n",
                    "crates/ot/Cargo.toml": "[package]\nname = 'jaguar-ot'\n[dependencies]\nshares.workspace = true\n",
                },
            )
            found = check_layers.violations(root / "crates")
            self.assertEqual(len(found), 1)
            self.assertIn("ot must not depend on mpc", found[0])

    def test_a_test_that_looks_upwards_and_a_folder_of_another_name_are_found(self):
        self.assertEqual(len(self.violations(ring="[dev-dependencies]\njaguar-engine.workspace = true\n")), 1)
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, {"crates/other/Cargo.toml": "[package]\nname = 'jaguar-ring'\n"})
            self.assertIn("its folder other", check_layers.violations(root / "crates")[0])

    def test_a_member_of_the_workspace_that_is_nowhere_looked_at_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = tree(
                folder,
                {
                    "Cargo.toml": "[workspace]\nmembers = ['crates/*', 'fuzz', 'extra/thing']\n",
                    "crates/ring/Cargo.toml": "[package]\nname = 'jaguar-ring'\n",
                },
            )
            found = check_layers.violations(root / "crates")
            self.assertEqual(len(found), 1)
            self.assertIn("extra/thing", found[0])

    def test_the_tree_as_it_is_has_none(self):
        self.assertEqual(check_layers.problems(check_layers.ROOT), [])

    def test_the_program_fails_on_what_it_finds(self):
        for planted in ([], ["something"]):
            with (
                mock.patch.object(check_layers, "problems", return_value=planted),
                contextlib.redirect_stderr(io.StringIO()) as told,
                contextlib.redirect_stdout(io.StringIO()),
            ):
                self.assertEqual(check_layers.main(), len(planted))
            self.assertEqual(told.getvalue(), "".join(f"{line}\n" for line in planted))


class NamedBackends(unittest.TestCase):
    def found(self, name: str, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, BACKENDS | {name: text})
            return [line.removeprefix(f"{root}/") for line in check_layers.named_backends(root)]

    def test_every_way_to_name_one_is_found(self):
        elsewhere = "crates/engine/src/stop.rs"
        for text in (
            "pub use jaguar_linear::hyena::Hyena;",
            "use jaguar_linear::hyena;",
            "use jaguar_linear::{layout::Layout, hyena::{Form, Layer}};",
            "use jaguar_linear::{\n    layout::Layout,\n    jaguar::Layer,\n};",
            "use jaguar_linear::*;",
            "use jaguar_linear as backends;",
            "use ::jaguar_linear::hyena::Form;",
            "fn f() -> jaguar_linear::hyena::Form {}",
            "fn f() {\n    jaguar_linear :: hyena :: run();\n}",
            "const A: BackendId = Kit::CHEETAH;",
            "const A: &[BackendId] = &jaguar_linear::hyena::ALL;",
            'fn f() -> bool { name == "hyena" }',
            'fn f() -> bool { name == "hyena-padded" }',
            'fn f() -> bool { name == "cirencode" }',
            "#[cfg(test)]\nmod tests { }\nuse jaguar_linear::hyena::Form;",
        ):
            found = self.found(elsewhere, text)
            self.assertEqual(len(found), 1, (text, found))
            self.assertTrue(found[0].startswith(f"{elsewhere}:"), found)

    def test_in_the_crate_of_the_backends_too(self):
        for name, text in (
            ("crates/linear/src/layout.rs", "use crate::hyena::Form;"),
            ("crates/linear/src/layout.rs", "use super::{hyena::Form, backend};"),
            ("crates/linear/src/layout.rs", "fn f() { crate::jaguar::run() }"),
            ("crates/linear/src/layout/mod.rs", "use super::super::hyena::Form;"),
            ("crates/linear/src/lib.rs", BACKENDS["crates/linear/src/lib.rs"] + "pub use hyena::Form;"),
            ("python/jaguar/src/lib.rs", "use jaguar_linear::hyena::Form;"),
        ):
            self.assertEqual(len(self.found(name, text)), 1, (name, text))

    def test_what_names_none_passes(self):
        for name, text in (
            ("crates/engine/src/stop.rs", "use jaguar_linear::{backend::BackendId, layout};\nuse jaguar_wire::hyena;"),
            ("crates/engine/src/stop.rs", "// jaguar_linear::hyena is one\nfn f() { let hyena = 1; }"),
            (
                "crates/engine/src/stop.rs",
                '#[cfg(test)]\nmod tests {\n    use jaguar_linear::hyena::Form;\n    const A: &str = "hyena";\n}',
            ),
            ("crates/engine/src/tests/some.rs", "use jaguar_linear::hyena::Form;"),
            ("crates/engine/src/stop.rs", "fn f() { Kit::standard(); }"),
            ("crates/cli/src/kit.rs", "use jaguar_linear::{fregata, hyena};"),
            ("crates/engine/src/stop.rs", 'const PROJECT: &str = "jaguar";'),
            ("crates/bench/src/main.rs", "use jaguar_linear::hyena::Form;"),
            ("crates/linear/src/hyena/search.rs", "use crate::jaguar::Layer;"),
        ):
            self.assertEqual(self.found(name, text), [], (name, text))

    def test_an_exception_that_is_not_needed_is_found(self):
        self.assertIn("needs no exception", self.found("crates/bench/src/main.rs", "fn f() {}")[0])


class NamedOperators(unittest.TestCase):
    def found(self, name: str, text: str, allowed: int = 0) -> list[str]:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(check_layers, "MAY_NAME_OPERATORS", {name: (allowed, "")}):
            return check_layers.named_operators(tree(folder, {name: text}))

    def test_every_way_to_name_one_is_found(self):
        for text in (
            "match node.op { Op::Relu { .. } => 1, _ => 0 }",
            "let op = network::Op::Add;",
            "use crate::network::Op::*;",
            "use crate::network::Op::{Add, Concat};",
            "use jaguar_graph::network::{Node, Op as Operation};",
            "matches!(op, float::Op ::Clip { .. })",
        ):
            self.assertEqual(len(self.found("crates/plan/src/domains.rs", text)), 1, text)

    def test_the_folder_itself_tests_and_comments_pass(self):
        self.assertEqual(self.found("crates/graph/src/ir/ops/mod.rs", "Op::Relu"), [])
        for name in ("crates/plan/src/tests.rs", "crates/engine/src/tests/stream.rs"):
            self.assertEqual(self.found(name, "Op::Relu"), [])
        for text in ("// Op::Relu", '"Op::Relu"', "PreparedOp::Local", "node.op.work()", "#[cfg(test)]\nmod tests { use Op::*; }"):
            self.assertEqual(self.found("crates/plan/src/lib.rs", text), [], text)

    def test_what_may_only_shrink_does_not_grow_and_is_told_when_it_shrinks(self):
        two = "let a = Op::Add;\nlet b = Op::Concat;\n"
        self.assertEqual(self.found("crates/graph/src/import/fuse.rs", two, 2), [])
        self.assertIn("names operators on 2 lines (1 may)", self.found("crates/graph/src/import/fuse.rs", two, 1)[0])
        self.assertIn("not 3", self.found("crates/graph/src/import/fuse.rs", two, 3)[0])


class AskedProcessors(unittest.TestCase):
    def found(self, name: str, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            return check_layers.asked_processors(tree(folder, {name: text}))

    def test_every_way_to_ask_is_found(self):
        for name in (
            "crates/ring/src/simd.rs",
            "crates/ring/tests/a.rs",
            "fuzz/src/lib.rs",
            "python/jaguar/src/lib.rs",
        ):
            for text in (
                'if is_x86_feature_detected!("avx2") {}',
                'std::arch::is_aarch64_feature_detected!("neon")',
                "__cpuid(1)",
                "core::arch::x86_64::__cpuid_count(7, 0)",
                'cfg!(target_feature = "aes")',
            ):
                self.assertEqual(len(self.found(name, text)), 1, (name, text))

    def test_the_crate_that_may_and_comments_pass(self):
        self.assertEqual(self.found("crates/cpu/src/lib.rs", 'is_x86_feature_detected!("avx2")'), [])
        self.assertEqual(
            self.found("crates/ring/src/lib.rs", "// is_x86_feature_detected! is asked elsewhere\n/* __cpuid */"), []
        )


class Circles(unittest.TestCase):
    def circles(self, files: dict[str, str]) -> list[list[str]]:
        """The circles of a crate, families among them, by the names of its files."""
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, files)
            groups = import_circles.circles(import_circles.Crate(root / "lib.rs").ties())
            return [[path.relative_to(root).as_posix() for path in group] for group in groups]

    def test_every_kind_of_tie_is_found(self):
        mods = "mod a;\nmod b;\n"
        for one, other in (
            ("use crate::b::B;\npub struct A;", "use crate::a::A;\npub struct B;"),
            ("use super::b;\npub fn f() { b::g() }", "use super::a;\npub fn g() { a::f() }"),
            ("pub fn f() { crate::b::g() }", "pub fn g() { super::a::f() }"),
            ("use super::{b::{self, B}};\npub struct A;", "use crate::{a::A as Other};\npub struct B;"),
            ("use crate::b::*;\npub struct A;", "use crate::a::*;\npub struct B;"),
            ("pub use crate::b::B;\npub struct A { b: B }", "use crate::a::A;\npub struct B;"),
            ("pub mod inner { pub fn f() { super::super::b::g() } }", "pub fn g() { crate::a::inner::f() }"),
            ("use crate::b::B;\npub struct A;", "#[cfg(test)]\nmod tests {}\nuse crate::a::A;\npub struct B;"),
        ):
            self.assertEqual(
                self.circles({"lib.rs": mods, "a.rs": one, "b.rs": other}), [["a.rs", "b.rs"]], (one, other)
            )

    def test_three_files_and_folders(self):
        files = {
            "lib.rs": "mod a;\nmod b;\nmod c;\n",
            "a/mod.rs": "use crate::b::B;\npub struct A;",
            "b.rs": "use crate::c::C;\npub struct B;",
            "c.rs": "use crate::a::A;\npub struct C;",
        }
        self.assertEqual(self.circles(files), [["a/mod.rs", "b.rs", "c.rs"]])

    def test_names_are_followed_through_what_hands_them_on(self):
        # The root hands `A` and `B` on; to take them there is to take them from where they are.
        files = {
            "lib.rs": "mod a;\nmod b;\npub use a::A;\npub use b::B;\n",
            "a.rs": "use crate::B;\npub struct A;",
            "b.rs": "use super::A;\npub struct B;",
        }
        self.assertEqual(self.circles(files), [["a.rs", "b.rs"]])

    def test_what_is_no_circle_passes(self):
        for files in (
            # One way.
            {"lib.rs": "mod a;\nmod b;\n", "a.rs": "use crate::b::B;", "b.rs": "pub struct B;"},
            # Only tests look back.
            {
                "lib.rs": "mod a;\nmod b;\n",
                "a.rs": "use crate::b::B;\npub struct A;",
                "b.rs": "pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}",
            },
            {
                "lib.rs": "mod a;\n#[cfg(test)]\nmod tests;\n",
                "a.rs": "pub struct A;\n#[cfg(test)]\nuse crate::tests::help;",
                "tests.rs": "use crate::a::A;\npub fn help() {}",
            },
            # A name that is only handed on.
            {
                "lib.rs": "mod a;\nmod b;\n",
                "a.rs": "pub use crate::b::B;\npub struct A;",
                "b.rs": "use crate::a::A;\npub struct B;",
            },
            # Comments and strings.
            {
                "lib.rs": "mod a;\nmod b;\n",
                "a.rs": "use crate::b::B;\npub struct A;",
                "b.rs": '/// Of crate::a::A.\npub struct B;\nconst S: &str = "crate::a::A";',
            },
            # A parent that hands on what its child makes, which takes a name from another child.
            {
                "lib.rs": "mod a;\npub use a::A;\nmod b;\npub use b::B;\n",
                "a.rs": "use super::B;\npub struct A;",
                "b.rs": "pub struct B;",
            },
        ):
            self.assertEqual(self.circles(files), [], files)

    def test_a_circle_in_a_tree_is_told_with_what_ties_it(self):
        with tempfile.TemporaryDirectory() as folder:
            root = tree(
                folder,
                {
                    "crates/x/src/lib.rs": "mod a;\nmod b;\n",
                    "crates/x/src/a.rs": "use crate::b::B;\npub struct A;",
                    "crates/x/src/b.rs": "use crate::a::A;\npub struct B;",
                },
            )
            found = import_circles.problems(root, set())
            self.assertEqual(len(found), 1)
            self.assertIn("2 files need each other", found[0])
            self.assertIn("crates/x/src/a.rs -> crates/x/src/b.rs: b::B", found[0])

    # A parent that calls its child, which takes what the parent defines.
    FAMILY = {
        "crates/x/src/lib.rs": "mod a;\npub struct Shared;\npub fn f() { a::g() }",
        "crates/x/src/a.rs": "use crate::Shared;\npub fn g() {}",
    }

    def family(self, listed: set[str], **more: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, self.FAMILY | {f"crates/x/src/{name}.rs": text for name, text in more.items()})
            return import_circles.problems(root, listed)

    def test_a_parent_and_its_children_are_a_circle_unless_listed(self):
        found = self.family(set())
        self.assertEqual(len(found), 1)
        self.assertIn("crates/x/src/lib.rs: a parent and its children need each other", found[0])
        self.assertIn("crates/x/src/a.rs -> crates/x/src/lib.rs: Shared", found[0])
        self.assertEqual(self.family({"crates/x/src/lib.rs"}), [])

    def test_a_list_excuses_no_circle_between_children_and_nothing_that_is_gone(self):
        children = {
            "lib": "mod a;\nmod b;\npub struct Shared;\npub fn f() { a::g() }",
            "a": "use crate::Shared;\npub fn g() { crate::b::h() }",
            "b": "pub fn h() { crate::a::g() }",
        }
        found = self.family({"crates/x/src/lib.rs"}, **children)
        self.assertEqual(len(found), 1)
        self.assertIn("2 files need each other", found[0])
        found = self.family({"crates/x/src/lib.rs"}, a="pub fn g() {}")
        self.assertEqual(found, ["tools/import_circles.py: crates/x/src/lib.rs is no family any more"])


if __name__ == "__main__":
    unittest.main()
