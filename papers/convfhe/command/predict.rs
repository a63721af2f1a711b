//! `jaguar predict --protocol convfhe`: one encrypted input, one encrypted answer, now or later.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use jaguar::answer::{Class, Output};
use jaguar::compile::samples::{self as samples, Axes};
use jaguar::float::Graph;
use jaguar::machine::link;
use jaguar::net::Address;
use jaguar::network::{Finish, softmax};
use jaguar::progress::Progress as _;
use jaguar::reports::terminal::table::bytes;
use jaguar::reports::terminal::{say, threads};
use jaguar::wire::Stage;
use jaguar::wire::framed::Options;
use jaguar::{Cpu, EngineError};
use jaguar_convfhe::memory;
use jaguar_convfhe::party::{Encryption, Making, Party, offered};
use jaguar_convfhe::session::client::{Progress, Session};
use jaguar_convfhe::session::{Facing, NAME, Terms, Ticket};
use serde::Serialize;

use super::{HEADING, hex};
use crate::notes::collect;
use crate::one_round::protocol::Request;
use crate::progress::Bars;

/// What `jaguar predict` takes for this protocol alone.
#[derive(clap::Args)]
#[command(next_help_heading = HEADING)]
pub struct Later {
    /// Send the encrypted input, print a ticket, and leave; --ticket fetches the answer.
    #[arg(long, hide = true)]
    detach: bool,
    /// Fetch the answer that a ticket of --detach stands for, or the answers.
    #[arg(long, hide = true, value_parser = ticket, conflicts_with_all = ["detach", "inputs", "stdin"])]
    ticket: Option<Tickets>,
    /// INSECURE, for tests: accept a parameter set that protects nothing.
    #[arg(long, hide = true)]
    accept_insecure_parameters: bool,
    /// The file with the first layers, which are computed here, in the clear.
    ///
    /// For a model of which the server has only the last ones: `jaguar compile --last` writes this file.
    #[arg(long, hide = true, value_name = "FILE.onnx")]
    first_layers: Option<PathBuf>,
}

impl Later {
    /// The first layers, if the model has some.
    fn first(&self, facing: &Facing) -> Result<Option<Graph>> {
        match (&facing.first, &self.first_layers) {
            (None, None) => Ok(None),
            (None, Some(path)) => {
                bail!("--first-layers {}: the server computes all layers of {}", path.display(), facing.name)
            }
            (Some(first), None) => bail!(
                "the server has only the last layers of {}: --first-layers names the file with those before, which its operator \
                 gives to clients (BLAKE3 {})",
                facing.name,
                hex(&first.hash)
            ),
            (Some(first), Some(path)) => {
                let name = || format!("--first-layers {}", path.display());
                let bytes = std::fs::read(path).with_context(name)?;
                Ok(Some(first.read(&bytes, facing.shape).with_context(name)?))
            }
        }
    }
}

/// A ticket, and how many inputs went under it: `HEX`, or `HEX:2`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tickets {
    ticket: Ticket,
    inputs: usize,
}

impl fmt::Display for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.ticket.0))?;
        if self.inputs > 1 { write!(f, ":{}", self.inputs) } else { Ok(()) }
    }
}

fn ticket(text: &str) -> Result<Tickets, String> {
    let wrong = || {
        "a ticket has 64 hexadecimal digits, and a colon and a number if it stands for several inputs"
            .to_owned()
    };
    let (digits, inputs) = match text.split_once(':') {
        None => (text, 1),
        Some((digits, inputs)) => (digits, inputs.parse().ok().filter(|&n| n > 0).ok_or_else(wrong)?),
    };
    if digits.len() != 64 || !digits.is_ascii() {
        return Err(wrong());
    }
    let digits = (0..32).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| wrong()));
    let bytes: Vec<u8> = digits.collect::<Result<_, _>>()?;
    let ticket = bytes.try_into().map(Ticket).map_err(|_| wrong())?;
    Ok(Tickets { ticket, inputs })
}

/// What is told of an answer.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
    model: &'a str,
    protocol: &'static str,
    top: Vec<Class>,
    /// Rounded: what stands behind the grid is noise, and may tell of the secret.
    logits: &'a [f64],
    outputs: Vec<Output>,
    label: usize,
    cost: Cost,
}

