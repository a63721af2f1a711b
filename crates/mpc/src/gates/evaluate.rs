//! Evaluating a [`Formula`] on shares: \[bits\] <- Evaluate(\[x\]).
//!
//! *Digits.* A table of 2^m entries, m ≤ 4, from one vector correlation: with the pads of a random 1-of-16 OT as masks,
//! a receiver with the choice r, of four bits, knows mask r and no other. The masks are made offline. Online the client,
//! with digit a, sends a ⊕ r, all four bits of it, those of a beyond its m being zero: uniform, since r is. The
//! server moves mask v ⊕ a ⊕ r to entry v < 2^m, adds its table, and chooses its share so that entry 0 becomes zero and
//! need not be sent.
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

use jaguar_ot::threads::each_with;
use jaguar_ot::{CotSource, Role, Width};
use jaguar_ring::cpu::secret::BitMasks;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::block::BLOCK_ELEMENTS;
use crate::cost::Cost;
use crate::error::MpcError;
use crate::gates::bits::Bits;
use crate::gates::formula::Formula;
use crate::kernels::circuit::{And, CHOICES};
use crate::kernels::lanes::{
    GROUP, Lanes, group_len, groups, lane_bytes, plane_bytes, read_lanes, write_lanes,
};
use crate::kernels::loops::{self, Level};
use crate::kernels::planes::{self, Sink};
use crate::party::{Correlations, Masks, Pads, Party, Room};

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

/// What some groups are made of: those of an element side by side.
struct Drawn {
    digits: Correlations,
    /// From the server, from the client.
    ands: [Correlations; 2],
}

/// Room to make groups in, one after the other.
struct Workbench {
    room: Room,
    words: Zeroizing<Vec<u64>>,
    choices: Zeroizing<Vec<u64>>,
    /// The client's masks, until its choices are written.
    chosen: Zeroizing<Vec<u64>>,
    triples: Zeroizing<Vec<u64>>,
    sink: Sink,
}

impl Workbench {
    fn new(level: Level, formula: &Formula, role: Role) -> Self {
        let words = |n: usize| Zeroizing::new(vec![0; n * GROUP]);
        Self {
            room: Room::default(),
            words: words(1),
            choices: words(1),
            chosen: words(formula.digits.len()),
            triples: words(formula.circuit.ands().count()),
            sink: Sink::new(level, stride(formula, role)),
        }
    }
}

impl Drawn {
    /// The digits of the `len` elements from `at` on: all masks, or all choices and then the chosen masks.
    fn digits(&self, formula: &Formula, at: usize, len: usize, work: &mut Workbench) {
        let Workbench { room, words, choices, chosen, sink, .. } = work;
        let (words, choices) = (&mut words[..len], &mut choices[..len]);
        let at = at * formula.digits.len();
        let mut receives = false;
        for (d, digit) in formula.digits.iter().enumerate() {
            match self.digits.masks(at + d * len, digit.width() as u32, words, choices, room) {
                Masks::Sender => sink.push(words, digit.planes() as u32),
                Masks::Receiver => {
                    receives = true;
                    sink.push(choices, CHOICES as u32);
                    chosen[d * GROUP..][..len].copy_from_slice(words);
                }
            }
        }
        for (digit, masks) in formula.digits.iter().zip(chosen.chunks(GROUP)).filter(|_| receives) {
            sink.push(&masks[..len], digit.width() as u32);
        }
    }

    /// The triples of the same elements.
    fn triples(&self, formula: &Formula, at: usize, len: usize, work: &mut Workbench) {
        let ands: Vec<&And> = formula.circuit.ands().collect();
        let Workbench { room, triples, sink, .. } = work;
        let triples = &mut triples[..ands.len() * len];
        triples.fill(0);
        for correlations in &self.ands {
            let pads = correlations.pads(at * ands.len(), triples.len(), room);
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
        let masks = BitMasks::new();
        for (a, and) in ands.iter().enumerate() {
            let n = and.b.len();
            let own = &mut triples[a * len..][..len];
            for triple in own.iter_mut() {
                // The own product α·β completes γ.
                let (alpha, beta) = (*triple & 1, *triple >> 1 & ((1 << n) - 1));
                *triple ^= (masks.of(alpha) & beta) << (1 + n);
            }
            sink.push(own, and.triple() as u32);
        }
    }
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
        vectors_from_server: (formula.digits.len() * count) as u64,
        bits_from_server: (ands * count) as u64,
        bits_from_client: (ands * count) as u64,
        client_memory: memory(Role::Client),
        server_memory: memory(Role::Server),
        up: plane_bytes(count, formula.corrections() + opened) as u64,
        down: plane_bytes(count, formula.message_planes() + opened) as u64,
        ..Cost::default()
    }
}

impl FormulaMaterial {
    /// Uses up a vector correlation from the server for each digit, and a bit in each direction for each AND, of
    /// each element.
    pub(crate) fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        formula: Formula,
    ) -> Result<Self, MpcError> {
        let (role, level) = (party.role(), party.level);
        let (stride, ands) = (stride(&formula, role), formula.circuit.ands().count());
        let mut planes = Zeroizing::new(vec![Lanes::ZERO; stride * groups(count)]);
        for (batch, planes) in planes.chunks_mut(stride.max(1) * BATCH).enumerate() {
            let len = (count - batch * BATCH * GROUP).min(BATCH * GROUP);
            // A long stretch of each kind, so that one secret is in the cache at a time.
            let drawn = Drawn {
                digits: party.draw(chan, Role::Server, Width::Vector, formula.digits.len() * len)?,
                ands: [
                    party.draw(chan, Role::Server, Width::Bit, ands * len)?,
                    party.draw(chan, Role::Client, Width::Bit, ands * len)?,
                ],
            };
            let groups = planes.chunks_mut(stride.max(1)).enumerate();
            let work = || Workbench::new(level, &formula, role);
            each_with(groups.collect(), work, |work, (g, planes): (usize, &mut [Lanes])| {
                let (at, len) = (g * GROUP, group_len(len, g));
                work.sink.planes.clear();
                drawn.digits(&formula, at, len, work);
                drawn.triples(&formula, at, len, work);
                work.sink.flush();
                planes.copy_from_slice(&work.sink.planes);
            });
            let [from_server, from_client] = drawn.ands;
            for correlations in [drawn.digits, from_server, from_client] {
                party.done_with(correlations);
            }
        }
        Ok(Self { role, count, formula, level, planes })
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
                for i in 0..CHOICES {
                    let choice = if i < digit.bits { own[digit.shift + i] } else { Lanes::ZERO };
                    let random = random.next().expect("a random choice for every bit");
                    write_lanes(&mut bytes, &(choice ^ *random), x.len());
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
