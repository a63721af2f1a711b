//! The inner loops, compiled for several instruction sets and chosen at run time.
//!
//! Every kernel is one plain function over [`Lanes`], compiled three times: as it is (the scalar twin), for
//! AVX2 and for AVX-512; the compiler does the vectorising. A [`Level`] can only be had by asking the CPU, so
//! holding one proves that its instructions exist. This is the only module of the crate with `unsafe`.

use jaguar_ring::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use jaguar_ring::cpu::Feature;
use jaguar_ring::cpu::secret::BitMasks;

use crate::kernels::circuit::{And, Digit, Entry, Table};
use crate::kernels::lanes::{Lanes, Planes};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Set {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// An instruction set that this CPU has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Level(Set);

impl Level {
    /// All that this CPU has, the plain one first.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        Self::all_of(Cpu::detect())
    }

    /// All that `cpu` has, the plain one first.
    fn all_of(cpu: Cpu) -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "no other level is there"))]
        let mut all = vec![Self(Set::Plain)];
        #[cfg(target_arch = "x86_64")]
        {
            use Feature::{Avx2, Avx512Bw, Avx512Dq, Avx512F, Avx512Vl};
            if cpu.has(Avx2) {
                all.push(Self(Set::Avx2));
            }
            if cpu.has_all(&[Avx512F, Avx512Bw, Avx512Dq, Avx512Vl]) {
                all.push(Self(Set::Avx512));
            }
        }
        let _ = cpu;
        all
    }

    /// The widest that `cpu` has.
    pub(crate) fn of(cpu: Cpu) -> Self {
        *Self::all_of(cpu).last().expect("the plain one is always there")
    }
}

/// Declares a kernel's entry point, which calls the copy of its body that fits the level.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident = $body:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        $(#[$doc])*
        pub(crate) fn $name(level: Level, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($arg: $ty),*) {
                $body($($arg),*);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $ty),*) {
                $body($($arg),*);
            }
            match level.0 {
                Set::Plain => $body($($arg),*),
                // SAFETY: a `Level` with this set exists only where the CPU reported its features.
                #[cfg(target_arch = "x86_64")]
                Set::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Set::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}

kernel! {
    /// Transposes eight 64 × 64 bit matrices next to each other: afterwards bit `i` of row `p` is what bit `p`
    /// of row `i` was, in each of the eight columns.
    transpose = transpose_body(planes: &mut Planes)
}

#[inline(always)]
fn transpose_body(planes: &mut Planes) {
    let mut width = 32;
    let mut mask = u64::MAX >> 32;
    while width > 0 {
        let mut row = 0;
        while row < 64 {
            for i in row..row + width {
                for k in 0..8 {
                    let swap = (planes[i].0[k] >> width ^ planes[i + width].0[k]) & mask;
                    planes[i].0[k] ^= swap << width;
                    planes[i + width].0[k] ^= swap;
                }
            }
            row += 2 * width;
        }
        width /= 2;
        mask ^= mask << width;
    }
}

kernel! {
    /// The server's side of all digits of one group. `own` are its operand planes, `masks` the prepared
    /// planes of all masks for every table (entry `v`, bit `o` at `v·width + o`), `corrections` the client's places,
    /// padded with zeros to as many bits as were chosen, ⊕ random choices. Fills the message (all entries but the first of each table) and the server's shares.
    serve = serve_body(
        digits: &[Digit], corrections: &[Lanes], own: &Planes, masks: &[Lanes],
        message: &mut [Lanes], shares: &mut [Lanes],
    )
}