/// What an answer cost, in bytes and seconds.
#[derive(Clone, Copy, Serialize)]
struct Cost {
    /// Bytes of keys that this run sent.
    keys_sent: u64,
    /// Of everything, since the answer before.
    sent: u64,
    received: u64,
    /// From the encrypted input to the answer.
    seconds: f64,
    /// Between how many inputs it is shared, which went at once.
    inputs: usize,
}

/// Asks the server about each input, or fetches the answer that a ticket stands for, and shows what came.
pub fn predict(request: &Request<'_>, later: &Later) -> Result<()> {
    let Request { reach, cache, json, .. } = request;
    let files = collect(request.inputs)?;
    // What cannot be read is told before anything is sent.
    let sources: Vec<_> = files.iter().map(|path| samples::open(path)).collect::<Result<_, _>>()?;
    let folder = cache.as_ref().context(
        "the secret and the keys (gigabytes) need a folder of this client: --cache names one, and --no-cache cannot be",
    )?;
    let mut bars = Bars::new(*json);
    let channel = link::channel(reach.dialer()?.connect(Options::default())?, request.link);
    let mut session = Session::open(channel)?;
    let terms = session.terms().clone();
    let model = format!("{} ({})", terms.facing.name, session.model());
    if !json {
        say!("model {model} at {}, protocol convfhe, parameter set {}", reach.server, terms.set);
    }
    // (A ticket's input was encrypted before.)
    let first = if later.ticket.is_some() { None } else { later.first(&terms.facing)? };
    let tensor = |source| tensor(&terms.facing, first.as_ref(), source);
    let tensors: Vec<Vec<f32>> = files
        .iter()
        .zip(&sources)
        .map(|(path, source)| tensor(source).with_context(|| path.display().to_string()))
        .collect::<Result<_>>()?;
    if reach.server.parse::<Address>().is_ok_and(|address| address.is_local())
        && let Some([free, _]) = memory()
        && free < terms.memory
    {
        bars.warning(&format!(
            "the server is on this machine, where {:.1} GB of memory are free now; an evaluation takes about {:.1} GB",
            free as f64 / 1e9,
            terms.memory as f64 / 1e9
        ));
    }
    let party = Party::open(
        (folder, threads()),
        &terms.set,
        later.accept_insecure_parameters,
        &mut |making| {
            let Making { folder, bytes: keys, replaces } = making;
            let folder = folder.display();
            if replaces {
                eprintln!(
                    "note: the secret and keys in {folder} are of another release, in a form of no use now: they go"
                );
            }
            eprintln!("note: making a secret and {} of keys, once; they are kept in {folder}", bytes(keys));
        },
    )?;
    session.introduce(&party.name_at(&reach.server), party.answer_bytes()?)?;
    let encryption = party.under(&terms)?;
    let mut client =
        Client { request, model: &model, terms: &terms, before: [0; 2], keys_sent: 0, failed: None };
    if let Some(ticket) = later.ticket {
        session.collect(ticket.ticket)?;
        let most = encryption.images();
        ensure!(
            ticket.inputs <= most,
            "--ticket {ticket}: an answer of this model is of {most} inputs at most"
        );
        let arrived = client.receive(&mut session, (Vec::new(), ticket), &mut bars)?;
        session.leave()?;
        return client.open(&encryption, arrived);
    }

    let keys = party.keys();
    let mut told = false;
    let given = session.give_keys(&offered(&keys), &mut |done, all| {
        if !std::mem::replace(&mut told, true) && done > 0 {
            bars.line(&format!("note: the server has {} of the keys already; the rest follows", bytes(done)));
        }
        bars.bytes("sending keys (once)", done, all);
    })?;
    bars.finish();
    if party.given(&reach.server)? && given.sent > 0 && given.had == 0 {
        bars.line("note: the server had given up this client's keys (those that were not used for the longest go first); they were sent again");
    }
    if given.sent > 0 && !json {
        say!("sent {} of keys; further inputs need none", bytes(given.sent));
    }
    client.keys_sent = given.sent;
    // An answer is opened once all that this client still has to say by then is sent: the next input, or that it leaves. So neither what it
    // sends nor when tells the server what came of it.
    let mut arrived = None;
    let mut ask_all = || -> Result<()> {
        let most = encryption.images();
        for (paths, tensors) in files.chunks(most).zip(tensors.chunks(most)) {
            let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            let input = encryption.encrypt(&tensors.concat()).with_context(|| names.join(", "))?;
            let ticket = Tickets { ticket: session.send(&input, !later.detach)?, inputs: names.len() };
            if let Some(arrived) = arrived.take() {
                client.open_or_keep(&encryption, arrived, &mut bars);
            }
            if later.detach {
                client.tell_ticket(&names, ticket);
                continue;
            }
            arrived = Some(client.receive(&mut session, (names, ticket), &mut bars)?);
        }
        Ok(())
    };
    let asked = ask_all().and_then(|()| Ok(session.leave()?));
    if let Some(arrived) = arrived {
        client.open_or_keep(&encryption, arrived, &mut bars);
    }
    asked?;
    client.failed.map_or(Ok(()), Err)
}

