"""Tests of the check of names in pages, by what it must find: `python3 -m unittest discover tools`."""

from unittest import mock

import check_names
from planted import Planted, tree

# A repository as small as can be, with options of several forms.
TREE = {
    "Makefile": "help:\n\ttrue\nlint: help\n\ttrue\n",
    "crates/cli/src/plan.rs": """#[derive(clap::Args)]
pub struct Args {
    /// A thing that once was called old_thing, or --nothing.
    #[arg(long, value_name = "FILE")]
    block_sizes: Option<PathBuf>,
    #[arg(short, long = "out", conflicts_with_all = ["listen"])]
    output: PathBuf,
    #[arg(
        long,
        default_value = "x"
    )]
    server: String,
    #[arg(value_name = "NOTHING")]
    nothing: String,
}
""",
    "crates/bench/src/relu.rs": "#[derive(clap::Args)]\npub struct Args {\n    #[arg(long)]\n    kernel: String,\n}\n",
    "crates/serve/src/metrics.rs": """fn register() {
    registry.register("queries", "Queries", a);
    registry.register_with_unit("kept", "", Unit::Bytes, b);
}
""",
    "crates/plan/Cargo.toml": "[package]\nname = 'jaguar-plan'\n",
    "crates/plan/src/lib.rs": """/// Not a gone_function.
pub struct Step { pub early: bool }
impl Step { fn finish(self) {} }
fn nonlinear() {}
""",
    "crates/plan/src/domains.rs": "fn may_keep_excess() {}\n#[test]\nfn rings_are_told() {}\n",
    "crates/plan/examples/small.rs": "fn main() {}\n",
    "tools/some.py": "import argparse\nparser.add_argument('--check')\nparser.add_argument(\"--write\")\n",
    "docs/there.md": "text",
}


class Names(Planted):
    def found(self, page: str, code: str = "") -> list[str]:
        """What is said of a page, in a repository that has it, and of a file of code."""
        with tree(TREE | {"docs/page.md": page, "crates/plan/src/other.rs": code}) as root:
            return check_names.problems(root)

    def test_what_is_there_passes(self):
        for text in (
            "`crates/plan/src/lib.rs`, `plan/src/lib.rs`, `lib.rs`, `crates/plan/`, `crates/*/src`, `src/domains.rs`",
            "`Step`, `Step::finish`, `plan::nonlinear()`, `nonlinear()`, `early`",
            "`jaguar-bench relu --kernel scalar`, `--kernel`, `--out`, `-o`, `--server`, `make lint`, `python3 tools/some.py --write`",
            "`jaguar_queries_total`, `jaguar_kept_bytes{early}`",
            "`may_keep_excess` in `domains.rs`, `Step` (`crates/plan/src/lib.rs`)",
            "[there](there.md#part), [x](https://x.example/none.md)",
            "`cargo run -p jaguar-plan --example small`, `cargo test -p jaguar-plan -- --ignored rings_are_told`",
            "```sh\njaguar plan \\\n  --block-sizes x   # --nothing\nmake lint && python3 tools/some.py --write\n```",
            "```sh\nothers --nothing\n```",
            "```text\njaguar plan --nothing `gone_function`\n```",
            "`x_i = Σ w_k·y`, `2^f`, `[C, H, W]`, `jaguar plan MODEL`",
            "plain gone_function, not code",
            "Commit 0123abc: `jaguar gone --nothing`; a machine, `gone_function`.",
        ):
            self.assertEqual(self.found(text), [], text)

    def test_what_is_not_there_is_found(self):
        for text, said in (
            ("`gone_function`", "no code has the name `gone_function`"),
            ("`old_thing`", "no code has the name `old_thing`"),
            ("`gone()`", "no code defines `gone()`"),
            ("`early()`", "no code defines `early()`"),
            ("`Step::gone`", "`Step` has no `gone`"),
            ("`Step::may_keep_excess`", "`Step` has no `may_keep_excess`"),
            ("`crates/plan/src/gone.rs`", "there is no path `crates/plan/src/gone.rs`"),
            ("`gone.rs`", "there is no path `gone.rs`"),
            ("`crates/gone/`", "there is no path `crates/gone/`"),
            ("`--gone`", "no program here has an option --gone"),
            ("`--nothing`", "no program here has an option --nothing"),
            ("`-k`", "no program here has an option -k"),
            ("`--kernel-gone X`", "no program here has an option --kernel-gone"),
            ("`make gone`", "there is no `make gone`"),
            ("`python3 tools/gone.py`", "there is no file tools/gone.py"),
            ("`tools/some.py --gone`", "tools/some.py has no option --gone"),
            ("`jaguar_gone_total`", "no code has the name `jaguar_gone_total`"),
            ("`nonlinear` in `crates/plan/src/domains.rs`", "`crates/plan/src/domains.rs` has no `nonlinear`"),
            ("`domains.rs`: `nonlinear`", "`domains.rs` has no `nonlinear`"),
            ("`Step` (`domains.rs`)", "`domains.rs` has no `Step`"),
            ("[x](gone.md)", "a link to gone.md, which is not there"),
            ("`cargo run -p jaguar-gone`", "there is no package jaguar-gone"),
            ("`cargo run -p jaguar-plan --example gone`", "there is no example gone"),
            ("`cargo test -p jaguar-plan gone_test`", "no test is called gone_test"),
            ("```sh\nmake lint && make gone\n```", "there is no `make gone`"),
            ("a line\n\nand `early\ngone_function` lines", "no code has the name `gone_function`"),
        ):
            found = self.found(text)
            self.finds(found, said)
            self.assertTrue(found[0].startswith("docs/page.md:"), found)

    def test_the_line_is_told(self):
        self.assertTrue(self.found("one\n\n`gone_function`")[0].startswith("docs/page.md:3: "))
        self.assertTrue(self.found("one\n\n```sh\ntrue\nmake gone\n```")[0].startswith("docs/page.md:5: "))

    def test_comments_of_code_name_nothing_that_went(self):
        for text, count in (
            ("// See `gone_function`.", 1),
            ("//! As `docs/gone.md` says.", 1),
            ("/// `may_keep_excess` and `docs/there.md`, `x_j`, `a + gone_b`.", 0),
            ('const S: &str = "`gone_text`";', 0),
        ):
            self.assertEqual(len(self.found("", text)), count, text)

    def test_what_a_history_names_may_be_gone(self):
        with mock.patch.object(check_names, "LEFT_OUT", {"docs/page.md": "history"}):
            self.assertEqual(self.found("`gone_function`"), [])

    def test_an_exception_holds_and_one_too_many_is_told(self):
        theirs = {"gone_function": "theirs", "never_named": "theirs"}
        with mock.patch.multiple(check_names, FOREIGN=theirs, MADE={}, PROGRAMS={}, REGIONS={}):
            self.assertEqual(self.found("`gone_function`"), [])
            with tree(TREE | {"docs/page.md": "`gone_function`"}) as root, mock.patch.object(check_names, "ROOT", root):
                self.finds(check_names.problems(root), "no page needs the exception 'never_named'")
