//! `jaguar serve --protocol convfhe`: keeps clients' keys, and evaluates their inputs one after the other.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use jaguar::EngineError;
use jaguar::net::Bound;
use jaguar::reports::terminal::table::bytes;
use jaguar::reports::terminal::{size, threads};
use jaguar::serve::{Caller, Control, Hosted, Told, Visit};
use jaguar::wire::Channel;
use jaguar_convfhe::session::server::{Service, Sizes};
use jaguar_convfhe::session::{DeskLimits, Evaluation, KeyStore, NAME, Owner, Terms};
use jaguar_convfhe::{Compiled, Elsewhere, Figures, InProcess, Loaded, memory};
use tracing::{info, warn};

use super::HEADING;
use crate::log::TARGET;
use crate::one_round::protocol::Serving;

/// What `jaguar serve` takes for this protocol alone.
#[derive(clap::Args)]
#[command(next_help_heading = HEADING)]
pub struct Storage {
    /// Where clients' evaluation keys are kept (default: in the user's cache folder).
    #[arg(long, hide = true, value_name = "FOLDER")]
    key_dir: Option<PathBuf>,
    /// Disk for the keys of all clients, such as 500M or 32G (default: 32G).
    ///
    /// Where there is no room, those go that were not used for the longest; their client sends them again.
    #[arg(long, hide = true, value_name = "SIZE", value_parser = size)]
    key_storage: Option<u64>,
    /// A folder that other machines have too, which evaluate: each input is put there, and `jaguar evaluate` leaves the answer.
    ///
    /// The model, this folder and `--key-dir` have the same paths there. Without it, this process evaluates, one input after the other.
    #[arg(long, hide = true, value_name = "FOLDER")]
    evaluations: Option<PathBuf>,
    /// How long an answer is kept for a client that left: a number with s, m or h behind it.
    #[arg(long, hide = true, value_name = "TIME", default_value = "1h", value_parser = time)]
    keep_answers: Duration,
}

/// Bytes of keys that are kept where `--key-storage` says nothing.
const KEY_STORAGE: u64 = 32_000_000_000;

/// How long sessions have to tell their clients that the server ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A time from a number of seconds, minutes or hours, as `90s`, `15m` or `1h`.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no time such as 90s, 15m or 1h");
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, &text[number.len()..]),
        None => return Err(wrong()),
    };
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        _ => 3600,
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).filter(|&s| s > 0).map(Duration::from_secs).ok_or_else(wrong)
}

/// The one-round service behind the server's port.
pub struct OneRoundService {
    service: Service,
    /// For how many queries an input counts: as it has room for.
    queries: u64,
}

impl Hosted for OneRoundService {
    fn serve(
        &self,
        channel: Channel,
        visit: &Visit<'_>,
        tell: &mut dyn FnMut(Told),
    ) -> Result<(), EngineError> {
        let owner = match visit.caller() {
            Caller { token: Some(name), .. } => Some(Owner::known("token", name)),
            Caller { certificate: Some(fingerprint), .. } => {
                Some(Owner::known("certificate", &fingerprint.to_string()))
            }
            _ => None,
        };
        let count = || visit.count_query(&self.service.terms().facing.name, self.queries);
        let who = (owner, visit.caller().address);
        self.service.serve(channel, who, &count, &mut |notice| tell(Told::OneRound(notice)))
    }
}

impl Serving for OneRoundService {
    fn announce(&self, address: &Bound) {
        let terms = self.service.terms();
        let (name, model) = (&terms.facing.name, self.service.model());
        info!(
            target: TARGET, event = "listening", network = name, %model, protocol = NAME, %address,
            "{name} (model {model}), protocol {NAME}, parameter set {}, listening on {address}", terms.set,
        );
    }

