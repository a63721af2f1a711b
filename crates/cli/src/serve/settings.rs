//! Where the options of `jaguar serve` come from. What stands nearer to the command counts: flags, then the environment, then the
//! configuration file, then defaults.
//!
//! An option has one name everywhere: `--max-clients` is `JAGUAR_MAX_CLIENTS` in the environment, and `max-clients` in the file. All are
//! read by the same parsers, as if they stood on a command line.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Args as _, Command, FromArgMatches, ValueHint};

use super::file::{ConfigFile, Entry, Named, Place, Value, unknown};
use super::{Args, ModelOptions};
use crate::one_round;

/// Where the value of an option comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment(String),
    File(Place),
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::Environment(name) => f.write_str(name),
            Self::File(place) => place.fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
}

/// An option with the value that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    pub key: String,
    /// Its values; empty where it is not set.
    pub texts: Vec<String>,
    pub kind: ValueKind,
    pub source: Source,
}

/// How an option is written in a file. (No option of `jaguar serve` is a flag.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    One,
    List,
}

/// A model's own table in the file: `[models.NAME]`.
#[derive(Clone, Debug, Default)]
pub struct ModelTable {
    pub name: String,
    pub place: Option<Place>,
    pub file: Option<PathBuf>,
    pub clients: Option<Vec<String>>,
    pub queries_per_client_and_day: Option<u64>,
    /// Options that it has of its own.
    own: Vec<Entry>,
}

/// A client's table in the file: `[clients.NAME]`.
#[derive(Clone, Debug)]
pub struct ClientTable {
    pub name: String,
    pub place: Place,
    pub models: Option<Vec<String>>,
    pub sessions: Option<usize>,
    pub queries_per_day: Option<u64>,
}

/// All options as they count, and the tables of models and clients.
pub struct Settings {
    pub args: Args,
    pub effective: Vec<Effective>,
    pub models: Vec<ModelTable>,
    pub clients: Vec<ClientTable>,
}

/// Options that a file cannot have.
const NOT_IN_FILE: [&str; 1] = ["config"];

/// How `command` names things in errors and in help.
fn command() -> Command {
    Args::augment_args(Command::new("jaguar serve").no_binary_name(true))
}

fn key(arg: &Arg) -> String {
    arg.get_id().as_str().replace('_', "-")
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
}

fn kind(arg: &Arg) -> ValueKind {
    match arg.get_action() {
        ArgAction::Append => ValueKind::List,
        ArgAction::Set if arg.get_value_delimiter().is_some() => ValueKind::List,
        ArgAction::Set => ValueKind::One,
        other => unreachable!("--{} is {other:?}, which a file has no way to say", key(arg)),
    }
}

impl Settings {
    /// What counts, where `words` stand behind `jaguar serve`.
    ///
    /// # Errors
    /// When something is unknown or cannot be; the error says where it stands.
    pub fn load(words: &[OsString]) -> Result<Self> {
        Self::load_from(words, &|name| env::var_os(name))
    }

