//! The one session with the server: a thread that has it, and a line of requests in front.
//!
//! ```text
//! requests ── a place in the line, or `Later` ──> asker (a Keeper: kept queries, in the order in which inputs came) ──> answers
//!                                                    a connection broke: all that wait are told so, and it connects anew
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use jaguar::bundle::ModelId;
use jaguar::client::{Connected, Prediction, together};
use jaguar::hint::HintPlace;
use jaguar::kept::keeper::{self, Keeper};
use jaguar::progress::NoProgress;
use jaguar::reports::terminal::in_one_line;
use jaguar::stop::Stop;
use jaguar::{EngineError, Stock};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use crate::metrics::Metrics;
use crate::model::About;
use crate::refusal::{COME_BACK, Refusal};

/// Connects to the server; the session ends at once when the `Stop` says so. `true`: it may wait for a place, else not.
pub type Dial = dyn Fn(&Stop, bool) -> Result<Connected, EngineError> + Send + Sync;

/// What happened, for a log.
#[derive(Debug)]
pub enum Event {
    /// The server is there: the model's name and version.
    Connected(String, String),
    /// So many prepared queries are there for the first time since.
    Ready(u32),
    /// A person may like to know this.
    Note(String),
    /// The connection broke, or there is none yet, and why.
    Away(String),
}

/// Who hears what happens.
pub type Hear = dyn Fn(Event) + Send + Sync;

/// What the line and the session may take.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// Prepared queries to have ready.
    pub keep: u32,
    /// Bytes that they may hold here.
    pub memory: u64,
    /// Where the hint is kept.
    pub place: HintPlace,
    /// Inputs that may wait for an answer, all requests together.
    pub waiting: usize,
    /// How long a request may wait for its answer.
    pub patience: Duration,
}

impl Options {
    /// `keep` queries in at most 2 GiB, 64 inputs that wait five minutes.
    pub fn new(keep: u32, place: HintPlace) -> Self {
        let memory = keeper::Options::new(keep, place.clone()).memory;
        Self { keep, memory, place, waiting: 64, patience: Duration::from_secs(300) }
    }
}

/// How often the session is looked at while nobody asks.
const LOOK: Duration = Duration::from_millis(200);

/// How long to wait before the server is dialled again: first, and at most.
const PAUSE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];

/// How long a session that was cut may take to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// Inputs of one request, and who waits for their answers.
struct Job {
    /// The model that they were made for.
    model: ModelId,
    inputs: Vec<Zeroizing<Vec<i64>>>,
    reply: oneshot::Sender<Result<Vec<Prediction>, Refusal>>,
    /// Its place in the line.
    _place: Place,
}

/// So many places in the line, free again when dropped.
struct Place(Arc<AtomicUsize>, usize);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// What is so at the moment.
#[derive(Clone)]
pub struct Now {
    pub about: Arc<About>,
    /// Why the server cannot be asked; none: it can.
    pub away: Option<String>,
    /// Whether queries have been prepared since it is there, or none will be.
    pub prepared: bool,
    pub stock: Stock,
}

