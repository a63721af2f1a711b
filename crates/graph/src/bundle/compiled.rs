//! `model.jaguar`: a quantised model and the server's own secret, in one file that stays with the server.

use std::io::Read;
use std::path::Path;

use crate::ir::reading::{Fields, ReadError, WithOperations};
use crate::network::{Hiding, Model, Operators};
use serde::de::SeqAccess;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::bundle::{BundleError, files};
use crate::ir::limits::MAX_GUARD_BITS;

/// First bytes of every bundle; the last one counts the format.
const MAGIC: &[u8; 8] = b"JAGUAR\0\x0b";

/// Larger files are refused unread.
const MAX_BYTES: u64 = 4 << 30;

/// A model as the server keeps it.
#[derive(Clone)]
pub struct Bundle {
    /// The network and its weights.
    pub model: Model,
    /// From this the server's randomness towards each client is derived. Made once, at `compile`.
    secret: Zeroizing<[u8; 32]>,
    id: ModelId,
}

/// The public name of a bundle. It commits to the whole model but tells nothing of it: it is keyed by the bundle's
/// secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelId(pub [u8; 32]);

impl ModelId {
    /// All 32 bytes in hexadecimal digits. (What is shown to people is the first eight bytes.)
    pub fn in_full(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }
}

impl std::fmt::Display for ModelId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0[..8].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

fn guarded(model: Model, hiding: Hiding) -> Result<Model, BundleError> {
    let guarded = model.guarded(hiding);
    guarded
        .map_err(|e| BundleError::Unusable(format!("the model with {} guard bits: {e}", hiding.guard_bits)))
}

#[derive(Serialize)]
struct Body {
    model: Model,
    secret: [u8; 32],
}

impl WithOperations for Body {
    const FIELDS: usize = 2;

    fn fields<'de, A: SeqAccess<'de>>(from: &mut Fields<'_, A>) -> Result<Self, A::Error> {
        Ok(Self { model: from.with_operations()?, secret: from.plain()? })
    }
}

impl Bundle {
    /// Wraps a valid model with a fresh secret, and hides its hidden values as [`Hiding::default`] says.
    ///
    /// # Errors
    /// When the model is not valid, or does not bear so many guard bits.
    pub fn new(model: Model) -> Result<Self, BundleError> {
        Self::with_hiding(model, Hiding::default())
    }

    /// As [`new`](Self::new), hidden in another way, or with so many guard bits. With fewer, clients learn more of the weights from
    /// many queries (`docs/attacks.md`); with none, as much as from other protocols that truncate shares locally.
    ///
    /// # Errors
    /// As `new`.
    pub fn with_hiding(model: Model, hiding: impl Into<Hiding>) -> Result<Self, BundleError> {
        Self::with_secret(guarded(model, hiding.into())?, jaguar_ring::prg::os_random())
    }

    fn with_secret(model: Model, secret: [u8; 32]) -> Result<Self, BundleError> {
        let bytes = postcard::to_stdvec(&model).expect("plain data serialises");
        Self::written(model, secret, &bytes)
    }

    /// A model that reads `bytes` in a file.
    fn written(model: Model, secret: [u8; 32], bytes: &[u8]) -> Result<Self, BundleError> {
        model.validate().map_err(|e| BundleError::Unusable(format!("the model is not sound: {e}")))?;
        let key = blake3::derive_key("jaguar model id", &secret);
        let id = ModelId(*blake3::keyed_hash(&key, bytes).as_bytes());
        Ok(Self { model, secret: Zeroizing::new(secret), id })
    }

    /// The bundle hidden in another way, or with so many guard bits: a model of another public name, under the same secret.
    /// (Whatever is derived from the secret depends on the name too.)
    ///
    /// # Errors
    /// When the model does not bear so many guard bits.
    pub fn guarded(self, hiding: impl Into<Hiding>) -> Result<Self, BundleError> {
        let hiding = hiding.into();
        if hiding == self.model.network.hiding() {
            return Ok(self);
        }
        Self::with_secret(guarded(self.model, hiding)?, *self.secret)
    }

