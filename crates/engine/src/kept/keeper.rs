//! A client that stays connected and keeps prepared queries, so that an input waits for the online stage only.
//!
//! ```text
//! caller:      predict(x) ── kept query ──> Runner (second connection)          each predict takes a query away
//! background:  Ready (first connection) ── keep_query, until there are enough ── and the background makes another
//! ```
//!
//! Where no query is there (the server has no room, the inputs come too fast, `keep` is 0), one is prepared when the
//! input comes. A server that takes no second connection is done without it: then an input waits until the first has
//! nothing under way.
//!
//! What is kept is held in memory by both parties, and by nobody else. When a connection breaks, in use or idle, all of
//! it is dropped on both sides; the next call to [`Keeper::predict`] says why, and the one behind it connects anew and
//! prepares afresh.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use jaguar_graph::bundle::ModelId;
use jaguar_graph::network::Network;
use jaguar_plan::Plan;
use jaguar_wire::Stage;

use crate::client::{Connected, Kept, Prediction, Ready, Reveal, Runner, check_input, only};
use crate::error::EngineError;
use crate::hint::HintPlace;
use crate::kept::stock::{NoRoom, Stock, prepared_bytes};
use crate::progress::Progress;
use crate::report::Report;

/// What a [`Keeper`] keeps, and where.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// Prepared queries to have ready. 0: each is prepared when its input comes.
    pub keep: u32,
    /// Bytes that they may hold at this party, all together ([`prepared_bytes`] each).
    pub memory: u64,
    /// Queries that will be asked for in all, if that is known: no more are prepared.
    pub total: Option<u64>,
    /// Whether the next query is prepared also while an input is being answered: for many inputs in a row. Else the
    /// answer has the machine and the link to itself.
    pub overlap: bool,
    /// Where the hint is kept.
    pub place: HintPlace,
    /// Whether reports tell when both parties did what.
    pub timeline: bool,
    /// Connects for the second connection. None: as for the first.
    pub dial_second: Option<Arc<Dial>>,
}

impl Options {
    /// `keep` queries in at most 2 GiB, with the hint at `place`.
    pub fn new(keep: u32, place: impl Into<HintPlace>) -> Self {
        Self {
            keep,
            memory: 2 << 30,
            total: None,
            overlap: false,
            place: place.into(),
            timeline: false,
            dial_second: None,
        }
    }
}

/// Connects to the server. It is called twice for a keeper, and again after a connection broke.
pub type Dial = dyn Fn() -> Result<Connected, EngineError> + Send + Sync;

/// A client that stays connected.
pub struct Keeper {
    dial: Arc<Dial>,
    options: Options,
    model: ModelId,
    reveal: Reveal,
    network: Network,
    plan: Plan,
    /// None between a failure and the next call.
    live: Option<Live>,
    /// The thread of connections that have failed, until it has ended.
    ending: Option<JoinHandle<()>>,
    no_runner: Option<EngineError>,
    /// How many of the session's queries were answered.
    answered: u64,
}

/// Both connections, and the thread that prepares.
struct Live {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// How many queries to have ready.
    keep: usize,
    overlap: bool,
}

struct State {
    /// The first connection, when nothing is under way on it.
    ready: Option<Ready>,
    /// The second, when it runs nothing.
    runner: Option<Runner>,
    kept: VecDeque<Kept>,
    /// Queries that are still to be prepared, if that is known.
    left: Option<u64>,
    /// Whether the background is preparing a query.
    preparing: bool,
    /// The caller wants the first connection.
    wanted: bool,
    /// The caller waits for an answer.
    asked: bool,
    stop: bool,
    failure: Option<EngineError>,
    /// What preparing in the background had to say, until a caller hears it.
    heard: Heard,
    /// Why the server kept no more, and when it said so.
    no_room: Option<(NoRoom, Instant)>,
    server_keeps: Stock,
}

/// Notes and warnings, in the order in which they came.
#[derive(Default)]
struct Heard(Vec<Said>);

