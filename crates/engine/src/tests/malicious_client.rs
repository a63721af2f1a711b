//! **An attack.** A client that deviates from the semi-honest protocol takes the weights out of a server that follows it.
//!
//! After Lehmkuhl, Mishra, Srinivasan and Popa (MUSE, USENIX Security 2021, ePrint 2021/1040), section 2.2: shares are only
//! additive, so a client that adds d to its own share has added d to the value, and the server cannot see it. The client here
//! runs all of this project's own code but for one thing: it adds numbers of its choice to its shares where they go into a
//! linear layer and where they come out of one ([`Deviating`]). With that it
//!
//! - *silences* a hidden unit: it takes much from its share before the ReLU, which then gives exactly 0;
//! - *opens* a hidden unit: it adds as much before the ReLU and takes it away behind it, and the ReLU has passed the value as
//!   it is, signs included;
//! - *sets* a layer's input: it silences the units before it, and adds what it likes.
//!
//! So it asks any linear layer about any input, and sees as many of the outputs as there are logits, through the layers behind,
//! which it knows by then: from the last layer to the first ([`Attack`]). Every message has the right form and the right length.
//!
//! `docs/attacks.md` has the figures; `cargo test -p jaguar-engine malicious_client -- --nocapture` prints them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use jaguar_linear::backend::{BackendError, BackendParty, ClientKeys, Domain, Layers, Online, Output};
use zeroize::Zeroizing;

use super::*;

/// By linear layer (its node): what the client adds to its share of the layer's input and of its output, in units of the last
/// place.
#[derive(Default)]
struct Lies {
    input: BTreeMap<usize, Vec<i64>>,
    output: BTreeMap<usize, Vec<i64>>,
}

/// Those of the query that runs.
type Current = Arc<Mutex<Lies>>;

/// `x` with what is added, element by element, in `domain`.
fn shifted(x: &[u64], by: Option<&Vec<i64>>, domain: Domain) -> Vec<u64> {
    let modulus = domain.modulus;
    let by = |i: usize| by.map_or(0, |by| by[i] << domain.excess);
    x.iter().enumerate().map(|(i, &x)| modulus.add(modulus.reduce(x), modulus.from_signed(by(i)))).collect()
}

/// A client's part in a session that lies about its shares, and in nothing else.
struct Deviating {
    honest: Box<dyn BackendParty>,
    layers: Arc<dyn Layers>,
    lies: Current,
}

impl BackendParty for Deviating {
    fn send_keys(
        &mut self,
        seed: &[u8; 32],
        missing: bool,
        channel: &mut Channel,
    ) -> Result<(), BackendError> {
        self.honest.send_keys(seed, missing, channel)
    }

    fn take_keys(
        &mut self,
        _: Option<ClientKeys>,
        _: &mut Channel,
    ) -> Result<Option<ClientKeys>, BackendError> {
        unreachable!("a server's part")
    }

    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.honest.setup(channel)
    }

    fn begin_query(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.honest.begin_query(channel)
    }

    fn exchange(&mut self, node: usize, hint: &[u8], channel: &mut Channel) -> Result<(), BackendError> {
        self.honest.exchange(node, hint, channel)
    }

    fn collect(&mut self, node: usize, channel: &mut Channel) -> Result<(), BackendError> {
        self.honest.collect(node, channel)
    }

    fn prepare(
        &mut self,
        node: usize,
        hint: &[u8],
        channel: &mut Channel,
    ) -> Result<Box<dyn Online>, BackendError> {
        let honest = self.honest.prepare(node, hint, channel)?;
        let layer = self.layers.layer(node).expect("a layer of this backend");
        let domains = [layer.input(), layer.output()];
        let lies = self.lies.lock().unwrap();
        let [input, output] = [&lies.input, &lies.output].map(|lies| lies.get(&node).cloned());
        let early = honest.early_output().map(|y| shifted(y, output.as_ref(), domains[1]));
        Ok(Box::new(DeviatingOnline { honest, domains, input, output, early }))
    }
}

struct DeviatingOnline {
    honest: Box<dyn Online>,
    domains: [Domain; 2],
    input: Option<Vec<i64>>,
    output: Option<Vec<i64>>,
    early: Option<Vec<u64>>,
}

