//! Which keys a client gives a server, so that any network of a parameter set can be evaluated.
//!
//! | kind | for | level | special primes | digits |
//! |---|---|---|---|---|
//! | the ephemeral secret's | ModUp | given | given | 1 |
//! | rotations, a conjugation | ModUp's trace, CtoS, StoC | the highest at which each is used | all | up to 5 |
//! | relinearisation | sine, ReLU | the sine's first product | all | 4 |
//! | packing's automorphisms | sums of a layer, logits | [`answer::LEVEL`] | [`answer::SPECIAL`] | 1 |
//! | a public key | answers | [`answer::LEVEL`] | – | – |

use jaguar_ckks::circuits::COMPOSITES;
use jaguar_ckks::{Context, EvaluationKeys, KeySpec, PublicKey, answer, packing, wire};

use super::plan::{NetworkError, circuit_plan, moduli, unfit};

/// What a server computes with for one client.
pub struct Keys {
    /// Of a bootstrap.
    pub circuit: EvaluationKeys,
    /// Of packing: apart, since 5 is an exponent of both.
    pub packing: EvaluationKeys,
    /// For answers.
    pub public: PublicKey,
}

/// The keys of a set, in the order in which they are written.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySpecs {
    /// Of a bootstrap.
    pub circuit: Vec<KeySpec>,
    /// Of packing.
    pub packing: Vec<KeySpec>,
    /// The public key's level.
    pub public: usize,
}

/// All keys of a set, whatever polynomial stands for ReLU: it multiplies below the sine.
///
/// # Errors
/// If a bootstrap does not fit the set.
pub fn key_specs(context: &Context) -> Result<KeySpecs, NetworkError> {
    let params = context.params();
    let counts = circuit_plan(params, COMPOSITES[0]).counts(params.n() / 2, moduli(params));
    let counts = counts.map_err(|error| unfit(params, error))?;
    Ok(KeySpecs {
        circuit: context.circuit_keys(&counts),
        packing: packing::key_specs(context, answer::LEVEL, answer::SPECIAL),
        public: answer::LEVEL,
    })
}

impl KeySpecs {
    /// All evaluation keys, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &KeySpec> {
        self.circuit.iter().chain(&self.packing)
    }

    /// Bytes of all of them as they are sent.
    ///
    /// # Errors
    /// If a key is none of the set's.
    pub fn bytes(&self, context: &Context) -> Result<usize, NetworkError> {
        let keys: Result<usize, _> = self.all().map(|spec| wire::key_bytes(context, spec)).sum();
        Ok(keys? + wire::public_key_bytes(context, self.public)?)
    }

    /// Bytes of all of them in memory.
    ///
    /// # Errors
    /// If a key is none of the set's.
    pub fn memory(&self, context: &Context) -> Result<usize, NetworkError> {
        let keys: Result<usize, _> = self.all().map(|spec| wire::key_memory(context, spec)).sum();
        Ok(keys?)
    }
}
