//! What `jaguar-bench e2e` shows: Tables 5, 10 and 11 with ours in them, and where the time goes.

use jaguar_plan::predict::Total;
use jaguar_profile::Imitated;

use super::{NodeKind, Run};
use crate::paper::{self, NETWORKS, PROGRAMS};
use crate::plot::{self, Dots};
use crate::report::{Goal, Table, Target};
use crate::statistics::significant;

pub fn all(runs: &[Run], link: Option<Imitated>) -> Vec<Table> {
    let mut tables = vec![networks(runs, link), kinds(runs)];
    let versus = versus(runs);
    if !versus.rows.is_empty() {
        tables.push(versus);
    }
    if runs.iter().any(|run| run.predicted.online.seconds.is_some()) {
        tables.push(predicted(runs));
    }
    if runs.iter().any(|run| run.kernel != runs[0].kernel) {
        tables.push(kernels(runs, link));
    }
    let goals = goals(runs, link);
    if !goals.is_empty() {
        tables.push(Table::goals(&goals));
    }
    tables
}

/// What was set out to be reached with a network: seconds of a query and online, over loopback; MiB of a query and of the hint.
struct Goals {
    network: &'static str,
    /// Height and width of its input, also where OpenCheetah ran it. A network of this name with another one is another
    /// network.
    side: usize,
    query: Option<f64>,
    online: Option<f64>,
    mib: Option<f64>,
    hint_mib: Option<f64>,
}

const GOALS: [Goals; 4] = [
    Goals {
        network: "squeezenet",
        side: 227,
        query: Some(7.0),
        online: Some(1.5),
        mib: None,
        hint_mib: None,
    },
    Goals {
        network: "resnet18",
        side: 224,
        query: None,
        online: None,
        mib: Some(90.0),
        hint_mib: Some(50.0),
    },
    Goals {
        network: "mobilenetv2",
        side: 224,
        query: None,
        online: None,
        mib: Some(220.0),
        hint_mib: Some(130.0),
    },
    Goals {
        network: "resnet50",
        side: 224,
        query: Some(20.0),
        online: Some(4.0),
        mib: Some(280.0),
        hint_mib: Some(200.0),
    },
];

pub(super) fn goals(runs: &[Run], link: Option<Imitated>) -> Vec<Goal> {
    let mut all = Vec::new();
    for same in by_network(runs) {
        let Some(ours) = same.iter().find(|run| run.protocol == "jaguar") else { continue };
        let name = ours.network.as_str();
        let mut goal = |what: &str, target: Option<Target>, figure: f64, limit: Option<f64>| {
            all.extend(target.map(|target| Goal { what: format!("{name}: {what}"), target, figure, limit }));
        };
        let own =
            |goals: &&Goals| name.starts_with(goals.network) && ours.input == [3, goals.side, goals.side];
        let own = GOALS.iter().find(own);
        if let Some(goals) = own {
            let most = |most: Option<f64>| most.map(Target::AtMost);
            if link.is_none() {
                goal("a query, s", most(goals.query), ours.seconds(), Some(ours.limit()));
                let limit = ours.online.limit.seconds();
                goal("online, s", most(goals.online), ours.online.seconds, Some(limit));
            }
            goal("a query, MiB", most(goals.mib), ours.mib(), None);
            goal("hint, MiB", most(goals.hint_mib), ours.hint_mib, None);
        }
        let program = PROGRAMS.iter().find(|p| name.starts_with(p.0) && p.1 == "OpenCheetah");
        // Its bytes only: its seconds are of another machine.
        if let (None, Some(_), Some((_, _, _, mib, _))) = (link, own, program) {
            goal("times fewer bytes than OpenCheetah", Some(Target::AtLeast(3.0)), mib / ours.mib(), None);
        }
        if let Some(cheetah) = same.iter().find(|run| run.protocol == "cheetah" && run.kernel == ours.kernel)
        {
            let least = |least: f64| Some(Target::AtLeast(least));
            let limit = Some(cheetah.seconds() / ours.limit());
            goal(
                "times faster than the Cheetah backend",
                least(10.0),
                cheetah.seconds() / ours.seconds(),
                limit,
            );
            goal("times fewer bytes than the Cheetah backend", least(3.0), cheetah.mib() / ours.mib(), None);
        }
    }
    all
}

/// The paper's seconds on this link; it has none without one.
fn published(row: &paper::Network, link: Option<Imitated>) -> Option<f64> {
    match link? {
        Imitated::Lan => Some(row.lan_seconds),
        Imitated::Wan => Some(row.wan_seconds),
        Imitated::Lan460 => None,
    }
}

fn ours(run: &Run) -> String {
    format!("{}, {}", run.protocol, run.kernel)
}

/// Runs of one network, together, in the order of the networks.
fn by_network(runs: &[Run]) -> Vec<Vec<&Run>> {
    let mut all: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        match all.iter_mut().find(|same| same[0].network == run.network) {
            Some(same) => same.push(run),
            None => all.push(vec![run]),
        }
    }
    all
}

