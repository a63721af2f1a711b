//! A comparison, and values multiplied by its result: the common body of ReLU, ReLU6 and the tournaments.
//!
//! Flights, for a formula with L levels of gates (turn L + 1 opens the bits of the multiplication):
//!
//! | flight | from | carries |
//! |---|---|---|
//! | 1 | client | corrections of the digits; ε of its shares |
//! | 2 | server | tables; ε of its shares; choices of the extension; its half of turn 1 |
//! | 3 | client | its halves of turns 1 and 2 |
//! | 4 | server | its halves of turns 2 and 3 |
//! | … | | |
//! | last | client | its half of the last turn, if that is odd; the extension's d |
//!
//! so with L = 2 the client has its result after flight 4 and its last message, half of turn 3, rides along
//! with whatever it sends next. Only the turns depend on the comparison's result: the products β·x are ready before.
//! b·x is β·x for c = 0 and x − β·x for c = 1. Where another ring is asked for, the server's choices are out for
//! both of these when it does not know c yet; the client knows it when its last message is due, and answers for the
//! right one only. (The other one need not be in the extension's range.)

use crate::share::Modulus;
use jaguar_ot::threads::Later;
use jaguar_ot::{CotSource, Role, Width};
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use crate::block::{BLOCK_ELEMENTS, Flights};
use crate::cost::{self, Cost};
use crate::error::MpcError;
use crate::gates::evaluate::{self, Corrections, Running};
use crate::gates::formula::Formula;
use crate::kernels::circuit::And;
use crate::kernels::lanes::{Lanes, add_plane, plane_bytes, plane_to_bytes};
use crate::kernels::loops::Level;
use crate::party::{Make, Party};
use crate::protocols::extend::Rings;
use crate::protocols::mux::{self, choose};
use crate::protocols::{bit, extend};
use crate::shares::ring_mask;

/// What follows the comparison.
pub(crate) struct Products {
    /// Widths of the values multiplied by the first result.
    pub(crate) parts: Vec<u32>,
    /// The first of them leaves in shares modulo this, if that is not the ring it came in.
    pub(crate) output: Option<Modulus>,
    /// The second result leaves in arithmetic shares modulo this.
    pub(crate) second: Option<Modulus>,
}

/// A run's results.
pub(crate) struct Selected {
    /// The products with the first result.
    pub(crate) values: Vec<Vec<u64>>,
    /// The second result.
    pub(crate) second: Option<Vec<u64>>,
}

/// Prepared material.
pub(crate) struct Select {
    role: Role,
    level: Level,
    count: usize,
    compare: evaluate::FormulaMaterial,
    mux: mux::MuxMaterial,
    parts: usize,
    extend: Option<extend::ExtendMaterial>,
    second: Option<bit::BitMaterial>,
    correction_bytes: usize,
    /// The server's: where flight 1 comes from.
    corrections: Corrections,
    /// The client's: flight 1 has been sent.
    corrected: bool,
}

/// What preparation and run cost.
pub(crate) fn cost(count: usize, formula: &Formula, products: &Products) -> Cost {
    let mut all = evaluate::cost(count, formula) + mux::cost(count, &products.parts);
    if let Some(output) = products.output {
        all = all + extend::cost(count, 2, &Rings::new(products.parts[0], output));
    }
    if let Some(modulus) = products.second {
        all = all + bit::cost(count, modulus);
    }
    let opened = plane_bytes(count, 1 + usize::from(products.second.is_some())) as u64;
    let turns = formula.depth() + 1;
    // Behind an even last turn, the extension is one message more, to the server.
    let extended = turns.is_multiple_of(2) && products.output.is_some();
    let (client_rounds, server_rounds) = cost::rounds(count, turns + usize::from(extended));
    Cost { up: all.up + opened, down: all.down + opened, client_rounds, server_rounds, ..all }
}

/// What a tournament costs: by level so many elements, with parts of such widths.
pub(crate) fn tournament_cost(levels: impl Iterator<Item = (usize, Vec<u32>)>, formula: &Formula) -> Cost {
    let mut all = Cost::default();
    for (count, parts) in levels.filter(|(count, _)| *count > 0) {
        let between = all.server_rounds > 0 && formula.depth().is_multiple_of(2);
        all = all + cost(count, formula, &Products { parts, output: None, second: None });
        // The client's last message of one level comes along with its first of the next.
        all.server_rounds -= u64::from(between);
    }
    all
}

