//! Models, rules and limits, read again while the server runs (SIGHUP).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;

use anyhow::{Context, Result};
use jaguar::reports::terminal::in_one_line;
use jaguar::serve::metrics::Metrics;
use jaguar::serve::{Control, Counts, Models, Named};
use tracing::{error, info, warn};

use super::memory::ForSessions;
use super::models::{Builder, Built, rules, specs};
use super::settings::{Effective, Settings};
use crate::log::TARGET;

/// Options that a reload puts in force. Those of models count too; others take a restart.
const RELOADED: [&str; 18] = [
    "model-files",
    "max-clients",
    "max-clients-per-address",
    "max-sessions-per-address-and-hour",
    "max-sessions-per-client",
    "max-queries-per-client-and-day",
    "new-hints-per-address-and-hour",
    "max-memory",
    "max-session-bytes",
    "max-idle",
    "max-stalled",
    // Of models.
    "hide-for",
    "backends",
    "reveal",
    "weight-memory",
    "lpn-noise",
    "plan-for",
    "prefer",
];

/// Puts in force what has changed in the files since the start.
pub struct Reloader {
    /// The command line's words behind `jaguar serve`.
    pub words: Vec<OsString>,
    /// The options as they counted at the start.
    pub first: Vec<Effective>,
    pub builder: Builder,
    pub models: Arc<Models>,
    pub control: Control,
    pub metrics: Arc<Metrics>,
    pub counts: Option<Counts>,
    pub sessions: Arc<ForSessions>,
}

impl Reloader {
    /// Reads everything again. What cannot be read stays as it is; the log and the metrics say so.
    pub fn reload(&mut self) {
        if let Err(e) = self.try_reload() {
            self.metrics.reloaded(false);
            let reason = in_one_line(e.as_ref());
            error!(
                target: TARGET, event = "reload-failed", reason,
                "nothing is reloaded: {reason}; what was there before stays"
            );
        }
    }

    fn try_reload(&mut self) -> Result<()> {
        let settings = Settings::load(&self.words)?;
        let specs = specs(&settings)?;
        let said = settings.args.bounds.max_memory;
        let limits = settings.args.bounds.limits(said.unwrap_or_else(|| self.sessions.bytes()));
        // First, so that nobody gets a model that is not for everybody any more.
        let unwritten = self.control.set_rules(rules(&settings, &specs)?, self.counts.clone())?;
        super::tell_unwritten(unwritten.as_ref());
        self.control.set_limits(limits);
        let sound = renew_certificate(&self.control);
        let mut served: Vec<Arc<Named>> = Vec::new();
        let (mut new, mut same, mut failed) = (0, 0, 0);
        for spec in &specs {
            let before = self.models.find(&spec.name);
            let built = self.builder.build(spec, before.as_deref(), said.unwrap_or(u64::MAX));
            let built = built.with_context(|| spec.file.display().to_string());
            match (built, before) {
                (Ok(Built::New(model)), _) => {
                    // The one that was there serves meanwhile.
                    let seconds = model.prepare().as_secs_f64();
                    let (name, id) = (model.name(), model.service().model());
                    info!(
                        target: TARGET, event = "model", network = name, model = %id, seconds,
                        "model {name} is new ({id}); prepared in {seconds:.2} s",
                    );
                    served.push(model);
                    new += 1;
                }
                (Ok(Built::Same), before) => {
                    served.extend(before);
                    same += 1;
                }
                (Err(e), before) => {
                    let (name, reason) = (&spec.name, in_one_line(e.as_ref()));
                    let then = match before {
                        Some(_) => "the one that was there before is served",
                        None => "it is not served",
                    };
                    error!(
                        target: TARGET, event = "model-failed", network = name, reason,
                        "model {name} is not reloaded: {reason}; {then}",
                    );
                    served.extend(before);
                    failed += 1;
                }
            }
        }
        let names: BTreeSet<&str> = served.iter().map(|model| model.name()).collect();
        let gone = self.models.now().iter().filter(|model| !names.contains(model.name())).count();
        self.builder.keep_only(&names);
        self.models.replace(served.iter().cloned());
        for changed in self.unreloadable(&settings) {
            warn!(target: TARGET, event = "takes-restart", reason = changed, "{changed} has changed: that takes a restart");
        }
        self.metrics.reloaded(sound && failed == 0);
        info!(
            target: TARGET, event = "reloaded", new, same, gone, failed,
            "reloaded: {new} models are new, {same} as before, {gone} gone, {failed} failed",
        );
        Ok(())
    }

    /// Options that have other values than at the start, and would need a restart.
    fn unreloadable(&self, settings: &Settings) -> Vec<String> {
        let before = |key: &str| self.first.iter().find(|it| it.key == key).map(|it| &it.texts);
        let changed = settings.effective.iter().filter(|it| before(&it.key) != Some(&it.texts));
        let keys = changed.map(|it| it.key.clone());
        keys.filter(|key| !RELOADED.contains(&key.as_str())).collect()
    }
}

/// Has connections that come from now on get the certificate that the files hold now. Says whether the files are sound; else the one
/// that was there before stays.
pub fn renew_certificate(control: &Control) -> bool {
    let Some(tls) = control.tls() else { return true };
    match tls.renew() {
        Ok(false) => true,
        Ok(true) => {
            let fingerprint = tls.fingerprint();
            info!(
                target: TARGET, event = "tls", %fingerprint,
                "the certificate is new; clients know this server by --pin {fingerprint}",
            );
            true
        }
        Err(e) => {
            let reason = in_one_line(&e);
            error!(
                target: TARGET, event = "certificate-failed", reason,
                "the certificate is not reloaded: {reason}; the one that was there before is shown",
            );
            false
        }
    }
}
