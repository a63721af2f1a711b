//! Correlated OTs from base OTs with 16 bytes each: the seed of the silent extension.
//!
//! `q ; (t, r) <- Iknp(Δ ; )` with t_i = q_i ⊕ r_i·Δ, bit 0 of Δ set, bit 0 of q_i zero and bit 0 of t_i = r_i.
//! Ishai, Kilian, Nissim and Petrank, *Extending Oblivious Transfers Efficiently*, CRYPTO 2003, without its last
//! step (the hash), as a correlated OT. Semi-honest, under a PRG.
//!
//! The COT receiver holds both keys (k_j^0, k_j^1) of base OT j, the COT sender k_j^{Δ_j}, j = 1..128. With
//! G(k) a column of n bits and r the column of choice bits:
//!
//! > receiver: t^j = G(k_j^0), sends u^j = t^j ⊕ G(k_j^1) ⊕ r
//! > sender: q^j = G(k_j^{Δ_j}) ⊕ Δ_j·u^j = t^j ⊕ Δ_j·r
//!
//! Column 0 costs nothing: Δ_0 = 1 is public, so t^0 = r and q^0 = 0 will do, and the choice bits are where the
//! convention wants them. The sender sees u^j only, each hidden by the key that it does not have.
//!
//! Bytes: 127/8 a COT from receiver to sender. Rounds: 1.

use jaguar_ring::Prg;
use jaguar_wire::Channel;
use zeroize::{Zeroize, Zeroizing};

use crate::base::Key;
use crate::{Block, OtError};

/// Base OTs that are needed: one per column but column 0.
pub(crate) const BASE: usize = 127;

/// Rows that are made when `count` are wanted.
pub(crate) const fn rows(count: usize) -> usize {
    count.next_multiple_of(128)
}

/// The choice bits that the COT sender takes in the base OTs: bits 1..128 of Δ.
pub(crate) fn choices(delta: Block) -> Zeroizing<Vec<bool>> {
    Zeroizing::new((1..128).map(|j| delta.0 >> j & 1 == 1).collect())
}

/// The COT receiver's part: `t`, with the choice bits in bit 0. The length is a multiple of 128.
pub(crate) fn receive(
    chan: &mut Channel,
    prg: &mut Prg,
    keys: &[[Key; 2]],
    t: &mut [Block],
) -> Result<(), OtError> {
    assert!(t.len().is_multiple_of(128) && keys.len() == BASE);
    // 1. Column 0: the choice bits themselves.
    let words = t.len() / 128;
    let mut r = Zeroizing::new(vec![Block::ZERO; words]);
    prg.fill(bytemuck::cast_slice_mut(&mut r));
    let mut columns = Zeroizing::new(vec![Block::ZERO; t.len()]);
    columns[..words].copy_from_slice(&r);
    // 2. The other columns, and the masked choice bits for each.
    let mut u = Zeroizing::new(vec![Block::ZERO; words]);
    for (j, [key0, key1]) in keys.iter().enumerate() {
        let column = &mut columns[(j + 1) * words..(j + 2) * words];
        Prg::new(**key0).fill(bytemuck::cast_slice_mut(column));
        Prg::new(**key1).fill(bytemuck::cast_slice_mut(&mut u));
        for ((u, t), r) in u.iter_mut().zip(column.iter()).zip(r.iter()) {
            *u ^= *t ^ *r;
        }
        chan.send(bytemuck::cast_slice(&u))?;
    }
    chan.flush()?;
    // 3. Columns to rows.
    transpose(&columns, t);
    Ok(())
}

/// The COT sender's part: `q`, with bit 0 zero. The length is a multiple of 128.
pub(crate) fn send(chan: &mut Channel, delta: Block, keys: &[Key], q: &mut [Block]) -> Result<(), OtError> {
    assert!(q.len().is_multiple_of(128) && keys.len() == BASE && delta.lsb());
    // 1. Column 0: nothing.
    let words = q.len() / 128;
    let mut columns = Zeroizing::new(vec![Block::ZERO; q.len()]);
    // 2. The other columns, corrected where Δ has a one.
    let mut u = vec![Block::ZERO; words];
    for (j, key) in keys.iter().enumerate() {
        let column = &mut columns[(j + 1) * words..(j + 2) * words];
        Prg::new(**key).fill(bytemuck::cast_slice_mut(column));
        chan.recv_into(bytemuck::cast_slice_mut(&mut u))?;
        for (q, u) in column.iter_mut().zip(&u) {
            *q ^= u.masked(delta.0 >> (j + 1) & 1 == 1);
        }
    }
    // 3. Columns to rows.
    transpose(&columns, q);
    Ok(())
}

