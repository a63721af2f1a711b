//! One network, under one protocol or several: sessions with several queries, and their figures.

use std::thread;

use anyhow::Result;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{Limits, Ready, Reveal, connect};
use jaguar_engine::progress::NoProgress;
use jaguar_engine::report::{Cost, Predicted, Report, Row};
use jaguar_engine::server::Service;
use jaguar_graph::network::{Network, Op, Part};
use jaguar_linear::product::Hardware;
use jaguar_plan::machine::Machine;
use jaguar_plan::predict::Aim;
use jaguar_plan::{Allowed, BackendId, Choices, Comparison, ComparisonsId, Plan, Schedule, planner};
use jaguar_profile::busy::timed;
use jaguar_profile::{Between, Imitated, link};
use jaguar_ring::Kernel;
use jaguar_wire::tcp::{Listener, Options, Tcp};

use super::{ByKind, NodeKind, Run, Stage};
use crate::kit::kit;
use crate::limits::{Limit, Peaks};
use crate::statistics::median;

/// A way to run a network.
#[derive(Clone, Copy)]
pub struct Way {
    pub protocol: BackendId,
    /// By which comparisons, if not the operators' own. **They may leak.**
    pub compared_by: Option<ComparisonsId>,
    /// When the client takes answers before the input.
    pub schedule: Schedule,
}

impl Way {
    pub fn sealed(protocol: BackendId) -> Self {
        Self { protocol, compared_by: None, schedule: Schedule::Streamed }
    }
}

/// What is to be run.
pub struct Session<'a> {
    /// What linear layers are computed with at the server, and with whose processor at the client.
    pub hardware: Hardware,
    /// Makes the model.
    pub bundle: &'a (dyn Fn() -> Result<Bundle> + Sync),
    /// Each in a session of its own, their queries by turns: what else the machine does hits all alike.
    pub ways: &'a [Way],
    pub link: Option<Imitated>,
    /// In place of the compiled model's own.
    pub guard_bits: Option<u32>,
    pub repeats: u32,
    /// What the planner knows of this machine; without it the plan is the default.
    pub machine: Option<&'a Machine>,
}

