//! What a page about costs is made of.

use jaguar_graph::network::Network;
use jaguar_plan::machine::Link;
use jaguar_plan::memory::Load;
use jaguar_plan::planner::Explanation;
use jaguar_plan::predict::Site;
use jaguar_plan::{Allowed, BackendId, Plan};

/// What a page about a model's costs is made of.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The compiled network.
    pub network: &'a Network,
    /// The model's public name, which tells compiled models apart.
    pub id: &'a str,
    /// How the network is to run.
    pub plan: &'a Plan,
    /// Which weaknesses the plan may have.
    pub allowed: Allowed,
    /// Where it is to run; without, there are no seconds.
    pub site: Option<&'a Site<'a>>,
    /// What both parties are to do at the same time, for their memory.
    pub load: Load,
    /// Links besides that of the site, by name.
    pub links: &'a [(&'a str, Link)],
    /// Backends that each could run all linear layers, to compare with.
    pub backends: &'a [BackendId],
    /// What else the plan could have been, if that was looked at.
    pub explanation: Option<&'a Explanation>,
}
