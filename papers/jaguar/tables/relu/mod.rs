//! `jaguar-bench relu`: the nonlinear layers of both precision flows, beside published figures (Tables 2 and 4 of Jaguar's paper).
//!
//! Jaguar's flow cuts the products to n bits inside the linear layer and compares n bits; Cheetah's compares
//! shares of full width and truncates afterwards. Both run here on the same protocols, so that what differs is the
//! width and the truncation. The two parties are two threads of this process, over queues or over an imitated link,
//! with real COTs, whose setup is not counted. Preparation (COTs and hashing, before the input is known) and the
//! online part are timed apart, each from when both parties are ready until the slower has its result. Every result
//! is compared with the plaintext reference.

mod cases;
mod parties;

use std::time::Duration;

use anyhow::Result;
use jaguar_profile::Imitated;
use jaguar_ring::cpu::Cpu;
use jaguar_wire::Traffic;
use serde::Serialize;

use super::limits::{Limit, Peaks};
use super::paper::{Nonlinear, OpenCheetah, RELU_20};
use super::plot::{self, Dots};
use super::report::{Goal, Output, Report, Table, Target};
use super::setting::{Setting, link_text};
use super::statistics::{median, significant};
use cases::{Case, Counted};
use parties::Measured;

#[derive(clap::Args)]
pub struct Args {
    /// How many elements each operation works on.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=16_000_000))]
    elements: u64,
    /// How often each is measured; medians are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Imitate a link; otherwise the parties talk through queues in memory.
    #[arg(long, value_enum)]
    link: Option<Imitated>,
    /// Leaves out the nonlinear layers of ResNet-50, which take most of the time and 2 GiB of memory.
    #[arg(long)]
    skip_network: bool,
    #[command(flatten)]
    output: Output,
}

/// One operation: medians.
#[derive(Serialize)]
struct Row {
    operation: String,
    elements: usize,
    prepare_seconds: f64,
    online_seconds: f64,
    /// The busier party's time on cores: what is left of the seconds is waiting, for the peer, the link or a core.
    prepare_busy_seconds: f64,
    online_busy_seconds: f64,
    prepare_limit: Limit,
    online_limit: Limit,
    /// Of all COTs and corrections, both directions.
    prepare_bytes: u64,
    online_bytes: u64,
    cots: u64,
    /// How often the client waits for the server, online, when it starts with something unsent.
    rounds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<Counted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_cheetah: Option<OpenCheetah>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paper: Option<Nonlinear>,
}

impl Row {
    fn new(
        case: &Case,
        client: &[Measured],
        server: &[Measured],
        shape: Option<Imitated>,
        peaks: &Peaks,
    ) -> Self {
        let slower = |of: fn(&Measured) -> Duration| {
            median(client.iter().zip(server).map(|(c, s)| of(c).max(of(s)).as_secs_f64()))
        };
        let traffic = |of: fn(&Measured) -> Traffic| {
            let bytes = |way: fn(Traffic) -> u64| median(client.iter().map(|m| way(of(m)) as f64)) as u64;
            [bytes(|t| t.sent), bytes(|t| t.received)]
        };
        let [prepare_up, prepare_down] = traffic(|m| m.prepare_traffic);
        let [online_up, online_down] = traffic(|m| m.online_traffic);
        let cost = case.cost();
        let busier = |parties: [f64; 2]| parties[0].max(parties[1]);
        Self {
            operation: case.name.clone(),
            elements: case.elements(),
            prepare_seconds: slower(|m| m.prepare.elapsed),
            online_seconds: slower(|m| m.online.elapsed),
            prepare_busy_seconds: slower(|m| m.prepare.busy),
            online_busy_seconds: slower(|m| m.online.busy),
            prepare_limit: Limit::new(
                busier(peaks.nonlinear_preparing(&cost)),
                shape,
                prepare_up,
                prepare_down,
                0,
            ),
            online_limit: Limit::new(
                busier(peaks.nonlinear_online(&cost)),
                shape,
                online_up,
                online_down,
                cost.client_rounds,
            ),
            prepare_bytes: prepare_up + prepare_down,
            online_bytes: online_up + online_down,
            cots: client[0].cots,
            rounds: cost.client_rounds,
            counted: case.counted,
            open_cheetah: case.open_cheetah,
            paper: case.paper,
        }
    }

