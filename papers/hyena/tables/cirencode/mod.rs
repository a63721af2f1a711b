//! `jaguar-bench cirencode`: PrivCirNet's layers in SIMD slots, by block size, beside the same layers dense: the baseline
//! that the paper compares with (Bolt for matrix products, Neujeans for convolutions, both with baby and giant steps).
//!
//! | table | what is measured |
//! |---|---|
//! | `layers` | every shape of ResNet-18 and MobileNetV2 for inputs of 32×32, and of a vision transformer, by block size |
//! | `networks` | the linear layers of the three with one block size throughout, and with the sizes of trained networks: sums |
//! | `table-4`, `table-5` | the paper's counts for what it compares with, beside ours |
//!
//! Single layers, both parties in one process over queues in memory, random weights of 12 bits; every result is compared with
//! the plaintext reference. The block sizes of a layer take turns. A layer is planned alone: its ring and its keys are its own.

mod table4;
mod table5;
mod tables;
mod trained;

use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use jaguar_graph::network::{BLOCK_SIZES, BlockKind, Blocks, Linear, possible_sizes};
use jaguar_hyena::{BlockPacking, Form, Places, Wanted, search};
use jaguar_linear::backend::{BackendParty, Layers, Request};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, memory_pair};
use serde::Serialize;

pub use crate::circulant::Args;
use crate::conv::shapes::{Conv, mobilenet_v2, resnet18};
use crate::conv::ways::Data;
use crate::kit::backend;
use crate::limits::Peaks;
use crate::report::Report;
use crate::setting::Setting;
use crate::statistics::{median, timed_busy};

/// n and weights' bits, as in `bench conv`.
const ACTIVATION_BITS: u32 = 16;
const WEIGHT_BITS: u32 = 12;

/// What a server may keep of weights as polynomials.
const WEIGHT_MEMORY: u64 = 4 << 30;

/// One layer with one block size.
#[derive(Clone, Serialize)]
pub struct Row {
    pub name: String,
    pub conv: Conv,
    /// b; 1 for the dense layer.
    pub b: usize,
    pub products: usize,
    pub rotations: usize,
    pub ciphertexts: usize,
    pub responses: usize,
    pub key_bytes: usize,
    /// Of weights as polynomials, in the server's memory.
    pub weight_bytes: u64,
    pub upload_bytes: usize,
    pub download_bytes: usize,
    /// Milliseconds, both parties: once per model, before the input, and with it.
    pub model_ms: f64,
    pub offline_ms: f64,
    pub online_ms: f64,
}

/// Which block sizes a network's layers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Sizes {
    /// The same, wherever it can be; 1 is dense.
    Everywhere(usize),
    /// Those of a network that was trained with this seed (`papers/circulant/results`).
    Trained { run: Trained, seed: u64 },
}

/// Which of the trained networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Trained {
    /// Blocks of 8 in all layers that gain by them, the last one dense.
    Uniform,
    /// Sizes that were searched to take no more time than those.
    Searched,
    /// Blocks of 2 in all layers but the first and the last: a vision transformer alone.
    Twos,
}

/// One network.
#[derive(Clone, Serialize)]
pub struct Whole {
    pub network: &'static str,
    pub sizes: Sizes,
    /// Layers with blocks, and all.
    pub blocked: [usize; 2],
    pub products: usize,
    pub rotations: usize,
    pub ciphertexts: usize,
    pub weight_bytes: u64,
    pub online_ms: f64,
}

#[derive(Serialize)]
pub struct Figures {
    pub rows: Vec<Row>,
    pub networks: Vec<Whole>,
}

fn in_blocks(conv: &Conv, b: usize) -> Linear {
    let blocks = (b > 1).then_some(Blocks { size: b, kind: BlockKind::Circulant });
    Linear { blocks, ..conv.spec() }
}

/// ImageNet's layers for inputs of 32×32: maps are as many times smaller, and those of less than 4×4 have that size.
fn small(convs: Vec<Conv>, from: usize) -> Vec<Conv> {
    let size = |size: usize| (size * 32 / from).max(4);
    convs.into_iter().map(|conv| Conv { size: size(conv.size), ..conv }).collect()
}

