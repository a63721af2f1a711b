"""Estimates how hard RLWE is under the secrets of the one-round protocol, and keeps `ckks.json`.

    python3 papers/convfhe/params/ckks.py                        every set on record, computed anew and compared
    python3 papers/convfhe/params/ckks.py --write                put the results into the record
    python3 papers/convfhe/params/ckks.py --estimate 16 1540 192     log2 N, log2 of the modulus, weight
    python3 papers/convfhe/params/ckks.py --claims papers/convfhe/ckks/src/params.rs    compare the library's table with it

The attack is in `params/hybrid.py`. It needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "params"))

from claims import differing
from hybrid import TOLERANCE, decides, estimate

RECORD = Path(__file__).with_name("ckks.json")


def check_claims(record: dict, source: Path) -> int:
    """The table `RECORDS` of the library must say what the record says."""
    recorded = {(e["log_n"], e["log2_q"], e["weight"]): decides(e["bits"]) for e in record["sets"]}
    row = r"Record \{ log_n: (\d+), log_modulus: (\d+), weight: (\d+), bits: ([\d.]+) \}"
    rows = re.findall(row, source.read_text())
    return differing(source, [(tuple(map(int, key)), float(bits)) for *key, bits in rows], recorded, RECORD.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--estimate", type=int, nargs=3, metavar=("LOG_N", "LOG_Q", "WEIGHT"))
    parser.add_argument("--claims", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.estimate:
        print(estimate(*args.estimate))
        return 0
    record = json.loads(RECORD.read_text())
    if args.claims:
        return check_claims(record, args.claims)
    wrong = 0
    for entry in record["sets"]:
        bits = estimate(entry["log_n"], entry["log2_q"], entry["weight"])
        differs = any(abs(bits[name] - entry["bits"].get(name, 0)) > TOLERANCE for name in bits)
        wrong += differs and not args.write
        print(f"N = 2^{entry['log_n']}, log2 q = {entry['log2_q']}, weight {entry['weight']}: {bits}"
              f"{'' if not differs else '  changed' if args.write else '  DIFFERS'}", flush=True)
        entry["bits"] = bits
    if args.write:
        RECORD.write_text(json.dumps(record, indent=2) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
