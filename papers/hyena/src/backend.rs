//! The backend as values: planning, the model at the server, and the two halves of a session.

use std::ops::Range;
use std::sync::Arc;

use jaguar_graph::network::Weights;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::rns::JointKeys;
use jaguar_ring::prg::Prg;

use super::client::Client;
use super::layer::HyenaLayers;
use super::search::{self, Wanted};
use super::server::{HyenaModel, Server};
use super::{Form, Layer, SlotRings};
use jaguar_linear::backend::{
    self, Backend, BackendId, BackendParty, KeyBytes, LayerError, Layers, Model, Request, Rlwe,
};
use jaguar_linear::constants::Probe;
use jaguar_linear::product::Hardware;

/// Hyena, in one of its forms.
pub struct Hyena {
    form: Form,
    about: &'static str,
}

/// For kits: every form.
pub const ALL: [BackendId; 4] = [
    BackendId::new(&Hyena::PACKED),
    BackendId::new(&Hyena::PADDED),
    BackendId::new(&Hyena::CONVENTIONAL),
    BackendId::new(&Hyena::BLOCKS),
];

impl Hyena {
    /// Numbers as weights, one output channel a ciphertext.
    pub(crate) const PADDED: Self = Self {
        form: Form::Padded,
        about: "SIMD slots, weights as numbers, one output channel a ciphertext: no model to store, many responses",
    };
    /// Numbers as weights, interleaved channels, packed outputs.
    pub(crate) const PACKED: Self = Self {
        form: Form::Interleaved,
        about: "SIMD slots, weights as numbers on interleaved channels, outputs packed: no model to store",
    };
    /// The paper's baseline.
    pub const CONVENTIONAL: Self = Self {
        form: Form::Conventional,
        about: "the baseline of Hyena: SIMD slots, weights as plaintexts, outputs packed",
    };
    /// PrivCirNet's.
    pub const BLOCKS: Self = Self {
        form: Form::Blocks,
        about: "CirEncode: circulant blocks transformed in SIMD slots, baby and giant steps across them",
    };

    /// Plans layers of all forms.
    ///
    /// # Panics
    /// When a layer is one of another family's backend.
    pub(super) fn layers(requests: &[Request<'_>]) -> Result<HyenaLayers, (usize, LayerError)> {
        let wanted: Vec<Wanted<'_>> = requests
            .iter()
            .map(|r| Wanted {
                form: Form::of(r.backend).expect("a backend of this family"),
                spec: r.spec,
                in_shape: r.in_shape,
                activation_bits: r.activation_bits,
                weight_bits: r.weight_bits,
                weight_memory: r.weight_memory,
            })
            .collect();
        let refused = |(i, why)| (i, LayerError::Refused(why));
        let found = search::search(&wanted).map_err(refused)?;
        let nodes: Vec<usize> = requests.iter().map(|r| r.node).collect();
        HyenaLayers::new(&nodes, &wanted, found).map_err(refused)
    }
}

impl Backend for Hyena {
    fn name(&self) -> &'static str {
        self.form.name()
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn family(&self) -> &'static str {
        FAMILY
    }

    fn keeps_products(&self) -> bool {
        false
    }

    fn probes(&self) -> Vec<Probe> {
        vec![Probe::of::<SlotRings>()]
    }

    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
        Ok(Arc::new(Self::layers(requests)?))
    }
}

/// The three backends' family.
const FAMILY: &str = Form::Interleaved.name();

