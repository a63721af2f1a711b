//! What a comparison computes, as public data: tables looked up by oblivious transfer, then AND gates.
//!
//! Client and server hold x_c and x_s. Both are cut into *digits*. A table that the server makes of its own digit and the
//! client reads at its own gives up to four shared bits. A circuit of depth ⌈log2 digits⌉ then combines them.
//!
//! *Adjacent thresholds.* With a = the client's operand and b = the server's, let U\[v\] = (v < b), U\[−1\] = 1. A digit
//! needs no more than the pair U\[a\], U\[a − 1\]: the result without and with "less" from the digits below. One of the
//! two places is even, the other odd. So of a digit of m bits two tables of 2^(m−1) entries of **one** bit are looked up,
//! one of the even thresholds and one of the odd ones, where a table of (a < b, a = b) has 2^m entries of two bits. Which of
//! the two is U\[a\] follows from a, and nobody needs to know: as U\[a\] ≤ U\[a − 1\], the result with L from below is
//! MAJ(z0, z1, L), whatever the order: what z0 and z1 agree on, or else L. With u = z1 and d = z0 ⊕ z1 that is
//! u ⊕ d·(u ⊕ L): one AND. A pair over a pair is a pair: their d·d' says whether both leave it to what is below, and
//! u ⊕ d·(u ⊕ u') is the result where not both do. The lowest digit has nothing below and is one table of a < b.
//!
//! Digit by digit, top first (the lower part's result on the right):
//!
//! | node | bits | meaning | node ∘ lower |
//! |---|---|---|---|
//! | low | u, d | one of U\[a\], U\[a − 1\]; their sum, a = b | u ⊕ d·(u ⊕ u'), d·d' |
//! | middle | u, d, w | the same; and a = b − 1, where b is the server's bits from j up | u ⊕ d·(u ⊕ u'), d·d', w·w' |
//! | sign | p, f, w | the sign bit alone: see [`Formula::clip`] | with e = d': p ⊕ u', e, u', f·d', w·w' |
//! | top | p, e, u, f, w | p if the carry is u; what another carry flips in it; a = b; a = b − 1 | p ⊕ e·(u ⊕ u'), e·d', u', f·d', w·w' |
//! | signed | p, e, u, i, d, v | p if the carry is u, i if it is v; what another carry flips in them | p ⊕ e·(u ⊕ u'), i ⊕ d·(v ⊕ u'), e·d', d·d', u', u' |
//!
//! The lowest digit is no pair: its u is the result. ANDs with a common operand open it once and share its OTs.

use std::collections::BTreeMap;

use crate::kernels::circuit::{And, Digit, Entry, Table};

/// Gates by level, wires numbered from 0, the inputs first.
#[derive(Default)]
pub(crate) struct Circuit {
    depth: Vec<usize>,
    /// ANDs of level 1, 2, …
    pub(crate) levels: Vec<Vec<And>>,
    /// `[out, a, b]` with out = a ⊕ b, to be done before the ANDs of level 1, 2, … and, last, after all.
    pub(crate) xors: Vec<Vec<[usize; 3]>>,
}

impl Circuit {
    fn wire(&mut self, depth: usize) -> usize {
        self.depth.push(depth);
        self.depth.len() - 1
    }

    fn and(&mut self, a: usize, b: &[usize]) -> Vec<usize> {
        let depth = 1 + b.iter().fold(self.depth[a], |d, &b| d.max(self.depth[b]));
        let out: Vec<usize> = b.iter().map(|_| self.wire(depth)).collect();
        while self.levels.len() < depth {
            self.levels.push(Vec::new());
        }
        self.levels[depth - 1].push(And { a, b: b.to_vec(), out: out.clone() });
        out
    }

    fn xor(&mut self, a: usize, b: usize) -> usize {
        let depth = self.depth[a].max(self.depth[b]);
        let out = self.wire(depth);
        while self.xors.len() <= depth {
            self.xors.push(Vec::new());
        }
        self.xors[depth].push([out, a, b]);
        out
    }

    /// How many wires there are.
    pub(crate) fn wires(&self) -> usize {
        self.depth.len()
    }

