//! How numbers lie in polynomials and messages, for both parties of a triple: of public figures alone.

use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::rns::{
    Ciphertext, Coefficients, DrawnCiphertext, DrawnMessages, PlainModulus, Poly, Ring, Scalar, Values,
};
use jaguar_ring::prg::Prg;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use super::tiling::{Layout, Lent, MORE, SEED, Tiling};
use crate::error::MpcError;

/// Coefficients of the shortest polynomial that is transformed as such.
const SHORTEST: usize = 16;

/// Numbers that are wiped.
pub(super) type Words = Zeroizing<Vec<u64>>;

pub(super) fn words(count: usize) -> Words {
    Zeroizing::new(vec![0; count])
}

/// What both parties compute with, of public figures alone.
pub(super) struct Tools {
    pub layout: Layout,
    pub ring: Ring,
    /// Of each term, how the client's numbers travel.
    pub drawn: Vec<DrawnMessages>,
    /// What leaves the ring; and the ring that it leaves.
    pub half: PlainModulus,
    pub left: Ring,
    pub half_bits: u32,
}

impl Tools {
    /// `None` where a plaintext modulus is too large.
    pub(super) fn new(cpu: Cpu, layout: Layout) -> Option<Self> {
        let ring = Ring::new(cpu, layout.parameters.clone());
        let half_bits = layout.made_bits + MORE;
        let half = PlainModulus::new(&ring, 1 << half_bits).ok()?;
        let drawn = |term: &Tiling| DrawnMessages::new(&ring, term.bits, term.dropped).ok();
        let drawn = layout.terms.iter().map(drawn).collect::<Option<_>>()?;
        let left = if layout.secrets > 1 { ring.smaller()? } else { ring.clone() };
        Some(Self { drawn, half, left, half_bits, ring, layout })
    }

    pub(super) fn n(&self) -> usize {
        self.ring.n()
    }

    pub(super) fn send(
        &self,
        chan: &mut Channel,
        seed: &[u8; SEED],
        b: &[&Poly<Values>],
    ) -> Result<(), MpcError> {
        chan.send(seed)?;
        for b in b {
            chan.send_packed(b.residues(), self.layout.prime_bits)?;
        }
        Ok(())
    }

    pub(super) fn receive_seed(&self, chan: &mut Channel) -> Result<[u8; SEED], MpcError> {
        let mut seed = [0; SEED];
        chan.recv_into(&mut seed)?;
        Ok(seed)
    }

    /// Any words stand for a polynomial.
    pub(super) fn receive_poly(&self, chan: &mut Channel) -> Result<Poly<Values>, MpcError> {
        Ok(self.ring.from_residues(&chan.recv_packed(self.ring.words(), self.layout.prime_bits)?))
    }

    pub(super) fn send_ciphertext(
        &self,
        chan: &mut Channel,
        term: usize,
        sent: &DrawnCiphertext,
    ) -> Result<(), MpcError> {
        chan.send(&sent.seed)?;
        chan.send_packed(&sent.offsets, self.drawn[term].offset_bits())?;
        Ok(chan.send_packed(&sent.zeros, self.layout.terms[term].bits)?)
    }

    pub(super) fn receive_ciphertext(
        &self,
        chan: &mut Channel,
        term: usize,
    ) -> Result<DrawnCiphertext, MpcError> {
        let tiling = &self.layout.terms[term];
        let seed = self.receive_seed(chan)?;
        let offsets = chan.recv_packed(self.n(), self.drawn[term].offset_bits())?;
        let zeros = chan.recv_packed(tiling.zeros(self.n()), tiling.bits)?;
        Ok(DrawnCiphertext { seed, offsets, zeros })
    }

    /// The ciphertext of what was sent, times what it is turned by.
    pub(super) fn turned(
        &self,
        term: usize,
        sent: &DrawnCiphertext,
        turn: &Poly<Values>,
    ) -> Ciphertext<Values> {
        let tiling = &self.layout.terms[term];
        let mut own = self.drawn[term].expand(&self.ring, sent, |i| tiling.is_zero(self.n(), i));
        own.multiply_assign(&self.ring, turn);
        own
    }

    /// A pack in the ring that it leaves.
    pub(super) fn leaving(&self, packed: Ciphertext<Values>) -> Ciphertext<Coefficients> {
        let packed = packed.into_coefficients(&self.ring);
        if self.layout.secrets > 1 { packed.drop_prime(&self.ring) } else { packed }
    }

