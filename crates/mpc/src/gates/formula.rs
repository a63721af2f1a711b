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
//! | low | u, d | one of U\[a\], U\[a − 1\]; their sum | u ⊕ d·(u ⊕ u'), d·d' |
//! | middle | lt, eq, z | a < b, a = b, and a = b − 1, where b is the server's bits from j up | lt ⊕ eq·lt', eq·eq', z·z' |
//! | top | p, e, z, f | see [`Formula::clip`] | p ⊕ e·lt', e·eq', z·z', f·eq' |
//! | signed | p, e, i, d, u | p and i if the carry is u; what another carry flips in them | p ⊕ e·(u ⊕ u'), i ⊕ d·(u ⊕ u'), e·d', d·d', u' |
//!
//! At first the signed node's u is zero. The lowest digit is no pair: its u is the result. ANDs with a common operand open
//! it once and share its OTs.

use crate::kernels::circuit::{And, Digit, Table};

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
    /// Wire and plane of a bit that each party XORs in by itself.
    pub(crate) local: Option<(usize, usize)>,
    pub(crate) circuit: Circuit,
    /// Wires of the results.
    pub(crate) outputs: Vec<usize>,
}

/// A partial result over a range of digits; see the module's table.
enum Node {
    Low { u: usize, d: Option<usize> },
    Middle { lt: usize, eq: usize, z: usize },
    Top { p: usize, e: usize, z: usize, f: usize },
    Signed { p: usize, e: usize, i: usize, d: usize, u: Option<usize> },
}