/// Steps of a run ([`Select::steps`]).
fn steps(formula: &Formula) -> usize {
    formula.depth().div_ceil(2) + 2
}

/// Bytes of flight 1.
pub(crate) fn correction_bytes(count: usize, formula: &Formula, products: &Products) -> usize {
    let values: usize = products.parts.iter().map(|&bits| pack::packed_len(count, bits)).sum();
    plane_bytes(count, formula.corrections()) + values
}

/// Draws what all parts of a block's selection take at one go, kind by kind.
fn stock<S: CotSource + ?Sized>(
    party: &mut Party<S>,
    chan: &mut Channel,
    count: usize,
    formula: &Formula,
    products: &Products,
) -> Result<(), MpcError> {
    // More than a block's, as of a channel that is larger, would take much room.
    if count > BLOCK_ELEMENTS {
        return Ok(());
    }
    let cost = cost(count, formula, products);
    party.stock(chan, Role::Server, Width::Vector, cost.from_server().vectors as usize)?;
    party.stock(chan, Role::Server, Width::Bit, cost.from_server().bits as usize)?;
    party.stock(chan, Role::Client, Width::Bit, cost.from_client().bits as usize)
}

impl Select {
    pub(crate) fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        formula: Formula,
        products: &Products,
    ) -> Result<Self, MpcError> {
        Ok(Self::later(party, chan, count, formula, products)?.into_inner())
    }

    /// As [`prepare`](Self::prepare), but draws only: the material is made of it on other threads, while this one draws the next.
    pub(crate) fn later<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        formula: Formula,
        products: &Products,
    ) -> Result<Later<Self>, MpcError> {
        let (role, level, parts) = (party.role(), party.level, products.parts.len());
        let correction_bytes = correction_bytes(count, &formula, products);
        stock(party, chan, count, &formula, products)?;
        // All that a channel larger than a block takes is too much at once.
        let large = count > BLOCK_ELEMENTS;
        let compare: Make<evaluate::FormulaMaterial> = if large {
            let compare = evaluate::FormulaMaterial::new(party, chan, count, formula)?;
            Box::new(|| compare)
        } else {
            evaluate::FormulaMaterial::draw(party, chan, count, formula)?
        };
        let mux = mux::MuxMaterial::draw(party, chan, count, &products.parts)?;
        let extend = match products.output {
            Some(output) => {
                let rings = Rings::new(products.parts[0], output);
                Some(extend::ExtendMaterial::draw(party, chan, count, 2, rings)?)
            }
            None => None,
        };
        let second = match products.second {
            Some(modulus) => Some(bit::BitMaterial::new(party, chan, count, modulus)?),
            None => None,
        };
        let make = move || Self {
            role,
            level,
            count,
            compare: compare(),
            mux: mux(),
            parts,
            extend: extend.map(|extend| extend()),
            second,
            correction_bytes,
            corrections: Corrections::Online,
            corrected: false,
        };
        Ok(if large { Later::from(make()) } else { party.later(make) })
    }

    /// Steps of a run, as `block.rs` counts them: in step s the client sends flight 2s + 1, the server reads it and
    /// sends flight 2s + 2.
    pub(crate) fn steps(&self) -> usize {
        steps(&self.compare.formula)
    }

    fn turns(&self) -> usize {
        self.compare.formula.depth() + 1
    }

    /// Bytes that each step of a run reads.
    fn reads(&self) -> Vec<usize> {
        let (count, turns, formula) = (self.count, self.turns(), &self.compare.formula);
        let turn = |number: usize| match formula.circuit.levels.get(number - 1) {
            Some(ands) => plane_bytes(count, ands.iter().map(And::opened).sum()),
            None if number == turns => (1 + usize::from(self.second.is_some())) * plane_bytes(count, 1),
            None => 0,
        };
        let extend = |bytes: fn(&extend::ExtendMaterial) -> usize| self.extend.as_ref().map_or(0, bytes);
        let mut reads: Vec<usize> = match self.role {
            Role::Client => {
                let tables = plane_bytes(count, formula.message_planes()) + self.mux.correction_bytes();
                let first = tables + extend(extend::ExtendMaterial::choice_bytes) + turn(1);
                [0, first]
                    .into_iter()
                    .chain((2..self.steps()).map(|s| turn(2 * s - 2) + turn(2 * s - 1)))
                    .collect()
            }
            Role::Server => {
                let first = self.correction_bytes;
                std::iter::once(first)
                    .chain((1..self.steps()).map(|s| turn(2 * s - 1) + turn(2 * s)))
                    .collect()
            }
        };
        if self.role == Role::Server {
            *reads.last_mut().expect("two steps or more") += extend(extend::ExtendMaterial::answer_bytes);
        }
        reads
    }

    /// Flight 1 offline: the client, which knows its shares, sends it; the server receives and keeps it.
    pub(crate) fn correct(
        &mut self,
        chan: &mut Channel,
        x: Option<&[u64]>,
        values: &[&[u64]],
    ) -> Result<(), MpcError> {
        match x {
            Some(x) => {
                self.send_corrections(chan, x, values)?;
                self.corrected = true;
            }
            None => {
                let bytes = chan.recv(self.correction_bytes)?;
                self.corrections = Corrections::Early(bytes, 0);
            }
        }
        Ok(())
    }

    fn send_corrections(&self, chan: &mut Channel, x: &[u64], values: &[&[u64]]) -> Result<(), MpcError> {
        self.compare.client_correct(chan, x)?;
        for (p, value) in values.iter().enumerate() {
            self.mux.send_corrections(chan, p, value)?;
        }
        Ok(())
    }

    /// A run on these shares.
    pub(crate) fn start(self, x: Zeroizing<Vec<u64>>, values: Vec<Zeroizing<Vec<u64>>>) -> Run {
        assert!(values.len() == self.parts && values.iter().all(|v| v.len() == self.count), "one per part");
        Run { steps: self.steps(), turns: self.turns(), x, values, select: Some(self), under_way: None }
    }
}

