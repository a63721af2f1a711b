//! Keys that a server keeps under a client's name: sent once, found again, and within a bound.

use jaguar_graph::network::Linear;
use jaguar_plan::{Choices, Plan};

use super::cheetah::deferred;
use super::{Scratch, backend, connect, input, session, verify};
use crate::client::{Limits, Prediction, Reveal};
use crate::hint::HintPlace;
use crate::progress::NoProgress;
use crate::report::Report;
use crate::server::{KeepLimits, Service};

fn service() -> Service {
    let bundle = deferred();
    let hyena = backend("hyena-conventional");
    let choices = Choices::standard(&bundle.model.network, hyena);
    Service::new(bundle, choices, Reveal::Logits).unwrap()
}

/// A session of one query by a client that keeps its own at `place`.
fn ask(service: &Service, place: HintPlace) -> (Prediction, Report) {
    let (result, served) = session(service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(place).unwrap();
        let prepared = ready.prepare_query(&mut NoProgress).unwrap();
        let (prediction, report, ready) = prepared.run(&input(3, 3 * 12 * 12), &mut NoProgress).unwrap();
        ready.leave().unwrap();
        (prediction, report)
    });
    served.unwrap();
    result
}

fn close(a: &Prediction, b: &Prediction) {
    let (Prediction::Logits(a), Prediction::Logits(b)) = (a, b) else { panic!("logits were asked for") };
    // Two runs round differently.
    assert!(a.iter().zip(b).all(|(a, b)| a.abs_diff(*b) <= 8), "{a:?} and {b:?}");
}

#[test]
fn keys_are_sent_once() {
    let service = service();
    let keys = service.plan().client_keys();
    assert!(keys.sent > 1 << 20 && keys.kept > keys.sent as u64);
    let [mine, other] = ["keys-mine", "keys-other"].map(Scratch::new);
    let place = |folder: &Scratch| HintPlace::from(&folder.0);

    // 1. The first session sends them. A byte comes down that asks for them.
    let (first, report) = ask(&service, place(&mine));
    let bytes = (report.client.bytes_up, report.client.bytes_down);
    assert_eq!(service.client_keys(), (1, keys.kept));
    // 2. Later ones do not, and compute with them.
    for _ in 0..2 {
        let (later, report) = ask(&service, place(&mine));
        close(&later, &first);
        let expected = (bytes.0 - keys.sent as u64, bytes.1);
        assert_eq!((report.client.bytes_up, report.client.bytes_down), expected);
    }
    assert_eq!(service.client_keys(), (1, keys.kept));
    // 3. Another client has its own; so has one that has lost its folder's content, under a new name.
    close(&ask(&service, place(&other)).0, &first);
    assert_eq!(service.client_keys(), (2, 2 * keys.kept));
    std::fs::remove_dir_all(&mine.0).unwrap();
    let (lost, report) = ask(&service, place(&mine));
    close(&lost, &first);
    assert_eq!(report.client.bytes_up, bytes.0);
    assert_eq!(service.client_keys(), (3, 3 * keys.kept));
}

#[test]
fn a_server_without_room_is_sent_them_again() {
    let kept = service().plan().client_keys().kept;
    let [mine, other] = ["keys-room-mine", "keys-room-other"].map(Scratch::new);
    let up = |service: &Service, folder: &Scratch| ask(service, HintPlace::from(&folder.0)).1.client.bytes_up;
    // Room for one: who comes last has it.
    let one = service().with_keep_limits(KeepLimits { keys: 2 * kept - 1, ..KeepLimits::default() });
    let sent = up(&one, &mine);
    assert!(up(&one, &mine) < sent);
    assert_eq!((up(&one, &other), one.client_keys()), (sent, (1, kept)));
    assert_eq!((up(&one, &mine), one.client_keys()), (sent, (1, kept)));
    // For none.
    let none = service().with_keep_limits(KeepLimits { keys: kept - 1, ..KeepLimits::default() });
    assert_eq!([up(&none, &mine), up(&none, &mine)], [sent; 2]);
    assert_eq!(none.client_keys(), (0, 0));
}

/// Of name and seed the server learns the name alone, and nobody else reads the file.
#[test]
fn the_seed_stays_in_a_private_file() {
    let folder = Scratch::new("keys-file");
    let service = service();
    ask(&service, HintPlace::from(&folder.0));
    let hints = folder.0.join("hints");
    let file = std::fs::read_dir(hints).unwrap().next().unwrap().unwrap();
    let content = std::fs::read(file.path()).unwrap();
    // Magic number, model, plan, name, seed; no hint.
    assert_eq!(content.len(), 8 + 4 * 32);
    assert_ne!(content[72..104], content[104..136]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "nobody else reads the seed");
    }
}

/// Layers of all three forms in one session share a ring and keys, and each stays within its bound; some plaintexts are kept
/// and some are made in the query.
#[test]
fn forms_are_mixed_in_a_session() {
    let bundle = deferred();
    let network = &bundle.model.network;
    let forms = ["hyena", "hyena-conventional", "hyena-padded"].map(backend);
    let mut choices = Choices { weight_memory: 24 << 20, ..Choices::standard(network, forms[0]) };
    let linear = network.nodes.iter().enumerate().filter(|(_, node)| node.op.is::<Linear>());
    linear.enumerate().for_each(|(i, (node, _))| choices.backends[node] = forms[i % 3]);
    let plan = Plan::new(network, choices.clone()).unwrap();
    assert_eq!(plan.backends.len(), 1);
    let mut names: Vec<&str> = plan.layers().map(|layer| layer.backend()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["hyena", "hyena-conventional", "hyena-padded"]);
    let folder = Scratch::new("keys-mixed");
    let checks = verify(bundle, choices, Reveal::Logits, &[input(4, 3 * 12 * 12)], &folder.0).unwrap();
    assert!(checks.iter().flat_map(|check| &check.layers).all(|layer| layer.wrong == 0));
}
