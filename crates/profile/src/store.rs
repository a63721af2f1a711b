//! What this machine takes, as it was measured once: where that is kept, and when it is measured anew.
//!
//! In the cache folder: `machine-KERNEL-THREADS.json` holds the constants, `links/HOST_PORT.json` the link to a server,
//! and `choices/MODEL-PROTOCOL.json` what a server chose for a model under a protocol, so that its clients' hints stay
//! valid from one start to the next. Files that another processor, another version or an accident made are told apart
//! and replaced.

use std::path::{Path, PathBuf};

use jaguar_graph::bundle::{FileError, ModelId, files};
use jaguar_graph::network::Network;
use jaguar_plan::machine::{Link, Machine};
use jaguar_plan::predict::{Aim, Site};
use jaguar_plan::{BackendId, Choices, Kit, NamedChoices, PROTOCOL_VERSION, PlanError, planner};
use jaguar_ring::Kernel;
use jaguar_ring::cpu::Cpu;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Note, ProfileError, Unusable, measure};

/// The version of these files.
const FORMAT: u32 = 9;

/// When to measure this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum When {
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

impl<T: Serialize> Kept<T> {
    fn new(content: T) -> Self {
        let release = env!("CARGO_PKG_VERSION").into();
        Self { format: FORMAT, release, protocol: PROTOCOL_VERSION, content }
    }

    fn write(self, path: &Path) -> Result<(), ProfileError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| FileError::new("creating", folder, e))?;
        }
        Ok(files::replace(path, &serde_json::to_vec_pretty(&self)?)?)
    }
}

impl<T: DeserializeOwned> Kept<T> {
    /// `Ok(None)` if there is no such file.
    ///
    /// # Errors
    /// Why it cannot be used.
    fn read(path: &Path) -> Result<Option<T>, Unusable> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        // The head first: another version's content may look different.
        let head: Kept<serde::de::IgnoredAny> = serde_json::from_slice(&bytes)?;
        if (head.format, head.protocol) != (FORMAT, PROTOCOL_VERSION)
            || head.release != env!("CARGO_PKG_VERSION")
        {
            return Err(Unusable::Version);
        }
        let kept: Self = serde_json::from_slice(&bytes)?;
        Ok(Some(kept.content))
    }
}

fn machine_path(cpu: Cpu, cache: &Path) -> PathBuf {
    cache.join(format!("machine-{}-{}.json", Kernel::of(cpu).name(), rayon::current_num_threads()))
}

/// What was measured before, if it belongs to this machine and the threads in use. Something that backends of `kit` need may be lacking.
///
/// # Errors
/// Why it cannot be used.
fn kept_machine(cpu: Cpu, kit: &Kit, path: &Path) -> Result<Option<Machine>, Unusable> {
    let Some(machine) = Kept::<Machine>::read(path)? else { return Ok(None) };
    if machine.cpu != measure::processor() {
        return Err(Unusable::Processor(machine.cpu));
    }
    if machine.kernel != Kernel::of(cpu).name() {
        return Err(Unusable::Kernel(machine.kernel));
    }
    if machine.threads != rayon::current_num_threads() {
        return Err(Unusable::Threads(machine.threads));
    }
    if let Some(why) = machine.impossible(kit) {
        return Err(why.into());
    }
    Ok(Some(machine))
}

/// This machine's constants, with what the backends of `kit` need to know, linear layers being computed with the instructions that `cpu`
/// has, and with as many threads as the current pool has; measured now if `when` says so, which takes seconds. If only something is lacking
/// that backends need, that alone is measured. `None` if `when` says never, or if other work spoilt what was measured and `when` does not
/// ask for it. What was measured is kept in the folder `cache`, if there is one and it takes it.
///
/// # Errors
/// When the machine cannot be measured: no sockets, no threads, a backend's probe fails; asked for, when other work has its cores.
pub fn machine(
    cpu: Cpu,
    kit: &Kit,
    when: When,
    cache: Option<&Path>,
    tell: &mut dyn FnMut(Note),
) -> Result<Option<Machine>, ProfileError> {
    let path = cache.map(|cache| machine_path(cpu, cache));
    let kept = match (when, &path) {
        (When::Off, _) => return Ok(None),
        (When::Auto, Some(path)) => kept_machine(cpu, kit, path).unwrap_or_else(|why| {
            tell(Note::MeasuringAnew(path.clone(), why));
            None
        }),
        (When::Anew, _) | (When::Auto, None) => None,
    };
    let measured = match kept {
        Some(machine) if machine.lacks(kit).is_empty() => return Ok(Some(machine)),
        kept => {
            tell(Note::Measuring);
            kept.map_or_else(|| measure::measure(cpu, kit), |machine| measure::complete(&machine, cpu, kit))
        }
    };
    let machine = match usable(when, measured, tell)? {
        Some(machine) => machine,
        None => return Ok(None),
    };
    if let Some(path) = path {
        // A folder that cannot be written to is no reason not to serve.
        if let Err(e) = Kept::new(machine.clone()).write(&path) {
            tell(Note::MachineNotKept(e));
        }
    }
    Ok(Some(machine))
}

