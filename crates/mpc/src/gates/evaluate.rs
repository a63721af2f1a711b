//! Evaluating a [`Formula`] on shares: \[bits\] <- Evaluate(\[x\]).
//!
//! *Digits.* A table of 2^m entries from m random OTs (Naor and Pinkas, STOC 1999): with the pads
//! K_i^0, K_i^1 of the i-th OT read as long strings, the mask of entry v is ⊕_i K_i^{v_i} **at the place that
//! belongs to v**. A receiver with choices r_i knows K_i^{r_i}, hence the mask of entry r; for every other
//! entry it misses some K_i^{v_i}, of which the bits at v's place are used for v only. So 2m hashes make all
//! masks (2^m would be needed to hash one mask each), and nothing is assumed but a correlation-robust hash.
//! The masks are made offline. Online the client, with digit a, sends a ⊕ r; the server moves mask
//! v ⊕ a ⊕ r to entry v, adds its table, and chooses its share so that entry 0 becomes zero and need not be
//! sent.
//!
//! *Gates.* An AND opens both operands under a prepared triple (Beaver, CRYPTO 1991). A triple costs one
//! random OT in each direction: with choices as α, and the difference of a sender's pads as its β, the pads
//! share the cross terms α_c·β_s and α_s·β_c with nothing to send. One pair of OTs serves all ANDs with the
//! same first operand.
//!
//! Who learns what: the client's corrections and all opened bits are masked by bits that the receiver does
//! not know and that are used once; each table entry but the client's is masked by a pad unknown to it.
//!
//! Bytes: a plane per bit of correction up, the tables' planes down, opened planes both ways. Turns
//! alternate: the server sends its opening of the first level right behind the tables, the client answers
//! with its openings of levels one and two, the server with two and three, and so on, so that a level costs
//! one flight.

use std::borrow::Cow;

use jaguar_ot::{CotSource, Role};
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::block::BLOCK_ELEMENTS;
use crate::cost::Cost;
use crate::error::MpcError;
use crate::gates::bits::Bits;
use crate::gates::formula::Formula;
use crate::kernels::circuit::And;
use crate::kernels::lanes::{
    GROUP, Lanes, group_len, groups, lane_bytes, plane_bytes, read_lanes, write_lanes,
};
use crate::kernels::loops::{self, Level};
use crate::kernels::planes::{self, Sink};
use crate::party::{Pads, Party};

/// The server answers corrections in batches of so many groups, a block's, so that what is not cut into blocks (plain
/// comparisons, argmax, the full range) keeps both directions of the link busy as well.
const BATCH: usize = BLOCK_ELEMENTS / GROUP;

/// Prepared material for one evaluation. The server's planes of a group: every table's masks, then the
/// triples. The client's: random choices, masks of the chosen entries, triples.
pub(crate) struct FormulaMaterial {
    pub(crate) role: Role,
    pub(crate) count: usize,
    pub(crate) formula: Formula,
    level: Level,
    planes: Zeroizing<Vec<Lanes>>,
}

/// Planes of a group that `role` keeps.
fn stride(formula: &Formula, role: Role) -> usize {
    formula.triple_planes()
        + match role {
            Role::Client => formula.corrections() + formula.looked_up(),
            Role::Server => formula.table_planes(),
        }
}

/// What digits and gates cost, without rounds.
pub(crate) fn cost(count: usize, formula: &Formula) -> Cost {
    let ands = formula.circuit.ands().count();
    let opened: usize = formula.circuit.ands().map(And::opened).sum();
    let memory = |role| (groups(count) * stride(formula, role) * size_of::<Lanes>()) as u64;
    Cost {
        cots_from_server: ((formula.corrections() + ands) * count) as u64,
        cots_from_client: (ands * count) as u64,
        client_memory: memory(Role::Client),
        server_memory: memory(Role::Server),
        up: plane_bytes(count, formula.corrections() + opened) as u64,
        down: plane_bytes(count, formula.message_planes() + opened) as u64,
        ..Cost::default()
    }
}

/// In the masks' string, the places of all entries `v` with bit `i` clear.
fn places(size: usize, width: usize, i: usize) -> u64 {
    let entry = u64::MAX >> (64 - width);
    (0..size).filter(|v| v >> i & 1 == 0).fold(0, |all, v| all | entry << (v * width))
}

