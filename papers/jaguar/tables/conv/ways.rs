//! One convolution in three ways, each checked against the reference before it is timed.

use anyhow::{Result, ensure};
use jaguar_graph::network::{Bias, Linear, Shape, Weights};
use jaguar_graph::reference::linear_exact;
use jaguar_linear::jaguar;
use jaguar_linear::layout::Layout;
use jaguar_linear::published_insecure::{
    Export, InsecurePublishedLayer, InsecurePublishedServer, insecure_published_parameters,
};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::power_of_two::{Parameters, PublicSeed, QuerySecret, Ring, ZeroKey};
use jaguar_ring::prg::Prg;
use jaguar_ring::product::WideNtt;
use jaguar_wire::memory_pair;
use serde::Serialize;

use super::shapes::Conv;
use super::{ACTIVATION_BITS, CHEETAH_BITS, SHIFT, WEIGHT_BITS};
use crate::statistics::{median, medians, timed};

/// ℓ of the published form: n + f, and a bit for its floor.
const PUBLISHED_BITS: u32 = 29;
/// Inputs in the reference are this wide, so that none wraps around.
const INPUT_BITS: u32 = 12;

/// Milliseconds: medians.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Ours {
    /// Once per model, and once per client.
    pub a_half: f64,
    pub hint: f64,
    /// Both parties' work for a secret of a query; all layers share these.
    pub keys: f64,
    /// Once per query, before the input is known.
    pub prepare_server: f64,
    pub prepare_client: f64,
    pub online_server: f64,
    pub online_client: f64,
}

impl Ours {
    /// The median of each figure.
    pub fn median(runs: &[Self]) -> Self {
        Self::of(medians(runs, Self::FIGURES))
    }

    /// The least of each figure: what it takes undisturbed. On a machine that does other things as well, a figure of milliseconds is often
    /// interrupted and one of microseconds seldom, so that medians would favour whatever is short.
    pub fn least(runs: &[Self]) -> Self {
        Self::of(Self::FIGURES.map(|figure| runs.iter().map(figure).fold(f64::INFINITY, f64::min)))
    }

    const FIGURES: [fn(&Self) -> f64; 7] = [
        |r| r.a_half,
        |r| r.hint,
        |r| r.keys,
        |r| r.prepare_server,
        |r| r.prepare_client,
        |r| r.online_server,
        |r| r.online_client,
    ];

    fn of(figures: [f64; 7]) -> Self {
        let [a_half, hint, keys, prepare_server, prepare_client, online_server, online_client] = figures;
        Self { a_half, hint, keys, prepare_server, prepare_client, online_server, online_client }
    }

    pub fn online(&self) -> f64 {
        self.online_server + self.online_client
    }

    pub fn query(&self) -> f64 {
        self.prepare_server + self.prepare_client + self.online()
    }
}

#[derive(Clone, Copy, Default, Serialize)]
pub struct Cheetah {
    /// The weights' transforms, once per model.
    pub weights: f64,
    pub encrypt: f64,
    pub server: f64,
    pub decrypt: f64,
}

impl Cheetah {
    pub fn query(&self) -> f64 {
        self.encrypt + self.server + self.decrypt
    }
}

/// Weights, inputs and their shares, and what they are computed with.
pub struct Data {
    cpu: Cpu,
    pub weights: Weights,
    /// The layer's result in whole numbers, before the shift.
    pub exact: Vec<i64>,
    pub x: Vec<i64>,
}

impl Data {
    pub fn new(cpu: Cpu, conv: &Conv) -> Self {
        Self::of(cpu, &conv.spec(), conv.in_shape())
    }

    /// Of a layer over `shape`, in the blocks that it has.
    pub fn of(cpu: Cpu, spec: &Linear, shape: Shape) -> Self {
        let mut prg = Prg::new([7; 32]);
        let mut random = |count: usize, bits: u32| -> Vec<i64> {
            let bound = 1i64 << (bits - 1);
            (0..count).map(|_| ((prg.next_u64() >> (64 - bits)) as i64 - bound).max(1 - bound)).collect()
        };
        let count = spec.out_channels * (shape[0] / spec.groups) * spec.kernel[0] * spec.kernel[1];
        let mut weights: Vec<i16> = random(count, WEIGHT_BITS).into_iter().map(|w| w as i16).collect();
        if let Some(blocks) = spec.blocks {
            blocks.repeat(&mut weights, shape[0], spec.kernel);
        }
        let weights =
            Weights { weights, exponents: Vec::new(), bias: Bias::PerChannel(random(spec.out_channels, 20)) };
        let x = random(shape.iter().product(), INPUT_BITS);
        Self { cpu, exact: linear_exact(cpu, spec, shape, &weights, &x), weights, x }
    }