/// The session, for those who ask.
pub struct Asker {
    line: Mutex<Option<Sender<Job>>>,
    waiting: Arc<AtomicUsize>,
    now: Arc<Mutex<Now>>,
    stop: Arc<Mutex<Stop>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    most: usize,
    patience: Duration,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Asker {
    /// Over a connection that is there.
    ///
    /// # Errors
    /// When the queries would hold more than they may, or the connection fails.
    pub fn start(
        dial: Arc<Dial>,
        options: Options,
        hear: Arc<Hear>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, EngineError> {
        let (line, jobs) = channel();
        let stop = Stop::default();
        let connected = dial(&stop, true)?;
        let about = Arc::new(About::new(&connected));
        let now = Now { about, away: None, prepared: false, stock: Stock::default() };
        let now = Arc::new(Mutex::new(now));
        let stop = Arc::new(Mutex::new(stop));
        let (most, patience) = (options.waiting, options.patience);
        let mut session = Session {
            dial,
            options,
            hear,
            metrics,
            jobs,
            now: now.clone(),
            stop: stop.clone(),
            keeper: None,
        };
        session.begin(connected)?;
        let thread = Builder::new().name("asker".into()).spawn(move || session.work());
        let thread = thread.map_err(|e| EngineError::Input(format!("starting a thread: {e}")))?;
        Ok(Self {
            line: Mutex::new(Some(line)),
            waiting: Arc::default(),
            now,
            stop,
            thread: Mutex::new(Some(thread)),
            most,
            patience,
        })
    }

    pub fn now(&self) -> Now {
        lock(&self.now).clone()
    }

    /// Inputs that a request may have.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Inputs that wait for their answers.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Asks about inputs of the model that `about` tells of; answers in their order.
    pub async fn ask(
        &self,
        about: &About,
        inputs: Vec<Zeroizing<Vec<i64>>>,
    ) -> Result<Vec<Prediction>, Refusal> {
        if let Some(why) = lock(&self.now).away.clone() {
            return Err(Refusal::away(&why));
        }
        let count = inputs.len();
        let before = self.waiting.fetch_add(count, Ordering::SeqCst);
        let place = Place(self.waiting.clone(), count);
        if before + count > self.most {
            let text = format!("{before} inputs wait already, of {} that may", self.most);
            return Err(Refusal::later(text, COME_BACK));
        }
        let (reply, answer) = oneshot::channel();
        let job = Job { model: about.model, inputs, reply, _place: place };
        let ended = || Refusal::later("this gateway ends", COME_BACK);
        lock(&self.line).as_ref().and_then(|line| line.send(job).ok()).ok_or_else(ended)?;
        match tokio::time::timeout(self.patience, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ended()),
            Err(_) => {
                let text = format!("no answer came within {} s", self.patience.as_secs());
                Err(Refusal::later(text, COME_BACK))
            }
        }
    }

    /// Ends the session: in order within `grace`, else at once. (A thread that waits for the system is left to the process's end.)
    pub fn end(&self, grace: Duration) {
        drop(lock(&self.line).take());
        let Some(thread) = lock(&self.thread).take() else { return };
        for wait in [grace, FAREWELL] {
            let until = Instant::now() + wait;
            while !thread.is_finished() && Instant::now() < until {
                thread::sleep(Duration::from_millis(10));
            }
            lock(&self.stop).now();
        }
    }
}

/// What the thread has.
struct Session {
    dial: Arc<Dial>,
    options: Options,
    hear: Arc<Hear>,
    metrics: Arc<Metrics>,
    jobs: Receiver<Job>,
    now: Arc<Mutex<Now>>,
    /// Ends the session that is there.
    stop: Arc<Mutex<Stop>>,
    keeper: Option<Keeper>,
}

impl Session {
    /// Until nobody can ask any more.
    fn work(mut self) {
        loop {
            match self.jobs.recv_timeout(LOOK) {
                Ok(job) => self.answer(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(Err(why)) = self.keeper.as_mut().map(Keeper::check) {
                self.leave(&why);
            }
            if self.keeper.is_none() && !self.come_back() {
                break;
            }
            self.publish();
        }
        if let Some(keeper) = self.keeper.take() {
            // (Whether the farewell was heard makes no difference any more.)
            let _ = keeper.close();
        }
    }

    /// Has queries prepared over `connected`, and says what the server has.
    fn begin(&mut self, connected: Connected) -> Result<(), EngineError> {
        let about = Arc::new(About::new(&connected));
        let mut options = keeper::Options::new(self.options.keep, self.options.place.clone());
        options.memory = self.options.memory;
        let stop = lock(&self.stop).clone();
        let dialler = |wait: bool| {
            let (dial, stop) = (self.dial.clone(), stop.clone());
            Arc::new(move || dial(&stop, wait))
        };
        // (A client that waited for a second place would hold the first meanwhile.)
        options.dial_second = Some(dialler(false));
        let mut keeper = Keeper::over(connected, dialler(true), options, &mut NoProgress)?;
        let no_second = keeper.no_runner();
        self.keeper = Some(keeper);
        (self.hear)(Event::Connected(about.name().to_owned(), about.version()));
        if let Some(why) = no_second {
            let why = in_one_line(&why);
            (self.hear)(Event::Note(format!(
                "no second connection ({why}): an input waits for a query that is being prepared"
            )));
        }
        *lock(&self.now) = Now { about, away: None, prepared: false, stock: Stock::default() };
        self.publish();
        Ok(())
    }

    /// Says what is there now.
    fn publish(&mut self) {
        let Some(keeper) = &self.keeper else { return };
        let stock = keeper.stock();
        let no_more = self.options.keep == 0 || keeper.no_room().is_some();
        let mut now = lock(&self.now);
        let first = !now.prepared && (stock.queries > 0 || no_more);
        now.prepared |= first;
        now.stock = stock;
        drop(now);
        self.metrics.kept(stock);
        if first {
            (self.hear)(Event::Ready(stock.queries));
        }
    }

    /// Answers a request, and those behind it that fit the same queries.
    fn answer(&mut self, first: Job) {
        let images = self.keeper.as_ref().map_or(1, |keeper| keeper.plan().images());
        let mut jobs = vec![first];
        let count = |jobs: &[Job]| jobs.iter().map(|job| job.inputs.len()).sum::<usize>();
        while count(&jobs) < images
            && let Ok(job) = self.jobs.try_recv()
        {
            jobs.push(job);
        }
        // Who has gone asks no more.
        jobs.retain(|job| !job.reply.is_closed());
        let model = lock(&self.now).about.model;
        let (jobs, others): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.model == model);
        for job in others {
            let text = "the server has another model now: its metadata say which";
            let _ = job.reply.send(Err(Refusal::later(text, 0)));
        }
        let asked = self.ask(&jobs, images);
        match asked {
            Ok(mut predictions) => {
                for job in jobs {
                    let rest = predictions.split_off(job.inputs.len().min(predictions.len()));
                    let own = std::mem::replace(&mut predictions, rest);
                    let _ = job.reply.send(Ok(own));
                }
            }
            Err(why) => {
                let text = in_one_line(&why);
                // (Who is told so and looks finds it so.)
                self.is_away(&text);
                for job in jobs {
                    let text = format!("the connection to the server broke: {text}");
                    let _ = job.reply.send(Err(Refusal::later(text, COME_BACK)));
                }
                self.leave(&why);
            }
        }
    }

    /// The predictions of all inputs of `jobs`, in their order.
    fn ask(&mut self, jobs: &[Job], images: usize) -> Result<Vec<Prediction>, EngineError> {
        let gone = || EngineError::Input("there is no session".into());
        let inputs: Vec<&[i64]> =
            jobs.iter().flat_map(|job| &job.inputs).map(|input| input.as_slice()).collect();
        let mut predictions = Vec::with_capacity(inputs.len());
        for asked in inputs.chunks(images) {
            // Nobody waits any more.
            if jobs.iter().all(|job| job.reply.is_closed()) {
                break;
            }
            let input = Zeroizing::new(together(asked.iter().copied(), images));
            let keeper = self.keeper.as_mut().ok_or_else(gone)?;
            let begun = Instant::now();
            let (mut answers, report) = keeper.predict_batch(&input, &mut NoProgress)?;
            self.metrics.asked(asked.len(), begun.elapsed(), report.kept.is_some());
            answers.truncate(asked.len());
            predictions.append(&mut answers);
        }
        Ok(predictions)
    }

    fn is_away(&self, why: &str) {
        let mut now = lock(&self.now);
        (now.away, now.prepared, now.stock) = (Some(why.to_owned()), false, Stock::default());
    }

    /// Drops the session, of which no more is to be had. Those who wait are told.
    fn leave(&mut self, why: &EngineError) {
        let text = in_one_line(why);
        self.is_away(&text);
        self.metrics.kept(Stock::default());
        self.metrics.broke();
        while let Ok(job) = self.jobs.try_recv() {
            let _ = job.reply.send(Err(Refusal::away(&text)));
        }
        (self.hear)(Event::Away(text));
        lock(&self.stop).now();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.close();
        }
        *lock(&self.stop) = Stop::default();
    }

    /// Dials until there is a session again. False where nobody can ask any more.
    fn come_back(&mut self) -> bool {
        let mut pause = PAUSE[0];
        loop {
            let until = Instant::now() + pause;
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                match self.jobs.recv_timeout(left) {
                    Ok(job) => {
                        let why = lock(&self.now).away.clone().unwrap_or_default();
                        let _ = job.reply.send(Err(Refusal::away(&why)));
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return false,
                }
            }
            pause = (2 * pause).min(PAUSE[1]);
            let stop = lock(&self.stop).clone();
            match (self.dial)(&stop, true).and_then(|connected| self.begin(connected)) {
                Ok(()) => return true,
                Err(why) => {
                    let why = in_one_line(&why);
                    let before = lock(&self.now).away.replace(why.clone());
                    if before.as_ref() != Some(&why) {
                        (self.hear)(Event::Away(why));
                    }
                }
            }
        }
    }
}