/// What is encrypted of an input.
pub(super) fn tensor(facing: &Facing, first: Option<&Graph>, source: &samples::Source) -> Result<Vec<f32>> {
    let axes = Axes { dims: &facing.layout_dims, channels_last: facing.channels_last };
    let tensor = source.tensor(&facing.image, facing.shape, axes)?;
    match first {
        None => Ok(facing.mapped(tensor)),
        Some(first) => first.forward(Cpu::detect(), &tensor).context("an input of another length"),
    }
}

struct Client<'a> {
    request: &'a Request<'a>,
    model: &'a str,
    terms: &'a Terms,
    /// Bytes that were sent and received for earlier answers.
    before: [u64; 2],
    keys_sent: u64,
    /// Why an answer could not be opened: the first one.
    failed: Option<anyhow::Error>,
}

/// An answer that is here, and not opened yet.
struct Arrived {
    /// None where a ticket fetched it.
    inputs: Vec<String>,
    ticket: Tickets,
    encrypted: Vec<u8>,
    cost: Cost,
}

impl Client<'_> {
    fn tell_ticket(&self, inputs: &[String], ticket: Tickets) {
        if self.request.json {
            let keep = self.terms.keep_answers;
            let mut told = serde_json::json!({ "ticket": ticket.to_string(), "kept_seconds": keep });
            match inputs {
                [input] => told["input"] = input.as_str().into(),
                inputs => told["inputs"] = inputs.into(),
            }
            say!("{told}");
        } else {
            say!("\n{}\n  ticket {ticket}", inputs.join("\n"));
            say!(
                "  (--ticket fetches the answer once it is there; the server keeps it for {} min then)",
                self.terms.keep_answers.div_ceil(60)
            );
        }
    }

    /// Waits for an answer. The server forgets it from here on, whether or not it can be decrypted: that tells of the secret.
    fn receive(
        &mut self,
        session: &mut Session,
        (inputs, ticket): (Vec<String>, Tickets),
        bars: &mut Bars,
    ) -> Result<Arrived> {
        let begun = Instant::now();
        let answer = session.answer(&mut |progress| match progress {
            Progress::Queued(0) => {}
            Progress::Queued(ahead) => bars.line(&format!("note: {ahead} evaluations are before this one")),
            Progress::Layers(_, 0) => {}
            Progress::Layers(done, of) => bars.step(Stage::Online, done as usize - 1, of as usize, ""),
        });
        bars.finish();
        if let Err(EngineError::Wire(_)) = &answer {
            // What was computed is not lost with the connection, nor with the server.
            eprintln!("note: the server may go on with it; --ticket {ticket} fetches the answer");
        }
        let encrypted = answer?;
        let seconds = begun.elapsed().as_secs_f64();
        let moved = session.moved();
        let [sent, received] = [moved[0] - self.before[0], moved[1] - self.before[1]];
        self.before = moved;
        let keys_sent = std::mem::take(&mut self.keys_sent);
        let cost = Cost { keys_sent, sent, received, seconds, inputs: ticket.inputs };
        Ok(Arrived { inputs, ticket, encrypted, cost })
    }

    /// The same; the session goes on whatever comes of it.
    fn open_or_keep(&mut self, encryption: &Encryption<'_>, arrived: Arrived, bars: &mut Bars) {
        let name = arrived.inputs.join(", ");
        if let Err(e) = self.open(encryption, arrived) {
            match &self.failed {
                None => self.failed = Some(e.context(name)),
                Some(_) => bars.warning(&format!("{name}: {e:#}")),
            }
        }
    }

    /// Decrypts and shows an answer, that of each input by itself.
    fn open(&self, encryption: &Encryption<'_>, arrived: Arrived) -> Result<()> {
        let Arrived { inputs, ticket, encrypted, cost } = arrived;
        let logits = encryption.decrypt(&encrypted).context("decrypting the answer")?;
        for (number, logits) in logits.iter().take(ticket.inputs).enumerate() {
            let name = inputs.get(number).map(String::as_str);
            self.show(name, name.is_none().then(|| ticket.to_string()), logits, cost)?;
        }
        Ok(())
    }

    fn show(&self, input: Option<&str>, ticket: Option<String>, logits: &[f64], cost: Cost) -> Result<()> {
        let facing = &self.terms.facing;
        let top = top(facing, logits, self.request.top);
        let label = order(logits).first().copied().unwrap_or(0);
        if self.request.json {
            let outputs = outputs(facing, logits);
            let (model, protocol) = (self.model, NAME);
            let answer = Answer { input, ticket, model, protocol, top, logits, outputs, label, cost };
            say!("{}", serde_json::to_string(&answer)?);
            return Ok(());
        }
        say!("\n{}", input.map_or_else(|| format!("ticket {}", ticket.unwrap_or_default()), str::to_owned));
        for (rank, c) in top.iter().enumerate() {
            say!("  {}  {:5.1} %  {}", rank + 1, c.probability * 100.0, c.name);
        }
        let Cost { sent, received, seconds, inputs, .. } = cost;
        let shared = if inputs > 1 { format!(", for {inputs} inputs") } else { String::new() };
        say!("  (answered after {seconds:.1} s; {} sent, {} received{shared})", bytes(sent), bytes(received));
        Ok(())
    }
}

