//! The client: its folder, and what is done there with its secret. The secret never leaves this machine.
//!
//! | file | what it is |
//! |---|---|
//! | `secret` | the secret key; only its owner may read it |
//! | `keys` | the evaluation keys, which servers get |
//! | `keys.hash` | BLAKE3 of those, in hexadecimal digits: keys without it are not complete |
//! | `client` | 32 random bytes; what servers know this client by is derived from them, for each server another |
//! | `given-*` | that a server had all keys once |
//! | `lock` | held while keys are made |
//!
//! **Keys of another form** are those of an earlier release. They serve no server any more, so they and their secret are removed, and
//! others are made: it is said before.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jaguar_ckks::{Context, SecretKey};
use jaguar_graph::bundle::{FileError, files};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::os_random;

use crate::keys::{KeyError, are_keys, client_memory, file_bytes, make, make_secret, read_secret};
use crate::machine::{memory, too_small};
use crate::network::{KeySpecs, NetworkError, Public, answer_bytes, key_specs};
use crate::session::client::Keys;
use crate::session::{NAME, Terms};
use crate::sets::{Set, SetError};

/// What went wrong at the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartyError {
    /// The server names a set that is none.
    #[error("the server's {0}")]
    Set(#[from] SetError),
    /// Keys could not be made.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// A secret that cannot be read.
    #[error("{}: {error}; remove this folder, and new keys will be made", folder.display())]
    Secret {
        /// Where it is.
        folder: PathBuf,
        /// What is wrong with it.
        error: KeyError,
    },
    /// The server's terms, or an input.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// This machine is too small.
    #[error("this machine is too small: {0}")]
    TooSmall(String),
    /// The set protects nothing, and that was not accepted.
    #[error(
        "the server's parameter set '{0}' protects nothing: it would see the image; --accept-insecure-parameters is for tests"
    )]
    Insecure(String),
}

/// That keys are about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Making<'a> {
    /// Where.
    pub folder: &'a Path,
    /// How many bytes they will have.
    pub bytes: u64,
    /// Whether keys are there, of another form than this release's: they will be removed.
    pub replaces: bool,
}

/// A client's folder for one parameter set, and its secret.
pub struct Party {
    secret: SecretKey,
    folder: PathBuf,
    client: [u8; 32],
    keys: u64,
    hash: [u8; 32],
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> FileError {
    move |e| FileError::new(what, path, e)
}

/// The secrets that are kept below `folder`, one for each parameter set.
pub fn secrets(folder: &Path) -> Vec<PathBuf> {
    let sets = std::fs::read_dir(folder.join(NAME)).into_iter().flatten();
    sets.filter_map(|set| Some(set.ok()?.path().join("secret"))).collect()
}

/// The folder of one set while its keys are looked for, or made.
struct Folder<'a> {
    path: &'a Path,
    context: &'a Arc<Context>,
    specs: KeySpecs,
    bytes: u64,
}

impl Folder<'_> {
    fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The hash of keys that are complete.
    fn known_hash(&self) -> Option<[u8; 32]> {
        let text = std::fs::read_to_string(self.join("keys.hash")).ok()?;
        let hash = blake3::Hash::from_hex(text.trim()).ok()?;
        let path = self.join("keys");
        let whole = std::fs::metadata(&path).is_ok_and(|about| about.len() == self.bytes);
        (whole && are_keys(self.context, &path) && self.join("secret").is_file()).then_some(*hash.as_bytes())
    }

    /// Draws a secret, and makes the keys. What an earlier run left half done, or an earlier release, is replaced.
    fn make(&self) -> Result<(SecretKey, [u8; 32]), PartyError> {
        let [secret, keys, hash] = ["secret", "keys", "keys.hash"].map(|name| self.join(name));
        let remove = |path: &Path| match std::fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(FileError::new("removing", path, e)),
            _ => Ok(()),
        };
        // The hash first: it says that the others are complete.
        for path in [&hash, &keys, &secret] {
            remove(path)?;
        }
        let made = || -> Result<_, PartyError> {
            let drawn = make_secret(self.context, &secret)?;
            let digest = make(self.context, &drawn, &self.specs, &keys)?;
            files::replace(&hash, blake3::Hash::from(digest).to_hex().as_bytes())?;
            Ok((drawn, digest))
        };
        made().inspect_err(|_| {
            // Half of it is of no use, and the disk may be full. The error at hand is told.
            let _ = [&hash, &keys, &secret].map(std::fs::remove_file);
        })
    }
}

