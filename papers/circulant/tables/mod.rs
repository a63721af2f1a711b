//! `jaguar-bench circulant`: layers with weights in skew-circulant blocks, by block size, beside the same layers dense.
//!
//! | table | what is measured |
//! |---|---|
//! | `layers` | every shape of torchvision's ResNet-18, ResNet-50 and MobileNetV2 that can have blocks, by block size |
//! | `networks` | the three networks with one block size throughout: sums over their layers |
//!
//! As `bench conv`: single layers, computing only, random weights of 12 bits; the result of each is compared with the plaintext
//! reference, which reads the weights as dense ones, before anything is timed. The block sizes of a layer take turns; figures are the
//! least of the repeats. What the planner predicts is shown beside them if the machine was measured (`jaguar measure`). Layers that
//! cannot have blocks of a size (the first one, depthwise ones, channels that it does not divide) have the next smaller size that
//! they can have.

pub mod tables;

use anyhow::{Context, Result, ensure};
use jaguar_graph::network::{BLOCK_SIZES, Blocks, Linear, possible_sizes};
use jaguar_linear::backend::Layer as _;
use jaguar_linear::jaguar;
use jaguar_linear::layout::{Layout, Packing};
use jaguar_plan::machine::Machine;
use jaguar_profile::store;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::power_of_two::Parameters;
use serde::Serialize;

use crate::conv::shapes::{Conv, mobilenet_v2, resnet18, resnet50};
use crate::conv::ways::{Data, OurLayer, Ours};
use crate::kit::kit;
use crate::limits::Peaks;
use crate::report::{Output, Report};
use crate::setting::{Instructions, Setting};