    fn seconds(&self) -> f64 {
        self.prepare_seconds + self.online_seconds
    }

    fn limit(&self) -> f64 {
        self.prepare_limit.seconds() + self.online_limit.seconds()
    }

    /// What is this figure of an element?
    fn each(&self, figure: u64) -> f64 {
        figure as f64 / self.elements as f64
    }

    /// What would these seconds be for a million elements?
    fn million(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.elements as f64
    }
}

#[derive(Serialize)]
struct Figures {
    operations: Vec<Row>,
    resnet50: Vec<Row>,
}

fn measure(shape: Option<Imitated>, cases: &[Case], repeats: usize, peaks: &Peaks) -> Result<Vec<Row>> {
    let [client, server] = parties::measure(shape, cases, repeats)?;
    let measured = cases.iter().zip(client.iter().zip(&server));
    Ok(measured.map(|(case, (client, server))| Row::new(case, client, server, shape, peaks)).collect())
}

pub fn run(args: &Args) -> Result<()> {
    let mut cases = cases::operations(usize::try_from(args.elements)?);
    let split = cases.len();
    if !args.skip_network {
        cases.extend(cases::network());
    }
    let link = link_text(args.link, "queues in memory");
    let cpu = Cpu::detect();
    let mut setting = Setting::new(cpu, "one thread a party".into(), link, args.repeats);
    let peaks = Peaks::measure(cpu)?;
    let mut operations = measure(args.link, &cases, args.repeats as usize, &peaks)?;
    setting.done();
    let resnet50 = operations.split_off(split);
    let goals = goals(&operations, &peaks);
    let mut tables = vec![times(&operations), counted(&operations), Table::goals(&goals)];
    if !resnet50.is_empty() {
        tables.push(network(&resnet50, args.link));
    }
    let figures = Figures { operations, resnet50 };
    let plot = plot(&figures);
    args.output.hand_out(&Report { setting, peaks, tables, figures }, &plot)
}

/// What was set out to be reached with nonlinear layers.
fn goals(rows: &[Row], peaks: &Peaks) -> Vec<Goal> {
    let find = |name: &str| rows.iter().find(|row| row.operation == name);
    let mut goals = vec![Goal {
        what: "COTs a second and core, million: as fast as Ferret on Zen 3".into(),
        target: Target::AtLeast(31.0),
        figure: 1e-6 / peaks.cot_sent_seconds.max(peaks.cot_received_seconds),
        limit: None,
    }];
    // At OpenCheetah's own bits: a third of its time.
    goals.extend(find(cases::PEER_RELU).map(|relu| Goal {
        what: "exact 20-bit ReLU, COTs included, s a million: a third of OpenCheetah's on Zen 3".into(),
        target: Target::AtMost(RELU_20.seconds_per_million / 3.0),
        figure: relu.million(relu.seconds()),
        limit: Some(relu.million(relu.limit())),
    }));
    if let Some(relu) = find(cases::SESSION_RELU) {
        goals.extend([
            Goal {
                what: "a session's ReLU 16 > 30 online, s a million".into(),
                target: Target::AtMost(0.25),
                figure: relu.million(relu.online_seconds),
                limit: Some(relu.million(relu.online_limit.seconds())),
            },
            Goal {
                what: "bytes an element, with the extension to the next layer's ring".into(),
                target: Target::AtMost(22.0),
                figure: relu.each(relu.prepare_bytes + relu.online_bytes),
                limit: None,
            },
        ]);
        goals.extend(find(cases::PLAIN_RELU).map(|plain| Goal {
            what: "bytes an element of a ReLU 16 > 16".into(),
            target: Target::AtMost(22.0),
            figure: plain.each(plain.prepare_bytes + plain.online_bytes),
            limit: None,
        }));
        goals.extend(find(cases::SESSION_RELU6).map(|six| Goal {
            what: "ReLU6: how many times a ReLU's time".into(),
            target: Target::AtMost(1.0),
            figure: six.seconds() / relu.seconds(),
            limit: Some(six.limit() / relu.limit()),
        }));
    }
    goals
}

