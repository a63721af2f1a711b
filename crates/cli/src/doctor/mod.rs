//! `jaguar doctor`: what would keep a server or a client from working here, and what to do about it.
//!
//! - [`machine`]: the processor, the clock, memory, handles.
//! - [`files`]: the cache folder, keys, certificates, tokens, the disk.
//! - [`model`]: a compiled model that is to be served here.
//! - [`server`]: a server, as a client reaches it.

mod date;
mod files;
mod machine;
mod model;
mod server;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use jaguar::machine::store;
use jaguar::reports::terminal::say;
use serde::Serialize;

use crate::reach::{SERVER, Trust};

/// Groups of the options in `--help`.
const SERVING: &str = "A server here";
const MACHINE: &str = "This machine";

#[derive(clap::Args)]
#[command(next_help_heading = SERVING)]
pub struct Args {
    /// A compiled model that is to be served here.
    ///
    /// Whether it can be read, and fits this machine's memory.
    #[arg(help_heading = None)]
    model: Option<PathBuf>,
    /// A server to look at, as a client reaches it.
    ///
    /// Its address, TLS, certificate and version, and the link to it (up to 18 MB each way).
    #[arg(long, help_heading = SERVER, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    trust: Trust,
    /// The certificate (PEM) that a server here will show.
    #[arg(long, help_heading = SERVING, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// That certificate's key (PEM).
    #[arg(long, help_heading = SERVING, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The tokens that a server here will read.
    #[arg(long, help_heading = SERVING, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// For hints, figures and a certificate (default: the user's cache folder).
    #[arg(long, help_heading = MACHINE, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Threads that compute linear layers (0: one per core).
    #[arg(long, help_heading = MACHINE, default_value_t = 0, value_parser = jaguar::reports::terminal::thread_count)]
    threads: usize,
    /// Print everything as one JSON object.
    #[arg(long, help_heading = MACHINE)]
    json: bool,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// All is as it should be.
    Ok,
    /// It works, but worse than it could, or not for long.
    Warn,
    /// A server or a client will not work here.
    Fail,
}

/// What was found by one check.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// What a person can do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// What all checks found, in their order.
#[derive(Debug, Default, Serialize)]
struct Findings {
    findings: Vec<Finding>,
    warnings: usize,
    failures: usize,
}

impl Findings {
    fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.findings.push(Finding { check, verdict: Verdict::Ok, found: found.into(), advice: None });
    }

    fn warn(&mut self, check: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        self.warnings += 1;
        let (found, advice) = (found.into(), Some(advice.into()));
        self.findings.push(Finding { check, verdict: Verdict::Warn, found, advice });
    }

    fn fail(&mut self, check: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        self.failures += 1;
        let (found, advice) = (found.into(), Some(advice.into()));
        self.findings.push(Finding { check, verdict: Verdict::Fail, found, advice });
    }

    fn show(&self) {
        let width = self.findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        for Finding { check, verdict, found, advice } in &self.findings {
            let verdict = match verdict {
                Verdict::Ok => "ok  ",
                Verdict::Warn => "WARN",
                Verdict::Fail => "FAIL",
            };
            say!("{verdict}  {check:width$}  {found}");
            if let Some(advice) = advice {
                say!("{:1$}-> {advice}", "", width + 8);
            }
        }
    }
}

/// Where hints and keys are kept, if that is known.
struct Cache<'a>(Option<&'a Path>);

pub fn run(args: &Args) -> Result<()> {
    jaguar::reports::terminal::set_threads(args.threads)?;
    let mut findings = Findings::default();
    let cache = store::cache(args.cache.as_deref());
    let cache = Cache(cache.as_deref());
    machine::look(&cache, &mut findings);
    let certificate = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
    files::look(&cache, &args.trust, certificate, args.tokens.as_deref(), &mut findings);
    if let Some(path) = &args.model {
        model::look(path, &mut findings);
    }
    if let Some(address) = &args.server {
        server::look(address, args, &cache, &mut findings);
    }
    if args.json {
        say!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        findings.show();
    }
    ensure!(findings.failures == 0, "{} of {} checks failed", findings.failures, findings.findings.len());
    Ok(())
}