impl Layers for HyenaLayers {
    fn backend(&self) -> &'static str {
        FAMILY
    }

    fn backend_of(&self, node: usize) -> &'static str {
        self.by_node.get(node).and_then(Option::as_ref).map_or(FAMILY, |layer| layer.form().name())
    }

    fn layer(&self, node: usize) -> Option<&(dyn backend::Layer + 'static)> {
        self.by_node.get(node)?.as_ref().map(|layer| layer as &(dyn backend::Layer + 'static))
    }

    fn describe(&self) -> String {
        let (kept, keys) = (self.ring.kept, self.elements.len());
        let (digits, joint) = (self.ring.digit_bits, self.ring.joint.count);
        let channels = self.by_node.iter().flatten().map(|layer| layer.packing().channels());
        let (least, most) = channels.fold((usize::MAX, 0), |(least, most), c| (least.min(c), most.max(c)));
        let ring = search::describe(&self.ring);
        let joint = if joint > 1 { format!(", of which {joint} share an a half") } else { String::new() };
        format!(
            "{ring}, {kept} of them in responses{joint}, {keys} rotation keys with digits of {digits} bits, {least} to {most} channels a ciphertext{}",
            self.forms()
        )
    }

    fn rlwe(&self) -> Vec<Rlwe> {
        let params = &self.ring.params;
        let (ring_dim, modulus_bits) = (params.ring_dim(), params.modulus_bits());
        vec![Rlwe { ring_dim, modulus_bits, estimate: params.estimate() }]
    }

    fn parameters(&self, name: &dyn Fn(usize) -> String) -> String {
        let mut lines = vec![self.describe(), String::new(), search::WEIGHED_HEAD.into()];
        lines.extend(self.weighed.iter().map(search::weighed_line));
        lines.extend([String::new(), search::FITTED_HEAD.into()]);
        let layers =
            self.by_node.iter().enumerate().filter_map(|(node, layer)| Some((node, layer.as_ref()?)));
        lines.extend(layers.map(|(node, layer)| layer.fitted.line(&layer.ring, &name(node))));
        let (numbers, polys) = self.model_bytes();
        let made: u64 =
            self.by_node.iter().flatten().filter(|layer| !layer.held).map(Layer::plaintext_bytes).sum();
        let mega = |bytes: usize| bytes as f64 / 1e6;
        let made = match made {
            0 => String::new(),
            made => format!(", {:.3} MB of these in every query", mega(made as usize)),
        };
        lines.extend([
            String::new(),
            format!(
                "model: {:.3} MB of weights as numbers, {:.3} MB of polynomials{made}",
                mega(numbers),
                mega(polys)
            ),
        ]);
        lines.join("\n")
    }

    fn client_keys(&self) -> KeyBytes {
        let keys = self.elements.len();
        let whole = self.ring.words_bytes(self.ring.params.primes().len());
        // Both halves, and of each automorphism the places that it moves.
        let moved = self.ring.params.ring_dim() * size_of::<u32>();
        let (count, digits) = (self.ring.joint.count, self.ring.joint_digits());
        let joint = JointKeys::encryptions(count, digits) * (1 + count);
        let kept = joint as u64 * self.ring.words_bytes(self.ring.joint_limbs())
            + keys as u64 * (2 * self.ring.digits() as u64 * whole + moved as u64);
        KeyBytes { sent: self.ring.key_bytes(keys), kept }
    }

    fn model(
        self: Arc<Self>,
        &Hardware { cpu, .. }: &Hardware,
        _: [u8; 32],
        weights: &[Option<Weights>],
        _: u32,
    ) -> Arc<dyn Model> {
        Arc::new(self.with_weights(cpu, weights))
    }

    fn client(self: Arc<Self>, cpu: Cpu, _: [u8; 32]) -> Box<dyn BackendParty> {
        Box::new(Client::new(self, cpu, Prg::from_os()))
    }
}

impl Model for HyenaModel {
    /// Done when the weights were taken.
    fn prepare(&self, _: usize) {}

    fn hint(&self, _: usize, _: Range<usize>, _: &[u8; 32]) -> Vec<u8> {
        Vec::new()
    }

    fn party(self: Arc<Self>, _: &[u8; 32]) -> Box<dyn BackendParty> {
        Box::new(Server::new(self, Prg::from_os()))
    }
}
