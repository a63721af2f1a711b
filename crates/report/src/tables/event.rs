//! What happens to a server, in lines.

use crate::terminal::in_one_line;
use crate::terminal::table::bytes;
use jaguar_engine::one_round::Notice as OneRound;
use jaguar_engine::server::Notice;
use jaguar_engine::{Stock, peak_kib};
use jaguar_serve::{Event, ServeError};

/// A line for what happened, if it is worth one.
pub fn line(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::ModelPrepared(model, time) => {
            format!("prepared the model {model} in {:.2} s", time.as_secs_f64())
        }
        Event::Connected(peer, None) => format!("{peer}: connected"),
        Event::Connected(peer, Some(client)) => format!("{peer}: connected as {client}"),
        Event::Uses(peer, model) => format!("{peer}: uses {model}"),
        Event::Query(peer, _, Notice::Answered(served)) => format!(
            "{peer}: answered a {}query: {:.2} s offline, {:.2} s online, {} in, {} out, {} rounds, peak memory {}{}",
            if served.kept.is_some() { "kept " } else { "" },
            served.offline.as_secs_f64(),
            served.online.as_secs_f64(),
            bytes(served.traffic.received),
            bytes(served.traffic.sent),
            served.traffic.rounds,
            bytes(peak_kib() * 1024),
            kept(&served.client, &served.all),
        ),
        Event::Query(peer, _, Notice::Kept { offline, traffic, client, all, .. }) => format!(
            "{peer}: prepared a query ahead: {:.2} s, {} in, {} out{}",
            offline.as_secs_f64(),
            bytes(traffic.received),
            bytes(traffic.sent),
            kept(client, all),
        ),
        Event::Query(peer, _, Notice::NoRoom(why)) => format!("{peer}: prepared no query ahead: {why}"),
        Event::OneRound(peer, OneRound::Keys { bytes: all, received: 0 }) => {
            format!("{peer}: its keys are here ({})", bytes(*all))
        }
        Event::OneRound(peer, OneRound::Keys { bytes: all, received }) => {
            format!("{peer}: received {} of its {} of keys", bytes(*received), bytes(*all))
        }
        Event::OneRound(peer, OneRound::Asked { ahead, stays }) => format!(
            "{peer}: an encrypted input, {ahead} before it{}",
            if *stays { "" } else { "; the answer will be fetched later" }
        ),
        Event::OneRound(peer, OneRound::Answered { bytes: sent, took }) => {
            format!("{peer}: answered with {}, computed in {:.0} s", bytes(*sent), took.as_secs_f64())
        }
        Event::OneRound(peer, OneRound::NoAnswer) => format!("{peer}: there was no answer to give"),
        Event::Waits(peer, client, place) => {
            let who = client.map_or_else(String::new, |client| format!(" ({client})"));
            let (place, seconds) = (place.place, place.seconds);
            format!("{peer}{who}: waits for a place, number {place} in the line, about {seconds} s")
        }
        Event::Left(peer) => format!("{peer}: left"),
        Event::Ended(peer, ServeError::Refused(why)) => format!("{peer}: turned away: {why}"),
        Event::Ended(peer, why) => format!("{peer}: {}", in_one_line(*why)),
        Event::NotCounted(why) => format!("a restart would forget a query: {why}"),
        Event::NoTokens(why) => why.to_string(),
        Event::NotAccepted(why) => format!("accepting a connection: {why}"),
        Event::NoThread(why) => format!("starting a thread: {why}"),
        Event::Draining(clients, grace) => format!(
            "shutting down: nobody is let in any more, and {clients} clients have {:.0} s to get through",
            grace.as_secs_f64()
        ),
        Event::TooManyUngreeted(_) => return None,
    })
}

/// Whether it is the server's own trouble.
pub fn is_fault(event: &Event<'_>) -> bool {
    matches!(event, Event::NotCounted(_) | Event::NoTokens(_) | Event::NotAccepted(_) | Event::NoThread(_))
}

/// What is kept, if anything is.
fn kept(client: &Stock, all: &Stock) -> String {
    if all.queries == 0 {
        return String::new();
    }
    format!("; keeps {} for this client, {} in all ({})", client.queries, all.queries, bytes(all.bytes))
}