/// What was measured, if it is of use. What a busy machine spoilt is an error only for whoever asked for it: others go
/// on without.
fn usable(
    when: When,
    measured: Result<Machine, ProfileError>,
    tell: &mut dyn FnMut(Note),
) -> Result<Option<Machine>, ProfileError> {
    match (when, measured) {
        (When::Auto | When::Off, Err(e @ ProfileError::Disturbed(..))) => {
            tell(Note::Refused(e));
            Ok(None)
        }
        (_, measured) => measured.map(Some),
    }
}

/// What was measured before with these instructions, without measuring. Something that backends of `kit` need may be lacking.
pub fn known_machine(cpu: Cpu, kit: &Kit, cache: Option<&Path>) -> Option<Machine> {
    kept_machine(cpu, kit, &machine_path(cpu, cache?)).ok().flatten()
}

fn link_path(cache: &Path, address: &str) -> PathBuf {
    let name: String =
        address.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
    cache.join("links").join(format!("{name}.json"))
}

/// Keeps the link to the server at `address` (`host:port`, as it was given).
///
/// # Errors
/// When the disk takes no file.
pub fn keep_link(cache: &Path, address: &str, link: Link) -> Result<(), ProfileError> {
    Kept::new(link).write(&link_path(cache, address))
}

/// The link to a server, if it was measured.
pub(crate) fn known_link(cache: Option<&Path>, address: &str) -> Option<Link> {
    Kept::<Link>::read(&link_path(cache?, address)).ok().flatten().filter(Link::is_sound)
}

/// What a server chose for this model with these backends before.
fn kept_choices(path: &Path, allowed: &[BackendId], tell: &mut dyn FnMut(Note)) -> Option<Choices> {
    let read = || Ok(Kept::<NamedChoices>::read(path)?.map(|kept| kept.resolve(allowed, &[])).transpose()?);
    read().unwrap_or_else(|why| {
        tell(Note::ChoosingAnew(path.to_owned(), why));
        None
    })
}

/// What is to be done how, at `site`. What a model's hints are bound to stays as a server chose it when it first served
/// this model with these backends, if the folder `cache` tells. The server has `weight_memory` bytes for weights as
/// polynomials.
///
/// # Errors
/// When the network cannot be planned.
pub fn choose(
    network: &Network,
    model: ModelId,
    allowed: &[BackendId],
    site: &Site<'_>,
    weight_memory: u64,
    cache: Option<&Path>,
    tell: &mut dyn FnMut(Note),
) -> Result<Choices, PlanError> {
    let kept =
        cache.and_then(|cache| kept_choices(&choices_path(cache, model, allowed, site.aim), allowed, tell));
    planner::choose_within(network, allowed, site, kept.as_ref(), weight_memory)
}

/// As [`choose`], for a server: keeps what it chose.
///
/// # Errors
/// As [`choose`].
pub fn choose_to_serve(
    network: &Network,
    model: ModelId,
    allowed: &[BackendId],
    site: &Site<'_>,
    weight_memory: u64,
    cache: Option<&Path>,
    tell: &mut dyn FnMut(Note),
) -> Result<Choices, PlanError> {
    let Some(path) = cache.map(|cache| choices_path(cache, model, allowed, site.aim)) else {
        return planner::choose_within(network, allowed, site, None, weight_memory);
    };
    let kept = kept_choices(&path, allowed, tell);
    let choices = planner::choose_within(network, allowed, site, kept.as_ref(), weight_memory)?;
    if kept.as_ref() != Some(&choices)
        && let Err(e) = Kept::new(choices.clone()).write(&path)
    {
        tell(Note::ChoicesNotKept(e));
    }
    Ok(choices)
}

