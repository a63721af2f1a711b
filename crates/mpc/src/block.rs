//! Layers in blocks, so that two parties work and both directions of the link are busy at the same time.
//!
//! The elements of a layer (of a max-pool: its channels) do not depend on each other. So a layer is prepared and
//! run as blocks of about [`BLOCK_ELEMENTS`], and each block's run is a row of *steps*:
//!
//! | step | client | server |
//! |---|---|---|
//! | 0 | sends | reads that, sends |
//! | s | reads what the server sent in step s − 1, sends | reads that, sends |
//!
//! Some steps send nothing: an extension begins with the server, and an early correction
//! ([`Block::correct`]) has sent the client's step 0 before.
//!
//! **Order.** [`order`] is the same for both parties and follows from public shapes. All blocks take step 0, then
//! all of them step 1, and so on: while block j travels the peer works on the one before and this party on the next,
//! and so many blocks of a batch take **as many flights as one alone**. Batches of more than [`WINDOW`] blocks take
//! their later steps while the last blocks take their first: block j's step s + 1 comes next to block j +
//! WINDOW's step s. So the results of the first blocks, and the next layer's ciphertexts made of them, go up while
//! the tables of the last ones come down. For that the window must hold as much as the link does
//! between question and answer: 2^17 elements are 1.6 MB of tables, more than the 1.25 MB of 62.5 MB/s and 20 ms. On a
//! link that holds more, a batch of k windows takes up to k − 1 more round trips.
//!
//! **No deadlock.** Interleave both parties' steps as (client's step, server's step) along the common order. Whatever
//! a step reads was sent in an earlier step of that row, so the earliest unfinished step can always be finished,
//! provided that sending does not wait for the peer to read. Transports promise that up to a bound (TCP: 256 MiB a
//! direction), and what may be under way is far less: behind step 0, which sends a few bytes an element, a party
//! can be no more than a window ahead of the other.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;

use jaguar_ot::threads::{self, Task};
use jaguar_wire::{Channel, WireError};
use zeroize::Zeroizing;

use crate::error::{MpcError, check_count};

/// Elements of a block: its tables, 200 KB, are one flush of the channel. A multiple of 512 (so that no block but
/// the last ends inside a group) and of 8 (nor inside a byte).
pub(crate) const BLOCK_ELEMENTS: usize = 1 << 14;

/// How many blocks may wait for the peer's next message while further blocks begin.
const WINDOW: usize = 8;

/// A protocol on one block, as one party has it.
pub trait Flights: Send {
    /// How many steps both parties count.
    fn steps(&self) -> usize;

    /// Takes this party's shares, reduced to the protocol's ring where that matters.
    fn start(&mut self, x: &[u64]);

    /// Sends (the client) or receives (the server) what is left to be said of the preparation, if anything.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    fn complete(&mut self, _chan: &mut Channel) -> Result<(), MpcError> {
        Ok(())
    }

    /// Receives (the client) what the server answered to that, if anything.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    fn settle(&mut self, _chan: &mut Channel) -> Result<(), MpcError> {
        Ok(())
    }

    /// Sends (the client, of its shares `x`) or receives (the server) what the client can say offline, if anything.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    fn correct(&mut self, chan: &mut Channel, x: Option<&[u64]>) -> Result<(), MpcError>;

    /// Step number `step`, from 0.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError>;

    /// All bytes that a step reads, if none of them answers what it sends: they are received for it, and any thread may take it.
    /// None if its messages go to and fro. Asked for before the step is taken.
    fn reads(&self, step: usize) -> Option<usize>;

    /// The results, after the last step.
    fn finish(&mut self) -> Vec<u64>;
}

/// A prepared block of a layer, for one run.
pub struct Block {
    inputs: Range<usize>,
    outputs: Range<usize>,
    flights: Box<dyn Flights>,
    /// Its operand, until the first step begins with it.
    operand: Option<Zeroizing<Vec<u64>>>,
    /// What it has in common with a block of a layer behind it, until that takes it.
    left: Option<Box<dyn Any + Send>>,
    done: usize,
}

impl Block {
    pub(crate) fn new(inputs: Range<usize>, outputs: Range<usize>, flights: impl Flights + 'static) -> Self {
        Self { inputs, outputs, flights: Box::new(flights), operand: None, left: None, done: 0 }
    }