impl Online for DeviatingOnline {
    fn early_output(&self) -> Option<&[u64]> {
        self.early.as_deref()
    }

    fn feed(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        self.honest.feed(channel, &shifted(x, self.input.as_ref(), self.domains[0]))
    }

    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        self.honest.feed_all(channel, &shifted(x, self.input.as_ref(), self.domains[0]))
    }

    fn finish(self: Box<Self>, channel: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let Self { honest, domains, input, output, .. } = *self;
        let made = honest.finish(channel, &shifted(x, input.as_ref(), domains[0]))?.into_values();
        Ok(Box::new(Zeroizing::new(shifted(&made, output.as_ref(), domains[1]))))
    }
}

/// What the attacker knows of a linear layer from the public network, and what it has found.
struct Found {
    node: usize,
    spec: Linear,
    shapes: [Shape; 2],
    /// `[C_out, C_in, K_h, K_w]`, exponents included.
    weights: Vec<Option<i64>>,
}

impl Found {
    /// The weights that input element `at` meets: (output element, weight).
    fn taps(&self, at: usize) -> Vec<(usize, usize)> {
        let ([c, h, w], [out, oh, ow], [kh, kw]) = (self.shapes[0], self.shapes[1], self.spec.kernel);
        let (channel, y, x) = (at / (h * w), at / w % h, at % w);
        let place = |v: usize, tap: usize, axis: usize, size: usize| {
            let shifted = (v + self.spec.pads[axis]).checked_sub(tap)?;
            let [stride, _] = self.spec.stride;
            (shifted.is_multiple_of(stride) && shifted / stride < size).then_some(shifted / stride)
        };
        let mut taps = Vec::new();
        for (u, v) in (0..kh).flat_map(|u| (0..kw).map(move |v| (u, v))) {
            if let (Some(oy), Some(ox)) = (place(y, u, 0, oh), place(x, v, 1, ow)) {
                let of = |o: usize| ((o * oh + oy) * ow + ox, ((o * c + channel) * kh + u) * kw + v);
                taps.extend((0..out).map(of));
            }
        }
        taps
    }

    /// `[outputs][inputs]`, a unit in for a unit out, once all weights are known.
    fn matrix(&self) -> Vec<Vec<f64>> {
        let [inputs, outputs] = self.shapes.map(|shape| shape.iter().product());
        let mut matrix = vec![vec![0.0; inputs]; outputs];
        let taps =
            (0..inputs).flat_map(|at| self.taps(at).into_iter().map(move |(to, weight)| (at, to, weight)));
        taps.for_each(|(at, to, weight)| {
            let weight = self.weights[weight].expect("found before") as f64;
            matrix[to][at] = weight / f64::from(1u32 << self.spec.shift);
        });
        matrix
    }
}

/// The attack on a chain of linear layers with ReLUs between.
struct Attack {
    ready: Option<Ready>,
    lies: Current,
    image: Vec<i64>,
    layers: Vec<Found>,
    activation_bits: u32,
    guard_bits: u32,
    /// The standard deviation of the noise of what is opened, in units of the last place.
    opened: f64,
    weight_bits: u32,
    queries: usize,
    /// The server's limit.
    budget: usize,
}

/// The server takes no more queries.
struct Refused;

impl Attack {
    fn new(ready: Ready, budget: usize) -> Self {
        let lies = Current::default();
        let network = ready.network();
        let linear = |(node, n): (usize, &Node)| {
            let spec = n.op.linear()?.clone();
            let shapes = [network.nodes[n.inputs[0]].shape, n.shape];
            let count = spec.weights_len(shapes[0][0]).unwrap();
            Some(Found { node, spec, shapes, weights: vec![None; count] })
        };
        let layers = network.nodes.iter().enumerate().filter_map(linear).collect();
        let image = vec![0; network.nodes[0].shape.iter().product()];
        let Network { activation_bits, guard_bits, weight_bits, .. } = *network;
        let opened = network.noise_deviation();
        let of_party = Arc::clone(&lies);
        let ready = ready.deviate(move |honest, layers| {
            Box::new(Deviating { honest, layers: Arc::clone(layers), lies: Arc::clone(&of_party) })
        });
        let ready = Some(ready);
        Self {
            ready,
            lies,
            image,
            layers,
            activation_bits,
            guard_bits,
            opened,
            weight_bits,
            queries: 0,
            budget,
        }
    }