impl Party {
    /// Opens the folder for a parameter set below `folder`; makes a secret and keys, on so many threads, if there are none, and says
    /// so before (`making`).
    ///
    /// # Errors
    /// When there is no such set, it protects nothing, or this machine is too small to make keys; when the disk fails.
    pub fn open(
        (folder, threads): (&Path, usize),
        set: &str,
        accept_insecure: bool,
        making: &mut dyn FnMut(Making<'_>),
    ) -> Result<Self, PartyError> {
        let set = Set::by_name(set)?;
        if set.is_insecure() && !accept_insecure {
            return Err(PartyError::Insecure(set.name().to_owned()));
        }
        let context = Context::new(Cpu::detect(), set.params().clone(), threads);
        let context = context.map_err(NetworkError::from)?;
        let specs = key_specs(&context)?;
        let bytes = file_bytes(&context, &specs)?;
        // The name is that of a set by now, not the server's.
        let path = folder.join(NAME).join(set.name());
        crate::session::private_folder(&path).map_err(failed("making", &path))?;
        let lock = path.join("lock");
        let file = files::private().truncate(false).open(&lock).map_err(failed("opening", &lock))?;
        file.lock().map_err(failed("waiting for", &lock))?;
        let client = read_or_draw(&path.join("client"))?;
        let it = Folder { path: &path, context: &context, specs, bytes };
        let (secret, hash) = match it.known_hash() {
            Some(hash) => match read_secret(&context, &it.join("secret")) {
                Ok(secret) => (secret, hash),
                Err(error) => return Err(PartyError::Secret { folder: path, error }),
            },
            None => {
                if let Some(told) = too_small("making keys", client_memory(&context, &it.specs)?, memory()) {
                    return Err(PartyError::TooSmall(told));
                }
                // Complete, and yet not these.
                let replaces = it.join("keys.hash").exists() && it.join("keys").exists();
                making(Making { folder: &path, bytes, replaces });
                it.make()?
            }
        };
        Ok(Self { secret, folder: path, client, keys: bytes, hash })
    }

    /// The evaluation keys.
    pub fn keys(&self) -> (PathBuf, u64, [u8; 32]) {
        (self.folder.join("keys"), self.keys, self.hash)
    }

    /// Bytes of an answer.
    ///
    /// # Errors
    /// If the set has no level for it.
    pub fn answer_bytes(&self) -> Result<usize, NetworkError> {
        answer_bytes(self.secret.context())
    }

    /// What the server at `address` knows this client by. Nobody can guess it, and no two servers know the same.
    pub fn name_at(&self, address: &str) -> [u8; 32] {
        blake3::derive_key(
            "jaguar convfhe 2026 name of a client at a server",
            &[&self.client[..], address.as_bytes()].concat(),
        )
    }

    /// Whether the server at `address` had all keys once; from here on it has.
    ///
    /// # Errors
    /// The disk's.
    pub fn given(&self, address: &str) -> Result<bool, FileError> {
        let name = blake3::hash(&self.name_at(address)).to_hex();
        let mark = self.folder.join(format!("given-{}", &name[..16]));
        let hash = blake3::Hash::from(self.hash).to_hex();
        let before = std::fs::read(&mark).is_ok_and(|found| found == hash.as_bytes());
        if !before {
            files::replace(&mark, hash.as_bytes())?;
        }
        Ok(before)
    }

    /// Encrypts and decrypts under a server's terms.
    ///
    /// # Errors
    /// When what they say of the network makes no sense, or contradicts what they say of the model.
    pub fn under(&self, terms: &Terms) -> Result<Encryption<'_>, NetworkError> {
        let public = Public::parse(&terms.public, self.secret.context().params())?;
        let shape = terms.facing.first.as_ref().map_or(terms.facing.shape, |first| first.shape);
        if (public.input, public.outputs) != (shape, terms.outputs) {
            return Err(NetworkError::Public(format!(
                "it takes {:?} and gives {} outputs, and the model {shape:?} and {}",
                public.input, public.outputs, terms.outputs
            )));
        }
        Ok(Encryption { secret: &self.secret, public })
    }
}

/// 32 random bytes that stay the same.
fn read_or_draw(path: &Path) -> Result<[u8; 32], FileError> {
    if let Some(found) = std::fs::read(path).ok().and_then(|bytes| bytes.try_into().ok()) {
        return Ok(found);
    }
    let drawn: [u8; 32] = os_random();
    files::replace(path, &drawn)?;
    Ok(drawn)
}

/// The keys as a session takes them.
pub fn offered((path, bytes, hash): &(PathBuf, u64, [u8; 32])) -> Keys<'_> {
    Keys { path, bytes: *bytes, hash: *hash }
}

/// What the client does with its secret under a server's terms.
pub struct Encryption<'a> {
    secret: &'a SecretKey,
    public: Public,
}

impl Encryption<'_> {
    /// How many inputs are evaluated at once, at most.
    pub fn images(&self) -> usize {
        self.public.images
    }

    /// Encrypts inputs `[n, C, H, W]`, behind the affine map: 1 to [`images`](Self::images) of them.
    ///
    /// # Errors
    /// When a value is beyond the bound that the model was calibrated for.
    pub fn encrypt(&self, inputs: &[f32]) -> Result<Vec<u8>, NetworkError> {
        self.public.encrypt(self.secret, inputs)
    }

    /// Decrypts an answer: rounded logits, those of each input apart. There are as many as there is room for inputs.
    ///
    /// # Errors
    /// When it is malformed, means nothing, or was made with the keys of another client.
    pub fn decrypt(&self, answer: &[u8]) -> Result<Vec<Vec<f64>>, NetworkError> {
        let logits = self.public.decrypt(self.secret, answer)?;
        Ok(logits.chunks_exact(self.public.outputs).map(<[f64]>::to_vec).collect())
    }
}
