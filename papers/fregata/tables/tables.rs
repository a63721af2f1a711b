//! What `jaguar-bench fregata` shows.

use super::Measured;
use super::matrices::{self, CHEAPEST_TILING, COLUMN_BY_COLUMN, PAPER_TILING};
use super::paper::{ACTIVATIONS, COUNTED, Counted, LAYERS, MAX_POOLS, Nonlinear, STATED};
use crate::e2e::{ByKind, NodeKind, Run, Stage};
use crate::paper::PROGRAMS;
use crate::plot::{self, Dots};
use crate::report::{Goal, Table, Target};
use crate::statistics::significant;

pub fn all(matrices: &[matrices::Row], runs: &[Measured]) -> Vec<Table> {
    let tables =
        [products(matrices), layers(runs), schedule(runs), nonlinear(runs), networks(runs), versus(runs)];
    let mut tables: Vec<Table> = tables.into_iter().filter(|table| !table.rows.is_empty()).collect();
    let goals = goals(matrices, runs);
    if !goals.is_empty() {
        tables.push(Table::goals(&goals));
    }
    tables
}

fn of<'a>(runs: &'a [Measured], part: &'static str) -> impl Iterator<Item = &'a Measured> {
    runs.iter().filter(move |run| run.part == part)
}

fn ms(seconds: f64) -> String {
    significant(seconds * 1e3)
}

fn kib(bytes: f64) -> String {
    significant(bytes / 1024.0)
}

/// Height and width of ImageNet's pictures, as networks take them, at least.
const IMAGENET: usize = 224;

/// Whether the published figures of `network` may stand beside this one: they are all of ImageNet's pictures.
fn published_for(one: &Measured, network: &str) -> bool {
    one.name.starts_with(network) && one.input[1..].iter().all(|&size| size >= IMAGENET)
}

fn none() -> String {
    "-".into()
}

/// Table IV.
fn products(rows: &[matrices::Row]) -> Table {
    let row = |row: &matrices::Row| {
        let base = rows.iter().find(|other| other.product == row.product && other.by == COLUMN_BY_COLUMN);
        let [m, n, k] = row.product;
        vec![
            format!("{m} x {n} x {k}"),
            row.by.into(),
            row.up.to_string(),
            row.products.to_string(),
            row.down.to_string(),
            kib(row.bytes_up as f64),
            kib(row.bytes_down as f64),
            significant(row.ms),
            base.map_or_else(none, |base| significant(base.ms / row.ms)),
        ]
    };
    let published = |of: &Counted| {
        let [m, n, k] = of.product;
        let mut row = vec![format!("{m} x {n} x {k}"), format!("the paper's {}", of.whose)];
        row.extend([of.products; 3].map(|count| count.to_string()));
        row.resize(9, none());
        row
    };
    let mut all: Vec<Vec<String>> = Vec::new();
    for (i, one) in rows.iter().enumerate() {
        all.push(row(one));
        if rows.get(i + 1).is_none_or(|next| next.product != one.product) {
            all.extend(COUNTED.iter().filter(|of| of.product == one.product).map(published));
        }
    }
    Table {
        name: "matrices",
        title: "homomorphic matrix products: Table IV of the paper".into(),
        header: vec!["product", "by", "up", "products", "down", "KiB up", "KiB down", "ms", "times faster"],
        numbers_from: 2,
        rows: all,
        notes: "Both parties' work on one core, encryption and decryption included. Up and down: ciphertexts. The paper's Cheetah takes a \
                product with a vector for each column; its Gazelle rotates besides, 192, 512 and 896 times."
            .into(),
    }
}

