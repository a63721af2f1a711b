//! `--accept-sign-leakage`: comparisons that leak, which both parties must have asked for.

use anyhow::Result;
use jaguar_engine::client::Limits;
use jaguar_graph::network::Network;
use jaguar_plan::{Allowed, Choices, Plan};

/// Whether comparisons may leak.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct AcceptSignLeakage {
    /// INSECURE, for measurements: ReLUs and max-pools compare by Fregata's PMax.
    ///
    /// The client learns the sign of every value that is compared and its size but for a few possible ones, and so the weights, asking
    /// each image once; the server learns the signs, and so much of the image. Client and server must both ask for it.
    #[arg(long, hide = true)]
    accept_sign_leakage: bool,
}

impl AcceptSignLeakage {
    /// The choices, with comparisons that leak if that was asked for.
    pub fn apply(self, choices: Choices, network: &Network) -> Result<Choices> {
        Ok(if self.accept_sign_leakage { choices.leaking_signs(network)? } else { choices })
    }

    /// Which weaknesses a plan may have.
    pub fn allowed(self) -> Allowed {
        Allowed { sign_leakage: self.accept_sign_leakage, ..Allowed::default() }
    }

    /// What a client accepts of its server.
    pub fn limits(self) -> Limits {
        Limits { accept_sign_leakage: self.accept_sign_leakage, ..Limits::default() }
    }
}

/// What a person must know of a plan that leaks; nothing of others.
pub fn warning(plan: &Plan) -> Option<String> {
    plan.choices.comparison.warning()
}