// ---- For people ----

/// What stands where nobody published a figure.
fn none() -> [String; 4] {
    std::array::from_fn(|_| "-".to_owned())
}

fn times(rows: &[Row]) -> Table {
    let row = |row: &Row| {
        let mut cells = vec![
            row.operation.clone(),
            format!("{:.3}", row.million(row.prepare_seconds)),
            format!("{:.3}", row.million(row.online_seconds)),
            format!("{:.3}", row.million(row.seconds())),
            format!("{:.3}", row.million(row.prepare_busy_seconds + row.online_busy_seconds)),
            format!("{:.3}", row.million(row.limit())),
            row.prepare_limit.bound().to_owned(),
            significant(row.seconds() / row.limit()),
            significant(row.online_seconds / row.online_limit.seconds()),
            format!("{:.2}", row.each(row.prepare_bytes)),
            format!("{:.2}", row.each(row.online_bytes)),
            format!("{:.1}", row.each(row.cots)),
            row.rounds.to_string(),
        ];
        cells.extend(row.open_cheetah.map_or_else(none, |peer| {
            [
                format!("{:.2}", peer.seconds_per_million),
                format!("{:.1}", peer.bytes),
                format!("{:.0}", peer.cots),
                significant(peer.seconds_per_million / row.million(row.seconds())),
            ]
        }));
        cells
    };
    Table {
        name: "operations",
        title: "seconds a million elements; bytes and COTs an element, COTs' bytes in 'prep. B'".into(),
        header: vec![
            "operation",
            "prepare s",
            "online s",
            "both s",
            "busy s",
            "limit s",
            "bound by",
            "both / limit",
            "online / limit",
            "prep. B",
            "online B",
            "COTs",
            "rounds",
            "OpenCheetah s",
            "its B",
            "its COTs",
            "faster",
        ],
        numbers_from: 1,
        rows: rows.iter().map(row).collect(),
        notes: "Busy: what the busier party had of a core, on its one thread, bins of COTs included; the rest is \
                waiting. Bound by: preparation. OpenCheetah f71d4d4: one thread a party, two Zen 3 cores, \
                loopback, another machine than this."
            .into(),
    }
}

/// Table 2, with what our protocols send. Its figures are lost in the copy of the paper at hand.
fn counted(rows: &[Row]) -> Table {
    let row = |row: &Row| {
        let counted = row.counted?;
        Some(vec![
            counted.flow.to_owned(),
            counted.operation.to_owned(),
            counted.error.to_owned(),
            row.operation.clone(),
            format!("{:.0}", 8.0 * row.each(row.prepare_bytes)),
            format!("{:.0}", 8.0 * row.each(row.online_bytes)),
            format!("{:.0}", 8.0 * row.each(row.prepare_bytes + row.online_bytes)),
            "-".to_owned(),
        ])
    };
    Table {
        name: "bits",
        title: "bits sent an element: Table 2 of the paper".into(),
        header: vec![
            "flow",
            "operation",
            "error, units of the last place",
            "measured as",
            "before the input",
            "online",
            "both",
            "the paper's",
        ],
        numbers_from: 4,
        rows: rows.iter().filter_map(row).collect(),
        notes: "The figures of Table 2 are lost in the copy of the paper at hand.".into(),
    }
}

