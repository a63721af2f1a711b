//! Correlated OTs from base OTs with 16 bytes each: the seed of the silent extension.
//!
//! `q ; (t, r) <- Iknp(Δ ; )` with t_i = q_i ⊕ r_i·Δ, bit 0 of Δ set, bit 0 of q_i zero and bit 0 of t_i = r_i.
//! Ishai, Kilian, Nissim and Petrank, *Extending Oblivious Transfers Efficiently*, CRYPTO 2003, without its last
//! step (the hash), as a correlated OT, under a PRG; with a check of the receiver in the manner of Keller, Orsini and Scholl
//! (CRYPTO 2015, ePrint 2015/546) and Roy (SoftSpokenOT, CRYPTO 2022, ePrint 2022/192).
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
//! # The check
//!
//! A receiver that takes another r^j in some columns makes rows that are right only where Δ has a zero there: whoever sees which
//! rows work reads Δ, and with Δ all that it hides. So both open [`OPENED`] sums of rows, each of the rows that a challenge
//! names plus one that serves for nothing else. The receiver sends its halves M_b of the sums; the sender compares them
//! with its own, M_b = M'_b ⊕ bit 0 of M_b · Δ. The challenge is a hash of the base OTs and of all u^j.
//!
//! *What it gives.* Let h be the linear map from a column to its sums, and x = h(r) as the receiver sent it (column 0 of M). For
//! column j the comparison is h(t^j) ⊕ Δ_j·h(r^j) = m^j ⊕ Δ_j·x. Where h(r^j) ≠ x no m^j passes for both values of Δ_j: the
//! receiver has guessed that bit. So who deviates in c columns is found with probability 1 − 2^-c, and learns those c bits
//! if it is not. Columns that differ have equal sums with probability 2^-128 a challenge. Towards the sender: x is masked by the
//! rows that are given up, and all else follows from what it holds.
//!
//! Bytes: 127/8 a COT from receiver to sender, and 4,080 for the check. Rounds: 1.

use jaguar_ring::Prg;
use jaguar_ring::cpu::secret::declassify;
use jaguar_wire::Channel;
use zeroize::{Zeroize, Zeroizing};

use crate::base::Key;
use crate::hash::combinations;
use crate::{Block, OtError};

/// Base OTs that are needed: one per column but column 0.
pub(crate) const BASE: usize = 127;

/// Sums that are opened, and rows that are given up for them.
const OPENED: usize = 128;

/// Rows that are handed out when `count` are wanted.
const fn rows(count: usize) -> usize {
    count.next_multiple_of(128)
}

/// Bytes that the receiver sends for `count` COTs.
pub(crate) const fn bytes(count: usize) -> usize {
    (rows(count) + OPENED) / 8 * BASE + OPENED * size_of::<Block>()
}

/// The choice bits that the COT sender takes in the base OTs: bits 1..128 of Δ.
pub(crate) fn choices(delta: Block) -> Zeroizing<Vec<bool>> {
    Zeroizing::new((1..128).map(|j| delta.0 >> j & 1 == 1).collect())
}

/// The COT receiver's part: at least `count` rows `t`, with the choice bits in bit 0. `transcript` is a hash of the base OTs.
pub(crate) fn receive(
    chan: &mut Channel,
    prg: &mut Prg,
    keys: &[[Key; 2]],
    transcript: &[u8; 32],
    count: usize,
) -> Result<Zeroizing<Vec<Block>>, OtError> {
    let (mut t, challenge) = receive_columns(chan, prg, keys, transcript, count, |_, _| ())?;
    // 4. The check: this party's halves of the sums.
    chan.send(bytemuck::cast_slice(&sums(&t, challenge)[..]))?;
    chan.flush()?;
    give_up_opened(&mut t);
    Ok(t)
}

