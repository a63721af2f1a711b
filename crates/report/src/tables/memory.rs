//! The memory of a plan as text, beside what a machine has.

use std::fmt;

use crate::terminal::table::{bytes, count, plain, trimmed};
use jaguar_graph::network::Network;
use jaguar_plan::memory::{Load, Memory, PartyMemory, Remedy, Room, Side, memory, remedies};
use jaguar_plan::{Allowed, BackendId, Plan};
use serde::Serialize;

/// Memory at its fullest, what this machine has, and what to do where that is too little: as a person reads it
/// (`Display`), and a program ([`Serialize`]).
#[derive(Debug, Serialize)]
pub struct MemoryNeeds {
    load: Load,
    client: Needs,
    server: Needs,
    /// What the machine has; none where the system does not tell.
    room: Option<Room>,
}

/// What one party needs, and whether it has that.
#[derive(Debug, Serialize)]
struct Needs {
    #[serde(flatten)]
    parts: PartyMemory,
    total: u64,
    /// Whether that is there for it alone.
    fits: Option<bool>,
    /// What would fit, if it does not: each by itself, with the bytes that it would take.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    instead: Vec<(Remedy, u64)>,
}

impl MemoryNeeds {
    /// Of `plan` under `load`, where `room` is what this machine has. What would fit is looked for among `others` too, as backends.
    pub fn new(
        network: &Network,
        plan: &Plan,
        allowed: Allowed,
        load: Load,
        room: Option<Room>,
        others: &[BackendId],
    ) -> Self {
        let Memory { client, server } = memory(network, plan, load);
        let needs = |party, parts: PartyMemory| {
            let total = parts.total();
            let fits = room.map(|room| total <= room.bytes);
            let instead = match room {
                Some(room) if total > room.bytes => {
                    remedies(network, plan, allowed, load, (party, room.bytes), others)
                }
                _ => Vec::new(),
            };
            Needs { parts, total, fits, instead }
        };
        let (client, server) = (needs(Side::Client, client), needs(Side::Server, server));
        Self { load, client, server, room }
    }

    fn of(&self, party: Side) -> &Needs {
        match party {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    /// What to say before `party` runs here, if its memory is too little.
    pub fn warning(&self, party: Side) -> Option<String> {
        let (needs, room) = (self.of(party), self.room?);
        if needs.fits? {
            return None;
        }
        let who = match party {
            Side::Client => "the client",
            Side::Server => "the server",
        };
        let mut text = format!(
            "{who} takes about {} at its fullest, and {} are {}: it may be ended by the system.",
            bytes(needs.total),
            bytes(room.bytes),
            room.bound.words()
        );
        if needs.instead.is_empty() {
            text.push_str(" No single option makes it fit");
        } else {
            let each =
                needs.instead.iter().map(|(remedy, total)| format!("{} ({})", words(*remedy), bytes(*total)));
            text.push_str(" What would fit: ");
            text.push_str(&each.collect::<Vec<_>>().join(", or "));
        }
        Some(text)
    }
}

/// A remedy as an option of the command.
fn words(remedy: Remedy) -> String {
    match remedy {
        Remedy::Keep(0) => "no prepared queries kept (--keep 0, --keep-queries 0)".into(),
        Remedy::Keep(kept) => format!("--keep {kept} (serve: --keep-queries {kept})"),
        Remedy::Clients(clients) => format!("--max-clients {clients}"),
        Remedy::Threads(threads) => format!("--threads {threads}"),
        Remedy::WeightMemory(most) => format!("--weight-memory {}K", most >> 10),
        Remedy::Images(images) => format!("--batch {images} (serve: --max-batch {images})"),
        Remedy::Backend(id) => format!("--backends {}", id.name()),
    }
}

impl fmt::Display for MemoryNeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = plain(
            &["peak memory", "program", "model", "keys", "correlations", "prepared", "running", "in all"],
            1,
        );
        for (name, needs) in [("client", &self.client), ("server", &self.server)] {
            let PartyMemory { program, model, keys, correlations, prepared, running } = needs.parts;
            let parts = [program, model, keys, correlations, prepared, running, needs.total];
            table.add_row(std::iter::once(name.to_owned()).chain(parts.map(bytes)));
        }
        let Load { clients, kept, threads } = self.load;
        write!(f, "{}\nfor {} at a time", trimmed(&table), number(clients, "client"))?;
        if kept > 0 {
            write!(f, ", {} kept for each", number(kept, "prepared query"))?;
        }
        write!(f, ", on {}", number(threads as u64, "thread"))?;
        match self.room {
            Some(room) => write!(f, "; {} are {}", bytes(room.bytes), room.bound.words())?,
            None => write!(f, "; what is free here is not known")?,
        }
        for warning in [Side::Client, Side::Server].into_iter().filter_map(|party| self.warning(party)) {
            write!(f, "\nWARNING: {warning}")?;
        }
        Ok(())
    }
}

/// A number of things, with the right ending: `1 query`, `2 queries`.
fn number(n: u64, what: &str) -> String {
    match (n, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{} {stem}ies", count(n)),
        _ => format!("{} {what}s", count(n)),
    }
}
