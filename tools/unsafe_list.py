"""Lists every `unsafe` of the Rust code: where, of which kind, why it is sound, and which tests run it.

    python3 tools/unsafe_list.py            # the list, as docs/unsafe.md has it
    python3 tools/unsafe_list.py --write    # writes it there
    python3 tools/unsafe_list.py --check    # what `make lint` runs

`--check` fails if docs/unsafe.md is not what the code gives: so a new `unsafe`, or another reason for an old one, is seen in
review. It also fails if a block or an implementation has no `SAFETY:` comment, if a file has no test in `TESTS` here, and if a
test named here is gone. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from findings import tell

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "unsafe.md"

# Where Rust code may be.
FOLDERS = ("crates", "papers", "python", "fuzz", "web")

# file with `unsafe` -> tests that run it: "file::test". Those of kernels compare with a scalar twin, or with a definition.
TESTS: dict[str, list[str]] = {
    "crates/cli/src/memory.rs": ["crates/cli/tests/two_processes/environment.rs::memory_that_is_not_there"],
    "crates/wire/src/time.rs": ["web/tests/test_browser.py::test_logits_are_the_native_clients_but_for_noise"],
    "web/src/exports.rs": ["web/tests/test_browser.py::test_logits_are_the_native_clients_but_for_noise"],
    "web/src/host.rs": ["web/tests/test_browser.py::test_logits_are_the_native_clients_but_for_noise"],
    "crates/ring/src/cpu/secret.rs": ["crates/ring/src/cpu/secret.rs::marks_change_nothing"],
    "crates/engine/src/tests/freed.rs": [
        "crates/engine/src/tests/freed.rs::freed_memory_holds_no_secret_and_no_share",
        "crates/engine/src/tests/freed.rs::a_planted_leak_is_found",
    ],
    "crates/engine/tests/faults/memory.rs": ["crates/engine/tests/faults/main.rs::a_sample_of_faults_ends_in_order"],
    "papers/fregata/gpu/src/cuda.rs": [
        "papers/fregata/gpu/tests/ptx.rs::a_tile_and_less_and_more",
        "papers/fregata/gpu/tests/ptx.rs::strides_pads_and_groups",
        "papers/fregata/gpu/tests/ptx.rs::depthwise_and_few_outputs",
    ],
    "crates/graph/src/ir/kernel.rs": ["crates/graph/src/ir/kernel.rs::convolution_is_the_definition"],
    "crates/mpc/src/kernels/loops.rs": [
        "crates/mpc/src/kernels/loops.rs::every_level_agrees_with_the_plain_one",
        "crates/mpc/src/kernels/loops.rs::corrections_and_products_are_as_defined",
    ],
    "crates/ot/src/aes/arm.rs": [
        "crates/ot/src/aes.rs::every_kernel_hashes_like_the_portable_one",
        "crates/ot/src/aes.rs::every_kernel_hashes_leaves_like_the_portable_one",
        "crates/ot/src/aes.rs::every_kernel_expands_like_the_portable_one",
        "crates/ot/src/aes.rs::every_kernel_draws_like_the_portable_one",
    ],
    "crates/ot/src/aes/x86.rs": [
        "crates/ot/src/aes.rs::every_kernel_hashes_like_the_portable_one",
        "crates/ot/src/aes.rs::every_kernel_hashes_leaves_like_the_portable_one",
        "crates/ot/src/aes.rs::every_kernel_corrects_like_the_portable_one",
        "crates/ot/src/aes.rs::every_kernel_expands_like_the_portable_one",
        "crates/ot/src/aes.rs::every_kernel_finishes_like_the_portable_one",
        "crates/ot/src/aes.rs::every_kernel_draws_like_the_portable_one",
    ],
    "crates/ot/src/gather.rs": [
        "crates/ot/src/gather.rs::sums_are_those_of_the_definition",
        "crates/ot/src/gather.rs::every_kernel_sums_lines_like_the_portable_one",
    ],
    "crates/ring/src/gemm/mod.rs": [
        "crates/ring/src/gemm/tests.rs::any_shape",
        "crates/ring/src/gemm/tests.rs::large_products_are_spread_over_threads",
        "crates/ring/src/gemm/tests.rs::overlapping_rows_are_refused",
    ],
    "crates/ring/src/simd/arm.rs": [
        "crates/ring/src/simd/tests.rs::neon_matches_the_single_lane",
        "crates/ring/src/gemm/tests.rs::any_shape",
    ],
    "crates/ring/src/simd/mod.rs": [
        "crates/ring/src/simd/tests.rs::neon_matches_the_single_lane",
        "crates/ring/src/simd/tests.rs::avx2_matches_the_single_lane",
        "crates/ring/src/simd/tests.rs::avx512_matches_the_single_lane",
    ],
    "crates/ring/src/simd/wide.rs": [
        "crates/ring/src/modular/kernel_tests.rs::transforms_are_those_of_plain_rust",
        "crates/ring/src/modular/kernel_tests.rs::slices_are_those_of_plain_rust",
    ],
    "crates/ring/src/simd/x86.rs": [
        "crates/ring/src/simd/tests.rs::avx2_matches_the_single_lane",
        "crates/ring/src/simd/tests.rs::avx512_matches_the_single_lane",
        "crates/ring/src/modular/kernel_tests.rs::transforms_are_those_of_plain_rust",
        "crates/ring/src/modular/kernel_tests.rs::moved_products_are_those_of_plain_rust",
    ],
    "fuzz/src/memory.rs": ["fuzz/tests/corpora.rs::no_reader_panics_or_takes_memory_without_bound"],
}

HEADER = """# Every `unsafe`

