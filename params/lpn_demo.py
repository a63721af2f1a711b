"""Small LPN instances that fall where `lpn.py` says so, after about as many guesses, and stand where it says not.

    python3 params/lpn_demo.py

Every seed is fixed: a run prints the same each time. `test_lpn.py` runs the short ones.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterable

from lpn import Lpn, hilbert, log2_keep, peel, rows_inside, smallest


def draw(lpn: Lpn, matrix: list[list[int]], rng: random.Random) -> tuple[list[int], list[int]]:
    """A secret and its n samples, m bits each."""
    secret = [rng.getrandbits(lpn.m) for _ in range(lpn.k)]
    samples = [0] * lpn.n
    for t in range(lpn.t):
        samples[t * lpn.b + rng.randrange(lpn.b)] = 1 if lpn.m == 1 else rng.getrandbits(lpn.m)
    for i, places in enumerate(matrix):
        for place in places:
            samples[i] ^= secret[place]
    return secret, samples


def reduce(row: int, low: int, pivots: dict[int, int]) -> int:
    """Eliminates the columns of `row` that have a pivot; the `low` lowest bits are right-hand sides."""
    while row >> low:
        pivot = pivots.get(row.bit_length())
        if pivot is None:
            return row
        row ^= pivot
    return row


def reduced(rows: Iterable[int], low: int) -> dict[int, int]:
    """Gaussian elimination over F_2: rows that are independent, by their length in bits."""
    pivots: dict[int, int] = {}
    for word in rows:
        if row := reduce(word, low, pivots):
            pivots[row.bit_length()] = row
    return pivots


def even_draw(rows: list[int], b: int, rng: random.Random) -> list[int]:
    """All rows in random order, one of every bin before the second of any."""
    bins: dict[int, list[int]] = {}
    for row in rows:
        bins.setdefault(row // b, []).append(row)
    turns: list[tuple[int, float, int]] = []
    for members in bins.values():
        rng.shuffle(members)
        turns += [(turn, rng.random(), row) for turn, row in enumerate(members)]
    return [row for _, _, row in sorted(turns)]


class SubMatrix:
    """The rows of a matrix that lie inside a set of columns, ready for guesses."""

    def __init__(self, lpn: Lpn, matrix: list[list[int]], columns: list[int]) -> None:
        self.lpn, self.columns = lpn, columns
        index = {column: i for i, column in enumerate(columns)}
        self.rows = [i for i, places in enumerate(matrix) if all(place in index for place in places)]
        self.words = {}
        for i in self.rows:
            word = 0
            for place in matrix[i]:
                word ^= 1 << lpn.m + index[place]
            self.words[i] = word
        self.rank = len(reduced(self.words.values(), lpn.m))

    def guess(self, samples: list[int], rng: random.Random) -> tuple[int, dict[int, int], list[int]]:
        """Guesses rows to be free of error in some combination of the m columns of the samples.

        Returns the combination (0 if the guess is wrong), the equations that follow, and how many rows were taken from
        each bin. A guess is right if the rows that it does not use agree with it but for a few errors: nothing
        but matrix and samples is looked at."""
        m = self.lpn.m
        pivots: dict[int, int] = {}
        taken, rest = [0] * self.lpn.t, []
        for i in even_draw(self.rows, self.lpn.b, rng):
            row = reduce(self.words[i] | samples[i], m, pivots) if len(pivots) < self.rank else 0
            if row >> m:
                pivots[row.bit_length()] = row
                taken[i // self.lpn.b] += 1
            else:
                rest.append(i)
        residues = [reduce(self.words[i] | samples[i], m, pivots) for i in rest]
        for mask in range(1, 1 << m):
            if sum((residue & mask).bit_count() & 1 for residue in residues) <= len(residues) // 4:
                return mask, pivots, taken
        return 0, pivots, taken

    def right(self, secret: list[int], pivots: dict[int, int], mask: int) -> bool:
        """Whether the equations hold for the combination `mask` of the secret; the weights being even, they determine
        it in these columns but for the all-ones vector."""
        truth = 0
        for i, column in enumerate(self.columns):
            truth |= ((secret[column] & mask).bit_count() & 1) << self.lpn.m + i
        return all((truth & row).bit_count() & 1 == (row & mask).bit_count() & 1 for row in pivots.values())


def attacked_columns(k: int, n: int, weight: int, spare: int, rng: random.Random) -> tuple[list[int], list]:
    """The greedy set with `spare` rows more than columns, and the matrix that it belongs to."""
    order, rows_left, matrix = peel(k, n, weight, rng)
    step = max(i for i in range(k) if rows_left[i] >= k - i + spare)
    return order[step:], matrix


def success(lpn: Lpn, taken: list[int]) -> float:
    """The probability that the rows taken are free of error in some combination: their errors have rank below m."""
    hits = [1.0]
    for samples in taken:
        p = samples / lpn.b
        hits = [x * (1 - p) + y * p for x, y in zip(hits + [0.0], [0.0] + hits)]
    if lpn.m == 1:
        return hits[0]
    full = [math.prod(1 - 2.0 ** (i - j) for i in range(lpn.m)) if j >= lpn.m else 0.0 for j in range(len(hits))]
    return sum(hit * (1 - rank) for hit, rank in zip(hits, full))


def tries(lpn: Lpn, broken: int, seed: int, say: Callable[[str], None] = print) -> tuple[int, float, int]:
    """Makes one guess at each of many instances (the protocol has a fresh secret in every iteration) until `broken`
    have fallen. Returns the guesses, how many instances should have fallen by then, and how many guesses were wrong
    that seemed right."""
    rng = random.Random(seed)
    columns, matrix = attacked_columns(lpn.k, lpn.n, lpn.weight, 40, rng)
    part = SubMatrix(lpn, matrix, columns)
    count, fallen, wrong, expected = 0, 0, 0, 0.0
    while fallen < broken:
        secret, samples = draw(lpn, matrix, rng)
        mask, pivots, taken = part.guess(samples, rng)
        count += 1
        expected += success(lpn, taken)
        if mask:
            sound = part.right(secret, pivots, mask)
            fallen += sound
            wrong += not sound
    formula = 2 ** (log2_keep(lpn, lpn.t, part.rank, lpn.present) - lpn.gift)
    full = 2 ** (log2_keep(lpn, lpn.t, lpn.k, lpn.present) - lpn.gift)
    say(f"k = {lpn.k}, t = {lpn.t}, b = {lpn.b}, m = {lpn.m}: {len(columns)} columns, {count} guesses broke {broken} "
        f"instances, {expected:.1f} predicted: {count / broken:.0f} guesses each, by lpn.py's formula {formula:.0f}, "
        f"with all columns {full:.0f}")
    return count, expected, wrong


def stands(seed: int, say: Callable[[str], None] = print) -> int:
    """Where the formula says so, the attack fails. Returns how often it does not."""
    failures = 0
    rng = random.Random(seed)
    # 1. More errors: 2^16 tries predicted, 200 made.
    lpn = Lpn(300, 195, 20)
    columns, matrix = attacked_columns(lpn.k, lpn.n, lpn.weight, 40, rng)
    part = SubMatrix(lpn, matrix, columns)
    found = 0
    for _ in range(200):
        _, samples = draw(lpn, matrix, rng)
        mask, _, taken = part.guess(samples, rng)
        found += mask != 0
    say(f"k = 300, t = 195, b = 20: predicted 2^{-math.log2(success(lpn, taken)):.0f} guesses an instance; "
        f"{found} of 200 broken by a guess each")
    failures += found
    # 2. Fewer columns: below the greedy size, rows do not determine the secret; below `least`, in no set.
    for k, ratio in ((2000, 13), (2000, 8)):
        lpn = Lpn(k, ratio * k // 100, 100)
        order, rows_left, matrix = peel(k, lpn.n, lpn.weight, rng)
        greedy = min((k - i) / k for i in range(k) if rows_left[i] >= k - i)
        least, at_random = smallest(lpn, "least"), smallest(lpn, "random")
        beaten = 0
        for i in range(0, k, 50):
            # No set has more rows than the bound allows, the greedy one included.
            beaten += rows_left[i] > rows_inside(lpn, "least", (k - i) / k)
        below = int((1 - 0.95 * least) * k)
        say(f"k = {k}, n = {lpn.n}: shares of columns: random {at_random:.3f}, greedy {greedy:.3f}, least {least:.3f}; "
            f"at 0.95 of the least {rows_left[below]} rows for {k - below} columns")
        failures += beaten + (not least < greedy < at_random) + (rows_left[below] >= k - below)
    # 3. Rows with one place in each of ten segments: the same.
    order, rows_left, _ = peel(2000, 26000, 10, rng, segmented=True)
    segmented = min((2000 - i) / 2000 for i in range(2000) if rows_left[i] >= 2000 - i)
    order, rows_left, _ = peel(2000, 26000, 10, rng)
    plain = min((2000 - i) / 2000 for i in range(2000) if rows_left[i] >= 2000 - i)
    say(f"k = 2000, n = 26000: greedy share {segmented:.3f} with segmented rows, {plain:.3f} without")
    failures += abs(segmented / plain - 1) > 0.02
    return failures


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
    pivots = reduced((sum(1 << column[m] for m in row) for row in rows), 0)
    missing = len(column) - 1 - len(pivots)
    # Back substitution, from the unknowns upwards: a reduced row determines its leading monomial.
    value = 1
    for lead in range(1, len(column)):
        if row := pivots.get(lead + 1):
            value |= ((row ^ (1 << lead)) & value).bit_count() % 2 << lead
    return missing, missing == 0 and [value >> 1 + i & 1 for i in range(k)] == secret


ALGEBRA = ((26, 4, 16), (32, 4, 16), (34, 4, 16), (40, 6, 16), (44, 6, 16), (60, 8, 16))


def by_algebra(shapes: tuple, say: Callable[[str], None] = print) -> int:
    """Instances on both sides of k = b·sqrt(t): linearisation succeeds exactly where the series says so.

    Rows have weight 9 here: if all weights are even, as with 10, A cancels the all-ones vector, and s is determined
    only up to adding it (one unknown fewer, which the attack would have to fix first)."""
    rng = random.Random(2023176)
    failures = 0
    for k, t, b in shapes:
        h = hilbert([(t, [1, b - 1])], t * b - k, 2)
        # Relations beyond those that settle degree 2 settle unknowns themselves.
        predicted = max(0, h[1] + h[2])
        missing, broken = linearise(k, t, b, 9, rng)
        say(f"k = {k}, t = {t}, b = {b}: b·sqrt(t) = {b * math.sqrt(t):.0f}; {missing} monomials undetermined, "
            f"predicted {predicted}; {'secret found' if broken else 'not broken'}")
        failures += missing != predicted or broken != (predicted == 0)
    return failures


def life(shape: Lpn, fixed: bool, one_matrix: bool, rng: random.Random) -> list[tuple[list[list[int]], list[int], list[int]]]:
    """The iterations of a life: matrix, secret and samples of each. `fixed`: the errors' values stay, all being ones;
    `one_matrix`: so does the matrix. The protocol does neither."""
    rows = [t * shape.b + rng.randrange(shape.b) for t in range(shape.t)]
    out = []
    for number in range(shape.life):
        if number == 0 or not one_matrix:
            matrix = [[rng.randrange(shape.k) for _ in range(shape.weight)] for _ in range(shape.n)]
        secret = [rng.getrandbits(shape.m) for _ in range(shape.k)]
        samples = [0] * shape.n
        for row in rows:
            samples[row] = 2**shape.m - 1 if fixed else rng.getrandbits(shape.m)
        for i, places in enumerate(matrix):
            for place in places:
                samples[i] ^= secret[place]
        out.append((matrix, secret, samples))
    return out


def errors_as_unknowns(shape: Lpn, iterations: list) -> int:
    """Two iterations as linear equations in their secrets and in n errors that are the same in both. Returns how many of the
    unknowns are determined, none if the equations contradict each other."""
    pivots: dict[int, int] = {}
    for number, (matrix, _, samples) in enumerate(iterations[:2]):
        for i, (places, sample) in enumerate(zip(matrix, samples)):
            word = (sample & 1) | 2 << i
            for place in places:
                word ^= 2 << shape.n + number * shape.k + place
            if row := reduce(word, 1, pivots):
                pivots[row.bit_length()] = row
    return 0 if 1 in pivots else len(pivots)


def rows_by_rank(shape: Lpn, iterations: list) -> int:
    """How many rows lie in the space that the columns of one matrix and of all samples span, as rows with errors do as soon
    as there are as many columns of full rank as errors."""
    columns = [0] * shape.k
    for i, places in enumerate(iterations[0][0]):
        for place in places:
            columns[place] ^= 1 << i
    for _, _, samples in iterations:
        columns += [sum((sample >> j & 1) << i for i, sample in enumerate(samples)) for j in range(shape.m)]
    pivots = reduced(columns, 0)
    return sum(reduce(1 << i, 0, pivots) == 0 for i in range(shape.n))


# A life of stationary noise within reach, and one with the share of columns that is in use.
STATIONARY = (Lpn(60, 20, 32, m=4, life=7), Lpn(60, 64, 16, m=4, life=2))


def stationary(say: Callable[[str], None] = print) -> int:
    """Rows that stay are found where values or matrices stay too, and are not where both are new. Returns what is not so."""
    rng = random.Random(2025295)
    failures = 0
    for shape in STATIONARY:
        # Two iterations leave nothing open but one vector for each matrix, whose rows are even.
        whole = shape.n + 2 * (shape.k - 1)
        many = shape.m * shape.life >= shape.t
        for fixed, one_matrix in ((False, False), (True, False), (False, True)):
            iterations = life(shape, fixed, one_matrix, rng)
            determined, rows = errors_as_unknowns(shape, iterations), rows_by_rank(shape, iterations)
            say(f"k = {shape.k}, t = {shape.t}, b = {shape.b}, {shape.m} columns in {shape.life} iterations, values "
                f"{'stay' if fixed else 'are new'}, the matrix {'stays' if one_matrix else 'is new'}: {determined} of {whole} unknowns "
                f"are determined by elimination, {rows} of {shape.t} rows by rank")
            failures += (determined == whole) != fixed
            failures += (rows == shape.t) != (one_matrix and many) or (rows > 0) != (one_matrix and many)
    return failures


def checks_of_a_chain(shape: Lpn, rng: random.Random) -> tuple[int, int]:
    """A life as the protocol has it, in one column: the next secret and the values of the next errors are rows that an iteration
    makes and does not hand out. Returns how many linear checks the rows handed out give on the errors of all n rows of all
    iterations, and how many errors these determine."""
    k, t, b, n, life = shape.k, shape.t, shape.b, shape.n, shape.life
    # Errors lowest, so that what is left when secrets and values are eliminated has them only.
    secret, value = life * n, life * n + life * k

    def bit(at: int) -> int:
        return 2 << at

    rows = []
    for number in range(life):
        for i in range(n):
            word = bit(number * n + i)
            for place in rng.sample(range(k), shape.weight):
                word ^= bit(secret + number * k + place)
            behind = i - (n - k - t)
            if behind < 0:
                # What it is equal to is known; here it makes no difference.
                rows.append(word)
            elif number + 1 < life:
                rows.append(word ^ bit(secret + (number + 1) * k + behind if behind < k else value + number * t + behind - k))
        for j in range(t if number > 0 else 0):
            rows.append(sum(bit(number * n + j * b + i) for i in range(b)) ^ bit(value + (number - 1) * t + j))
    pivots = reduced(rows, 1)
    checks = sum(length - 2 < secret for length in pivots)
    return checks, sum(reduce(bit(i), 1, pivots) == 0 for i in range(secret))


def biases_of_a_chain(k: int, t: int, b: int, stay: bool, rng: random.Random) -> tuple[float, float] | None:
    """The largest bias of any linear test on the rows that a life of two iterations hands out, in one column, and that of any test
    on all n rows of one iteration with a secret and values of its own. Both exactly, by counting. `stay`: the second iteration
    has the values of the first, which the protocol does not do. None if rows that make values are not independent."""
    n, seen = t * b, t * b - k - t
    matrices = [[rng.randrange(1, 1 << k) for _ in range(n)] for _ in range(2)]
    if len(reduced(matrices[0][seen + k :], 0)) < t:
        return None
    places = list(itertools.product(range(b), repeat=t))

    def made(matrix: list[int], secret: int, errors: int) -> int:
        return errors ^ sum(((row & secret).bit_count() & 1) << i for i, row in enumerate(matrix))

    def at(places: tuple[int, ...], values: int) -> int:
        return sum((values >> j & 1) << j * b + place for j, place in enumerate(places))

    counts = [0] * (1 << 2 * seen)
    for alpha, secret, values in itertools.product(places, range(1 << k), range(1 << t)):
        first = made(matrices[0], secret, at(alpha, values))
        behind = first >> seen
        second = made(matrices[1], behind & (1 << k) - 1, at(alpha, values if stay else behind >> k))
        counts[first & (1 << seen) - 1 | (second & (1 << seen) - 1) << seen] += 1
    step = 1
    while step < len(counts):
        for low in range(0, len(counts), 2 * step):
            for i in range(low, low + step):
                counts[i], counts[i + step] = counts[i] + counts[i + step], counts[i] - counts[i + step]
        step *= 2
    chain = max(abs(count) for count in counts[1:]) / counts[0]
    # One iteration: what cancels its secret, and the share of the places that it misses.
    alone = 0.0
    for matrix in matrices:
        columns = [sum((row >> j & 1) << i for i, row in enumerate(matrix)) for j in range(k)]
        for test in range(1, 1 << n):
            if all((test & column).bit_count() & 1 == 0 for column in columns):
                missed = math.prod(1 - (test >> j * b & (1 << b) - 1).bit_count() / b for j in range(t))
                alone = max(alone, missed)
    return chain, alone


# Lives whose iterations make what the next one starts from; and k, t, b of some that are small enough to count all their tests.
CHAINS = (Lpn(60, 12, 24, m=4, life=3), Lpn(40, 10, 16, m=4, life=4))
COUNTED = ((4, 2, 6), (5, 2, 6), (4, 1, 10))


def chains(say: Callable[[str], None] = print) -> int:
    """That an iteration makes the next secret, and the next values, of rows of its own helps nobody. Returns what is not so."""
    rng = random.Random(20251129)
    failures = 0
    for shape in CHAINS:
        checks, found = checks_of_a_chain(shape, rng)
        alone = shape.life * (shape.n - shape.k + 1)
        # Rows of even weight: one vector of the first secret stays open.
        predicted = shape.life * (shape.n - shape.k) - shape.k - shape.t + 1
        say(f"k = {shape.k}, t = {shape.t}, b = {shape.b}, {shape.life} iterations, each of which starts the next: {checks} checks on "
            f"their errors ({predicted} predicted), {found} errors determined; {alone} were all rows seen, and secrets independent")
        failures += (checks != predicted) + (found > 0) + (checks >= alone)
    for (k, t, b), stay in itertools.product(COUNTED, (False, True)):
        pairs = [pair for _ in range(8) if (pair := biases_of_a_chain(k, t, b, stay, rng))]
        say(f"k = {k}, t = {t}, b = {b}, two iterations, values {'stay' if stay else 'are new'}: the largest biases of all tests, and of "
            "those of one iteration: " + ", ".join(f"{chain:.3f} / {alone:.3f}" for chain, alone in pairs))
        failures += not pairs or any(chain > alone for chain, alone in pairs) != stay
    return failures


# Instances within reach: bits, and vectors of three bits. The second number: how many to break.
BROKEN = ((Lpn(300, 65, 60), 24), (Lpn(300, 150, 26, m=3), 24))


def demonstrate() -> int:
    """Returns how much does not come out as predicted."""
    failures = 0
    for number, (lpn, broken) in enumerate(BROKEN):
        _, expected, wrong = tries(lpn, broken, 240719215 + number)
        # Guesses are independent: the deviation over so many instances is 20 %.
        failures += wrong + (not 0.5 < broken / expected < 2)
    return failures + stands(2025) + by_algebra(ALGEBRA) + stationary() + chains()


if __name__ == "__main__":
    sys.exit(demonstrate() > 0)
