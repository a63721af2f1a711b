"""Composite polynomials for ReLU: degree, levels, and error, from nothing but Python.

    python3 papers/convfhe/params/relu.py                                       the best compositions by levels
    python3 papers/convfhe/params/relu.py --degrees 7,15                        one composition, with its coefficients
    python3 papers/convfhe/params/relu.py --claims papers/convfhe/ckks/src/circuits/relu.rs    compute those of the library anew and compare
    python3 papers/convfhe/params/relu.py --plot docs/figures/convfhe-relu.svg  draw the errors of those of the library

ReLU(x) = x·(1 + sign(x))/2. The sign is approximated by f_n(…f_2(f_1(x))) as in Lee, Lee, No and Kim, "Minimax approximation of sign
function by composite polynomial for homomorphic comparison" (IEEE TDSC 2022): f_1 is the odd polynomial of its degree that is nearest to
1 on [ε, 1]; if it is within e of 1 there, f_2 is nearest to 1 on [1 - e, 1 + e], and so on. A degree d takes ⌈log2(d + 1)⌉ levels, the last
product one more. ε is chosen so that the error of ReLU on [-1, 1], inside of [-ε, ε] and outside, is least.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import sys
from decimal import Decimal, getcontext
from pathlib import Path

getcontext().prec = 60
SOURCE = Path(__file__).resolve().parents[1] / "ckks" / "src" / "circuits" / "relu.rs"

# The paper's own, whose error is not the least: so only the error that it claims is compared.
PUBLISHED = {"7-7-13"}


def solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """Gauss' elimination on [matrix | right side]."""
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, n):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    solution = [Decimal(0)] * n
    for i in reversed(range(n)):
        rest = sum((rows[i][k] * solution[k] for k in range(i + 1, n)), Decimal(0))
        solution[i] = (rows[i][n] - rest) / rows[i][i]
    return solution


def odd(coefficients, x):
    """Σ c_i·x^(2i+1)."""
    total = 0 * x
    for c in reversed(coefficients):
        total = total * x * x + c
    return total * x


def nearest(degree: int, low: float, high: float) -> tuple[list[float], float]:
    """Coefficients of x, x^3, … of the polynomial nearest to 1 on [low, high], and how far it is from 1: Remez' algorithm."""
    terms = (degree + 1) // 2
    points = [
        (low + high) / 2 - (high - low) / 2 * math.cos(math.pi * i / terms) for i in range(terms + 1)
    ]
    for _ in range(60):
        rows = []
        for i, x in enumerate(map(Decimal, points)):
            rows.append([x ** (2 * k + 1) for k in range(terms)] + [Decimal((-1) ** i), Decimal(1)])
        *exact, level = solve(rows)
        coefficients = [float(c) for c in exact]
        # The extrema of the error, one for each sign change between them, from a fine grid that is denser at the ends.
        steps = 400 * terms
        grid = [(low + high) / 2 - (high - low) / 2 * math.cos(math.pi * i / steps) for i in range(steps + 1)]
        errors = [odd(coefficients, x) - 1 for x in grid]
        found: list[int] = []
        for i, e in enumerate(errors):
            if found and (errors[found[-1]] > 0) == (e > 0):
                if abs(e) > abs(errors[found[-1]]):
                    found[-1] = i
            else:
                found.append(i)
        extrema = [refine(coefficients, grid, i) for i in found]
        worst = max(abs(e) for _, e in extrema)
        if len(extrema) > terms + 1:
            begin = max(range(len(extrema) - terms), key=lambda b: min(abs(e) for _, e in extrema[b : b + terms + 1]))
            extrema = extrema[begin : begin + terms + 1]
        if len(extrema) <= terms or worst <= abs(float(level)) * (1 + 1e-7):
            return coefficients, worst
        points = [x for x, _ in extrema]
    return coefficients, worst


def refine(coefficients: list[float], grid: list[float], i: int) -> tuple[float, float]:
    """The extremum of the error near a point of the grid, by golden section."""
    low, high = grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]
    sign = 1 if odd(coefficients, grid[i]) > 1 else -1
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(30):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if sign * (odd(coefficients, left) - odd(coefficients, right)) >= 0:
            high = right
        else:
            low = left
    at = max(low, high, grid[i], key=lambda x: sign * odd(coefficients, x))
    return at, odd(coefficients, at) - 1


def compose(degrees: tuple[int, ...], epsilon: float) -> tuple[list[list[float]], float]:
    """The polynomials, and how far the last one is from 1."""
    polynomials, low, high = [], epsilon, 1.0
    for degree in degrees:
        coefficients, error = nearest(degree, low, high)
        polynomials.append(coefficients)
        low, high = 1 - error, 1 + error
    return polynomials, error


def relu_error(polynomials: list[list[float]], epsilon: float, error: float) -> float:
    """The largest |x·(1 + f(x))/2 - ReLU(x)|: at most error/2 beyond ε; looked for on a grid below."""
    worst = error / 2
    for i in range(1, 2001):
        x = y = epsilon * i / 2000
        for coefficients in polynomials:
            y = odd(coefficients, y)
        worst = max(worst, abs(x * (1 - y) / 2))
    return worst


def best(degrees: tuple[int, ...]) -> tuple[list[list[float]], float]:
    """The composition with the least error, by golden section over log ε."""
    cache: dict[float, tuple[float, list[list[float]]]] = {}

    def at(log_epsilon: float) -> float:
        if log_epsilon not in cache:
            epsilon = math.exp(log_epsilon)
            polynomials, error = compose(degrees, epsilon)
            cache[log_epsilon] = (relu_error(polynomials, epsilon, error), polynomials)
        return cache[log_epsilon][0]

    ratio = (math.sqrt(5) - 1) / 2
    low, high = math.log(1e-6), math.log(0.5)
    while high - low > 1e-6:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if at(left) <= at(right):
            high = right
        else:
            low = left
    error, polynomials = min(cache.values(), key=lambda found: found[0])
    return polynomials, error