    /// A share of the upper bits of what products are modulo, as one of all of it.
    pub(super) fn share(&self, tiling: &Tiling, upper: u64) -> u64 {
        upper << (tiling.product_bits() - self.layout.made_bits)
    }

    /// A pack's b half at its results, as the client has it: of a seed that both know.
    pub(super) fn shown(&self, seed: &[u8; SEED], group: usize, tiling: &Tiling, pack: usize) -> Vec<u64> {
        let mut shown = vec![0; tiling.count(pack)];
        let mut prg = Prg::derive(seed, "jaguar matrix b half", &[group as u64, pack as u64]);
        prg.fill_words(&mut shown, self.half_bits);
        shown
    }

    /// Takes the client's block of X, of the right rows and columns, from a message. (What else stands there means
    /// nothing.)
    pub(super) fn take_block(&self, tiling: &Tiling, message: &[u64], number: usize, x: &mut [u64]) {
        let (blocks, gap) = (tiling.inner_blocks(), tiling.gap());
        let (group, row, block) =
            (number / blocks / tiling.row_blocks(), number / blocks % tiling.row_blocks(), number % blocks);
        let rows = tiling.tile_rows.min(tiling.rows - row * tiling.tile_rows);
        let taken = gap.min(tiling.inner - block * gap);
        let first = group * tiling.together;
        for batch in first..(first + tiling.together).min(tiling.batch) {
            for i in 0..rows {
                let to = (batch * tiling.rows + row * tiling.tile_rows + i) * tiling.inner + block * gap;
                let from = i * tiling.tile_columns * gap + tiling.lane(batch);
                x[to..to + taken].copy_from_slice(&message[from..from + taken]);
            }
        }
    }

    /// X^(1 − K): what the client's ciphertexts are multiplied by, for the server's polynomials are X^(K − 1) times those
    /// of the equations, so that they begin at 1.
    pub(super) fn turn(&self, tiling: &Tiling) -> Poly<Values> {
        let mut turn = vec![0i8; self.n()];
        match tiling.gap() - 1 {
            0 => turn[0] = 1,
            back => turn[self.n() - back] = -1,
        }
        self.ring.to_values(self.ring.from_signed(&turn))
    }

    /// The server's block of W, over 2^pack_log2 and times X^(K − 1): its numbers of least absolute value modulo what
    /// products are. No more than the first M·K coefficients are there.
    pub(super) fn weights_into(
        &self,
        tiling: &Tiling,
        w: &[u64],
        [batch, column, block]: [usize; 3],
        scalar: &Scalar,
        out: &mut Poly<Values>,
    ) {
        let (gap, columns) = (tiling.gap(), tiling.columns);
        let mut coefficients = Zeroizing::new(vec![0i64; tiling.support().clamp(SHORTEST, self.n())]);
        let unused = u64::BITS - tiling.product_bits();
        let number = |value: u64| ((value << unused) as i64 >> unused) << tiling.above;
        if let Some(Lent { gap_log2, tile_rows }) = tiling.lent {
            // Of a row, at the negatives of its places in the client's ciphertext.
            let begin = block * tile_rows;
            let row = &w[batch * tiling.inner..][..tiling.inner];
            let first = (1usize << gap_log2) - 1;
            for (i, &value) in row[begin..].iter().take(tile_rows).enumerate() {
                match first.checked_sub((i << gap_log2) + batch % tiling.together) {
                    Some(place) => coefficients[place] = number(value),
                    None => {
                        let back = (i << gap_log2) + batch % tiling.together - first;
                        coefficients[self.n() - back] = -number(value);
                    }
                }
            }
            self.ring.short_values_into(&coefficients, scalar, out);
            return;
        }
        let first = column * tiling.tile_columns;
        let last = gap - 1 - tiling.lane(batch);
        for j in 0..gap.min(tiling.inner - block * gap) {
            let row = &w[(batch * tiling.inner + block * gap + j) * columns..][..columns];
            for (l, &value) in row[first..].iter().take(tiling.tile_columns).enumerate() {
                coefficients[l * gap + last - j] = number(value);
            }
        }
        self.ring.short_values_into(&coefficients, scalar, out);
    }
}