impl Session<'_> {
    /// Measures it on `threads` threads: a run for each protocol.
    ///
    /// # Errors
    /// When a session fails.
    pub fn measure(&self, peaks: &Peaks, threads: usize) -> Result<Vec<Run>> {
        let between = self.link.map_or(Between::Loopback, Between::Imitated);
        let site = self.machine.map(|machine| between.site(machine, Aim::Query));
        let services = self.ways.iter().map(|&Way { protocol, compared_by, .. }| {
            let bundle = (self.bundle)()?;
            let guard_bits = self.guard_bits.unwrap_or(bundle.model.network.guard_bits);
            let bundle = bundle.guarded(guard_bits)?;
            let choices = match &site {
                None => Choices::standard(&bundle.model.network, protocol),
                Some(site) => planner::choose(&bundle.model.network, &[protocol], site, None)?,
            };
            let choices = match compared_by {
                None => choices,
                Some(by) => choices.comparing_by(&bundle.model.network, by)?,
            };
            let allowed = Allowed { leaks: compared_by.is_some(), ..Allowed::default() };
            Ok(Service::allowing(self.hardware.clone(), bundle, choices, Reveal::Logits, allowed)?)
        });
        let services = services.collect::<Result<Vec<_>>>()?;
        let queries = self.queries(&services)?;
        let run = |(service, queries): (&Service, &Vec<Query>)| {
            let (network, plan) = (service.network(), service.plan());
            let [offline, online] = stages(network, &queries[1..]);
            let least = computing(network, plan, peaks).map(|seconds| seconds / threads as f64);
            let limited = |stage: Stage, computing: f64| Stage {
                limit: Limit::new(computing, self.link, stage.bytes_up, stage.bytes_down, stage.rounds),
                ..stage
            };
            Run {
                network: network.name.clone(),
                input: network.nodes[0].shape,
                protocol: protocol_name(network, plan),
                kernel: Kernel::of(self.hardware.cpu).name().into(),
                hint_mib: plan.hint_bytes() as f64 / 1_048_576.0,
                offline: limited(offline, least[0]),
                online: limited(online, least[1]),
                predicted: Predicted::new(plan, &queries[1].report, site.as_ref()),
            }
        };
        Ok(services.iter().zip(&queries).map(run).collect())
    }

    /// All queries, by service; the first one has warmed up.
    fn queries(&self, services: &[Service]) -> Result<Vec<Vec<Query>>> {
        let cache = std::env::temp_dir().join(format!("jaguar-bench-{}", std::process::id()));
        let listeners =
            services.iter().map(|_| Listener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
        let queries = thread::scope(|scope| -> Result<Vec<Vec<Query>>> {
            let serve = |(service, listener): (&Service, &Listener)| -> Result<()> {
                let tcp = listener.accept()?.greet(Options::default())?;
                Ok(service.serve(link::channel(tcp, self.link), &mut |_| ())?)
            };
            let both = services.iter().zip(&listeners);
            let servers: Vec<_> = both.map(|both| scope.spawn(move || serve(both))).collect();
            let client = || -> Result<Vec<Vec<Query>>> {
                let connect_to = |listener: &Listener| -> Result<Tcp> {
                    Ok(Tcp::connect(listener.address()?, Options::default())?)
                };
                // All before any is used: a server that nobody calls would wait for ever.
                let connections: Vec<Result<Tcp>> = listeners.iter().map(connect_to).collect();
                let mut clients = Vec::new();
                for (tcp, way) in connections.into_iter().zip(self.ways) {
                    let limits = Limits { accept_leaks: way.compared_by.is_some(), ..Limits::default() };
                    let connected = connect(&kit(), link::channel(tcp?, self.link), &limits)?;
                    // A folder each: one model's hints differ by form.
                    let place = cache.join(clients.len().to_string());
                    let ready = connected.prepare_client(place)?.with_schedule(way.schedule);
                    clients.push((ready, Vec::new()));
                }
                for query in 0..=self.repeats {
                    let mut next = Vec::new();
                    for (ready, mut queries) in clients {
                        let input = random_input(ready.network(), u64::from(query));
                        let (offline, prepared) = timed(|| ready.prepare_query(&mut NoProgress));
                        let prepared = prepared?;
                        let (online, done) = timed(|| prepared.run(&input, &mut NoProgress));
                        let (_, report, ready) = done?;
                        queries.push(Query {
                            report,
                            busy: [offline, online].map(|span| span.busy.as_secs_f64()),
                        });
                        next.push((ready, queries));
                    }
                    clients = next;
                }
                let leave = |(ready, queries): (Ready, Vec<Query>)| {
                    ready.leave()?;
                    Ok(queries)
                };
                clients.into_iter().map(leave).collect()
            };
            let queries = client();
            let served: Vec<Result<()>> = servers
                .into_iter()
                .map(|server| server.join().expect("the server's thread does not panic"))
                .collect();
            let queries = queries?;
            served.into_iter().collect::<Result<Vec<()>>>()?;
            Ok(queries)
        });
        let _ = std::fs::remove_dir_all(&cache);
        queries
    }
}

/// A query, of which both parties run in this process.
struct Query {
    report: Report,
    /// Seconds of both parties on cores: before the input, and online.
    busy: [f64; 2],
}

/// The backends of a plan, and by which comparisons it compares if those are not the operators' own.
fn protocol_name(network: &Network, plan: &Plan) -> String {
    let names = plan.choices.names(network);
    match plan.choices.comparison {
        Comparison::Sealed => names,
        Comparison::By { name, .. } => format!("{names}, {}", name.0.name()),
    }
}

/// Any integers within an eighth of the activation range; no randomness that matters.
fn random_input(network: &Network, query: u64) -> Vec<i64> {
    let bound = 1i64 << (network.activation_bits - 4);
    let count: usize = network.nodes[0].shape.iter().product();
    (0..count as u64)
        .map(|i| {
            let mixed = (i ^ query << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed >> 40) as i64) % (2 * bound) - bound
        })
        .collect()
}

fn kind(op: &Op) -> NodeKind {
    match op.part() {
        Part::Linear => NodeKind::Linear,
        Part::Activation => NodeKind::Relu,
        Part::MaxPool => NodeKind::MaxPool,
        Part::Input | Part::Product | Part::Local => NodeKind::Rest,
    }
}

