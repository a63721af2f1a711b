//! Cheetah's linear layers in a session, both roles: `jaguar_linear::cheetah` between the nonlinear layers.
//!
//! 1. *Once per session:* the client makes a secret for each ring that the plan's layers use, and sends a key: an encryption
//!    of zero, as Cheetah's client does once. Ciphertexts of all queries are under it. (A fresh key per query would hide
//!    nothing more: its a halves are fresh, and so is the server's u. It would cost 30 KiB a query.)
//! 2. *Before the input:* the client's `e − a·s`, the server's u and e1. Nothing passes.
//! 3. *Online, layer by layer:* ciphertexts up, responses down. One round.

use std::time::Instant;

use jaguar_graph::network::{Model, NodeId};
use jaguar_linear::cheetah::{
    self, ClientPrepared, Key, PublicKey, Response, Secret, ServerLayer, ServerPrepared, Upload,
};
use jaguar_plan::{Layer, Plan};
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, Phase};

use crate::EngineError;
use crate::program::{Linear, Prepare};
use crate::report::Progress;

/// Memory that transformed weights may take. ResNet-18's take 2.7 GiB, MobileNetV2's 2.1; ResNet-50's would take 20.8.
pub(crate) const WEIGHT_MEMORY: usize = 4 << 30;

fn cheetahs(layer: &Layer) -> &cheetah::Layer {
    layer.cheetah().expect("a plan of Cheetah's")
}

/// The client's side of one session.
pub(crate) struct Client {
    /// By ring.
    secrets: Vec<Secret>,
}

impl Client {
    /// Step 1.
    pub fn new(plan: &Plan, channel: &mut Channel) -> Result<Self, EngineError> {
        channel.enter(Phase::Client, "keys");
        let mut secrets = Vec::new();
        for layer in plan.cheetah_rings() {
            let mut secret = Secret::fresh(layer);
            secret.key().send(channel)?;
            secrets.push(secret);
        }
        Ok(Self { secrets })
    }

    fn secret(&mut self, layer: &cheetah::Layer) -> &mut Secret {
        let fits = |secret: &&mut Secret| secret.limbs() == layer.limbs();
        self.secrets.iter_mut().find(fits).expect("a secret for each of the plan's rings")
    }
}

/// The server's side of one session.
pub(crate) struct Server<'a> {
    /// By node.
    layers: &'a [Option<ServerLayer>],
    /// By ring: its number of primes, and the client's key.
    keys: Vec<(usize, Key)>,
    prg: Prg,
    /// When the first input of the current query arrived.
    pub first: Option<Instant>,
}

impl<'a> Server<'a> {
    /// Step 1.
    pub fn new(
        layers: &'a [Option<ServerLayer>],
        plan: &Plan,
        channel: &mut Channel,
    ) -> Result<Self, EngineError> {
        channel.enter(Phase::Client, "keys");
        let mut keys = Vec::new();
        for layer in plan.cheetah_rings() {
            let key = PublicKey::receive(layer, channel)?;
            keys.push((layer.limbs(), Key::new(layer, &key)));
        }
        Ok(Self { layers, keys, prg: Prg::from_os(), first: None })
    }

    fn layer(&self, node: NodeId) -> &'a ServerLayer {
        self.layers[node].as_ref().expect("the plan's layers have weights")
    }
}

/// The weights of every linear layer, by node: transformed as long as `memory` bytes hold them, the other layers' to be
/// transformed in every query.
pub(crate) fn transform(plan: &Plan, model: &Model, memory: usize) -> Vec<Option<ServerLayer>> {
    let mut left = memory;
    let layers = plan.steps.iter().zip(&model.weights);
    layers
        .map(|(step, weights)| {
            let (layer, weights) = (step.layer.as_ref()?.cheetah()?, weights.as_ref()?);
            Some(match left.checked_sub(layer.weight_bytes()) {
                Some(rest) => {
                    left = rest;
                    ServerLayer::new(layer.clone(), weights)
                }
                None => ServerLayer::on_the_way(layer.clone(), weights),
            })
        })
        .collect()
}

// Step 2.

impl Prepare for Client {
    type Prepared = ClientPrepared;

    fn hint(&mut self, _: NodeId, _: &mut Channel, _: &mut dyn Progress) -> Result<bool, EngineError> {
        Ok(false)
    }

    fn prepare(&mut self, _: NodeId, layer: &Layer) -> Result<ClientPrepared, EngineError> {
        let layer = cheetahs(layer);
        Ok(self.secret(layer).prepare(layer))
    }
}

impl Prepare for Server<'_> {
    type Prepared = ServerPrepared;

    fn hint(&mut self, _: NodeId, _: &mut Channel, _: &mut dyn Progress) -> Result<bool, EngineError> {
        Ok(false)
    }

    fn prepare(&mut self, node: NodeId, _: &Layer) -> Result<ServerPrepared, EngineError> {
        Ok(self.layer(node).prepare(&mut self.prg))
    }
}

// Step 3.

impl Linear for Client {
    type Prepared = ClientPrepared;
    type Output = Vec<u64>;

    fn run(
        &mut self,
        _: NodeId,
        layer: &Layer,
        prepared: ClientPrepared,
        channel: &mut Channel,
        x: &[u64],
    ) -> Result<Vec<u64>, EngineError> {
        let layer = cheetahs(layer);
        prepared.encrypt(layer, x).send(channel)?;
        let response = Response::receive(layer, channel)?;
        Ok(self.secret(layer).decrypt(layer, &response))
    }
}

impl Linear for Server<'_> {
    type Prepared = ServerPrepared;
    type Output = Vec<u64>;

    fn run(
        &mut self,
        node: NodeId,
        layer: &Layer,
        prepared: ServerPrepared,
        channel: &mut Channel,
        x: &[u64],
    ) -> Result<Vec<u64>, EngineError> {
        let (layer, server) = (cheetahs(layer), self.layer(node));
        let upload = Upload::receive(layer, channel)?;
        self.first.get_or_insert_with(Instant::now);
        let limbs = layer.limbs();
        let (_, key) =
            self.keys.iter().find(|(l, _)| *l == limbs).expect("a key for each of the plan's rings");
        let (response, share) = server.evaluate(prepared, key, &upload, x);
        response.send(layer, channel)?;
        Ok(share)
    }
}
