//! Which models are served, under which names, and how each becomes ready to be served.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use jaguar::bundle::{Bundle, ModelId};
use jaguar::machine::memory::room;
use jaguar::machine::{Between, Imitated, When, store};
use jaguar::plan::memory::{Load, Side};
use jaguar::plan::{Choices, Plan, batch};
use jaguar::reports::terminal::table::bytes;
use jaguar::reports::terminal::threads;
use jaguar::serve::{ClientRules, ModelRules, Named, Rules};
use jaguar::server::{Common, Service};
use jaguar::{Cpu, Hardware, is_model_name};

use super::ModelOptions;
use super::file::unknown;
use super::settings::{ModelTable, Settings};
use crate::hide;
use crate::kit::kit;
use crate::notes::{self, tell, warning_of_memory};

/// What the file of a compiled model is called.
const ENDING: &str = "jaguar";

/// A model that is to be served.
pub struct Spec {
    pub name: String,
    pub file: PathBuf,
    pub options: ModelOptions,
    /// The options as words: a model with other words is built anew.
    words: Vec<OsString>,
    rules: ModelRules,
}

/// The models that are to be served, by name.
///
/// # Errors
/// When there is none, or two have one name, or a name cannot be one.
pub fn specs(settings: &Settings) -> Result<Vec<Spec>> {
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut add = |name: String, file: PathBuf| match files.insert(name.clone(), file.clone()) {
        Some(other) if other != file => {
            bail!("two models are called '{name}': {} and {}", other.display(), file.display())
        }
        _ => Ok(()),
    };
    for path in &settings.args.model_files {
        for file in compiled(path)? {
            let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            ensure!(
                is_model_name(&stem),
                "{}: '{stem}' is no model's name (1 to 64 letters, digits, '-', '_' and '.'): name it in a --config file",
                file.display()
            );
            add(stem, file)?;
        }
    }
    // Models that are named on the command line are all that are served.
    if !settings.named_on_line("model-files") {
        for table in &settings.models {
            if let Some(file) = &table.file {
                add(table.name.clone(), file.clone())?;
            }
        }
    }
    ensure!(
        !files.is_empty(),
        "no model: name compiled ones (.{ENDING}), a folder of them, or a --config file that does"
    );
    let spec = |(name, file): (String, PathBuf)| {
        let none = ModelTable::named(&name);
        let table = settings.models.iter().find(|table| table.name == name).unwrap_or(&none);
        let (options, words) = settings.options_of(table)?;
        let rules = ModelRules {
            clients: table.clients.as_ref().map(|clients| clients.iter().cloned().collect()),
            queries_per_client_and_day: table.queries_per_client_and_day,
        };
        Ok(Spec { name, file, options, words, rules })
    };
    files.into_iter().map(spec).collect()
}

/// The compiled models at a path, which may be a folder of them.
fn compiled(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("reading {}", path.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let file = entry.with_context(|| format!("reading {}", path.display()))?.path();
        if file.extension().is_some_and(|ending| ending == ENDING) && file.is_file() {
            found.push(file);
        }
    }
    ensure!(!found.is_empty(), "{}: no compiled model (.{ENDING}) in this folder", path.display());
    found.sort();
    Ok(found)
}

/// The rules for clients, for these models.
///
/// # Errors
/// When they name a model that is not there, or nothing tells clients apart.
pub fn rules(settings: &Settings, specs: &[Spec]) -> Result<Rules> {
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    let bounds = &settings.args.bounds;
    let everybody = ClientRules {
        sessions: bounds.max_sessions_per_client,
        queries_per_day: bounds.max_queries_per_client_and_day,
        models: None,
    };
    let mut clients = BTreeMap::new();
    for table in &settings.clients {
        let unserved = table.models.iter().flatten().find(|model| !names.contains(&model.as_str()));
        if let Some(model) = unserved {
            bail!("{}: models: {}", table.place, unknown("no model", model, names.iter().copied()));
        }
        let models = table.models.as_ref().map(|models| models.iter().cloned().collect::<BTreeSet<_>>());
        let rules = ClientRules { sessions: table.sessions, queries_per_day: table.queries_per_day, models };
        clients.insert(table.name.clone(), rules);
    }
    let models = specs.iter().filter(|spec| spec.rules != ModelRules::default());
    let models = models.map(|spec| (spec.name.clone(), spec.rules.clone())).collect();
    let rules = Rules { everybody, clients, models };
    ensure!(
        rules.is_empty() || !settings.args.admission.is_open(),
        "limits by client need --tokens or --client-ca: nothing else tells clients apart"
    );
    Ok(rules)
}