fn network(rows: &[Row], shape: Option<Imitated>) -> Table {
    let row = |row: &Row| {
        let mib = (row.prepare_bytes + row.online_bytes) as f64 / 1_048_576.0;
        let mut cells = vec![
            row.operation.clone(),
            format!("{:.2}", row.prepare_seconds),
            format!("{:.2}", row.online_seconds),
            format!("{:.2}", row.seconds()),
            format!("{:.2}", row.prepare_busy_seconds + row.online_busy_seconds),
            format!("{:.2}", row.limit()),
            significant(row.seconds() / row.limit()),
            format!("{mib:.2}"),
            row.rounds.to_string(),
        ];
        cells.extend(row.paper.map_or_else(none, |paper| {
            [
                paper.whose.to_owned(),
                format!("{:.2}", paper.lan_seconds),
                format!("{:.2}", paper.wan_seconds),
                format!("{:.2}", paper.mib),
            ]
        }));
        cells
    };
    Table {
        name: "resnet50",
        title: format!(
            "the ReLU and truncation layers of ResNet-50, all of them ({}): Table 4 of the paper",
            shape.map_or("no link", Imitated::name)
        ),
        header: vec![
            "layers",
            "prepare s",
            "online s",
            "both s",
            "busy s",
            "limit s",
            "both / limit",
            "MiB",
            "rounds",
            "the paper's",
            "LAN s",
            "WAN s",
            "its MiB",
        ],
        numbers_from: 1,
        rows: rows.iter().map(row).collect(),
        notes: "The paper: four threads, two Xeon Gold 6250; shares and scale as chosen there.".into(),
    }
}

fn plot(figures: &Figures) -> Dots {
    let row = |row: &Row| {
        let mut dots = vec![
            (0, row.million(row.seconds())),
            (1, row.million(row.online_seconds)),
            (2, row.million(row.limit())),
        ];
        dots.extend(row.open_cheetah.map(|peer| (3, peer.seconds_per_million)));
        plot::Row { label: row.operation.clone(), dots }
    };
    Dots {
        title: "Nonlinear layers, one thread a party: seconds a million elements".into(),
        axis: "seconds a million elements".into(),
        series: vec!["before the input + online", "online", "limit of both", "OpenCheetah (another machine)"],
        // What takes no work has no place beside the others.
        rows: figures.operations.iter().filter(|row| row.limit() > 0.0).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::tests::PEAKS;
    use crate::report::tests::{met, missed};

    #[test]
    fn every_operation_gives_what_the_reference_says_for_its_bytes() {
        let cases = cases::operations(700);
        let rows = measure(None, &cases, 1, &PEAKS).unwrap();
        for (case, row) in cases.iter().zip(&rows) {
            let cost = case.cost();
            assert_eq!(row.online_bytes, cost.up + cost.down, "{}", case.name);
            assert_eq!(row.cots, (cost.from_client() + cost.from_server()).total(), "{}", case.name);
            assert_eq!(row.limit() > 0.0, row.cots > 0, "{}", case.name);
        }
        let mut rows = rows;
        let good = Peaks { cot_sent_seconds: 1e-9, cot_received_seconds: 1e-9, ..PEAKS };
        let bad = Peaks { cot_received_seconds: 1e-7, ..good };
        for (seconds, bytes, peaks, reached) in [(1e-9, 0, &good, true), (1e3, 1 << 40, &bad, false)] {
            for row in &mut rows {
                // (A ReLU6 is compared with a ReLU.)
                let times = if row.operation == cases::SESSION_RELU6 && !reached { 2.0 } else { 1.0 };
                (row.prepare_seconds, row.online_seconds) = (times * seconds, times * seconds);
                (row.prepare_bytes, row.online_bytes) = (bytes, bytes);
            }
            let goals = goals(&rows, peaks);
            assert_eq!((goals.len(), met(&goals), missed(&goals)), (6, reached, !reached));
        }
        // Both flows of Table 2, and as many cells as columns.
        assert_eq!(counted(&rows).rows.len(), 5);
        for table in [times(&rows), counted(&rows), network(&rows, None)] {
            assert!(table.rows.iter().all(|row| row.len() == table.header.len()), "{}", table.name);
        }
    }
}