/// The COT sender's part: as many rows `q`, with bit 0 zero.
///
/// # Errors
/// When the connection fails, or the receiver did not take the same choice bits in all columns: but for what it guessed right of
/// Δ.
pub(crate) fn send(
    chan: &mut Channel,
    delta: Block,
    keys: &[Key],
    transcript: &[u8; 32],
    count: usize,
) -> Result<Zeroizing<Vec<Block>>, OtError> {
    let (mut q, challenge) = send_columns(chan, delta, keys, transcript, count)?;
    // 4. The check.
    let mut theirs = [Block::ZERO; OPENED];
    chan.recv_into(bytemuck::cast_slice_mut(&mut theirs))?;
    let own = sums(&q, challenge);
    let mut differing =
        own.iter().zip(&theirs).fold(0, |all, (q, t)| all | (*q ^ *t ^ delta.masked(t.lsb())).0);
    // The peer learns whether its sums were right.
    declassify(std::slice::from_mut(&mut differing));
    if differing != 0 {
        return Err(OtError::PeerMisbehaved {
            protocol: "OT extension",
            what: "its choice bits differ from column to column",
        });
    }
    give_up_opened(&mut q);
    Ok(q)
}

/// Steps 1 to 3 of the receiver: the rows, those that will be opened included, and the challenge. `lie` may change what is sent for
/// a column (tests do).
fn receive_columns(
    chan: &mut Channel,
    prg: &mut Prg,
    keys: &[[Key; 2]],
    transcript: &[u8; 32],
    count: usize,
    lie: impl Fn(usize, &mut [Block]),
) -> Result<(Zeroizing<Vec<Block>>, Prg), OtError> {
    assert!(keys.len() == BASE);
    // 1. Column 0: the choice bits themselves.
    let mut t = Zeroizing::new(vec![Block::ZERO; rows(count) + OPENED]);
    let words = t.len() / 128;
    let mut r = Zeroizing::new(vec![Block::ZERO; words]);
    prg.fill(bytemuck::cast_slice_mut(&mut r));
    let mut columns = Zeroizing::new(vec![Block::ZERO; t.len()]);
    columns[..words].copy_from_slice(&r);
    // 2. The other columns, and the masked choice bits for each.
    let mut sent = transcript_of(transcript);
    let mut u = Zeroizing::new(vec![Block::ZERO; words]);
    for (j, [key0, key1]) in keys.iter().enumerate() {
        let column = &mut columns[(j + 1) * words..(j + 2) * words];
        Prg::new(**key0).fill(bytemuck::cast_slice_mut(column));
        Prg::new(**key1).fill(bytemuck::cast_slice_mut(&mut u));
        for ((u, t), r) in u.iter_mut().zip(column.iter()).zip(r.iter()) {
            *u ^= *t ^ *r;
        }
        lie(j + 1, &mut u);
        sent.update(bytemuck::cast_slice(&u));
        chan.send(bytemuck::cast_slice(&u))?;
    }
    // 3. Columns to rows.
    transpose(&columns, &mut t);
    Ok((t, challenge(&sent)))
}

/// Steps 1 to 3 of the sender.
fn send_columns(
    chan: &mut Channel,
    delta: Block,
    keys: &[Key],
    transcript: &[u8; 32],
    count: usize,
) -> Result<(Zeroizing<Vec<Block>>, Prg), OtError> {
    assert!(keys.len() == BASE && delta.lsb());
    // 1. Column 0: nothing.
    let mut q = Zeroizing::new(vec![Block::ZERO; rows(count) + OPENED]);
    let words = q.len() / 128;
    let mut columns = Zeroizing::new(vec![Block::ZERO; q.len()]);
    // 2. The other columns, corrected where Δ has a one.
    let mut received = transcript_of(transcript);
    let mut u = vec![Block::ZERO; words];
    for (j, key) in keys.iter().enumerate() {
        let column = &mut columns[(j + 1) * words..(j + 2) * words];
        Prg::new(**key).fill(bytemuck::cast_slice_mut(column));
        chan.recv_into(bytemuck::cast_slice_mut(&mut u))?;
        received.update(bytemuck::cast_slice(&u));
        let bit = Block::mask(delta.0 >> (j + 1) & 1 == 1);
        for (q, u) in column.iter_mut().zip(&u) {
            *q ^= *u & bit;
        }
    }
    // 3. Columns to rows.
    transpose(&columns, &mut q);
    Ok((q, challenge(&received)))
}