    /// The same block, with something for a layer behind it.
    pub(crate) fn leaving(self, left: impl Any + Send) -> Self {
        Self { left: Some(Box::new(left)), ..self }
    }

    /// What it leaves, once.
    pub(crate) fn take_left<T: 'static>(&mut self) -> Option<T> {
        self.left.take()?.downcast().ok().map(|left| *left)
    }

    /// The blocks of a layer of `count` elements that have nothing to do with each other: `make` prepares one of so many.
    ///
    /// # Errors
    /// What `make` says.
    pub fn each<F: Flights + 'static>(
        count: usize,
        mut make: impl FnMut(usize) -> Result<F, MpcError>,
    ) -> Result<Vec<Self>, MpcError> {
        ranges(count).map(|range| Ok(Self::new(range.clone(), range.clone(), make(range.len())?))).collect()
    }

    /// The same block, with `then` done to this party's results.
    pub(crate) fn then(self, then: impl Fn(&mut [u64]) + Send + 'static) -> Self {
        let flights = Box::new(Then { flights: self.flights, then: Box::new(then) });
        Self { flights, ..self }
    }

    /// The same block as number `index` of such that all have its inputs and outputs.
    pub(crate) fn at(self, index: usize) -> Self {
        let moved = |range: Range<usize>| index * range.end..(index + 1) * range.end;
        Self { inputs: moved(self.inputs), outputs: moved(self.outputs), ..self }
    }

    /// Which of the layer's inputs it takes, as `[C, H, W]`.
    pub fn inputs(&self) -> Range<usize> {
        self.inputs.clone()
    }

    /// Which of the layer's outputs it makes, as `[C, H, W]`.
    pub fn outputs(&self) -> Range<usize> {
        self.outputs.clone()
    }

    /// How many steps it takes, the same for both parties and for all blocks of a layer.
    pub fn steps(&self) -> usize {
        self.flights.steps()
    }

    /// Offline, when all layers have been prepared: the client sends what it has to say of the preparation, and the server
    /// receives it. (Before that it sends nothing but what belongs to its draws: [`crate::Party::promise`].) Both call it once, in the same order of
    /// blocks, before everything else; where there is nothing to say it does nothing.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    pub fn complete(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        self.flights.complete(chan)
    }

    /// After [`Block::complete`], of as many other blocks as both parties like: the client receives what the server
    /// answered. Both call it once, in the same order of blocks. What is under way in between,
    /// [`Nonlinear::answered`](crate::Nonlinear::answered), must fit into what the transport takes before anybody
    /// reads.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    pub fn settle(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        self.flights.settle(chan)
    }

    /// Offline, when the client's shares of the inputs are known already: the client gives them and sends what
    /// depends on nothing else, the server gives `None` and receives it. Both must do so, or neither; the client must
    /// start with the same shares. Saves that much of step 0; where there is nothing to send early, does nothing.
    ///
    /// # Errors
    /// When the count differs from the prepared one or the connection fails.
    pub fn correct(&mut self, chan: &mut Channel, x: Option<&[u64]>) -> Result<(), MpcError> {
        if let Some(x) = x {
            check_count("shares", x.len(), self.inputs.len())?;
        }
        self.flights.correct(chan, x)
    }

    /// Gives the block this party's shares of its inputs. Before the first step.
    ///
    /// # Errors
    /// When the count differs from the prepared one.
    pub fn start(&mut self, x: &[u64]) -> Result<(), MpcError> {
        check_count("shares", x.len(), self.inputs.len())?;
        if threads::count() > 1 {
            // Who takes the step prepares it too.
            self.operand = Some(Zeroizing::new(x.to_vec()));
        } else {
            self.flights.start(x);
        }
        Ok(())
    }

    /// Takes the next step. What it sends may remain in the channel's buffer.
    fn step(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        if let Some(x) = self.operand.take() {
            self.flights.start(&x);
        }
        self.flights.step(chan, self.done)?;
        self.done += 1;
        Ok(())
    }

    fn is_through(&self) -> bool {
        self.done == self.steps()
    }
}

/// What a party does to its results by itself.
type Local = Box<dyn Fn(&mut [u64]) + Send>;

