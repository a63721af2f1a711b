//! What a server's own rules say of one client, and what several models share.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::kept::stock::NoRoom;
use crate::server::{self, Common, Guest, HintBudget, QueriesSpent, greet};

fn limits(hints: u32) -> server::Limits {
    let hints = NonZeroU32::new(hints).unwrap();
    server::Limits { hints_at_once: hints, hints_per_hour: hints }
}

/// A session whose server greets first, then serves, `queries` at most, and hints within `hints`. What either side says of it, and the
/// name that was asked for.
fn guest_session(
    service: &Service,
    (queries, hints): (u32, Option<&HintBudget>),
    client: impl FnOnce(Channel) -> Result<(), EngineError> + Send,
) -> (Result<(), String>, Result<(), EngineError>, Option<String>) {
    let day = Day::new(queries);
    let count = |images| day.count(images);
    let guest = Guest { hints, query: Some(&count), ..Guest::default() };
    guest_session_of(service, &guest, client)
}

/// Queries of a day, of one client.
struct Day {
    most: u64,
    had: AtomicU64,
}

impl Day {
    fn new(most: u32) -> Self {
        Self { most: most.into(), had: AtomicU64::new(0) }
    }

    fn had(&self) -> u64 {
        self.had.load(Ordering::SeqCst)
    }

    fn count(&self, images: u64) -> Result<(), QueriesSpent> {
        if self.had() + images > self.most {
            let told = format!("no more than {} queries; come back tomorrow", self.most);
            return Err(QueriesSpent(told));
        }
        self.had.fetch_add(images, Ordering::SeqCst);
        Ok(())
    }
}

/// The same, of a guest.
fn guest_session_of(
    service: &Service,
    guest: &Guest<'_>,
    client: impl FnOnce(Channel) -> Result<(), EngineError> + Send,
) -> (Result<(), String>, Result<(), EngineError>, Option<String>) {
    let (client_end, mut server_end) = memory_pair();
    let (mut served, mut name) = (Ok(()), None);
    let got = thread::scope(|scope| {
        let client = scope.spawn(|| client(client_end).map_err(|e| e.to_string()));
        let asked = greet(&mut server_end).unwrap();
        name = asked.model().map(str::to_owned);
        served = service.serve_guest(server_end, asked, guest, &mut |_| ());
        client.join().unwrap()
    });
    (got, served, name)
}

#[test]
fn queries_are_counted_before_they_are_answered() {
    let service = service(everything());
    let x = input(5, 3 * 17 * 15);
    let mut answered = 0;
    let (got, served, asked) = guest_session(&service, (2, None), |channel| {
        let mut ready = connect_to(channel, Some("resnet-18_v1.5"), &Limits::default())?
            .prepare_client(HintPlace::Memory)?;
        for _ in 0..3 {
            ready = ready.prepare_query(&mut NoProgress)?.run(&x, &mut NoProgress)?.2;
            answered += 1;
        }
        ready.leave()
    });
    let error = got.expect_err("refused");
    assert!(error.contains("no more than 2 queries; come back tomorrow"), "{error}");
    assert!(matches!(served, Err(EngineError::QueriesSpent(_))), "{served:?}");
    assert_eq!((answered, asked.as_deref()), (2, Some("resnet-18_v1.5")));
}

fn service_of(name: &str) -> Service {
    let bundle = everything();
    let choices = Choices::standard(&bundle.model.network, backend(name));
    Service::new(bundle, choices, Reveal::Logits).unwrap()
}