#[inline(always)]
fn serve_body(
    digits: &[Digit],
    corrections: &[Lanes],
    own: &Planes,
    masks: &[Lanes],
    message: &mut [Lanes],
    shares: &mut [Lanes],
) {
    let (mut corrections, mut masks) = (corrections, masks);
    let (mut message, mut shares) = (message, shares);
    for digit in digits {
        let (size, width, choices) = (1 << digit.bits, digit.width(), digit.choices());
        let mut words = [Lanes::ZERO; 64];
        words[..digit.planes()].copy_from_slice(&masks[..digit.planes()]);
        // Entry v becomes the mask of entry v ⊕ correction. Bits beyond the digit's: one half of the masks remains.
        for (i, &bit) in corrections[..choices].iter().enumerate().skip(digit.bits).rev() {
            let half = width << i;
            for o in 0..half {
                words[o] = words[o] ^ (words[o] ^ words[half + o]) & bit;
            }
        }
        // The others: conditional swaps, one bit at a time.
        for (i, &bit) in corrections[..digit.bits].iter().enumerate() {
            for v in (0..size).filter(|v| v >> i & 1 == 0) {
                let (low, high) = (v * width, (v | 1 << i) * width);
                for o in 0..width {
                    let swap = (words[low + o] ^ words[high + o]) & bit;
                    words[low + o] = words[low + o] ^ swap;
                    words[high + o] = words[high + o] ^ swap;
                }
            }
        }
        add_table(digit, own, &mut words);
        // The server's share is what makes the first entry zero, so that entry need not travel.
        shares[..width].copy_from_slice(&words[..width]);
        for v in 1..size {
            for o in 0..width {
                message[(v - 1) * width + o] = words[v * width + o] ^ words[o];
            }
        }
        corrections = &corrections[choices..];
        masks = &masks[digit.planes()..];
        message = &mut message[(size - 1) * width..];
        shares = &mut shares[width..];
    }
}

/// Entry `v` of the first table is `v` < b, of the second `v` = b, for the number b of `b.len()` bits.
#[inline(always)]
fn compare_with_all(b: &[Lanes]) -> ([Lanes; 16], [Lanes; 16]) {
    let (mut less, mut equal) = ([Lanes::ZERO; 16], [Lanes::ZERO; 16]);
    equal[0] = Lanes::ONES;
    for (i, &bit) in b.iter().enumerate() {
        for v in 0..1 << i {
            let above = v | 1 << i;
            less[above] = bit & less[v];
            equal[above] = bit & equal[v];
            less[v] = bit | less[v];
            equal[v] = !bit & equal[v];
        }
    }
    (less, equal)
}

#[inline(always)]
fn add_table(digit: &Digit, own: &Planes, words: &mut [Lanes; 64]) {
    let b = &own[digit.shift..digit.shift + digit.operand()];
    match digit.table {
        Table::Less => {
            let (less, _) = compare_with_all(b);
            for v in 0..1 << digit.bits {
                words[v] = words[v] ^ less[v];
            }
        }
        Table::Even(entry) => add_entries(digit.bits, entry, false, own, b, words),
        Table::Odd(entry) => add_entries(digit.bits, entry, true, own, b, words),
    }
}

/// Entry `v` of the table is 2·`v` < b, or with `odd` 2·`v` + 1 < b; b has one bit more than `v`.
#[inline(always)]
fn thresholds(b: &[Lanes], odd: bool) -> [Lanes; 16] {
    let (mut less, equal) = compare_with_all(&b[1..]);
    if !odd {
        for v in 0..1 << (b.len() - 1) {
            less[v] = less[v] ^ equal[v] & b[0];
        }
    }
    less
}