    pub(crate) fn ands(&self) -> impl Iterator<Item = &And> {
        self.levels.iter().flatten()
    }

    /// Takes away what none of `outputs` needs. Wires keep their numbers.
    fn keep(&mut self, outputs: &[usize]) {
        let mut needed = vec![false; self.wires()];
        outputs.iter().for_each(|&wire| needed[wire] = true);
        // (What a wire is made of has lower numbers.)
        let sums = self.xors.iter().flatten().map(|&[out, a, b]| (out, [a, b]));
        let products =
            self.ands().flat_map(|and| and.b.iter().zip(&and.out).map(|(&b, &out)| (out, [and.a, b])));
        let made: BTreeMap<usize, [usize; 2]> = sums.chain(products).collect();
        for (&out, of) in made.iter().rev() {
            if needed[out] {
                of.iter().for_each(|&wire| needed[wire] = true);
            }
        }
        for xors in &mut self.xors {
            xors.retain(|[out, ..]| needed[*out]);
        }
        for and in self.levels.iter_mut().flatten() {
            let kept = and.b.iter().zip(&and.out).filter(|(_, out)| needed[**out]);
            (and.b, and.out) = kept.map(|(&b, &out)| (b, out)).unzip();
        }
        self.levels.iter_mut().for_each(|level| level.retain(|and| !and.out.is_empty()));
        while self.levels.last().is_some_and(Vec::is_empty) {
            self.levels.pop();
        }
    }
}

/// What the operands are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FormulaKind {
    /// Both operands as they are.
    Less,
    /// Shares of one value.
    Sign,
    /// Shares of one value, split at bit `j`.
    Clip { j: u32 },
}

/// A comparison: how operands become planes, which digits are looked up, how they are combined.
pub struct Formula {
    kind: FormulaKind,
    bits: u32,
    pub(crate) digits: Vec<Digit>,
    /// Shared bits that nobody looks up.
    pub(crate) locals: Vec<Local>,
    pub(crate) circuit: Circuit,
    /// Wires of the results.
    pub(crate) outputs: Vec<usize>,
}

/// A bit that each party has its share of by itself: planes of the operands.
pub(crate) struct Local {
    pub(crate) wire: usize,
    pub(crate) client: usize,
    pub(crate) server: Addend,
}

/// The server's share of a [`Local`].
#[derive(Clone, Copy)]
pub(crate) enum Addend {
    /// Zero: the client knows the bit.
    None,
    /// The bit of a plane.
    Plane(usize),
    /// Its opposite.
    Opposite(usize),
}

/// A partial result over a range of digits; see the module's table.
enum Node {
    Low { u: usize, d: Option<usize> },
    Middle { u: usize, d: usize, w: usize },
    Sign { p: usize, f: usize, w: usize },
    Top { p: usize, e: usize, u: usize, f: usize, w: usize },
    Signed { p: usize, e: usize, u: usize, i: usize, d: usize, v: Option<usize> },
}

fn combine(c: &mut Circuit, high: Node, low: Node) -> Node {
    use Node::{Low, Middle, Sign, Signed, Top};
    match (high, low) {
        (Low { u, d }, Low { u: u2, d: d2 }) => {
            let d = d.expect("only the lowest digit is no pair");
            let both: Vec<usize> = std::iter::once(c.xor(u, u2)).chain(d2).collect();
            let products = c.and(d, &both);
            Low { u: c.xor(u, products[0]), d: products.get(1).copied() }
        }
        (Middle { u, d, w }, Middle { u: u2, d: d2, w: w2 }) => {
            let carry = c.xor(u, u2);
            let products = c.and(d, &[carry, d2]);
            Middle { u: c.xor(u, products[0]), d: products[1], w: c.and(w, &[w2])[0] }
        }
        (Sign { p, f, w }, Middle { u, d, w: w2 }) => {
            Top { p: c.xor(p, u), e: d, u, f: c.and(d, &[f])[0], w: c.and(w, &[w2])[0] }
        }
        (Top { p, e, u, f, w }, Middle { u: u2, d, w: w2 }) => {
            let carry = c.xor(u, u2);
            let flips = c.and(e, &[carry, d]);
            let f = c.and(d, &[f])[0];
            Top { p: c.xor(p, flips[0]), e: flips[1], u: u2, f, w: c.and(w, &[w2])[0] }
        }
        (Signed { p, e, u, i, d, v }, Low { u: u2, d: d2 }) => {
            let carry = c.xor(u, u2);
            let flips = if v == Some(u) {
                c.and(carry, &[e, d])
            } else {
                let other = v.map_or(u2, |v| c.xor(v, u2));
                [c.and(carry, &[e]), c.and(other, &[d])].concat()
            };
            let (p, i) = (c.xor(p, flips[0]), c.xor(i, flips[1]));
            // Below the lowest digit there is no carry, so e and d have done their work.
            let rest = d2.map_or(flips, |d2| c.and(d2, &[e, d]));
            Signed { p, e: rest[0], u: u2, i, d: rest[1], v: Some(u2) }
        }
        _ => unreachable!("ranges are combined in order"),
    }
}