/// Of every protocol that prepares: what is prepared counts, once, and what counts is run. Where there are no more the client hears it,
/// and the session goes on; a query at once ends it.
#[test]
fn a_query_counts_when_it_is_prepared() {
    let x = input(5, 3 * 17 * 15);
    for backend in PREPARING {
        let service = service_of(backend);
        let (day, mut answered) = (Day::new(3), 0);
        let count = |images| day.count(images);
        let guest = Guest { query: Some(&count), ..Guest::default() };
        let (got, served, _) = guest_session_of(&service, &guest, |channel| {
            let ready = connect(channel, &Limits::default())?.prepare_client(HintPlace::Memory)?;
            let mut ready = ready.prepare_query(&mut NoProgress)?.run(&x, &mut NoProgress)?.2;
            assert_eq!(day.had(), 1, "{backend}");
            let mut kept = Vec::new();
            for number in 0..4 {
                let (next, query) = ready.keep_query(&mut NoProgress)?;
                match query {
                    Ok(query) => kept.push(query),
                    Err(why) => assert!(number >= 2 && why == NoRoom::Queries, "{backend}: {number}: {why}"),
                }
                ready = next;
            }
            assert_eq!((kept.len(), day.had()), (2, 3), "{backend}");
            assert_eq!(service.kept().queries, 2, "{backend}: nothing is held of what was refused");
            for query in kept {
                ready = ready.run_kept(query, &x, &mut NoProgress)?.2;
                answered += 1;
            }
            ready.prepare_query(&mut NoProgress).map(drop)
        });
        assert_eq!((answered, day.had()), (2, 3), "{backend}");
        assert!(matches!(served, Err(EngineError::QueriesSpent(_))), "{backend}: {served:?}");
        // (Where the client sends first, it may find that the server has gone: a connection in memory does not keep last words.)
        let error = got.expect_err("refused");
        let told = error.contains("no more than 3 queries; come back tomorrow");
        assert!(told || error.contains("the peer closed the connection"), "{backend}: {error}");
    }
}

/// A query that the server refuses, for it has made as many hints as it may, does not count.
#[test]
fn a_query_without_a_hint_does_not_count() {
    let service = service(everything());
    let (day, hints) = (Day::new(9), HintBudget::new(limits(1)));
    let count = |images| day.count(images);
    let guest = Guest { hints: Some(&hints), query: Some(&count), ..Guest::default() };
    for (session, kept) in [false, false, true].into_iter().enumerate() {
        let (got, ..) = guest_session_of(&service, &guest, |channel| {
            let ready = connect(channel, &Limits::default())?.prepare_client(HintPlace::Memory)?;
            match kept {
                true => ready.keep_query(&mut NoProgress).map(drop),
                false => ready.prepare_query(&mut NoProgress).map(drop),
            }
        });
        let refused = got.is_err_and(|e| e.contains("as many hints for this client as it may for now"));
        assert_eq!((refused, day.had()), (session > 0, 1), "session {session}");
    }
}

/// A form of every protocol: each prepares queries.
const PREPARING: [&str; 5] = ["jaguar", "cheetah", "fregata-hme", "hyena", "cirencode"];

/// A client that prepares queries, looks at its masks, and leaves without asking has used what it may have: in three sessions with room
/// for four each, one query.
#[test]
fn masks_that_are_not_liked_are_paid_for() {
    for backend in PREPARING {
        let service = service_of(backend);
        let (day, mut seen) = (Day::new(1), 0);
        let count = |images| day.count(images);
        let guest = Guest { client: Some("token alice"), query: Some(&count), ..Guest::default() };
        for session in 0..3 {
            let (got, served, _) = guest_session_of(&service, &guest, |channel| {
                let mut ready = connect(channel, &Limits::default())?.prepare_client(HintPlace::Memory)?;
                for _ in 0..4 {
                    let (next, kept) = ready.keep_query(&mut NoProgress)?;
                    seen += usize::from(kept.is_ok());
                    ready = next;
                }
                ready.leave()
            });
            assert_eq!((got, served.is_ok()), (Ok(()), true), "{backend}: {session}");
        }
        assert_eq!((seen, day.had()), (1, 1), "{backend}: of twelve");
    }
}

