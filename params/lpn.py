"""Security estimates for the LPN instances behind the silent OT extension (`lpn.json`).

    python3 params/lpn.py                                 estimate everything anew and compare with the record
    python3 params/lpn.py --claims crates/ot/src/ferret.rs   check that the code uses the sets on record
    python3 params/lpn.py --demonstrate                   break small instances by algebra, where predicted

An instance: n = t·b samples (rows of a random matrix A with `weight` ones each) of a secret s of k bits, and noise
with exactly one error in every bin of b samples ("regular"). Each sample e_i = y_i + <A_i, s> is 1 for one i of a
bin and 0 for the others. All figures are log2 of bit operations, memory is free, and a fresh secret is
attacked each time. Nothing but Python 3.11 is needed.

The attacks:

*pooled Gauss* (Esser, Kübler, May, CRYPTO 2017). Guess k samples without error, solve, check. It ignores the bins:
k^2.8 / (1 - 1/b)^k. This is the figure that implementations quote.

*regular Gauss* (the bins used, as in Liu, Wang, Yang, Yu, ePrint 2022/712, and Esser, Santini, ePrint 2023/1568).
The sum of a bin's samples is 1 without any noise: t linear equations, so k - t unknowns are left, and as many
samples without error are taken evenly from the bins: (k - t)^2.8 / (1 - (k-t)/n)^t.

*enumeration* (information-set decoding after Stern, on the same unknowns). Allow p errors in each half of the
guessed samples and find them by collision. Taken at its most favourable for the attacker: a new guess costs no
elimination, only (k - t)^2 operations, and collisions cost only their lists.

*parity checks* (statistical decoding). A combination of w samples in which s cancels is 0 but for the noise, with
bias (1 - 2/b)^w, and needs bias^-2 repetitions. Elimination gives combinations of about (k - t)/2 + 1 samples.
Lighter ones exist but must be found; information-set decoding for them costs about (n/k)^w at any w that would help.

*algebra* (Briaud, Øygarden, EUROCRYPT 2023, ePrint 2023/176). Within a bin, e_i·e_j = 0: t·b(b-1)/2 quadratic
equations in k - t unknowns. If there are more of them than monomials of degree 2, linear algebra over the monomials ends the matter
without any guess, and this is so for k < b·sqrt(t): **many samples with few unknowns are weak however many
errors there are**, which the estimates above do not see. In general: guess u samples of a bin to be
without error (u linear equations, probability 1 - u/b), until the Hilbert series of the rest,

    H(z) = prod_bins (1 + (b - 1 - u)·z) / (1 + z)^(n - k),

has a coefficient that is not positive, at degree D; then linearise at degree D. Two cost models, N = number of
monomials of degree D in the remaining unknowns:
  - `algebra_dense`: the cheaper of N^2.8 and 3·N^2·(monomials of degree 2), as in the paper;
  - `algebra_sparse`: 3·N^2·(weight + 1)^2: as if the equations stayed as sparse as A makes them although unknowns
    have been eliminated. No attack is known to have both; it is the margin for the local code.

The parameters in use have 128 bits in every line, `algebra_sparse` and `enumeration` included.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
from pathlib import Path

RECORD = Path(__file__).with_name("lpn.json")
TARGET = 128.0
ATTACKS = ("pooled_gauss", "regular_gauss", "enumeration", "parity_checks", "algebra_dense", "algebra_sparse")


def log2_binomial(n: float, r: float) -> float:
    return (math.lgamma(n + 1) - math.lgamma(r + 1) - math.lgamma(n - r + 1)) / math.log(2)


def log2_keep(bins: int, b: int, guessed: int) -> float:
    """-log2 of the probability that `guessed` samples, taken evenly from the bins, are all without error."""
    per_bin, more = divmod(guessed, bins)
    if per_bin + (more > 0) >= b:
        return math.inf
    return -more * math.log2(1 - (per_bin + 1) / b) - (bins - more) * math.log2(1 - per_bin / b)


def pooled_gauss(k: int, t: int, b: int) -> float:
    return 2.8 * math.log2(k) - k * math.log2(1 - 1 / b)


def regular_gauss(k: int, t: int, b: int) -> float:
    return 2.8 * math.log2(k - t) + log2_keep(t, b, k - t)


def enumeration(k: int, t: int, b: int) -> float:
    unknowns, half = k - t, t // 2
    rate = unknowns / t / b
    best = math.inf
    for p in range(12):
        # p of the bins in each half have their error among the guessed samples.
        log2_success = 2 * (log2_binomial(half, p) + p * math.log2(rate) + (half - p) * math.log2(1 - rate))
        work = max(2 * math.log2(unknowns), 1 + log2_binomial(unknowns / 2, p))
        best = min(best, work - log2_success)
    return best


def parity_checks(k: int, t: int, b: int) -> float:
    weight = (k - t) / 2 + 1
    return math.log2(k) - 2 * weight * math.log2(1 - 2 / b)


def hilbert(sizes: list[tuple[int, int]], equations: int, degree: int) -> list[int]:
    """The coefficients up to `degree` of prod (1 + size·z)^count / (1 + z)^equations, by its logarithmic derivative."""
    slopes = [(-1) ** j * (sum(count * size ** (j + 1) for count, size in sizes) - equations) for j in range(degree)]
    h = [1]
    for m in range(degree):
        h.append(sum(h[m - j] * slopes[j] for j in range(m + 1)) // (m + 1))
    return h


def solvable(k: int, t: int, b: int, bins: int, guessed: int, degree: int) -> bool:
    """Whether linearisation works at `degree` once `guessed` samples of the first `bins` bins are known to be 0."""
    per_bin, more = divmod(guessed, bins)
    sizes = [(more, b - 2 - per_bin), (bins - more, b - 1 - per_bin), (t - bins, b - 1)]
    return any(c <= 0 for c in hilbert(sizes, t * b - k, degree)[1:])


def algebra(k: int, t: int, b: int, weight: int, sparse: bool) -> float:
    best = math.inf
    for degree in range(2, 9):
        for bins in sorted({max(1, t * part // 8) for part in range(1, 9)}):
            # The smallest number of guesses that lets this degree suffice.
            low, high = 0, min(bins * (b - 2), k - t - degree - 1)
            if high < 0 or not solvable(k, t, b, bins, high, degree):
                continue
            while low < high:
                middle = (low + high) // 2
                if solvable(k, t, b, bins, middle, degree):
                    high = middle
                else:
                    low = middle + 1
            # More guesses may pay where fewer unknowns save more than they cost.
            for guessed in {low, *(low + (k - t - low) * step // 20 for step in range(1, 20))}:
                unknowns = k - t - guessed
                if unknowns <= degree:
                    continue
                monomials = log2_binomial(unknowns, degree)
                if sparse:
                    work = math.log2(3) + 2 * monomials + 2 * math.log2(weight + 1)
                else:
                    work = min(2.8 * monomials, math.log2(3) + 2 * monomials + log2_binomial(unknowns, 2))
                best = min(best, work + log2_keep(bins, b, guessed))
    return best


def estimate(entry: dict) -> dict[str, float]:
    k, t, b = entry["k"], entry["t"], entry["b"]
    bits = {
        "pooled_gauss": pooled_gauss(k, t, b),
        "regular_gauss": regular_gauss(k, t, b),
        "enumeration": enumeration(k, t, b),
        "parity_checks": parity_checks(k, t, b),
        "algebra_dense": algebra(k, t, b, entry["weight"], sparse=False),
        "algebra_sparse": algebra(k, t, b, entry["weight"], sparse=True),
    }
    return {name: round(value, 1) for name, value in bits.items()}


def compare() -> int:
    """Prints every set with its estimates, and what differs from the record or falls short."""
    failures = 0
    for entry in json.loads(RECORD.read_text())["sets"]:
        bits = estimate(entry)
        print(f"{entry['name']}: n = {entry['t'] * entry['b']}, k = {entry['k']}, t = {entry['t']}, b = {entry['b']}")
        for attack in ATTACKS:
            wrong = "" if bits[attack] == entry["bits"][attack] else f"   on record: {entry['bits'][attack]}"
            failures += bool(wrong)
            print(f"    {attack:15} {bits[attack]:6.1f}{wrong}")
        if entry["used"] and min(bits.values()) < TARGET:
            print(f"    below {TARGET} bits, but in use")
            failures += 1
    return failures


def check_claims(source: Path) -> int:
    """The code's instances must be the sets on record that are in use, and no others."""
    pattern = r"const (\w+): Self = Self \{ secret: ([\d_]+), bins: ([\d_]+), log_bin: (\d+) \}"
    code = {name: (int(k), int(t), 1 << int(h)) for name, k, t, h in re.findall(pattern, source.read_text())}
    record = {e["name"]: (e["k"], e["t"], e["b"]) for e in json.loads(RECORD.read_text())["sets"] if e["used"]}
    for name in sorted(code.keys() | record.keys()):
        if code.get(name) != record.get(name):
            print(f"{source}: {name} is (k, t, b) = {code.get(name)}, on record {record.get(name)}")
    return code != record