/// The challenge: public, a hash of what was sent.
fn challenge(sent: &blake3::Hasher) -> Prg {
    let mut seed: [u8; 32] = sent.finalize().into();
    declassify(&mut seed);
    Prg::new(seed)
}

/// What the challenge is a hash of begins with the base OTs.
fn transcript_of(base: &[u8; 32]) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new_derive_key("jaguar-ot IKNP check");
    hasher.update(base);
    hasher
}

/// Every sum: of the rows that the challenge names, and of one of the last [`OPENED`] rows. Of eight rows at a time, all sums of four
/// are made, and taken where the challenge says, which is public (the method of the four Russians: Arlazarov, Dinic, Kronrod and
/// Faradžev 1970).
fn sums(rows: &[Block], mut challenge: Prg) -> Zeroizing<[Block; OPENED]> {
    let (rows, last) = rows.split_at(rows.len() - OPENED);
    let mut sums = Zeroizing::new([Block::ZERO; OPENED]);
    sums.copy_from_slice(last);
    let mut named = [0u128; 128];
    for rows in rows.chunks_exact(named.len()) {
        challenge.fill(bytemuck::cast_slice_mut(&mut named));
        // Line b: which rows sum b is of.
        transpose_square(&mut named);
        for (eight, rows) in rows.as_chunks::<8>().0.iter().enumerate() {
            let [low, high] = [0, 4].map(|at| {
                let four = Zeroizing::new(std::array::from_fn(|i| rows[at + i]));
                Zeroizing::new(combinations(&four))
            });
            for (sum, named) in sums.iter_mut().zip(&named) {
                let which = usize::from(named.to_le_bytes()[eight]);
                *sum ^= low[which & 15] ^ high[which >> 4];
            }
        }
    }
    sums
}