/// A run, step by step.
pub(crate) struct Run {
    pub(crate) steps: usize,
    turns: usize,
    x: Zeroizing<Vec<u64>>,
    values: Vec<Zeroizing<Vec<u64>>>,
    /// Until the tables are served or taken.
    select: Option<Select>,
    /// From then on.
    under_way: Option<Turns>,
}

impl Run {
    /// The client: 1. corrections; 2. the server's tables, corrections and choices; 3. the turns; 4. the extension.
    fn client(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        let values: Vec<&[u64]> = self.values.iter().map(|v| &v[..]).collect();
        if step == 0 {
            // 1. Unless preparation did it.
            let select = self.select.as_ref().expect("at the start");
            return if select.corrected { Ok(()) } else { select.send_corrections(chan, &self.x, &values) };
        }
        if step == 1 {
            // 2.
            let select = self.select.take().expect("the first step leaves it");
            let running = select.compare.client_take(chan, &self.x)?;
            let mut turns = Turns::new(select.level, running, select.mux, select.second, select.extend);
            for (p, value) in values.iter().enumerate() {
                let products = turns.mux.products(&mut Corrections::Online, chan, p, value)?;
                turns.candidates.push(turns.mux.candidates(p, value, products));
            }
            if let Some(extend) = &mut turns.extend {
                extend.client_recv(chan)?;
            }
            self.under_way = Some(turns);
        }
        // 3. The server's half of an even turn, this party's having gone out with the step before.
        let turns = self.under_way.as_mut().expect("the second step makes it");
        if step > 1 && 2 * step - 2 <= self.turns {
            turns.receive(chan)?;
        }
        // An odd turn, the server's half first.
        if 2 * step - 1 <= self.turns {
            let mine = turns.open();
            let theirs = chan.recv(mine.len())?;
            chan.send(&mine)?;
            turns.close(&theirs);
        }
        // This party's half of the even turn behind it.
        if 2 * step <= self.turns {
            chan.send(&turns.open())?;
        }
        // 4. The extension of what was selected.
        if step + 1 == self.steps { turns.extend(|extend, x| extend.client_answer(chan, x)) } else { Ok(()) }
    }