/// Reads, checks and plans models, and knows which it has built.
pub struct Builder {
    pub hardware: Hardware,
    pub common: Common,
    pub cache: Option<PathBuf>,
    pub measure: When,
    pub link: Option<Imitated>,
    /// Whether clients are on this machine alone.
    pub alone: bool,
    /// What was built last, by name: which file and which options.
    built: BTreeMap<String, (ModelId, Vec<OsString>)>,
}

/// A model that is read and planned.
pub enum Built {
    /// It is as it was, so the one that is there goes on.
    Same,
    New(Arc<Named>),
}

impl Builder {
    pub fn new(
        hardware: Hardware,
        common: Common,
        cache: Option<PathBuf>,
        (measure, link, alone): (When, Option<Imitated>, bool),
    ) -> Self {
        Self { hardware, common, cache, measure, link, alone, built: BTreeMap::new() }
    }

    /// Reads a model, checks it and plans it. If it would be the same as the one `before`, it is not built again.
    ///
    /// # Errors
    /// When the file is no sound model, or it cannot be served so; `memory` is what all sessions may take.
    pub fn build(&mut self, spec: &Spec, before: Option<&Named>, memory: u64) -> Result<Built> {
        let bundle = spec.options.hide_for.apply(Bundle::read(&spec.file, kit().operators())?)?;
        let made_of = (bundle.id(), spec.words.clone());
        let same = before.filter(|_| self.built.get(&spec.name) == Some(&made_of));
        let new = if same.is_some() { None } else { Some(self.plan(spec, bundle)?) };
        let need = same.or(new.as_deref()).map_or(0, |named| named.service().session_bytes());
        ensure!(
            need <= memory,
            "--max-memory {} is too little for one session, which takes {} (estimated)",
            bytes(memory),
            bytes(need)
        );
        Ok(match new {
            Some(named) => {
                self.built.insert(spec.name.clone(), made_of);
                Built::New(named)
            }
            None => Built::Same,
        })
    }

    /// Forgets what is not served any more.
    pub fn keep_only(&mut self, names: &BTreeSet<&str>) {
        self.built.retain(|name, _| names.contains(name.as_str()));
    }

    fn plan(&self, spec: &Spec, bundle: Bundle) -> Result<Arc<Named>> {
        if let Some(caveat) = hide::caveat(&bundle) {
            eprintln!("warning: {caveat}");
        }
        let allowed = spec.options.noise.allowed();
        let plan = Plan::allowing(&bundle.model.network, self.choose(&spec.options, &bundle)?, allowed)?;
        let load = Load::single(threads());
        notes::warn(warning_of_memory(&bundle.model.network, &plan, load, Side::Server));
        let limits = (allowed, load, room());
        let (backends, most) = (spec.options.backends.named(), spec.options.max_batch);
        let (batches, left_out) =
            batch::plans_that_fit(&bundle.model.network, &plan, &backends, most, limits)?;
        notes::warn(left_out.map(|found| jaguar::reports::tables::batch::left_out(&found, "--max-batch ")));
        let service = Service::with_plan(self.hardware.clone(), bundle, plan, spec.options.reveal.into())?;
        let service = service.with_batch_plans(batches)?;
        Ok(Named::new(&spec.name, service.sharing(&self.common)))
    }

    /// What to do how. What hints are bound to stays as it was chosen when this model was first served.
    fn choose(&self, options: &ModelOptions, bundle: &Bundle) -> Result<Choices> {
        let (network, cache) = (&bundle.model.network, self.cache.as_deref());
        let Some(machine) = store::machine(Cpu::detect(), &kit(), self.measure, cache, &mut tell)? else {
            let choices = options.memory.apply(Choices::among(network, &options.backends.named())?);
            return Ok(options.noise.apply(network, choices, None)?);
        };
        let between = match (&options.plan_for, self.link) {
            (Some(between), _) => between.clone(),
            (None, Some(shape)) => Between::Imitated(shape),
            (None, None) if self.alone => Between::Loopback,
            (None, None) => Between::Measured(Imitated::Lan.figures()),
        };
        let site = between.site(&machine, options.prefer.into());
        let memory = options.memory.bytes();
        let backends = options.backends.named();
        let choices =
            store::choose_to_serve(network, bundle.id(), &backends, &site, memory, cache, &mut tell)?;
        Ok(options.noise.apply(network, choices, Some(&site))?)
    }
}
