//! Comparisons of a kit in place of the operators' own: sessions compute what they should, in shares with more room,
//! and both sides must accept what is said of them.

use jaguar_plan::{Allowed, Comparison, PlanError};
use jaguar_ring::cpu::Cpu;

use super::*;
use crate::handshake;
use crate::message::{Accept, MAX_MESSAGE, Purpose};

fn accepting() -> Limits {
    Limits { accept_leaks: true, ..Limits::default() }
}

fn leaky_service() -> Service {
    let choices = said_to_leak(&everything().model.network, Kit::JAGUAR);
    let allowed = Allowed { leaks: true, ..Allowed::default() };
    Service::allowing(Cpu::detect(), everything(), choices, Reveal::Logits, allowed).unwrap()
}

#[test]
fn every_operation_agrees_with_the_reference_layer_by_layer() {
    let reduced = || {
        let mut model = everything().model;
        model.network.nodes.iter_mut().filter_map(|n| n.op.ignored_mut()).for_each(|ignored| *ignored = 10);
        Bundle::with_hiding(model, 0).unwrap()
    };
    let backends = ["jaguar", "cheetah", "plaintext-insecure", "plaintext-prime-insecure"].map(backend);
    for backend in backends {
        // Signs are exact, whatever the network lets them ignore.
        for bundle in [everything(), reduced()] {
            let choices = said_to_leak(&bundle.model.network, backend);
            assert_ne!(choices.comparison, Comparison::Sealed);
            let checks = verify(bundle, choices, Reveal::Logits, &[input(1, 3 * 17 * 15)], HintPlace::Memory);
            let checks = checks.unwrap();
            for layer in &checks[0].layers {
                assert!(layer.wrong == 0 && layer.reduced == 0, "{backend}: {layer:?}");
            }
        }
    }
}

/// A client that has not accepted it leaves, whatever the server offers; both are told why. So does one that does not
/// have them.
#[test]
fn a_client_refuses_what_it_has_not_accepted() {
    let service = leaky_service();
    // Backends that protect nothing are another matter.
    let insecure = Limits { allow_insecure_backends: true, ..Limits::default() };
    for limits in [Limits::default(), insecure] {
        let (error, served) = session(&service, |channel| connect(channel, &limits).err().unwrap());
        assert!(matches!(error.root(), EngineError::Plan(PlanError::Leaks(_))), "{error}");
        assert!(error.to_string().contains("comparisons leak, a test says"), "{error}");
        let served = served.unwrap_err().to_string();
        assert!(served.contains("does not accept"), "{served}");
    }
    let without = |channel| client::connect(&Kit::standard(), channel, &accepting()).err().unwrap();
    let (error, _) = session(&service, without);
    assert!(error.to_string().contains("no comparisons are called 'said-to-leak'"), "{error}");
    // What was accepted is in every report.
    let (report, served) = session(&service, |channel| {
        let ready = connect(channel, &accepting()).unwrap().prepare_client(HintPlace::Memory).unwrap();
        let prepared = ready.prepare_query(&mut NoProgress).unwrap();
        let (_, report, ready) = prepared.run(&input(5, 3 * 17 * 15), &mut NoProgress).unwrap();
        ready.leave().unwrap();
        report
    });
    served.unwrap();
    assert!(report.leaks.is_some_and(|leaks| leaks.contains("a test says")));
}

/// A server offers it only if it was made so; a client that accepts it, or wants it, gets the sealed form.
#[test]
fn a_server_refuses_what_it_has_not_accepted() {
    let choices = said_to_leak(&everything().model.network, Kit::JAGUAR);
    for error in [
        Service::new(everything(), choices.clone(), Reveal::Logits).err(),
        Service::allowing_insecure_backends(everything(), choices.clone(), Reveal::Logits).err(),
    ] {
        assert!(matches!(error, Some(EngineError::Plan(PlanError::Leaks(_)))));
    }

    let service = service(everything());
    let (comparison, served) = session(&service, |channel| {
        let connected = connect(channel, &accepting()).unwrap();
        let comparison = connected.plan().choices.comparison;
        connected.prepare_client(HintPlace::Memory).unwrap().leave().unwrap();
        comparison
    });
    served.unwrap();
    assert_eq!(comparison, Comparison::Sealed);

    // A client that goes on as if it had been offered.
    let leaky_plan = Plan::accepting_leaks(service.network(), choices).unwrap();
    assert_ne!(leaky_plan.digest(), service.plan().digest());
    let (_, served) = session(&service, |mut channel| {
        handshake::client::ask_for_shares(&kit(), &mut channel, None, 1).unwrap();
        let _: Network =
            channel.recv_message_as("network", 16 << 20, |b| kit().operators().decode(b)).unwrap();
        handshake::client::choose_shares(&mut channel).unwrap();
        let purpose = Purpose::Session { nonce: [7; 32], have_blocks: 0 };
        let accept = Accept { plan: leaky_plan.digest(), purpose };
        channel.send_message(&accept).unwrap();
        channel.recv_message::<Request>("nothing", MAX_MESSAGE).err().unwrap()
    });
    assert!(matches!(served, Err(EngineError::PeerMisbehaved(_))), "{served:?}");
}