def levels(degrees: tuple[int, ...]) -> int:
    """Those of the composition and of the last product."""
    return sum(math.ceil(math.log2(d + 1)) for d in degrees) + 1


def check_claims(source: Path) -> int:
    """Every composition of the library must have the error that it claims, and be what is computed here, unless the paper has it."""
    wrong = 0
    found = options(source)
    declared = re.search(r"COMPOSITES: \[Composite; (\d+)\]", source.read_text())
    if declared is None or int(declared[1]) != len(found):
        print(f"{source}: {len(found)} compositions claim an error, of {declared[1] if declared else 'none'}", file=sys.stderr)
        return 1
    computed = [name for name, _, _ in found if name not in PUBLISHED]
    if not computed:
        print(f"{source}: no minimax composition", file=sys.stderr)
        return 1
    for name, error, claimed in found:
        reached = measured(claimed)
        right = abs(reached - error) <= 1e-3 * error
        here = ""
        if name in computed:
            polynomials, least = best(tuple(map(int, name.split("-"))))
            same = [len(row) for row in claimed] == [len(row) for row in polynomials]
            right, here = right and same and reached <= 1.01 * least, f"; here {least:.4g}"
        if not right:
            wrong += 1
            print(f"{source}: {name} claims {error} and reaches {reached:.4g}{here}", file=sys.stderr)
    if not wrong:
        print(f"{source}: {len(found)} compositions; {len(computed)} each within 1 % of the least error")
    return 1 if wrong else 0


def measured(polynomials: list[list[float]]) -> float:
    """The largest error of ReLU on a grid of [0, 1] that is dense near 0. (x and -x have the same.)"""
    worst = 0.0
    for i in range(1, 100001):
        x = y = (i / 100000) ** 2
        for coefficients in polynomials:
            y = odd(coefficients, y)
        worst = max(worst, abs(x * (1 - y) / 2))
    return worst


def options(source: Path) -> list[tuple[str, float, list[list[float]]]]:
    """All compositions of the library, in Rust: name, claimed error, and the coefficients of x, x^3, x^5, … of each polynomial."""
    entry = r'Composite \{\s*name: "([\d-]+)",\s*error: ([\d.e-]+),\s*rows: &\[((?:\s*&\[[^][]*\],?)+)\s*\],\s*\}'
    return [(name, float(error), [[float(c) for c in row.split(",") if c.strip()] for row in re.findall(r"&\[([^][]*)\]", rows)])
            for name, error, rows in re.findall(entry, source.read_text())]


def draw(source: Path) -> str:
    """|ReLU(x) - polynomial| over |x| as SVG, both axes logarithmic: the largest error in each of 32 steps an octave."""
    colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"]
    left, top, width, height = 70, 40, 620, 380
    low_x, low_y, high_y = -12, -18, -6

    def place(log_x: float, log_y: float) -> str:
        y = top + height * (high_y - max(min(log_y, high_y), low_y)) / (high_y - low_y)
        return f"{left + width * (1 - log_x / low_x):.1f},{y:.1f}"

    title = "Polynomials for ReLU on [-1, 1]: error by degrees and place"
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 950 480" font-family="sans-serif" font-size="13">',
             f"<title>{title}</title>", '<rect width="950" height="480" fill="white"/>',
             f'<text x="{left}" y="24" font-size="16">{title}</text>']
    for log in range(low_x, 1, 2):
        x = float(place(log, 0).split(",")[0])
        parts.append(f'<line x1="{x}" y1="{top}" x2="{x}" y2="{top + height}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{top + height + 18}" text-anchor="middle">2^{log}</text>')
    for log in range(low_y, high_y + 1, 2):
        y = float(place(0, log).split(",")[1])
        parts.append(f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">2^{log}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 42}" text-anchor="middle">|x|</text>')
    for i, (name, _, polynomials) in enumerate(options(source)):
        points = []
        for step in range(low_x * 32, 0):
            worst = 0.0
            for part in range(16):
                x = y = 2 ** ((step + part / 16) / 32)
                for coefficients in polynomials:
                    y = odd(coefficients, y)
                worst = max(worst, abs(x * (1 - y) / 2))
            points.append(place(step / 32, math.log2(max(worst, 1e-30))))
        colour, y = colours[i % len(colours)], top + 20 + 24 * i
        degrees = tuple(map(int, name.split("-")))
        error = measured(polynomials)
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<line x1="{left + width + 14}" y1="{y - 4}" x2="{left + width + 34}" y2="{y - 4}" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{left + width + 40}" y="{y}">{name}: {levels(degrees)} levels, 2^{math.log2(error):.1f}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--degrees")
    parser.add_argument("--levels", type=int, default=11, help="at most so many")
    parser.add_argument("--claims", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.plot:
        args.plot.write_text(draw(SOURCE))
        return 0
    if args.claims:
        return check_claims(args.claims)
    if args.degrees:
        degrees = tuple(map(int, args.degrees.split(",")))
        polynomials, error = best(degrees)
        print(f"{levels(degrees)} levels, error {error:.6g} = 2^{math.log2(error):.2f}")
        for coefficients in polynomials:
            print("  {" + ", ".join(f"{c:.15g}" for c in coefficients) + "},")
        return 0
    for count in range(1, 5):
        for degrees in itertools.product((3, 7, 15), repeat=count):
            if list(degrees) == sorted(degrees) and levels(degrees) <= args.levels:
                error = best(degrees)[1]
                print(f"{levels(degrees):2} levels  {'-'.join(map(str, degrees)):12} 2^{math.log2(error):.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
