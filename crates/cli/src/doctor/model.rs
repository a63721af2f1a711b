//! A compiled model that is to be served here.

use std::path::Path;

use jaguar::bundle::Bundle;
use jaguar::plan::memory::{Load, Side};
use jaguar::plan::{Choices, Plan, PlanError};

use super::Findings;
use crate::kit;
use crate::notes::warning_of_memory;

pub(super) fn look(path: &Path, findings: &mut Findings) {
    let bundle = match Bundle::read(path, kit::kit().operators()) {
        Ok(bundle) => bundle,
        Err(e) => {
            findings.fail("model", e.to_string(), "compile it anew with this release: jaguar compile");
            return;
        }
    };
    let network = &bundle.model.network;
    findings.ok("model", format!("{} (model {}), {}", network.name, bundle.id(), path.display()));
    #[cfg(unix)]
    readers(path, findings);
    let plan: Result<Plan, PlanError> =
        Choices::among(network, &kit::standard()).and_then(|choices| Plan::new(network, choices));
    let plan = match plan {
        Ok(plan) => plan,
        Err(e) => {
            findings.fail("plan", e.to_string(), "jaguar plan MODEL shows what each backend says");
            return;
        }
    };
    let load = Load::single(jaguar::reports::terminal::threads());
    match warning_of_memory(network, &plan, load, Side::Server) {
        Some(warning) => {
            findings.warn("model memory", warning, "jaguar plan MODEL --clients N shows what it needs")
        }
        None => findings.ok("model memory", "one client's query fits (jaguar plan MODEL --clients N: more)"),
    }
}

/// The compiled model holds the weights.
#[cfg(unix)]
fn readers(path: &Path, findings: &mut Findings) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        let found =
            format!("{}: others may use it (mode {mode:o}), and it holds the weights", path.display());
        findings.warn("model secrecy", found, format!("chmod 600 {}", path.display()));
    }
}
