//! The client: its folder, and what is done there with its secret. The secret never leaves the folder.
//!
//! | file | what it is |
//! |---|---|
//! | `secret` | the secret key; only its owner may read it |
//! | `keys` | the evaluation keys, which servers get |
//! | `keys.hash` | BLAKE3 of those, in hexadecimal digits: keys without it are not complete |
//! | `client` | 32 random bytes; what servers know this client by is derived from them, for each server another |
//! | `given-*` | that a server had all keys once |
//! | `lock` | held while keys are made |

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use jaguar_graph::bundle::{FileError, files};
use jaguar_ring::prg::os_random;

use crate::evaluation::too_small;
use crate::fhe::{Fhe, Figures, memory};
use crate::session::client::Keys;
use crate::session::{NAME, Terms};
use crate::{Program, ProgramError};

/// What went wrong at the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartyError {
    /// The program.
    #[error(transparent)]
    Program(#[from] ProgramError),
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

/// A client's folder for one parameter set.
pub struct Party {
    fhe: Fhe,
    figures: Figures,
    folder: PathBuf,
    client: [u8; 32],
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

impl Party {
    /// Opens the folder for a parameter set below `folder`; makes a secret and keys if there are none, and says so before
    /// (`making`, with their bytes).
    ///
    /// # Errors
    /// When the set is none of those that the program knows, protects nothing, or this machine is too small; and as the program says.
    pub fn open(
        fhe: Fhe,
        folder: &Path,
        set: &str,
        accept_insecure: bool,
        making: &mut dyn FnMut(u64),
    ) -> Result<Self, PartyError> {
        let figures = fhe.about(set, None)?;
        if figures.is_insecure() && !accept_insecure {
            return Err(PartyError::Insecure(figures.set));
        }
        if let Some([free, _]) = memory()
            && free < figures.client_memory
        {
            return Err(PartyError::TooSmall(too_small("making keys", figures.client_memory, free)));
        }
        // The name is the program's own by now, not the server's.
        let folder = folder.join(NAME).join(&figures.set);
        crate::session::private_folder(&folder).map_err(failed("making", &folder))?;
        let lock = folder.join("lock");
        let file = files::private().truncate(false).open(&lock).map_err(failed("opening", &lock))?;
        file.lock().map_err(failed("waiting for", &lock))?;
        let client = read_or_draw(&folder.join("client"))?;
        let mut party = Self { fhe, figures, folder, client, hash: [0; 32] };
        party.hash = match party.known_hash() {
            Some(hash) => hash,
            None => {
                making(party.figures.keys);
                party.make_keys()?
            }
        };
        Ok(party)
    }

    /// Sizes of the set.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The evaluation keys.
    pub fn keys(&self) -> (PathBuf, u64, [u8; 32]) {
        (self.path("keys"), self.figures.keys, self.hash)
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
    /// When the public part cannot be written.
    pub fn under<'a>(&'a self, terms: &Terms) -> Result<Encryption<'a>, FileError> {
        // Each run has its own: another one may have another server.
        let public = self.path(&format!("public.{}", std::process::id()));
        files::replace(&public, terms.public.as_bytes())?;
        Ok(Encryption { party: self, public, encrypt: None, decrypt: None, outputs: terms.outputs })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The hash of keys that are complete.
    fn known_hash(&self) -> Option<[u8; 32]> {
        let text = std::fs::read_to_string(self.path("keys.hash")).ok()?;
        let hash = blake3::Hash::from_hex(text.trim()).ok()?;
        let keys = std::fs::metadata(self.path("keys")).is_ok_and(|about| about.len() == self.figures.keys);
        (keys && self.path("secret").is_file()).then_some(*hash.as_bytes())
    }

    /// Draws a secret, and makes the keys. What an earlier run left half done is replaced.
    fn make_keys(&self) -> Result<[u8; 32], PartyError> {
        let [secret, keys, hash] = ["secret", "keys", "keys.hash"].map(|name| self.path(name));
        let remove = |path: &Path| match std::fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(FileError::new("removing", path, e)),
            _ => Ok(()),
        };
        // The hash first: it says that the others are complete.
        for path in [&hash, &keys, &secret] {
            remove(path)?;
        }
        let flag = OsStr::new;
        let made = self.fhe.run([
            flag("keygen"),
            flag("--set"),
            flag(&self.figures.set),
            flag("--secret"),
            secret.as_ref(),
            flag("--keys"),
            keys.as_ref(),
        ]);
        if let Err(e) = made {
            // (The program removes what it could not complete; it may have been killed.)
            remove(&keys)?;
            remove(&secret)?;
            return Err(e.into());
        }
        let mut hasher = blake3::Hasher::new();
        let file = File::open(&keys).map_err(failed("reading", &keys))?;
        hasher.update_reader(file).map_err(failed("reading", &keys))?;
        let digest = hasher.finalize();
        files::replace(&hash, digest.to_hex().as_bytes())?;
        Ok(*digest.as_bytes())
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

/// Ciphertexts that an input may take.
const MOST_CIPHERTEXTS: usize = 64;

/// The client's programs, started when they are needed.
pub struct Encryption<'a> {
    party: &'a Party,
    public: PathBuf,
    encrypt: Option<Program>,
    decrypt: Option<Program>,
    outputs: usize,
}

impl Encryption<'_> {
    /// Encrypts an input `[C, H, W]`, behind the affine map.
    ///
    /// # Errors
    /// When a value is beyond the bound that the model was calibrated for; and as the program says.
    pub fn encrypt(&mut self, input: &[f32]) -> Result<Vec<u8>, ProgramError> {
        let raw: Vec<u8> = input.iter().flat_map(|v| v.to_le_bytes()).collect();
        let ciphertext = self.party.figures.input;
        let made = self.ask(true, &raw, MOST_CIPHERTEXTS * ciphertext)?;
        if made.is_empty() || made.len() % ciphertext != 0 {
            let made = made.len();
            return Err(ProgramError::Malformed(format!("{made} bytes for ciphertexts of {ciphertext}")));
        }
        Ok(made)
    }

    /// Decrypts an answer: rounded logits.
    ///
    /// # Errors
    /// When it is malformed, or was made with the keys of another client.
    pub fn decrypt(&mut self, answer: &[u8]) -> Result<Vec<f64>, ProgramError> {
        let raw = self.ask(false, answer, 8 * self.outputs)?;
        let (logits, rest) = raw.as_chunks();
        if logits.len() != self.outputs || !rest.is_empty() {
            return Err(ProgramError::Malformed(format!("{} bytes for {} logits", raw.len(), self.outputs)));
        }
        Ok(logits.iter().map(|b| f64::from_le_bytes(*b)).collect())
    }

    fn ask(&mut self, encrypts: bool, message: &[u8], most: usize) -> Result<Vec<u8>, ProgramError> {
        let (place, command) =
            if encrypts { (&mut self.encrypt, "encrypt") } else { (&mut self.decrypt, "decrypt") };
        // One that has failed is of no use any more.
        let mut program = match place.take() {
            Some(program) => program,
            None => {
                let (party, secret) = (self.party, self.party.path("secret"));
                let flag = OsStr::new;
                let own = [flag(command), flag("--set"), flag(&party.figures.set), flag("--secret")];
                let own = own.into_iter().chain([secret.as_ref(), flag("--public"), self.public.as_ref()]);
                Program::start(party.fhe.command(own))?
            }
        };
        let made = program.ask(message, most, &mut |_, _| ())?;
        *place = Some(program);
        Ok(made)
    }
}

impl Drop for Encryption<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.public);
    }
}
