"""Runs the cases of fuzz/examples/timing.rs under valgrind's memcheck, with their secrets marked as undefined memory.

    python3 tools/secrets_in_memory.py PROGRAM

A branch or an address that depends on a secret is what memcheck reports as the use of undefined memory. Some lines are meant to
depend on one, and CASES says which and why; what is found there is counted apart. Fails if anything else is found, if a line that is
meant is not found, or if a case that leaks on purpose has nothing. Needs Python 3.11 and valgrind.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

# What the program's cases are called, and what stands in the lines that depend on a secret and may, with the reason; cases with
# PLANTED leak on purpose.
CASES: dict[str, dict[str, str]] = {
    "noise": {},
    "ternary secret": {
        "accepted[count] = byte": "which bytes are refused: they are not taken",
        "while count < wanted": "how many were not refused",
    },
    "ring product": {"if outside == 0": "whether a secret is ternary: all are"},
    "product with secret weights": {".all(|&w| i32::from(w).abs() <= most)": "whether weights are in range: no others are served"},
    "pads": {},
    "sums": {},
    "ReLU online, client": {},
    "ReLU online, server": {},
    "product of values online, client": {},
    "product of values online, server": {},
    "token": {"bool::from(known.ct_eq(&hash))": "whose token it is: the answer"},
    "PLANTED comparison": {},
    "PLANTED table": {},
}

REPORT = re.compile(r"depends on uninitialised|Use of uninitialised")
FRAME = re.compile(r"==\d+==\s+(?:at|by) 0x[0-9A-F]+: .* \((/.*):(\d+)\)$")


def lines(said: str) -> list[str]:
    """Of each report the line of this project that it is in: the innermost one, the standard library left out."""
    found: list[str] = []
    waiting = False
    for line in said.splitlines():
        if REPORT.search(line):
            found.append("?")
            waiting = True
        elif waiting and (frame := FRAME.match(line)) and Path(frame[1]).is_file():
            found[-1] = Path(frame[1]).read_text().splitlines()[int(frame[2]) - 1].strip()
            waiting = False
    return found


def findings(program: str, case: str) -> tuple[Counter[str], int]:
    """How many places memcheck names: in each line that is meant, and elsewhere."""
    options = ["--error-exitcode=9", "--errors-for-leak-kinds=none", "--leak-check=no", "--fullpath-after=", "-q"]
    done = subprocess.run(["valgrind", "--tool=memcheck", *options, program, "--secrets", case], capture_output=True, text=True)
    if done.returncode not in (0, 9):
        raise SystemExit(f"{case}: valgrind ended with {done.returncode}:\n{done.stderr}")
    if done.stdout.count("secret bytes") != 1:
        raise SystemExit(f"{case}: no secret was marked, or those of several cases")
    meant: Counter[str] = Counter()
    others = 0
    for line in lines(done.stderr):
        if text := next((text for text in CASES[case] if text in line), None):
            meant[text] += 1
        else:
            others += 1
    if others and "PLANTED" not in case:
        print(done.stderr, file=sys.stderr)
    return meant, others


def main() -> int:
    sound = True
    for case, may in CASES.items():
        meant, others = findings(sys.argv[1], case)
        fine = (others > 0) == ("PLANTED" in case) and set(meant) == set(may)
        sound &= fine
        print(f"{case:28} {others:3} branches or addresses depend on secrets{'' if fine else '  <-- wrong'}")
        for text, why in may.items():
            print(f"{'':28} {meant[text]:3} more in `{text}`: {why}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
