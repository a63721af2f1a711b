//! Keys on disk: what a client makes once, and a server reads before it evaluates.
//!
//! | file | what is in it, in this order |
//! |---|---|
//! | secret | a secret key ([`jaguar_ckks::wire`]). Only its owner may read it |
//! | keys | 64 bytes that say what it is and of which set; the keys of a bootstrap; those of packing; a public key |
//!
//! No length is written: all follow from the set. A client holds one key at a time, so what it makes it writes as a
//! stream, and hashes meanwhile. A server reads a stream, too: it holds all keys, with both halves of each, and nothing
//! twice.
//!
//! **Sizes.** One half of each key goes as a seed. Each key has the primes of the highest level at which it is used, and as many special
//! primes as the switch there needs ([`key_specs`](crate::network::key_specs)). A test states the bytes.
//!
//! **Who learns what.** The keys are public but for what RLWE and circular security hide ([`jaguar_ckks::KeyGenerator`]). The secret and
//! the ephemeral one are wiped from memory; the ephemeral one is never written.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jaguar_ckks::{Context, EvaluationKeys, KeyGenerator, SecretKey, wire};
use jaguar_graph::bundle::{FileError, files};
use jaguar_ring::prg::Prg;
use zeroize::Zeroizing;

use crate::network::{KeySpecs, Keys, NetworkError};

const HEADER_BYTES: usize = 64;
const MAGIC: &[u8] = b"jaguar convfhe keys 2 ";

/// What is read or written at once.
const BUFFER: usize = 1 << 20;

/// What went wrong with keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// What is in a file is not what should be.
    #[error("spoilt {what}: {why}")]
    Spoilt {
        /// Which: "keys" or "secret".
        what: &'static str,
        /// What is wrong, and where.
        why: String,
    },
    /// Keys cannot be made so.
    #[error("making keys: {0}")]
    Make(jaguar_ckks::Error),
    /// No keys serve the set.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Somebody asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Whether a file begins as keys of this set do.
pub(crate) fn are_keys(context: &Context, path: &Path) -> bool {
    let mut found = [0; HEADER_BYTES];
    File::open(path).and_then(|mut file| file.read_exact(&mut found)).is_ok() && found == header(context)
}

/// Bytes of the file of these keys.
///
/// # Errors
/// If a key is none of the set's.
pub fn file_bytes(context: &Context, specs: &KeySpecs) -> Result<u64, KeyError> {
    Ok((HEADER_BYTES + specs.bytes(context)?) as u64)
}

/// Bytes of memory that [`make`] takes, estimated: the largest key with what it is made from, both secrets, and the
/// ring's tables.
///
/// # Errors
/// If a key is none of the set's.
pub fn client_memory(context: &Context, specs: &KeySpecs) -> Result<u64, KeyError> {
    let each: Result<Vec<usize>, _> = specs.all().map(|spec| wire::key_memory(context, spec)).collect();
    let largest = each.map_err(KeyError::Make)?.into_iter().max().unwrap_or(0) as u64;
    let params = context.params();
    let limbs = (params.primes().len() + params.special().len()) as u64;
    let polynomial = limbs * params.n() as u64 * 8;
    // Tables of the transforms have two numbers a root, forward and back.
    Ok(2 * largest + 12 * polynomial + (64 << 20))
}

fn header(context: &Context) -> [u8; HEADER_BYTES] {
    let mut header = [b' '; HEADER_BYTES];
    let name = context.params().name().as_bytes();
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    header[MAGIC.len()..MAGIC.len() + name.len()].copy_from_slice(name);
    header[HEADER_BYTES - 1] = b'\n';
    header
}

/// Hashes what goes through.
struct Hashed<F> {
    file: F,
    hasher: blake3::Hasher,
}