/// Combines neighbours once, from the lowest up, so that the one that is no pair vanishes first.
fn halve(c: &mut Circuit, nodes: Vec<Node>) -> Vec<Node> {
    let mut out = Vec::new();
    let mut nodes = nodes.into_iter();
    while let Some(low) = nodes.next() {
        out.push(match nodes.next() {
            Some(high) => combine(c, high, low),
            None => low,
        });
    }
    out
}

/// Bits of the longest digits.
const LONGEST: u32 = 4;

/// The two tables of a digit.
fn adjacent(shift: usize, bits: usize, entry: Entry) -> [Digit; 2] {
    [Table::Even(entry), Table::Odd(entry)].map(|table| Digit { shift, bits: bits - 1, table })
}

/// Bits `from..to` in as few digits as digits of at most `m` bits allow, `(shift, bits)` from the bottom: as even as
/// can be, for a table's size doubles with each bit, and the longer ones below, where there is one table and not two. So
/// they take the fewest bytes.
fn split_evenly(from: u32, to: u32, m: u32) -> Vec<(usize, usize)> {
    let (bits, digits) = (to - from, (to - from).div_ceil(m));
    at_places(from, (0..digits).map(|i| bits / digits + u32::from(i < bits % digits)))
}

/// As [`split_evenly`], but of digits of at most four bits all have four but the top one. Two vectors take four bits as well as
/// three, and a digit of three takes four correlations: 21 bits are 4, 4, 4, 4, 4 and 1, in 19 + 2 correlations. (4, 4, 4,
/// 3, 3 and 3 take 29.)
fn split(from: u32, to: u32, m: u32) -> Vec<(usize, usize)> {
    if m < LONGEST {
        return split_evenly(from, to, m);
    }
    let digits = (to - from).div_ceil(LONGEST);
    at_places(from, (0..digits).map(|i| LONGEST.min(to - from - LONGEST * i)))
}

/// As [`split`], of a comparison of its own, whose lowest digit is one table. Of digits of at most four bits:
///
/// - A bit more than 8, 16 or 32 goes to the digit on top, of five bits then: alone it would take a level of ANDs. Both tables
///   have the 16 entries that a vector makes masks for.
/// - Three more are the lowest digit, whose one table takes one vector: on top they would take four correlations.
fn split_low(from: u32, to: u32, m: u32) -> Vec<(usize, usize)> {
    let (digits, more) = ((to - from) / LONGEST, (to - from) % LONGEST);
    let fours = (0..digits).map(|_| LONGEST);
    match more {
        3 if m == LONGEST => at_places(from, std::iter::once(more).chain(fours)),
        1 if m == LONGEST && digits > 1 && digits.is_power_of_two() => {
            at_places(from, fours.skip(1).chain([LONGEST + 1]))
        }
        _ => split(from, to, m),
    }
}

/// Digits of such sizes, one upon the other.
fn at_places(from: u32, sizes: impl Iterator<Item = u32>) -> Vec<(usize, usize)> {
    let mut at = from;
    let place = |bits: u32| {
        at += bits;
        ((at - bits) as usize, bits as usize)
    };
    sizes.map(place).collect()
}