    fn query(&mut self, lies: Lies) -> Result<Vec<i64>, Refused> {
        if self.queries == self.budget {
            return Err(Refused);
        }
        self.queries += 1;
        *self.lies.lock().unwrap() = lies;
        let ready = self.ready.take().unwrap();
        let prepared = ready.prepare_query(&mut NoProgress).unwrap();
        let (prediction, _, ready) = prepared.run(&self.image, &mut NoProgress).unwrap();
        self.ready = Some(ready);
        match prediction {
            Prediction::Logits(logits) => Ok(logits),
            Prediction::Label(_) => unreachable!("this server reveals logits"),
        }
    }

    /// A ReLU gives exactly what it takes, this being added before, and taken away behind; or 0, this being taken away before.
    fn much(&self) -> i64 {
        1 << (self.activation_bits - 2)
    }

    /// Asks layer `k` about `value` at input `at` and zero elsewhere. Of its outputs those in `open` pass, less `less`; the others
    /// become zero (the last layer's are all open). The logits.
    fn ask(
        &mut self,
        k: usize,
        (at, value): (usize, i64),
        open: &[usize],
        less: &BTreeMap<usize, i64>,
    ) -> Result<Vec<i64>, Refused> {
        let much = self.much();
        let (last, mut lies) = (self.layers.len() - 1, Lies::default());
        let count = |found: &Found, side: usize| found.shapes[side].iter().product::<usize>();
        // The layer before is silenced, and this layer's input set.
        if let Some(before) = k.checked_sub(1) {
            let before = &self.layers[before];
            lies.output.insert(before.node, vec![-much; count(before, 1)]);
        }
        let mut input = vec![0; count(&self.layers[k], 0)];
        input[at] = value;
        lies.input.insert(self.layers[k].node, input);
        // What is asked for passes the ReLU behind this layer, and everything those behind the next ones.
        let pass = if k < last { much } else { 0 };
        let mut output = vec![-pass; count(&self.layers[k], 1)];
        let mut next = vec![0; output.len()];
        for &unit in open {
            output[unit] = pass;
            next[unit] = -pass;
        }
        less.iter().for_each(|(&unit, less)| output[unit] -= less);
        lies.output.insert(self.layers[k].node, output);
        if k < last {
            lies.input.insert(self.layers[k + 1].node, next);
            for (layer, next) in (k + 1..last).zip(k + 2..) {
                let (layer, next) = (&self.layers[layer], &self.layers[next]);
                lies.output.insert(layer.node, vec![much; count(layer, 1)]);
                lies.input.insert(next.node, vec![-much; count(layer, 1)]);
            }
        }
        self.query(lies)
    }

    /// How the outputs of each layer behind `k` follow from those of layer `k`, itself first, `[outputs there][outputs of k]`.
    fn behind(&self, k: usize) -> Vec<Vec<Vec<f64>>> {
        let mut stages = vec![identity(self.layers[k].shapes[1].iter().product())];
        for layer in &self.layers[k + 1..] {
            stages.push(product(&layer.matrix(), stages.last().unwrap()));
        }
        stages
    }

    /// What the difference of two logits may be off, in units of the last place, when layer `k` and those behind it round and the server
    /// adds its noise: six standard deviations.
    fn noise(&self, k: usize) -> f64 {
        let mut to_logits = identity(self.layers.last().unwrap().shapes[1].iter().product());
        let mut variance = 1.0;
        for layer in self.layers[k + 1..].iter().rev() {
            to_logits = product(&to_logits, &layer.matrix());
            variance += to_logits.iter().map(|row| norm(row).powi(2)).fold(0.0, f64::max);
        }
        // Rounding to a neighbour by a coin, and encryption's noise, which may be felt in the guard bits.
        let single = f64::max(0.5, f64::from(1 << self.guard_bits) / 64.0);
        6.0 * (2.0 * (variance * single.powi(2) + self.opened.powi(2))).sqrt()
    }