/// The entries of a table of every second threshold, at places of `bits` bits.
#[inline(always)]
fn add_entries(bits: usize, entry: Entry, odd: bool, own: &Planes, b: &[Lanes], words: &mut [Lanes; 64]) {
    match entry {
        Entry::Less => {
            let less = thresholds(b, odd);
            for v in 0..1 << bits {
                words[v] = words[v] ^ less[v];
            }
        }
        Entry::Both { z } => {
            let (less, second) = (thresholds(b, odd), thresholds(&own[z..z + b.len()], odd));
            for v in 0..1 << bits {
                words[2 * v] = words[2 * v] ^ less[v];
                words[2 * v + 1] = words[2 * v + 1] ^ second[v];
            }
        }
        Entry::Top { z } => {
            // The client's digit is ¬U_c, so below the sign a carry leaves iff v < b there.
            let carry = thresholds(&b[..bits], odd);
            let (_, equal) = compare_with_all(&own[z + 1..z + b.len()]);
            let parity = if odd { own[z] } else { !own[z] };
            for v in 0..1 << bits {
                let below = v & ((1 << (bits - 1)) - 1);
                // sign = ¬v_top ⊕ b_top ⊕ carry; "not negative" is its opposite.
                let top = if v >> (bits - 1) == 1 { !b[bits] } else { b[bits] };
                words[2 * v] = words[2 * v] ^ top ^ carry[below];
                words[2 * v + 1] = words[2 * v + 1] ^ equal[v] & parity;
            }
        }
    }
}

kernel! {
    /// The client's side of all digits of one group: picks its entry of every table in `message` by the planes of
    /// its places (`choices`, digit after digit) and takes the prepared mask off.
    take = take_body(
        digits: &[Digit], choices: &[Lanes], masks: &[Lanes], message: &[Lanes], shares: &mut [Lanes],
    )
}

#[inline(always)]
fn take_body(digits: &[Digit], choices: &[Lanes], masks: &[Lanes], message: &[Lanes], shares: &mut [Lanes]) {
    let (mut choices, mut message, mut at) = (choices, message, 0);
    for digit in digits {
        let (size, width) = (1 << digit.bits, digit.width());
        for o in 0..width {
            let mut words = [Lanes::ZERO; 16];
            for v in 1..size {
                words[v] = message[(v - 1) * width + o];
            }
            let mut left = size;
            for &bit in &choices[..digit.bits] {
                left /= 2;
                for v in 0..left {
                    words[v] = words[2 * v] ^ ((words[2 * v] ^ words[2 * v + 1]) & bit);
                }
            }
            shares[at + o] = words[0] ^ masks[at + o];
        }
        choices = &choices[digit.bits..];
        message = &message[(size - 1) * width..];
        at += width;
    }
}

kernel! {
    /// Masks the operands of one level's ANDs with their triples; `opened` gets, gate after gate, a ⊕ mask and
    /// every b ⊕ mask.
    open = open_body(ands: &[And], wires: &[Lanes], triples: &[Lanes], opened: &mut [Lanes])
}

#[inline(always)]
fn open_body(ands: &[And], wires: &[Lanes], triples: &[Lanes], opened: &mut [Lanes]) {
    let (mut t, mut o) = (0, 0);
    for and in ands {
        opened[o] = wires[and.a] ^ triples[t];
        for (i, &b) in and.b.iter().enumerate() {
            opened[o + 1 + i] = wires[b] ^ triples[t + 1 + i];
        }
        t += and.triple();
        o += and.opened();
    }
}

kernel! {
    /// Finishes one level's ANDs. `opened` are the values that both know by now; the party with `one` set adds
    /// their product. With a triple (α, β, γ = αβ), d = a ⊕ α and e = b ⊕ β: ab = γ ⊕ dβ ⊕ eα ⊕ de.
    close = close_body(ands: &[And], wires: &mut [Lanes], triples: &[Lanes], opened: &[Lanes], one: Lanes)
}

#[inline(always)]
fn close_body(ands: &[And], wires: &mut [Lanes], triples: &[Lanes], opened: &[Lanes], one: Lanes) {
    let (mut t, mut o) = (0, 0);
    for and in ands {
        let (d, alpha) = (opened[o], triples[t]);
        let n = and.b.len();
        for i in 0..n {
            let (e, beta, gamma) = (opened[o + 1 + i], triples[t + 1 + i], triples[t + 1 + n + i]);
            wires[and.out[i]] = gamma ^ (d & beta) ^ (e & (alpha ^ (d & one)));
        }
        t += and.triple();
        o += and.opened();
    }
}