enum Said {
    Note(String),
    Warning(String),
}

impl Progress for Heard {
    fn step(&mut self, _: Stage, _: usize, _: usize, _: &str) {}
    fn hint(&mut self, _: u64, _: u64) {}

    fn note(&mut self, text: &str) {
        self.0.push(Said::Note(text.to_owned()));
    }

    fn warning(&mut self, text: &str) {
        self.0.push(Said::Warning(text.to_owned()));
    }
}

impl Heard {
    fn tell(self, progress: &mut dyn Progress) {
        for said in self.0 {
            match said {
                Said::Note(text) => progress.note(&text),
                Said::Warning(text) => progress.warning(&text),
            }
        }
    }
}

/// How long after a refusal the background asks again, if no query was used meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The same, where the day's queries are spent.
const ASK_AGAIN_TODAY: Duration = Duration::from_secs(60);

/// How often idle connections are looked at.
const LOOK: Duration = Duration::from_secs(1);

impl Keeper {
    /// Connects, opens the hint, and begins to prepare queries in the background.
    ///
    /// # Errors
    /// When the queries would hold more memory than the options allow (nothing secret has passed then), or the
    /// connection fails.
    pub fn open(dial: Arc<Dial>, options: Options, progress: &mut dyn Progress) -> Result<Self, EngineError> {
        let connected = dial()?;
        Self::over(connected, dial, options, progress)
    }

    /// As [`open`](Self::open), over a connection that is there; `dial` connects to the same server.
    ///
    /// # Errors
    /// As there.
    pub fn over(
        connected: Connected,
        dial: Arc<Dial>,
        options: Options,
        progress: &mut dyn Progress,
    ) -> Result<Self, EngineError> {
        let [each, _] = prepared_bytes(connected.plan());
        let all = each.saturating_mul(options.keep.into());
        if all > options.memory {
            return Err(EngineError::Input(format!(
                "{} prepared queries hold {all} bytes ({each} each), more than the {} allowed",
                options.keep, options.memory
            )));
        }
        let (network, plan) = (connected.network().clone(), connected.plan().clone());
        let (model, reveal) = (connected.model(), connected.reveal());
        let mut keeper = Self {
            dial,
            options,
            model,
            reveal,
            network,
            plan,
            live: None,
            ending: None,
            no_runner: None,
            answered: 0,
        };
        keeper.live = Some(keeper.begin(connected, progress)?);
        Ok(keeper)
    }

    /// What every client learns of the network: no weight.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// What both parties do, by node.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The model's public name, which tells compiled models apart.
    pub fn model(&self) -> ModelId {
        self.model
    }

    /// What the server reveals of the output.
    pub fn reveal(&self) -> Reveal {
        self.reveal
    }

    /// How many prepared queries are there now.
    pub fn ready(&self) -> usize {
        self.live.as_ref().map_or(0, |live| live.shared.lock().kept.len())
    }

    /// Prepared queries here, and the bytes that they hold at this party.
    pub fn stock(&self) -> Stock {
        let [each, _] = prepared_bytes(&self.plan);
        let queries = self.ready() as u32;
        Stock { queries, bytes: each * u64::from(queries) }
    }

    /// What the server said last that it keeps for this client.
    pub fn server_keeps(&self) -> Stock {
        self.live.as_ref().map_or_else(Stock::default, |live| live.shared.lock().server_keeps)
    }

    /// Why the server keeps no more at present.
    pub fn no_room(&self) -> Option<NoRoom> {
        self.live.as_ref()?.shared.lock().no_room.map(|(why, _)| why)
    }

    /// Why there is no second connection, told once.
    pub fn no_runner(&mut self) -> Option<EngineError> {
        self.no_runner.take()
    }

    /// Waits until `queries` are ready, or no more will be: the server has no room, no more are wanted, or a connection
    /// broke (which the next [`predict`](Self::predict) tells). Returns how many are.
    pub fn wait_until_ready(&self, queries: usize) -> usize {
        let Some(live) = &self.live else { return 0 };
        let shared = &live.shared;
        let mut state = shared.lock();
        while state.kept.len() < queries
            && (state.preparing || (state.ready.is_some() && shared.prepares(&state)))
        {
            state = shared.wait(state);
        }
        state.kept.len()
    }

