//! Labelled pictures: in folders, one a class, or by a list.

use std::fmt;
use std::path::{Path, PathBuf};

use super::folder::{self, Skipped};

/// A picture and its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labelled {
    /// The file of the picture or the tensor.
    pub path: PathBuf,
    /// The number of its class, from 0.
    pub class: usize,
}

/// Labelled pictures, and how their classes were told.
#[derive(Debug)]
pub struct Found {
    /// The pictures.
    pub pictures: Vec<Labelled>,
    /// How the classes were told, in words.
    pub by: &'static str,
    /// Files that were left out.
    pub skipped: Vec<Skipped>,
}

/// Labelled pictures that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", data.display())]
pub struct LabelError {
    /// The folder or the list.
    data: PathBuf,
    why: Wrong,
}

/// What is wrong, in words.
#[derive(Debug)]
struct Wrong(String);

impl Wrong {
    fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! wrong {
    ($($text:tt)*) => { Wrong(format!($($text)*)) };
}

/// The pictures and their classes, and how the classes were told.
///
/// A folder has one folder a class (named as the model's labels, or by the class's number, or as many as there are classes, in the
/// order of their names). A list has lines of a file and its class (`.csv`: two columns), by name or number.
///
/// # Errors
/// When it cannot be read, or does not say of every picture which of the `classes` it is; `labels` are their names, or none.
pub fn labelled(data: &Path, labels: &[String], classes: usize) -> Result<Found, LabelError> {
    let found = if data.is_dir() { by_folder(data, labels, classes) } else { by_list(data, labels, classes) };
    found.map_err(|why| LabelError { data: data.to_owned(), why })
}

/// The class that a name or a number stands for.
fn class_of(text: &str, labels: &[String], classes: usize) -> Result<usize, Wrong> {
    let named: Vec<usize> = (0..labels.len()).filter(|&i| labels[i].eq_ignore_ascii_case(text)).collect();
    match (named.as_slice(), text.parse::<usize>()) {
        ([one], _) => Ok(*one),
        ([], Ok(number)) if number < classes => Ok(number),
        ([], Ok(number)) => {
            Err(wrong!("class {number} is none of the model's: they are 0 to {}", classes - 1))
        }
        ([], Err(_)) if labels.is_empty() => {
            Err(wrong!("{text:?} is no number, and the model has no label names"))
        }
        ([], Err(_)) => Err(wrong!("{text:?} is no label name of the model's, and no number")),
        ([a, b, ..], _) => Err(wrong!("{text:?} is the name of classes {a} and {b}: use numbers")),
    }
}

fn by_folder(data: &Path, labels: &[String], classes: usize) -> Result<Found, Wrong> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(data).map_err(Wrong::new)? {
        let entry = entry.map_err(Wrong::new)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && !name.starts_with('.') {
            folders.push((name, entry.path()));
        }
    }
    folders.sort();
    if folders.is_empty() {
        return Err(wrong!("there are no folders in it; one a class is needed, or a list"));
    }
    let named: Result<Vec<usize>, Wrong> =
        folders.iter().map(|(name, _)| class_of(name, labels, classes)).collect();
    let (of_folder, by) = match named {
        Ok(named) => {
            let by_name = folders.iter().all(|(name, _)| labels.iter().any(|l| l.eq_ignore_ascii_case(name)));
            (named, if by_name { "folder name" } else { "folder number" })
        }
        // As training code numbers them.
        Err(_) if folders.len() == classes => ((0..classes).collect(), "the order of the folders' names"),
        Err(e) => {
            return Err(wrong!(
                "{} folders for {classes} classes, and their names do not say which: {e}",
                folders.len()
            ));
        }
    };
    let (mut all, mut skipped) = (Vec::new(), Vec::new());
    for ((_, folder), class) in folders.iter().zip(of_folder) {
        let found = folder::folder(folder).map_err(Wrong::new)?;
        skipped.extend(found.skipped);
        all.extend(found.files.into_iter().map(|path| Labelled { path, class }));
    }
    Ok(Found { pictures: all, by, skipped })
}