    fn load_from(words: &[OsString], environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Self> {
        let command = command();
        let flags = command.clone().try_get_matches_from(words).map_err(|e| anyhow!(explain(&e)))?;
        let on_line = |id: &str| flags.value_source(id) == Some(ValueSource::CommandLine);
        let named = flags.get_one::<PathBuf>("config").cloned();
        let path = named.or_else(|| environment("JAGUAR_CONFIG").map(PathBuf::from));
        let file = path.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        let known: Vec<String> = options(&command).map(key).collect();
        let known = || known.iter().map(String::as_str).filter(|key| !NOT_IN_FILE.contains(key));
        for Entry { key, place, .. } in &file.options {
            let tables = ["models", "clients"];
            ensure!(
                known().any(|k| k == key),
                "{place}: {}",
                unknown("no option", key, known().chain(tables))
            );
        }

        // What is not on the command line, as words of one.
        let (mut extra, mut behind, mut sources) = (Vec::new(), Vec::new(), BTreeMap::new());
        for arg in options(&command) {
            let (id, key) = (arg.get_id().as_str(), key(arg));
            if on_line(id) {
                sources.insert(key, Source::Flag);
                continue;
            }
            let name = format!("JAGUAR_{}", id.to_uppercase());
            let set = environment(&name).filter(|value| !value.is_empty());
            let (value, source) = match set {
                Some(value) => (from_environment(arg, &name, value)?, Source::Environment(name)),
                None => match file.options.iter().find(|entry| entry.key == key) {
                    Some(entry) => (located(arg, entry, &file.folder), Source::File(entry.place.clone())),
                    None => continue,
                },
            };
            let words = as_words(arg, &value).map_err(|why| anyhow!("{source}: {key}: {why}"))?;
            let check = command.clone().try_get_matches_from(&words);
            check.map_err(|e| anyhow!("{source}: {key}: {}", explain(&e)))?;
            if arg.is_positional() { &mut behind } else { &mut extra }.extend(words);
            sources.insert(key, source);
        }
        let words = extra.into_iter().chain(words.iter().cloned()).chain(behind);
        let matches = command.clone().try_get_matches_from(words).map_err(|e| anyhow!(explain(&e)))?;
        let args = Args::from_arg_matches(&matches).map_err(|e| anyhow!(explain(&e)))?;
        let told = match sources.get("protocol") {
            None => one_round::DEFAULT.to_owned(),
            Some(Source::Flag) => String::new(),
            Some(source) => format!(" ({source})"),
        };
        let mut effective = Vec::new();
        for arg in options(&command) {
            let (id, key) = (arg.get_id().as_str(), key(arg));
            let texts = matches.get_raw(id).into_iter().flatten();
            let texts = texts.map(|text| text.to_string_lossy().into_owned()).collect();
            let source = sources.remove(&key).unwrap_or(Source::Default);
            match (one_round::misplaced("serve", arg, (args.protocol, &told)), &source) {
                (None, _) => effective.push(Effective { key, texts, kind: kind(arg), source }),
                // What nobody set, and means nothing, does not count.
                (Some(_), Source::Default) => {}
                (Some(wrong), Source::Flag) => bail!("{wrong}"),
                (Some(wrong), source) => bail!("{source}: {wrong}"),
            }
        }
        let models = file.models.iter().map(|table| ModelTable::read(table, &file.folder));
        let models = models.collect::<Result<_>>()?;
        let clients = file.clients.iter().map(ClientTable::read).collect::<Result<_>>()?;
        let settings = Self { args, effective, models, clients };
        for table in &settings.models {
            settings.options_of(table)?;
            let own = table.own.first().filter(|_| !settings.args.protocol.is_interactive());
            if let Some(Entry { key, place, .. }) = own {
                bail!(
                    "{place}: {key} is for --protocol interactive, and means nothing with --protocol {}",
                    settings.args.protocol
                );
            }
        }
        Ok(settings)
    }

    /// Whether an option stands on the command line.
    pub fn named_on_line(&self, key: &str) -> bool {
        self.effective.iter().any(|effective| effective.key == key && effective.source == Source::Flag)
    }

    /// A model's options: its own, and where it has none, those for all. With them, as words, what tells them from others.
    ///
    /// # Errors
    /// When one of its own cannot be.
    pub fn options_of(&self, table: &ModelTable) -> Result<(ModelOptions, Vec<OsString>)> {
        let command = ModelOptions::augment_args(Command::new("model").no_binary_name(true));
        let mut words = Vec::new();
        for arg in options(&command) {
            let key = key(arg);
            let (value, place) = match table.own.iter().find(|entry| entry.key == key) {
                Some(entry) => (entry.value.clone(), Some(&entry.place)),
                None => {
                    let all = self.effective.iter().find(|effective| effective.key == key);
                    let texts = all.map(|effective| effective.texts.clone()).unwrap_or_default();
                    let value = match kind(arg) {
                        _ if texts.is_empty() => continue,
                        ValueKind::One => Value::One(texts[0].clone()),
                        ValueKind::List => Value::List(texts),
                    };
                    (value, None)
                }
            };
            let told = |why: String| match place {
                Some(place) => anyhow!("{place}: {key}: {why}"),
                None => anyhow!("{key}: {why}"),
            };
            let word = as_words(arg, &value).map_err(told)?;
            let check = command.clone().try_get_matches_from(&word);
            check.map_err(|e| told(explain(&e)))?;
            words.extend(word);
        }
        let matches = command.try_get_matches_from(&words).map_err(|e| anyhow!(explain(&e)))?;
        let options = ModelOptions::from_arg_matches(&matches).map_err(|e| anyhow!(explain(&e)))?;
        Ok((options, words))
    }

    /// All of it as a file, with the place that each line comes from behind it.
    pub fn show(&self) -> String {
        let mut lines: Vec<(String, String)> = Vec::new();
        for Effective { key, texts, kind, source } in &self.effective {
            if NOT_IN_FILE.contains(&key.as_str()) {
                continue;
            }
            let line = match (kind, texts.as_slice()) {
                (_, []) => (format!("# {key} ="), "not set".into()),
                (ValueKind::One, [text]) => (format!("{key} = {}", quoted(text)), source.to_string()),
                (_, texts) => (format!("{key} = {}", list(texts)), source.to_string()),
            };
            lines.push(line);
        }
        let head = |kind: &str, name: &str| {
            let bare = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
            let name = if bare { name.to_owned() } else { text(name) };
            format!("\n[{kind}.{name}]")
        };
        for table in &self.models {
            let place = table.place.as_ref().map(Place::to_string).unwrap_or_default();
            lines.push((head("models", &table.name), place.clone()));
            let mut line = |key: &str, value: String| lines.push((format!("{key} = {value}"), place.clone()));
            if let Some(file) = &table.file {
                line("file", text(&file.display().to_string()));
            }
            if let Some(clients) = &table.clients {
                line("clients", list(clients));
            }
            if let Some(queries) = table.queries_per_client_and_day {
                line("max-queries-per-client-and-day", queries.to_string());
            }
            for Entry { key, value, place } in &table.own {
                let value = match value {
                    Value::One(text) => quoted(text),
                    Value::Flag(on) => on.to_string(),
                    Value::List(texts) => list(texts),
                };
                lines.push((format!("{key} = {value}"), place.to_string()));
            }
        }
        for ClientTable { name, place, models, sessions, queries_per_day } in &self.clients {
            let place = place.to_string();
            lines.push((head("clients", name), place.clone()));
            let mut line = |key: &str, value: Option<String>| {
                lines.extend(value.map(|value| (format!("{key} = {value}"), place.clone())));
            };
            line("models", models.as_ref().map(|models| list(models)));
            line("max-sessions", sessions.map(|n| n.to_string()));
            line("max-queries-per-day", queries_per_day.map(|n| n.to_string()));
        }
        let width = lines.iter().map(|(line, _)| line.chars().count()).filter(|&n| n < 50).max().unwrap_or(0);
        lines.iter().map(|(line, place)| format!("{line:width$}  # {place}\n")).collect()
    }
}

impl ModelTable {
    /// A model without options of its own.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn read(table: &Named, folder: &Path) -> Result<Self> {
        let command = ModelOptions::augment_args(Command::new("model"));
        let options: Vec<String> = options(&command).map(key).collect();
        let mut it = Self { name: table.name.clone(), place: Some(table.place.clone()), ..Self::default() };
        ensure!(
            jaguar::is_model_name(&it.name),
            "{}: '{}' is no model's name: 1 to 64 letters, digits, '-', '_' and '.'",
            table.place,
            it.name
        );
        for entry in &table.entries {
            let Entry { key, value, place } = entry;
            match (key.as_str(), value) {
                ("file", Value::One(file)) => it.file = Some(folder.join(file)),
                ("file", _) => bail!("{place}: file: a path is needed"),
                ("clients", value) => it.clients = Some(names(value, place, key)?),
                ("max-queries-per-client-and-day", value) => {
                    it.queries_per_client_and_day = Some(number(value, place, key)?);
                }
                _ if options.contains(key) => it.own.push(entry.clone()),
                _ => {
                    let own = ["file", "clients", "max-queries-per-client-and-day"];
                    let known = options.iter().map(String::as_str).chain(own);
                    bail!("{place}: {}", unknown("no option of a model", key, known));
                }
            }
        }
        Ok(it)
    }
}

