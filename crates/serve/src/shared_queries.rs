//! Queries of today in a Redis store, which several servers share: a client's limit holds over all of them.
//!
//! | key | field | value |
//! |---|---|---|
//! | `{jaguar:queries:CLIENT}:DAY` | the model's name | how many |
//!
//! A day is that of the store's clock, from midnight UTC, and its keys are gone two days later. Looking and counting is one script, so
//! two servers never both give the last one away. A store that does not answer keeps nobody from asking: this server counts in
//! memory, from what the store said last, says so, and tells the store once it answers again.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use jaguar_engine::bundle::FileError;
use redis::{Client, Cmd, Connection, ConnectionLike, ErrorKind, RedisError};

use crate::book::{Book, DAY, WHAT, seconds};
use crate::limits::Refusal;

/// How long the store has to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a store that did not is left alone, so that queries do not wait for it.
const PAUSE: Duration = Duration::from_secs(5);

/// Where its password is taken from: command lines are seen by others.
pub(crate) const PASSWORD: &str = "JAGUAR_COUNTS_PASSWORD";

/// Limits and counts are exact in the script up to here.
const MOST: u64 = (1 << 53) - 1;

/// KEYS: `{jaguar:queries:CLIENT}`. ARGV: model, images, the client's limit, the model's (-1: none), counts even beyond limits (1).
/// Gives what is over (1: the client's, 2: the model's, 0: none), the seconds of the store's clock, and the client's
/// fields and values.
const SCRIPT: &str = r"
local now = tonumber(redis.call('TIME')[1])
local key = KEYS[1] .. ':' .. math.floor(now / 86400)
local images, of_client, of_model = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local known = redis.call('HGETALL', key)
local all, own = 0, 0
for i = 1, #known, 2 do
  all = all + tonumber(known[i + 1])
  if known[i] == ARGV[1] then own = tonumber(known[i + 1]) end
end
local over = 0
if of_client >= 0 and all + images > of_client then over = 1
elseif of_model >= 0 and own + images > of_model then over = 2 end
if (over == 0 or ARGV[5] == '1') and ARGV[1] ~= '' and images > 0 then
  redis.call('HINCRBY', key, ARGV[1], images)
  redis.call('EXPIRE', key, 172800)
  known = redis.call('HGETALL', key)
end
return {over, now, known}
";

/// What a client has had, by model.
type Counts = BTreeMap<String, u64>;

/// The book in a store.
pub(crate) struct SharedBook {
    client: Client,
    /// The address, without a password.
    shown: String,
    connection: Option<Connection>,
    /// When the store may be asked again.
    again: Option<Instant>,
    day: u64,
    /// What the store said last, and what came to it here.
    known: BTreeMap<String, Counts>,
    /// What the store does not know yet.
    unsent: BTreeMap<String, Counts>,
}

/// Which limit is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    None,
    Client,
    Model,
}

impl SharedBook {
    /// The book at `redis://[USER@]HOST[:PORT][/NUMBER]` or `redis+unix:///PATH`. The other value says why the store does not answer: then it counts in memory,
    /// and tries again.
    ///
    /// # Errors
    /// When the address is none, or has a password in it.
    pub fn open(address: &str, password: Option<String>) -> Result<(Self, Result<(), FileError>), FileError> {
        let wrong = |why: String| FileError::new(WHAT, Path::new(&shown(address)), invalid(why));
        if address.starts_with("rediss://") {
            return Err(wrong(
                "TLS to the store is not built in: name a tunnel's address on this machine".into(),
            ));
        }
        let info =
            redis::IntoConnectionInfo::into_connection_info(address).map_err(|e| wrong(e.to_string()))?;
        if info.redis_settings().password().is_some() {
            return Err(wrong(format!("a password in an address is seen by others: {PASSWORD} takes it")));
        }
        let settings = match password {
            None => info.redis_settings().clone(),
            Some(password) => info.redis_settings().clone().set_password(password),
        };
        let info = info.set_redis_settings(settings);
        let client = Client::open(info).map_err(|e| wrong(e.to_string()))?;
        let mut book = Self {
            client,
            shown: shown(address),
            connection: None,
            again: None,
            day: 0,
            known: BTreeMap::new(),
            unsent: BTreeMap::new(),
        };
        // (A store that does not answer is found now, not at the first query.)
        let told = book.connect().map(drop).map_err(|e| book.failed(e));
        Ok((book, told))
    }