#[derive(clap::Args)]
pub struct Args {
    /// How often each is measured; the least is shown of skew blocks, the median of CirEncode.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Threads of each party, which take turns (0: one per core).
    #[arg(long, default_value_t = 1, value_parser = jaguar_report::terminal::thread_count)]
    pub threads: usize,
    /// The instruction set.
    #[arg(long, value_enum, default_value_t)]
    pub kernel: Instructions,
    /// Only shapes whose name contains this, e.g. `pointwise`; networks are then left out.
    #[arg(long)]
    pub filter: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

impl Args {
    /// Each shape of these networks once, of those that are asked for.
    ///
    /// # Errors
    /// When there is none.
    pub fn shapes(&self, networks: [(&str, Vec<Conv>); 3]) -> Result<Vec<Conv>> {
        let mut shapes: Vec<Conv> = Vec::new();
        for conv in networks.into_iter().flat_map(|(_, convs)| convs) {
            let wanted = self.filter.as_ref().is_none_or(|filter| conv.name().contains(filter));
            if wanted && !shapes.contains(&conv) {
                shapes.push(conv);
            }
        }
        ensure!(!shapes.is_empty(), "no shape's name contains the filter");
        Ok(shapes)
    }
}

/// One layer with one block size.
#[derive(Clone, Serialize)]
pub struct Row {
    pub name: String,
    pub conv: Conv,
    /// b; 1 for the dense layer.
    pub b: usize,
    /// As blocks of which size it runs.
    pub effective: usize,
    pub tiles: usize,
    pub ciphertexts: usize,
    pub responses: usize,
    /// Secrets of a query that it takes.
    pub secrets: usize,
    pub hint_bytes: usize,
    pub upload_bytes: usize,
    pub ms: Ours,
    /// What the planner says of a query, in milliseconds, if the machine was measured.
    pub predicted_ms: Option<f64>,
}

/// One network with blocks of one size, wherever they can be.
#[derive(Clone, Serialize)]
pub struct Whole {
    pub network: &'static str,
    pub b: usize,
    /// Layers with blocks, and all.
    pub blocked: [usize; 2],
    pub responses: usize,
    pub ciphertexts: usize,
    pub secrets: usize,
    pub hint_bytes: usize,
    pub upload_bytes: usize,
    /// Milliseconds of all its layers and of the query's keys, both parties.
    pub query_ms: f64,
    /// What the planner says of its layers.
    pub predicted_ms: Option<f64>,
    /// Of these, with the input.
    pub online_ms: f64,
    /// Milliseconds once per model.
    pub a_half_ms: f64,
}

#[derive(Serialize)]
pub struct Figures {
    pub rows: Vec<Row>,
    pub networks: Vec<Whole>,
}

fn in_blocks(conv: &Conv, b: usize) -> Linear {
    Linear { blocks: (b > 1).then(|| Blocks::skew(b)), ..conv.spec() }
}

/// The block sizes that a convolution can have, 1 first.
fn sizes(conv: &Conv) -> Vec<usize> {
    possible_sizes(&conv.spec(), conv.in_shape()).collect()
}

/// The networks' linear layers, the fully connected one as a convolution of one place.
pub fn networks() -> [(&'static str, Vec<Conv>); 3] {
    let with_last = |mut convs: Vec<Conv>, features: usize| {
        convs.push(Conv::new(1, features, 1000, 1, 1));
        convs
    };
    [
        ("ResNet-18", with_last(resnet18(), 512)),
        ("ResNet-50", with_last(resnet50(), 2048)),
        ("MobileNetV2", with_last(mobilenet_v2(), 1280)),
    ]
}

/// Milliseconds of a query by the planner's figures, both parties, on one thread.
fn predicted(layer: &jaguar::Layer, machine: &Machine) -> Option<f64> {
    let work = layer.work(&machine.linear)?;
    Some(1e3 * [work.offline, work.online, work.online_parallel].as_flattened().iter().sum::<f64>())
}

/// One shape with all its block sizes, by turns.
fn measure(cpu: Cpu, conv: &Conv, repeats: u32, machine: Option<&Machine>) -> Result<Vec<Row>> {
    let ring_dim = Parameters::DEFAULT.ring_dim();
    let (sizes, shape) = (sizes(conv), conv.in_shape());
    let data: Vec<Data> = sizes.iter().map(|&b| Data::of(cpu, &in_blocks(conv, b), shape)).collect();
    let layers = sizes.iter().zip(&data).map(|(&b, data)| {
        OurLayer::new(data, Layout::blocked(ring_dim, &in_blocks(conv, b), shape, Packing::default())?)
    });
    let layers = layers.collect::<Result<Vec<_>>>()?;
    let mut runs = vec![Vec::new(); layers.len()];
    for (layer, &b) in layers.iter().zip(&sizes) {
        // It warms up, and is checked.
        layer.run(true).with_context(|| format!("b = {b}"))?;
    }
    for _ in 0..repeats {
        for (layer, runs) in layers.iter().zip(&mut runs) {
            runs.push(layer.run(false)?);
        }
    }
    let row = |((&b, our), runs): ((&usize, &OurLayer<'_>), &Vec<Ours>)| {
        let (layer, layout) = (our.layer(), our.layer().layout());
        Row {
            name: conv.name(),
            conv: *conv,
            b,
            effective: layout.parts(),
            tiles: layout.tiles().len(),
            ciphertexts: layout.ciphertexts(),
            responses: layout.responses(),
            secrets: layer.secrets(),
            hint_bytes: layer.hint_bytes(),
            upload_bytes: layer.upload_bytes(),
            ms: Ours::least(runs),
            predicted_ms: machine.and_then(|machine| predicted(layer, machine)),
        }
    };
    Ok(sizes.iter().zip(&layers).zip(&runs).map(row).collect())
}

/// The row of a layer with the largest block size up to `b` that it can have.
fn row_of<'a>(rows: &'a [Row], conv: &Conv, b: usize) -> Option<&'a Row> {
    rows.iter().filter(|row| row.conv == *conv && row.b <= b).max_by_key(|row| row.b)
}

fn whole(network: &'static str, convs: &[Conv], b: usize, rows: &[Row]) -> Option<Whole> {
    let layers = convs.iter().map(|conv| row_of(rows, conv, b)).collect::<Option<Vec<&Row>>>()?;
    let count = |of: fn(&Row) -> usize| layers.iter().map(|row| of(row)).sum::<usize>();
    let ms = |of: fn(&Row) -> f64| layers.iter().map(|row| of(row)).sum::<f64>();
    let secrets = layers.iter().map(|row| row.secrets).max().unwrap_or(1);
    let key_ms = ms(|row| row.ms.keys) / layers.len() as f64;
    Some(Whole {
        network,
        b,
        blocked: [layers.iter().filter(|row| row.b > 1).count(), layers.len()],
        responses: count(|row| row.responses),
        ciphertexts: count(|row| row.ciphertexts),
        secrets,
        hint_bytes: count(|row| row.hint_bytes),
        upload_bytes: count(|row| row.upload_bytes) + secrets * Parameters::DEFAULT.ring_dim() * 6,
        query_ms: ms(|row| row.ms.query()) + secrets as f64 * key_ms,
        predicted_ms: layers.iter().map(|row| row.predicted_ms).sum(),
        online_ms: ms(|row| row.ms.online()),
        a_half_ms: ms(|row| row.ms.a_half),
    })
}

pub fn run(args: &Args) -> Result<()> {
    let cpu = args.kernel.cpu()?;
    jaguar_report::terminal::set_threads(args.threads)?;
    let shapes = args.shapes(networks())?;
    let threads = format!("threads a party, taking turns: {}", rayon::current_num_threads());
    let mut setting = Setting::new(cpu, threads, "queues in memory".into(), args.repeats).with_least();
    let peaks = Peaks::measure(cpu)?;
    let machine = store::known_machine(cpu, &kit(), store::cache(None).as_deref());
    let mut rows = Vec::new();
    for conv in &shapes {
        eprintln!("{} ...", conv.name());
        rows.extend(measure(cpu, conv, args.repeats, machine.as_ref()).with_context(|| conv.name())?);
    }
    setting.done();
    let throughout = networks()
        .into_iter()
        .flat_map(|(network, convs)| {
            let of_size = |b: usize| whole(network, &convs, b, &rows);
            std::iter::once(1).chain(BLOCK_SIZES).filter_map(of_size).collect::<Vec<_>>()
        })
        .collect::<Vec<_>>();
    let figures = Figures { rows, networks: throughout };
    let tables = tables::all(&figures);
    let plot = tables::plot(&figures);
    args.output.hand_out(&Report { setting, peaks, tables, figures }, &plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small layers of each kind, each compared with the reference; and a network of them.
    #[test]
    fn every_size_is_right() {
        let convs = [
            Conv::new(14, 16, 16, 3, 1),
            Conv::new(7, 8, 16, 1, 1),
            Conv::depthwise(8, 4, 1),
            Conv::new(9, 3, 8, 3, 2),
        ];
        let mut rows = Vec::new();
        for conv in &convs {
            rows.extend(measure(Cpu::detect(), conv, 1, None).unwrap());
        }
        let found: Vec<usize> = rows.iter().map(|row| row.b).collect();
        assert_eq!(found, [1, 2, 4, 8, 16, 1, 2, 4, 8, 1, 1]);
        let dense = whole("small", &convs, 1, &rows).unwrap();
        let eight = whole("small", &convs, 8, &rows).unwrap();
        assert_eq!((dense.blocked, eight.blocked), ([0, 4], [2, 4]));
        assert_eq!(dense.responses, 16 + 16 + 4 + 8);
        assert_eq!(eight.responses, 2 + 2 + 4 + 8);
        assert!(eight.hint_bytes < dense.hint_bytes);
        assert_eq!(eight.hint_bytes % eight.responses, 0);
        let figures = Figures { rows, networks: vec![dense, eight] };
        for table in tables::all(&figures) {
            assert!(table.rows.iter().all(|row| row.len() == table.header.len()), "{}", table.name);
        }
        assert!(!tables::plot(&figures).rows.is_empty());
    }

    /// ImageNet's hints by block size: the goals that need no clock.
    #[test]
    fn hints_of_whole_networks() {
        let hint = |convs: &[Conv], b: usize| -> f64 {
            let of_layer = |conv: &Conv| {
                let b = sizes(conv).into_iter().filter(|&size| size <= b).max().unwrap();
                let layout =
                    Layout::blocked(2048, &in_blocks(conv, b), conv.in_shape(), Packing::default()).unwrap();
                jaguar::Layer::new(Parameters::DEFAULT, layout, 0, 16, 15, false).unwrap().hint_bytes()
            };
            convs.iter().map(of_layer).sum::<usize>() as f64 / f64::from(1 << 20)
        };
        let [resnet18, resnet50, mobilenet] = networks().map(|(_, convs)| [hint(&convs, 1), hint(&convs, 8)]);
        assert!(resnet18[1] <= 8.0, "{resnet18:?}");
        assert!(resnet50[1] <= 30.0, "{resnet50:?}");
        assert!(mobilenet[1] < mobilenet[0], "{mobilenet:?}");
    }
}