/// Forgets the rows that were opened.
fn give_up_opened(rows: &mut Vec<Block>) {
    let kept = rows.len() - OPENED;
    rows[kept..].zeroize();
    rows.truncate(kept);
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

    const DELTA: Block = Block(0x0123_4567_89ab_cdef_fedc_ba98_7654_3211);

    /// A hash of base OTs.
    const BASE_OTS: [u8; 32] = [7; 32];

    fn chosen(pairs: &[[Key; 2]]) -> Vec<Key> {
        pairs.iter().zip(choices(DELTA).iter()).map(|(pair, &c)| pair[usize::from(c)].clone()).collect()
    }

    /// **An attack**, on the columns without the check. The receiver takes the opposite choice bit for row j in column j alone.
    /// Of the 127 rows those work where Δ has a zero: together they spell Δ.
    #[test]
    fn without_the_check_a_receiver_reads_delta() {
        let pairs = keys(&mut Prg::new([5; 32]));
        let chosen = chosen(&pairs);
        let lie = |j: usize, u: &mut [Block]| u[0] ^= Block(1 << j);
        let run = two_parties::run(
            |chan| send_columns(chan, DELTA, &chosen, &BASE_OTS, 128).map(|(q, _)| q),
            |chan| {
                let prg = &mut Prg::new([6; 32]);
                let (t, _) = receive_columns(chan, prg, &pairs, &BASE_OTS, 128, lie)?;
                chan.flush()?;
                Ok::<_, OtError>(t)
            },
        );
        let (q, t) = (run.first.unwrap(), run.second.unwrap());
        let works = |i: usize| t[i] == q[i] ^ DELTA.masked(t[i].lsb());
        let found = (1..128).filter(|&i| !works(i)).fold(1, |delta, i| delta | 1u128 << i);
        assert_eq!(found, DELTA.0);
        assert!((128..256).all(works), "the other rows do");
    }

    /// With the check the same lie is found if Δ has a one in any column that is lied in, and so a receiver that is not found has
    /// guessed these bits.
    #[test]
    fn with_the_check_a_lie_is_found_unless_delta_was_guessed() {
        let pairs = keys(&mut Prg::new([5; 32]));
        let chosen = chosen(&pairs);
        let single = (1..128).map(|j| vec![j]);
        for columns in single.chain([(1..128).collect(), (4..128).collect::<Vec<_>>(), vec![9, 8, 10]]) {
            let guessed = columns.iter().all(|j| DELTA.0 >> j & 1 == 0);
            let lie = |j: usize, u: &mut [Block]| {
                if columns.contains(&j) {
                    u[0] ^= Block(1 << j);
                }
            };
            let run = two_parties::run(
                |chan| send(chan, DELTA, &chosen, &BASE_OTS, 128),
                |chan| {
                    let prg = &mut Prg::new([6; 32]);
                    let (t, challenge) = receive_columns(chan, prg, &pairs, &BASE_OTS, 128, lie)?;
                    chan.send(bytemuck::cast_slice(&sums(&t, challenge)[..]))?;
                    chan.flush()?;
                    Ok::<_, OtError>(t)
                },
            );
            match run.first {
                Ok(_) => assert!(guessed, "{columns:?} was not found"),
                Err(OtError::PeerMisbehaved { protocol: "OT extension", .. }) => assert!(!guessed),
                Err(other) => panic!("another error: {other}"),
            }
        }
    }

    /// By their definition: one row after the other, one bit of the challenge after the other.
    #[test]
    fn sums_are_of_the_rows_that_the_challenge_names() {
        let mut rows = vec![Block::ZERO; 4 * 128];
        Prg::new([8; 32]).fill(bytemuck::cast_slice_mut(&mut rows));
        let (summed, last) = rows.split_at(3 * 128);
        let mut named = vec![Block::ZERO; summed.len()];
        Prg::new([9; 32]).fill(bytemuck::cast_slice_mut(&mut named));
        let sum = |b: usize| {
            let of_named = summed.iter().zip(&named).filter(|(_, named)| named.0 >> b & 1 == 1);
            of_named.fold(last[b], |sum, (row, _)| sum ^ *row)
        };
        let sums = sums(&rows, Prg::new([9; 32]));
        assert!((0..OPENED).all(|b| sums[b] == sum(b)));
    }

    /// Sums that fit no column are found too.
    #[test]
    fn wrong_sums_are_found() {
        let pairs = keys(&mut Prg::new([5; 32]));
        let chosen = chosen(&pairs);
        for at in [0, 1, 127] {
            let run = two_parties::run(
                |chan| send(chan, DELTA, &chosen, &BASE_OTS, 128),
                |chan| {
                    let prg = &mut Prg::new([6; 32]);
                    let (t, challenge) = receive_columns(chan, prg, &pairs, &BASE_OTS, 128, |_, _| ())?;
                    let mut sums = sums(&t, challenge);
                    sums[at] ^= Block(1 << at);
                    chan.send(bytemuck::cast_slice(&sums[..]))?;
                    chan.flush()?;
                    Ok::<_, OtError>(())
                },
            );
            assert!(matches!(run.first, Err(OtError::PeerMisbehaved { protocol: "OT extension", .. })));
        }
    }

    #[test]
    fn halves_correlate() {
        let n = 3 * 128;
        let (delta, pairs) = (DELTA, keys(&mut Prg::new([5; 32])));
        let chosen = chosen(&pairs);
        let run = two_parties::run(
            |chan| send(chan, delta, &chosen, &BASE_OTS, n - 5),
            |chan| receive(chan, &mut Prg::new([6; 32]), &pairs, &BASE_OTS, n - 5),
        );
        let (q, t) = (run.first.as_ref().unwrap(), run.second.as_ref().unwrap());
        assert!(q.len() == n && t.len() == n);
        for (q, t) in q.iter().zip(t.iter()) {
            assert!(!q.lsb() && *t == *q ^ delta.masked(t.lsb()));
        }
        // Binomial, standard deviation 9.8.
        let ones = t.iter().filter(|t| t.lsb()).count();
        assert!((130..=254).contains(&ones), "{ones} ones of {n}");
        let bytes = bytes(n - 5) as u64;
        assert_eq!(bytes, 127 * n as u64 / 8 + 4080);
        assert_eq!((run.traffic.sent, run.traffic.received, run.traffic.rounds), (0, bytes, 1));
        assert_eq!(run.digest(), "9a35739a347621fecdc0791ca7e471fd09364cc2cecb116cf4a9e0d60fbfe0a0");
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