impl FormulaMaterial {
    /// Uses up `corrections` COTs from the server and one in each direction per AND, for each element.
    pub(crate) fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        formula: Formula,
    ) -> Result<Self, MpcError> {
        let (role, level) = (party.role(), party.level);
        let mut sink = Sink::new(level, stride(&formula, role) * groups(count));
        let mut words = Zeroizing::new([0u64; GROUP]);
        for g in 0..groups(count) {
            let len = group_len(count, g);
            // 1. Digits. The client's masks wait until its choices are written.
            let mut masks: Vec<(Zeroizing<[u64; GROUP]>, u32)> = Vec::new();
            for digit in &formula.digits {
                let (bits, width) = (digit.bits, digit.width());
                words.fill(0);
                match party.pads(chan, Role::Server, bits * len)? {
                    Pads::Sender(zero, one) => {
                        for i in 0..bits {
                            let (zero, one) = (&zero[i * len..][..len], &one[i * len..][..len]);
                            loops::blend(level, &mut words[..len], zero, one, places(1 << bits, width, i));
                        }
                        sink.push(&words[..len], digit.planes() as u32);
                    }
                    Pads::Receiver(pads, choices) => {
                        let mut mask = Zeroizing::new([0u64; GROUP]);
                        for e in 0..len {
                            let (mut choice, mut word) = (0, 0);
                            for i in 0..bits {
                                choice |= u64::from(choices[i * len + e]) << i;
                                word ^= pads[i * len + e].0 as u64;
                            }
                            words[e] = choice;
                            mask[e] = word >> (choice * width as u64) & (u64::MAX >> (64 - width));
                        }
                        sink.push(&words[..len], bits as u32);
                        masks.push((mask, width as u32));
                    }
                }
            }
            for (mask, width) in masks {
                sink.push(&mask[..len], width);
            }
            // 2. Triples.
            let ands: Vec<&And> = formula.circuit.ands().collect();
            let mut triples = Zeroizing::new(vec![0u64; ands.len() * len]);
            for sender in [Role::Server, Role::Client] {
                let pads = party.pads(chan, sender, triples.len())?;
                for (a, and) in ands.iter().enumerate() {
                    let n = and.b.len();
                    let low = (1u64 << n) - 1;
                    for (e, triple) in triples[a * len..][..len].iter_mut().enumerate() {
                        let i = a * len + e;
                        // Bit 0 is α, then β, then the sum of what this party has of the cross terms.
                        *triple ^= match pads {
                            Pads::Sender(zero, one) => {
                                let (zero, one) = (zero[i].0 as u64 & low, one[i].0 as u64 & low);
                                (zero ^ one) << 1 | zero << (1 + n)
                            }
                            Pads::Receiver(pads, choices) => {
                                u64::from(choices[i]) | (pads[i].0 as u64 & low) << (1 + n)
                            }
                        };
                    }
                }
            }
            for (a, and) in ands.iter().enumerate() {
                let n = and.b.len();
                let own = &mut triples[a * len..][..len];
                for triple in own.iter_mut() {
                    // The own product α·β completes γ.
                    let (alpha, beta) = (*triple & 1, *triple >> 1 & ((1 << n) - 1));
                    *triple ^= (alpha.wrapping_neg() & beta) << (1 + n);
                }
                sink.push(own, and.triple() as u32);
            }
            sink.flush();
        }
        Ok(Self { role, count, formula, level, planes: std::mem::take(&mut sink.planes) })
    }

    fn stride(&self) -> usize {
        stride(&self.formula, self.role)
    }

    fn group(&self, g: usize) -> &[Lanes] {
        &self.planes[g * self.stride()..][..self.stride()]
    }

    /// Step 1 of the client: sends the corrections of all elements.
    pub(crate) fn client_correct(&self, chan: &mut Channel, x: &[u64]) -> Result<(), MpcError> {
        let mut bytes = Vec::new();
        for (g, x) in x.chunks(GROUP).enumerate() {
            let own = Zeroizing::new(planes::load(self.level, x, |x| self.formula.client_cell(x)));
            let mut random = self.group(g).iter();
            for digit in &self.formula.digits {
                for choice in &own[digit.shift..][..digit.bits] {
                    let random = random.next().expect("a random choice for every bit");
                    write_lanes(&mut bytes, &(*choice ^ *random), x.len());
                }
            }
            chan.send(&bytes)?;
            bytes.clear();
        }
        Ok(())
    }

    /// Step 2 of the client: picks its entries of the tables; `x` is what it corrected by.
    pub(crate) fn client_take(self, chan: &mut Channel, x: &[u64]) -> Result<Running, MpcError> {
        let formula = &self.formula;
        let (wires, corrections) = (formula.circuit.wires(), formula.corrections());
        let mut all = Zeroizing::new(vec![Lanes::ZERO; groups(self.count) * wires]);
        let mut message = vec![Lanes::ZERO; formula.message_planes()];
        let mut choices = Zeroizing::new(Vec::with_capacity(corrections));
        for (g, x) in x.chunks(GROUP).enumerate() {
            let bytes = chan.recv(message.len() * lane_bytes(x.len()))?;
            let mut bytes = &bytes[..];
            message.iter_mut().for_each(|lanes| *lanes = read_lanes(&mut bytes, x.len()));
            let own = Zeroizing::new(planes::load(self.level, x, |x| formula.client_cell(x)));
            choices.clear();
            formula.digits.iter().for_each(|d| choices.extend_from_slice(&own[d.shift..][..d.bits]));
            let wires = &mut all[g * wires..][..wires];
            let masks = &self.group(g)[corrections..];
            let shares = &mut wires[..formula.looked_up()];
            loops::take(self.level, &formula.digits, &choices, masks, &message, shares);
            if let Some((wire, plane)) = formula.local {
                wires[wire] = own[plane];
            }
        }
        Ok(Running::new(self, all))
    }

    /// Steps 1 and 2 of the server: takes the corrections, as they come from `corrected`, and answers with tables.
    pub(crate) fn server_serve(
        self,
        corrected: &mut Corrections,
        chan: &mut Channel,
        x: &[u64],
    ) -> Result<Running, MpcError> {
        let formula = &self.formula;
        let wires = formula.circuit.wires();
        let mut all = Zeroizing::new(vec![Lanes::ZERO; groups(self.count) * wires]);
        let mut corrections = Vec::with_capacity(formula.corrections());
        let mut message = vec![Lanes::ZERO; formula.message_planes()];
        let mut out = Vec::new();
        for (batch, x) in x.chunks(BATCH * GROUP).enumerate() {
            let bytes = corrected.take(chan, plane_bytes(x.len(), formula.corrections()))?;
            let mut bytes = &bytes[..];
            for (g, x) in x.chunks(GROUP).enumerate() {
                let g = batch * BATCH + g;
                corrections.clear();
                corrections.extend((0..formula.corrections()).map(|_| read_lanes(&mut bytes, x.len())));
                let own = Zeroizing::new(planes::load(self.level, x, |x| formula.server_cell(x)));
                let wires = &mut all[g * wires..][..wires];
                let shares = &mut wires[..formula.looked_up()];
                let masks = self.group(g);
                loops::serve(self.level, &formula.digits, &corrections, &own, masks, &mut message, shares);
                if let Some((wire, plane)) = formula.local {
                    wires[wire] = own[plane];
                }
                message.iter().for_each(|lanes| write_lanes(&mut out, lanes, x.len()));
                chan.send(&out)?;
                out.clear();
            }
        }
        Ok(Running::new(self, all))
    }
}