/// The networks' linear layers; matrix products as convolutions of one place.
fn networks() -> [(&'static str, Vec<Conv>); 3] {
    // A first layer of 3×3 without a stride, and no pooling behind it: maps begin with 32×32 where ImageNet's have 56×56.
    let mut resnet = small(resnet18().split_off(1), 56);
    resnet.insert(0, Conv::new(32, 3, 64, 3, 1));
    resnet.push(Conv::new(1, 512, 100, 1, 1));
    // The same, of which the first two strides are left out.
    let mut mobile = small(mobilenet_v2().split_off(1), 56);
    for conv in mobile.iter_mut().filter(|conv| conv.size > 32) {
        (conv.size, conv.stride) = (32, 1);
    }
    mobile.insert(0, Conv::new(32, 3, 32, 3, 1));
    mobile.push(Conv::new(1, 1280, 100, 1, 1));
    // 256 tokens, nine blocks with queries, keys and values, the projection, and two products.
    let block = [(192, 576), (192, 192), (192, 768), (768, 192)].map(|(i, o)| Conv::new(16, i, o, 1, 1));
    [("ResNet-18", resnet), ("MobileNetV2", mobile), ("ViT", block.repeat(9))]
}

/// One layer, planned, with its model and both parties' keys.
struct Ready {
    layers: Arc<dyn Layers>,
    packing: BlockPacking,
    /// Bytes of a plaintext in memory.
    plaintext_bytes: u64,
    model_ms: f64,
    client: (Box<dyn BackendParty>, Channel),
    server: (Box<dyn BackendParty>, Channel),
    shares: [Vec<u64>; 2],
}

/// Where the layer stands in the plan of itself alone.
const NODE: usize = 0;

impl Ready {
    fn new(cpu: Cpu, spec: &Linear, conv: &Conv, data: &Data) -> Result<Self> {
        let backend = backend(Form::Blocks.name()).backend();
        let in_shape = conv.in_shape();
        let wanted = Wanted {
            form: Form::Blocks,
            spec,
            in_shape,
            activation_bits: ACTIVATION_BITS,
            weight_bits: WEIGHT_BITS,
            weight_memory: WEIGHT_MEMORY,
        };
        let found = search(&[wanted]).map_err(|(_, why)| anyhow!(why))?;
        let Places::Blocks(packing) = found.layers[0].packing.clone() else {
            return Err(anyhow!("a layer without blocks"));
        };
        let ring = found.ring;
        let request = Request {
            node: NODE,
            backend: backend.name(),
            spec,
            in_shape,
            activation_bits: ACTIVATION_BITS,
            guard_bits: 0,
            weight_bits: WEIGHT_BITS,
            opened: false,
            product_bits: 0,
            packing: Default::default(),
            images: 1,
            ring: Default::default(),
            weight_memory: WEIGHT_MEMORY,
        };
        let layers = backend.plan(&[request]).map_err(|(_, why)| why)?;
        let weights = [Some(data.weights.clone())];
        let (model, model_ms) =
            timed_busy(|| Arc::clone(&layers).model(&cpu.into(), [0; 32], &weights, WEIGHT_BITS));
        let modulus = layers.layer(NODE).context("its layer")?.input().modulus;
        let mut prg = Prg::from_os();
        let client: Vec<u64> = data.x.iter().map(|_| modulus.reduce(prg.next_u64())).collect();
        let rest = |(&x, &share): (&i64, &u64)| modulus.sub(modulus.from_signed(x), share);
        let server = data.x.iter().zip(&client).map(rest).collect();
        let (to_server, to_client) = memory_pair();
        let mut ready = Self {
            client: (Arc::clone(&layers).client(cpu, [0; 32]), to_server),
            server: (model.party(&[0; 32]), to_client),
            layers,
            packing,
            plaintext_bytes: (8 * ring.params.ring_dim() * ring.params.primes().len()) as u64,
            model_ms,
            shares: [client, server],
        };
        let Self { client, server, .. } = &mut ready;
        thread::scope(|scope| -> Result<()> {
            let taken = scope.spawn(|| server.0.take_keys(None, &mut server.1).map(drop));
            client.0.send_keys(&[1; 32], true, &mut client.1)?;
            Ok(taken.join().expect("the server's thread")?)
        })?;
        Ok(ready)
    }

    /// A query: milliseconds offline and online, and both shares of the output. Queues hold whatever is sent, so one party
    /// computes at a time.
    fn run(&mut self) -> Result<([f64; 2], [Vec<u64>; 2])> {
        let Self { client: (client, up), server: (server, down), shares: [x_client, x_server], .. } = self;
        let (prepared, offline) = timed_busy(|| -> Result<_> {
            Ok((client.prepare(NODE, &[], up)?, server.prepare(NODE, &[], down)?))
        });
        let (mut ours, mut theirs) = prepared?;
        let (outputs, online) = timed_busy(|| -> Result<_> {
            ours.feed_all(up, x_client)?;
            up.flush()?;
            theirs.feed_all(down, x_server)?;
            let theirs = theirs.finish(down, x_server)?.into_values();
            down.flush()?;
            Ok([ours.finish(up, x_client)?.into_values(), theirs])
        });
        Ok(([offline, online], outputs?))
    }

    /// Compares a query's result with the reference.
    fn check(&mut self, spec: &Linear, data: &Data) -> Result<()> {
        let (_, [client, server]) = self.run()?;
        let layer = self.layers.layer(NODE).context("its layer")?;
        let output = layer.output().modulus;
        for (i, (&exact, (&c, &s))) in data.exact.iter().zip(client.iter().zip(&server)).enumerate() {
            let want = exact as f64 / 2f64.powi(spec.shift as i32);
            // (What does not fit n bits wraps around.)
            let (off, all) = (output.open(c, s) as f64 - want, output.value() as f64);
            let off = (off - all * (off / all).round()).abs();
            ensure!(off <= layer.rounding_ulps(), "output {i} is off by {off}");
        }
        Ok(())
    }
}

/// One shape with all its block sizes, by turns.
fn measure(cpu: Cpu, conv: &Conv, repeats: u32) -> Result<Vec<Row>> {
    let sizes: Vec<usize> = possible_sizes(&conv.spec(), conv.in_shape()).collect();
    let mut layers = Vec::new();
    for &b in &sizes {
        let spec = in_blocks(conv, b);
        let data = Data::of(cpu, &spec, conv.in_shape());
        let mut ready = Ready::new(cpu, &spec, conv, &data).with_context(|| format!("b = {b}"))?;
        // It warms up, and is checked.
        ready.check(&spec, &data).with_context(|| format!("b = {b}"))?;
        layers.push(ready);
    }
    let mut runs = vec![Vec::new(); layers.len()];
    for _ in 0..repeats {
        for (layer, runs) in layers.iter_mut().zip(&mut runs) {
            runs.push(layer.run()?.0);
        }
    }
    let row = |((&b, ready), runs): ((&usize, &Ready), &Vec<[f64; 2]>)| {
        let (counts, layer) = (ready.packing.counts(), ready.layers.layer(NODE).context("its layer")?);
        let (up, down) = layer.traffic().online;
        let [offline_ms, online_ms] = [0, 1].map(|i| median(runs.iter().map(|run| run[i])));
        Ok(Row {
            name: conv.name(),
            conv: *conv,
            b,
            products: counts.products,
            rotations: counts.rotations,
            ciphertexts: ready.packing.ciphertexts(),
            responses: ready.packing.responses(),
            key_bytes: ready.layers.client_keys().sent,
            weight_bytes: ready.packing.work().products as u64 * ready.plaintext_bytes,
            upload_bytes: up,
            download_bytes: down,
            model_ms: ready.model_ms,
            offline_ms,
            online_ms,
        })
    };
    sizes.iter().zip(&layers).zip(&runs).map(row).collect()
}

/// The row of a layer with the largest block size up to `b` that it can have.
fn row_of<'a>(rows: &'a [Row], conv: &Conv, b: usize) -> Option<&'a Row> {
    rows.iter().filter(|row| row.conv == *conv && row.b <= b).max_by_key(|row| row.b)
}