impl Formula {
    fn start(kind: FormulaKind, bits: u32, digits: Vec<Digit>) -> Self {
        let mut circuit = Circuit::default();
        for _ in 0..digits.iter().map(Digit::width).sum() {
            circuit.wire(0);
        }
        Self { kind, bits, digits, locals: Vec::new(), circuit, outputs: Vec::new() }
    }

    /// The wire of a bit that each party has its share of by itself.
    fn local(&mut self, client: usize, server: Addend) -> usize {
        let wire = self.circuit.wire(0);
        self.locals.push(Local { wire, client, server });
        wire
    }

    /// The tables of a comparison of its own.
    fn low_digits(split: Vec<(usize, usize)>) -> Vec<Digit> {
        let mut digits = Vec::new();
        for (i, (shift, bits)) in split.into_iter().enumerate() {
            if i == 0 {
                digits.push(Digit { shift, bits, table: Table::Less });
            } else {
                digits.extend(adjacent(shift, bits, Entry::Less));
            }
        }
        digits
    }

    /// The digits' outputs as nodes, lowest first.
    fn leaves(&mut self) -> Vec<Node> {
        let mut at = 0;
        let mut leaves = Vec::new();
        for digit in self.digits.clone() {
            leaves.extend(match digit.table {
                Table::Less => Some(Node::Low { u: at, d: None }),
                // Its odd one follows.
                Table::Even(_) => None,
                Table::Odd(entry) => {
                    let even = at - digit.width();
                    let first = self.circuit.xor(even, at);
                    Some(match entry {
                        Entry::Less => Node::Low { u: at, d: Some(first) },
                        Entry::Both { .. } => {
                            Node::Middle { u: at, d: first, w: self.circuit.xor(even + 1, at + 1) }
                        }
                        Entry::Top { .. } => {
                            // Which of the two is that of a: the even one if a is.
                            let u = self.local(digit.shift, Addend::None);
                            let d = self.circuit.xor(even + 1, at + 1);
                            Node::Signed { p: even, e: first, u, i: even + 1, d, v: Some(u) }
                        }
                    })
                }
            });
            at += digit.width();
        }
        leaves
    }

    /// One result: the client's operand < the server's, both of `bits` bits.
    pub(crate) fn less(bits: u32, m: u32) -> Self {
        let mut this = Self::start(FormulaKind::Less, bits, Self::low_digits(split_low(0, bits, m)));
        this.outputs = vec![this.reduce_low()];
        this
    }

    /// One result: the shared signed value is not negative. Its sign is msb(x_c) ⊕ msb(x_s) ⊕ carry, and the
    /// carry out of the lower n − 1 bits is ¬x_c < x_s there. The carry out of the lowest `ignored` bits is taken
    /// for zero. n is at least 3, m from 1 to 4, `ignored` at most n - 2.
    pub fn sign(n: u32, m: u32, ignored: u32) -> Self {
        let mut this = Self::start(FormulaKind::Sign, n, Self::low_digits(split_low(ignored, n - 1, m)));
        let top = n as usize - 1;
        let top = this.local(top, Addend::Plane(top));
        let carry = this.reduce_low();
        this.outputs = vec![this.circuit.xor(carry, top)];
        this
    }

    fn reduce_low(&mut self) -> usize {
        let mut nodes = self.leaves();
        while nodes.len() > 1 {
            nodes = halve(&mut self.circuit, nodes);
        }
        match nodes.pop() {
            Some(Node::Low { u, .. }) => u,
            _ => unreachable!("low digits only, at least one"),
        }
    }

