//! What this machine takes, as it was measured once: where that is kept, and when it is measured anew.
//!
//! In the cache folder: `machine-KERNEL-THREADS.json` holds the constants, `links/HOST_PORT.json` the link to a server, and
//! `choices/MODEL-PROTOCOL.json` what a server chose for a model under a protocol, so that its clients' hints stay valid from one start to the next.
//! Files that another processor, another version or an accident made are told apart and replaced.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use jaguar_bundle::files;
use jaguar_engine::bundle::ModelId;
use jaguar_engine::calibrate;
use jaguar_plan::machine::{Link, Machine, Placement};
use jaguar_plan::{Choices, PROTOCOL_VERSION, Protocol, planner};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::link::Shape;

/// The version of these files.
const FORMAT: u32 = 2;

/// When to measure this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Calibrate {
    /// If that was not done before.
    #[default]
    Auto,
    /// Now, whatever was measured before.
    Anew,
    /// Never, and forget what was: the default plan, and no seconds.
    Off,
}

/// A kept file: what made it, and its content.
#[derive(Serialize, Deserialize)]
struct Kept<T> {
    format: u32,
    /// The kernels belong to a release, and so do their times.
    release: String,
    protocol: u32,
    content: T,
}

impl<T: Serialize + DeserializeOwned> Kept<T> {
    fn new(content: T) -> Self {
        let release = env!("CARGO_PKG_VERSION").into();
        Self { format: FORMAT, release, protocol: PROTOCOL_VERSION, content }
    }

    /// `Ok(None)` if there is no such file.
    ///
    /// # Errors
    /// Why it cannot be used.
    fn read(path: &Path) -> std::result::Result<Option<T>, String> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        // The head first: another version's content may look different.
        let head: Kept<serde::de::IgnoredAny> =
            serde_json::from_slice(&bytes).map_err(|e| format!("damaged ({e})"))?;
        if (head.format, head.protocol) != (FORMAT, PROTOCOL_VERSION)
            || head.release != env!("CARGO_PKG_VERSION")
        {
            return Err("made by another version".into());
        }
        let kept: Self = serde_json::from_slice(&bytes).map_err(|e| format!("damaged ({e})"))?;
        Ok(Some(kept.content))
    }

    fn write(self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        Ok(files::replace(path, &serde_json::to_vec_pretty(&self)?)?)
    }
}

fn machine_path(cache: &Path) -> PathBuf {
    cache.join(format!("machine-{}-{}.json", calibrate::kernel(), rayon::current_num_threads()))
}

/// What was measured before, if it belongs to this machine and the threads in use.
///
/// # Errors
/// Why it cannot be used.
fn kept_machine(path: &Path) -> std::result::Result<Option<Machine>, String> {
    let Some(machine) = Kept::<Machine>::read(path)? else { return Ok(None) };
    if machine.cpu != calibrate::cpu() {
        return Err(format!("measured on another processor ({})", machine.cpu));
    }
    if machine.kernel != calibrate::kernel() {
        return Err(format!("measured with the {} kernels", machine.kernel));
    }
    if machine.threads != rayon::current_num_threads() {
        return Err(format!("measured with {} threads", machine.threads));
    }
    if !machine.is_sound() || !planner::covers(&machine) {
        return Err("damaged (figures that cannot be)".into());
    }
    Ok(Some(machine))
}

/// This machine's constants, measured now if `calibrate` says so; `None` if it says never.
pub fn machine(calibrate: Calibrate, cache: Option<&Path>) -> Result<Option<Machine>> {
    let path = cache.map(machine_path);
    match calibrate {
        Calibrate::Off => return Ok(None),
        Calibrate::Anew => {}
        Calibrate::Auto => match path.as_deref().map(kept_machine) {
            Some(Ok(Some(machine))) => return Ok(Some(machine)),
            Some(Err(why)) => {
                eprintln!("{}: {why}; measuring anew", path.as_deref().unwrap_or(Path::new("")).display())
            }
            Some(Ok(None)) | None => {}
        },
    }
    eprintln!("measuring this machine, once, for a few seconds (--calibrate off leaves it out)");
    let machine = calibrate::measure()?;
    if let Some(path) = path {
        // A folder that cannot be written to is no reason not to serve.
        if let Err(e) = Kept::new(machine.clone()).write(&path) {
            eprintln!("what was measured could not be kept: {e:#}");
        }
    }
    Ok(Some(machine))
}