/// All classes, the largest logit first; of equal ones the one with the smaller number.
pub(super) fn order(logits: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order
}

/// As the model's parts, with what it ends in applied.
fn outputs(facing: &Facing, logits: &[f64]) -> Vec<Output> {
    let mut rest = logits;
    let parts = facing.parts.iter().map(|part| {
        let (own, others) = rest.split_at(part.count().unwrap_or(0).min(rest.len()));
        rest = others;
        Output { name: part.name.clone(), shape: part.dims.clone(), values: part.finish.apply(own) }
    });
    parts.collect()
}

fn top(facing: &Facing, logits: &[f64], count: usize) -> Vec<Class> {
    let finished = facing.parts.iter().any(|part| part.finish != Finish::None);
    let probabilities: Vec<f64> = if finished {
        outputs(facing, logits).into_iter().flat_map(|output| output.values).collect()
    } else {
        softmax(logits)
    };
    let class = |class: usize| Class {
        class,
        name: facing.labels.get(class).cloned().unwrap_or_else(|| format!("class {class}")),
        logit: logits[class],
        probability: probabilities[class],
    };
    order(logits).into_iter().take(count).map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_read_as_they_are_shown() {
        let bytes: [u8; 32] = std::array::from_fn(|i| (i * 37) as u8);
        for inputs in [1, 2, 30] {
            let shown = Tickets { ticket: Ticket(bytes), inputs };
            assert_eq!(ticket(&shown.to_string()), Ok(shown));
        }
        assert_eq!(ticket(&hex(&bytes)), Ok(Tickets { ticket: Ticket(bytes), inputs: 1 }));
        let none = format!("{}:0", hex(&bytes));
        for bad in ["", "12", ":1", &none, &"g".repeat(64), &"é".repeat(32), &"0".repeat(63)] {
            assert!(ticket(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_first_of_equals_comes_first() {
        assert_eq!(order(&[3.0, 9.0, -1.0, 9.0]), [1, 3, 0, 2]);
    }
}