fn combine(c: &mut Circuit, high: Node, low: Node) -> Node {
    use Node::{Low, Middle, Signed, Top};
    match (high, low) {
        (Low { u, d }, Low { u: u2, d: d2 }) => {
            let d = d.expect("only the lowest digit is no pair");
            let both: Vec<usize> = std::iter::once(c.xor(u, u2)).chain(d2).collect();
            let products = c.and(d, &both);
            Low { u: c.xor(u, products[0]), d: products.get(1).copied() }
        }
        (Middle { lt, eq, z }, Middle { lt: lt2, eq: eq2, z: z2 }) => {
            let products = c.and(eq, &[lt2, eq2]);
            Middle { lt: c.xor(lt, products[0]), eq: products[1], z: c.and(z, &[z2])[0] }
        }
        (Top { p, e, z, f }, Middle { lt, eq, z: z2 }) => {
            let flip = c.and(lt, &[e])[0];
            let products = c.and(eq, &[e, f]);
            Top { p: c.xor(p, flip), e: products[0], z: c.and(z, &[z2])[0], f: products[1] }
        }
        (Signed { p, e, i, d, u }, Low { u: u2, d: d2 }) => {
            let carry = u.map_or(u2, |u| c.xor(u, u2));
            let flips = c.and(carry, &[e, d]);
            let (p, i) = (c.xor(p, flips[0]), c.xor(i, flips[1]));
            // Below the lowest digit there is no carry, so e and d have done their work.
            let rest = d2.map_or(flips, |d2| c.and(d2, &[e, d]));
            Signed { p, e: rest[0], i, d: rest[1], u: Some(u2) }
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

/// Bits `from..to` in as few digits as digits of at most `m` bits allow, `(shift, bits)` from the bottom: as even as
/// can be, for a table's size doubles with each bit, and the longer ones below, where there is one table and not two.
fn split(from: u32, to: u32, m: u32) -> impl Iterator<Item = (usize, usize)> {
    let (bits, digits) = (to - from, (to - from).div_ceil(m));
    let mut at = from;
    (0..digits).map(move |i| {
        let shift = at;
        at += bits / digits + u32::from(i < bits % digits);
        (shift as usize, (at - shift) as usize)
    })
}

impl Formula {
    fn start(kind: FormulaKind, bits: u32, digits: Vec<Digit>, local: Option<usize>) -> Self {
        let mut circuit = Circuit::default();
        for _ in 0..digits.iter().map(Digit::width).sum() {
            circuit.wire(0);
        }
        let local = local.map(|plane| (circuit.wire(0), plane));
        Self { kind, bits, digits, local, circuit, outputs: Vec::new() }
    }

    fn low_digits(from: u32, to: u32, m: u32) -> Vec<Digit> {
        let adjacent = [(1, Table::Even), (1, Table::Odd)];
        let tables = |shift| if shift == from as usize { &[(0, Table::Less)][..] } else { &adjacent };
        split(from, to, m)
            .flat_map(|(shift, bits)| {
                tables(shift).iter().map(move |&(less, table)| Digit { shift, bits: bits - less, table })
            })
            .collect()
    }

    /// The digits' outputs as nodes, lowest first.
    fn leaves(&mut self) -> Vec<Node> {
        let mut at = 0;
        let mut leaves = Vec::new();
        for digit in &self.digits {
            leaves.extend(match digit.table {
                Table::Less => Some(Node::Low { u: at, d: None }),
                // Its odd one follows.
                Table::Even => None,
                Table::Odd => Some(Node::Low { u: at, d: Some(self.circuit.xor(at - 1, at)) }),
                Table::Middle { .. } => Some(Node::Middle { lt: at, eq: at + 1, z: at + 2 }),
                Table::Top { .. } => Some(Node::Top { p: at, e: at + 1, z: at + 2, f: at + 3 }),
            });
            at += digit.width();
        }
        leaves
    }

    /// One result: the client's operand < the server's, both of `bits` bits.
    pub(crate) fn less(bits: u32, m: u32) -> Self {
        let mut this = Self::start(FormulaKind::Less, bits, Self::low_digits(0, bits, m), None);
        this.outputs = vec![this.reduce_low()];
        this
    }

    /// One result: the shared signed value is not negative. Its sign is msb(x_c) ⊕ msb(x_s) ⊕ carry, and the
    /// carry out of the lower n − 1 bits is ¬x_c < x_s there. The carry out of the lowest `ignored` bits is taken
    /// for zero. n is at least 3, m from 1 to 4, `ignored` at most n - 2.
    pub fn sign(n: u32, m: u32, ignored: u32) -> Self {
        let mut this =
            Self::start(FormulaKind::Sign, n, Self::low_digits(ignored, n - 1, m), Some(n as usize - 1));
        let carry = this.reduce_low();
        let (local, _) = this.local.expect("just made");
        this.outputs = vec![this.circuit.xor(carry, local)];
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
    /// a = ¬U_c as everywhere. "Not negative" is known for no carry (p) together with what a carry flips (e).
    /// The second result is "not negative" ⊕ the first. All of it needs one pass over the digits, and the low
    /// j bits are those of a plain comparison. The carry out of the lowest `ignored` bits is taken for zero.
    ///
    /// The server's two operands, of n and n − j bits, share 64 planes: 1 ≤ j ≤ n − 2, and j ≥ 2n − 64; m from 1 to 4, `ignored` < j.
    pub fn clip(n: u32, j: u32, m: u32, ignored: u32) -> Self {
        let mut digits = Self::low_digits(ignored, j, m);
        let lows = split(ignored, j, m).count();
        for (shift, bits) in split(j, n, m) {
            // The server's second operand lies above its first.
            let z = (n - j) as usize + shift;
            let top = shift + bits == n as usize;
            digits.push(Digit {
                shift,
                bits,
                table: if top { Table::Top { z } } else { Table::Middle { z } },
            });
        }
        let mut this = Self::start(FormulaKind::Clip { j }, n, digits, None);
        let mut low = this.leaves();
        let mut high = low.split_off(lows);
        let c = &mut this.circuit;
        while high.len() > 1 {
            high = halve(c, high);
            low = halve(c, low);
        }
        let Some(Node::Top { p, e, z, f }) = high.pop() else {
            unreachable!("the top digit absorbs the others")
        };
        low.push(Node::Signed { p, e, i: z, d: c.xor(z, f), u: None });
        while low.len() > 1 {
            low = halve(c, low);
        }
        let Some(Node::Signed { p, i, .. }) = low.pop() else {
            unreachable!("the top node absorbs the others")
        };
        this.outputs = vec![i, c.xor(p, i)];
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
            // U[a] and U[a − 1], the latter 1 for a = 0: which of them is the even one depends on a.
            let (at, before) = (bit(ad < bd), bit(ad == 0 || ad - 1 < bd));
            match d.table {
                Table::Less => wires.push(at),
                Table::Even => wires.push(if ad % 2 == 0 { at } else { before }),
                Table::Odd => wires.push(if ad % 2 == 0 { before } else { at }),
                Table::Middle { z } => {
                    wires.extend([bit(ad < bd), bit(ad == bd), bit(ad == part(b, z, d.bits))]);
                }
                Table::Top { z } => {
                    let u_c = part(!ad, 0, d.bits);
                    let sum = |carry| (u_c + bd + carry) >> (d.bits - 1) & 1;
                    let p = 1 - sum(0);
                    wires.extend([p, p ^ (1 - sum(1)), bit(ad == part(b, z, d.bits)), bit(ad == bd)]);
                }
            }
        }
        if let Some((_, plane)) = formula.local {
            wires.push((a ^ b) >> plane & 1);
        }
        wires.resize(formula.circuit.wires(), 0);
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

    #[test]
    fn depth_is_that_of_a_balanced_tree() {
        assert_eq!(Formula::sign(16, 4, 0).depth(), 2);
        assert_eq!(Formula::sign(16, 3, 0).depth(), 3);
        assert_eq!(Formula::sign(20, 4, 0).depth(), 3);
        assert_eq!(Formula::clip(16, 12, 4, 0).depth(), 2);
        assert_eq!(Formula::clip(16, 13, 4, 0).depth(), 3);
        assert_eq!(Formula::sign(5, 4, 0).depth(), 0);
    }
}