    /// The bundle so that its hidden units are hidden for so many queries of one image, by the leverage that compiling measured; for
    /// one query or less, with neither guard bits nor noise. Answers keep their accuracy: the guard bits grow and shrink with the noise.
    /// (Those of a model without noise get 4.6 last places of it.)
    ///
    /// # Errors
    /// When nobody measured the leverage, or it takes more noise, or more guard bits, than a network may have.
    pub fn hidden_for(self, queries: f64) -> Result<Self, BundleError> {
        if queries <= 1.0 {
            return self.guarded(Hiding::NONE);
        }
        let unusable = |why: &str| BundleError::Unusable(format!("hidden for {queries} queries: {why}"));
        let leverage =
            self.model.leverage.ok_or_else(|| unusable("what hidden units weigh was not measured"))?;
        let noise_bits = Hiding::noise_bits_for(queries, leverage)
            .ok_or_else(|| unusable("that takes more noise than answers may have"))?;
        let old = self.model.network.hiding();
        let old = if old == Hiding::NONE { Hiding::default() } else { old };
        let guard_bits = (old.guard_bits + noise_bits).saturating_sub(old.noise_bits).max(2);
        if guard_bits > MAX_GUARD_BITS {
            return Err(unusable(
                "that takes more guard bits than values may have; compile the model for so many",
            ));
        }
        self.guarded(Hiding { guard_bits, noise_bits })
    }

    /// The model's public name, which tells compiled models apart.
    pub fn id(&self) -> ModelId {
        self.id
    }

    /// The key of all re-randomisation towards the client that this nonce names, under the plan with this digest: two
    /// layouts of one model never share a zero-encryption, whose difference would cancel it.
    pub fn hint_key(&self, nonce: &[u8; 32], plan: &[u8; 32]) -> Zeroizing<[u8; 32]> {
        let mut hasher = blake3::Hasher::new_derive_key("jaguar hint key");
        hasher.update(&self.secret[..]).update(&self.id.0).update(plan).update(nonce);
        Zeroizing::new(*hasher.finalize().as_bytes())
    }

    /// Writes the bundle; an existing file is replaced only when the new one is complete.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), BundleError> {
        let body = postcard::to_stdvec(&Body { model: self.model.clone(), secret: *self.secret })
            .expect("plain data serialises");
        let mut bytes = Vec::with_capacity(body.len() + 40);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(blake3::hash(&body).as_bytes());
        bytes.extend_from_slice(&body);
        Ok(files::replace(path, &bytes)?)
    }

    /// Whether the file begins as a bundle of any format does.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn recognises(path: &Path) -> std::io::Result<bool> {
        let mut start = Vec::new();
        std::fs::File::open(path)?.take(7).read_to_end(&mut start)?;
        Ok(start == MAGIC[..7])
    }

    /// Reads and checks a bundle of a model of these `operators`.
    ///
    /// # Errors
    /// When the file is missing, no bundle, of another version, damaged, or holds an unsound model or one of other operators.
    pub fn read(path: &Path, operators: &Operators) -> Result<Self, BundleError> {
        let wrong = |what: String| BundleError::Unusable(format!("{}: {what}", path.display()));
        let size = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
        if size > MAX_BYTES {
            return Err(wrong(format!("{size} bytes are more than a bundle may have ({MAX_BYTES})")));
        }
        let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else {
            let text =
                format!("not a compiled model ({size} bytes); `jaguar compile` makes one from an ONNX file");
            return Err(wrong(text));
        };
        if head[..7] != MAGIC[..7] {
            return Err(wrong("not a compiled model; `jaguar compile` makes one from an ONNX file".into()));
        }
        if head[7] != MAGIC[7] {
            return Err(wrong(format!(
                "bundle format {} (this version reads {}); compile the model again",
                head[7], MAGIC[7]
            )));
        }
        let Some((hash, body)) = rest.split_first_chunk::<32>() else {
            return Err(wrong("the file is cut off".into()));
        };
        if blake3::hash(body) != *hash {
            return Err(wrong("the file is damaged: its checksum does not match".into()));
        }
        let Body { model, secret } = operators.decode(body).map_err(|e| match e {
            ReadError::UnknownOperator(_) => wrong(e.to_string()),
            ReadError::Malformed(_) | ReadError::TooLong(_) => wrong(format!("the file is damaged: {e}")),
        })?;
        // The secret stands behind the model, as it is.
        Self::written(model, secret, &body[..body.len() - secret.len()])
    }
}
