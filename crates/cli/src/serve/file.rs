//! A configuration file (TOML): options of `jaguar serve` under their own names, and tables of models and clients.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Bytes of a configuration file, at most.
const LONGEST: usize = 1 << 20;

/// How near another name must be to be proposed: 1 is equal.
const NEAR: f64 = 0.8;

/// A place in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as it was named.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A value, as texts that a command line could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Value,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    One(String),
    Flag(bool),
    List(Vec<String>),
}

impl Value {
    /// The value as texts: a flag and a single text are lists of one.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text.clone()],
            Self::Flag(on) => vec![on.to_string()],
            Self::List(texts) => texts.clone(),
        }
    }
}

/// A table with a name of its own, such as `[clients.alice]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub name: String,
    pub entries: Vec<Entry>,
    pub place: Place,
}

/// What a file says, in the order of its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where relative paths in it begin.
    pub folder: PathBuf,
    pub options: Vec<Entry>,
    pub models: Vec<Named>,
    pub clients: Vec<Named>,
}

impl ConfigFile {
    /// Reads a file. Which names of options there are is not looked at.
    ///
    /// # Errors
    /// When it cannot be read, or is no TOML of this shape; with the line.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read(path).with_context(|| format!("reading the configuration {}", path.display()))?;
        ensure!(text.len() <= LONGEST, "{}: longer than {LONGEST} bytes", path.display());
        let text = std::str::from_utf8(&text).with_context(|| format!("{}: not UTF-8", path.display()))?;
        let mut file = Self::parse(text, path)?;
        file.folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(file)
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let reader = Reader { text, path };
        let table = DeTable::parse(text).map_err(|e| {
            let place = reader.place(e.span().map_or(0, |span| span.start));
            anyhow!("{place}: {}", e.message())
        })?;
        let mut file = Self::default();
        for (key, value) in reader.sorted(table.get_ref()) {
            match (key.get_ref().as_ref(), value.get_ref()) {
                (name @ ("models" | "clients"), DeValue::Table(tables)) => {
                    let of = if name == "models" { &mut file.models } else { &mut file.clients };
                    for (key, value) in reader.sorted(tables) {
                        let place = reader.place(key.span().start);
                        let DeValue::Table(table) = value.get_ref() else {
                            bail!("{place}: '{name}.{}' is to be a table: [{name}.NAME]", key.get_ref());
                        };
                        let entries = reader.sorted(table).into_iter();
                        let entries = entries.map(|(key, value)| reader.entry(key, value));
                        let entries = entries.collect::<Result<_>>()?;
                        of.push(Named { name: key.get_ref().to_string(), entries, place });
                    }
                }
                (name @ ("models" | "clients"), _) => {
                    bail!("{}: '{name}' has tables: [{name}.NAME]", reader.place(key.span().start));
                }
                _ => file.options.push(reader.entry(key, value)?),
            }
        }
        Ok(file)
    }
}

type Pair<'a, 'i> = (&'a Spanned<toml::de::DeString<'i>>, &'a Spanned<DeValue<'i>>);

struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Reader<'_> {
    fn place(&self, at: usize) -> Place {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        Place { file: self.path.to_owned(), line }
    }

    /// The pairs of a table in the order of the file.
    fn sorted<'a, 'i>(&self, table: &'a DeTable<'i>) -> Vec<Pair<'a, 'i>> {
        let mut pairs: Vec<Pair<'a, 'i>> = table.iter().collect();
        pairs.sort_by_key(|(key, _)| key.span().start);
        pairs
    }

    fn entry(&self, key: &Spanned<toml::de::DeString<'_>>, value: &Spanned<DeValue<'_>>) -> Result<Entry> {
        let (place, key) = (self.place(key.span().start), key.get_ref().to_string());
        let wrong = |what: &str| anyhow!("{place}: {key}: {what}");
        let value = match value.get_ref() {
            DeValue::Boolean(on) => Value::Flag(*on),
            DeValue::Array(items) => {
                let item = |item: &Spanned<DeValue<'_>>| plain(item.get_ref());
                let texts: Option<Vec<String>> = items.iter().map(item).collect();
                Value::List(texts.ok_or_else(|| wrong("a list may have texts and numbers only"))?)
            }
            other => Value::One(
                plain(other).ok_or_else(|| wrong("a text, a number, true, false or a list is needed"))?,
            ),
        };
        Ok(Entry { key, value, place })
    }
}

/// A text or a number, as a command line would have it.
fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// That there is nothing under the name `found` (`what`: "no option", say), and which of `known` may be meant.
pub fn unknown<'a>(what: &str, found: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = known.into_iter().map(|name| (strsim::jaro_winkler(name, found), name));
    match near.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((how, name)) if how >= NEAR => format!("there is {what} '{found}'; '{name}' may be meant"),
        _ => format!("there is {what} '{found}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        ConfigFile::parse(text, Path::new("a.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn options_models_and_clients_have_their_lines() {
        let text = "listen = '[::]:1'\n\nmax-clients = 4 # four\ntrue-one = true\n[models.a]\nbackends = ['x', 'y']\n\
                    [clients.'Alice W']\nmax-sessions = 2\n";
        let file = parse(text).expect("sound");
        let entry = |key: &str, value, line| Entry {
            key: key.into(),
            value,
            place: Place { file: "a.toml".into(), line },
        };
        let one = |text: &str| Value::One(text.into());
        assert_eq!(
            file.options,
            [
                entry("listen", one("[::]:1"), 1),
                entry("max-clients", one("4"), 3),
                entry("true-one", Value::Flag(true), 4)
            ]
        );
        let list = Value::List(vec!["x".into(), "y".into()]);
        assert_eq!((file.models[0].name.as_str(), file.models[0].place.line), ("a", 5));
        assert_eq!(file.models[0].entries, [entry("backends", list, 6)]);
        assert_eq!((file.clients[0].name.as_str(), file.clients[0].place.line), ("Alice W", 7));
    }

    #[test]
    fn errors_have_the_line() {
        for (text, want) in [
            ("a = 1\nb = \n", "a.toml:2: "),
            ("a = 1\n\nb = { c = 1 }", "a.toml:3: b: a text, a number"),
            ("a = 1\na = 2", "a.toml:2: "),
            ("a = [[1]]", "a.toml:1: a: a list"),
            ("a = 0x10", "a.toml:1: a: "),
            ("[models]\na = 1", "a.toml:2: 'models.a' is to be a table"),
            ("clients = 3", "a.toml:1: 'clients' has tables"),
        ] {
            let error = parse(text).expect_err("refused");
            assert!(error.starts_with(want), "{error:?} does not begin with {want:?}");
        }
    }

    #[test]
    fn near_names_are_proposed() {
        let known = ["max-clients", "max-idle", "listen"];
        assert_eq!(
            unknown("no option", "max-client", known),
            "there is no option 'max-client'; 'max-clients' may be meant"
        );
        assert_eq!(unknown("no option", "tls", known), "there is no option 'tls'");
    }
}
