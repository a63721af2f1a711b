//! Evaluating a [`Formula`] on shares: \[bits\] <- Evaluate(\[x\]).
//!
//! *Tables.* One of 2^m entries, m ≤ 4: with the pads of a random OT as masks, a receiver with the choice r knows mask r
//! and no other. The OT is 1-of-16 and made of a vector correlation for m = 3, 4; for m = 2 it is 1-of-4, made of two
//! correlations of a bit ([`jaguar_ot::pair`]); for m = 1 it is that of a bit. The masks are made offline. Online the
//! client, with the place a, sends a ⊕ r, all bits of r, those of a beyond its m being zero: uniform, since r is. The
//! server moves mask v ⊕ a ⊕ r to entry v < 2^m, adds its table, and chooses its share so that entry 0 becomes zero and
//! need not be sent. The two tables of a digit have correlations of their own, so two messages for two places that belong
//! together (a, a − 1) say no more than two for any: both r are uniform and independent. The client's flip of its share
//! is local. A table of one entry is the server's share, without a message.
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
use crate::gates::formula::{Addend, Formula};
use crate::kernels::circuit::{And, Digit, Entry, Table};
use crate::kernels::lanes::{
    GROUP, Lanes, Planes, group_len, groups, lane_bytes, plane_bytes, read_lanes, write_lanes,
};
use crate::kernels::loops::{self, Level};
use crate::kernels::planes::{self, Sink};
use crate::party::{Correlations, Make, Masks, Pads, Party, Room};

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
    /// Vector correlations: those that the digits take.
    vectors: Correlations,
    /// For the digits, then for the ANDs.
    from_server: Correlations,
    /// Of one bit: those that the ANDs take.
    from_client: Correlations,
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
    /// For `count` elements: a long stretch of each kind, so that one secret is in the cache at a time.
    fn draw<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        formula: &Formula,
    ) -> Result<Self, MpcError> {
        let ands = formula.circuit.ands().count();
        Ok(Self {
            vectors: party.draw(chan, Role::Server, Width::Vector, formula.vectors() * count)?,
            from_server: party.draw(chan, Role::Server, Width::Bit, from_server(formula) * count)?,
            from_client: party.draw(chan, Role::Client, Width::Bit, ands * count)?,
        })
    }

    /// The digits of the `len` elements from `at` on: all masks, or all choices and then the chosen masks.
    fn digits(&self, formula: &Formula, at: usize, len: usize, work: &mut Workbench) {
        let Workbench { room, words, choices, chosen, sink, .. } = work;
        let (words, choices) = (&mut words[..len], &mut choices[..len]);
        let (mut vectors_at, mut cots_at) = (at * formula.vectors(), at * from_server(formula));
        let mut receives = false;
        // (A digit without choices has no masks: those of the receiver stay zero.)
        let looked_up = |digit: &&Digit| digit.choices() > 0;
        for (digit, chosen) in
            formula.digits.iter().zip(chosen.chunks_mut(GROUP)).filter(|(d, _)| looked_up(d))
        {
            let (of, at) = match digit.vectors() {
                0 => (&self.from_server, &mut cots_at),
                _ => (&self.vectors, &mut vectors_at),
            };
            let (choice_bits, width) = (digit.choices(), digit.width() as u32);
            match of.masks(*at, choice_bits, width, words, choices, room) {
                Masks::Sender => sink.push(words, digit.planes() as u32),
                Masks::Receiver => {
                    receives = true;
                    sink.push(choices, choice_bits as u32);
                    chosen[..len].copy_from_slice(words);
                }
            }
            *at += len * (digit.vectors() + digit.cots());
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
        let from_server_at = at * from_server(formula) + len * formula.cots();
        for (correlations, at) in [(&self.from_server, from_server_at), (&self.from_client, at * ands.len())]
        {
            let pads = correlations.pads(at, triples.len(), room);
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

/// Correlations of a bit that the server sends for an element: the digits' and the ANDs'.
fn from_server(formula: &Formula) -> usize {
    formula.cots() + formula.circuit.ands().count()
}

/// Appends the client's place in the digit's table, as planes, low bit first.
fn place(digit: &Digit, own: &Planes, out: &mut Vec<Lanes>) {
    let bits = &own[digit.shift..][..digit.operand()];
    match digit.table {
        Table::Less => out.extend_from_slice(bits),
        Table::Even(_) => out.extend_from_slice(&bits[1..]),
        // The upper bits of a − 1.
        Table::Odd(_) => {
            let mut borrow = !bits[0];
            for &bit in &bits[1..] {
                out.push(bit ^ borrow);
                borrow = borrow & !bit;
            }
        }
    }
}

/// What the client adds to its shares of what it has looked up: where a = 0, it has found U\[2^m − 1\] = 0 and not
/// U\[−1\] = 1. (The sum of a digit with the sign on top is one mod 2^m, and a − 1 is there what it is.)
fn flip(digit: &Digit, own: &Planes) -> Option<Lanes> {
    let bits = &own[digit.shift..][..digit.operand()];
    match digit.table {
        Table::Odd(Entry::Less | Entry::Both { .. }) => {
            Some(!bits.iter().fold(Lanes::ZERO, |any, &bit| any | bit))
        }
        Table::Less | Table::Even(_) | Table::Odd(Entry::Top { .. }) => None,
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
        vectors_from_server: (formula.vectors() * count) as u64,
        bits_from_server: (from_server(formula) * count) as u64,
        bits_from_client: (ands * count) as u64,
        client_memory: memory(Role::Client),
        server_memory: memory(Role::Server),
        up: plane_bytes(count, formula.corrections() + opened) as u64,
        down: plane_bytes(count, formula.message_planes() + opened) as u64,
        ..Cost::default()
    }
}

impl FormulaMaterial {
    /// Uses up the correlations from the server that the digits take, and a bit in each direction for each AND, of each
    /// element.
    pub(crate) fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        formula: Formula,
    ) -> Result<Self, MpcError> {
        let mut this = Self::empty(party.role(), party.level, count, formula);
        for at in (0..count).step_by(BATCH * GROUP) {
            let len = (count - at).min(BATCH * GROUP);
            let drawn = Drawn::draw(party, chan, len, &this.formula)?;
            this.make(at, len, &drawn);
        }
        Ok(this)
    }

    fn empty(role: Role, level: Level, count: usize, formula: Formula) -> Self {
        let planes = Zeroizing::new(vec![Lanes::ZERO; stride(&formula, role) * groups(count)]);
        Self { role, count, formula, level, planes }
    }

    /// Draws all that [`new`](Self::new) takes, for at most a block of elements; makes it when it is asked for.
    pub(crate) fn draw<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        formula: Formula,
    ) -> Result<Make<Self>, MpcError> {
        let drawn = Drawn::draw(party, chan, count, &formula)?;
        let (role, level) = (party.role(), party.level);
        Ok(Box::new(move || {
            let mut this = Self::empty(role, level, count, formula);
            this.make(0, count, &drawn);
            this
        }))
    }

    /// The planes of the `len` elements from `at` on, which begin a group.
    fn make(&mut self, at: usize, len: usize, drawn: &Drawn) {
        let Self { role, formula, level, planes, .. } = self;
        let (role, level, formula) = (*role, *level, &*formula);
        let stride = stride(formula, role).max(1);
        let groups = planes[at / GROUP * stride..].chunks_mut(stride).take(groups(len)).enumerate();
        let work = || Workbench::new(level, formula, role);
        each_with(groups.collect(), work, |work, (g, planes): (usize, &mut [Lanes])| {
            let (at, len) = (g * GROUP, group_len(len, g));
            work.sink.planes.clear();
            drawn.digits(formula, at, len, work);
            drawn.triples(formula, at, len, work);
            work.sink.flush();
            planes.copy_from_slice(&work.sink.planes);
        });
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
        let mut choices = Zeroizing::new(Vec::with_capacity(self.formula.corrections()));
        for (g, x) in x.chunks(GROUP).enumerate() {
            let own = Zeroizing::new(planes::load(self.level, x, |x| self.formula.client_cell(x)));
            choices.clear();
            for digit in &self.formula.digits {
                let filled = choices.len() + digit.choices();
                place(digit, &own, &mut choices);
                choices.resize(filled, Lanes::ZERO);
            }
            for (&choice, &random) in choices.iter().zip(self.group(g)) {
                write_lanes(&mut bytes, &(choice ^ random), x.len());
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
            formula.digits.iter().for_each(|digit| place(digit, &own, &mut choices));
            let wires = &mut all[g * wires..][..wires];
            let masks = &self.group(g)[corrections..];
            let shares = &mut wires[..formula.looked_up()];
            loops::take(self.level, &formula.digits, &choices, masks, &message, shares);
            let mut at = 0;
            for digit in &formula.digits {
                let shares = &mut shares[at..at + digit.width()];
                if let Some(flip) = flip(digit, &own) {
                    shares.iter_mut().for_each(|share| *share = *share ^ flip);
                }
                at += digit.width();
            }
            for local in &formula.locals {
                wires[local.wire] = own[local.client];
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
                for local in &formula.locals {
                    wires[local.wire] = match local.server {
                        Addend::None => Lanes::ZERO,
                        Addend::Plane(plane) => own[plane],
                        Addend::Opposite(plane) => !own[plane],
                    };
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

#[cfg(test)]
mod tests {
    use jaguar_ring::cpu::Cpu;
    use jaguar_wire::memory_pair;

    use super::*;

    /// A plane over all elements, group by group.
    fn plane(runs: usize, bit: impl Fn(usize) -> usize) -> Vec<Lanes> {
        let bits: Vec<bool> = (0..runs).map(|e| bit(e) & 1 == 1).collect();
        bits.chunks(GROUP).map(Lanes::from_bools).collect()
    }

    /// What is tried: with all randomness of the tables, and of the gates where there is `gates`.
    struct Trial {
        formula: fn() -> Formula,
        gates: bool,
        want: fn(u64, u64) -> Vec<bool>,
        /// The client's choices for the second table of a digit are those for the first.
        weak: bool,
    }

    impl Trial {
        /// What a party keeps, from its planes.
        fn material(&self, role: Role, runs: usize, planes: &[Vec<Lanes>]) -> FormulaMaterial {
            let formula = (self.formula)();
            assert_eq!(stride(&formula, role), planes.len());
            let all = (0..groups(runs)).flat_map(|g| planes.iter().map(move |plane| plane[g])).collect();
            let level = Level::of(Cpu::detect());
            FormulaMaterial { role, count: runs, formula, level, planes: Zeroizing::new(all) }
        }

        /// How often each party sees what, over all randomness, when the client has `a` and the server `b`: all that it
        /// keeps and receives.
        fn views(&self, a: u64, b: u64) -> [Vec<u32>; 2] {
            let formula = (self.formula)();
            let (choices, masks) = (formula.corrections(), formula.table_planes());
            let ands: Vec<usize> = formula.circuit.ands().map(|and| and.b.len()).collect();
            // Of a triple α and β of either party, and γ of the client.
            let gates = if self.gates { ands.iter().map(|n| 2 + 3 * n).sum() } else { 0 };
            let runs = 1usize << (choices + masks + gates);
            let bit = |e: usize, i: usize| e >> i & 1;
            let mut client: Vec<Vec<Lanes>> = Vec::new();
            let mut chosen = Vec::new();
            let (mut choice, mut mask) = (0, 0);
            for digit in &formula.digits {
                let from = match digit.table {
                    Table::Odd(_) if self.weak => choice - digit.choices(),
                    _ => choice,
                };
                let (n, width) = (digit.choices(), digit.width());
                client.extend((0..n).map(|i| plane(runs, |e| bit(e, from + i))));
                let place = move |e: usize| if n == 0 { 0 } else { e >> from & ((1 << n) - 1) };
                let known = usize::from(n > 0);
                let at = choices + mask;
                chosen.extend((0..width).map(|o| plane(runs, |e| known * bit(e, at + place(e) * width + o))));
                (choice, mask) = (choice + n, mask + digit.planes());
            }
            client.extend(chosen);
            let mut server: Vec<Vec<Lanes>> =
                (0..masks).map(|i| plane(runs, |e| bit(e, choices + i))).collect();
            let mut at = choices + masks;
            for n in ands {
                let random = |e: usize, i: usize| if self.gates { bit(e, at + i) } else { 0 };
                client.extend((0..=2 * n).map(|i| plane(runs, |e| random(e, i))));
                server.extend((0..=n).map(|i| plane(runs, |e| random(e, 2 * n + 1 + i))));
                let sum = |e: usize, i: usize| random(e, i) ^ random(e, 2 * n + 1 + i);
                let gamma = |e: usize, i: usize| sum(e, 0) & sum(e, 1 + i) ^ random(e, 1 + n + i);
                server.extend((0..n).map(|i| plane(runs, |e| gamma(e, i))));
                at += if self.gates { 2 + 3 * n } else { 0 };
            }
            // What is zero for want of randomness is not counted among what is seen.
            let random = |planes: &[Vec<Lanes>]| -> Vec<Vec<Lanes>> {
                let zero = |plane: &[Lanes]| plane.iter().all(|lanes| lanes.0 == [0; 8]);
                planes.iter().filter(|plane| !zero(plane)).cloned().collect()
            };
            let own = |planes: &[Vec<Lanes>]| -> Vec<usize> {
                let bit = |e: usize, plane: &[Lanes]| plane[e / GROUP].bit(e % GROUP) as usize;
                (0..runs).map(|e| planes.iter().fold(0, |view, plane| view << 1 | bit(e, plane))).collect()
            };
            let mut seen = [&client, &server].map(|planes| own(&random(planes)));
            let client = self.material(Role::Client, runs, &client);
            let server = self.material(Role::Server, runs, &server);

            // By turns in one thread; what comes is looked at and put back.
            let (x_c, x_s) = (vec![a; runs], vec![b; runs]);
            let carry = |from: &mut Channel, to: &mut Channel, bytes: usize| {
                let bytes = from.recv(bytes).unwrap();
                to.send(&bytes).unwrap();
                to.flush().unwrap();
                bytes
            };
            let (mut sent, mut at_server) = memory_pair();
            client.client_correct(&mut sent, &x_c).unwrap();
            sent.flush().unwrap();
            let (mut again, mut to_server) = memory_pair();
            let corrections = carry(&mut at_server, &mut again, plane_bytes(runs, choices));
            see(&mut seen[1], choices, &corrections);
            let mut server = server.server_serve(&mut Corrections::Online, &mut to_server, &x_s).unwrap();
            to_server.flush().unwrap();
            let (mut to_client, mut at_client) = memory_pair();
            let tables = carry(&mut again, &mut to_client, plane_bytes(runs, formula.message_planes()));
            see(&mut seen[0], formula.message_planes(), &tables);
            let mut client = client.client_take(&mut at_client, &x_c).unwrap();
            for level in &formula.circuit.levels {
                let (from_client, from_server) = (client.opening(), server.opening());
                if self.gates {
                    let opened = level.iter().map(And::opened).sum();
                    see(&mut seen[0], opened, &from_server);
                    see(&mut seen[1], opened, &from_client);
                }
                client.close(&from_server);
                server.close(&from_client);
            }
            for ((c, s), want) in client.results().iter().zip(server.results()).zip((self.want)(a, b)) {
                let want = if want { u64::MAX } else { 0 };
                let right = c.lanes.iter().zip(s.lanes.iter()).all(|(c, s)| (*c ^ *s).0 == [want; 8]);
                assert!(right, "{a} and {b}");
            }
            seen.map(|views| {
                let mut counts = vec![0; runs];
                views.into_iter().for_each(|view| counts[view] += 1);
                counts
            })
        }

        /// Every view is as likely as any other, whatever both parties hold: so it says nothing of the peer's number.
        /// (A view has as many bits as there is randomness.)
        fn all_are_alike(&self, pairs: impl Iterator<Item = (u64, u64)>) {
            for (a, b) in pairs {
                for (view, party) in self.views(a, b).into_iter().zip(["client", "server"]) {
                    assert!(view.into_iter().all(|count| count == 1), "{a} and {b} at the {party}");
                }
            }
        }

        /// The check has teeth: with one choice for both tables of a digit, the server sees whether both places are the
        /// same, which is the parity of the client's digit. The first two of `numbers` have one parity, the others
        /// another.
        fn one_choice_shows_the_parity(self, numbers: [u64; 4]) {
            let weak = Self { weak: true, ..self };
            let [a, b, c, d] = numbers.map(|a| weak.views(a, 0)[1].clone());
            assert!(a == b && c == d && a != c);
        }
    }

    /// Appends to each view its bits of planes as they are sent.
    fn see(views: &mut [usize], planes: usize, mut bytes: &[u8]) {
        for views in views.chunks_mut(GROUP) {
            for _ in 0..planes {
                let lanes = read_lanes(&mut bytes, GROUP);
                for (e, view) in views.iter_mut().enumerate() {
                    *view = *view << 1 | lanes.bit(e) as usize;
                }
            }
        }
        assert!(bytes.is_empty());
    }

    /// All pairs of numbers below `numbers`.
    fn pairs(numbers: u64) -> impl Iterator<Item = (u64, u64)> {
        (0..numbers).flat_map(move |a| (0..numbers).map(move |b| (a, b)))
    }

    /// The two results of a clip of n bits at 2^j.
    fn clipped(x_c: u64, x_s: u64, n: u32, j: u32) -> Vec<bool> {
        let x = (x_c.wrapping_add(x_s) << (64 - n)) as i64 >> (64 - n);
        vec![(0..1 << j).contains(&x), x >= 1 << j]
    }

    /// Four bits in digits of two: tables and gates.
    #[test]
    fn views_of_a_comparison_are_uniform() {
        let less =
            Trial { formula: || Formula::less(4, 2), gates: true, want: |a, b| vec![a < b], weak: false };
        less.all_are_alike(pairs(16));
        less.one_choice_shows_the_parity([0, 8, 4, 12]);
    }

    /// The upper part one digit, with the carry and the parity in one AND: the tables of all numbers, and with the
    /// gates each number once.
    #[test]
    fn views_of_a_clip_are_uniform() {
        let clip = |gates| Trial {
            formula: || Formula::clip(3, 1, 2, 0),
            gates,
            want: |a, b| clipped(a, b, 3, 1),
            weak: false,
        };
        clip(false).all_are_alike(pairs(8));
        clip(true).all_are_alike((0..8).map(|a| (a, (3 * a + 1) % 8)));
        clip(false).one_choice_shows_the_parity([7, 3, 5, 1]);
    }

    /// The upper part of several digits: the tables, whose results go into gates as any others do.
    #[test]
    fn views_of_a_clips_tables_are_uniform() {
        let clip = Trial {
            formula: || Formula::clip(5, 1, 2, 0),
            gates: false,
            want: |a, b| clipped(a, b, 5, 1),
            weak: false,
        };
        clip.all_are_alike(pairs(32));
        // The digit's upper bit and parity are bits 2 and 1 of ¬x.
        clip.one_choice_shows_the_parity([31, 27, 29, 25]);
    }
}