/// What was measured before, without measuring.
pub fn known_machine(cache: Option<&Path>) -> Option<Machine> {
    kept_machine(&machine_path(cache?)).ok().flatten()
}

fn link_path(cache: &Path, address: &str) -> PathBuf {
    let name: String =
        address.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
    cache.join("links").join(format!("{name}.json"))
}

/// Keeps the link to a server.
pub fn keep_link(cache: &Path, address: &str, link: Link) -> Result<()> {
    Kept::new(link).write(&link_path(cache, address))
}

/// The link to a server, if it was measured.
pub fn known_link(cache: Option<&Path>, address: &str) -> Option<Link> {
    Kept::<Link>::read(&link_path(cache?, address)).ok().flatten().filter(Link::is_sound)
}

/// What a server chose for this model under this protocol before.
pub fn kept_choices(cache: Option<&Path>, model: ModelId, protocol: Protocol) -> Option<Choices> {
    let path = choices_path(cache?, model, protocol);
    Kept::<Choices>::read(&path).unwrap_or_else(|why| {
        eprintln!("{}: {why}; choosing anew", path.display());
        None
    })
}

/// Keeps what a server chose.
pub fn keep_choices(cache: &Path, model: ModelId, choices: &Choices) -> Result<()> {
    Kept::new(choices.clone()).write(&choices_path(cache, model, choices.protocol))
}

fn choices_path(cache: &Path, model: ModelId, protocol: Protocol) -> PathBuf {
    cache.join("choices").join(format!("{model}-{protocol}.json"))
}

/// A link by name or from a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Between {
    /// Two processes on this machine.
    Loopback,
    /// One of those that can be imitated.
    Shape(Shape),
    /// As measured by `jaguar calibrate --link-to`.
    Measured(Link),
}

/// Reads `loopback`, `lan`, `wan`, or the name of a file that `jaguar calibrate --link-to` wrote.
pub fn parse_between(text: &str) -> std::result::Result<Between, String> {
    match text {
        "loopback" => Ok(Between::Loopback),
        "lan" => Ok(Between::Shape(Shape::Lan)),
        "wan" => Ok(Between::Shape(Shape::Wan)),
        path => match Kept::<Link>::read(Path::new(path)) {
            Ok(Some(link)) if link.is_sound() => Ok(Between::Measured(link)),
            Ok(Some(_)) => Err("a link that carries nothing".into()),
            Ok(None) => Err("neither loopback, lan or wan nor a file".into()),
            Err(why) => Err(why),
        },
    }
}

/// Writes a link where [`parse_between`] can read it.
pub fn write_link(path: &Path, link: Link) -> Result<()> {
    Kept::new(link).write(path)
}

impl Between {
    /// The link itself and who shares the machine. Imitated links run between two processes of one machine.
    pub fn on(&self, machine: &Machine) -> (Link, Placement) {
        match self {
            Self::Loopback => (machine.loopback, Placement::Shared),
            Self::Shape(shape) => (shape.figures(), Placement::Shared),
            Self::Measured(link) => (*link, Placement::Apart),
        }
    }
}

/// The link to a server at `address` as a client sees it: imitated, this machine, or measured before.
pub fn between(cache: Option<&Path>, address: &str, shape: Option<Shape>) -> Option<Between> {
    use std::net::ToSocketAddrs;
    let here = || address.to_socket_addrs().is_ok_and(|mut all| all.all(|a| a.ip().is_loopback()));
    match shape {
        Some(shape) => Some(Between::Shape(shape)),
        None if here() => Some(Between::Loopback),
        None => known_link(cache, address).map(Between::Measured),
    }
}

/// The cache folder, if there is one: `named`, or the user's.
pub fn cache(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_path_buf).or_else(files::default_cache)
}

#[cfg(test)]
mod tests {
    use jaguar_linear::layout::Packing;
    use jaguar_plan::machine::{PerByte, PerCot, PerProduct, RingCosts};

    use super::*;

