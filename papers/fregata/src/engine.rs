//! HME as a backend of its own, not registered: it is what multiplies M before the input.

use std::sync::Arc;

use super::matrix::{self, Matrix, Tilings};
use jaguar_cheetah::{Encoding, Layer, MAX_WINDOWS, RnsLayers, RnsRings, allowed_noise};
use jaguar_linear::backend::{Backend, LayerError, Layers, Request};
use jaguar_linear::constants::Probe;

/// Fregata's homomorphic matrix product, with the keys and the export of Cheetah's layers.
pub struct Hme;

impl Backend for Hme {
    fn name(&self) -> &'static str {
        "hme"
    }

    fn about(&self) -> &'static str {
        "Fregata's homomorphic matrix product"
    }

    fn keeps_products(&self) -> bool {
        true
    }

    fn probes(&self) -> Vec<Probe> {
        vec![Probe::of::<RnsRings>()]
    }

    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
        let mut by_node: Vec<Option<Layer<Matrix>>> = Vec::new();
        let mut ciphertexts = 0;
        for (i, r) in requests.iter().enumerate() {
            let refused = |why: String| (i, LayerError::Refused(why));
            let widths = (r.product_bits, r.weight_bits);
            let layer = matrix::layer(r.spec, r.in_shape, widths, allowed_noise(r), Tilings::Cheapest)
                .map_err(|e| refused(e.to_string()))?;
            // A client keeps something of each until the answer is there.
            ciphertexts += layer.layout().ciphertexts() + layer.layout().responses();
            if ciphertexts > MAX_WINDOWS {
                return Err(refused(format!(
                    "{ciphertexts} ciphertexts in the layers so far; at most {MAX_WINDOWS} are taken"
                )));
            }
            by_node.resize(by_node.len().max(r.node + 1), None);
            by_node[r.node] = Some(layer);
        }
        Ok(Arc::new(RnsLayers::new(self.name(), by_node)))
    }
}
