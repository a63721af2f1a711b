//! Queries of today, by client and model, in a file: a server that is started again knows them.
//!
//! ```text
//! jaguar queries 1
//! day 20780
//! 12 resnet-18 alice
//! ```
//!
//! A day begins at midnight UTC. A line has a number, a model's name and a client's (which may have spaces). The file is written anew
//! before a counted query is answered: whole or not at all, and for its owner alone. One server uses it at a time.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jaguar_engine::bundle::{FileError, files};

use crate::book::{Book, DAY, WHAT, seconds};
use crate::limits::Refusal;

const HEAD: &str = "jaguar queries 1";

/// Bytes of a file that is read, at most.
const LONGEST: u64 = 64 << 20;

/// How many queries each client has had today, in memory and in a file.
pub(crate) struct QueryBook {
    path: PathBuf,
    day: u64,
    /// How many: by client, then by model.
    counts: BTreeMap<String, BTreeMap<String, u64>>,
    /// Held as long as this server is there. None where it could not be made.
    lock: Option<files::Lock>,
}

fn day(now: SystemTime) -> u64 {
    seconds(now) / DAY
}

impl QueryBook {
    /// The book at `path`, which is made if it is not there. The other value says why it could not be written: then it counts in memory,
    /// and each count tries again.
    ///
    /// # Errors
    /// When there is no path, another server uses the file, or it holds something else or cannot be read.
    pub fn open(path: Option<PathBuf>, now: SystemTime) -> Result<(Self, Result<(), FileError>), FileError> {
        let Some(path) = path else {
            let no_name =
                io::Error::new(io::ErrorKind::NotFound, "no file is named, and no cache folder is known");
            return Err(FileError::new(WHAT, Path::new("no file"), no_name));
        };
        let mut book = Self { path, day: 0, counts: BTreeMap::new(), lock: None };
        let held = match book.hold() {
            Err(e) if is_used(&e) => return Err(book.failed(e)),
            held => held,
        };
        let read = || -> io::Result<Option<String>> {
            match fs::metadata(&book.path) {
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    Ok(None)
                }
                Err(e) => Err(e),
                Ok(about) if about.len() > LONGEST => {
                    Err(damaged("longer than any that this program writes"))
                }
                Ok(_) => fs::read_to_string(&book.path).map(Some),
            }
        };
        let read = read().and_then(|text| text.as_deref().map(parse).transpose());
        (book.day, book.counts) = read.map_err(|e| book.failed(e))?.unwrap_or_default();
        book.turn_page(now);
        // (What cannot be written is found now, not at the first query.)
        let written = held.map_err(|e| book.failed(e)).and_then(|()| book.write());
        Ok((book, written))
    }

    fn failed(&self, error: io::Error) -> FileError {
        FileError::new(WHAT, &self.path, error)
    }

    /// Takes the file for this server, if it has not.
    fn hold(&mut self) -> io::Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".lock");
        let lock = files::Lock::take(&self.path.with_file_name(name)).map_err(|e| match is_used(&e) {
            true => io::Error::new(e.kind(), "another server counts there: name another file with --counts"),
            false => e,
        });
        self.lock = Some(lock?);
        Ok(())
    }

    /// Begins a new day if one has come. A clock that was set back gives nobody new queries, and one that runs ahead takes nobody's
    /// for longer than a day.
    fn turn_page(&mut self, now: SystemTime) {
        let today = day(now);
        if today > self.day {
            self.counts.clear();
        }
        self.day = today;
    }

    fn of_client(&self, client: &str) -> u64 {
        self.counts.get(client).map_or(0, |models| models.values().fold(0, |sum, n| n.saturating_add(sum)))
    }

    /// Whether it has so many left.
    fn check_more(&mut self, client: &str, more: u64, limit: u64, now: SystemTime) -> Result<(), Refusal> {
        self.turn_page(now);
        if self.of_client(client).saturating_add(more) <= limit {
            return Ok(());
        }
        Err(Refusal::QueriesSpent { limit, again: until_tomorrow(now) })
    }

    fn write(&self) -> Result<(), FileError> {
        let mut text = format!("{HEAD}\nday {}\n", self.day);
        for (client, models) in &self.counts {
            for (model, count) in models.iter().filter(|(_, count)| **count > 0) {
                text.push_str(&format!("{count} {model} {client}\n"));
            }
        }
        files::replace(&self.path, text.as_bytes())
    }
}