/// 128 columns of n bits, one after the other, to n rows of 128 bits: bit j of `rows[i]` is bit i of column j (bit i
/// mod 128 of its block ⌊i/128⌋).
fn transpose(columns: &[Block], rows: &mut [Block]) {
    let words = rows.len() / 128;
    let mut square = [0u128; 128];
    for (w, rows) in rows.chunks_exact_mut(128).enumerate() {
        for (j, line) in square.iter_mut().enumerate() {
            *line = columns[j * words + w].0;
        }
        transpose_square(&mut square);
        for (row, line) in rows.iter_mut().zip(&square) {
            *row = Block(*line);
        }
    }
    square.zeroize();
}

/// Exchanges bit j of line i with bit i of line j, by quadrants of halving size (Warren, *Hacker's Delight*, 7-3).
fn transpose_square(square: &mut [u128; 128]) {
    let (mut size, mut mask) = (64, u128::from(u64::MAX));
    while size > 0 {
        for start in (0..128).step_by(2 * size) {
            for i in start..start + size {
                let (a, b) = (square[i], square[i + size]);
                let swap = (a >> size ^ b) & mask;
                square[i] = a ^ swap << size;
                square[i + size] = b ^ swap;
            }
        }
        size /= 2;
        mask ^= mask << size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::two_parties;

    fn keys(prg: &mut Prg) -> Vec<[Key; 2]> {
        let mut key = || {
            let mut key = Key::default();
            prg.fill(key.as_mut());
            key
        };
        (0..BASE).map(|_| [key(), key()]).collect()
    }

    #[test]
    fn halves_correlate() {
        let n = 3 * 128;
        let delta = Block(0x0123_4567_89ab_cdef_fedc_ba98_7654_3211);
        let pairs = keys(&mut Prg::new([5; 32]));
        let chosen: Vec<Key> =
            pairs.iter().zip(choices(delta).iter()).map(|(pair, &c)| pair[usize::from(c)].clone()).collect();
        let run = two_parties::run(
            |chan| {
                let mut q = vec![Block::ZERO; n];
                send(chan, delta, &chosen, &mut q).map(|()| q)
            },
            |chan| {
                let mut t = vec![Block::ZERO; n];
                receive(chan, &mut Prg::new([6; 32]), &pairs, &mut t).map(|()| t)
            },
        );
        let (q, t) = (run.first.as_ref().unwrap(), run.second.as_ref().unwrap());
        for (q, t) in q.iter().zip(t) {
            assert!(!q.lsb() && *t == *q ^ delta.masked(t.lsb()));
        }
        // Binomial, standard deviation 9.8.
        let ones = t.iter().filter(|t| t.lsb()).count();
        assert!((130..=254).contains(&ones), "{ones} ones of {n}");
        assert_eq!((run.traffic.sent, run.traffic.received, run.traffic.rounds), (0, 127 * n as u64 / 8, 1));
        assert_eq!(run.digest(), "863bbd25f0610105be8c0f3d73e20ad59dae4d4b7540e6e50b157ba086f96cd4");
    }

    #[test]
    fn rows_and_columns_change_places() {
        let mut columns = vec![Block::ZERO; 384];
        Prg::new([1; 32]).fill(bytemuck::cast_slice_mut(&mut columns));
        let mut rows = vec![Block::ZERO; 384];
        transpose(&columns, &mut rows);
        for (i, row) in rows.iter().enumerate() {
            for j in 0..128 {
                assert_eq!(row.0 >> j & 1, columns[j * 3 + i / 128].0 >> (i % 128) & 1);
            }
        }
    }
}