/// Least seconds on one core, of both parties together: before the input, and online.
fn computing(network: &Network, plan: &Plan, peaks: &Peaks) -> [f64; 2] {
    let [mut before, mut online] = [0.0; 2];
    for (node, step) in network.nodes.iter().zip(&plan.steps) {
        if let Some(spec) = node.op.linear() {
            let multiply_adds = spec.multiply_adds(network.nodes[node.inputs[0]].shape);
            online += peaks.online(multiply_adds.expect("a network's layers fit their inputs"));
        }
        // Products before the input are what hints are for.
        if let Some(layer) = step.layer.as_ref().filter(|layer| layer.hint_parts().0 > 0) {
            let g = layer.geometry();
            before += peaks.products(g.ring_dim, g.ciphertexts, g.responses).iter().sum::<f64>();
        }
        before += peaks.nonlinear_preparing(&step.cost).iter().sum::<f64>();
        online += peaks.nonlinear_online(&step.cost).iter().sum::<f64>();
    }
    [before, online]
}

/// Both stages, without their limits. Bytes and rounds are the same in each query.
fn stages(network: &Network, queries: &[Query]) -> [Stage; 2] {
    let reports: Vec<&Report> = queries.iter().map(|query| &query.report).collect();
    let of =
        |which: usize, seconds: fn(&Report) -> f64, all: fn(&Report) -> &Cost, of_row: fn(&Row) -> &Cost| {
            let total = all(reports[0]);
            let mut kinds: Vec<ByKind> =
                NodeKind::ALL.into_iter().map(|kind| ByKind::of(kind, network, &reports, of_row)).collect();
            // Keys, the result and the server's report belong to no node.
            let bytes: u64 = kinds.iter().map(|k| k.bytes).sum();
            let rounds: u64 = kinds.iter().map(|k| k.rounds).sum();
            let walls: f64 = kinds.iter().map(|k| k.wall_seconds).sum();
            let seconds = median(reports.iter().copied().map(seconds));
            let rest = kinds.last_mut().expect("there are kinds");
            rest.bytes += (total.bytes_up + total.bytes_down).saturating_sub(bytes);
            rest.rounds += total.rounds.saturating_sub(rounds);
            rest.wall_seconds += (seconds - walls).max(0.0);
            Stage {
                seconds,
                busy_seconds: median(queries.iter().map(|query| query.busy[which])),
                bytes_up: total.bytes_up,
                bytes_down: total.bytes_down,
                rounds: total.rounds,
                limit: Limit::default(),
                kinds,
            }
        };
    [
        of(0, |r| r.offline_seconds, |r| &r.offline, |row| &row.offline),
        of(1, |r| r.online_seconds, |r| &r.online, |row| &row.online),
    ]
}