    fn failed(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> FileError {
        FileError::new(WHAT, Path::new(&self.shown), io::Error::other(error))
    }

    fn connect(&mut self) -> Result<&mut Connection, RedisError> {
        if self.connection.as_ref().is_none_or(|open| !open.is_open()) {
            let connection = self.client.get_connection_with_timeout(PATIENCE)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            connection.set_write_timeout(Some(PATIENCE))?;
            self.connection = Some(connection);
        }
        Ok(self.connection.as_mut().expect("made just now"))
    }

    /// Runs the script, and notes what the store says of the client.
    fn ask(
        &mut self,
        (client, model): (&str, &str),
        images: u64,
        limits: (Option<u64>, Option<u64>),
        even_beyond: bool,
    ) -> Result<(Over, u64), RedisError> {
        let limit = |limit: Option<u64>| limit.map_or(-1, |limit| limit.min(MOST) as i64);
        let mut script = Cmd::new();
        script.arg("EVAL").arg(SCRIPT).arg(1).arg(format!("{{jaguar:queries:{client}}}"));
        script.arg(model).arg(images.min(MOST)).arg(limit(limits.0)).arg(limit(limits.1));
        script.arg(u8::from(even_beyond));
        let (over, now, fields): (u8, u64, Vec<(String, u64)>) = script.query(self.connect()?)?;
        self.turn_page(now / DAY);
        self.known.insert(client.to_owned(), fields.into_iter().collect());
        let over = match over {
            0 => Over::None,
            1 => Over::Client,
            2 => Over::Model,
            _ => return Err((ErrorKind::UnexpectedReturnType, "not an answer of the script").into()),
        };
        Ok((over, now))
    }

    /// Tells the store what it does not know.
    fn send(&mut self) -> Result<(), RedisError> {
        while let Some((client, models)) = self.unsent.pop_first() {
            for (model, images) in &models {
                if let Err(e) = self.ask((&client, model), *images, (None, None), true) {
                    // (What of it arrived counts twice: never too few.)
                    self.unsent.insert(client, models);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    fn turn_page(&mut self, today: u64) {
        if today > self.day {
            self.known.clear();
            self.unsent.clear();
            self.day = today;
        }
    }

    fn of_client(&self, client: &str) -> u64 {
        self.known
            .get(client)
            .map_or(0, |models| models.values().fold(0, |sum: u64, n| sum.saturating_add(*n)))
    }

    /// The store's answer, or that of this server's memory with why the store gave none.
    fn answer(
        &mut self,
        who: (&str, &str),
        images: u64,
        limits: (Option<u64>, Option<u64>),
        now: SystemTime,
    ) -> (Over, u64, Result<(), FileError>) {
        if self.again.is_none_or(|again| Instant::now() >= again) {
            match self.send().and_then(|()| self.ask(who, images, limits, false)) {
                Ok((over, now)) => {
                    self.again = None;
                    return (over, now, Ok(()));
                }
                Err(e) => {
                    self.connection = None;
                    self.again = Some(Instant::now() + PAUSE);
                    let why = self.failed(e);
                    let (over, now) = self.in_memory(who, images, limits, now);
                    return (over, now, Err(why));
                }
            }
        }
        let (over, now) = self.in_memory(who, images, limits, now);
        (over, now, Err(self.failed("the store did not answer just now")))
    }

    fn in_memory(
        &mut self,
        (client, model): (&str, &str),
        images: u64,
        (of_client, of_model): (Option<u64>, Option<u64>),
        now: SystemTime,
    ) -> (Over, u64) {
        self.turn_page(seconds(now) / DAY);
        let own = self.known.get(client).and_then(|models| models.get(model)).copied().unwrap_or(0);
        let over =
            |had: u64, limit: Option<u64>| limit.is_some_and(|limit| had.saturating_add(images) > limit);
        let found = match () {
            () if over(self.of_client(client), of_client) => Over::Client,
            () if over(own, of_model) => Over::Model,
            () => Over::None,
        };
        if found == Over::None && !model.is_empty() {
            for book in [&mut self.known, &mut self.unsent] {
                let count = book.entry(client.to_owned()).or_default().entry(model.to_owned()).or_default();
                *count = count.saturating_add(images);
            }
        }
        (found, seconds(now))
    }
}

impl Book for SharedBook {
    fn check_client(&mut self, client: &str, limit: u64, now: SystemTime) -> Result<(), Refusal> {
        // Of no model: nothing is counted.
        match self.answer((client, ""), 1, (Some(limit), None), now) {
            (Over::None, ..) => Ok(()),
            (Over::Client | Over::Model, now, _) => {
                Err(Refusal::QueriesSpent { limit, again: DAY - now % DAY })
            }
        }
    }

    fn count(
        &mut self,
        (client, model): (&str, &str),
        images: u64,
        (of_client, of_model): (Option<u64>, Option<u64>),
        now: SystemTime,
    ) -> Result<Result<(), FileError>, Refusal> {
        let (over, now, told) = self.answer((client, model), images, (of_client, of_model), now);
        let again = DAY - now % DAY;
        match (over, of_client, of_model) {
            (Over::Client, Some(limit), _) => Err(Refusal::QueriesSpent { limit, again }),
            (Over::Model, _, Some(limit)) => {
                Err(Refusal::ModelQueriesSpent { model: model.to_owned(), limit, again })
            }
            (Over::None | Over::Client | Over::Model, ..) => Ok(told),
        }
    }
}

/// The address as it may be shown: without what stands before an @.
fn shown(address: &str) -> String {
    match (address.split_once("://"), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => address.to_owned(),
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::thread;

    use super::*;

    /// A store of the test's own, on a Unix socket.
    struct Store {
        folder: PathBuf,
        server: Option<Child>,
    }

    impl Store {
        /// None, with a printed reason, where Redis is not installed.
        fn start(name: &str) -> Option<Self> {
            let folder = std::env::temp_dir().join(format!("jaguar-store-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).expect("made");
            let mut store = Self { folder, server: None };
            if let Err(e) = store.run() {
                eprintln!("left out: redis-server cannot be run here ({e})");
                return None;
            }
            Some(store)
        }

        fn socket(&self) -> PathBuf {
            self.folder.join("socket")
        }

        fn run(&mut self) -> io::Result<()> {
            let quiet = Stdio::null;
            let mut server = Command::new("redis-server")
                .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
                .arg(self.socket())
                .arg("--dir")
                .arg(&self.folder)
                .stdout(quiet())
                .stderr(quiet())
                .spawn()?;
            while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
                assert!(server.try_wait()?.is_none(), "the store ended");
                thread::sleep(Duration::from_millis(10));
            }
            self.server = Some(server);
            Ok(())
        }

        fn stop(&mut self) {
            if let Some(mut server) = self.server.take() {
                server.kill().expect("ours");
                server.wait().expect("ours");
            }
        }

        fn address(&self) -> String {
            format!("redis+unix://{}", self.socket().display())
        }

        fn book(&self) -> SharedBook {
            let (book, told) = SharedBook::open(&self.address(), None).expect("an address");
            told.expect("it answers");
            book
        }
    }

    impl Drop for Store {
        fn drop(&mut self) {
            self.stop();
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    fn count(
        book: &mut SharedBook,
        who: (&str, &str),
        images: u64,
        limits: [u64; 2],
    ) -> Result<bool, &'static str> {
        let told = book.count(who, images, (Some(limits[0]), Some(limits[1])), SystemTime::now());
        told.map(|told| told.is_ok()).map_err(|why| why.kind())
    }

    #[test]
    fn a_limit_holds_over_all_servers() {
        let Some(store) = Store::start("limit") else { return };
        let [mut one, mut other] = [(); 2].map(|()| store.book());
        let alice = ("alice in w", "a");
        assert_eq!(count(&mut one, alice, 2, [3, 9]), Ok(true));
        assert_eq!(other.check_client(alice.0, 3, SystemTime::now()), Ok(()));
        assert_eq!(count(&mut other, alice, 2, [3, 9]), Err("queries-spent"), "all or none");
        assert_eq!(count(&mut other, alice, 1, [3, 9]), Ok(true));
        let spent = one.check_client(alice.0, 3, SystemTime::now()).expect_err("three");
        assert!(
            matches!(spent, Refusal::QueriesSpent { limit: 3, again } if (1..=DAY).contains(&again)),
            "{spent}"
        );
        assert_eq!(one.check_client(alice.0, 4, SystemTime::now()), Ok(()), "looking counts nothing");
        // A model's limit is of that model alone; other clients have their own.
        assert_eq!(count(&mut one, ("bob", "a"), 1, [9, 1]), Ok(true));
        assert_eq!(count(&mut other, ("bob", "a"), 1, [9, 1]), Err("model-queries-spent"));
        assert_eq!(count(&mut other, ("bob", "b"), 1, [9, 1]), Ok(true));
        // A server that is started again knows it all.
        assert_eq!(count(&mut store.book(), alice, 1, [3, 9]), Err("queries-spent"));
    }

    #[test]
    fn two_servers_never_both_give_the_last_one_away() {
        let Some(store) = Store::start("race") else { return };
        let given: usize = thread::scope(|scope| {
            let askers: Vec<_> = (0..8)
                .map(|_| {
                    let mut book = store.book();
                    scope.spawn(move || {
                        (0..50)
                            .filter(|_| count(&mut book, ("carol", "a"), 1, [100, 1000]) == Ok(true))
                            .count()
                    })
                })
                .collect();
            askers.into_iter().map(|asker| asker.join().expect("no panic")).sum()
        });
        assert_eq!(given, 100);
    }

    #[test]
    fn without_the_store_this_server_counts_and_tells_it_later() {
        let Some(mut store) = Store::start("away") else { return };
        let mut book = store.book();
        let dora = ("dora", "a");
        assert_eq!(count(&mut book, dora, 1, [4, 9]), Ok(true));
        store.stop();
        assert_eq!(count(&mut book, dora, 1, [4, 9]), Ok(false), "counted, and not written");
        assert_eq!(count(&mut book, dora, 1, [4, 9]), Ok(false), "the store is left alone for a while");
        assert_eq!(count(&mut book, dora, 2, [4, 9]), Err("queries-spent"), "the store's count is known");
        // It comes back empty, and learns what it does not know.
        let _ = fs::remove_file(store.socket());
        store.run().expect("ran before");
        book.again = None;
        assert_eq!(count(&mut book, dora, 1, [4, 9]), Ok(true));
        assert!(book.unsent.is_empty());
        assert_eq!(
            count(&mut store.book(), dora, 2, [4, 9]),
            Err("queries-spent"),
            "three of four are known"
        );
        assert_eq!(count(&mut store.book(), dora, 1, [4, 9]), Ok(true));
    }

    #[test]
    fn addresses_are_looked_at_and_secrets_not_shown() {
        let refused = |address| SharedBook::open(address, None).err().expect("refused").to_string();
        let told = refused("redis://user:secret@host:1/0");
        assert!(
            told.contains(PASSWORD) && told.contains("redis://host:1/0") && !told.contains("secret"),
            "{told}"
        );
        assert!(refused("rediss://host").contains("tunnel"));
        assert!(refused("redis://host:port").contains("redis://host:port"));
        // Nobody listens there.
        let (_, told) = SharedBook::open("redis://127.0.0.1:1", None).expect("an address");
        let told = told.expect_err("nobody answers").to_string();
        assert!(told.contains("counting queries in redis://127.0.0.1:1"), "{told}");
    }
}