{total} in {files} files: kernels, what kernels are called by, and allocators that count, look at what is freed, or tell that there is no
memory. `python3 tools/unsafe_list.py --write` makes this page, and `make lint` fails where the code has an `unsafe` that is not here.
What kernels compute has a scalar twin or a definition, which the named tests compare it with on random and extreme inputs.

*Kind*: a *block* uses what is unsafe, and a comment says why that is sound; a *function* is unsafe to call, and its callers
are the blocks; an *implementation* vouches for a trait.
"""


@dataclass(frozen=True)
class Unsafe:
    """One use of the keyword."""

    file: str
    line: int
    kind: str
    # The function, or the type, in which it stands.
    item: str
    # Why it is sound; empty if nothing says so.
    reason: str


def blank(text: str, strings: bool = True) -> str:
    """`text` with comments blanked, and with `strings` strings and characters, so that places stay."""
    pattern = re.compile(
        r"//[^\n]*|/\*.*?\*/|r(#*)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\.|[^'\\\n])'", re.DOTALL
    )
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if strings or m[0].startswith("/") else m[0], text)


def comment_before(lines: list[str], at: int, mark: str) -> str:
    """The comment with `mark` that stands before line `at` (from 0) or at its statement's beginning."""
    # Attributes, and lines that the statement began with, may stand between; a blank line or a closing brace ends the look.
    line = at
    for line in range(at, max(at - 6, -1), -1):
        found = re.search(rf"//[/!]? {mark}:?\s*(.*)", lines[line])
        if found:
            text = [found.group(1)]
            for later in lines[line + 1 : at]:
                more = re.match(r"\s*//[/!]?\s?(.*)", later)
                if not more:
                    break
                text.append(more.group(1))
            return " ".join(part.strip() for part in text if part.strip())
        if line < at and lines[line].strip() in ("", "}"):
            return ""
    return ""


def safety_section(lines: list[str], at: int) -> str:
    """The `# Safety` section of the documentation before line `at`."""
    text: list[str] = []
    line = at - 1
    while line >= 0 and re.match(r"\s*(///|#\[)", lines[line]):
        if found := re.match(r"\s*///\s?(.*)", lines[line]):
            text.insert(0, found.group(1).strip())
        line -= 1
    if "# Safety" in text:
        return " ".join(part for part in text[text.index("# Safety") + 1 :] if part)
    return ""


def item_of(code: list[str], at: int) -> str:
    """The function or macro around line `at`, else the implementation."""
    for line in range(at, -1, -1):
        if found := re.search(r"\bfn (\$?\w+)", code[line]):
            return f"`{found.group(1)}`"
        if found := re.match(r"\s*macro_rules! (\w+)", code[line]):
            return f"`{found.group(1)}!`"
    return "the file"