    /// The server: 1 and 2. takes the client's corrections, answers with tables, corrections and choices; 3. the turns;
    /// 4. the extension.
    fn server(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        if step == 0 {
            // 1 and 2.
            let mut select = self.select.take().expect("at the start");
            let mut corrections = std::mem::replace(&mut select.corrections, Corrections::Online);
            let running = select.compare.server_serve(&mut corrections, chan, &self.x)?;
            let mut turns = Turns::new(select.level, running, select.mux, select.second, select.extend);
            for (p, value) in self.values.iter().enumerate() {
                let products = turns.mux.products(&mut corrections, chan, p, value)?;
                turns.candidates.push(turns.mux.candidates(p, value, products));
            }
            for (p, value) in self.values.iter().enumerate() {
                turns.mux.send_corrections(chan, p, value)?;
            }
            if let Some(extend) = &turns.extend {
                extend.server_send(chan, &turns.candidates[0])?;
            }
            self.under_way = Some(turns);
        }
        let turns = self.under_way.as_mut().expect("the first step makes it");
        if step > 0 {
            // 3. The client's half of an odd turn, this party's having gone out with the step before.
            if 2 * step - 1 <= self.turns {
                turns.receive(chan)?;
            }
            // An even turn, the client's half first.
            if 2 * step <= self.turns {
                let mine = turns.open();
                let theirs = chan.recv(mine.len())?;
                chan.send(&mine)?;
                turns.close(&theirs);
            }
        }
        // This party's half of the odd turn behind it.
        if 2 * step < self.turns {
            chan.send(&turns.open())?;
        }
        // 4.
        if step + 1 == self.steps { turns.extend(|extend, x| extend.server_finish(chan, x)) } else { Ok(()) }
    }

    /// See `block.rs`. The server's last message is flushed: it has nothing more to say by itself. The client's may
    /// wait for what it sends next.
    pub(crate) fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        match self.role() {
            Role::Client => self.client(chan, step),
            Role::Server => {
                self.server(chan, step)?;
                Ok(chan.flush()?)
            }
        }
    }

    fn role(&self) -> Role {
        match (&self.select, &self.under_way) {
            (Some(select), _) => select.role,
            (_, Some(turns)) => turns.running.role(),
            _ => unreachable!("one of them is there"),
        }
    }

    pub(crate) fn finish(&mut self) -> Selected {
        self.under_way.take().expect("all steps are taken").finish()
    }
}

type Candidates = [Zeroizing<Vec<u64>>; 2];

/// The gates' turns and the last one, which opens c = b ⊕ β; then every value is picked by its c.
struct Turns {
    level: Level,
    running: Running,
    mux: mux::MuxMaterial,
    second: Option<bit::BitMaterial>,
    /// Until it is used.
    extend: Option<extend::ExtendMaterial>,
    /// The first value in the larger ring.
    extended: Option<Zeroizing<Vec<u64>>>,
    candidates: Vec<Candidates>,
    /// This party's shares of c, of every result: the opened ones, once the last turn is closed.
    c: Vec<Vec<Lanes>>,
    /// Bytes of what is opened and not yet closed.
    opened: usize,
}

impl Turns {
    fn new(
        level: Level,
        running: Running,
        mux: mux::MuxMaterial,
        second: Option<bit::BitMaterial>,
        extend: Option<extend::ExtendMaterial>,
    ) -> Self {
        Self {
            level,
            running,
            mux,
            second,
            extend,
            extended: None,
            candidates: Vec::new(),
            c: Vec::new(),
            opened: 0,
        }
    }

    /// This party's half of the next turn.
    fn open(&mut self) -> Vec<u8> {
        let mine = if self.running.levels_left() > 0 {
            self.running.opening()
        } else {
            let results = self.running.results();
            self.c.push(self.mux.opening(&results[0]));
            self.c.extend(self.second.as_ref().map(|second| second.opening(&results[1])));
            self.c.iter().flat_map(|c| plane_to_bytes(c, self.running.count())).collect()
        };
        self.opened = mine.len();
        mine
    }

    /// Finishes the turn with the peer's half.
    fn close(&mut self, mut theirs: &[u8]) {
        if self.c.is_empty() {
            self.running.close(theirs);
        } else {
            let count = self.running.count();
            self.c.iter_mut().for_each(|c| add_plane(c, count, &mut theirs));
        }
    }