kernel! {
    /// `masked[e]` = ±`x[e]` − `delta[e]` mod 2^bits, minus where the element's bit in `beta` is set: what
    /// turns a random OT of the multiplication into one of x. At most one group.
    correct = correct_body(masked: &mut [u64], x: &[u64], delta: &[u32], beta: &Lanes, bits: u32)
}

kernel! {
    /// As [`correct`], for rings of more than 32 bits.
    correct_wide = correct_body(masked: &mut [u64], x: &[u64], delta: &[u64], beta: &Lanes, bits: u32)
}

#[inline(always)]
fn correct_body<W: Copy + Into<u64>>(masked: &mut [u64], x: &[u64], delta: &[W], beta: &Lanes, bits: u32) {
    let (mask, masks) = (u64::MAX >> (64 - bits), BitMasks::new());
    let rows = masked.chunks_mut(8).zip(x.chunks(8)).zip(delta.chunks(8));
    for (i, ((masked, x), delta)) in rows.enumerate() {
        for (k, ((masked, &x), &delta)) in masked.iter_mut().zip(x).zip(delta).enumerate() {
            let minus = masks.of(beta.0[k] >> i);
            *masked = (x ^ minus).wrapping_sub(minus).wrapping_sub(delta.into()) & mask;
        }
    }
}

kernel! {
    /// `w[e]` becomes `pad[e]` + β·(`x[e]` + `w[e]`) mod 2^bits: from the peer's correction in `w` and this
    /// party's share `x` to this party's share of the product. At most one group.
    product = product_body(w: &mut [u64], x: &[u64], pad: &[u32], beta: &Lanes, bits: u32)
}

kernel! {
    /// As [`product`], for rings of more than 32 bits.
    product_wide = product_body(w: &mut [u64], x: &[u64], pad: &[u64], beta: &Lanes, bits: u32)
}

#[inline(always)]
fn product_body<W: Copy + Into<u64>>(w: &mut [u64], x: &[u64], pad: &[W], beta: &Lanes, bits: u32) {
    let (mask, masks) = (u64::MAX >> (64 - bits), BitMasks::new());
    let rows = w.chunks_mut(8).zip(x.chunks(8)).zip(pad.chunks(8));
    for (i, ((w, x), pad)) in rows.enumerate() {
        for (k, ((w, &x), &pad)) in w.iter_mut().zip(x).zip(pad).enumerate() {
            let select = masks.of(beta.0[k] >> i);
            *w = pad.into().wrapping_add(x.wrapping_add(*w) & select) & mask;
        }
    }
}

kernel! {
    /// `zero[e]` = `one[e]` where the element's bit is set. At most one group.
    choose = choose_body(zero: &mut [u64], one: &[u64], bit: &Lanes)
}

