"""Security estimates for the LPN instances behind the silent OT extension (`lpn.json`).

    python3 params/lpn.py                                 estimate everything anew and compare with the record
    python3 params/lpn.py --claims crates/ot/src          check every instance that the code uses, line by line
    python3 params/lpn_demo.py                   break small instances where the formulas say so
    python3 params/lpn.py --search 2048 --m 4             the least k for bins of 2048 and vectors of 4 bits
    python3 params/lpn_tables.py docs/protocols/oblivious-transfer.md   check that the page has the record's tables

An instance: n = t·b samples (rows of a random matrix A with `weight` ones each) of a secret s of k entries, and noise
with at most one error in every bin of b samples ("regular"). For m = 1 the entries are bits and every bin has one
error. For m > 1 they are vectors of m bits, m columns that share A and the places of the errors, and a bin's error is
a uniform vector: in each column, and in each of the 2^m - 1 combinations of columns, a bin is free of error with
probability 1/2. All figures are log2 of bit operations over the probability of success, memory is free, and a fresh
secret is attacked each time. Nothing but Python 3.11 is needed.

**Lines of four** are vectors: four secrets lie side by side, so a row of A gives four outputs. Four bits have m = 4,
four vectors of four bits m = 16. It is regular LPN over F_(2^m) with a matrix over F_2, and decoding an interleaved code
of order m whose errors come in bursts. Others rest on the same form: emp-zk takes ten entries with the factor 1 over a
large prime field (Wolverine, ePrint 2020/925), libOTe's VOLE a code over F_2 for errors in F_(2^128) (ePrint 2019/1159).
Own trees a lane, hence own places of errors, would rest on less: four secrets under one A lose two bits against one,
since who tells four samples from random ones tells one in a row of hybrids, the other three being made up. With secrets
as long in memory they take 1.5 times the bytes. The common places take nothing known from the estimates but what is
counted here.

**Many iterations.** A session makes iterations without end, each with a matrix and secrets of its own, and who breaks
one has won something. No line gains by that: a guess, a list, a reduced system or a parity check that was made for one
matrix serves no other, so work that is divided among N targets breaks one of them as probably as if it were spent on
one. (To decode one out of many, Sendrier, PQCrypto 2011, takes a common matrix: that is what `gift` counts among the
columns. To prepare for a code, Bogdanov et al., arXiv 2510.14347, it must be known before: A follows from a hash of both
parties' messages.) A proof by hybrids loses log2(N) all the same. So instances that are iterated have `iterations` bits
more than TARGET in every line: TARGET holds for all of the first 2^iterations iterations of a session together. Those
that make first secrets run once in either direction, which is one bit.

**Stationary noise** (stationary syndrome decoding: Kolesnikov, Peceny, Raghuraman, Rindal, ePrint 2025/295), which both
parties must ask for: `life` iterations after each other have their errors in the same rows of each bin. Matrices, secrets and
the errors' values, uniform vectors, are new in each. Why nothing that is known gains by it, beyond what is counted here:
- *Linear tests*. A test of several iterations is a sum of rows of each in which the secrets cancel. The values being uniform
  and independent, its bias is the probability that no error's row is among all of these rows. That is at most the bias of
  its part in any one iteration, where noise is what `present` = 1/2 says. So a test of many is no better than one of its parts.
- *Guesses* of rows serve every iteration, but each has its own matrix to eliminate. All lines take them all for the
  price of one: `gift` has the combinations of the columns of all `life` iterations. To have no error's row at all among the
  rows guessed (which would serve all iterations at once) is as improbable as `gauss` with `present` = 1: twice the bits.
- *Algebra*: samples of a bin multiply to zero across iterations, too. `algebra_joint` has all m·life columns. For degree 2
  equations and monomials both grow with the square of the number of columns, so the threshold k < b·sqrt(t) stays.
- *Linear algebra alone* (Metzner, Kapturowski 1990) finds the rows from as many columns as there are errors, **if the matrix is
  the same**. It is not; and m·life is at most an eighth of t all the same.
- *The chain*. The secret of an iteration, and the values of its errors, are rows of the one before, which nobody sees. With
  fresh noise a hybrid for each iteration takes care of that: its errors' rows serve nothing else. In a life they serve again, so
  no row of hybrids leads from independent secrets to these, and the assumption is about the whole life. What can be said:
  (1) No linear test gains. A test of rows seen, followed down the chain, is a vector w_i of all n rows for each iteration: w_i
  has the part of w_{i+1}·A_{i+1} at the rows that make the secret, and what w_{i+1} has at the places alpha at the rows
  that make values. It has a bias only where w_1·A_1 = 0 and alpha misses w_1. These are up to (life - 1)·t rows in k
  columns that alpha may add in; as long as they are independent (hence life - 1 < k/t, which is 35 to 81) one choice at most makes
  w_1·A_1 zero. Either w_1 is not zero: then it is a test of one iteration with a secret of its own and all rows seen, and
  the bias is no more than that one's. Or it is, and then so are w_2·A_2 and w_2 at alpha, and the same holds for w_2.
  (2) Algebra has fewer equations. Secrets eliminated, a life gives life·(n - k) - k - t linear checks on its errors, all rows
  that are not seen and all sums of bins included; the lines have life·(n - k), every row seen and secrets independent.
  `lpn_demo.py` counts both on small lives: the first exactly, over all tests.
Values that stayed would be fatal, whatever the matrices: two iterations then have n unknown errors and 2k unknown secrets in 2n
equations. `lpn_demo.py` breaks this, and one matrix for all; and shows that what is in use withstands both. A life is a target
of its own: of 2^10 iterations there are 2^10 / life.

**The sub-matrix** (domain reduction: Chen, Shu, Zhou, COLT 2025, arXiv 2407.19215) comes before every attack. Keep a
set S of columns and the rows that lie inside S. As soon as these are as many as S has columns, they are an instance of
their own. Four sets are tried, and every line of the record has a figure for each:

*full*: all columns. With m = 1 the sum of a bin's samples is 1: t linear equations. Inside S they are lost.
*random*: n·sigma^weight rows. An attack.
*greedy*: columns of least degree go one by one. An attack; its size is measured on a matrix of `GREEDY` columns.
*least*: **a bound**: no S of sigma·k columns has more rows, except with probability 2^-40 over A, by the first moment.
    Nobody knows how to find such sets; the greedy ones have 5 to 6 % more columns.

The attacks on the rows that are left (u unknowns, n' rows; `present` = 1 or 1/2, the probability that a bin has an
error at all in the combination at hand; rate = u/n):

*pooled_gauss* (Esser, Kübler, May, CRYPTO 2017): u rows at random are free of error, solve. It ignores the bins.
    Solving costs the lower of u^2.8 and Wiedemann's 3·weight·u^2. On the full matrix this is the usual figure.
*gauss*: the same, rows taken evenly from the bins: (1 - present·rate)^t (ePrint 2022/712; 2023/1568).
*enumeration*: information-set decoding after Stern: p errors in each half of the rows taken, found by collision.
    **A bound**: collisions cost their lists only, the rows that they need come from nowhere, and a new set of rows
    costs the lower of u^2 and (b·(1 - rate)/present)^2.8, as if sets shared what they can (`eliminating`).
*representations*: the same after May, Meurer, Thomae (ASIACRYPT 2011): 4q errors as sums of 2q and 2q, base lists of
    q. **A bound** of the same kind. Lists respect the bins, as Regular-ISD (Esser, Santini, ePrint 2023/1568) does.
*parity_checks* (statistical decoding): a combination of w samples in which s cancels has bias (1 - 2·present/b)^w and
    needs bias^-2 repetitions. Here w is half of u less what the lightest of 2^128 random combinations saves, and u is
    smaller by 128 columns for which a Fourier transform tries all secrets (statistical decoding 2.0: Carrier,
    Debris-Alazard, Meyer-Hilfiger, Tillich, ASIACRYPT 2022, whose other gains need a higher rate). **No bound**: far
    lighter combinations exist, by the first moment with w = 0.10 to 0.18·k (`lightest`), and were one given for nothing,
    86 to 116 bits would be left. Nobody can find one: by information-set decoding it costs (n/k)^w, by halves that meet
    the square root of it: 2^1,900 for the smallest instance, 2^12,000 and more for those that are iterated.
*algebra* (Briaud, Øygarden, EUROCRYPT 2023, ePrint 2023/176): two samples of a bin multiply to zero: t·b(b-1)/2
    quadratic equations. Where they outnumber the monomials, linear algebra ends the matter: k < b·sqrt(t) is broken
    **however many errors there are**. In general guess samples to be free of error until the Hilbert series of the
    rest, H(z) = prod_bins (1 + (rows - guessed)·z) / (1 + z)^(n' - u), has a coefficient that is not positive, at
    degree D, then linearise. With N monomials of degree D: the lowest of N^2.8, 3·N^2·(monomials of degree 2) and,
    with the errors as variables, 3·N_e^2·u. A guess itself costs as in *enumeration*, to the attacker's favour.
*agb2* (AGB 2.0, ePrint 2025/1476): guesses in two stages. A few samples are guessed, the system is reduced once, and
    only the M monomials that are still free (the coefficients of the series) go into each guess of the other samples,
    at 5.64·M^2.8. After the authors' published script, which has two stages (r2) and no third.
*hybrid* (ePrint 2025/1284): samples of most bins are guessed to be free of error, and in q bins the place of the error
    is tried out, b^q times, each of which gives b linear equations at once. The quadratic system is reduced once for all
    of these. After the authors' published script.
*algebra_sparse*, *agb2_sparse*: **bounds**: 3·N^2·(weight + 1)^2, as if the equations stayed as sparse as A makes
    them although unknowns were eliminated.
*algebra_joint* (m > 1): all columns at once with the products across columns, in m·u unknowns; a guessed sample is
    free of error in all columns. **A bound** (sparse, as above).

For m > 1 all lines but the last attack one combination of columns and get all 2^m - 1 for the price of one: a union
bound, 3.9 bits for m = 4 and 16 for m = 16. This covers Interleaved Prange (Porwal et al., PQCrypto 2022), which succeeds
where the errors among the rows taken have rank below m, so that some combination is free of error, and generic decoding
of the code that the received words are added to, whose light words are these combinations. Decoders by linear algebra
alone (Metzner, Kapturowski 1990) need m >= t, and errors of full rank: t is 128 times 16 and more. An instance with few
errors counts by its probability; `--unlucky` prints what the lowest line is for the weakest instance in 2^40: as few
errors in the best combination as happen with that probability.

Looked at, without a line: algebra with F_(2^m) as the field (Briaud and Øygarden treat it too): as many equations in as
many unknowns as for one combination, but a sample is free of error in all columns half as often as in one, so each
guess costs what two do there, and no field equations help; refutation by spectral methods (Kikuchi) needs k^(weight/2)
samples or time exponential in k·(k/n)^(1/4); BKW eliminates log2(n) of k columns a step; guessing s until rows give
bits away takes 0.4·k bits.

Rows with one place in each of `weight` equal segments change none of this. S then has a share sigma_j of each segment,
and a row lies inside with probability prod(sigma_j), at most sigma^weight for the same |S|. So the expected number of
sets is no larger and *least* holds as it is; *greedy* comes out the same within 2 % (`lpn_demo.py`), and the rank is
k - weight + 1 instead of k - 1 (rows of even weight cancel the all-ones vector; all segments have the same sum). The
code then contains the all-ones word, which an error of weight t is far from either way.

Without segments 45 in k rows draw a place twice; such a row has two ones fewer and lies in S a little more often. At
the least k on record this adds 0.4 % of rows to S.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import random
import re
import sys
from pathlib import Path

from hybrid import log2_binomial

RECORD = Path(__file__).with_name("lpn.json")
TARGET = 128.0
# log2 of the iterations for which an instance in use is to have TARGET, all of them together.
ITERATIONS = 10.0
# Columns of the matrix on which the greedy choice is measured.
GREEDY = 2040
# log2 of how improbable an event must be to be left out.
UNLIKELY = 40
SETS = ("full", "random", "greedy", "least")


@dataclasses.dataclass(frozen=True)
class Lpn:
    """n = t·b samples of a secret of k entries of m bits; a bin of b samples has at most one error."""

    k: int
    t: int
    b: int
    weight: int = 10
    m: int = 1
    # Iterations with the errors in the same rows.
    life: int = 1

    @property
    def n(self) -> int:
        return self.t * self.b

    @property
    def present(self) -> float:
        """The probability that a bin has an error in a given combination of the columns."""
        return 1.0 if self.m == 1 else 0.5

    @property
    def gift(self) -> float:
        """log2 of the number of combinations of columns, which the attacker tries for the price of one, in all iterations of a
        life."""
        return math.log2((2**self.m - 1) * self.life)

    @property
    def columns(self) -> int:
        """Columns whose errors lie in the same rows."""
        return self.m * self.life


@dataclasses.dataclass(frozen=True)
class Part:
    """What is left of an instance: `rows` samples in `columns` columns, with the bins' sums known or not."""

    lpn: Lpn
    columns: int
    rows: int
    sums: bool

    @property
    def unknowns(self) -> int:
        return self.columns - (self.lpn.t if self.sums else 0)

    @property
    def bin(self) -> int:
        """Rows of a bin, rounded up."""
        return -(-self.rows // self.lpn.t)


def log2_sum(x: float, y: float) -> float:
    high, low = max(x, y), min(x, y)
    return high if high == math.inf else high + math.log2(1 + 2.0 ** max(low - high, -1000))


# --- sub-matrices


def least_rows(lpn: Lpn, sigma: float) -> int:
    """More rows lie inside some set of sigma·k columns only with probability 2^-UNLIKELY: the expected number of such
    sets, C(k, sigma·k)·Pr[Bin(n, sigma^weight) >= rows], by Chernoff's bound."""
    p, entropy = sigma**lpn.weight, 0.0
    if sigma < 1:
        entropy = -sigma * math.log2(sigma) - (1 - sigma) * math.log2(1 - sigma)

    def divergence(x: float) -> float:
        return x * math.log2(x / p) + ((1 - x) * math.log2((1 - x) / (1 - p)) if x < 1 else 0.0)

    low, high = p, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if lpn.n * divergence(middle) > lpn.k * entropy + UNLIKELY:
            high = middle
        else:
            low = middle
    return math.ceil(high * lpn.n)


def peel(k: int, n: int, weight: int, rng: random.Random, segmented: bool = False) -> tuple[list[int], list[int], list]:
    """Drops the column of least degree and its rows, again and again. Returns the columns in the order in which they
    went, the number of rows left before each step, and the matrix. With `segmented`, a row has one place in each of
    `weight` segments."""
    if segmented:
        segment = k // weight
        matrix = [[j * segment + rng.randrange(segment) for j in range(weight)] for _ in range(n)]
    else:
        matrix = [[rng.randrange(k) for _ in range(weight)] for _ in range(n)]
    rows_of: list[list[int]] = [[] for _ in range(k)]
    for row, places in enumerate(matrix):
        for place in set(places):
            rows_of[place].append(row)
    degree = [len(rows) for rows in rows_of]
    buckets: list[set[int]] = [set() for _ in range(max(degree) + 1)]
    for column, size in enumerate(degree):
        buckets[size].add(column)
    alive, left, least = [True] * n, n, 0
    order, rows_left = [], []
    gone = [False] * k
    for _ in range(k):
        least = max(0, least - weight)
        while not buckets[least]:
            least += 1
        column = min(buckets[least])
        buckets[least].remove(column)
        order.append(column)
        rows_left.append(left)
        gone[column] = True
        for row in rows_of[column]:
            if not alive[row]:
                continue
            alive[row] = False
            left -= 1
            for place in set(matrix[row]):
                if not gone[place]:
                    buckets[degree[place]].remove(place)
                    degree[place] -= 1
                    buckets[degree[place]].add(place)
                    least = min(least, degree[place])
    return order, rows_left, matrix


@functools.cache
def greedy_curve(ratio: float, weight: int, segmented: bool = False) -> list[float]:
    """For i = 0, 1, ..: rows left over n when the greedy choice has dropped i of GREEDY columns; n/k = ratio."""
    size = GREEDY // weight * weight
    n = round(ratio * size)
    _, rows_left, _ = peel(size, n, weight, random.Random(240719215), segmented)
    return [rows / n for rows in rows_left]


def rows_inside(lpn: Lpn, choice: str, sigma: float) -> int:
    """How many rows lie inside a set of sigma·k columns that was chosen in this way."""
    if choice == "random":
        return round(lpn.n * sigma**lpn.weight)
    if choice == "greedy":
        curve = greedy_curve(round(lpn.n / lpn.k, 1), lpn.weight)
        return round(lpn.n * curve[min(len(curve) - 1, round((1 - sigma) * len(curve)))])
    return min(lpn.n, least_rows(lpn, sigma))


@functools.cache
def smallest(lpn: Lpn, choice: str) -> float:
    """The least sigma for which as many rows lie inside as there are columns."""
    low, high = 0.01, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if rows_inside(lpn, choice, middle) >= middle * lpn.k:
            high = middle
        else:
            low = middle
    return high


def parts(lpn: Lpn, choice: str) -> list[Part]:
    """The smallest sub-matrix of this choice first, then larger ones, which have more rows to spare."""
    if choice == "full":
        return [Part(lpn, lpn.k, lpn.n, lpn.m == 1)]
    low = smallest(lpn, choice)
    sigmas = [low + (1 - low) * step for step in (0, 0.02, 0.05, 0.1, 0.2, 0.4)]
    return [Part(lpn, math.floor(s * lpn.k), rows_inside(lpn, choice, s), False) for s in sigmas]


# --- attacks on what is left


def log2_keep(lpn: Lpn, bins: int, guessed: int, present: float) -> float:
    """-log2 of the probability that `guessed` samples, taken evenly from `bins` bins, are all without error."""
    per_bin, more = divmod(guessed, bins)

    def one(samples: int) -> float:
        bad = present * samples / lpn.b
        return -math.log2(1 - bad) if bad < 1 else math.inf

    return (bins - more) * one(per_bin) + (more * one(per_bin + 1) if more else 0.0)


def solving(part: Part) -> float:
    """log2 of the cost of a linear system: elimination, or Wiedemann's algorithm, which the bins' dense sums slow."""
    row = part.lpn.weight + (part.lpn.t if part.sums else 0)
    return min(2.8 * math.log2(part.unknowns), math.log2(3 * row) + 2 * math.log2(part.unknowns))


def eliminating(part: Part) -> float:
    """log2 of the least that a new set of rows costs if sets share what they can: u^2, or a tree of guesses. There the
    rows are taken in stages, and a set that differs from another in its last D rows costs D^2.8 more. Longer stages
    than D = b·(1 - rate)/present do not pay: so many rows are free of error once in e times."""
    lpn, u = part.lpn, part.unknowns
    return min(2 * math.log2(u), 2.8 * math.log2(lpn.b * (1 - u / lpn.n) / lpn.present))


def pooled_gauss(part: Part) -> float:
    whole = dataclasses.replace(part, sums=False)
    return solving(whole) - whole.unknowns * math.log2(1 - part.lpn.present / part.lpn.b)


def gauss(part: Part) -> float:
    lpn = part.lpn
    return solving(part) + log2_keep(lpn, lpn.t, part.unknowns, lpn.present)


def enumeration(part: Part, errors: int | None = None) -> float:
    """With `errors`, so many of the bins have an error and the others none, instead of each with its probability."""
    lpn, u = part.lpn, part.unknowns
    bins, present = (lpn.t, lpn.present) if errors is None else (errors, 1.0)
    half, rate = bins // 2, u / lpn.n
    best = math.inf
    for p in range(16):
        # p of the bins in each half have their error among the samples taken.
        hit = present * rate
        success = 2 * (log2_binomial(half, p) + p * math.log2(hit) + (half - p) * math.log2(1 - hit))
        work = max(eliminating(part), 1 + log2_binomial(lpn.t // 2, p) + p * math.log2(u / lpn.t))
        best = min(best, work - success)
    return best


def representations(part: Part) -> float:
    lpn, u = part.lpn, part.unknowns
    rate = lpn.present * u / lpn.n
    best = math.inf
    for q in range(9):
        success = log2_binomial(lpn.t, 4 * q) + 4 * q * math.log2(rate) + (lpn.t - 4 * q) * math.log2(1 - rate)
        base = log2_binomial(lpn.t / 2, q) + q * math.log2(u / lpn.t)
        work = max(eliminating(part), 1 + base, 1 + 2 * base - log2_binomial(4 * q, 2 * q))
        best = min(best, work - success)
    return best


def lightest(lpn: Lpn) -> int:
    """The least weight at which a combination of rows that cancels is expected to exist: the first moment. The weight*w
    ones of w rows fall on each column evenly often with probability about 2^-k·sum_j C(k, j)·(1 - 2j/k)^(weight*w)."""

    def expected(w: int) -> float:
        # The largest term decides: terms are unimodal in j up to k/2, and symmetric, as weight*w is even.
        def term(j: int) -> float:
            return log2_binomial(lpn.k, j) + lpn.weight * w * math.log2(1 - 2 * j / lpn.k)

        low, high = 0, lpn.k // 2 - 1
        while high - low > 2:
            a, b = low + (high - low) // 3, high - (high - low) // 3
            low, high = (a, high) if term(a) < term(b) else (low, b)
        return log2_binomial(lpn.n, w) - lpn.k + 1 + max(term(j) for j in range(low, high + 1))

    low, high = 1, lpn.k // 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if expected(middle) >= 0 else (middle + 1, high)
    return low


def parity_checks(part: Part) -> float:
    u = part.unknowns
    cancelled = u - TARGET
    weight = cancelled / 2 - math.sqrt(cancelled * TARGET * math.log(2) / 2)
    return math.log2(u) - 2 * weight * math.log2(1 - 2 * part.lpn.present / part.lpn.b)


def log_slopes(factor: list[int], degree: int) -> list[int]:
    """The coefficients of factor'/factor, a polynomial with constant term 1, up to z^(degree-1)."""
    derivative = [i * c for i, c in enumerate(factor)][1:]
    out: list[int] = []
    for j in range(degree):
        value = derivative[j] if j < len(derivative) else 0
        out.append(value - sum(factor[i] * out[j - i] for i in range(1, min(j, len(factor) - 1) + 1)))
    return out


def hilbert(factors: list[tuple[int, list[int]]], equations: int, degree: int) -> list[int]:
    """The coefficients up to `degree` of prod factor^count / (1 + z)^equations, by the logarithmic derivative."""
    slopes = [-equations * s for s in log_slopes([1, 1], degree)]
    for count, factor in factors:
        slopes = [x + count * y for x, y in zip(slopes, log_slopes(factor, degree))]
    h = [1]
    for i in range(degree):
        h.append(sum(h[i - j] * slopes[j] for j in range(i + 1)) // (i + 1))
    return h


@functools.lru_cache(maxsize=1 << 16)
def series(part: Part, bins: int, guessed: int, degree: int, joint: bool) -> list[int]:
    """The Hilbert series once `guessed` samples of the first `bins` bins are known to be free of error."""
    m = part.lpn.columns if joint else 1
    per_bin, more = divmod(guessed, bins)
    places = part.bin - part.sums

    def factor(size: int) -> list[int]:
        return [1] + [size * math.comb(m, i) for i in range(1, m + 1)]

    groups = [(more, places - per_bin - 1), (bins - more, places - per_bin), (part.lpn.t - bins, places)]
    factors = [(count, factor(size)) for count, size in groups if count]
    return hilbert(factors, m * (part.rows - part.columns), degree)


def solvable(part: Part, bins: int, guessed: int, degree: int, joint: bool) -> bool:
    return any(c <= 0 for c in series(part, bins, guessed, degree, joint)[1:])


def algebra(part: Part, sparse: bool = False, stages: int = 1, joint: bool = False) -> float:
    lpn = part.lpn
    m = lpn.columns if joint else 1
    present = 1 - 2.0**-lpn.columns if joint and lpn.m > 1 else lpn.present
    linear, best = eliminating(part), math.inf

    def work(guessed: int, degree: int) -> float:
        unknowns = m * (part.unknowns - guessed)
        if unknowns <= degree:
            return math.inf
        monomials = log2_binomial(unknowns, degree)
        if sparse:
            product = math.log2(3) + 2 * monomials + 2 * math.log2(lpn.weight + 1)
            return log2_sum(linear, min(2.8 * monomials, product))
        dense = min(2.8 * monomials, math.log2(3) + 2 * monomials + log2_binomial(unknowns, 2))
        errors = degree * math.log2(max(1, part.rows - guessed) / lpn.t) + log2_binomial(lpn.t, degree)
        return log2_sum(linear, min(dense, math.log2(3) + 2 * errors + math.log2(unknowns)))

    for degree in range(2, 8 if stages == 1 else 6):
        for bins in sorted({max(1, lpn.t * part_of // 4) for part_of in range(1, 5)}):
            low, high = 0, min(bins * (part.bin - part.sums - 1), part.unknowns - degree - 1)
            if high < 0 or not solvable(part, bins, high, degree, joint):
                continue
            while low < high:
                middle = (low + high) // 2
                if solvable(part, bins, middle, degree, joint):
                    high = middle
                else:
                    low = middle + 1
            if stages == 1:
                # More guesses may pay where fewer unknowns save more than they cost.
                for guessed in {low + (part.unknowns - low) * step // 20 for step in range(20)}:
                    if guessed <= bins * (part.bin - part.sums - 1):
                        best = min(best, work(guessed, degree) + log2_keep(lpn, bins, guessed, present))
                continue
            for guessed in {low + (part.unknowns - low) * step // 6 for step in range(6)}:
                if guessed > bins * (part.bin - part.sums - 1):
                    continue
                tries = log2_keep(lpn, bins, guessed, present)
                for step in range(16):
                    first = guessed - round(guessed * (step / 16) ** 3)
                    free = sum(max(0, c) for c in series(part, bins, first, degree, joint))
                    again = math.log2(5.64) + 2.8 * math.log2(max(1, free)) + tries
                    best = min(best, log2_sum(work(first, degree) + log2_keep(lpn, bins, first, present), again))
    return best


def hybrid(part: Part) -> float:
    lpn, best = part.lpn, math.inf
    places = part.bin - part.sums
    for tried in range(min(24, lpn.t - 1)):
        # The error of a bin is in one of its samples, or (in a sub-matrix) in none.
        tries, bins = tried * math.log2(part.bin + 1), lpn.t - tried
        linear = tried * places

        def unknowns(guessed: int) -> float:
            return max(0, part.unknowns - guessed - linear)

        def solved(guessed: int) -> bool:
            left = places - guessed / bins
            return unknowns(guessed) <= math.sqrt(max(0.0, bins * left * (left - 1))) - 2

        low, high = 0, min(max(0, part.unknowns - linear), bins * (places - 1))
        if part.unknowns > high + linear and not solved(high):
            continue
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if solved(middle) or unknowns(middle) == 0 else (middle + 1, high)
        for guessed in {low + round(unknowns(low) * step / 20) for step in range(21)}:
            if guessed > bins * (places - 1):
                continue
            v, n = max(1.0, unknowns(guessed)), max(1, part.unknowns - guessed)
            reduce = 4 * math.log2(v) + 2 * math.log2(n) - 3 - math.log2(max(1.0, math.log2(max(2, v * v / 2))))
            again = log2_sum(
                math.log2(1.25) + math.log2(2 * v * v * linear + v * linear * linear + 1),
                3 * math.log2(2.5 * v) - math.log2(max(1.0, math.log2(2.5 * v))),
            )
            work = log2_sum(log2_sum(eliminating(part), reduce), again + tries)
            best = min(best, work + log2_keep(lpn, bins, guessed, lpn.present))
    return best


def unlucky(lpn: Lpn) -> float:
    """`enumeration`, the combination with the fewest errors being known, for the weakest instance in 2^UNLIKELY."""
    likely, errors = 0, 0
    while likely * (2**lpn.m - 1) * lpn.life << UNLIKELY <= 1 << lpn.t:
        likely += math.comb(lpn.t, errors)
        errors += 1
    return min(enumeration(part, errors - 1) for choice in SETS for part in parts(lpn, choice))


ATTACKS = {
    "pooled_gauss": pooled_gauss,
    "gauss": gauss,
    "enumeration": enumeration,
    "representations": representations,
    "parity_checks": parity_checks,
    "algebra": algebra,
    "agb2": functools.partial(algebra, stages=2),
    "hybrid": hybrid,
    "algebra_sparse": functools.partial(algebra, sparse=True),
    "agb2_sparse": functools.partial(algebra, sparse=True, stages=2),
    "algebra_joint": functools.partial(algebra, sparse=True, joint=True),
}


# --- the record


@functools.cache
def estimate(lpn: Lpn) -> dict[str, list[float]]:
    """For every attack its log2 with each of SETS in front."""
    bits = {}
    for name, attack in ATTACKS.items():
        if name == "algebra_joint" and lpn.m == 1:
            continue
        gift = 0.0 if name == "algebra_joint" else lpn.gift
        exact = [min(attack(part) for part in parts(lpn, choice)) - gift for choice in SETS]
        figures = [math.floor(10 * figure) / 10 for figure in exact]
        # What is possible at random is possible greedily, and within the bound: the search over sizes is coarse.
        bits[name] = figures[:1] + [min(figures[1 : i + 1]) for i in range(1, len(figures))]
    return bits


def instance(entry: dict) -> Lpn:
    return Lpn(entry["k"], entry["t"], entry["b"], entry["weight"], entry["m"], entry.get("life", 1))


def show(bits: dict[str, list[float]], record: dict[str, list[float]]) -> int:
    """Prints the lines and returns how many differ from the record."""
    wrong = 0
    print(f"    {'':16}" + "".join(f"{choice:>8}" for choice in SETS))
    for name, figures in bits.items():
        differs = record.get(name) != figures
        wrong += differs
        note = f"   on record: {record.get(name)}" if differs else ""
        print(f"    {name:16}" + "".join(f"{figure:8.1f}" for figure in figures) + note)
    return wrong


def lowest(bits: dict[str, list[float]]) -> float:
    return min(min(figures) for figures in bits.values())


def enough(bits: dict[str, list[float]], iterations: float) -> bool:
    """Whether every line has TARGET bits for so many iterations together."""
    return lowest(bits) - iterations >= TARGET


def compare() -> int:
    """Prints every set with its estimates; returns how much differs from the record or falls short."""
    failures = 0
    for entry in json.loads(RECORD.read_text())["sets"]:
        lpn = instance(entry)
        print(f"{entry['name']}: n = {lpn.n}, k = {lpn.k}, t = {lpn.t}, b = {lpn.b}, m = {lpn.m}, life = {lpn.life}")
        bits = estimate(lpn)
        failures += show(bits, entry["bits"])
        if entry["safe"] != enough(bits, entry["iterations"]):
            print(f"    lowest line {lowest(bits)}, iterations {entry['iterations']}, but 'safe' is {entry['safe']}")
            failures += 1
    return failures


WIDTHS = {"bits": 1, "vectors": 4, "bit_lines": 4, "vector_lines": 16, "Width::Bit": 1, "Width::Vector": 4}


def without_tests(source: str) -> str:
    """Rust without what stands behind `#[cfg(test)]`: an item that a semicolon ends, or its braces."""
    while (at := source.find("#[cfg(test)]")) >= 0:
        depth, end = 0, at
        for end in range(at + len("#[cfg(test)]"), len(source)):
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            if depth == 0 and source[end] in ";}":
                break
        source = source[:at] + source[end + 1 :]
    return source


def instances_in(source: str) -> list[Lpn]:
    """The instances written out in Rust, outside tests: `Lpn::bits(k, t, log_bin)`, `Lpn::vectors(..)` and
    `Lpn::bit_lines(..)` for m = 4, `Lpn::vector_lines(..)` for m = 16 (with `LIFE: u64 = 16` each of these also with this life), and `Lpn { secret: k, bins: t, log_bin: h }` (also
    `Self`), with `width: m` or `width: Width::Vector` for vectors, and `lanes: l` for lines."""
    source = without_tests(re.sub(r"//[^\n]*", "", source))
    found = []
    call = r"(?:Self|Lpn)::(bits|vectors|bit_lines|vector_lines)\(\s*(\w+),\s*(\w+),\s*(\w+),?\s*\)"
    for kind, *numbers in re.findall(call, source):
        k, t, h = map(int, numbers)
        lives = [1] + [int(life) for life in re.findall(r"\bLIFE: u64 = (\d+);", source) if kind.endswith("_lines")]
        found += [Lpn(k, t, 1 << h, m=WIDTHS[kind], life=life) for life in lives]
    for literal in re.findall(r"(?:Self|Lpn)\s*\{([^{}]*)\}", source):
        fields = dict(re.findall(r"(\w+)\s*:\s*([\w:]+)", literal))
        if {"secret", "bins", "log_bin"} <= fields.keys() and fields["secret"] != "usize":
            width = fields.get("width", "1")
            m = (WIDTHS[width] if width in WIDTHS else int(width)) * int(fields.get("lanes", "1"))
            found.append(Lpn(int(fields["secret"]), int(fields["bins"]), 1 << int(fields["log_bin"]), m=m))
    return found


def check_claims(source: Path) -> int:
    """Every instance in this file, or in the files of this folder, must be on record, and have TARGET bits in every line
    for as many iterations as the record says. Returns how many have not."""
    files = sorted(source.rglob("*.rs")) if source.is_dir() else [source]
    found = [(file, lpn) for file in files for lpn in instances_in(file.read_text())]
    record = {instance(entry): entry["iterations"] for entry in json.loads(RECORD.read_text())["sets"]}
    failures = 0 if found else 1
    if not found:
        print(f"{source}: no LPN instance found")
    for file, lpn in found:
        bits = estimate(lpn)
        least = TARGET + record.get(lpn, 0.0)
        short = [line for line, figures in bits.items() if min(figures) < least]
        if short:
            print(f"{file}: {lpn} has {lowest(bits)} bits; below {least:.0f}: {', '.join(short)}")
            show(bits, bits)
        if lpn not in record:
            print(f"{file}: {lpn} is not on record")
        failures += bool(short) or lpn not in record
    return failures


def search(b: int, t: int, m: int, weight: int, iterations: float) -> Lpn:
    """The least k (to 0.1 %) with TARGET bits in every line for so many iterations, by bisection on the lines that cost
    nothing to compute."""

    def suffices(k: int) -> bool:
        lpn = Lpn(k, t, b, weight, m)
        first = [part for choice in SETS for part in parts(lpn, choice)[:2]]
        least = min(min(enumeration(part), representations(part)) for part in first)
        return least - lpn.gift - iterations >= TARGET

    low, high = 2 * t, t * b // 2
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return Lpn(high, t, b, weight, m)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--claims", type=Path, metavar="PATH", help="check the instances in Rust files instead")
    parser.add_argument("--search", type=int, metavar="BIN", help="find the least k for bins of this size instead")
    parser.add_argument("--t", type=int, default=1024, help="bins, for --search")
    parser.add_argument("--m", type=int, default=1, help="bits of a sample, for --search")
    parser.add_argument("--iterations", type=float, default=ITERATIONS, help="log2 of the iterations, for --search")
    parser.add_argument("--unlucky", action="store_true", help="estimate the weakest instance in 2^40 instead")
    parser.add_argument("--write", action="store_true", help="write the estimates instead of comparing")
    options = parser.parse_args()
    if options.claims:
        sys.exit(check_claims(options.claims) > 0)
    if options.search:
        lpn = search(options.search, options.t, options.m, 10, options.iterations)
        print(lpn)
        show(estimate(lpn), estimate(lpn))
        return
    if options.unlucky:
        for entry in json.loads(RECORD.read_text())["sets"]:
            if entry["m"] > 1:
                print(f"{entry['name']}: {unlucky(instance(entry)):.1f}")
        return
    if options.write:
        record = json.loads(RECORD.read_text())
        for entry in record["sets"]:
            entry["bits"] = estimate(instance(entry))
            entry["safe"] = enough(entry["bits"], entry["iterations"])
        lines = ",\n".join("    " + json.dumps(entry) for entry in record["sets"])
        RECORD.write_text(f'{{\n  "about": {json.dumps(record["about"])},\n  "sets": [\n{lines}\n  ]\n}}\n')
    sys.exit(compare() > 0)


if __name__ == "__main__":
    main()