    /// Receives the peer's half of a turn of which this party's was sent before.
    fn receive(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        let theirs = chan.recv(self.opened)?;
        self.close(&theirs);
        Ok(())
    }

    /// After the last turn: extends the first value, by this party's half of that.
    fn extend(
        &mut self,
        half: impl FnOnce(extend::ExtendMaterial, &[u64]) -> Result<Zeroizing<Vec<u64>>, MpcError>,
    ) -> Result<(), MpcError> {
        if let Some(mut extend) = self.extend.take() {
            let c = &self.c[0];
            extend.pick(c);
            let selected = Zeroizing::new(choose(self.level, self.candidates.remove(0), c));
            self.extended = Some(half(extend, &selected)?);
        }
        Ok(())
    }

    fn finish(mut self) -> Selected {
        let (level, c) = (self.level, &self.c);
        let extended = self.extended.as_mut().map(|extended| std::mem::take(&mut **extended));
        let others = self.candidates.into_iter().map(|pair| choose(level, pair, &c[0]));
        Selected {
            values: extended.into_iter().chain(others).collect(),
            second: self.second.map(|second| second.finish(&c[1])),
        }
    }
}

/// How a run's results become a layer's.
pub(crate) type Join = Box<dyn Fn(Selected) -> Vec<u64> + Send>;

/// A block of a layer that is one selection of its own value.
pub(crate) struct SelectBlock {
    bits: u32,
    offset: u64,
    steps: usize,
    /// Flight 1 was received offline.
    corrected: bool,
    join: Join,
    state: State,
}

enum State {
    Prepared(Option<Box<Later<Select>>>),
    /// With the bytes that each step reads.
    Running(Box<Run>, Vec<usize>),
}

impl SelectBlock {
    /// Draws for `count` values mod 2^`bits`.
    pub(crate) fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        (count, bits): (usize, u32),
        formula: Formula,
        (products, join): (&Products, Join),
    ) -> Result<Self, MpcError> {
        let steps = steps(&formula);
        let select = Select::later(party, chan, count, formula, products)?;
        let state = State::Prepared(Some(Box::new(select)));
        Ok(Self { bits, offset: 0, steps, corrected: false, join, state })
    }

    /// Compares x + `offset` instead of x; what is multiplied by the result stays x. The server alone adds it, so the
    /// client's corrections know nothing of it.
    pub(crate) fn comparing_above(self, role: Role, offset: u64) -> Self {
        Self { offset: if role == Role::Server { offset } else { 0 }, ..self }
    }
}

impl Flights for SelectBlock {
    fn steps(&self) -> usize {
        self.steps
    }

    fn correct(&mut self, chan: &mut Channel, x: Option<&[u64]>) -> Result<(), MpcError> {
        let State::Prepared(Some(select)) = &mut self.state else { unreachable!("before the start") };
        self.corrected |= x.is_none();
        let select = select.get_mut();
        let x = x.map(|x| ring_mask(x, self.bits));
        let x = x.as_ref().map(|x| &x[..]);
        select.correct(chan, x, &[x.unwrap_or_default()])
    }

    fn start(&mut self, x: &[u64]) {
        let State::Prepared(select) = &mut self.state else { unreachable!("starts once") };
        let select = select.take().expect("starts once").into_inner();
        let reads = select.reads();
        let x = ring_mask(x, self.bits);
        // (Reduced where it is compared.)
        let compared = Zeroizing::new(x.iter().map(|x| x.wrapping_add(self.offset)).collect());
        self.state = State::Running(Box::new(select.start(compared, vec![x])), reads);
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        let State::Running(run, _) = &mut self.state else { unreachable!("started") };
        run.step(chan, step)
    }

    fn reads(&self, step: usize) -> Option<usize> {
        if step == 0 && self.corrected {
            return Some(0);
        }
        Some(match &self.state {
            State::Prepared(Some(select)) => select.get().reads()[step],
            State::Running(_, reads) => reads[step],
            State::Prepared(None) => unreachable!("its run has begun"),
        })
    }

    fn finish(&mut self) -> Vec<u64> {
        let State::Running(run, _) = &mut self.state else { unreachable!("started") };
        (self.join)(run.finish())
    }
}