fn networks(runs: &[Run], link: Option<Imitated>) -> Table {
    let mut rows = Vec::new();
    for same in by_network(runs) {
        for run in &same {
            rows.push(vec![
                run.network.clone(),
                ours(run),
                format!("{:.2}", run.offline.seconds),
                format!("{:.2}", run.online.seconds),
                format!("{:.2}", run.seconds()),
                format!("{:.2}", run.limit()),
                significant(run.seconds() / run.limit()),
                format!("{:.2}", run.online.limit.seconds()),
                significant(run.online.seconds / run.online.limit.seconds()),
                format!("{:.1}", run.mib()),
                format!("{} + {}", run.offline.rounds, run.online.rounds),
                format!("{:.1}", run.hint_mib),
            ]);
        }
        let mut theirs =
            |network: &str, whose: String, seconds: Option<f64>, mib: f64, rounds: Option<u64>| {
                let none = || "-".to_owned();
                rows.push(vec![
                    network.to_owned(),
                    whose,
                    none(),
                    none(),
                    seconds.map_or_else(none, |s| format!("{s:.2}")),
                    none(),
                    none(),
                    none(),
                    none(),
                    format!("{mib:.1}"),
                    rounds.map_or_else(none, |r| r.to_string()),
                    none(),
                ]);
            };
        let name = same[0].network.as_str();
        for row in NETWORKS.iter().filter(|row| name.starts_with(row.network)) {
            let table = if row.avx { "Table 11, AVX-512" } else { "Table 5" };
            theirs(name, format!("{} ({table})", row.whose), published(row, link), row.mib, None);
        }
        if link.is_none() {
            for (_, program, seconds, mib, rounds) in PROGRAMS.iter().filter(|p| name.starts_with(p.0)) {
                theirs(name, format!("{program} (Zen 3)"), Some(*seconds), *mib, Some(*rounds));
            }
        }
    }
    Table {
        name: "networks",
        title: "a query of a whole network: Tables 5 and 11 of the paper".into(),
        header: vec![
            "network",
            "protocol",
            "before the input s",
            "online s",
            "query s",
            "limit s",
            "query / limit",
            "online limit s",
            "online / limit",
            "MiB",
            "rounds",
            "hint MiB, once",
        ],
        numbers_from: 2,
        rows,
        notes: "The paper's: four threads a party, two Xeon Gold 6250. Zen 3: one thread a party, loopback, two cores, measured by us. \
                Both on other machines than this one."
            .into(),
    }
}

fn predicted(runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for run in runs {
        let (before, online) = (&run.predicted.offline, &run.predicted.online);
        let whole = before.seconds.zip(online.seconds).map(|(a, b)| a + b);
        for (name, phase, predicted) in [
            ("before the input", Some((&run.offline, before)), before.seconds),
            ("online", Some((&run.online, online)), online.seconds),
            ("query", None, whole),
        ] {
            let measured = phase.map_or_else(|| run.seconds(), |(phase, _)| phase.seconds);
            let bytes = |of: fn(&(&super::Stage, &Total)) -> u64| {
                phase.as_ref().map_or_else(|| "-".to_owned(), |p| of(p).to_string())
            };
            rows.push(vec![
                run.network.clone(),
                ours(run),
                name.to_owned(),
                format!("{measured:.3}"),
                predicted.map_or_else(|| "-".to_owned(), |s| format!("{s:.3}")),
                predicted
                    .map_or_else(|| "-".to_owned(), |s| format!("{:+.0} %", (s / measured - 1.0) * 100.0)),
                bytes(|(measured, _)| measured.bytes_up + measured.bytes_down),
                bytes(|(_, predicted)| predicted.bytes_up + predicted.bytes_down),
            ]);
        }
    }
    Table {
        name: "predicted",
        title: "a query as the planner predicts it (docs/planner.md)".into(),
        header: vec![
            "network",
            "protocol",
            "phase",
            "measured s",
            "predicted s",
            "off by",
            "measured bytes",
            "predicted bytes",
        ],
        numbers_from: 3,
        rows,
        notes: "Bytes of the first query that counts (what makes COTs depends on how many were made before)."
            .into(),
    }
}

fn kinds(runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for run in runs {
        for (name, phase) in [("before the input", &run.offline), ("online", &run.online)] {
            for part in &phase.kinds {
                let kind = match part.kind {
                    NodeKind::Linear => "linear",
                    NodeKind::Relu => "ReLU",
                    NodeKind::MaxPool => "max-pool",
                    NodeKind::Rest => "rest",
                };
                rows.push(vec![
                    run.network.clone(),
                    ours(run),
                    name.to_owned(),
                    kind.to_owned(),
                    format!("{:.3}", part.wall_seconds),
                    format!("{:.3}", part.client_seconds),
                    format!("{:.3}", part.server_seconds),
                    format!("{:.2}", part.bytes as f64 / 1_048_576.0),
                    part.rounds.to_string(),
                ]);
            }
            rows.push(vec![
                run.network.clone(),
                ours(run),
                name.to_owned(),
                "all".to_owned(),
                format!("{:.3}", phase.seconds),
                format!("{:.3}", phase.kinds.iter().map(|k| k.client_seconds).sum::<f64>()),
                format!("{:.3}", phase.kinds.iter().map(|k| k.server_seconds).sum::<f64>()),
                format!("{:.2}", phase.mib()),
                phase.rounds.to_string(),
            ]);
        }
    }
    Table {
        name: "kinds",
        title: "where it goes, by phase and kind of layer".into(),
        header: vec![
            "network",
            "protocol",
            "phase",
            "layers",
            "seconds",
            "client at work s",
            "server at work s",
            "MiB",
            "rounds",
        ],
        numbers_from: 4,
        rows,
        notes: "Seconds: the client's, waiting included. Rest: sums, average pools, keys, the result.".into(),
    }
}

