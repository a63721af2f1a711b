//! Options as text: backends, what is to be short, links, when to measure, what noise correlations have.

use std::path::Path;

use jaguar::Cpu;
use jaguar::bundle::Bundle;
use jaguar::machine::{Between, Note, When, store};
use jaguar::plan::machine::Machine;
use jaguar::plan::predict::{Aim, Site};
use jaguar::plan::{Allowed, BackendId, Choices, Kit, WEIGHT_MEMORY, planner};
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::kit::kit;
use crate::task::Task;

/// How to plan: a dictionary's items.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Planning {
    /// Names of the backends that may run linear layers; none: those of the standard kit.
    pub backends: Option<Vec<String>>,
    /// `query` or `online`.
    pub prefer: String,
    /// `auto`, `anew` or `off`.
    pub measure: String,
    /// `loopback`, `lan`, `wan`, or a file; none: as the server's address suggests.
    pub link: Option<String>,
    /// Where figures and choices are kept; none: the user's cache folder.
    pub cache: Option<std::path::PathBuf>,
    /// `fresh` or `stationary`.
    pub lpn_noise: String,
}

/// One of several values by its name.
fn one_of<T: Copy>(option: &str, text: &str, values: &[(&str, T)]) -> Result<T, Failure> {
    values.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<String> = values.iter().map(|(name, _)| format!("{name:?}")).collect();
        Failure::option(format!("{option}={text:?}: {} are possible", names.join(", ")))
    })
}

/// The backends of these names; those of the standard kit for none.
///
/// # Errors
/// When the kit has none of a name.
pub fn backends(names: Option<&[String]>) -> Result<Vec<BackendId>, Failure> {
    let Some(names) = names else { return Ok(Kit::standard().backends().to_vec()) };
    let kit = kit();
    let values: Vec<(&str, BackendId)> = kit.backends().iter().map(|id| (id.name(), *id)).collect();
    let group = |name: &String| {
        kit.group(name).or_else(|_| one_of("backends", name, &values).map(|backend| vec![backend]))
    };
    Ok(names.iter().map(group).collect::<Result<Vec<_>, _>>()?.concat())
}

/// What plans may have where correlations have this noise, `fresh` or `stationary`.
///
/// # Errors
/// When it is neither.
pub fn allowed(lpn_noise: &str) -> Result<Allowed, Failure> {
    let stationary_noise = one_of("lpn_noise", lpn_noise, &[("fresh", false), ("stationary", true)])?;
    Ok(Allowed { stationary_noise, ..Allowed::default() })
}

/// Tells a note of the profile.
fn tell(task: &Task) -> impl FnMut(Note) + '_ {
    |note| task.note(note.to_string())
}

impl Planning {
    /// What is to be done how, and, if this machine is measured, on what and over which link: handed to `use_it`. `serves`: what is
    /// chosen is kept for the next time.
    ///
    /// # Errors
    /// When an option cannot be, or the network cannot be planned.
    pub fn choose<T>(
        &self,
        bundle: &Bundle,
        default: &Between,
        serves: bool,
        task: &Task,
        use_it: impl FnOnce(Choices, Option<&Site<'_>>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (among, stationary) = (self.among()?, self.allowed()?.stationary_noise);
        let aim = one_of("prefer", &self.prefer, &[("query", Aim::Query), ("online", Aim::Online)])?;
        let between = match &self.link {
            None => default.clone(),
            Some(text) => text.parse().map_err(|e| Failure::from(e).of(format!("link={text:?}")))?,
        };
        let cache = store::cache(self.cache.as_deref());
        let (network, cache) = (&bundle.model.network, cache.as_deref());
        let noisy = |choices: Choices, site: Option<&Site<'_>>| match stationary {
            true => planner::with_stationary_noise(network, choices, site),
            false => Ok(choices),
        };
        let Some(machine) = self.machine(cache, task)? else {
            return use_it(noisy(Choices::among(network, &among)?, None)?, None);
        };
        let site = between.site(&machine, aim);
        let choose = if serves { store::choose_to_serve } else { store::choose };
        let choices = choose(network, bundle.id(), &among, &site, WEIGHT_MEMORY, cache, &mut tell(task))?;
        use_it(noisy(choices, Some(&site))?, Some(&site))
    }

    /// What plans may have.
    ///
    /// # Errors
    /// As [`allowed`].
    pub fn allowed(&self) -> Result<Allowed, Failure> {
        allowed(&self.lpn_noise)
    }

    /// The backends that may run layers.
    ///
    /// # Errors
    /// As [`backends`].
    pub fn among(&self) -> Result<Vec<BackendId>, Failure> {
        backends(self.backends.as_deref())
    }

    fn machine(&self, cache: Option<&Path>, task: &Task) -> Result<Option<Machine>, Failure> {
        let values = [("auto", When::Auto), ("anew", When::Anew), ("off", When::Off)];
        let when = one_of("measure", &self.measure, &values)?;
        Ok(store::machine(Cpu::detect(), &kit(), when, cache, &mut tell(task))?)
    }
}