impl ByKind {
    fn of(kind: NodeKind, network: &Network, reports: &[&Report], of_row: fn(&Row) -> &Cost) -> Self {
        let rows = |report: &'_ Report| -> Vec<Cost> {
            let nodes = network.nodes.iter().zip(&report.rows);
            let nodes = nodes.filter(|(node, _)| self::kind(&node.op) == kind);
            nodes.map(|(_, row)| *of_row(row)).collect()
        };
        let sum = |of: fn(&Cost) -> f64| median(reports.iter().map(|r| rows(r).iter().map(of).sum()));
        let first = rows(reports[0]);
        Self {
            kind,
            wall_seconds: sum(|cost| cost.wall_seconds),
            client_seconds: sum(|cost| cost.client_seconds),
            server_seconds: sum(|cost| cost.server_seconds),
            bytes: first.iter().map(|cost| cost.bytes_up + cost.bytes_down).sum(),
            rounds: first.iter().map(|cost| cost.rounds).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use jaguar_ring::cpu::Cpu;

    use jaguar_graph::network::Input;
    use jaguar_plan::Kit;

    use super::*;
    use crate::limits::tests::PEAKS;
    use crate::report::tests::{met, missed};
    use jaguar_graph::network::{
        Bias, InputSpec, Linear, MaxPool, Model, Node, OutputSpec, Relu, Weights, Window,
    };

    /// A convolution, a max-pool, a ReLU, and a convolution.
    fn small() -> Bundle {
        let conv = |out_channels, kernel| Op::new(Linear::same(out_channels, kernel, 12));
        let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
        let pool = Op::new(MaxPool { window, ignored: 0 });
        let ops = [
            ("input", Op::new(Input), [3, 8, 8]),
            ("first", conv(4, 3), [4, 8, 8]),
            ("pool", pool, [4, 4, 4]),
            ("relu", Op::new(Relu { ignored: 0 }), [4, 4, 4]),
            ("last", conv(5, 1), [5, 4, 4]),
        ];
        let nodes = ops.into_iter().enumerate().map(|(id, (name, op, shape))| {
            let inputs = if id == 0 { vec![] } else { vec![id - 1] };
            Node { name: name.into(), op, inputs, shape }
        });
        let network = Network {
            name: "resnet18-like".into(),
            activation_bits: 16,
            guard_bits: 0,
            noise_bits: 0,
            weight_bits: 12,
            nodes: nodes.collect(),
            input: InputSpec::plain(1.0),
            output: OutputSpec::plain(1.0),
        };
        let weights = |count: usize, out: usize| {
            Some(Weights {
                weights: vec![100; count],
                exponents: Vec::new(),
                bias: Bias::PerChannel(vec![7; out]),
            })
        };
        let weights = vec![None, weights(108, 4), None, None, weights(20, 5)];
        Bundle::with_hiding(Model { network, weights, scales: vec![1.0; 5], leverage: None }, 0).unwrap()
    }

    #[test]
    fn both_protocols_stand_side_by_side() {
        let path = std::env::temp_dir().join(format!("jaguar-bench-both-{}.jaguar", std::process::id()));
        small().write(&path).unwrap();
        let ways = [Kit::JAGUAR, Kit::CHEETAH].map(Way::sealed);
        let runs = Session {
            hardware: Cpu::detect().into(),
            bundle: &|| Ok(Bundle::read(&path, kit().operators())?),
            ways: &ways,
            link: None,
            guard_bits: None,
            repeats: 1,
            machine: None,
        }
        .measure(&PEAKS, 1);
        std::fs::remove_file(&path).unwrap();
        let mut runs = runs.unwrap();
        assert_eq!(runs.iter().map(|r| r.protocol.as_str()).collect::<Vec<_>>(), ["jaguar", "cheetah"]);
        assert!(runs[0].mib() < runs[1].mib());
        // Cheetah has no hint, and a round for each of the linear layers.
        assert!(runs[0].hint_mib > 0.0 && runs[1].hint_mib == 0.0);
        assert_eq!((runs[0].online.kinds[0].rounds, runs[1].online.kinds[0].rounds), (0, 2));
        let tables = super::super::tables::all(&runs, None);
        assert_eq!(
            tables.iter().map(|t| t.name).collect::<Vec<_>>(),
            ["networks", "kinds", "versus", "goals"]
        );
        assert_eq!((tables[2].rows.len(), tables[2].rows[0].len()), (1, tables[2].header.len()));
        // How many times faster and smaller than Cheetah. Its input is not the one that other goals are for, whatever
        // its name.
        let goals = &tables[3].rows;
        assert_eq!(goals.len(), 2);
        assert!(goals[1][0].contains("fewer bytes") && goals[1][2].parse::<f64>().unwrap() > 1.0);
        // With it, MiB of a query and of the hint too.
        runs.iter_mut().for_each(|run| run.input = [3, 224, 224]);
        assert_eq!(super::super::tables::all(&runs, None)[3].rows.len(), 4);
    }

    #[test]
    fn a_worse_measurement_misses_the_goals() {
        let bundle = || Ok(small());
        let ways = [Kit::JAGUAR, Kit::CHEETAH].map(Way::sealed);
        let session = Session {
            hardware: Cpu::detect().into(),
            bundle: &bundle,
            ways: &ways,
            link: None,
            guard_bits: None,
            repeats: 1,
            machine: None,
        };
        let mut runs = session.measure(&PEAKS, 1).unwrap();
        for (network, size, count) in
            [("squeezenet", 227, 5), ("resnet18", 224, 4), ("mobilenetv2", 224, 4), ("resnet50", 224, 7)]
        {
            for (run, times) in runs.iter_mut().zip([1e6, 1.0]) {
                (run.network, run.input, run.hint_mib) = (network.into(), [3, size, size], times);
                for stage in [&mut run.offline, &mut run.online] {
                    (stage.seconds, stage.bytes_up) = (times, (times * 1e6) as u64);
                }
            }
            let goals = super::super::tables::goals(&runs, None);
            assert!(missed(&goals) && goals.len() == count, "{network}");
            // Ours as good as one could wish.
            let ours = &mut runs[0];
            for stage in [&mut ours.offline, &mut ours.online] {
                (stage.seconds, stage.bytes_up, stage.bytes_down) = (1e-6, 1, 0);
            }
            ours.hint_mib = 0.0;
            assert!(met(&super::super::tables::goals(&runs, None)), "{network}");
        }
    }

    #[test]
    fn what_the_kinds_took_is_what_the_phase_took() {
        let path = std::env::temp_dir().join(format!("jaguar-bench-test-{}.jaguar", std::process::id()));
        small().write(&path).unwrap();
        let ways = [Way::sealed(Kit::JAGUAR)];
        let session = Session {
            hardware: Cpu::detect().into(),
            bundle: &|| Ok(Bundle::read(&path, kit().operators())?),
            ways: &ways,
            link: Some(Imitated::Lan),
            guard_bits: None,
            repeats: 2,
            machine: None,
        };
        let runs = session.measure(&PEAKS, 1);
        std::fs::remove_file(&path).unwrap();
        // As if it had the input that goals of this name are for.
        let run = Run { input: [3, 224, 224], ..runs.unwrap().remove(0) };
        for stage in [&run.offline, &run.online] {
            assert_eq!(stage.kinds.iter().map(|k| k.bytes).sum::<u64>(), stage.bytes_up + stage.bytes_down);
            assert_eq!(stage.kinds.iter().map(|k| k.rounds).sum::<u64>(), stage.rounds);
            assert!(stage.limit.seconds() > 0.0);
        }
        // Online, each kind sends something; before the input the linear layers send nothing.
        assert!(run.online.kinds.iter().all(|k| k.bytes > 0));
        assert_eq!(run.offline.kinds[0].bytes, 0);
        // 8·8·4·27 multiply-adds and 4·4·5·4, and what the nonlinear layers read.
        assert!(run.online.limit.computing > (6912.0 + 320.0) / PEAKS.multiply_adds_per_second);

        // Bytes are predicted without measured constants, and are those that passed; seconds only with them.
        for (measured, predicted) in
            [(&run.offline, &run.predicted.offline), (&run.online, &run.predicted.online)]
        {
            assert_eq!((measured.bytes_up, measured.bytes_down), (predicted.bytes_up, predicted.bytes_down));
            assert!(measured.bytes_up > 0 && predicted.seconds.is_none());
        }
        let mut timed = run.clone();
        timed.predicted.offline.seconds = Some(2.0 * run.offline.seconds);
        timed.predicted.online.seconds = Some(2.0 * run.online.seconds);
        let tables = super::super::tables::all(&[timed], None);
        let last = tables.iter().find(|t| t.name == "predicted").expect("seconds were predicted");
        assert!(last.rows.len() == 3 && last.rows.iter().all(|row| row[5] == "+100 %"), "{:?}", last.rows);

        // Tables and plot hold ours, and the paper's six for this network.
        let scalar = Run { kernel: "scalar".into(), ..run.clone() };
        let runs = [run, scalar];
        for (link, published) in [(None, 0), (Some(Imitated::Lan), 6)] {
            let tables = super::super::tables::all(&runs, link);
            assert_eq!(
                tables.iter().map(|t| t.name).collect::<Vec<_>>(),
                ["networks", "kinds", "kernels", "goals"]
            );
            assert_eq!(tables[0].rows.len(), 2 + 6);
            assert_eq!(tables[2].rows.len(), 1);
            for table in &tables {
                assert!(table.rows.iter().all(|row| row.len() == table.header.len()), "{}", table.name);
            }
            assert_eq!(super::super::tables::plot(&runs, link).rows.len(), 2 + published);
        }
    }
}