/// The baseline and ours, measured by turns.
fn versus(runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for ours in runs.iter().filter(|run| run.protocol == "jaguar") {
        let same = |run: &&Run| {
            run.network == ours.network && run.protocol == "cheetah" && run.kernel == ours.kernel
        };
        let Some(cheetah) = runs.iter().find(same) else { continue };
        let times = |of: fn(&Run) -> f64| format!("{:.2}", of(cheetah) / of(ours));
        rows.push(vec![
            ours.network.clone(),
            ours.kernel.clone(),
            times(|run| run.offline.seconds),
            times(|run| run.online.seconds),
            times(Run::seconds),
            times(|run| run.online.mib()),
            times(Run::mib),
            times(|run| (run.offline.rounds + run.online.rounds) as f64),
        ]);
    }
    Table {
        name: "versus",
        title: "Cheetah here / ours: how many times more it takes".into(),
        header: vec![
            "network",
            "kernel",
            "before the input",
            "online",
            "query",
            "MiB online",
            "MiB",
            "rounds",
        ],
        numbers_from: 2,
        rows,
        notes: "One run, query by query in turn; the hint, which Cheetah has not, is there.".into(),
    }
}

/// Table 10.
fn kernels(runs: &[Run], link: Option<Imitated>) -> Table {
    let mut rows = Vec::new();
    for on in runs.iter().filter(|run| run.kernel != "scalar") {
        let same =
            |run: &&Run| run.network == on.network && run.protocol == on.protocol && run.kernel == "scalar";
        let Some(off) = runs.iter().find(same) else { continue };
        let saved = |on: f64, off: f64| format!("{:.1} %", 100.0 * (1.0 - on / off));
        let paper = |avx: bool| {
            let mut rows = NETWORKS.iter().filter(|row| {
                on.network.starts_with(row.network) && row.whose.eq_ignore_ascii_case(&on.protocol)
            });
            rows.find(|row| row.avx == avx).and_then(|row| published(row, link))
        };
        let mut cells = vec![
            on.network.clone(),
            ours(on),
            format!("{:.2}", on.seconds()),
            format!("{:.2}", off.seconds()),
            saved(on.seconds(), off.seconds()),
        ];
        match (paper(true), paper(false)) {
            (Some(on), Some(off)) => cells.extend([format!("{on:.2}"), format!("{off:.2}"), saved(on, off)]),
            _ => cells.extend(std::array::from_fn::<_, 3, _>(|_| "-".to_owned())),
        }
        rows.push(cells);
    }
    Table {
        name: "kernels",
        title: "with and without vector instructions in the linear layers: Table 10 of the paper".into(),
        header: vec![
            "network",
            "protocol",
            "with s",
            "without s",
            "saved",
            "the paper's, with AVX-512 s",
            "without AVX s",
            "saved",
        ],
        numbers_from: 2,
        rows,
        notes: "The nonlinear layers use what the processor has in either case. The paper has figures for LAN and WAN; for Cheetah, they are \
                Tables 11 and 5.".into(),
    }
}

pub fn plot(runs: &[Run], link: Option<Imitated>) -> Dots {
    const SERIES: [&str; 5] =
        ["before the input + online", "online", "limit of both", "online limit", "published"];
    let mut rows = Vec::new();
    for same in by_network(runs) {
        for run in &same {
            let dots = vec![
                (0, run.seconds()),
                (1, run.online.seconds),
                (2, run.limit()),
                (3, run.online.limit.seconds()),
            ];
            rows.push(plot::Row { label: format!("{}, {}", run.network, ours(run)), dots });
        }
        let name = same[0].network.as_str();
        for row in NETWORKS.iter().filter(|row| name.starts_with(row.network)) {
            let avx = if row.avx { ", AVX-512" } else { "" };
            let dots = published(row, link).map(|seconds| (4, seconds));
            let label = format!("{name}, the paper's {}{avx}", row.whose);
            rows.extend(dots.map(|dot| plot::Row { label, dots: vec![dot] }));
        }
        if link.is_none() {
            for (_, program, seconds, _, _) in PROGRAMS.iter().filter(|p| name.starts_with(p.0)) {
                rows.push(plot::Row { label: format!("{name}, {program}"), dots: vec![(4, *seconds)] });
            }
        }
    }
    let link = link.map_or("loopback".into(), |link| link.name().to_uppercase());
    Dots {
        title: format!("A query of a whole network ({link}); published figures: other machines"),
        axis: "seconds".into(),
        series: SERIES.to_vec(),
        rows,
    }
}
