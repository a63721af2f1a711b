//! A linear layer as its protocol lays it out.

use jaguar_graph::network::Linear;
use jaguar_linear::{cheetah, jaguar};

/// What both parties know of a linear layer.
#[derive(Clone, Debug)]
pub enum Layer {
    /// Phase sharing: shares come out at the activations' width, truncated.
    Jaguar(Box<jaguar::Layer>),
    /// The baseline: shares of the whole product.
    Cheetah(Box<cheetah::Layer>),
}

impl Layer {
    /// Jaguar's layer, if it is one.
    pub fn jaguar(&self) -> Option<&jaguar::Layer> {
        match self {
            Self::Jaguar(layer) => Some(layer),
            Self::Cheetah(_) => None,
        }
    }

    /// Cheetah's layer, if it is one.
    pub fn cheetah(&self) -> Option<&cheetah::Layer> {
        match self {
            Self::Jaguar(_) => None,
            Self::Cheetah(layer) => Some(layer),
        }
    }

    /// The operation.
    pub fn spec(&self) -> &Linear {
        match self {
            Self::Jaguar(layer) => layer.layout().spec(),
            Self::Cheetah(layer) => layer.layout().spec(),
        }
    }

    /// Shares of the input are taken modulo 2^this.
    pub fn input_bits(&self) -> u32 {
        match self {
            Self::Jaguar(layer) => layer.input_bits(),
            Self::Cheetah(layer) => layer.share_bits(),
        }
    }

    /// Into how many windows the map is cut.
    pub fn tiles(&self) -> usize {
        match self {
            Self::Jaguar(layer) => layer.layout().tiles().len(),
            Self::Cheetah(layer) => layer.layout().tiles().len(),
        }
    }

    /// Input channels that a ciphertext holds.
    pub fn maps_per_ciphertext(&self) -> usize {
        match self {
            Self::Jaguar(layer) => layer.layout().slots(),
            Self::Cheetah(layer) => layer.layout().blocks().0,
        }
    }

    /// Ciphertexts from the client.
    pub fn ciphertexts(&self) -> usize {
        match self {
            Self::Jaguar(layer) => layer.layout().ciphertexts(),
            Self::Cheetah(layer) => layer.layout().ciphertexts(),
        }
    }

    /// Ciphertexts of the answer. (Jaguar's a halves are in the hint, and its b halves follow from a seed.)
    pub fn responses(&self) -> usize {
        match self {
            Self::Jaguar(layer) => layer.layout().responses(),
            Self::Cheetah(layer) => layer.layout().responses(),
        }
    }

    /// Bytes from the client, online.
    pub fn upload_bytes(&self) -> usize {
        match self {
            Self::Jaguar(layer) => layer.upload_bytes(),
            Self::Cheetah(layer) => layer.upload_bytes(),
        }
    }

    /// Bytes from the server, online.
    pub fn response_bytes(&self) -> usize {
        match self {
            Self::Jaguar(_) => 0,
            Self::Cheetah(layer) => layer.response_bytes(),
        }
    }

    /// How often the client waits for an answer, online.
    pub fn rounds(&self) -> u64 {
        match self {
            Self::Jaguar(_) => 0,
            Self::Cheetah(_) => 1,
        }
    }

    /// Standard deviation of the noise, in units of the network's last place, at worst-case weights.
    pub fn noise_ulps(&self) -> f64 {
        match self {
            Self::Jaguar(layer) => layer.noise_ulps(),
            Self::Cheetah(layer) => layer.noise_ulps() / self.product_ulps(),
        }
    }

    /// The largest difference of the shares' sum from the exact quotient, with so many standard deviations of noise: in
    /// units of the network's last place.
    pub(crate) fn error_ulps(&self, sigmas: f64) -> f64 {
        let rounding = match self {
            Self::Jaguar(_) => 1.0,
            Self::Cheetah(_) => 1.0 / self.product_ulps(),
        };
        rounding + sigmas * self.noise_ulps()
    }

    /// How many units of the products' last place make one of the network's.
    fn product_ulps(&self) -> f64 {
        2f64.powi(self.spec().shift as i32)
    }

    /// What must be the same on both sides.
    pub(crate) fn facts(&self) -> Vec<u64> {
        match self {
            Self::Jaguar(layer) => layer.facts(),
            Self::Cheetah(layer) => layer.facts(),
        }
    }
}