    /// Says why a connection has failed since the last call, for who wants to know before an input is there. All that was prepared is
    /// dropped then, and the next [`predict`](Self::predict) connects anew.
    ///
    /// # Errors
    /// When one has.
    pub fn check(&mut self) -> Result<(), EngineError> {
        let failure = self.live.as_ref().and_then(|live| live.shared.lock().failure.take());
        let Some(failure) = failure else { return Ok(()) };
        self.ending = self.live.take().and_then(Live::give_up);
        Err(failure)
    }

    /// One query fewer will be asked for than [`Options::total`] said.
    pub fn one_less(&mut self) {
        self.options.total = self.options.total.map(|total| total.saturating_sub(1));
        if let Some(live) = &self.live {
            live.shared.one_less();
        }
    }

    /// Asks about `input`, integers `[C, H, W]` in the activation range, with the oldest prepared query, or one that is
    /// prepared now.
    ///
    /// # Errors
    /// When the input does not fit the network (nothing is lost then), or a connection has failed, now or since the
    /// last call. All that was prepared is dropped then, and the next call connects anew. Whether an input that was
    /// sent has been seen by the server is open; asking again is a query of its own, with nothing of the first.
    pub fn predict(
        &mut self,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Prediction, Report), EngineError> {
        let (predictions, report) = self.predict_batch(input, progress)?;
        Ok((only(predictions)?, report))
    }

    /// As [`predict`](Self::predict), about as many images as the session's queries have, `[image, C, H, W]`; a prediction for each.
    ///
    /// # Errors
    /// As there.
    pub fn predict_batch(
        &mut self,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Prediction>, Report), EngineError> {
        check_input(&self.network, self.plan.images(), input)?;
        let live = match self.live.take() {
            Some(live) => live,
            None => self.begin_again(progress)?,
        };
        live.shared.lock().asked = true;
        let answer = live.shared.predict(input, progress);
        live.shared.lock().asked = false;
        live.shared.changed.notify_all();
        match answer {
            Ok(answer) => {
                self.live = Some(live);
                self.answered += 1;
                Ok(answer)
            }
            Err(error) => {
                self.ending = live.give_up();
                Err(error)
            }
        }
    }

    /// Ends the connections in order, when what is under way is through. What was prepared is dropped, on both sides.
    ///
    /// # Errors
    /// When a connection failed before.
    pub fn close(mut self) -> Result<(), EngineError> {
        join(self.ending.take());
        let Some(live) = self.live.take() else { return Ok(()) };
        live.stop();
        let Live { shared, thread } = live;
        join(thread);
        let mut state = shared.lock();
        state.kept.clear();
        let (failure, runner, ready) = (state.failure.take(), state.runner.take(), state.ready.take());
        drop(state);
        match failure {
            Some(failure) => Err(failure),
            None => runner.map_or(Ok(()), Runner::leave).and(ready.map_or(Ok(()), Ready::leave)),
        }
    }

    fn begin_again(&mut self, progress: &mut dyn Progress) -> Result<Live, EngineError> {
        // A session's end frees its place at the server, and its hold on the hint.
        join(self.ending.take());
        let connected = (self.dial)()?;
        if (connected.model(), connected.plan().digest()) != (self.model, self.plan.digest()) {
            return Err(EngineError::Input("the server has another model now, or another plan of it".into()));
        }
        self.begin(connected, progress)
    }