    fn end(&self, control: &Control) {
        self.service.end();
        let deadline = Instant::now() + LAST_WORDS;
        while control.clients() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Reads the model, checks what it takes, and opens what is kept.
pub fn serve(storage: &Storage, model: &Path, cache: Option<PathBuf>) -> Result<OneRoundService> {
    let Loaded { compiled, id, set, plan } = Compiled::load(model)?;
    let queries = plan.description().images as u64;
    let limits = DeskLimits { keep: storage.keep_answers, ..DeskLimits::default() };
    let figures = Figures::new(&set, &plan, threads())?;
    let evaluation: Box<dyn Evaluation> = match &storage.evaluations {
        Some(folder) => {
            // All that may wait, may be evaluated at once: how many are is for who runs them to say.
            let elsewhere = Elsewhere::new(folder, (model, id), figures.clone(), limits.waiting)?;
            let (need, folder) = (figures.memory, folder.display());
            info!(
                target: TARGET, event = "evaluations", need, %folder,
                "has inputs evaluated by others, from {folder}; each takes about {} of memory (estimated)",
                gigabytes([need])[0],
            );
            Box::new(elsewhere)
        }
        None => {
            check_memory(&figures)?;
            Box::new(InProcess::new(set.clone(), plan, threads(), crate::memory::give_back)?)
        }
    };
    let folder = match &storage.key_dir {
        Some(folder) => folder.clone(),
        None => cache
            .context("no folder is known to keep clients' keys in: name one with --key-dir")?
            .join("keys"),
    };
    // Each set's keys have their own length.
    let folder = folder.join(set.name());
    let quota = storage.key_storage.unwrap_or(KEY_STORAGE);
    if quota < figures.keys {
        bail!("--key-storage {} holds no client's keys: they have {}", bytes(quota), bytes(figures.keys));
    }
    if set.is_insecure() {
        eprintln!("warning: parameter set '{}' protects nothing: it is for tests", set.name());
    }
    let store = KeyStore::open(&folder, figures.keys, quota)?;
    let (clients, kept) = store.stock();
    info!(
        target: TARGET, event = "keys", clients, bytes = kept, quota,
        "keeps keys of {clients} clients ({} of {}), each {}", bytes(kept), bytes(quota), bytes(figures.keys),
    );
    let terms = Terms {
        set: compiled.set,
        public: compiled.public,
        outputs: compiled.outputs,
        facing: compiled.facing,
        keep_answers: storage.keep_answers.as_secs(),
        memory: figures.memory,
    };
    let sizes = Sizes { keys: figures.keys, input: figures.input, answer: figures.answer };
    let most = limits.most_bytes(sizes.input, sizes.answer);
    let log = Box::new(|text: &str| warn!(target: TARGET, event = "evaluation-failed", "{text}"));
    let service = Service::new((id, terms, sizes), store, evaluation, limits, log)?;
    let [inputs, answers] = service.stock();
    info!(
        target: TARGET, event = "queue", inputs, answers, most,
        "goes on with {inputs} inputs and {answers} answers of an earlier run; they take at most {} of disk", bytes(most),
    );
    Ok(OneRoundService { service, queries })
}

/// Says what an evaluation takes, and ends where this machine never has that much.
fn check_memory(figures: &Figures) -> Result<()> {
    let need = figures.memory;
    let Some([free, all]) = memory() else { return Ok(()) };
    let warning = fits(need, [free, all])?;
    let text = gigabytes([need, free, all]);
    info!(
        target: TARGET, event = "memory", need, free, all,
        "an evaluation takes about {} of memory (estimated); {} of {} are free", text[0], text[1], text[2],
    );
    if let Some(warning) = warning {
        eprintln!("warning: {warning}");
    }
    Ok(())
}

fn gigabytes<const N: usize>(bytes: [u64; N]) -> [String; N] {
    bytes.map(|bytes| format!("{:.1} GB", bytes as f64 / 1e9))
}

/// Whether an evaluation that takes `need` bytes can ever run with `[free, all]` of memory; a warning if it cannot now.
fn fits(need: u64, [free, all]: [u64; 2]) -> Result<Option<String>> {
    let [need_text, free_text, all_text] = gigabytes([need, free, all]);
    ensure!(
        all >= need,
        "this machine is too small: an evaluation takes about {need_text} of memory (estimated), and it has {all_text}"
    );
    Ok((free < need).then(|| {
        format!(
            "{free_text} of memory are free now, and an evaluation takes about {need_text}: until there is more, clients are told so \
             instead of an answer"
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_are_too_small_are_told() {
        assert!(fits(12_300_000_000, [13_000_000_000, 16_000_000_000]).unwrap().is_none());
        let now = fits(12_300_000_000, [5_000_000_000, 16_000_000_000]).unwrap().unwrap();
        assert!(now.contains("5.0 GB") && now.contains("12.3 GB"), "{now}");
        let never = fits(12_300_000_000, [5_000_000_000, 8_000_000_000]).unwrap_err().to_string();
        assert!(
            never.contains("too small") && never.contains("12.3 GB") && never.contains("8.0 GB"),
            "{never}"
        );
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("15m"), Ok(Duration::from_secs(900)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "h", "1", "0s", "-1s", "1d", "99999999999999999999h", "9999999999999999h"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