fn by_list(data: &Path, labels: &[String], classes: usize) -> Result<Found, Wrong> {
    let text = std::fs::read_to_string(data).map_err(Wrong::new)?;
    let folder = data.parent().unwrap_or(Path::new(""));
    let columns =
        data.extension().and_then(|e| e.to_str()).and_then(|e| match e.to_ascii_lowercase().as_str() {
            "csv" => Some(b','),
            "tsv" => Some(b'\t'),
            _ => None,
        });
    let mut all = Vec::new();
    for (number, line) in rows(&text, columns)? {
        let at = |why: Wrong| wrong!("line {number}: {why}");
        let (file, label) = line.map_err(at)?;
        let path = folder.join(&file);
        match class_of(&label, labels, classes) {
            Ok(class) => all.push(Labelled { path, class }),
            // The names of the columns.
            Err(_) if all.is_empty() && columns.is_some() && !path.exists() => {}
            Err(e) => return Err(at(e)),
        }
    }
    if all.is_empty() {
        return Err(wrong!("the list is empty"));
    }
    Ok(Found { pictures: all, by: "list", skipped: Vec::new() })
}

/// A file and its label, or what is wrong with the line.
type Row = (usize, Result<(String, String), Wrong>);

/// The rows of a list with their numbers: two columns, or a file and behind the last space its class.
fn rows(text: &str, columns: Option<u8>) -> Result<Vec<Row>, Wrong> {
    let Some(delimiter) = columns else {
        let lines =
            text.lines().map(str::trim).zip(1..).filter(|(l, _)| !l.is_empty() && !l.starts_with('#'));
        let split = |line: &str| {
            // A label name may have spaces in it; then a tab is before it.
            let parts = line.rsplit_once('\t').or_else(|| line.rsplit_once(char::is_whitespace));
            let (file, label) = parts.ok_or_else(|| wrong!("a file and its class are needed"))?;
            Ok((file.trim().to_owned(), label.trim().to_owned()))
        };
        return Ok(lines.map(|(line, number)| (number, split(line))).collect());
    };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let rows = reader.records().map(|record| {
        let record = record.map_err(Wrong::new)?;
        let number = record.position().map_or(0, |p| p.line() as usize);
        let row = match (record.get(0), record.get(1)) {
            (Some(file), Some(label)) => Ok((file.to_owned(), label.to_owned())),
            _ => Err(wrong!("a file and its class are needed, in two columns")),
        };
        Ok((number, row))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["cat", "dog", "crane", "crane", "tabby, cat"].map(str::to_owned).to_vec()
    }

    #[test]
    fn classes_have_names_and_numbers() {
        let class = |text: &str| class_of(text, &names(), 5).map_err(|e| e.to_string());
        assert_eq!(class("dog"), Ok(1));
        assert_eq!(class("Dog"), Ok(1));
        assert_eq!(class("tabby, cat"), Ok(4));
        assert_eq!(class("3"), Ok(3));
        for (text, part) in
            [("crane", "2 and 3"), ("5", "0 to 4"), ("bird", "no label name"), ("-1", "no number")]
        {
            assert!(class(text).is_err_and(|e| e.contains(part)), "{text}");
        }
        assert_eq!(class_of("7", &["7".to_owned(), "3".to_owned()], 2).unwrap(), 0, "a name first");
        assert!(class_of("cat", &[], 5).is_err_and(|e| e.to_string().contains("has no label names")));
    }

    #[test]
    fn lists_are_read() {
        let read = |text: &str, columns| -> Vec<(usize, Option<(String, String)>)> {
            rows(text, columns).unwrap().into_iter().map(|(n, row)| (n, row.ok())).collect()
        };
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        let list = "# comment\na.jpg 1\n\nmy photo.jpg  2\nb.png\ttabby, cat\nalone\n";
        assert_eq!(
            read(list, None),
            [
                (2, pair("a.jpg", "1")),
                (4, pair("my photo.jpg", "2")),
                (5, pair("b.png", "tabby, cat")),
                (6, None)
            ]
        );
        let csv = "file,label\na.jpg, 1\n\"b,c.jpg\",\"tabby, cat\"\nalone\n";
        assert_eq!(
            read(csv, Some(b',')),
            [
                (1, pair("file", "label")),
                (2, pair("a.jpg", "1")),
                (3, pair("b,c.jpg", "tabby, cat")),
                (4, None)
            ]
        );
    }
}