    fn begin(&mut self, connected: Connected, progress: &mut dyn Progress) -> Result<Live, EngineError> {
        let mut ready = connected.prepare_client_at(self.options.place.clone(), progress)?;
        if self.options.timeline {
            ready = ready.with_timeline();
        }
        let mut runner = None;
        if self.options.keep > 0 {
            let (ticket, with_ticket) = ready.ticket()?;
            ready = with_ticket;
            let dial = self.options.dial_second.as_ref().unwrap_or(&self.dial);
            match dial().and_then(|connected| connected.join(&ticket)) {
                Ok(joined) => runner = Some(joined),
                Err(e) => self.no_runner = Some(e),
            }
        }
        let left = self.options.total.map(|total| total.saturating_sub(self.answered));
        let state = State {
            ready: Some(ready),
            runner,
            kept: VecDeque::new(),
            left,
            preparing: false,
            wanted: false,
            asked: false,
            stop: false,
            failure: None,
            heard: Heard::default(),
            no_room: None,
            server_keeps: Stock::default(),
        };
        let keep = self.options.keep as usize;
        let overlap = self.options.overlap;
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), keep, overlap });
        let background = Arc::clone(&shared);
        let thread =
            (keep > 0).then(|| Builder::new().name("prepare".into()).spawn(move || background.work()));
        let thread = thread.transpose().map_err(|e| EngineError::Input(format!("starting a thread: {e}")))?;
        Ok(Live { shared, thread })
    }
}

impl Live {
    /// Nothing more is prepared, and what was is dropped.
    fn stop(&self) {
        let mut state = self.shared.lock();
        state.stop = true;
        let kept = std::mem::take(&mut state.kept);
        drop(state);
        self.shared.changed.notify_all();
        drop(kept);
    }

    /// Cuts the connections; one on which a query is being prepared when that is through. Returns the thread that does
    /// it.
    fn give_up(mut self) -> Option<JoinHandle<()>> {
        self.stop();
        let mut state = self.shared.lock();
        let idle = (state.ready.take(), state.runner.take());
        drop(state);
        drop(idle);
        self.thread.take()
    }
}

impl Drop for Keeper {
    /// As [`close`](Self::close), but the background is not waited for: it ends when the query that it prepares is
    /// through.
    fn drop(&mut self) {
        if let Some(live) = self.live.take() {
            live.give_up();
        }
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread {
        // What it panicked with was reported.
        let _ = thread.join();
    }
}

/// Takes note if a thread panics in the middle of something.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(EngineError::Input("preparing a query in the background broke off".into()));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything is over: what was prepared is dropped, and the connections are cut.
    fn fail(&self, error: EngineError) {
        let mut state = self.lock();
        state.failure.get_or_insert(error);
        state.preparing = false;
        let dropped = (std::mem::take(&mut state.kept), state.ready.take(), state.runner.take());
        drop(state);
        self.changed.notify_all();
        drop(dropped);
    }

    /// One query fewer is to be prepared in the background.
    fn one_less(&self) {
        let mut state = self.lock();
        state.left = state.left.map(|left| left.saturating_sub(1));
    }

    /// Whether another query should be prepared in the background.
    fn prepares(&self, state: &State) -> bool {
        let refused = state.no_room.is_some_and(|(why, when)| {
            let pause = match why {
                NoRoom::Client { .. } | NoRoom::All { .. } => ASK_AGAIN,
                NoRoom::Queries => ASK_AGAIN_TODAY,
            };
            when.elapsed() < pause
        });
        state.failure.is_none()
            && !state.stop
            && (self.overlap || !state.asked)
            && !refused
            && state.left != Some(0)
            && state.kept.len() < self.keep
    }

    // ---- In the background ----

