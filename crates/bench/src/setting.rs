//! What a benchmark says of where and how it measured.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use jaguar_ring::Kernel;
use jaguar_ring::cpu::{Cpu, Level};
use serde::{Deserialize, Serialize};

use jaguar_profile::Imitated;

/// Of which commit this program is, as `build.rs` found it.
const COMMIT: &str = env!("JAGUAR_COMMIT");

/// Whether a record of this program can say of which commit it is.
///
/// # Errors
/// When it cannot: why, and what to do.
pub fn recordable() -> Result<()> {
    of_a_commit(COMMIT)
}

fn of_a_commit(commit: &str) -> Result<()> {
    let whole = commit.len() >= 7 && commit.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    ensure!(
        whole,
        "records say of which commit they are, and this program's is '{commit}': commit what changed, and \
         build it again in its git repository"
    );
    Ok(())
}

/// The conditions of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Of which commit the program is, as git shortens it; `unknown`, or with the word `changed`, where there is none
    /// that has all of it.
    pub commit: String,
    /// The command, as it was given.
    pub command: String,
    pub machine: String,
    pub hardware_threads: usize,
    /// The instruction set of the linear layers.
    pub kernel: String,
    /// How many threads, and of whom.
    pub threads: String,
    pub link: String,
    /// Of so many, the [`statistic`](Self::statistic).
    pub repeats: u32,
    /// What is shown of the repeats.
    #[serde(default = "medians")]
    pub statistic: String,
    /// Threads of this machine that wanted to run, over the minute before and over the last one of the measurement.
    pub load_before: Option<f64>,
    pub load_after: Option<f64>,
}

impl Setting {
    /// Asks the machine; to be called before measuring with the instructions of `cpu`.
    pub fn new(cpu: Cpu, threads: String, link: String, repeats: u32) -> Self {
        Self {
            commit: COMMIT.into(),
            command: command(),
            machine: jaguar_profile::measure::processor(),
            hardware_threads: hardware_threads(),
            kernel: Kernel::of(cpu).name().into(),
            threads,
            link,
            repeats,
            statistic: medians(),
            load_before: load_average(),
            load_after: None,
        }
    }

    /// The least of the repeats is shown.
    pub fn with_least(self) -> Self {
        Self { statistic: "the least".into(), ..self }
    }

    /// The measurement is over.
    pub fn done(&mut self) {
        self.load_after = load_average();
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let load = |load: Option<f64>| load.map_or("?".into(), |load| format!("{load:.1}"));
        format!(
            "commit {}; {}, {} hardware threads, {}; {}; {}; {} of {}; load {} to {}",
            self.commit,
            self.machine,
            self.hardware_threads,
            self.kernel,
            self.threads,
            self.link,
            self.statistic,
            self.repeats,
            load(self.load_before),
            load(self.load_after)
        )
    }
}

fn medians() -> String {
    "medians".into()
}

/// The link in words; `open` is what there is without an imitated one.
pub fn link_text(shape: Option<Imitated>, open: &str) -> String {
    shape.map_or(open.to_owned(), |shape| {
        let link = shape.link();
        format!(
            "imitated {}: {} MB/s, {} ms round trip",
            shape.name().to_uppercase(),
            link.bytes_per_second / 1e6,
            2e3 * link.one_way.as_secs_f64()
        )
    })
}

/// The command line, without folders and without where the figures go.
fn command() -> String {
    let mut words = vec!["jaguar-bench".to_owned()];
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if ["--json", "--plot"].contains(&arg.as_str()) {
            args.next();
        } else if !arg.starts_with("--json=") && !arg.starts_with("--plot=") {
            words.push(arg.rsplit('/').next().unwrap_or_default().to_owned());
        }
    }
    words.join(" ")
}

pub fn hardware_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Which instructions the linear layers use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Instructions {
    /// The best that the processor has.
    #[default]
    Best,
    /// 256-bit vectors.
    Avx2,
    /// None: plain Rust.
    Scalar,
}

impl Instructions {
    /// What linear layers may be computed with.
    ///
    /// # Errors
    /// When the processor cannot.
    pub fn cpu(self) -> Result<Cpu> {
        let cpu = Cpu::detect();
        match self {
            Self::Best => Ok(cpu),
            Self::Scalar => Ok(Cpu::scalar()),
            Self::Avx2 => {
                let cpu = cpu.limited_to(Level::Avx2);
                ensure!(Kernel::of(cpu) != Kernel::SCALAR, "this processor has no AVX2");
                Ok(cpu)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_commit_has_is_not_recorded() {
        assert!(of_a_commit("816950f").is_ok());
        for none in ["unknown", "816950f, changed", ""] {
            let why = of_a_commit(none).unwrap_err().to_string();
            assert!(why.contains(&format!("'{none}'")) && why.contains("commit what changed"), "{why}");
        }
    }
}