def rank(rows: list[int]) -> tuple[int, dict[int, int]]:
    """Gaussian elimination over F_2; rows are bit sets. Returns the rank and the reduced rows by leading bit."""
    pivots: dict[int, int] = {}
    for row in rows:
        while row:
            lead = row.bit_length() - 1
            if lead not in pivots:
                pivots[lead] = row
                break
            row ^= pivots[lead]
    return len(pivots), pivots


def linearise(k: int, t: int, b: int, weight: int, rng: random.Random) -> tuple[int, bool]:
    """Attacks one random instance at degree 2 without guessing. Returns how many unknown monomials stay undetermined,
    and whether the secret was read off correctly."""
    secret = [rng.getrandbits(1) for _ in range(k)]
    # Bit 0 is the constant, bits 1..k the unknowns, the products above.
    column = {frozenset(): 0} | {frozenset([i]): 1 + i for i in range(k)}
    for i in range(k):
        for j in range(i):
            column[frozenset([i, j])] = len(column)

    def times(p: set, q: set) -> set:
        product: set = set()
        for x in p:
            for y in q:
                product ^= {x | y}
        return product

    rows = []
    unit = frozenset()
    for _ in range(t):
        bin_of, total = [], {unit}
        error = rng.randrange(b)
        for i in range(b):
            places = rng.sample(range(k), weight)
            y = sum(secret[p] for p in places) + (i == error)
            sample = {frozenset([p]) for p in places} | ({unit} if y % 2 else set())
            bin_of.append(sample)
            total ^= sample
        rows.append(total)
        rows += [times(total, {frozenset([i])}) for i in range(k)]
        rows += [times(bin_of[i], bin_of[j]) for i in range(b) for j in range(i)]
    found, pivots = rank([sum(1 << column[m] for m in row) for row in rows])
    missing = len(column) - 1 - found
    # Back substitution, from the unknowns upwards: a reduced row determines its leading monomial.
    value = 1
    for lead in range(1, len(column)):
        if lead in pivots:
            value |= ((pivots[lead] ^ (1 << lead)) & value).bit_count() % 2 << lead
    return missing, missing == 0 and [value >> 1 + i & 1 for i in range(k)] == secret


