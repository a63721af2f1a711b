//! When both parties did what in one query, on the client's clock.
//!
//! The server counts from a mark of its own. Where that lies on the client's clock follows from a round trip at the query's
//! beginning (as in NTP, RFC 5905, section 8): the client asks after t0 and has the answer at t3; the server makes its mark
//! when the question has come, and answers more than t2 later. So each party reads its clock before it sends, since a
//! busy machine may let it wait behind. If both ways take as long, the mark lies at
//!
//! ```text
//! t0 + ((t3 − t0) − t2) / 2      give or take ((t3 − t0) − t2) / 2
//! ```

use std::time::Duration;

use jaguar_graph::network::NodeId;
use jaguar_wire::Stage;

use crate::error::EngineError;
use crate::exec::clock::NodeTimes;
use crate::server_times::{Log, ServerTimes, Stretches};

/// A stretch of a party's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// Seconds since the query began at the client.
    pub start: f64,
    /// Seconds from its beginning to its end.
    pub length: f64,
    /// Seconds of it in which the party waited for its peer.
    pub waited: f64,
}

/// What one party did when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartyTimes {
    /// In order: the stage ([`Stage::Client`]: what the client's hint lacked), the node, and when. A node's work may come in
    /// pieces.
    pub work: Vec<(Stage, NodeId, Span)>,
    /// When it waited for its peer, in order, very short waits left out.
    pub waits: Vec<Span>,
    /// When each thread of the pool worked for it, in order. (Its own thread does what is in `work`, or waits for these.)
    pub threads: Vec<Vec<Span>>,
}

/// When both parties did what in one query.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// When the query began, on the clock of the session's channel: all spans count from here.
    pub origin: Duration,
    /// Seconds until the client had the server's report, its last message.
    pub length: f64,
    /// When the client did what.
    pub client: PartyTimes,
    /// The server's, moved onto the client's clock.
    pub server: PartyTimes,
    /// Seconds that the round trip took from which the server's clock was estimated, without the server's own part.
    pub round_trip: f64,
}

impl Timeline {
    /// Seconds by which the server's times may be off beside the client's: half a round trip.
    pub fn uncertainty(&self) -> f64 {
        self.round_trip / 2.0
    }

    /// `times` began before the client asked; `answered` is when it had the answer, since then.
    pub(crate) fn new(times: &NodeTimes, log: &Log, answered: Duration, server: &ServerTimes) -> Self {
        let (mark, round_trip) = place_mark(0.0, answered.as_secs_f64(), seconds(server.answered));
        let own = Stretches::of(times, log);
        Self {
            origin: times.origin(),
            length: times.elapsed().as_secs_f64(),
            client: own.at(0.0),
            server: server.stretches.at(mark),
            round_trip,
        }
    }
}

/// Where the server's mark lies on the client's clock, and how long the round trip was without the server's part.
fn place_mark(t0: f64, t3: f64, t2: f64) -> (f64, f64) {
    // A server that claims to have taken longer than the client waited is not believed: nothing is left for the link then.
    let link = ((t3 - t0) - t2).max(0.0);
    (t0 + link / 2.0, link)
}

fn seconds(micros: u64) -> f64 {
    micros as f64 * 1e-6
}

impl ServerTimes {
    /// Refuses times of another network.
    pub fn check(&self, nodes: usize) -> Result<(), EngineError> {
        if self.stretches.work.iter().all(|(_, node, _)| (*node as usize) < nodes) {
            return Ok(());
        }
        Err(EngineError::PeerMisbehaved("a timeline of another network".into()))
    }
}

impl Stretches {
    /// On the client's clock, where the server's mark lies at `mark`.
    fn at(&self, mark: f64) -> PartyTimes {
        let work = self.work.iter().map(|&(stage, node, [start, length, waited])| {
            let (start, length) = (mark + seconds(start), seconds(length));
            (stage, node as usize, Span { start, length, waited: seconds(waited).min(length) })
        });
        let work = work.collect();
        let in_turn = |stretches: &Vec<(u64, u64)>, waits: bool| -> Vec<Span> {
            let mut end = mark;
            let span = |&(since, length): &(u64, u64)| {
                let (start, length) = (end + seconds(since), seconds(length));
                end = start + length;
                Span { start, length, waited: if waits { length } else { 0.0 } }
            };
            stretches.iter().map(span).collect()
        };
        let threads = self.threads.iter().map(|worked| in_turn(worked, false)).collect();
        PartyTimes { work, waits: in_turn(&self.waits, true), threads }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jaguar_wire::{Clock, SystemClock};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Wherever the two clocks stand and however unlike the two ways are, the estimate is off by no more than it says.
        #[test]
        fn the_mark_is_found_within_the_uncertainty(
            sent in 0.0f64..10.0,
            up in 0.0f64..0.2,
            down in 0.0f64..0.2,
            work in 0.0f64..1.0,
        ) {
            let mark = sent + up;
            let (found, round_trip) = place_mark(sent, mark + work + down, work);
            prop_assert!((round_trip - (up + down)).abs() < 1e-9);
            prop_assert!((found - mark).abs() <= round_trip / 2.0 + 1e-9);
            if up == down {
                prop_assert!((found - mark).abs() < 1e-9);
            }
        }

        /// Whatever a server claims, no length is negative and nothing overflows.
        #[test]
        fn lying_times_make_a_sound_timeline(
            answered: u64,
            stretch: [u64; 3],
            waits in prop::collection::vec(any::<(u64, u64)>(), 0..5),
        ) {
            let server = ServerTimes {
                answered,
                stretches: Stretches { work: vec![(Stage::Online, 0, stretch); 3], threads: vec![waits.clone()], waits },
            };
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let times = NodeTimes::new(&clock, 1);
            let timeline = Timeline::new(&times, &Log::default(), Duration::from_millis(30), &server);
            prop_assert!((0.0..=f64::MAX).contains(&timeline.round_trip));
            let PartyTimes { work, waits, threads } = timeline.server;
            for span in work.iter().map(|w| &w.2).chain(&waits).chain(&threads[0]) {
                prop_assert!(span.start.is_finite() && span.length >= 0.0 && span.length.is_finite());
                prop_assert!((0.0..=span.length).contains(&span.waited));
            }
        }
    }

    #[test]
    fn times_of_another_network_are_refused() {
        let stretches = Stretches { work: vec![(Stage::Online, 2, [0; 3])], ..Stretches::default() };
        let times = ServerTimes { answered: 0, stretches };
        times.check(3).unwrap();
        assert!(times.check(2).is_err());
    }
}