/// Tables V and VI.
fn layers(runs: &[Measured]) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let measured: Vec<&Measured> = of(runs, "layers").collect();
    for (i, one) in measured.iter().enumerate() {
        let Run { protocol, offline, online, hint_mib, .. } = &one.run;
        rows.push(vec![
            one.name.clone(),
            one.what.clone(),
            protocol.clone(),
            ms(online.seconds),
            ms(offline.seconds),
            ms(online.seconds + offline.seconds),
            ms(online.busy_seconds + offline.busy_seconds),
            kib((online.bytes_up + online.bytes_down) as f64),
            kib((offline.bytes_up + offline.bytes_down) as f64),
            kib(hint_mib * 1_048_576.0),
        ]);
        if measured.get(i + 1).is_none_or(|next| next.name != one.name) {
            rows.extend(LAYERS.iter().filter(|row| row.layer == one.name).map(|row| {
                vec![
                    one.name.clone(),
                    none(),
                    format!("the paper's {}", row.whose),
                    significant(row.online_ms),
                    significant(row.offline_ms),
                    significant(row.online_ms + row.offline_ms),
                    none(),
                    significant(row.online_kb),
                    significant(row.offline_kb),
                    none(),
                ]
            }));
        }
    }
    Table {
        name: "layers",
        title: "single linear layers: Tables V and VI of the paper".into(),
        header: vec![
            "layer",
            "shape",
            "backend",
            "online ms",
            "offline ms",
            "both ms",
            "CPU ms",
            "online KiB",
            "offline KiB",
            "hint KiB, once",
        ],
        numbers_from: 3,
        rows,
        notes: "A query of a network of this layer alone, its result included. CPU: both parties on cores. The paper's: KB, another machine, \
                the online part on a GPU."
            .into(),
    }
}

/// Figure 7.
fn schedule(runs: &[Measured]) -> Table {
    let row = |one: &Measured| {
        let run = &one.run;
        vec![
            one.name.clone(),
            one.what.clone(),
            run.protocol.clone(),
            if one.streamed { "streamed" } else { "layer by layer" }.into(),
            significant(run.online.seconds),
            significant(run.offline.seconds),
            significant(run.seconds()),
            significant(run.mib()),
            run.offline.rounds.to_string(),
        ]
    };
    Table {
        name: "schedule",
        title: "linear layers and their comparisons, streamed and not: Figure 7 of the paper".into(),
        header: vec!["case", "layers", "protocol", "client", "online s", "offline s", "both s", "MiB", "offline rounds"],
        numbers_from: 4,
        rows: of(runs, "schedule").map(row).collect(),
        notes: "Streamed: the client sends for the next layers while the server multiplies. The paper says 1.3 times faster online and 1.3 to \
                1.4 in total."
            .into(),
    }
}

fn kind(stage: &Stage, kind: NodeKind) -> &ByKind {
    stage.kinds.iter().find(|of| of.kind == kind).expect("every kind is counted")
}

/// Tables VII and VIII.
fn nonlinear(runs: &[Measured]) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let gib = |bytes: u64| format!("{:.3}", bytes as f64 / f64::from(1 << 30));
    for (which, name, published) in
        [(NodeKind::Relu, "activations", &ACTIVATIONS), (NodeKind::MaxPool, "max-pools", &MAX_POOLS)]
    {
        let measured: Vec<&Measured> = of(runs, "networks").collect();
        for (i, one) in measured.iter().enumerate() {
            let [online, offline] = [&one.run.online, &one.run.offline].map(|stage| kind(stage, which));
            if online.bytes == 0 {
                continue;
            }
            rows.push(vec![
                one.name.clone(),
                name.into(),
                one.run.protocol.clone(),
                format!("{:.3}", online.wall_seconds),
                format!("{:.3}", offline.wall_seconds),
                gib(online.bytes),
                gib(offline.bytes),
            ]);
            if measured.get(i + 1).is_none_or(|next| next.name != one.name) {
                let theirs = published.iter().filter(|row| published_for(one, row.network));
                rows.extend(theirs.map(|row: &Nonlinear| {
                    vec![
                        one.name.clone(),
                        name.into(),
                        format!("the paper's {}", row.whose),
                        significant(row.online_seconds),
                        significant(row.offline_seconds),
                        significant(row.online_gb),
                        significant(row.offline_gb),
                    ]
                }));
            }
        }
    }
    Table {
        name: "nonlinear",
        title: "all activations and all max-pools of a network: Tables VII and VIII of the paper".into(),
        header: vec!["network", "layers", "protocol", "online s", "offline s", "online GiB", "offline GiB"],
        numbers_from: 3,
        rows,
        notes: "The client's seconds, waiting included. PMax leaks signs and sizes. The paper's: GB, another machine, its Cheetah and CrypTFlow2 \
                do everything online."
            .into(),
    }
}