def demonstrate() -> int:
    """Small instances on both sides of k = b·sqrt(t): the linearisation succeeds exactly where the series says so.

    Rows have weight 9 here: if all weights are even, as with 10, A cancels the all-ones vector, and s is determined
    only up to adding it (one unknown fewer, which the attack would have to fix first)."""
    rng = random.Random(2023176)
    failures = 0
    for k, t, b in ((26, 4, 16), (32, 4, 16), (34, 4, 16), (40, 6, 16), (44, 6, 16), (60, 8, 16)):
        h = hilbert([(t, b - 1)], t * b - k, 2)
        # Relations beyond those that settle degree 2 settle unknowns themselves.
        predicted = max(0, h[1] + h[2])
        missing, broken = linearise(k, t, b, 9, rng)
        print(f"k = {k}, t = {t}, b = {b}: b·sqrt(t) = {b * math.sqrt(t):.0f}; {missing} monomials undetermined, "
              f"predicted {predicted}; {'secret found' if broken else 'not broken'}")
        failures += missing != predicted or broken != (predicted == 0)
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--claims", type=Path, metavar="FILE", help="compare the instances in this Rust file instead")
    parser.add_argument("--demonstrate", action="store_true", help="break small instances instead")
    parser.add_argument("--write", action="store_true", help="put the estimates on record instead of comparing them")
    options = parser.parse_args()
    if options.claims:
        sys.exit(check_claims(options.claims))
    if options.demonstrate:
        sys.exit(demonstrate() > 0)
    if options.write:
        record = json.loads(RECORD.read_text())
        for entry in record["sets"]:
            entry["bits"] = estimate(entry)
        RECORD.write_text(json.dumps(record, indent=2) + "\n")
    sys.exit(compare() > 0)


if __name__ == "__main__":
    main()