impl ClientTable {
    fn read(table: &Named) -> Result<Self> {
        let (name, place) = (table.name.clone(), table.place.clone());
        let mut it = Self { name, place, models: None, sessions: None, queries_per_day: None };
        for Entry { key, value, place } in &table.entries {
            match key.as_str() {
                "models" => it.models = Some(names(value, place, key)?),
                "max-sessions" => {
                    let sessions = number(value, place, key)?;
                    ensure!(sessions > 0, "{place}: {key}: at least 1");
                    it.sessions = Some(usize::try_from(sessions).unwrap_or(usize::MAX));
                }
                "max-queries-per-day" => it.queries_per_day = Some(number(value, place, key)?),
                _ => {
                    let known = ["models", "max-sessions", "max-queries-per-day"];
                    bail!("{place}: {}", unknown("no option of a client", key, known));
                }
            }
        }
        Ok(it)
    }
}

fn names(value: &Value, place: &Place, key: &str) -> Result<Vec<String>> {
    match value {
        Value::List(names) => Ok(names.clone()),
        _ => bail!("{place}: {key}: a list of names is needed"),
    }
}

fn number(value: &Value, place: &Place, key: &str) -> Result<u64> {
    let number = match value {
        Value::One(text) => text.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| anyhow!("{place}: {key}: a number is needed"))
}