/// A protocol, and something local behind it.
struct Then {
    flights: Box<dyn Flights>,
    then: Local,
}

impl Flights for Then {
    fn steps(&self) -> usize {
        self.flights.steps()
    }

    fn start(&mut self, x: &[u64]) {
        self.flights.start(x);
    }

    fn complete(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        self.flights.complete(chan)
    }

    fn settle(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        self.flights.settle(chan)
    }

    fn correct(&mut self, chan: &mut Channel, x: Option<&[u64]>) -> Result<(), MpcError> {
        self.flights.correct(chan, x)
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        self.flights.step(chan, step)
    }

    fn reads(&self, step: usize) -> Option<usize> {
        self.flights.reads(step)
    }

    fn finish(&mut self) -> Vec<u64> {
        let mut results = self.flights.finish();
        (self.then)(&mut results);
        results
    }
}

/// Ranges of [`BLOCK_ELEMENTS`] that cover `count` elements.
pub(crate) fn ranges(count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(BLOCK_ELEMENTS).map(move |at| at..count.min(at + BLOCK_ELEMENTS))
}

/// In which order both parties take the steps of blocks with so many each: `(block, step)`.
fn order(steps: &[usize]) -> Vec<(usize, usize)> {
    let mut order: Vec<_> =
        steps.iter().enumerate().flat_map(|(j, &n)| (0..n).map(move |s| (j, s))).collect();
    // In a tie a beginning comes first: it can be sent without waiting.
    order.sort_by_key(|&(j, s)| (j + s * WINDOW.min(steps.len()), s));
    order
}

/// The block whose waiting counts as rounds: one with the most steps. The others go alongside it.
fn lead(steps: &[usize]) -> usize {
    let most = steps.iter().max();
    steps.iter().position(|s| Some(s) == most).unwrap_or(0)
}

/// What runs blocks, as [`drive`] sees it: where their operands come from, their results go, and whose time and bytes theirs are.
pub trait Surroundings {
    /// What can go wrong.
    type Error: From<MpcError> + From<WireError>;

    /// Does `work` on the channel, for block `b`.
    ///
    /// # Errors
    /// What `work` says.
    fn on<T>(
        &mut self,
        b: usize,
        work: impl FnOnce(&mut Channel) -> Result<T, Self::Error>,
    ) -> Result<T, Self::Error>;

    /// Whether what block `b` works on is there already.
    fn is_there(&self, b: usize, block: &Block) -> bool;

    /// Starts block `b` on what it works on, which is made for it if it is not there.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    fn start(&mut self, b: usize, block: &mut Block) -> Result<(), Self::Error>;

    /// At the server: whether the client may send something of its own as soon as it has the results of block `b`.
    fn follows(&self, b: usize) -> bool;

    /// Receives that, where `block` has what it reads in its last step.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    fn receive(&mut self, b: usize, block: &Block) -> Result<(), Self::Error>;

    /// Takes the results of block `b`.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    fn finish(&mut self, b: usize, results: Zeroizing<Vec<u64>>) -> Result<(), Self::Error>;
}

/// A step under way.
struct Step {
    b: usize,
    /// The last one that this party takes: what it sends may wait for more.
    last: bool,
    task: Task<Stepped>,
}

/// A step that was taken on a stretch of the channel.
struct Stepped {
    /// Until it is through.
    block: Option<Block>,
    sent: Result<Vec<u8>, MpcError>,
    /// If it was the block's last one.
    results: Option<Zeroizing<Vec<u64>>>,
}

impl Stepped {
    fn take(mut block: Block, mut channel: Channel) -> Self {
        let sent = block.step(&mut channel).map(|()| channel.into_sent());
        let results = (sent.is_ok() && block.is_through()).then(|| Zeroizing::new(block.flights.finish()));
        // What it has prepared is wiped here, not where others wait for it.
        let block = results.is_none().then_some(block);
        Self { block, sent, results }
    }
}