    /// Client's and server's share modulo `2^bits`.
    fn shares(&self, bits: u32) -> [Vec<u64>; 2] {
        let mut client = vec![0; self.x.len()];
        Prg::new([8; 32]).fill_words(&mut client, bits);
        let pairs = self.x.iter().zip(&client);
        let server = pairs.map(|(&x, &c)| (x as u64).wrapping_sub(c) & ((1 << bits) - 1)).collect();
        [client, server]
    }

    /// Every output is `exact >> shift`, or off by what `errors` allows, modulo `2^bits`.
    fn check(&self, [a, b]: [&[u64]; 2], shift: u32, bits: u32, errors: &[i64]) -> Result<()> {
        ensure!(a.len() == self.exact.len() && b.len() == a.len(), "outputs are missing");
        let mask = (1u64 << bits) - 1;
        for (m, (a, b)) in self.exact.iter().zip(a.iter().zip(b)) {
            let error = a.wrapping_add(*b).wrapping_sub((m >> shift) as u64) & mask;
            ensure!(
                errors.iter().any(|&e| e as u64 & mask == error),
                "{} where {} was right",
                a.wrapping_add(*b) & mask,
                (m >> shift) as u64 & mask
            );
        }
        Ok(())
    }
}

pub fn published(conv: &Conv, data: &Data, repeats: u32) -> Result<f64> {
    let params = insecure_published_parameters();
    let layer = InsecurePublishedLayer::new(params, &conv.spec(), conv.in_shape(), PUBLISHED_BITS)?;
    let ring = Ring::new(data.cpu, params);
    let secret = QuerySecret::fresh(&ring);
    let mut prg = Prg::from_os();
    let [client, server] = data.shares(PUBLISHED_BITS);
    let upload = layer.encrypt(&ring, &secret, &client, &mut prg);
    let at_server = InsecurePublishedServer::new(data.cpu, layer.clone(), &data.weights, WEIGHT_BITS);
    let mut export = Export::default();
    let share = at_server.evaluate(&upload, &server, &mut prg, &mut export);
    // Exact by theorem 1 in every layer here.
    data.check([&layer.decode(&ring, &secret, &export), &share], SHIFT, PUBLISHED_BITS - SHIFT, &[0])?;
    let run = |_| timed(|| at_server.evaluate(&upload, &server, &mut prg, &mut export)).1;
    Ok(median((0..repeats).map(run)))
}

/// One layer of the Jaguar backend with all that its runs have in common.
pub struct OurLayer<'a> {
    data: &'a Data,
    layer: jaguar::Layer,
    ring: Ring,
    public: PublicSeed,
    p1: Vec<u64>,
    wide_p1: WideNtt,
    shares: [Vec<u64>; 2],
}

impl<'a> OurLayer<'a> {
    pub fn new(data: &'a Data, layout: Layout) -> Result<Self> {
        let params = Parameters::DEFAULT;
        let layer = jaguar::Layer::new(params, layout, 0, ACTIVATION_BITS, WEIGHT_BITS, false)?;
        let ring = Ring::new(data.cpu, params);
        let public = PublicSeed([9; 32]);
        let p1 = public.p1(&params);
        let wide_p1 = ring.prepare_wide(&p1);
        let shares = data.shares(layer.input_bits());
        Ok(Self { data, layer, ring, public, p1, wide_p1, shares })
    }

    pub fn layer(&self) -> &jaguar::Layer {
        &self.layer
    }