/// Figures 8 and 10.
fn networks(runs: &[Measured]) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let measured: Vec<&Measured> = of(runs, "networks").collect();
    for (i, one) in measured.iter().enumerate() {
        let run = &one.run;
        rows.push(vec![
            one.name.clone(),
            run.protocol.clone(),
            format!("{:.3}", run.online.seconds),
            format!("{:.2}", run.offline.seconds),
            format!("{:.2}", run.seconds()),
            format!("{:.3}", run.online.busy_seconds),
            format!("{:.2}", run.online.busy_seconds + run.offline.busy_seconds),
            format!("{:.1}", run.online.mib()),
            format!("{:.1}", run.mib()),
            format!("{} + {}", run.offline.rounds, run.online.rounds),
            format!("{:.1}", run.hint_mib),
        ]);
        if measured.get(i + 1).is_none_or(|next| next.name != one.name) {
            let theirs = PROGRAMS.iter().filter(|p| published_for(one, p.0));
            rows.extend(theirs.map(|(_, program, seconds, mib, rounds)| {
                let (seconds, mib) = (format!("{seconds:.1}"), format!("{mib:.0}"));
                let name = format!("{program} (Zen 3)");
                let (name, rounds) = ([one.name.clone(), name], rounds.to_string());
                [&name[..], &[none(), none(), seconds], &[none(), none(), none()], &[mib, rounds, none()]]
                    .concat()
            }));
        }
    }
    Table {
        name: "networks",
        title: "whole networks: Figures 8 and 10 of the paper".into(),
        header: vec![
            "network",
            "protocol",
            "online s",
            "offline s",
            "query s",
            "online CPU s",
            "query CPU s",
            "online MiB",
            "MiB",
            "rounds",
            "hint MiB, once",
        ],
        numbers_from: 2,
        rows,
        notes: format!(
            "Backends by turns, query by query, or one by one if asked to. CPU: both parties on cores. Zen 3: another machine, loopback. {STATED}."
        ),
    }
}

/// The runs of one network that are compared.
struct Compared<'a> {
    name: &'a str,
    sealed: &'a Run,
    leaky: Option<&'a Run>,
    cheetah: Option<&'a Run>,
}

fn compared(runs: &[Measured]) -> Vec<Compared<'_>> {
    let all: Vec<&Measured> = of(runs, "networks").collect();
    let sealed = all.iter().filter(|one| one.run.protocol == "fregata-hme");
    let with = sealed.map(|sealed| {
        let find = |protocol: &dyn Fn(&str) -> bool| {
            let found = all.iter().find(|one| one.name == sealed.name && protocol(&one.run.protocol));
            found.map(|one| &one.run)
        };
        Compared {
            name: &sealed.name,
            sealed: &sealed.run,
            leaky: find(&|name| name.starts_with("fregata-hme, ")),
            cheetah: find(&|name| name == "cheetah"),
        }
    });
    with.collect()
}

fn versus(runs: &[Measured]) -> Table {
    let row = |c: Compared<'_>| {
        let cheetah = c.cheetah?;
        let times = |of: fn(&Run) -> f64| significant(of(cheetah) / of(c.sealed));
        Some(vec![
            c.name.to_owned(),
            times(|run| run.online.seconds),
            times(Run::seconds),
            times(|run| run.online.mib()),
            times(Run::mib),
            c.leaky.map_or_else(none, |leaky| significant(c.sealed.online.seconds / leaky.online.seconds)),
        ])
    };
    Table {
        name: "versus",
        title: "the Cheetah backend / fregata, sealed: how many times more it takes".into(),
        header: vec!["network", "online", "query", "MiB online", "MiB", "online: sealed / PMax"],
        numbers_from: 1,
        rows: compared(runs).into_iter().filter_map(row).collect(),
        notes: "One run; query by query in turn, or one by one if asked to.".into(),
    }
}

