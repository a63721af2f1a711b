"""Tests of the check of layers, by what it must find: `python3 -m unittest discover tools`."""

from unittest import mock

import check_layers
import import_circles
from planted import Planted, tree

# A crate of backends as small as can be: two of them, one with a second name.
BACKENDS = {
    "crates/linear/src/lib.rs": "pub mod jaguar;\npub mod layout;\npub mod plain;\n",
    "crates/linear/src/jaguar/layer.rs": 'fn name(&self) -> &\'static str {\n        "jaguar"\n    }\n',
    "crates/linear/src/plain/layer.rs": "use crate::jaguar::X;\n",
    "papers/hyena/src/lib.rs": """impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Blocks => "cirencode",
        }
    }
}
""",
    "crates/plan/src/kit.rs": "use jaguar_linear::jaguar;\n",
}


# The root of a crate with two files.
MODS = "mod a;\nmod b;\n"


class Layers(Planted):
    def violations(self, more: dict[str, str] | None = None, **manifests: str) -> list[str]:
        files = dict(more or {})
        for name, text in manifests.items():
            package = name if name == check_layers.FACADE else f"jaguar-{name}"
            files[f"crates/{name}/Cargo.toml"] = f'[package]\nname = "{package}"\n{text}'
        with tree(files) as root:
            return check_layers.violations(root / "crates")

    def test_downward_arrows_pass(self):
        self.assertEqual(
            self.violations(
                ring="",
                mpc="[dependencies]\njaguar-ot.workspace = true\n[dev-dependencies]\njaguar-ring.workspace = true\n",
                jaguar="[dependencies]\njaguar-engine.workspace = true\n",
                cli="[dependencies]\njaguar.workspace = true\nserde = '1'\njaguars = '1'\n",
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
            self.finds(self.violations(ot=text), "mpc")

    def test_a_sideways_arrow_an_unknown_crate_and_a_test_that_looks_upwards_are_found(self):
        found = self.violations(graph="[dependencies]\njaguar-wire.workspace = true\n")
        self.finds(found, "graph must not depend on wire")
        self.finds(self.violations(utils=""), "utils is not in the crate map")
        self.finds(self.violations(ring="[dev-dependencies]\njaguar-engine.workspace = true\n"), "must not use engine")

    def test_a_program_that_goes_by_the_facade_and_a_crate_that_needs_it_are_found(self):
        found = self.violations(cli="[dependencies]\njaguar-engine.workspace = true\n")
        self.finds(found, "cli must not depend on engine (it may use convfhe, fregata, gateway, hyena, jaguar)")
        for text in ("jaguar.workspace = true", "whole = { package = 'jaguar', path = '../jaguar' }"):
            self.finds(self.violations(serve=f"[dependencies]\n{text}\n"), "serve must not depend on jaguar")

    def test_a_folder_of_another_name_is_found(self):
        found = self.violations({"crates/other/Cargo.toml": "[package]\nname = 'jaguar-ring'\n"})
        self.finds(found, "its folder other")

    def test_an_arrow_that_the_workspace_renames_is_found(self):
        root = "[workspace.dependencies]\nshares = { package = 'jaguar-mpc', path = 'crates/mpc' }\n"
        found = self.violations({"Cargo.toml": root}, ot="[dependencies]\nshares.workspace = true\n")
        self.finds(found, "ot must not depend on mpc")

    def test_a_member_of_the_workspace_that_is_nowhere_looked_at_is_found(self):
        root = "[workspace]\nmembers = ['crates/*', 'fuzz', 'extra/thing']\n"
        self.finds(self.violations({"Cargo.toml": root}, ring=""), "extra/thing")


class Map(Planted):
    def test_a_row_that_is_missing_made_up_or_wrong_is_found(self):
        page = (check_layers.ROOT / "docs/architecture.md").read_text()
        for old, new, told in (
            ("| `wire` |", "| wire |", "has no wire"),
            ("| `wire` |", "| `cables` | what carries | – |\n| `wire` |", "there is no crate cables"),
            ("tokens, Unix sockets | wire |", "tokens, Unix sockets | wire, ot |", "net may depend on ot, wire"),
            ("tokens, Unix sockets | wire |", "tokens, Unix sockets | cables |", "net may depend on cables"),
        ):
            self.assertEqual(page.count(old), 1, old)
            with tree({"docs/architecture.md": page.replace(old, new)}) as root:
                self.finds(check_layers.pages_map(root), told)


class NamedBackends(Planted):
    def found(self, name: str, text: str) -> list[str]:
        with tree(BACKENDS | {name: text}) as root:
            return [line.removeprefix(f"{root}/") for line in check_layers.named_backends(root)]

    def test_every_way_to_name_one_is_found(self):
        elsewhere = "crates/engine/src/stop.rs"
        for text in (
            "pub use jaguar_linear::plain::Hyena;",
            "use jaguar_linear::plain;",
            "use jaguar_linear::{layout::Layout, plain::{Form, Layer}};",
            "use jaguar_linear::{\n    layout::Layout,\n    jaguar::Layer,\n};",
            "use jaguar_linear::*;",
            "use jaguar_linear as backends;",
            "use ::jaguar_linear::plain::Form;",
            "fn f() -> jaguar_linear::plain::Form {}",
            "fn f() {\n    jaguar_linear :: plain :: run();\n}",
            "const A: BackendId = Kit::CHEETAH;",
            "use jaguar_hyena::Form;",
            "use {jaguar_cheetah as other, std::fmt};",
            "fn f() { jaguar_fregata::gpu::open() }",
            "const A: &[BackendId] = &jaguar_linear::plain::ALL;",
            'fn f() -> bool { name == "hyena" }',
            'fn f() -> bool { name == "hyena-padded" }',
            'fn f() -> bool { name == "cirencode" }',
            "use jaguar_convfhe::session::Terms;",
            "fn f() { jaguar_convfhe::memory() }",
            'fn f() -> bool { name == "convfhe" }',
            '#[cfg(feature = "convfhe")]\nmod one_round;',
            "#[cfg(test)]\nmod tests { }\nuse jaguar_linear::plain::Form;",
        ):
            self.finds(self.found(elsewhere, text), f"{elsewhere}:")
            self.finds(self.found("crates/cli/src/serve.rs", text), "crates/cli/src/serve.rs:")

    def test_in_the_crate_of_the_backends_too(self):
        for name, text in (
            ("crates/linear/src/layout.rs", "use crate::plain::Form;"),
            ("crates/linear/src/layout.rs", "use super::{plain::Form, backend};"),
            ("crates/linear/src/layout.rs", "fn f() { crate::jaguar::run() }"),
            ("crates/linear/src/layout/mod.rs", "use super::super::plain::Form;"),
            ("crates/linear/src/lib.rs", BACKENDS["crates/linear/src/lib.rs"] + "pub use plain::Form;"),
            ("python/jaguar/src/lib.rs", "use jaguar_linear::plain::Form;"),
        ):
            self.finds(self.found(name, text), f"{name}:")

    def test_what_names_none_passes(self):
        for name, text in (
            ("crates/engine/src/stop.rs", "use jaguar_linear::{backend::BackendId, layout};\nuse jaguar_wire::hyena;"),
            ("crates/engine/src/stop.rs", "// jaguar_linear::plain is one\nfn f() { let hyena = 1; }"),
            (
                "crates/engine/src/stop.rs",
                '#[cfg(test)]\nmod tests {\n    use jaguar_linear::plain::Form;\n    const A: &str = "hyena";\n}',
            ),
            ("crates/engine/src/tests/some.rs", "use jaguar_linear::plain::Form;"),
            ("crates/engine/src/stop.rs", "fn f() { Kit::standard(); }"),
            ("crates/cli/src/kit.rs", "fn f() { kit.with(jaguar_hyena::ALL) }"),
            ("crates/cli/src/kit.rs", '#[cfg(feature = "convfhe")]\nmod convfhe;'),
            ("papers/convfhe/command/mod.rs", 'use jaguar_convfhe::session;\nconst NAME: &str = "convfhe";'),
            ("crates/cli/src/one_round/mod.rs", 'const PATH: &str = "papers/convfhe/oracle"; // "convfhe"'),
            ("crates/engine/src/stop.rs", 'const PROJECT: &str = "jaguar";'),
            ("crates/bench/src/main.rs", "use jaguar_linear::plain::Form;"),
            ("papers/hyena/src/search.rs", "use jaguar_linear::jaguar::Layer;"),
        ):
            self.assertEqual(self.found(name, text), [], (name, text))

    def test_an_exception_that_is_not_needed_is_found(self):
        self.assertIn("needs no exception", self.found("crates/bench/src/main.rs", "fn f() {}")[0])


class NamedOperators(Planted):
    def found(self, name: str, text: str, allowed: int = 0) -> list[str]:
        may = mock.patch.object(check_layers, "MAY_NAME_OPERATORS", {name: (allowed, "")})
        add = "impl Operator for Add {}\nimpl FloatOperator for Clip {}\nimpl Numbered for Linear {}"
        with tree({"crates/graph/src/ops/add/mod.rs": add, name: text}) as root, may:
            return check_layers.named_operators(root)

    def test_every_way_to_name_one_is_found(self):
        for text in (
            "use jaguar_graph::float;\nmatches!(op.downcast_ref(), Some(float ::Clip { .. }))",
            "let op = jaguar_graph::network::Op::new(jaguar_graph::network::Add);",
            "use jaguar_graph::network::{Add, Op};\nfn f() { Op::new(Add) }",
            "use jaguar_graph::float::Add as Sum;\nfn f(op: &Op) { op.is::<Sum>() }",
            "use jaguar::network::{Add, Op};\nfn f() { Op::new(Add) }",
            "use jaguar::{Cpu, network};\nfn f(op: &Op) { op.is::<network::Add>() }",
        ):
            self.assertEqual(len(self.found("crates/plan/src/domains.rs", text)), 1, text)
        inside = "use crate::ops::add::Add;\nlet a = Add;"
        self.assertEqual(len(self.found("crates/graph/src/reference.rs", inside)), 1)

    def test_the_folder_itself_tests_comments_and_other_names_pass(self):
        use = "use jaguar_graph::network::{Add, Linear, Op, Part};\n"
        self.assertEqual(self.found("crates/graph/src/ops/mod.rs", use + "let a = Add;"), [])
        for name in ("crates/plan/src/tests.rs", "crates/engine/src/tests/stream.rs"):
            self.assertEqual(self.found(name, use + "let a = Add;"), [])
        in_tests = "#[cfg(test)]\nmod tests { fn f() { Add } }"
        for text in ("// Add", '"Add"', "Part::Add", "node.op.work()", "let a: Linear;", in_tests):
            self.assertEqual(self.found("crates/plan/src/lib.rs", use + text), [], text)
        self.assertEqual(self.found("crates/plan/src/lib.rs", "use std::ops::Add;\nimpl Add for A {}"), [])

    def test_what_may_only_shrink_does_not_grow_and_is_told_when_it_shrinks(self):
        file, two = "crates/graph/src/import/fuse.rs", "use crate::float::Add;\nlet a = Add;\nlet b = Add;\n"
        self.finds(self.found(file, two, 2))
        self.finds(self.found(file, two, 1), "names operators on 2 lines (1 may)")
        self.finds(self.found(file, two, 3), "not 3")


class AskedProcessors(Planted):
    def found(self, name: str, text: str) -> list[str]:
        with tree({name: text}) as root:
            return check_layers.asked_processors(root)

    def test_every_way_to_ask_is_found(self):
        crates = ("crates/ring/src/simd.rs", "crates/ring/tests/a.rs", "fuzz/src/lib.rs", "python/jaguar/src/lib.rs")
        for name in crates:
            for text in (
                'if is_x86_feature_detected!("avx2") {}',
                'std::arch::is_aarch64_feature_detected!("neon")',
                "__cpuid(1)",
                "core::arch::x86_64::__cpuid_count(7, 0)",
                'cfg!(target_feature = "aes")',
            ):
                self.finds(self.found(name, text), f"{name}:1:")

    def test_the_crate_that_may_and_comments_pass(self):
        self.assertEqual(self.found("crates/ring/src/cpu/mod.rs", 'is_x86_feature_detected!("avx2")'), [])
        told = "// is_x86_feature_detected! is asked elsewhere\n/* __cpuid */"
        self.assertEqual(self.found("crates/ring/src/lib.rs", told), [])


class NamedLeaky(Planted):
    def found(self, files: dict[str, str]) -> list[str]:
        with tree(files) as root:
            return [line.removeprefix(f"{root}/") for line in check_layers.named_leaky(root)]

    def test_every_way_to_name_it_is_found(self):
        for name, text in (
            ("crates/plan/src/choices.rs", "use jaguar_fregata::pmax_leaky::PmaxLeaky;"),
            ("crates/mpc/src/lib.rs", "// as in PMax"),
            ("crates/engine/src/tests/traffic.rs", 'const NAME: &str = "pmax-leaky";'),
            ("crates/cli/Cargo.toml", '[features]\npmax-leaky = ["jaguar-fregata/pmax-leaky"]'),
            ("crates/report/templates/plan.html", "<p>PMAX</p>"),
            ("python/jaguar/src/lib.rs", "let PmaxLeaky = 1;"),
            ("fuzz/src/lib.rs", "mod pmax;"),
        ):
            self.finds(self.found({name: text}), f"{name}:")

    def test_what_builds_it_unasked_is_found(self):
        for text, told in (
            ("[features]\ndefault = ['pmax-leaky']\npmax-leaky = []", "by default"),
            ("[features]\ndefault = ['tables']\ntables = ['jaguar-fregata/pmax-leaky']", "by default"),
            ("[dependencies]\njaguar-fregata = { workspace = true, features = ['pmax-leaky'] }", "asks jaguar-fregata"),
            ("[dev-dependencies]\njaguar-fregata = { path = '..', features = ['cuda', 'pmax-leaky'] }", "asks jaguar-fregata"),
            ("[target.'cfg(unix)'.dependencies]\njaguar-fregata = { path = '..', features = ['pmax-leaky'] }", "asks"),
        ):
            self.finds(self.found({"papers/fregata/Cargo.toml": text}), told)
        shared = "[workspace.dependencies]\njaguar-fregata = { path = 'x', features = ['pmax-leaky'] }"
        self.finds(self.found({"Cargo.toml": shared}), "asks jaguar-fregata")

    def test_its_paper_and_features_that_are_off_pass(self):
        off = "[features]\ndefault = ['clap']\nclap = []\npmax-leaky = ['dep:jaguar-ot']\n"
        for name, text in (
            ("papers/fregata/src/pmax_leaky.rs", "pub struct PmaxLeaky;"),
            ("papers/fregata/Cargo.toml", off),
            ("crates/bench/Cargo.toml", "[features]\npmax-leaky = ['jaguar-fregata/pmax-leaky']"),
            ("crates/bench/src/kit.rs", "kit.with_comparisons(jaguar_fregata::COMPARISONS)"),
        ):
            self.assertEqual(self.found({name: text}), [], (name, text))


class Circles(Planted):
    def circles(self, files: dict[str, str]) -> list[list[str]]:
        """The circles of a crate, families among them, by the names of its files."""
        with tree(files) as root:
            groups = import_circles.circles(import_circles.Crate(root / "lib.rs").ties())
            return [[path.relative_to(root).as_posix() for path in group] for group in groups]

    def test_every_kind_of_tie_is_found(self):
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
            files = {"lib.rs": MODS, "a.rs": one, "b.rs": other}
            self.assertEqual(self.circles(files), [["a.rs", "b.rs"]], files)

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

    def test_names_are_followed_through_the_list_of_the_operators(self):
        code = (check_layers.ROOT / check_layers.OPERATORS / "mod.rs").read_text()
        macro = code[code.index("macro_rules! operators") : code.index("\noperators! {")]
        files = {
            "lib.rs": f"mod c;\n{macro}\noperators! {{\n    a: A,\n    b: B,\n}}\npub use integer::*;",
            "a/mod.rs": "mod float;\nmod onnx;\npub struct A;",
            "a/float.rs": "use crate::B;\npub struct Real;",
            "a/onnx.rs": "const ONNX: &[u8] = &[];",
            "b/mod.rs": "use crate::float::Real;\npub struct B;",
            "c.rs": "use crate::B;",
        }
        self.assertEqual(self.circles(files), [["a/float.rs", "b/mod.rs"]])

    def test_what_is_no_circle_passes(self):
        for root, one, other in (
            # One way.
            (MODS, "use crate::b::B;", "pub struct B;"),
            # Only tests look back.
            (
                MODS,
                "use crate::b::B;\npub struct A;",
                "pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}",
            ),
            (
                "mod a;\n#[cfg(test)]\nmod b;\n",
                "pub struct A;\n#[cfg(test)]\nuse crate::b::help;",
                "use crate::a::A;\npub fn help() {}",
            ),
            # A name that is only handed on.
            (MODS, "pub use crate::b::B;\npub struct A;", "use crate::a::A;\npub struct B;"),
            # Comments and strings.
            (
                MODS,
                "use crate::b::B;\npub struct A;",
                '/// Of crate::a::A.\npub struct B;\nconst S: &str = "crate::a::A";',
            ),
            # A parent that hands on what its child makes, which takes a name from another child.
            ("mod a;\npub use a::A;\nmod b;\npub use b::B;\n", "use super::B;\npub struct A;", "pub struct B;"),
        ):
            files = {"lib.rs": root, "a.rs": one, "b.rs": other}
            self.assertEqual(self.circles(files), [], files)

    def problems(self, listed: set[str], root: str, **children: str) -> list[str]:
        """What is said of a crate x: its root, and the files of its children."""
        children["lib"] = root
        with tree({f"crates/x/src/{name}.rs": text for name, text in children.items()}) as folder:
            return import_circles.problems(folder, listed)

    def test_a_circle_in_a_tree_is_told_with_what_ties_it(self):
        a, b = "use crate::b::B;\npub struct A;", "use crate::a::A;\npub struct B;"
        found = self.problems(set(), MODS, a=a, b=b)
        self.finds(found, "2 files need each other")
        self.assertIn("crates/x/src/a.rs -> crates/x/src/b.rs: b::B", found[0])

    # A parent that calls its child, which takes what the parent defines.
    PARENT = "mod a;\npub struct Shared;\npub fn f() { a::g() }"
    LISTED = {"crates/x/src/lib.rs"}

    def test_a_parent_and_its_children_are_a_circle_unless_listed(self):
        child = "use crate::Shared;\npub fn g() {}"
        found = self.problems(set(), self.PARENT, a=child)
        self.finds(found, "crates/x/src/lib.rs: a parent and its children need each other")
        self.assertIn("crates/x/src/a.rs -> crates/x/src/lib.rs: Shared", found[0])
        self.assertEqual(self.problems(self.LISTED, self.PARENT, a=child), [])

    def test_a_list_excuses_no_circle_between_children_and_nothing_that_is_gone(self):
        a, b = "use crate::Shared;\npub fn g() { crate::b::h() }", "pub fn h() { crate::a::g() }"
        self.finds(self.problems(self.LISTED, self.PARENT + "\nmod b;", a=a, b=b), "2 files need each other")
        found = self.problems(self.LISTED, self.PARENT, a="pub fn g() {}")
        self.assertEqual(found, ["tools/import_circles.py: crates/x/src/lib.rs is no family any more"])