fn choices_path(cache: &Path, model: ModelId, allowed: &[BackendId], aim: Aim) -> PathBuf {
    let names: Vec<&str> = allowed.iter().map(|backend| backend.name()).collect();
    let aim = match aim {
        Aim::Query => "",
        Aim::Online => "-online",
    };
    cache.join("choices").join(format!("{model}-{}{aim}.json", names.join("+")))
}

/// Writes a link to a file of its own.
///
/// # Errors
/// When the disk takes no file.
pub fn write_link(path: &Path, link: Link) -> Result<(), ProfileError> {
    Kept::new(link).write(path)
}

/// Reads what [`write_link`] wrote; `None` if there is no such file. The figures may be unsound.
pub(crate) fn read_link(path: &Path) -> Result<Option<Link>, Unusable> {
    Kept::<Link>::read(path)
}

/// The cache folder, if there is one: `named`, or the user's.
pub fn cache(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_path_buf).or_else(files::default_cache)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use jaguar_cheetah::{RNS_RINGS, RnsCosts, RnsRings};
    use jaguar_linear::backend::{Backend, LayerError, Layers, Request};
    use jaguar_linear::constants::{Constants, Impossible, Measured, Probe, ProbeError};
    use jaguar_linear::jaguar::{PerProduct, RINGS, RingCosts, Rings};
    use jaguar_linear::layout::Packing;
    use jaguar_plan::machine::{NonlinearKind, PerByte, PerCot, Speedups};

    use super::*;
    use crate::link::{Between, Imitated, NoLink};

    fn silent(_: Note) {}

    fn between(text: &str) -> Result<Between, NoLink> {
        text.parse()
    }

    /// A machine as the standard kit wants it.
    fn some_machine() -> Machine {
        let rings = RINGS.map(|ring| RingCosts {
            ring_dim: ring.ring_dim as usize,
            modulus_bits: ring.modulus_bits,
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
        let rns = RNS_RINGS.map(|(ring_dim, limbs)| RnsCosts {
            ring_dim,
            limbs,
            weights: 1e-6,
            ciphertext: 1e-6,
            zero: 1e-6,
            encryption: 1e-6,
            input: 1e-6,
            product: 1e-6,
            response: 1e-6,
            decryption: 1e-6,
        });
        let mut linear = Measured::default();
        linear.insert(Rings(rings.to_vec())).unwrap();
        linear.insert(RnsRings(rns.to_vec())).unwrap();
        Machine {
            cpu: measure::processor(),
            kernel: Kernel::of(Cpu::detect()).name().into(),
            threads: rayon::current_num_threads(),
            speedups: Speedups::NONE,
            linear,
            making: [[1e-8; 4]; 2],
            cots: [[PerCot { sent: 1e-8, received: 1e-8 }; 3]; NonlinearKind::ALL.len()],
            nonlinear: [[PerByte { client: 1e-9, server: 1e-9, both: 2e-9 }; 3]; NonlinearKind::ALL.len()],
            loopback: Link { bytes_per_second: 1e9, round_trip: 1e-5 },
        }
    }

    /// What the probe of [`Own`] finds.
    static FOUND: Mutex<f64> = Mutex::new(0.0);

    /// A figure of a backend of one's own: at least a second.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Own(f64);

    impl Constants for Own {
        const NAME: &'static str = "own";

        fn measure(_: Cpu) -> Result<Self, ProbeError> {
            Ok(Self(*FOUND.lock().unwrap()))
        }

        fn impossible(&self) -> Option<Impossible> {
            Impossible::time("its time", self.0, 1.0)
        }
    }

    /// That backend, which runs nothing.
    struct OwnBackend;

    impl Backend for OwnBackend {
        fn name(&self) -> &'static str {
            "own"
        }

        fn about(&self) -> &'static str {
            "for tests"
        }

        fn keeps_products(&self) -> bool {
            false
        }

        fn probes(&self) -> Vec<Probe> {
            vec![Probe::of::<Own>()]
        }

        fn plan(&self, _: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
            Err((0, LayerError::Refused("for tests".into())))
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
        let (folder, kit) = (Folder::new("constants"), Kit::standard());
        assert_eq!(known_machine(Cpu::detect(), &kit, Some(&folder.0)), None);
        let machine = some_machine();
        Kept::new(machine.clone()).write(&machine_path(Cpu::detect(), &folder.0)).unwrap();
        assert_eq!(known_machine(Cpu::detect(), &kit, Some(&folder.0)), Some(machine.clone()));
        // Kept: nothing is measured.
        assert_eq!(
            super::machine(Cpu::detect(), &kit, When::Auto, Some(&folder.0), &mut silent).unwrap(),
            Some(machine)
        );
        assert_eq!(
            super::machine(Cpu::detect(), &kit, When::Off, Some(&folder.0), &mut silent).unwrap(),
            None
        );
    }

    /// A backend of one's own brings what it needs to know: that is measured where a kept file lacks it, and nothing else is.
    #[test]
    fn what_a_new_backend_needs_is_measured_besides() {
        let (folder, cpu) = (Folder::new("own"), Cpu::detect());
        let kit = Kit::standard().with([BackendId::new(&OwnBackend)]);
        Kept::new(some_machine()).write(&machine_path(cpu, &folder.0)).unwrap();
        let mut told = Vec::new();
        let mut machine = || {
            super::machine(cpu, &kit, When::Auto, Some(&folder.0), &mut |note| told.push(note.to_string()))
        };
        // Other work spoils it: nothing is used, and the file stays as it was.
        *FOUND.lock().unwrap() = 0.5;
        assert_eq!(machine().unwrap(), None);
        *FOUND.lock().unwrap() = 2.0;
        let found = machine().unwrap().unwrap();
        assert_eq!(found.linear.get(), Some(&Own(2.0)));
        assert_eq!(Machine { linear: some_machine().linear, ..found.clone() }, some_machine());
        assert!(found.lacks(&kit).is_empty());
        // Kept now, for kits with that backend and for others.
        *FOUND.lock().unwrap() = 3.0;
        assert_eq!(machine().unwrap(), Some(found.clone()));
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[1].contains("its time: 500000000.0 ns, where no processor takes less"), "{told:?}");
        assert_eq!(known_machine(cpu, &Kit::standard(), Some(&folder.0)), Some(found));
    }

    #[test]
    fn foreign_and_damaged_files_say_what_they_are() {
        let (folder, kit) = (Folder::new("foreign"), Kit::standard());
        let path = machine_path(Cpu::detect(), &folder.0);
        let refused = |content: Machine| {
            Kept::new(content).write(&path).unwrap();
            kept_machine(Cpu::detect(), &kit, &path).unwrap_err().to_string()
        };
        let good = some_machine();
        assert!(refused(Machine { cpu: "another".into(), ..good.clone() }).contains("another processor"));
        assert!(refused(Machine { kernel: "old".into(), ..good.clone() }).contains("old kernels"));
        assert!(refused(Machine { threads: 99, ..good.clone() }).contains("99 threads"));
        assert!(
            refused(Machine {
                cots: [[PerCot { sent: -1.0, received: 0.0 }; 3]; NonlinearKind::ALL.len()],
                ..good.clone()
            })
            .contains("damaged")
        );
        // As a busy machine once left them.
        let why = refused(Machine {
            cots: [[PerCot { sent: 83e-9, received: 1e-13 }; 3]; NonlinearKind::ALL.len()],
            ..good.clone()
        });
        assert!(
            why.contains("a COT received of relu, digits of 2: 0.0 ns") && why.contains("other work"),
            "{why}"
        );
        for count in [0, 1] {
            let mut few = good.clone();
            let rings = good.linear.get::<Rings>().unwrap().0[..count].to_vec();
            few.linear.insert(Rings(rings)).unwrap();
            assert!(refused(few).contains("damaged"));
            let mut few = good.clone();
            let rings = good.linear.get::<RnsRings>().unwrap().0[..count].to_vec();
            few.linear.insert(RnsRings(rings)).unwrap();
            assert!(refused(few).contains("damaged"));
        }

        std::fs::write(&path, b"{ \"format\": 1").unwrap();
        assert!(kept_machine(Cpu::detect(), &kit, &path).unwrap_err().to_string().contains("damaged"));
        let mut old = serde_json::to_value(Kept::new(good)).unwrap();
        old["format"] = 0.into();
        old["content"] = "of another shape".into();
        std::fs::write(&path, old.to_string()).unwrap();
        assert!(
            kept_machine(Cpu::detect(), &kit, &path).unwrap_err().to_string().contains("another version")
        );
    }

    /// A fit that cannot be is an error for `jaguar measure`; a server starts without it.
    #[test]
    fn a_disturbed_measurement_is_refused_and_said() {
        let mut machine = some_machine();
        machine.cots[0][0] = PerCot { sent: 83e-9, received: 1e-13 };
        let disturbed = || Err(ProfileError::Disturbed(machine.impossible(&Kit::standard()).unwrap(), 3));
        let why = usable(When::Anew, disturbed(), &mut silent).unwrap_err().to_string();
        for part in
            ["a COT received of relu, digits of 2", "0.0 ns", "less than 0.5 ns", "3 times", "jaguar measure"]
        {
            assert!(why.contains(part), "{part}: {why}");
        }
        let mut told = Vec::new();
        let found = usable(When::Auto, disturbed(), &mut |note| told.push(note.to_string())).unwrap();
        assert!(found.is_none() && told.len() == 1 && told[0].contains("as by default"), "{told:?}");
        assert_eq!(usable(When::Auto, Ok(some_machine()), &mut silent).unwrap(), Some(some_machine()));
    }

    /// What a model's hints are bound to outlasts a start of the server under the other protocol.
    #[test]
    fn each_protocol_keeps_its_choices() {
        let folder = Folder::new("choices");
        let model = ModelId([7; 32]);
        let choices = |backend, ring_dim| Choices {
            backends: vec![backend],
            ring_dim,
            modulus_bits: 48,
            packings: vec![Packing::Tight],
            digits: vec![3],
            instances: Default::default(),
            comparison: Default::default(),
            weight_memory: 1 << 30,
            images: 1,
        };
        let kept = [choices(Kit::JAGUAR, 4096), choices(Kit::CHEETAH, 2048)];
        let read = |choices: &Choices| {
            kept_choices(
                &choices_path(&folder.0, model, &choices.backends, Aim::Query),
                &choices.backends,
                &mut silent,
            )
        };
        let path = |choices: &Choices| choices_path(&folder.0, model, &choices.backends, Aim::Query);
        for choices in &kept {
            assert_eq!(read(choices), None);
            Kept::new(choices.clone()).write(&path(choices)).unwrap();
        }
        for choices in &kept {
            assert_eq!(read(choices).as_ref(), Some(choices));
        }
        // A backend that this program has not.
        let mut told = Vec::new();
        let path = path(&kept[0]);
        let found = kept_choices(&path, &[Kit::CHEETAH], &mut |note| told.push(note.to_string()));
        assert!(found.is_none() && told.len() == 1, "{told:?}");
        assert!(told[0].contains("no backend is called 'jaguar'; there are cheetah"), "{told:?}");
    }

    #[test]
    fn links_by_name_and_by_file() {
        let folder = Folder::new("links");
        let path = folder.0.join("link.json");
        let link = Link { bytes_per_second: 1e7, round_trip: 0.05 };
        write_link(&path, link).unwrap();
        assert_eq!(read_link(&path).unwrap(), Some(link));
        assert_eq!(between(&path.display().to_string()).unwrap(), Between::Measured(link));
        assert_eq!(between("wan").unwrap(), Between::Imitated(Imitated::Wan));
        assert!(between("/no/such/file").is_err());
        write_link(&path, Link { bytes_per_second: 0.0, round_trip: 0.0 }).unwrap();
        assert!(between(&path.display().to_string()).is_err());

        keep_link(&folder.0, "server.example:7447", link).unwrap();
        assert_eq!(known_link(Some(&folder.0), "server.example:7447"), Some(link));
        assert_eq!(known_link(Some(&folder.0), "server.example:7448"), None);
        assert_eq!(Between::to(Some(&folder.0), "127.0.0.1:1", None), Some(Between::Loopback));
        let lan = Some(Between::Imitated(Imitated::Lan));
        assert_eq!(Between::to(None, "127.0.0.1:1", Some(Imitated::Lan)), lan);
    }
}