/// Where the server has the client's corrections from.
pub(crate) enum Corrections {
    /// They come now.
    Online,
    /// They came offline; so much of them has been used.
    Early(Vec<u8>, usize),
}

impl Corrections {
    /// The next `n` bytes.
    pub(crate) fn take(&mut self, chan: &mut Channel, n: usize) -> Result<Cow<'_, [u8]>, MpcError> {
        match self {
            Self::Online => Ok(Cow::Owned(chan.recv(n)?)),
            Self::Early(bytes, used) => {
                *used += n;
                Ok(Cow::Borrowed(&bytes[*used - n..*used]))
            }
        }
    }
}

/// Either party while it evaluates the gates.
pub(crate) struct Running {
    prepared: FormulaMaterial,
    wires: Zeroizing<Vec<Lanes>>,
    opened: Vec<Lanes>,
    /// Levels done.
    done: usize,
}

impl Running {
    fn new(prepared: FormulaMaterial, wires: Zeroizing<Vec<Lanes>>) -> Self {
        Self { prepared, wires, opened: Vec::new(), done: 0 }
    }

    /// Levels of gates left to do.
    pub(crate) fn levels_left(&self) -> usize {
        self.prepared.formula.depth() - self.done
    }

    fn each_group(&mut self, mut f: impl FnMut(&FormulaMaterial, &mut [Lanes], &mut [Lanes], usize)) {
        let stride = self.prepared.formula.circuit.wires();
        let opened = self.opened.len() / groups(self.prepared.count).max(1);
        for g in 0..groups(self.prepared.count) {
            let wires = &mut self.wires[g * stride..][..stride];
            f(&self.prepared, wires, &mut self.opened[g * opened..][..opened], g);
        }
    }