/// Who shows another token or certificate, or none, is not let in by a ticket that is not its own.
#[test]
fn a_ticket_is_its_clients_own() {
    let service = service(everything());
    let x = input(5, 3 * 17 * 15);
    let guest = |client| Guest { client, ..Guest::default() };
    let (got, served, _) = guest_session_of(&service, &guest(Some("token alice")), |channel| {
        let ready = connect(channel, &Limits::default())?.prepare_client(HintPlace::Memory)?;
        let (ready, kept) = ready.keep_query(&mut NoProgress)?;
        let (ticket, ready) = ready.ticket()?;
        for other in [Some("token bob"), Some("certificate alice"), None] {
            let (got, served, _) = guest_session_of(&service, &guest(other), |channel| {
                connect(channel, &Limits::default())?.join(&ticket).map(drop)
            });
            let told = "this ticket was given to another client: it works with the token or certificate";
            assert!(got.as_ref().is_err_and(|e| e.contains(told)), "{other:?}: {got:?}");
            assert!(matches!(served, Err(EngineError::PeerMisbehaved(_))), "{other:?}: {served:?}");
        }
        // Its own works after that, and nothing was lost.
        let mut kept = Some(kept.expect("room"));
        let (got, ..) = guest_session_of(&service, &guest(Some("token alice")), |channel| {
            let runner = connect(channel, &Limits::default())?.join(&ticket)?;
            runner.run(kept.take().expect("once"), &x, &mut NoProgress)?.2.leave()
        });
        assert_eq!(got, Ok(()));
        ready.leave()
    });
    assert_eq!((got, served.is_ok()), (Ok(()), true));
}

#[test]
fn an_address_has_hints_of_its_own_and_models_share_those_of_all() {
    let common = Common::new(limits(2), server::KeepLimits::default());
    let services = [(); 2].map(|()| service(everything()).sharing(&common));
    let fetch = |service: &Service, budget: &HintBudget| {
        let (got, ..) = guest_session(service, (0, Some(budget)), |channel| {
            let ready = connect(channel, &Limits::default())?.prepare_client(HintPlace::Memory)?;
            ready.fetch_hint(&mut NoProgress)?.leave()
        });
        got.err().unwrap_or_default()
    };
    let [one, other] = [HintBudget::new(limits(1)), HintBudget::new(limits(9))];
    assert_eq!(fetch(&services[0], &one), "");
    let error = fetch(&services[1], &one);
    assert!(error.contains("for this client") && error.contains("come back in 3"), "{error}");
    assert_eq!(fetch(&services[1], &other), "", "another address");
    // Two hints an hour for all, whichever model they are of.
    let error = fetch(&services[0], &other);
    assert!(error.contains("as many hints as it may for now: come back in 1"), "{error}");
    // What all refuse is given back to the address: seven of nine are left.
    let now = std::time::Duration::ZERO;
    assert!(other.book((7, 1), now + std::time::Duration::from_secs(3600)).is_ok());
}

#[test]
fn a_server_of_one_model_knows_its_name_only() {
    let service = service(everything());
    let ask = |name: &'static str| {
        let (got, served) = session(&service, |channel| {
            let connected = connect_to(channel, Some(name), &Limits::default());
            connected.map(|_| ()).map_err(|e| e.to_string())
        });
        (got, served)
    };
    // (The client leaves without a word.)
    assert_eq!(ask("test").0, Ok(()));
    let (got, served) = ask("other");
    assert!(got.is_err_and(|e| e.contains("this server has one model, 'test'")));
    assert!(matches!(served, Err(EngineError::Refused(_))));
    for bad in ["", "two words", ".hidden", "a/b", "\u{e9}"] {
        assert!(ask(bad).0.is_err_and(|e| e.contains("is no model's name")), "{bad}");
    }
}

#[test]
fn a_session_takes_memory() {
    let service = service(everything());
    let [_, prepared] = crate::prepared_bytes(service.plan());
    assert!(service.session_bytes() > prepared, "{} {prepared}", service.session_bytes());
}