    fn work(&self) {
        let _guard = Guard(self);
        let mut state = self.lock();
        let mut looked = Instant::now();
        while !state.stop && state.failure.is_none() {
            if !state.wanted && self.prepares(&state) && state.ready.is_some() {
                let ready = state.ready.take().expect("there");
                state.preparing = true;
                state.left = state.left.map(|left| left - 1);
                drop(state);
                let mut heard = Heard::default();
                let outcome = ready.keep_query(&mut heard);
                state = self.lock();
                state.heard.0.append(&mut heard.0);
                state.preparing = false;
                match outcome {
                    Ok((ready, kept)) => {
                        state.server_keeps = ready.server_keeps();
                        state.ready = Some(ready);
                        match kept {
                            Ok(kept) => {
                                state.kept.push_back(kept);
                                state.no_room = None;
                            }
                            Err(why) => {
                                state.left = state.left.map(|left| left + 1);
                                state.no_room = Some((why, Instant::now()));
                            }
                        }
                    }
                    Err(error) => {
                        drop(state);
                        self.fail(error);
                        return;
                    }
                }
                self.changed.notify_all();
                continue;
            }
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                let state = &mut *state;
                let ready = state.ready.as_mut().map_or(Ok(()), Ready::check);
                if let Err(error) = ready.and_then(|()| state.runner.as_mut().map_or(Ok(()), Runner::check)) {
                    state.failure = Some(error);
                }
            }
        }
        if state.failure.is_some() {
            let failure = state.failure.take().expect("there");
            drop(state);
            self.fail(failure);
        }
    }

    // ---- For the caller ----

    fn predict(
        &self,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Prediction>, Report), EngineError> {
        let mut state = self.lock();
        let kept = loop {
            if let Some(failure) = state.failure.take() {
                return Err(failure);
            }
            if let Some(kept) = state.kept.pop_front() {
                // There is room for another, if there was too little.
                state.no_room = state.no_room.filter(|(why, _)| matches!(why, NoRoom::Queries));
                break Some(kept);
            }
            if !state.preparing {
                break None;
            }
            state = self.wait(state);
        };
        let heard = std::mem::take(&mut state.heard);
        match (kept, state.runner.take()) {
            (Some(kept), Some(runner)) => {
                drop(state);
                heard.tell(progress);
                self.run(runner, kept, input, progress)
            }
            (kept, runner) => {
                let ready = self.take_ready(state);
                heard.tell(progress);
                self.run_first(ready?, (kept, runner), input, progress)
            }
        }
    }

    /// The first connection, when nothing is under way on it.
    fn take_ready<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<Ready, EngineError> {
        state.wanted = true;
        loop {
            if let Some(failure) = state.failure.take() {
                return Err(failure);
            }
            if let Some(ready) = state.ready.take() {
                return Ok(ready);
            }
            state = self.wait(state);
        }
    }

    /// Gives back what [`take_ready`](Self::take_ready) took.
    fn give_ready(&self, ready: Ready) {
        let mut state = self.lock();
        state.server_keeps = ready.server_keeps();
        state.ready = Some(ready);
        state.wanted = false;
        drop(state);
        self.changed.notify_all();
    }

    /// On the second connection.
    fn run(
        &self,
        runner: Runner,
        kept: Kept,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Prediction>, Report), EngineError> {
        self.changed.notify_all();
        let (predictions, report, runner) = runner.run_batch(kept, input, progress)?;
        let mut state = self.lock();
        state.server_keeps = report.server_keeps;
        state.runner = Some(runner);
        Ok((predictions, report))
    }

    /// With the first connection: where there is a second but no query, one is prepared for it, so that the background
    /// can begin the next.
    fn run_first(
        &self,
        mut ready: Ready,
        (kept, runner): (Option<Kept>, Option<Runner>),
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Prediction>, Report), EngineError> {
        let (predictions, report, ready) = match (kept, runner) {
            (Some(kept), _) => ready.run_kept_batch(kept, input, progress)?,
            (None, runner) => {
                self.one_less();
                if let Some(runner) = runner {
                    let (with_kept, kept) = ready.keep_query(progress)?;
                    match kept {
                        Ok(kept) => {
                            self.give_ready(with_kept);
                            return self.run(runner, kept, input, progress);
                        }
                        Err(why) => {
                            let mut state = self.lock();
                            state.no_room = Some((why, Instant::now()));
                            state.runner = Some(runner);
                        }
                    }
                    ready = with_kept;
                }
                ready.prepare_query(progress)?.run_batch(input, progress)?
            }
        };
        self.give_ready(ready);
        Ok((predictions, report))
    }
}