/// Takes all steps of all blocks in the order that both parties keep, on all threads: this one receives for the steps and sends what
/// they say, in that order; others take them. **No deadlock**: before this party waits for the peer, it has sent all that comes
/// before in the order.
///
/// # Errors
/// When the connection fails, the peer breaks the protocol, or the surroundings say so.
pub fn drive<S: Surroundings>(blocks: Vec<Block>, around: &mut S) -> Result<(), S::Error> {
    let steps: Vec<usize> = blocks.iter().map(Block::steps).collect();
    let (order, threads) = (order(&steps), threads::count());
    let mut driver = Driver {
        lead: lead(&steps),
        around,
        blocks: blocks.into_iter().map(Some).collect(),
        under_way: VecDeque::new(),
        begun: false,
    };
    for (i, &(b, step)) in order.iter().enumerate() {
        let last = i + 1 == order.len();
        // 1. The block's step before, and what others have done meanwhile.
        while driver.blocks[b].is_none() || driver.under_way.front().is_some_and(|step| step.task.is_done()) {
            driver.end_one()?;
        }
        let mut block = driver.blocks[b].take().expect("all its steps have ended");
        // 2. Its operand. The peer is not to wait for the first block while this party makes what the next one works on.
        if step == 0 {
            if !driver.begun && !driver.under_way.is_empty() && !driver.around.is_there(b, &block) {
                driver.end_one()?;
            }
            driver.around.start(b, &mut block)?;
        }
        // 3. What it reads, and then the step.
        match block.flights.reads(step) {
            Some(bytes) if threads > 1 => {
                while !driver.under_way.is_empty() && !driver.has_arrived(b, bytes)? {
                    driver.end_one()?;
                }
                if driver.under_way.len() > 2 * threads {
                    driver.end_one()?;
                }
                let channel = driver.receive(b, bytes)?;
                if step + 1 == steps[b] && driver.around.follows(b) {
                    // What comes next is it, if there is anything.
                    while !driver.under_way.is_empty() && !driver.has_arrived(b, 1)? {
                        driver.end_one()?;
                    }
                    driver.around.receive(b, &block)?;
                }
                let task = Task::spawn(move || Stepped::take(block, channel));
                driver.under_way.push_back(Step { b, last, task });
            }
            Some(_) | None => {
                while !driver.under_way.is_empty() {
                    driver.end_one()?;
                }
                driver.take_here(b, block, (step + 1 == steps[b], last))?;
            }
        }
    }
    while !driver.under_way.is_empty() {
        driver.end_one()?;
    }
    Ok(())
}

struct Driver<'a, S> {
    /// The block whose waiting counts as rounds.
    lead: usize,
    around: &'a mut S,
    /// Those that are not under way.
    blocks: Vec<Option<Block>>,
    /// In the order of both parties.
    under_way: VecDeque<Step>,
    /// Whether a step has ended, and what it says has left.
    begun: bool,
}

impl<S: Surroundings> Driver<'_, S> {
    /// Does something on the channel for block `b`.
    fn on<T>(
        &mut self,
        b: usize,
        work: impl FnOnce(&mut Channel) -> Result<T, S::Error>,
    ) -> Result<T, S::Error> {
        let lead = b == self.lead;
        self.around.on(b, |chan| if lead { work(chan) } else { chan.alongside(work) })
    }

    fn has_arrived(&mut self, b: usize, bytes: usize) -> Result<bool, S::Error> {
        self.on(b, |chan| Ok(chan.has_arrived(bytes)?))
    }

    /// A stretch of the channel with what a step of block `b` reads.
    fn receive(&mut self, b: usize, bytes: usize) -> Result<Channel, S::Error> {
        self.on(b, |chan| {
            let input = chan.recv(bytes)?;
            Ok(chan.stretch(input))
        })
    }

    /// Waits for the first step that is under way, and sends what it says.
    fn end_one(&mut self) -> Result<(), S::Error> {
        let Step { b, last, task } = self.under_way.pop_front().expect("one is under way");
        let (block, results) = self.on(b, |chan| {
            let Stepped { block, sent, results } = task.join();
            chan.send_held(sent?)?;
            Ok((block, results))
        })?;
        self.end(b, block, results, last)
    }

    /// A step that this thread takes, on the channel itself; whether it takes the block `through`.
    fn take_here(
        &mut self,
        b: usize,
        mut block: Block,
        (through, last): (bool, bool),
    ) -> Result<(), S::Error> {
        self.on(b, |chan| Ok(block.step(chan)?))?;
        if through && self.around.follows(b) {
            self.around.receive(b, &block)?;
        }
        let results = through.then(|| Zeroizing::new(block.flights.finish()));
        self.end(b, Some(block), results, last)
    }

    /// A step of block `b` has ended. What it says is in the channel's buffer, and stays there if it is the `last` of all.
    fn end(
        &mut self,
        b: usize,
        block: Option<Block>,
        results: Option<Zeroizing<Vec<u64>>>,
        last: bool,
    ) -> Result<(), S::Error> {
        (self.blocks[b], self.begun) = (block, true);
        if let Some(results) = results {
            self.around.finish(b, results)?;
        }
        // It travels, and the peer works on it, while this party goes on.
        if last { Ok(()) } else { self.on(b, |chan| Ok(chan.flush()?)) }
    }
}

