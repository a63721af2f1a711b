"""The tables of `docs/protocols/oblivious-transfer.md`, from the record of `lpn.py`.

    python3 params/lpn_tables.py docs/protocols/oblivious-transfer.md [--write]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from lpn import RECORD, lowest

SHORT = {
    "pooled_gauss": "pooled Gauss: rows at random are free of error, solve",
    "gauss": "Gauss, rows taken evenly from the bins",
    "enumeration": "enumeration after Stern, a bound",
    "representations": "representations (May, Meurer, Thomae), a bound",
    "parity_checks": "parity checks that random combinations give",
    "algebra": "algebra on regular noise",
    "agb2": "AGB 2.0",
    "hybrid": "hybrid (ePrint 2025/1284)",
    "algebra_sparse": "algebra, as if equations stayed sparse, a bound",
    "agb2_sparse": "AGB 2.0, as if sparse, a bound",
    "algebra_joint": "algebra on all columns at once, a bound",
}


def tables() -> str:
    sets = json.loads(RECORD.read_text())["sets"]
    safe, other = [e for e in sets if e["safe"]], [e for e in sets if not e["safe"]]
    out = ["| set | m | life | k (secret) | t (bins) | rows a bin | rows n | lives | lowest line | of all iterations |"]
    out.append("|---" * 10 + "|")
    for e in safe:
        all_of_them = lowest(e["bits"]) - e["iterations"]
        numbers = f"{e['k']:,} | {e['t']:,} | {e['b']} | {e['t'] * e['b']:,} | 2^{e['iterations']}"
        out.append(f"| {e['name']} | {e['m']} | {e.get('life', 1)} | {numbers} | {lowest(e['bits'])} | {all_of_them:.1f} |")
    for title, m in (("m = 1", 1), ("m = 4", 4), ("m = 16", 16)):
        group = [e for e in safe if e["m"] == m]
        out += ["", f"| attack, {title}: greedy / least | " + " | ".join(e["name"] for e in group) + " |"]
        out.append("|---" * (len(group) + 1) + "|")
        for name, text in SHORT.items():
            if name in group[0]["bits"]:
                cells = [f"{e['bits'][name][2]:.1f} / {e['bits'][name][3]:.1f}" for e in group]
                out.append(f"| {text} | " + " | ".join(cells) + " |")
    head = "| not safe | k, t, bin | pooled Gauss, full | Gauss, greedy | lowest | algebra | AGB 2.0 | hybrid | from |"
    out += ["", head, "|---" * 9 + "|"]
    for e in other:
        bits = e["bits"]
        figures = [bits["pooled_gauss"][0], bits["gauss"][2], lowest(bits)]
        figures += [min(bits[name]) for name in ("algebra", "agb2", "hybrid")]
        shape = f"{e['k']:,}, {e['t']:,}, {e['b']}"
        out.append(f"| {e['name']} | {shape} | " + " | ".join(f"{f:.1f}" for f in figures) + f" | {e['source']} |")
    return "\n".join(out) + "\n"


def check_tables(page: Path, write: bool) -> int:
    begin, end = "<!-- params/lpn.py: begin -->\n", "<!-- params/lpn.py: end -->"
    text = page.read_text()
    head, rest = text.split(begin)
    old, tail = rest.split(end)
    if old == tables():
        return 0
    if write:
        page.write_text(head + begin + tables() + end + tail)
        return 0
    print(f"{page}: its tables are not those of the record; run this again with --write")
    return 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Checks the tables of a page against the record, or writes them.")
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true", help="write the tables instead of checking them")
    options = parser.parse_args()
    sys.exit(check_tables(options.page, options.write))