def unsafe_in(file: str, text: str) -> list[Unsafe]:
    """Every `unsafe` of one file."""
    lines, code = text.splitlines(), blank(text).splitlines()
    found = []
    for at, line in enumerate(code):
        for match in re.finditer(r"\bunsafe\b", line):
            rest = line[match.end() :].strip() or (code[at + 1].strip() if at + 1 < len(code) else "")
            if rest.startswith(("fn", "extern")):
                kind, reason = "function", safety_section(lines, at)
                name = re.search(r"\bfn (\$?\w+)", rest)
                item = f"`{name.group(1)}`" if name else "the file"
            elif rest.startswith(("impl", "trait")):
                kind, reason = "implementation", comment_before(lines, at, "SAFETY")
                item = f"`{rest.split('{')[0].strip()}`"
            elif rest.startswith("("):
                # `#[unsafe(...)]`.
                kind, reason, item = "attribute", comment_before(lines, at, "SAFETY"), item_of(code, at)
            else:
                kind, reason, item = "block", comment_before(lines, at, "SAFETY"), item_of(code, at)
            found.append(Unsafe(file, at + 1, kind, item, reason))
    return found


def collect(root: Path) -> list[Unsafe]:
    """Every `unsafe` of the tree."""
    found: list[Unsafe] = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.rs")):
            if "target" not in path.relative_to(root).parts:
                found += unsafe_in(str(path.relative_to(root)), path.read_text())
    return found


def problems(root: Path, found: list[Unsafe], tests: dict[str, list[str]]) -> list[str]:
    """What is missing: reasons, tests."""
    bad = [
        f"{u.file}:{u.line}: an unsafe {u.kind} without a SAFETY comment"
        for u in found
        if not u.reason and u.kind != "function"
    ]
    files = {u.file for u in found}
    bad += [f"{file}: `unsafe`, and no test is named for it in tools/unsafe_list.py" for file in sorted(files - tests.keys())]
    bad += [f"tools/unsafe_list.py: {file} has no `unsafe`" for file in sorted(tests.keys() - files)]
    for test in sorted({test for file in files & tests.keys() for test in tests[file]}):
        file, name = test.split("::")
        path = root / file
        if not path.is_file() or not re.search(rf"\b(fn|def) {name}\b", path.read_text()):
            bad.append(f"tools/unsafe_list.py: there is no test {test}")
    return bad


def page(found: list[Unsafe], tests: dict[str, list[str]]) -> str:
    """The page."""
    files = sorted({u.file for u in found})
    text = HEADER.format(total=len(found), files=len(files))
    for file in files:
        own = [u for u in found if u.file == file]
        text += f"\n## `{file}`\n\n{len(own)}. Tests: "
        by_file: dict[str, list[str]] = {}
        for test in tests.get(file, []):
            by_file.setdefault(test.split("::")[0], []).append(test.split("::")[1])
        text += "; ".join(f"`{f}`: " + ", ".join(f"`{t}`" for t in names) for f, names in by_file.items()) + ".\n\n"
        text += "| kind | how many | in | why it is sound |\n|---|---|---|---|\n"
        groups: dict[tuple[str, str], list[str]] = {}
        for u in own:
            groups.setdefault((u.kind, u.reason), []).append(u.item)
        for (kind, reason), items in groups.items():
            count = Counter(items)
            names = ", ".join(name if n == 1 else f"{name} ({n})" for name, n in count.items())
            why = reason.replace("|", "\\|") or "said where it is declared, or at its trait"
            text += f"| {kind} | {len(items)} | {names} | {why} |\n"
    return text


def main() -> int:
    found = collect(ROOT)
    wanted = page(found, TESTS)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(wanted)
        return 0
    if "--check" not in sys.argv[1:]:
        print(wanted, end="")
        return 0
    bad = problems(ROOT, found, TESTS)
    if not PAGE.is_file() or PAGE.read_text() != wanted:
        bad.append("docs/unsafe.md is not what the code gives: look at the difference, then tools/unsafe_list.py --write")
    return tell(bad)


if __name__ == "__main__":
    sys.exit(main())