    /// Once through all of it. The result is compared with the reference if it is to be checked.
    pub fn run(&self, check: bool) -> Result<Ours> {
        let Self { data, layer, ring, public, p1, wide_p1, shares: [x_client, x_server] } = self;
        let (hint_key, mask_seed) = ([5; 32], [6; 32]);
        let server = jaguar::ServerLayer::new(data.cpu, layer.clone(), &data.weights, WEIGHT_BITS);
        let ((), a_half) = timed(|| server.prepare_model(public));
        let (hint, hint_ms) =
            timed(|| server.hint(ring, public, wide_p1, &hint_key, 0..layer.hint_responses()));
        let (mut secrets, secrets_ms) = timed(|| {
            let fresh = |_| {
                let mut secret = QuerySecret::fresh(ring);
                let p0 = secret.zero_key(ring, p1);
                (secret, p0)
            };
            (0..layer.secrets()).map(fresh).unzip::<_, _, Vec<_>, Vec<_>>()
        });
        let mut prg = Prg::from_os();
        let (keys, keys_ms) =
            timed(|| -> Vec<_> { secrets.1.iter().map(|p0| ZeroKey::new(ring, p0, &mut prg)).collect() });
        let (at_client, prepare_client) =
            timed(|| jaguar::prepare(layer, ring, public, &hint, &mut secrets.0, &mask_seed));
        let (at_server, prepare_server) = timed(|| server.prepare(ring, &hint_key, &keys, &mask_seed));
        let (mut to_server, mut to_client) = memory_pair();
        let (sent, online_client) = timed(|| {
            let share = at_client.run(layer, &mut to_server, x_client)?;
            to_server.flush().map(|()| share)
        });
        let client_share = sent?;
        let (server_share, online_server) = timed(|| {
            let upload = server.receive(&mut to_client)?;
            Ok::<_, jaguar_wire::WireError>(server.run(at_server, upload, x_server))
        });
        let server_share = server_share?;
        if check {
            data.check([&client_share, &server_share], SHIFT, ACTIVATION_BITS, &[-1, 0, 1, 2])?;
        }
        let keys = (secrets_ms + keys_ms) / layer.secrets() as f64;
        Ok(Ours { a_half, hint: hint_ms, keys, prepare_server, prepare_client, online_server, online_client })
    }
}

pub fn ours(conv: &Conv, data: &Data, repeats: u32) -> Result<(jaguar::Layer, Ours)> {
    let layout = Layout::new(Parameters::DEFAULT.ring_dim(), &conv.spec(), conv.in_shape())?;
    let ours = OurLayer::new(data, layout)?;
    // The first run warms up and is checked.
    ours.run(true)?;
    let runs = (0..repeats).map(|_| ours.run(false)).collect::<Result<Vec<_>>>()?;
    Ok((ours.layer, Ours::median(&runs)))
}

pub fn cheetah(
    conv: &Conv,
    data: &Data,
    repeats: u32,
    windows: jaguar_cheetah::Windows,
) -> Result<(jaguar_cheetah::Layer, Cheetah)> {
    let layer =
        jaguar_cheetah::Layer::new(&conv.spec(), conv.in_shape(), CHEETAH_BITS, WEIGHT_BITS, windows)?;
    let (server, weights) =
        timed(|| jaguar_cheetah::ServerLayer::new(data.cpu, layer.clone(), &data.weights));
    let [x_client, x_server] = data.shares(CHEETAH_BITS);
    let mut secret = jaguar_cheetah::Secret::fresh(data.cpu, &layer);
    let key = secret.key().prepare(data.cpu, &layer);
    let mut prg = Prg::from_os();
    let mut runs = Vec::new();
    for run in 0..=repeats {
        let (mut to_server, mut to_client) = memory_pair();
        let (sent, encrypt) = timed(|| {
            secret.prepare(&layer).encrypt(&layer, &x_client).send(&mut to_server)?;
            to_server.flush()
        });
        sent?;
        let (share, server) = timed(|| {
            let upload = jaguar_cheetah::Upload::receive(&layer, &mut to_client)?;
            let (response, share) = server.evaluate(server.prepare(&mut prg), &key, &upload, &x_server);
            response.send(&layer, &mut to_client)?;
            to_client.flush().map(|()| share)
        });
        let share = share?;
        let (client_share, decrypt) = timed(|| {
            let response = jaguar_cheetah::Response::receive(&layer, &mut to_server)?;
            Ok::<_, jaguar_wire::WireError>(secret.decrypt(&layer, &response))
        });
        let client_share = client_share?;
        if run == 0 {
            data.check([&client_share, &share], 0, CHEETAH_BITS, &[-1, 0, 1])?;
        } else {
            runs.push(Cheetah { weights, encrypt, server, decrypt });
        }
    }
    let [encrypt, server, decrypt] = medians(&runs, [|r| r.encrypt, |r| r.server, |r| r.decrypt]);
    Ok((layer, Cheetah { weights, encrypt, server, decrypt }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_results_are_seen() {
        let data = Data::new(Cpu::detect(), &Conv::new(4, 1, 1, 1, 1));
        let right: Vec<u64> = data.exact.iter().map(|&m| m as u64).collect();
        let mut wrong = right.clone();
        wrong[3] += 2;
        data.check([&right, &[0; 16]], 0, 37, &[0]).unwrap();
        assert!(data.check([&wrong, &[0; 16]], 0, 37, &[-1, 0, 1]).is_err());
        assert!(data.check([&right[1..], &[0; 15]], 0, 37, &[0]).is_err());
    }
}
