//! What a server's own rules say of one client, and what several models share.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::client::connect_to;
use crate::server::{self, Common, Guest, HintBudget, greet};

fn limits(hints: u32) -> server::Limits {
    let hints = NonZeroU32::new(hints).unwrap();
    server::Limits { hints_at_once: hints, hints_per_hour: hints }
}

/// A session whose server greets first, then serves, `queries` at most, and hints within `hints`. What either side says of it, and the
/// name that was asked for.
fn guest_session(
    service: &Service,
    (queries, hints): (u32, Option<&HintBudget>),
    client: impl FnOnce(Channel) -> Result<(), EngineError>,
) -> (Result<(), String>, Result<(), EngineError>, Option<String>) {
    let (client_end, mut server_end) = memory_pair();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let counted = AtomicU32::new(0);
            let query = |_: u64| match counted.fetch_add(1, Ordering::SeqCst) {
                before if before < queries => Ok(()),
                _ => Err(format!("no more than {queries} queries; come back tomorrow")),
            };
            let asked = greet(&mut server_end).unwrap();
            let name = asked.model().map(str::to_owned);
            let guest = Guest { hints, query: Some(&query) };
            (service.serve_guest(server_end, asked, &guest, &mut |_| ()), name)
        });
        let got = client(client_end).map_err(|e| e.to_string());
        let (served, name) = server.join().unwrap();
        (got, served, name)
    })
}

#[test]
fn queries_are_counted_before_they_are_answered() {
    let service = service(everything());
    let x = input(5, 3 * 17 * 15);
    let mut answered = 0;
    let (got, served, asked) = guest_session(&service, (2, None), |channel| {
        let mut ready =
            connect_to(channel, Some("resnet-18_v1.5"), &Limits::default())?.prepare_client(Place::Memory)?;
        for _ in 0..3 {
            ready = ready.prepare_query(&mut NoProgress)?.run(&x, &mut NoProgress)?.2;
            answered += 1;
        }
        ready.leave()
    });
    let error = got.expect_err("refused");
    assert!(error.contains("no more than 2 queries; come back tomorrow"), "{error}");
    assert!(matches!(served, Err(EngineError::Refused(_))), "{served:?}");
    assert_eq!((answered, asked.as_deref()), (2, Some("resnet-18_v1.5")));
}

#[test]
fn a_kept_query_counts_when_it_runs() {
    let service = service(everything());
    let x = input(5, 3 * 17 * 15);
    let mut answered = 0;
    let (got, ..) = guest_session(&service, (2, None), |channel| {
        let mut ready = connect(channel, &Limits::default())?.prepare_client(Place::Memory)?;
        let mut kept = Vec::new();
        for _ in 0..3 {
            let (next, query) = ready.keep_query(&mut NoProgress)?;
            kept.push(query.expect("there is room for four"));
            ready = next;
        }
        for query in kept {
            ready = ready.run_kept(query, &x, &mut NoProgress)?.2;
            answered += 1;
        }
        ready.leave()
    });
    let error = got.expect_err("refused");
    assert!(error.contains("no more than 2 queries"), "{error}");
    assert_eq!(answered, 2);
}

#[test]
fn an_address_has_hints_of_its_own_and_models_share_those_of_all() {
    let common = Common::new(limits(2), server::KeepLimits::default());
    let services = [(); 2].map(|()| service(everything()).sharing(&common));
    let fetch = |service: &Service, budget: &HintBudget| {
        let (got, ..) = guest_session(service, (0, Some(budget)), |channel| {
            let ready = connect(channel, &Limits::default())?.prepare_client(Place::Memory)?;
            ready.fetch_hint(&mut NoProgress)?.leave()
        });
        got.err().unwrap_or_default()
    };
    let [one, other] = [HintBudget::new(limits(1)), HintBudget::new(limits(9))];
    assert_eq!(fetch(&services[0], &one), "");
    let error = fetch(&services[1], &one);
    assert!(error.contains("for this address") && error.contains("come back in 3"), "{error}");
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
    let [_, prepared] = crate::prepared_bytes(service.network(), service.plan());
    assert!(service.session_bytes() > prepared, "{} {prepared}", service.session_bytes());
}