impl Book for QueryBook {
    fn check_client(&mut self, client: &str, limit: u64, now: SystemTime) -> Result<(), Refusal> {
        self.check_more(client, 1, limit, now)
    }

    fn count(
        &mut self,
        (client, model): (&str, &str),
        images: u64,
        (of_client, of_model): (Option<u64>, Option<u64>),
        now: SystemTime,
    ) -> Result<Result<(), FileError>, Refusal> {
        self.turn_page(now);
        if let Some(limit) = of_client {
            self.check_more(client, images, limit, now)?;
        }
        let models = self.counts.entry(client.to_owned()).or_default();
        let count = models.entry(model.to_owned()).or_default();
        if let Some(limit) = of_model.filter(|limit| count.saturating_add(images) > *limit) {
            return Err(Refusal::ModelQueriesSpent {
                model: model.to_owned(),
                limit,
                again: until_tomorrow(now),
            });
        }
        *count = count.saturating_add(images);
        Ok(self.hold().map_err(|e| self.failed(e)).and_then(|()| self.write()))
    }
}

/// Whether another server has the file.
fn is_used(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

fn until_tomorrow(now: SystemTime) -> u64 {
    DAY - seconds(now) % DAY
}

fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

type Page = (u64, BTreeMap<String, BTreeMap<String, u64>>);

fn parse(text: &str) -> io::Result<Page> {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return Err(damaged(format!("it does not begin with '{HEAD}'")));
    }
    let day = lines.next().and_then(|line| line.strip_prefix("day ")?.parse().ok());
    let day = day.ok_or_else(|| damaged("line 2 is no day"))?;
    let mut counts: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for (line, number) in lines.zip(3..) {
        let mut words = line.splitn(3, ' ');
        let count = words.next().and_then(|word| word.parse().ok());
        let (Some(count), Some(model), Some(client)) = (count, words.next(), words.next()) else {
            return Err(damaged(format!("line {number} is no number, model and client")));
        };
        counts.entry(client.to_owned()).or_default().insert(model.to_owned(), count);
    }
    Ok((day, counts))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("jaguar-queries-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            Self(folder)
        }

        fn open(&self, seconds: u64) -> Result<QueryBook, FileError> {
            let (book, written) = QueryBook::open(Some(self.0.join("deep/queries")), at(seconds))?;
            written.map(|()| book)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    const NOON: u64 = 20_000 * DAY + DAY / 2;

    #[test]
    fn counts_survive_a_restart_and_end_with_the_day() {
        let place = Place::new("restart");
        let count = |book: &mut QueryBook, who: (&str, &str), limit, seconds| {
            book.count(who, 1, (Some(limit), None), at(seconds)).map(|written| written.expect("written"))
        };
        let mut book = place.open(NOON).expect("made");
        assert_eq!(count(&mut book, ("alice in w", "a"), 2, NOON), Ok(()));
        assert_eq!(count(&mut book, ("bob", "a"), 2, NOON), Ok(()));
        assert!(place.open(NOON).is_err_and(|e| e.to_string().contains("another server counts there")));
        drop(book);
        let mut book = place.open(NOON + 60).expect("there");
        assert_eq!(count(&mut book, ("alice in w", "b"), 2, NOON + 60), Ok(()));
        let again = DAY / 2 - 60;
        let spent = Err(Refusal::QueriesSpent { limit: 2, again });
        assert_eq!(count(&mut book, ("alice in w", "c"), 2, NOON + 60), spent);
        assert_eq!(book.check_client("alice in w", 2, at(NOON + 60)), spent);
        assert_eq!(book.check_client("bob", 2, at(NOON + 60)), Ok(()));
        let mut batch = |images| book.count(("dora", "a"), images, (Some(20), None), at(NOON + 60)).map(drop);
        assert_eq!([batch(16), batch(4)], [Ok(()), Ok(())], "as many as there are images");
        assert_eq!(batch(1), Err(Refusal::QueriesSpent { limit: 20, again }));
        let mut batch = |images| book.count(("emma", "a"), images, (None, Some(20)), at(NOON + 60)).map(drop);
        assert!(batch(16).is_ok() && batch(8).is_err() && batch(4).is_ok(), "all or none");
        assert_eq!(
            book.check_client("carol", 0, at(NOON + 60)),
            Err(Refusal::QueriesSpent { limit: 0, again })
        );
        drop(book);
        let mut book = place.open(NOON + DAY).expect("there");
        assert_eq!(count(&mut book, ("alice in w", "a"), 1, NOON + DAY), Ok(()));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(place.0.join("deep/queries")).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_model_has_a_limit_of_its_own() {
        let place = Place::new("model");
        let mut book = place.open(NOON).expect("made");
        let mut count = |model| book.count(("alice", model), 1, (Some(3), Some(1)), at(NOON)).map(drop);
        assert_eq!(count("a"), Ok(()));
        let spent = Refusal::ModelQueriesSpent { model: "a".into(), limit: 1, again: DAY / 2 };
        assert_eq!(count("a"), Err(spent));
        assert_eq!([count("b"), count("c")], [Ok(()), Ok(())], "a refusal does not count");
        assert_eq!(count("d"), Err(Refusal::QueriesSpent { limit: 3, again: DAY / 2 }));
    }

    #[test]
    fn a_clock_that_jumps_gives_nothing_and_locks_nobody_out() {
        let place = Place::new("jumps");
        let mut book = place.open(NOON).expect("made");
        let mut count = |seconds| book.count(("alice", "a"), 1, (Some(1), None), at(seconds)).map(drop);
        assert_eq!(count(NOON), Ok(()));
        assert!(count(NOON - 5 * DAY).is_err(), "set back");
        assert_eq!(count(NOON + 300 * DAY), Ok(()), "another day");
        assert!(count(NOON).is_err(), "set right again: that query counts today");
        assert_eq!(count(NOON + DAY), Ok(()), "and not tomorrow");
    }

    #[test]
    fn what_cannot_be_written_counts_in_memory_until_it_can() {
        let place = Place::new("unwritable");
        // A file stands where a folder should.
        fs::create_dir_all(&place.0).expect("made");
        fs::write(place.0.join("deep"), "").expect("written");
        assert!(place.open(NOON).is_err_and(|e| e.to_string().contains("deep")));
        let (mut book, _) = QueryBook::open(Some(place.0.join("deep/queries")), at(NOON)).expect("in memory");
        let mut count = || book.count(("alice", "a"), 1, (Some(2), None), at(NOON));
        assert!(matches!(count(), Ok(Err(_))), "counted, and not written");
        fs::remove_file(place.0.join("deep")).expect("ours");
        assert!(matches!(count(), Ok(Ok(()))));
        assert_eq!(count().err(), Some(Refusal::QueriesSpent { limit: 2, again: DAY / 2 }));
        let text = fs::read_to_string(place.0.join("deep/queries")).expect("written");
        assert!(text.ends_with("\n2 a alice\n"), "{text}");
        assert!(place.open(NOON).is_err_and(|e| e.to_string().contains("another server counts there")));
    }

    #[test]
    fn damaged_files_are_told() {
        let place = Place::new("damaged");
        drop(place.open(NOON).expect("made"));
        let path = place.0.join("deep/queries");
        for (text, what) in [
            ("", "does not begin"),
            ("jaguar queries 1\n", "line 2"),
            ("jaguar queries 1\nday x\n", "line 2"),
            ("jaguar queries 1\nday 1\n1 a\n", "line 3"),
            ("jaguar queries 1\nday 1\n1 a b\n-1 a c\n", "line 4"),
        ] {
            fs::write(&path, text).expect("written");
            let error = place.open(NOON).err().expect("refused").to_string();
            assert!(error.contains(what) && error.contains("deep"), "{error}");
        }
    }
}