    /// Two results: 0 ≤ x < 2^j, and x ≥ 2^j.
    ///
    /// Let U_c, U_s be the shares from bit j up and κ the carry into bit j, ¬x_c < x_s on the low j bits. The
    /// first result is U_c + U_s + κ = 0, which is a = U_s − 1 when κ = 0 and a = U_s when κ = 1, with
    /// a = ¬U_c as everywhere. "Not negative" is that of a sum whose carry is κ. The second result is "not negative" ⊕
    /// the first. The low j bits are those of a plain comparison. The carry out of the lowest `ignored` bits is taken
    /// for zero.
    ///
    /// *Of at most m bits*, U is one digit. A carry of one makes of a what a − 1 is without one: so both results are
    /// looked up for a and a − 1 at once, as two thresholds are, in one table of the even ones and one of the odd ones.
    /// The even one is right if κ is the lowest bit of a, which the client knows.
    ///
    /// *Of more*, the sign bit needs no table: of it "not negative" (without the carry into it), a = b and a = b − 1
    /// are sums of a bit that the client knows and one that the server knows. The others are digits with two
    /// thresholds: the pair of b differs where a = b, and that of b − 1 (borrowed from digit to digit by the server)
    /// where a = b − 1.
    ///
    /// The server's two operands, of n and n − j bits, share 64 planes: 1 ≤ j ≤ n − 2, and j ≥ 2n − 64; m from 1 to 4, `ignored` < j.
    pub fn clip(n: u32, j: u32, m: u32, ignored: u32) -> Self {
        let low = split_low(ignored, j, m);
        let lows = low.len();
        Self::clip_above(Self::low_digits(low), [0, lows], n, j, m, split(j, n - 1, m))
    }

    /// Three results: the carry into bit `low` of a shared value, and then those of [`clip`](Self::clip), exact. 1 ≤ `low` < j.
    /// Its digits are as even as can be: curves are to send few bytes.
    pub fn place(n: u32, j: u32, low: u32, m: u32) -> Self {
        let [lowest, middle, above] =
            [(0, low), (low, j), (j, n - 1)].map(|(from, to)| split_evenly(from, to, m));
        let counts = [lowest.len(), middle.len()];
        let mut digits = Self::low_digits(lowest);
        digits.extend(middle.into_iter().flat_map(|(shift, bits)| adjacent(shift, bits, Entry::Less)));
        Self::clip_above(digits, counts, n, j, m, above)
    }

    /// The first two results of [`place`](Self::place): the carry, and 0 ≤ x < 2^j.
    pub fn within(n: u32, j: u32, low: u32, m: u32) -> Self {
        let mut this = Self::place(n, j, low, m);
        this.outputs.truncate(2);
        this.circuit.keep(&this.outputs);
        this
    }

