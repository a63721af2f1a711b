"""Reproduces the security estimates in `rlwe.json`, and checks that the code claims no more than they say.

    python3 params/rlwe.py                                      estimate everything anew and compare
    python3 params/rlwe.py --n 2048 --log2-q 48                 only this set
    python3 params/rlwe.py --claims crates/ring/src/he/params/mod.rs   compare the code's table with the record
    python3 params/rlwe.py --formula --n 16384                  by the formulas of hybrid.py, dense ternary secrets

The first two need malb/lattice-estimator (how to install it: `README.md` beside this file) and take from
seconds to minutes a set; the others need nothing. A figure by formula is below the estimator's wherever both are on record, by
0.4 to 1.5 bits.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from pathlib import Path

import hybrid
from claims import differing

RECORD = Path(__file__).with_name("rlwe.json")
# The estimator's searches are heuristic: versions differ in the last digit.
TOLERANCE = 0.3


def load_estimator():
    """The estimator's modules, or a message that says what is missing."""
    try:
        import sage.all  # noqa: F401
    except ImportError as error:
        sys.exit(f"Sage is not importable ({error}).\n"
                 "Install it in a virtual environment: pip install passagemath-standard==10.8.13")
    try:
        from estimator import LWE, ND, RC
        from estimator.reduction import ADPS16
    except ImportError as error:
        sys.exit(f"lattice-estimator is not importable ({error}).\n"
                 "Clone https://github.com/malb/lattice-estimator, check out 27a581b, and put its folder on PYTHONPATH.")
    models = {"matzov": RC.MATZOV, "bdgl16": RC.BDGL16, "adps16": RC.ADPS16, "adps16_quantum": ADPS16("quantum")}
    return LWE, ND, models


def secret_distribution(nd, kind: str, n: int):
    """The distribution that a record's `secret` names."""
    name, _, parameter = kind.partition("-")
    if name == "ternary":
        return nd.Uniform(-1, 1)
    if name == "binomial":
        return nd.CenteredBinomial(int(parameter))
    if name == "sparse":
        half = int(parameter) // 2
        return nd.SparseTernary(half, half, n=n)
    raise ValueError(f"unknown kind of secret: {kind}")


def estimate(entry: dict, stddev: float, model: str) -> tuple[float, str]:
    """log2 of the cheapest attack's operations, and which attack it is."""
    lwe, nd, models = load_estimator()
    n = entry["n"]
    parameters = lwe.Parameters(n=n, q=2 ** entry["log2_q"], m=n, Xs=secret_distribution(nd, entry["secret"], n),
                                Xe=nd.DiscreteGaussian(stddev))
    attacks = {"uSVP": lwe.primal_usvp, "BDD": lwe.primal_bdd, "dual hybrid": lwe.dual_hybrid}
    if entry["secret"].startswith("sparse"):
        # Guessing part of a sparse secret pays; of the others it does not.
        attacks["primal hybrid"] = lwe.primal_hybrid
    costs = {}
    for name, attack in attacks.items():
        cost = attack(parameters, red_cost_model=models[model])
        costs[name] = math.log2(cost["rop"])
    best = min(costs, key=costs.get)
    return costs[best], best


def reproduce(record: dict, entries: list[dict]) -> int:
    wrong = 0
    for entry in entries:
        for model, recorded in entry["bits"].items():
            if model == "formula":
                continue
            bits, attack = estimate(entry, record["error_stddev"], model)
            differs = abs(bits - recorded) > TOLERANCE
            wrong += differs
            print(f"n = {entry['n']}, log2 q = {entry['log2_q']}, {entry['secret']}, {model}: "
                  f"{bits:.1f} ({attack}), recorded {recorded}{'  DIFFERS' if differs else ''}", flush=True)
    return 1 if wrong else 0


def by_formula(entries: list[dict]) -> int:
    """Every figure by formula anew, beside the recorded one and the estimator's, above which it must not lie."""
    wrong = 0
    for entry in entries:
        if "formula" not in entry["bits"]:
            continue
        n, recorded = entry["n"], entry["bits"]["formula"]
        # Two thirds of a uniform ternary secret are not zero.
        bits = hybrid.decides(hybrid.estimate(n.bit_length() - 1, entry["log2_q"], 2 * n // 3))
        estimator = entry["bits"].get("matzov")
        differs = abs(bits - recorded) > hybrid.TOLERANCE or (estimator is not None and bits > estimator)
        wrong += differs
        print(f"n = {n}, log2 q = {entry['log2_q']}: {bits:.1f} by formula, recorded {recorded}, "
              f"by the estimator {estimator or 'not computed'}{'  DIFFERS' if differs else ''}", flush=True)
    return 1 if wrong else 0


def check_claims(record: dict, source: Path) -> int:
    """The table `ESTIMATES: (N, largest k, tenths of bits)` must say what the record says."""
    recorded = {(e["n"], e["log2_q"]): e["bits"]["matzov"]
                for e in record["sets"] if e["secret"] == "ternary" and "matzov" in e["bits"]}
    table = re.search(r"const ESTIMATES[^=]*=\s*&\[(.*?)\];", source.read_text(), re.DOTALL)
    rows = re.findall(r"\((\d+),\s*(\d+),\s*(\d+)\)", table.group(1)) if table else []
    found = [((int(n), int(k)), int(tenths) / 10) for n, k, tenths in rows]
    return differing(source, found, recorded, RECORD.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, help="only sets of this dimension")
    parser.add_argument("--log2-q", type=int, help="only sets of this modulus")
    parser.add_argument("--claims", type=Path, metavar="FILE", help="compare the table in this Rust file instead")
    parser.add_argument("--formula", action="store_true", help="by formula, without the estimator")
    args = parser.parse_args()
    record = json.loads(RECORD.read_text())
    if args.claims:
        return check_claims(record, args.claims)
    entries = [e for e in record["sets"]
               if args.n in (None, e["n"]) and args.log2_q in (None, e["log2_q"])]
    if not entries:
        print("no such set on record", file=sys.stderr)
        return 1
    return by_formula(entries) if args.formula else reproduce(record, entries)


if __name__ == "__main__":
    sys.exit(main())