    fn xors(&mut self) {
        let done = self.done;
        self.each_group(|prepared, wires, _, _| {
            for &[out, a, b] in prepared.formula.circuit.xors.get(done).into_iter().flatten() {
                wires[out] = wires[a] ^ wires[b];
            }
        });
    }

    /// First plane of the current level's triples in a group.
    fn triples_at(&self) -> usize {
        let formula = &self.prepared.formula;
        let before = formula.circuit.levels[..self.done].iter().flatten().map(And::triple).sum::<usize>();
        self.prepared.stride() - formula.triple_planes() + before
    }

    /// What this party opens at the next level.
    pub(crate) fn opening(&mut self) -> Vec<u8> {
        self.xors();
        let (level, at) = (self.done, self.triples_at());
        let planes: usize = self.prepared.formula.circuit.levels[level].iter().map(And::opened).sum();
        self.opened = vec![Lanes::ZERO; planes * groups(self.prepared.count)];
        let mut bytes = Vec::with_capacity(plane_bytes(self.prepared.count, planes));
        self.each_group(|prepared, wires, opened, g| {
            let ands = &prepared.formula.circuit.levels[level];
            loops::open(prepared.level, ands, wires, &prepared.group(g)[at..], opened);
            let len = group_len(prepared.count, g);
            opened.iter().for_each(|lanes| write_lanes(&mut bytes, lanes, len));
        });
        bytes
    }

    /// Finishes the level with what the peer opened, as many bytes as this party opened.
    pub(crate) fn close(&mut self, theirs: &[u8]) {
        let (level, at) = (self.done, self.triples_at());
        let mut theirs = theirs;
        let one = if self.prepared.role == Role::Server { Lanes::ONES } else { Lanes::ZERO };
        self.each_group(|prepared, wires, opened, g| {
            let len = group_len(prepared.count, g);
            for lanes in opened.iter_mut() {
                *lanes = *lanes ^ read_lanes(&mut theirs, len);
            }
            let ands = &prepared.formula.circuit.levels[level];
            loops::close(prepared.level, ands, wires, &prepared.group(g)[at..], opened, one);
        });
        self.done += 1;
    }

    pub(crate) fn role(&self) -> Role {
        self.prepared.role
    }

    pub(crate) fn count(&self) -> usize {
        self.prepared.count
    }

    /// The shares of the results, once, after the last level.
    pub(crate) fn results(&mut self) -> Vec<Bits> {
        assert_eq!(self.levels_left(), 0, "all levels are done");
        self.xors();
        let count = self.prepared.count;
        let stride = self.prepared.formula.circuit.wires();
        let wires = &self.wires;
        let of = |&wire: &usize| {
            Bits::from_lanes(count, (0..groups(count)).map(|g| wires[g * stride + wire]).collect())
        };
        self.prepared.formula.outputs.iter().map(of).collect()
    }
}

/// Turn number `turn` (from 1) of openings: both parties send as many bytes. At odd turns the server sends
/// first, at even ones the client, so each party's message carries the answer to the last turn and its own
/// part of the next. `between` runs after the first half of the turn.
pub(crate) fn exchange(
    chan: &mut Channel,
    role: Role,
    turn: usize,
    mine: &[u8],
    between: impl FnOnce(&mut Channel) -> Result<(), MpcError>,
) -> Result<Vec<u8>, MpcError> {
    if (turn % 2 == 1) == (role == Role::Server) {
        chan.send(mine)?;
        between(chan)?;
        Ok(chan.recv(mine.len())?)
    } else {
        let theirs = chan.recv(mine.len())?;
        between(chan)?;
        chan.send(mine)?;
        Ok(theirs)
    }
}
