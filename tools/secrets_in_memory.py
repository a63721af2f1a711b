"""Runs the cases of fuzz/examples/timing.rs under valgrind's memcheck, with their secrets marked as undefined memory.

    python3 tools/secrets_in_memory.py PROGRAM

A branch or an address that depends on a secret is what memcheck reports as the use of undefined memory. Fails if a case has one,
or if a case that leaks on purpose has none. Needs Python 3.11 and valgrind.
"""

from __future__ import annotations

import subprocess
import sys

# Names of cases, as the program prints them; those with PLANTED leak on purpose.
CASES = ["noise", "ReLU online, client", "ReLU online, server", "pads", "sums", "PLANTED comparison", "PLANTED table"]


def findings(program: str, case: str) -> int:
    """How many places memcheck names."""
    command = ["valgrind", "--tool=memcheck", "--error-exitcode=9", "--errors-for-leak-kinds=none", "--leak-check=no", "-q", program]
    done = subprocess.run([*command, "--secrets", case], capture_output=True, text=True)
    if done.returncode not in (0, 9):
        raise SystemExit(f"{case}: valgrind ended with {done.returncode}:\n{done.stderr}")
    if "secret bytes" not in done.stdout:
        raise SystemExit(f"{case}: no secret was marked")
    found = [line for line in done.stderr.splitlines() if "depends on uninitialised" in line or "Use of uninitialised" in line]
    if found and "PLANTED" not in case:
        print(done.stderr, file=sys.stderr)
    return len(found)


def main() -> int:
    sound = True
    for case in CASES:
        count = findings(sys.argv[1], case)
        fine = (count > 0) == ("PLANTED" in case)
        sound &= fine
        print(f"{case:28} {count:3} branches or addresses depend on secrets{'' if fine else '  <-- wrong'}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