fn goals(matrices: &[matrices::Row], runs: &[Measured]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut goal = |what: String, target: f64, figure: f64| {
        goals.push(Goal { what, target: Target::AtLeast(target), figure, limit: None });
    };
    for product in matrices::PRODUCTS {
        let by = |by: &str| matrices.iter().find(|row| row.product == product && row.by == by);
        let (Some(base), [m, n, k]) = (by(COLUMN_BY_COLUMN), product) else { continue };
        for tiling in [PAPER_TILING, CHEAPEST_TILING] {
            if let Some(row) = by(tiling) {
                let what = format!("{m} x {n} x {k}: {tiling}: times faster than Cheetah, column by column");
                goal(what, 4.0, base.ms / row.ms);
            }
        }
    }
    for c in compared(runs) {
        let name = c.name;
        if let Some(cheetah) = c.cheetah {
            let online = if name.starts_with("squeezenet") { 4.0 } else { 12.0 };
            let times = |of: fn(&Run) -> f64| of(cheetah) / of(c.sealed);
            goal(
                format!("{name}: online, times faster than the Cheetah backend"),
                online,
                times(|r| r.online.seconds),
            );
            goal(format!("{name}: in total, times faster"), 3.0, times(Run::seconds));
            goal(format!("{name}: online, times fewer bytes"), 1.6, times(|r| r.online.mib()));
            goal(format!("{name}: in total, times fewer bytes"), 1.0, times(Run::mib));
        }
        if let Some(leaky) = c.leaky {
            let figure = c.sealed.online.seconds / leaky.online.seconds;
            goal(format!("{name}: online, PMax times faster than sealed"), 1.5, figure);
        }
    }
    goals
}

pub fn plot(runs: &[Measured]) -> Dots {
    let mut rows = Vec::new();
    for one in runs {
        let waiting = if one.streamed { "" } else { ", layer by layer" };
        rows.push(plot::Row {
            label: format!("{}, {}{waiting}", one.name, one.run.protocol),
            dots: vec![(0, one.run.seconds()), (1, one.run.online.seconds)],
        });
        if one.part == "layers" && one.run.protocol == "cheetah" {
            rows.extend(LAYERS.iter().filter(|row| row.layer == one.name).map(|row| plot::Row {
                label: format!("{}, the paper's {}", row.layer, row.whose),
                dots: vec![(2, (row.online_ms + row.offline_ms) / 1e3), (3, row.online_ms / 1e3)],
            }));
        }
    }
    Dots {
        title: "Fregata's split, layers and networks; published figures: another machine".into(),
        axis: "seconds".into(),
        series: vec!["offline + online", "online", "published, both", "published, online"],
        rows,
    }
}

/// Of matrix products alone.
pub fn plot_of_products(rows: &[matrices::Row]) -> Dots {
    let row = |row: &matrices::Row| {
        let [m, n, k] = row.product;
        plot::Row { label: format!("{m} x {n} x {k}, {}", row.by), dots: vec![(0, row.ms)] }
    };
    Dots {
        title: "Homomorphic matrix products of Fregata's Table IV".into(),
        axis: "milliseconds".into(),
        series: vec!["both parties on one core"],
        rows: rows.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{met, missed};

    #[test]
    fn a_worse_measurement_misses_the_goals() {
        for (ms, reached) in [(1.0, true), (26.0, false)] {
            let row = |by| matrices::Row {
                product: matrices::PRODUCTS[0],
                by,
                up: 1,
                products: 1,
                down: 1,
                bytes_up: 1,
                bytes_down: 1,
                ms: if by == COLUMN_BY_COLUMN { 100.0 } else { ms },
            };
            let rows = [COLUMN_BY_COLUMN, PAPER_TILING, CHEAPEST_TILING].map(row);
            let goals = goals(&rows, &[]);
            assert_eq!((goals.len(), met(&goals), missed(&goals)), (2, reached, !reached));
        }
    }
}