/// A network with blocks of `b[i]` in layer i. None where a layer was not measured.
fn whole(network: &'static str, convs: &[Conv], sizes: Sizes, b: &[usize], rows: &[Row]) -> Option<Whole> {
    assert_eq!(convs.len(), b.len(), "a size for each layer of {network}");
    let layers =
        convs.iter().zip(b).map(|(conv, &b)| row_of(rows, conv, b)).collect::<Option<Vec<&Row>>>()?;
    let count = |of: fn(&Row) -> usize| layers.iter().map(|row| of(row)).sum::<usize>();
    Some(Whole {
        network,
        sizes,
        blocked: [layers.iter().filter(|row| row.b > 1).count(), layers.len()],
        products: count(|row| row.products),
        rotations: count(|row| row.rotations),
        ciphertexts: count(|row| row.ciphertexts + row.responses),
        weight_bytes: layers.iter().map(|row| row.weight_bytes).sum(),
        online_ms: layers.iter().map(|row| row.online_ms).sum(),
    })
}

pub fn run(args: &Args) -> Result<()> {
    let cpu = args.kernel.cpu()?;
    jaguar_report::terminal::set_threads(args.threads)?;
    let shapes = args.shapes(networks())?;
    let threads = format!("threads a party, taking turns: {}", rayon::current_num_threads());
    let mut setting = Setting::new(cpu, threads, "queues in memory".into(), args.repeats);
    let peaks = Peaks::measure(cpu)?;
    let mut rows = Vec::new();
    for conv in &shapes {
        eprintln!("{} ...", conv.name());
        rows.extend(measure(cpu, conv, args.repeats).with_context(|| conv.name())?);
    }
    setting.done();
    let wholes = networks().into_iter().flat_map(|(network, convs)| {
        let uniform =
            std::iter::once(1).chain(BLOCK_SIZES).map(|b| (Sizes::Everywhere(b), vec![b; convs.len()]));
        let all = uniform.chain(trained::all_sizes(network, &convs));
        all.filter_map(|(sizes, b)| whole(network, &convs, sizes, &b, &rows)).collect::<Vec<_>>()
    });
    let figures = Figures { networks: wholes.collect(), rows };
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
        let convs = [Conv::new(6, 16, 16, 3, 1), Conv::new(1, 8, 16, 1, 1), Conv::depthwise(6, 4, 1)];
        let mut rows = Vec::new();
        for conv in &convs {
            rows.extend(measure(Cpu::detect(), conv, 1).unwrap());
        }
        let found: Vec<usize> = rows.iter().map(|row| row.b).collect();
        assert_eq!(found, [1, 2, 4, 8, 16, 1, 2, 4, 8, 1]);
        let [dense, eight] =
            [1, 8].map(|b| whole("small", &convs, Sizes::Everywhere(b), &[b; 3], &rows).unwrap());
        assert_eq!((dense.blocked, eight.blocked), ([0, 3], [2, 3]));
        assert!(eight.products < dense.products && eight.weight_bytes < dense.weight_bytes);
        let figures = Figures { rows, networks: vec![dense, eight] };
        for table in tables::all(&figures) {
            assert!(table.rows.iter().all(|row| row.len() == table.header.len()), "{}", table.name);
        }
        assert!(!tables::plot(&figures).rows.is_empty());
    }

    #[test]
    fn the_networks_are_those_for_small_inputs() {
        let [resnet, mobile, vit] = networks().map(|(_, convs)| convs);
        assert_eq!((resnet.len(), mobile.len(), vit.len()), (21, 53, 36));
        assert_eq!(resnet[1], Conv::new(32, 64, 64, 3, 1));
        assert_eq!(resnet[19], Conv::new(4, 512, 512, 3, 1));
        assert_eq!(mobile[51], Conv::new(4, 320, 1280, 1, 1));
        // Of the depthwise layers three have strides, not five: 32, 16, 8, 4.
        assert_eq!(mobile.iter().filter(|conv| conv.stride == 2).count(), 3);
        assert_eq!(vit[0], Conv::new(16, 192, 576, 1, 1));
    }
}