impl<F> Hashed<F> {
    fn new(file: F) -> Self {
        Self { file, hasher: blake3::Hasher::new() }
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

/// Draws a secret and writes it to a file that only its owner may read, in place of one that is there.
///
/// # Errors
/// When the disk fails.
pub fn make_secret(context: &Arc<Context>, path: &Path) -> Result<SecretKey, KeyError> {
    let secret = SecretKey::generate(context);
    // As large as it will be: nothing moves, so nothing stays behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(wire::secret_bytes(context)));
    wire::write_secret(&secret, &mut *bytes).map_err(KeyError::Make)?;
    files::replace(path, &bytes)?;
    Ok(secret)
}

/// Reads what [`make_secret`] wrote.
///
/// # Errors
/// When the file cannot be read, or holds no secret of this set.
pub fn read_secret(context: &Arc<Context>, path: &Path) -> Result<SecretKey, KeyError> {
    let spoilt = |why: String| KeyError::Spoilt { what: "secret", why };
    let mut file = open(path)?;
    let length = file.metadata().map_err(|e| FileError::new("reading", path, e))?.len();
    let needed = wire::secret_bytes(context) as u64;
    if length != needed {
        return Err(spoilt(format!("{length} bytes, not {needed}")));
    }
    wire::read_secret(context, &mut file).map_err(|e| damaged("secret", path, "it", e))
}

/// Makes keys and writes them to a file that only its owner may read. Returns its BLAKE3 hash. One key is in
/// memory at a time.
///
/// # Errors
/// When the disk fails: what was written is removed then.
pub fn make(
    context: &Arc<Context>,
    secret: &SecretKey,
    specs: &KeySpecs,
    path: &Path,
) -> Result<[u8; 32], KeyError> {
    let failed = |e| FileError::new("writing keys to", path, e);
    let write = || -> Result<[u8; 32], KeyError> {
        let file = files::private().truncate(true).open(path).map_err(failed)?;
        let mut to = Hashed::new(BufWriter::with_capacity(BUFFER, &file));
        write(context, secret, specs, &mut to).map_err(|e| match e {
            KeyError::Make(jaguar_ckks::Error::Io { source, .. }) => failed(source).into(),
            other => other,
        })?;
        let hash = to.hasher.finalize();
        drop(to);
        file.sync_all().map_err(failed)?;
        Ok(*hash.as_bytes())
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })
}

/// Makes keys and writes them, [`file_bytes`] in all.
fn write(
    context: &Arc<Context>,
    secret: &SecretKey,
    specs: &KeySpecs,
    to: &mut dyn Write,
) -> Result<(), KeyError> {
    let io = |source| KeyError::Make(jaguar_ckks::Error::Io { what: "keys", source });
    to.write_all(&header(context)).map_err(io)?;
    let mut generator = KeyGenerator::new(secret);
    for spec in specs.all() {
        let key = generator.key(spec).map_err(KeyError::Make)?;
        wire::write_key(context, &key, to).map_err(KeyError::Make)?;
    }
    let public = secret.public_key(specs.public, &mut Prg::from_os()).map_err(KeyError::Make)?;
    wire::write_public_key(&public, to).map_err(KeyError::Make)?;
    to.flush().map_err(io)
}

/// Reads keys out of a file whose BLAKE3 is `hash`. `stop` is looked at before each.
///
/// # Errors
/// When the file cannot be read, or holds anything but these keys of this set: [`KeyError::Spoilt`].
pub fn read(
    context: &Arc<Context>,
    specs: &KeySpecs,
    path: &Path,
    hash: &[u8; 32],
    stop: &AtomicBool,
) -> Result<Keys, KeyError> {
    let spoilt = |why: String| KeyError::Spoilt { what: "keys", why };
    let file = open(path)?;
    let length = file.metadata().map_err(|e| FileError::new("reading", path, e))?.len();
    let needed = file_bytes(context, specs)?;
    if length != needed {
        return Err(spoilt(format!("{length} bytes, not the {needed} of set {}", context.params().name())));
    }
    let mut from = BufReader::with_capacity(BUFFER, Hashed::new(file));
    let (mut found, expected) = ([0; HEADER_BYTES], header(context));
    from.read_exact(&mut found).map_err(|e| FileError::new("reading", path, e))?;
    if found != expected {
        let [found, expected] = [found, expected].map(|bytes| bytes.escape_ascii().to_string());
        return Err(spoilt(format!("they begin with {found:?}, not with {expected:?}")));
    }
    let mut keys = [EvaluationKeys::new(), EvaluationKeys::new()];
    let mut place = 0;
    for (keys, part) in keys.iter_mut().zip([&specs.circuit, &specs.packing]) {
        for spec in part {
            if stop.load(Ordering::Relaxed) {
                return Err(KeyError::Stopped);
            }
            let key = wire::read_key(context, spec, &mut from);
            keys.insert(key.map_err(|e| damaged("keys", path, &format!("key {place}"), e))?);
            place += 1;
        }
    }
    let public = wire::read_public_key(context, &mut from);
    let public = public.map_err(|e| damaged("keys", path, "the public key", e))?;
    if public.level() != specs.public {
        return Err(spoilt(format!("a public key of level {}, not {}", public.level(), specs.public)));
    }
    // All bytes went through: there are no more than were asked for.
    if from.into_inner().hasher.finalize() != *hash {
        return Err(spoilt("their bytes are not those that came: another hash".into()));
    }
    let [circuit, packing] = keys;
    Ok(Keys { circuit, packing, public })
}

fn open(path: &Path) -> Result<File, FileError> {
    File::open(path).map_err(|e| FileError::new("opening", path, e))
}

/// What the library says of bytes that it read.
fn damaged(what: &'static str, path: &Path, place: &str, e: jaguar_ckks::Error) -> KeyError {
    match e {
        jaguar_ckks::Error::Io { source, .. } if source.kind() != ErrorKind::UnexpectedEof => {
            FileError::new("reading", path, source).into()
        }
        other => KeyError::Spoilt { what, why: format!("{place}: {other}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::key_specs;
    use crate::sets::Set;
    use jaguar_ckks::circuits::{self, COMPOSITES, Evaluator};
    use jaguar_ckks::packing::Packer;
    use jaguar_ckks::{KeyedEvaluator, Parameters, answer};
    use jaguar_ring::cpu::Cpu;
    use std::path::PathBuf;
    use std::sync::LazyLock;

    /// A folder that goes when the test ends.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("jaguar-keys-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn join(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn context(params: &Parameters) -> Arc<Context> {
        Context::new(Cpu::detect(), params.clone(), 1).unwrap()
    }

    static GO_ON: AtomicBool = AtomicBool::new(false);

    /// Made once: the set, its list, a secret, and the bytes of both files.
    struct Made {
        context: Arc<Context>,
        specs: KeySpecs,
        secret: SecretKey,
        keys: Vec<u8>,
        hash: [u8; 32],
    }

    static MADE: LazyLock<Made> = LazyLock::new(|| {
        let folder = Folder::new("made");
        let set = Set::by_name("insecure-n10").unwrap();
        let context = context(set.params());
        let specs = key_specs(&context).unwrap();
        let [secret, keys] = ["secret", "keys"].map(|name| folder.join(name));
        make_secret(&context, &secret).unwrap();
        // What is in the file serves, not what is in memory.
        let read = read_secret(&context, &secret).unwrap();
        let hash = make(&context, &read, &specs, &keys).unwrap();
        #[cfg(unix)]
        for path in [&secret, &keys] {
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
        let keys = std::fs::read(keys).unwrap();
        Made { context, specs, secret: read, keys, hash }
    });

    #[test]
    fn a_server_computes_with_keys_from_a_file() {
        let Made { context, specs, secret, keys, hash } = &*MADE;
        assert_eq!(keys.len() as u64, file_bytes(context, specs).unwrap());
        assert_eq!(*hash, *blake3::hash(keys).as_bytes());
        let folder = Folder::new("server");
        let path = folder.join("keys");
        std::fs::write(&path, keys).unwrap();
        let server = read(context, specs, &path, hash, &GO_ON).unwrap();

        let values: Vec<f64> = (0..1024).map(|v| f64::from(v) / 1024.0).collect();
        let scale = 30f64.exp2();
        let plaintext = context.encode_coefficients(&values, 0, scale).unwrap();
        let ct = server.public.encrypt(&plaintext, &mut Prg::from_os()).unwrap();
        let found = secret.decrypt(&ct);
        assert!(found.iter().zip(&values).all(|(x, y)| (x - y).abs() < 1e-5));

        // Coefficient 0 alone, and then up and down again by way of the ephemeral secret.
        let packer = Packer::new(context, server.packing, answer::LEVEL).unwrap();
        let first = packer.trace(&ct, 10).unwrap();
        let evaluator = KeyedEvaluator::new(context, server.circuit);
        let raised = evaluator.raise(&first, 1, 512).unwrap();
        let low = evaluator.drop_to(&raised, 0).unwrap();
        let found = secret.decrypt(&low);
        assert!(found.iter().all(|x| (x / scale).abs() < 1e-4), "{:?}", &found[..4]);
    }

    #[test]
    fn keys_that_are_none_are_refused_and_it_is_said_why() {
        let Made { context, specs, keys, hash, .. } = &*MADE;
        let folder = Folder::new("spoilt");
        let path = folder.join("keys");
        let refused = |bytes: &[u8], part: &str| {
            std::fs::write(&path, bytes).unwrap();
            match read(context, specs, &path, hash, &GO_ON) {
                Err(e @ KeyError::Spoilt { .. }) => {
                    let said = e.to_string();
                    assert!(said.starts_with("spoilt keys: ") && said.contains(part), "{said}");
                }
                Err(e) => panic!("{part}: {e}"),
                Ok(_) => panic!("{part}: taken"),
            }
        };
        refused(&[], "0 bytes, not the ");
        refused(&keys[..keys.len() - 1], " of set insecure-n10");
        refused(&[&keys[..], b"x"].concat(), "bytes, not the ");
        let spoil = |at: usize, value: u8| {
            let mut spoilt = keys.clone();
            spoilt[at..(at + 50).min(keys.len())].fill(value);
            spoilt
        };
        refused(&spoil(22, b'y'), "they begin with");
        refused(&spoil(64, b'x'), "key 0: an evaluation key: it begins with");
        let second = 64 + wire::key_bytes(context, &specs.circuit[0]).unwrap();
        refused(&spoil(second + 48, 7), "key 1: an evaluation key: it is not the key");
        refused(&spoil(second - 50, 0xff), "key 0: an evaluation key: coefficient ");
        refused(&spoil(keys.len() - 50, 0xff), "the public key: a public key: coefficient ");
        // What is a key all the same, but another one.
        let mut other = keys.clone();
        other[second - 1] ^= 1;
        refused(&other, "another hash");

        std::fs::write(&path, keys).unwrap();
        let stop = AtomicBool::new(true);
        assert!(matches!(read(context, specs, &path, hash, &stop), Err(KeyError::Stopped)));
        let none = read(context, specs, &folder.join("none"), hash, &GO_ON);
        assert!(matches!(none, Err(KeyError::File(_))));
    }

    #[test]
    fn secrets_that_are_none_are_refused() {
        let context = &MADE.context;
        let folder = Folder::new("secret");
        let path = folder.join("secret");
        make_secret(context, &path).unwrap();
        let good = std::fs::read(&path).unwrap();
        make_secret(context, &path).unwrap();
        assert!(good != std::fs::read(&path).unwrap(), "each is drawn anew");
        let mut digit = good.clone();
        digit[1000] = 3;
        let mut other = good.clone();
        other[20] ^= 1;
        for (bytes, part) in
            [(&good[1..], "1071 bytes, not 1072"), (&digit, "not -1, 0 or 1"), (&other, "begins")]
        {
            std::fs::write(&path, bytes).unwrap();
            let said = read_secret(context, &path).map(drop).unwrap_err().to_string();
            assert!(said.starts_with("spoilt secret: ") && said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_disk_that_fails_leaves_nothing() {
        let Made { context, specs, secret, .. } = &*MADE;
        let folder = Folder::new("disk");
        let path = folder.join("no").join("keys");
        assert!(matches!(make(context, secret, specs, &path), Err(KeyError::File(_))));
        assert!(!path.exists());
    }

    #[test]
    fn every_polynomial_for_relu_takes_the_same_keys() {
        for name in Set::names() {
            let set = Set::by_name(&name).unwrap();
            let context = context(set.params());
            let specs = key_specs(&context).unwrap();
            let params = set.params();
            for relu in COMPOSITES.into_iter().filter(|relu| relu.levels() <= set.relu_levels()) {
                let moduli = (0..=params.top()).map(|level| params.modulus(level)).collect();
                let plan = circuits::Plan::new(params.values(), relu);
                let counts = plan.counts(params.n() / 2, moduli).unwrap();
                assert_eq!(context.circuit_keys(&counts), specs.circuit, "{name}, {}", relu.name);
            }
        }
    }

    #[test]
    fn keys_have_so_many_bytes() {
        // The goal is 1.2 GB.
        for (name, bytes) in [("n16", 1_181_291_849), ("n16-relu8", 843_314_505), ("n16-full", 1_161_729_249)]
        {
            let context = context(Set::by_name(name).unwrap().params());
            let specs = key_specs(&context).unwrap();
            assert_eq!(file_bytes(&context, &specs).unwrap(), bytes);
            assert!(client_memory(&context, &specs).unwrap() < 2 << 30);
        }
    }

    /// The most memory that the process had, in bytes.
    #[cfg(target_os = "linux")]
    fn peak() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Makes and reads 1.2 GB. The process must do nothing else: `cargo test --release -p jaguar-convfhe --lib little_memory -- --ignored
    /// --nocapture`.
    #[cfg(target_os = "linux")]
    #[test]
    #[ignore = "takes 1.2 GB of disk and 3 GB of memory"]
    fn keys_of_the_default_set_are_made_in_little_memory() {
        let folder = Folder::new("full");
        let set = Set::by_name("n16").unwrap();
        let context = context(set.params());
        let specs = key_specs(&context).unwrap();
        let [secret, path] = ["secret", "keys"].map(|name| folder.join(name));
        let secret = make_secret(&context, &secret).unwrap();
        let begin = std::time::Instant::now();
        let hash = make(&context, &secret, &specs, &path).unwrap();
        let (made, estimate) = (peak(), client_memory(&context, &specs).unwrap());
        println!("made in {:?}: {made} bytes of memory at most, {estimate} by the estimate", begin.elapsed());
        assert!(made < estimate);
        let begin = std::time::Instant::now();
        let keys = read(&context, &specs, &path, &hash, &GO_ON).unwrap();
        let (read, needed) = (peak(), specs.memory(&context).unwrap());
        println!("read in {:?}: {read} bytes of memory at most, {needed} of them keys", begin.elapsed());
        drop(keys);
    }
}