    /// Finds all weights, from the last layer to the first.
    fn run(&mut self) -> Result<(), Refused> {
        (0..self.layers.len()).rev().try_for_each(|k| self.layer(k))
    }

    fn layer(&mut self, k: usize) -> Result<(), Refused> {
        let (stages, noise) = (self.behind(k), self.noise(k));
        let inputs: usize = self.layers[k].shapes[0].iter().product();
        let unknown = |attack: &Self, at: usize| -> Vec<(usize, usize)> {
            let found = &attack.layers[k];
            found.taps(at).into_iter().filter(|&(_, weight)| found.weights[weight].is_none()).collect()
        };
        // What an input of zero gives, by the units that are open.
        let mut zeros: BTreeMap<Vec<usize>, Vec<f64>> = BTreeMap::new();
        while let Some(at) =
            (0..inputs).max_by_key(|&at| unknown(self, at).len()).filter(|&at| !unknown(self, at).is_empty())
        {
            let mut groups = Vec::new();
            let mut rest = unknown(self, at);
            while !rest.is_empty() {
                let group = self.open(&stages, &rest, noise);
                rest.retain(|(unit, _)| !group.open.contains(unit));
                groups.push(group);
            }
            for Opened { open, inverse, .. } in &groups {
                if !zeros.contains_key(open) {
                    let logits = self.ask(k, (at, 0), open, &BTreeMap::new())?;
                    zeros.insert(open.clone(), apply(inverse, &logits));
                }
            }
            // By output: what its weight is taken for. Outputs whose weight is known answer as well.
            let taps = self.layers[k].taps(at);
            let known =
                |&(unit, weight): &(usize, usize)| (unit, self.layers[k].weights[weight].unwrap_or(0));
            let mut guess: BTreeMap<usize, i64> = taps.iter().map(known).collect();
            // Rounds, each with a larger input, until what is left is below half a unit. What was found is taken away before the
            // ReLU, of units that are silenced too.
            let mut left = self.largest_weight();
            while left >= 0.5 {
                let mut next = 0.0;
                for Opened { open, inverse, room, amplified } in &groups {
                    let bits = (room / left).log2().floor() as i32;
                    let less = guess.iter().map(|(&unit, &guess)| (unit, guess << bits)).collect();
                    let value = 1 << (self.layers[k].spec.shift as i32 + bits);
                    let logits = self.ask(k, (at, value), open, &less)?;
                    for (unit, (value, zero)) in
                        open.iter().zip(apply(inverse, &logits).iter().zip(&zeros[open]))
                    {
                        *guess.get_mut(unit).unwrap() += ((value - zero) / 2f64.powi(bits)).round() as i64;
                    }
                    next = f64::max(next, noise * amplified / 2f64.powi(bits));
                }
                left = next;
            }
            for (unit, weight) in taps {
                self.layers[k].weights[weight] = Some(guess[&unit]);
            }
        }
        Ok(())
    }

    fn largest_weight(&self) -> f64 {
        2f64.powi(self.weight_bits as i32 - 1)
    }

    /// Which of these outputs of a layer are asked for together: as many as the logits tell apart well enough for the first round to
    /// leave less than a quarter of what was open.
    fn open(&self, stages: &[Vec<Vec<f64>>], taps: &[(usize, usize)], noise: f64) -> Opened {
        let behind = stages.last().unwrap();
        let units: Vec<usize> = taps.iter().map(|&(unit, _)| unit).collect();
        let mut open = independent(behind, &units);
        loop {
            let inverse = pseudo_inverse(behind, &open);
            let amplified = inverse.iter().map(|row| norm(row)).fold(0.0, f64::max);
            // No value behind wraps. Logits may take all of their bits, other values must stay below what opens a ReLU.
            let sum = |row: &Vec<f64>| open.iter().map(|&unit| row[unit].abs()).sum::<f64>();
            let growth = |stage: &Vec<Vec<f64>>| stage.iter().map(sum).fold(0.0, f64::max);
            let hidden = stages[..stages.len() - 1].iter().map(growth).fold(0.0, f64::max);
            let growth = f64::max(hidden, growth(behind) / 2.0);
            let room = 0.75 * self.much() as f64 / growth;
            let bits = (room / self.largest_weight()).log2().floor();
            if bits >= 0.0 && noise * amplified / bits.exp2() < self.largest_weight() / 4.0 || open.len() == 1
            {
                return Opened { open, inverse, room, amplified };
            }
            open.truncate(open.len() / 2);
        }
    }
}

