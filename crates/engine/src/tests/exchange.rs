//! What clients send before the input, for one layer after the other.

use jaguar_plan::Schedule;
use jaguar_plan::predict::predict;

use super::*;

/// The backends whose layers exchange something.
fn exchanging() -> Vec<BackendId> {
    let exchanges = |id: &BackendId| {
        let network = everything().model.network;
        Plan::new(&network, Choices::standard(&network, *id)).is_ok_and(|plan| plan.exchanging().count() > 0)
    };
    kit().secure().into_iter().filter(exchanges).collect()
}

/// Streamed or layer by layer: the plan's bytes, and one round offline for all answers instead of one for each; each
/// layer's bytes are counted as that layer's.
#[test]
fn exchanges_are_as_planned_under_either_schedule() {
    assert!(exchanging().len() >= 3);
    for backend in exchanging() {
        let bundle = everything();
        let choices = Choices::standard(&bundle.model.network, backend);
        let service = Service::new(bundle, choices, Reveal::Logits).unwrap();
        let plan = service.plan();
        let answers =
            plan.exchanging().filter(|&id| plan.steps[id].layer.as_ref().unwrap().traffic().offline.1 > 0);
        let answers = answers.count() as u64;
        let x = input(5, 3 * 17 * 15);
        for schedule in [Schedule::Streamed, Schedule::LayerByLayer] {
            let (reports, served) = session(&service, |channel| {
                let ready =
                    connect(channel, &Limits::default()).unwrap().prepare_client(HintPlace::Memory).unwrap();
                let mut ready = ready.with_schedule(schedule).fetch_hint(&mut NoProgress).unwrap();
                let mut reports = Vec::new();
                for _ in 0..2 {
                    let prepared = ready.prepare_query(&mut NoProgress).unwrap();
                    let (_, report, next) = prepared.run(&x, &mut NoProgress).unwrap();
                    (ready, reports) = (next, [reports, vec![report]].concat());
                }
                ready.leave().unwrap();
                reports
            });
            served.unwrap();
            for report in &reports {
                let predicted = predict(plan, &report.session, None);
                for (p, measured) in
                    [(&predicted.offline, &report.offline), (&predicted.online, &report.online)]
                {
                    assert_eq!(
                        (p.bytes_up, p.bytes_down),
                        (measured.bytes_up, measured.bytes_down),
                        "{backend}"
                    );
                }
                let waits = |row: &crate::report::Row| row.offline.rounds;
                let linear = |id: &usize| waits(&report.rows[*id]);
                let rounds: u64 = plan.exchanging().map(|id| linear(&id)).sum();
                let expected = match schedule {
                    Schedule::Streamed => answers.min(1),
                    Schedule::LayerByLayer => answers,
                };
                assert_eq!(rounds, expected, "{backend}, {schedule:?}");
                for id in plan.exchanging() {
                    let (traffic, row) = (plan.steps[id].layer.as_ref().unwrap().traffic(), &report.rows[id]);
                    let (up, down) = (traffic.offline.0 as u64, traffic.offline.1 as u64);
                    assert!(
                        row.offline.bytes_up >= up && row.offline.bytes_down >= down,
                        "{backend}, node {id}"
                    );
                }
            }
            assert_eq!(predict(plan, &reports[0].session, None).offline.rounds, 1 + answers.min(1));
        }
    }
}

/// What passes before the input counts among the ciphertexts that a client takes.
#[test]
fn a_client_bounds_what_it_would_exchange() {
    let bundle = everything();
    let choices = Choices::standard(&bundle.model.network, backend("fregata-hme"));
    let service = Service::new(bundle, choices, Reveal::Logits).unwrap();
    let online = service.plan().linear_bytes();
    let limits = Limits { ciphertext_bytes: 2 * (online.0 + online.1) as u64, ..Limits::default() };
    let (refused, _) = session(&service, |channel| connect(channel, &limits).err());
    assert!(refused.unwrap().to_string().contains("bytes of ciphertexts"));
}

/// A client that leaves out an exchange is told so, and nothing hangs.
#[test]
fn a_layer_without_its_exchange_is_an_error() {
    for backend in exchanging() {
        let bundle = everything();
        let choices = Choices::standard(&bundle.model.network, backend);
        let service = Service::new(bundle, choices, Reveal::Logits).unwrap();
        let (_, served) = session(&service, |channel| {
            let mut ready =
                connect(channel, &Limits::default()).unwrap().prepare_client(HintPlace::Memory).unwrap();
            let channel = ready.channel();
            channel.send_message(&Request::Query { timeline: false }).unwrap();
            channel.send(&[7; 1000]).and_then(|()| channel.flush()).unwrap();
        });
        served.unwrap_err();
    }
}