    /// [`clip`](Self::clip) of digits below bit j, so many in two parts, and `upper` from there to the sign. The result of the lowest
    /// part, where it has any, comes first.
    fn clip_above(
        mut digits: Vec<Digit>,
        [lowest, above]: [usize; 2],
        n: u32,
        j: u32,
        m: u32,
        upper: Vec<(usize, usize)>,
    ) -> Self {
        // The server's second operand lies above its first.
        let z = |shift: usize| (n - j) as usize + shift;
        let one_digit = n - j <= m;
        if one_digit {
            digits.extend(adjacent(j as usize, (n - j) as usize, Entry::Top { z: z(j as usize) }));
        } else {
            let both = |(shift, bits)| adjacent(shift, bits, Entry::Both { z: z(shift) });
            digits.extend(upper.into_iter().flat_map(both));
        }
        let mut this = Self::start(FormulaKind::Clip { j }, n, digits);
        let mut lower = this.leaves();
        let mut low = lower.split_off(lowest);
        let mut high = low.split_off(above);
        if !one_digit {
            let top = n as usize - 1;
            let p = this.local(top, Addend::Plane(top));
            let f = this.local(top, Addend::Opposite(top));
            let w = this.local(top, Addend::Opposite(z(top)));
            high.push(Node::Sign { p, f, w });
        }
        let c = &mut this.circuit;
        while lower.len() > 1 {
            lower = halve(c, lower);
        }
        let mut outputs = Vec::new();
        if let Some(Node::Low { u, .. }) = lower.first() {
            outputs.push(*u);
        }
        while high.len() > 1 {
            high = halve(c, high);
            low = halve(c, low);
        }
        low.push(match high.pop() {
            Some(signed @ Node::Signed { .. }) => signed,
            Some(Node::Top { p, e, u, f, w }) => Node::Signed { p, e, u, i: w, d: c.xor(w, f), v: None },
            _ => unreachable!("the sign absorbs the digits below"),
        });
        let mut nodes = lower;
        nodes.append(&mut low);
        while nodes.len() > 1 {
            nodes = halve(c, nodes);
        }
        let Some(Node::Signed { p, i, .. }) = nodes.pop() else {
            unreachable!("the top node absorbs the others")
        };
        outputs.extend([i, c.xor(p, i)]);
        this.outputs = outputs;
        this
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// The client's operand as planes.
    pub(crate) fn client_cell(&self, x: u64) -> u64 {
        match self.kind {
            FormulaKind::Less => x & self.mask(),
            FormulaKind::Sign | FormulaKind::Clip { .. } => !x & self.mask(),
        }
    }

    /// The server's operands as planes.
    pub(crate) fn server_cell(&self, x: u64) -> u64 {
        let x = x & self.mask();
        match self.kind {
            FormulaKind::Less | FormulaKind::Sign => x,
            FormulaKind::Clip { j } => x | ((x >> j).wrapping_sub(1) & (self.mask() >> j)) << self.bits,
        }
    }

    /// Bits of correction that the client sends: all of each digit's choice.
    pub(crate) fn corrections(&self) -> usize {
        self.digits.iter().map(Digit::choices).sum()
    }

    /// Vector correlations that the digits take.
    pub(crate) fn vectors(&self) -> usize {
        self.digits.iter().map(Digit::vectors).sum()
    }

    /// Correlations of a bit that the digits take.
    pub(crate) fn cots(&self) -> usize {
        self.digits.iter().map(Digit::cots).sum()
    }

    /// Planes that the server prepares: every mask for every table.
    pub(crate) fn table_planes(&self) -> usize {
        self.digits.iter().map(Digit::planes).sum()
    }

    /// Planes that the server sends: every entry but the first of each table.
    pub(crate) fn message_planes(&self) -> usize {
        self.digits.iter().map(Digit::sent).sum()
    }

    /// Shared bits that come of the digits.
    pub(crate) fn looked_up(&self) -> usize {
        self.digits.iter().map(Digit::width).sum()
    }

    /// Planes of all triples.
    pub(crate) fn triple_planes(&self) -> usize {
        self.circuit.ands().map(And::triple).sum()
    }

    /// Levels of ANDs.
    pub(crate) fn depth(&self) -> usize {
        self.circuit.levels.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::WIDEST;

    /// Runs the circuit in the clear on table entries computed by their definition.
    fn evaluate(formula: &Formula, x_c: u64, x_s: u64) -> Vec<u64> {
        let (a, b) = (formula.client_cell(x_c), formula.server_cell(x_s));
        let mut wires = Vec::new();
        for d in &formula.digits {
            let part = |v: u64, at: usize, bits: usize| v >> at & ((1 << bits) - 1);
            let (ad, bd) = (part(a, d.shift, d.operand()), part(b, d.shift, d.operand()));
            let bit = u64::from;
            let less = bit(ad < bd);
            let (entry, first) = match d.table {
                Table::Less => {
                    wires.push(less);
                    continue;
                }
                Table::Even(entry) => (entry, ad % 2 == 0),
                Table::Odd(entry) => (entry, ad % 2 == 1),
            };
            // U[a] or U[a − 1] for this b.
            let threshold = |b: u64| if first { bit(ad < b) } else { bit(ad == 0 || ad - 1 < b) };
            match entry {
                Entry::Less => wires.push(threshold(bd)),
                Entry::Both { z } => wires.extend([bd, part(b, z, d.operand())].map(threshold)),
                Entry::Top { z } => {
                    let carry = u64::from(!first);
                    let sum = part(!ad, 0, d.operand()) + bd + carry;
                    let v = part(ad.wrapping_sub(carry), 0, d.operand());
                    wires.extend([1 - (sum >> d.bits & 1), bit(v == part(b, z, d.operand()))]);
                }
            }
        }
        wires.resize(formula.circuit.wires(), 0);
        for local in &formula.locals {
            let server = match local.server {
                Addend::None => 0,
                Addend::Plane(plane) => b >> plane & 1,
                Addend::Opposite(plane) => 1 - (b >> plane & 1),
            };
            wires[local.wire] = a >> local.client & 1 ^ server;
        }
        let no_xors = Vec::new();
        for level in 0..=formula.depth() {
            for &[out, a, b] in formula.circuit.xors.get(level).unwrap_or(&no_xors) {
                wires[out] = wires[a] ^ wires[b];
            }
            for and in formula.circuit.levels.get(level).into_iter().flatten() {
                for (b, out) in and.b.iter().zip(&and.out) {
                    wires[*out] = wires[and.a] & wires[*b];
                }
            }
        }
        formula.outputs.iter().map(|&o| wires[o]).collect()
    }

    fn signed(x: u64, n: u32) -> i64 {
        (x << (64 - n)) as i64 >> (64 - n)
    }

    #[test]
    fn every_formula_is_right_on_all_small_shares() {
        for n in 3..=8u32 {
            for m in 1..=4 {
                let (less, sign) = (Formula::less(n, m), Formula::sign(n, m, 0));
                let rough: Vec<_> = (1..=n - 2).map(|i| (i, Formula::sign(n, m, i))).collect();
                let places: Vec<_> = (2..=n - 2)
                    .flat_map(|j| {
                        (1..j).map(move |low| {
                            (j, low, [Formula::place, Formula::within].map(|of| of(n, j, low, m)))
                        })
                    })
                    .collect();
                let clips: Vec<_> = (1..=n - 2)
                    .flat_map(|j| (0..j).map(move |i| (j, i, Formula::clip(n, j, m, i))))
                    .collect();
                for x_c in 0..1 << n {
                    for x_s in 0..1 << n {
                        assert_eq!(evaluate(&less, x_c, x_s), [u64::from(x_c < x_s)]);
                        let x = signed(x_c.wrapping_add(x_s), n);
                        assert_eq!(evaluate(&sign, x_c, x_s), [u64::from(x >= 0)], "{x}, n {n}, m {m}");
                        for (ignored, rough) in &rough {
                            let want = signed((x_c >> ignored) + (x_s >> ignored), n - ignored) >= 0;
                            assert_eq!(evaluate(rough, x_c, x_s), [u64::from(want)], "{x}, n {n}, m {m}");
                        }
                        for (j, ignored, clip) in &clips {
                            let upper = signed((x_c >> ignored) + (x_s >> ignored), n - ignored);
                            let six = 1 << (j - ignored);
                            let want = [u64::from((0..six).contains(&upper)), u64::from(upper >= six)];
                            assert_eq!(evaluate(clip, x_c, x_s), want, "{x}, n {n}, m {m}, j {j}");
                        }
                        for (j, low, [place, within]) in &places {
                            let below = (1 << low) - 1;
                            let carry = (x_c & below) + (x_s & below) > below;
                            let want = [carry, (0..1 << j).contains(&x), x >= 1 << j].map(u64::from);
                            let what = format!("{x}, n {n}, m {m}, j {j}, low {low}");
                            assert_eq!(evaluate(place, x_c, x_s), want, "{what}");
                            assert_eq!(evaluate(within, x_c, x_s), want[..2], "{what}");
                        }
                    }
                }
            }
        }
    }

    proptest::proptest! {
        /// The same at widths that cannot be tried out, with values next to every border.
        #[test]
        fn every_formula_is_right_on_wide_shares(
            n in 16u32..=WIDEST, m in 1u32..=4, j in 1u32..WIDEST, x_c: u64, x: i64, small in -3i64..=3,
        ) {
            let lowest = 1.max((2 * n).saturating_sub(64));
            let j = lowest + j % (n - 1 - lowest);
            let mask = u64::MAX >> (64 - n);
            let border = [0, 1 << j, 1 << (n - 1), x];
            let formulas = (Formula::less(n, m), Formula::sign(n, m, 0), Formula::clip(n, j, m, 0));
            for x_c in [x_c & mask, 0, mask, 1 << (n - 1), (1 << j) - 1] {
                for border in border {
                    let x_s = (border.wrapping_add(small) as u64).wrapping_sub(x_c) & mask;
                    let x = signed(x_c.wrapping_add(x_s), n);
                    assert_eq!(evaluate(&formulas.0, x_c, x_s), [u64::from(x_c < x_s)]);
                    assert_eq!(evaluate(&formulas.1, x_c, x_s), [u64::from(x >= 0)]);
                    let six = 1 << j;
                    let want = [u64::from((0..six).contains(&x)), u64::from(x >= six)];
                    assert_eq!(evaluate(&formulas.2, x_c, x_s), want);
                }
            }
        }
    }

    /// Digits that small shares do not have: of five bits, and one of three below those of four.
    #[test]
    fn unequal_digits_are_right_on_all_shares_of_nine_and_ten_bits() {
        for n in 9..=10u32 {
            let (less, sign) = (Formula::less(n, 4), Formula::sign(n, 4, 0));
            for x_c in 0..1 << n {
                for x_s in 0..1 << n {
                    assert_eq!(evaluate(&less, x_c, x_s), [u64::from(x_c < x_s)]);
                    let x = signed(x_c.wrapping_add(x_s), n);
                    assert_eq!(evaluate(&sign, x_c, x_s), [u64::from(x >= 0)], "{x}, n {n}");
                }
            }
        }
    }

    #[test]
    fn digits_are_of_the_cheapest_sizes() {
        let of = |digits: Vec<(usize, usize)>| -> Vec<usize> { digits.into_iter().map(|d| d.1).collect() };
        for (bits, sizes) in [
            (3, vec![3]),
            (5, vec![4, 1]),
            (9, vec![4, 5]),
            (13, vec![4, 4, 4, 1]),
            (14, vec![4, 4, 4, 2]),
            (15, vec![3, 4, 4, 4]),
            (17, vec![4, 4, 4, 5]),
            (21, vec![4, 4, 4, 4, 4, 1]),
        ] {
            assert_eq!(of(split_low(1, 1 + bits, 4)), sizes, "{bits} bits");
        }
        assert_eq!(of(split(2, 11, 4)), [4, 4, 1]);
        assert_eq!(of(split_evenly(2, 11, 4)), [3, 3, 3]);
        assert_eq!(of(split_low(2, 10, 3)), [3, 3, 2]);
        assert_eq!(of(split_low(2, 11, 2)), [2, 2, 2, 2, 1]);
    }

    /// A bit more takes a few correlations more, wherever it falls.
    #[test]
    fn correlations_grow_evenly_with_the_width() {
        let of = |bits| {
            let sign = Formula::sign(bits, 4, 1);
            sign.vectors() + sign.cots() + 2 * sign.circuit.ands().count()
        };
        for bits in 4..WIDEST {
            assert!((-1..=4).contains(&(of(bits + 1) as i64 - of(bits) as i64)), "{bits} bits and one more");
        }
    }

    /// Where nothing asks whether a value is above, fewer gates are opened.
    #[test]
    fn what_no_result_needs_is_no_gate() {
        for (n, j, low) in [(26, 21, 15), (26, 22, 14), (28, 24, 17), (16, 13, 8)] {
            let [all, fewer] = [Formula::place, Formula::within].map(|of| of(n, j, low, 4));
            let opened = |formula: &Formula| formula.circuit.ands().map(And::opened).sum::<usize>();
            assert!(opened(&fewer) < opened(&all), "{} of {}", opened(&fewer), opened(&all));
            assert_eq!(fewer.depth(), all.depth());
        }
    }

    #[test]
    fn depth_is_that_of_a_balanced_tree() {
        assert_eq!(Formula::sign(16, 4, 0).depth(), 2);
        assert_eq!(Formula::sign(16, 3, 0).depth(), 3);
        assert_eq!(Formula::sign(20, 4, 0).depth(), 3);
        assert_eq!(Formula::clip(16, 12, 4, 0).depth(), 2);
        assert_eq!(Formula::clip(16, 13, 4, 0).depth(), 3);
        assert_eq!(Formula::sign(5, 4, 0).depth(), 0);
        // The digit on top has the bit more.
        assert_eq!([10, 18, 34].map(|n| Formula::sign(n, 4, 0).depth()), [1, 2, 3]);
        assert_eq!([11, 19, 35].map(|n| Formula::sign(n, 4, 0).depth()), [2, 3, 4]);
    }
}