/// A value of the environment: lists have commas between, or what divides paths (`:`).
fn from_environment(arg: &Arg, name: &str, value: OsString) -> Result<Value> {
    if kind(arg) == ValueKind::List && arg.get_value_hint() == ValueHint::AnyPath {
        let paths = env::split_paths(&value).map(|path| path.display().to_string());
        return Ok(Value::List(paths.filter(|path| !path.is_empty()).collect()));
    }
    let text = value.into_string().map_err(|_| anyhow!("{name} is no text"))?;
    Ok(match kind(arg) {
        ValueKind::One => Value::One(text),
        ValueKind::List => Value::List(text.split(',').map(|item| item.trim().to_owned()).collect()),
    })
}

/// A value of the file. Relative paths begin at the file's folder.
fn located(arg: &Arg, entry: &Entry, folder: &Path) -> Value {
    let located = |text: &String| folder.join(text).display().to_string();
    match &entry.value {
        value if arg.get_value_hint() != ValueHint::AnyPath => value.clone(),
        Value::One(text) => Value::One(located(text)),
        Value::List(texts) => Value::List(texts.iter().map(located).collect()),
        flag => flag.clone(),
    }
}

/// A value as words of a command line.
fn as_words(arg: &Arg, value: &Value) -> Result<Vec<OsString>, String> {
    let option = format!("--{}", key(arg));
    match (kind(arg), value) {
        // (An option that may stand alone is one that is on or off.)
        (_, Value::Flag(_)) if arg.get_num_args().is_none_or(|values| values.min_values() > 0) => {
            Err("a text, a number or a list is needed".into())
        }
        (ValueKind::One, Value::List(_)) => Err("one value is needed, not a list".into()),
        (ValueKind::List, _) if arg.is_positional() => {
            // (`--`: what begins with a hyphen is a path all the same.)
            Ok([OsString::from("--")].into_iter().chain(value.texts().into_iter().map(Into::into)).collect())
        }
        _ => Ok(vec![format!("{option}={}", value.texts().join(",")).into()]),
    }
}

/// What is wrong, in one line, of which the first part is left out where it says which argument it is.
fn explain(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let possible = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) if !values.is_empty() => {
            format!(" (possible: {})", values.join(", "))
        }
        _ => String::new(),
    };
    let because = std::error::Error::source(error).map(|why| format!(": {why}")).unwrap_or_default();
    match text(ContextKind::InvalidValue) {
        Some(value) => format!("'{value}' is not possible{because}{possible}"),
        None => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    }
}

/// A number as it is, or a text.
fn quoted(value: &str) -> String {
    let number = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    if number { value.to_owned() } else { text(value) }
}

/// A text as TOML writes it, in quotes.
fn text(value: &str) -> String {
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => text.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

fn list(values: &[String]) -> String {
    format!("[{}]", values.iter().map(|value| text(value)).collect::<Vec<_>>().join(", "))
}