    fn some_machine() -> Machine {
        let rings = planner::RINGS.iter().map(|&(n, k)| RingCosts {
            ring_dim: n as usize,
            modulus_bits: k,
            ciphertext: 1e-5,
            client_response: vec![(1, 1e-6), (100, 1e-5)],
            server_response: vec![(1, 1e-6)],
            hint_response: 1e-5,
            client_word: 1e-9,
            server_word: 1e-9,
            server_output: 1e-9,
            online: PerProduct::default(),
            a_half: PerProduct::default(),
        });
        Machine {
            cpu: calibrate::cpu(),
            kernel: calibrate::kernel().into(),
            threads: rayon::current_num_threads(),
            speedup: 1.0,
            rings: rings.collect(),
            cots: [PerCot { sent: 1e-8, received: 1e-8 }; 4],
            nonlinear: [[PerByte { client: 1e-9, server: 1e-9, both: 2e-9 }; 3]; 4],
            loopback: Link { bytes_per_second: 1e9, round_trip: 1e-5 },
        }
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("jaguar-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_measured_is_found_again() {
        let folder = Folder::new("constants");
        assert_eq!(known_machine(Some(&folder.0)), None);
        let machine = some_machine();
        Kept::new(machine.clone()).write(&machine_path(&folder.0)).unwrap();
        assert_eq!(known_machine(Some(&folder.0)), Some(machine.clone()));
        // Kept: nothing is measured.
        assert_eq!(super::machine(Calibrate::Auto, Some(&folder.0)).unwrap(), Some(machine));
        assert_eq!(super::machine(Calibrate::Off, Some(&folder.0)).unwrap(), None);
    }

    #[test]
    fn foreign_and_damaged_files_say_what_they_are() {
        let folder = Folder::new("foreign");
        let path = machine_path(&folder.0);
        let refused = |content: Machine| {
            Kept::new(content).write(&path).unwrap();
            kept_machine(&path).unwrap_err()
        };
        let good = some_machine();
        assert!(refused(Machine { cpu: "another".into(), ..good.clone() }).contains("another processor"));
        assert!(refused(Machine { kernel: "old".into(), ..good.clone() }).contains("old kernels"));
        assert!(refused(Machine { threads: 99, ..good.clone() }).contains("99 threads"));
        assert!(refused(Machine { rings: vec![], ..good.clone() }).contains("damaged"));
        assert!(
            refused(Machine { cots: [PerCot { sent: -1.0, received: 0.0 }; 4], ..good.clone() })
                .contains("damaged")
        );
        let mut few = good.clone();
        few.rings.truncate(1);
        assert!(refused(few).contains("damaged"));

        std::fs::write(&path, b"{ \"format\": 1").unwrap();
        assert!(kept_machine(&path).unwrap_err().contains("damaged"));
        let mut old = serde_json::to_value(Kept::new(good)).unwrap();
        old["format"] = 0.into();
        old["content"] = "of another shape".into();
        std::fs::write(&path, old.to_string()).unwrap();
        assert!(kept_machine(&path).unwrap_err().contains("another version"));
    }

    /// What a model's hints are bound to outlasts a start of the server under the other protocol.
    #[test]
    fn each_protocol_keeps_its_choices() {
        let folder = Folder::new("choices");
        let model = ModelId([7; 32]);
        let choices = |protocol, ring_dim| Choices {
            protocol,
            ring_dim,
            modulus_bits: 48,
            packings: vec![Packing::Tight],
            digits: vec![3],
        };
        let kept = [choices(Protocol::Jaguar, 4096), choices(Protocol::Cheetah, 2048)];
        for choices in &kept {
            assert_eq!(kept_choices(Some(&folder.0), model, choices.protocol), None);
            keep_choices(&folder.0, model, choices).unwrap();
        }
        for choices in &kept {
            assert_eq!(kept_choices(Some(&folder.0), model, choices.protocol).as_ref(), Some(choices));
        }
    }

    #[test]
    fn links_by_name_and_by_file() {
        let folder = Folder::new("links");
        let path = folder.0.join("link.json");
        let link = Link { bytes_per_second: 1e7, round_trip: 0.05 };
        write_link(&path, link).unwrap();
        assert_eq!(parse_between(&path.display().to_string()), Ok(Between::Measured(link)));
        assert_eq!(parse_between("wan"), Ok(Between::Shape(Shape::Wan)));
        assert!(parse_between("/no/such/file").is_err());
        write_link(&path, Link { bytes_per_second: 0.0, round_trip: 0.0 }).unwrap();
        assert!(parse_between(&path.display().to_string()).is_err());

        keep_link(&folder.0, "server.example:7447", link).unwrap();
        assert_eq!(known_link(Some(&folder.0), "server.example:7447"), Some(link));
        assert_eq!(known_link(Some(&folder.0), "server.example:7448"), None);
        assert_eq!(between(Some(&folder.0), "127.0.0.1:1", None), Some(Between::Loopback));
        let lan = Some(Between::Shape(Shape::Lan));
        assert_eq!(between(None, "127.0.0.1:1", Some(Shape::Lan)), lan);
    }
}