/// One layer by itself.
struct Alone<'a> {
    chan: &'a mut Channel,
    x: &'a [u64],
    out: Vec<u64>,
}

impl Surroundings for Alone<'_> {
    type Error = MpcError;

    fn on<T>(
        &mut self,
        _: usize,
        work: impl FnOnce(&mut Channel) -> Result<T, MpcError>,
    ) -> Result<T, MpcError> {
        work(self.chan)
    }

    fn is_there(&self, _: usize, _: &Block) -> bool {
        true
    }

    fn start(&mut self, _: usize, block: &mut Block) -> Result<(), MpcError> {
        block.start(&self.x[block.inputs()])
    }

    fn follows(&self, _: usize) -> bool {
        false
    }

    fn receive(&mut self, _: usize, _: &Block) -> Result<(), MpcError> {
        Ok(())
    }

    fn finish(&mut self, _: usize, results: Zeroizing<Vec<u64>>) -> Result<(), MpcError> {
        // A layer's blocks have equally many steps, so they come through in order.
        self.out.extend_from_slice(&results);
        Ok(())
    }
}

/// Runs all blocks of one layer on `x`, this party's shares of its inputs; this party's shares of its outputs. The
/// client's last message may remain in the channel's buffer.
///
/// # Errors
/// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
pub fn run(blocks: Vec<Block>, chan: &mut Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
    check_count("shares", x.len(), blocks.last().map_or(0, |b| b.inputs.end))?;
    let out = Vec::with_capacity(blocks.last().map_or(0, |b| b.outputs.end));
    let mut alone = Alone { chan, x, out };
    drive(blocks, &mut alone)?;
    Ok(alone.out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_block_takes_its_steps_in_turn(steps in prop::collection::vec(1usize..8, 0..40)) {
            let mut done = vec![0; steps.len()];
            for (j, s) in order(&steps) {
                prop_assert_eq!(done[j], s);
                done[j] += 1;
            }
            prop_assert_eq!(done, steps);
        }

        /// The argument of the header, played: each party works along the order and blocks on what has not been sent.
        /// The longest chain of messages that wait for each other is that of one block, up to a window.
        #[test]
        fn nobody_waits_for_ever_and_few_blocks_take_the_flights_of_one(count in 1usize..40, steps in 1usize..8) {
            let order = order(&vec![steps; count]);
            let (mut at, mut depth) = ([0, 0], [0usize, 0]);
            let mut sent = vec![vec![[None::<usize>; 2]; steps]; count];
            loop {
                let before = at;
                for me in [0, 1] {
                    while let Some(&(j, s)) = order.get(at[me]) {
                        let theirs = match (me, s) {
                            (0, 0) => Some(0),
                            (0, s) => sent[j][s - 1][1],
                            _ => sent[j][s][0],
                        };
                        let Some(theirs) = theirs else { break };
                        depth[me] = depth[me].max(theirs);
                        sent[j][s][me] = Some(depth[me] + 1);
                        at[me] += 1;
                    }
                }
                if at == before {
                    break;
                }
            }
            prop_assert_eq!(at, [order.len(); 2]);
            if count <= WINDOW {
                prop_assert_eq!(depth, [2 * steps - 2, 2 * steps - 1]);
            } else {
                prop_assert!(depth[0] <= 2 * (steps - 1) * count.div_ceil(WINDOW));
            }
        }
    }
}