/// Outputs that are asked for together, how they follow from the logits, the largest value that each may take, and by how much noise
/// in the logits is larger in them.
struct Opened {
    open: Vec<usize>,
    inverse: Vec<Vec<f64>>,
    room: f64,
    amplified: f64,
}

fn identity(n: usize) -> Vec<Vec<f64>> {
    (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect()
}

fn product(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let row = |row: &Vec<f64>| -> Vec<f64> {
        (0..b[0].len()).map(|j| row.iter().zip(b).map(|(a, b)| a * b[j]).sum()).collect()
    };
    a.iter().map(row).collect()
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// Of these columns of `matrix` some that are far from depending on each other, the one that adds most first, as long as one does.
fn independent(matrix: &[Vec<f64>], columns: &[usize]) -> Vec<usize> {
    let mut rest: Vec<(usize, Vec<f64>)> =
        columns.iter().map(|&c| (c, matrix.iter().map(|row| row[c]).collect())).collect();
    let mut chosen = Vec::new();
    let mut first = None;
    while chosen.len() < matrix.len() && !rest.is_empty() {
        let best = (0..rest.len()).max_by(|&a, &b| norm(&rest[a].1).total_cmp(&norm(&rest[b].1))).unwrap();
        let (column, direction) = rest.swap_remove(best);
        let size = norm(&direction);
        if size < *first.get_or_insert(size) / 8.0 {
            break;
        }
        for (_, v) in &mut rest {
            let along = v.iter().zip(&direction).map(|(a, b)| a * b).sum::<f64>() / (size * size);
            v.iter_mut().zip(&direction).for_each(|(a, b)| *a -= along * b);
        }
        chosen.push(column);
    }
    chosen
}

/// Least squares: what these columns of `matrix` were multiplied by, `[columns][rows]`.
fn pseudo_inverse(matrix: &[Vec<f64>], columns: &[usize]) -> Vec<Vec<f64>> {
    let (n, rows) = (columns.len(), matrix.len());
    // (AᵀA | Aᵀ), made (1 | inverse) by Gauss and Jordan.
    let mut lines: Vec<Vec<f64>> = columns
        .iter()
        .map(|&i| {
            let gram = columns.iter().map(|&j| matrix.iter().map(|row| row[i] * row[j]).sum());
            gram.chain(matrix.iter().map(|row| row[i])).collect()
        })
        .collect();
    for pivot in 0..n {
        let best =
            (pivot..n).max_by(|&a, &b| lines[a][pivot].abs().total_cmp(&lines[b][pivot].abs())).unwrap();
        lines.swap(pivot, best);
        let scale = lines[pivot][pivot];
        lines[pivot].iter_mut().for_each(|v| *v /= scale);
        let of_pivot = lines[pivot].clone();
        for (_, line) in lines.iter_mut().enumerate().filter(|&(i, _)| i != pivot) {
            let factor = line[pivot];
            line.iter_mut().zip(&of_pivot).for_each(|(v, p)| *v -= factor * p);
        }
    }
    lines.into_iter().map(|line| line[n..n + rows].to_vec()).collect()
}

fn apply(matrix: &[Vec<f64>], x: &[i64]) -> Vec<f64> {
    matrix.iter().map(|row| row.iter().zip(x).map(|(a, &x)| a * x as f64).sum()).collect()
}

/// Linear layers of so many outputs, ReLUs between.
fn dense(widths: &[usize]) -> Builder {
    let mut b = Builder::new([widths[0], 1, 1]);
    let mut value = 0;
    for (i, &width) in widths[1..].iter().enumerate() {
        value = b.conv(value, width, 1, 1, 0, 1);
        if i + 2 < widths.len() {
            value = b.add(Op::new(Relu { ignored: 0 }), &[value], [width, 1, 1]);
        }
    }
    b
}

/// Two convolutions and a classifier over all that is left.
fn convolutional() -> Builder {
    let mut b = Builder::new([2, 8, 8]);
    let a = b.conv(0, 4, 3, 2, 1, 1);
    let a = b.add(Op::new(Relu { ignored: 0 }), &[a], [4, 4, 4]);
    let c = b.conv(a, 6, 3, 1, 0, 1);
    let c = b.add(Op::new(Relu { ignored: 0 }), &[c], [6, 2, 2]);
    b.conv(c, 10, 2, 1, 0, 1);
    b
}

/// The attack against a server with this model: weights that it found right, of how many, and its queries.
fn attack(network: Builder, backend: BackendId, guard_bits: u32, budget: usize) -> (usize, usize, usize) {
    let Builder { network, weights, .. } = network;
    let scales = vec![1.0; network.nodes.len()];
    let bundle = Bundle::with_hiding(Model { network, weights, scales, leverage: None }, guard_bits).unwrap();
    // The truth, with exponents.
    let truth: Vec<Vec<i64>> = bundle
        .model
        .weights
        .iter()
        .flatten()
        .map(|of| {
            let row = of.weights.len() / of.exponents.len();
            of.weights.iter().enumerate().map(|(i, &w)| i64::from(w) << of.exponents[i / row]).collect()
        })
        .collect();
    let choices = Choices::standard(&bundle.model.network, backend);
    let service = Service::new(bundle, choices, Reveal::Logits).unwrap();
    let (attack, served) = session(&service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(HintPlace::Memory).unwrap();
        let mut attack = Attack::new(ready, budget);
        let _ = attack.run();
        attack.ready.take().unwrap().leave().unwrap();
        attack
    });
    served.expect("the server noticed nothing");
    let found = attack.layers.iter().zip(&truth);
    let right = found.flat_map(|(f, t)| f.weights.iter().zip(t)).filter(|(f, t)| **f == Some(**t)).count();
    let all = truth.iter().map(Vec::len).sum();
    println!(
        "{} {backend:?} g = {guard_bits}: {right} of {all} weights in {} queries",
        truth.len(),
        attack.queries
    );
    (right, all, attack.queries)
}

/// Every weight of every layer, exactly, in so many queries. Guard bits do not matter. (The counts follow from the weights: no chance is
/// in them.)
#[test]
fn a_client_that_shifts_its_shares_takes_all_weights() {
    let networks = || [dense(&[16, 10]), dense(&[12, 24, 10]), dense(&[8, 16, 12, 10]), convolutional()];
    let default = jaguar_graph::network::DEFAULT_GUARD_BITS;
    for (guard_bits, counts) in [(0, [33, 124, 125, 141]), (default, [33, 160, 173, 187])] {
        let taken = networks().map(|network| {
            let (right, all, queries) = attack(network, Kit::JAGUAR, guard_bits, usize::MAX);
            assert_eq!(right, all);
            queries
        });
        assert_eq!(taken, counts);
    }
}

/// A limit on queries is a limit on what is taken: as many weights as there are logits for each query, and the last layers first.
#[test]
fn a_limit_of_queries_limits_what_is_taken() {
    let mut before = 0;
    for budget in [0, 5, 10, 20, 40] {
        let (right, all, queries) = attack(dense(&[8, 16, 12, 10]), Kit::JAGUAR, 8, budget);
        assert!(queries == budget && right <= 10 * budget && right < all);
        assert!(right > before || budget == 0);
        before = right;
    }
}

/// It is additive sharing that the attack uses, and no backend's own: others give way as well.
#[test]
fn other_backends_give_way_as_well() {
    for backend in [Kit::CHEETAH, backend("fregata-hme"), backend("hyena")] {
        let (right, all, _) = attack(dense(&[4, 6, 10]), backend, 8, usize::MAX);
        assert_eq!(right, all, "{backend:?}");
    }
}