#[inline(always)]
fn choose_body(zero: &mut [u64], one: &[u64], bit: &Lanes) {
    let masks = BitMasks::new();
    for (i, (zero, one)) in zero.chunks_mut(8).zip(one.chunks(8)).enumerate() {
        for ((zero, &one), lane) in zero.iter_mut().zip(one).zip(bit.0) {
            *zero ^= (*zero ^ one) & masks.of(lane >> i);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gates::formula::Formula;

    /// Pseudorandom words, and the extremes in between.
    fn words(seed: u64, n: usize) -> Vec<u64> {
        let mut state = seed | 1;
        (0..n)
            .map(|i| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                match i % 11 {
                    3 => 0,
                    7 => u64::MAX,
                    _ => state,
                }
            })
            .collect()
    }

    fn lanes(seed: u64, n: usize) -> Vec<Lanes> {
        words(seed, 8 * n).chunks(8).map(|w| Lanes(w.try_into().unwrap())).collect()
    }

    fn raw(lanes: &[Lanes]) -> Vec<[u64; 8]> {
        lanes.iter().map(|l| l.0).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn transposition_moves_every_bit(seed: u64) {
            for level in Level::all() {
                let before: Planes = lanes(seed, 64).try_into().ok().unwrap();
                let mut after = before;
                transpose(level, &mut after);
                for (i, before) in before.iter().enumerate() {
                    for (p, after) in after.iter().enumerate() {
                        for k in 0..8 {
                            prop_assert_eq!(after.0[k] >> i & 1, before.0[k] >> p & 1);
                        }
                    }
                }
            }
        }

        #[test]
        fn every_level_agrees_with_the_plain_one(seed: u64, m in 1u32..=4, j in 1u32..=14) {
            let formula = Formula::clip(16, j, m, 0);
            let own: Planes = lanes(seed, 64).try_into().ok().unwrap();
            let corrections = lanes(seed ^ 1, formula.corrections());
            let masks = lanes(seed ^ 2, formula.table_planes());
            let chosen = lanes(seed ^ 7, formula.looked_up());
            let triples = lanes(seed ^ 3, formula.triple_planes());
            let (x, y) = (words(seed ^ 4, 500), words(seed ^ 5, 500));
            let small: Vec<u32> = y.iter().map(|&v| v as u32).collect();
            let mut all = Vec::new();
            for level in Level::all() {
                let mut message = vec![Lanes::ZERO; formula.message_planes()];
                let mut shares = vec![Lanes::ZERO; formula.looked_up()];
                serve(level, &formula.digits, &corrections, &own, &masks, &mut message, &mut shares);
                let mut taken = vec![Lanes::ZERO; formula.looked_up()];
                take(level, &formula.digits, &corrections, &chosen, &message, &mut taken);
                let mut wires = lanes(seed ^ 6, formula.circuit.wires());
                let ands = &formula.circuit.levels[0];
                let mut opened = vec![Lanes::ZERO; ands.iter().map(And::opened).sum()];
                open(level, ands, &wires, &triples, &mut opened);
                close(level, ands, &mut wires, &triples, &opened, Lanes::ONES);
                let mut corrected = vec![0; 500];
                correct(level, &mut corrected, &x, &small, &own[0], 20);
                let mut product_ = y.clone();
                product(level, &mut product_, &x, &small, &own[1], 20);
                let mut wide = [vec![0; 500], y.clone()];
                correct_wide(level, &mut wide[0], &x, &y, &own[3], 40);
                product_wide(level, &mut wide[1], &x, &x, &own[4], 40);
                let mut chosen = x.clone();
                choose(level, &mut chosen, &y, &own[2]);
                all.push((
                    [raw(&message), raw(&shares), raw(&taken), raw(&opened), raw(&wires)],
                    [corrected, product_, chosen],
                    wide,
                ));
            }
            for other in &all[1..] {
                prop_assert_eq!(&all[0], other);
            }
        }

        /// The multiplication's kernels against their definition, in every width.
        #[test]
        fn corrections_and_products_are_as_defined(seed: u64, bits in 1u32..=63) {
            let (x, pad) = (words(seed, 300), words(seed ^ 1, 300));
            let beta = lanes(seed ^ 2, 1)[0];
            let (mask, narrow) = (u64::MAX >> (64 - bits), bits <= 32);
            let small: Vec<u32> = pad.iter().map(|&v| v as u32).collect();
            for level in Level::all() {
                let (mut masked, mut w) = (vec![0; 300], x.clone());
                if narrow {
                    correct(level, &mut masked, &x, &small, &beta, bits);
                    product(level, &mut w, &pad, &small, &beta, bits);
                } else {
                    correct_wide(level, &mut masked, &x, &pad, &beta, bits);
                    product_wide(level, &mut w, &pad, &pad, &beta, bits);
                }
                for e in 0..300 {
                    let beta = i128::from(beta.bit(e));
                    let stored = if narrow { i128::from(small[e]) } else { i128::from(pad[e]) };
                    let want = (1 - 2 * beta) * i128::from(x[e]) - stored;
                    prop_assert_eq!(masked[e], want as u64 & mask);
                    let want = stored + beta * (i128::from(pad[e]) + i128::from(x[e]));
                    prop_assert_eq!(w[e], want as u64 & mask);
                }
            }
        }
    }
}
