//! Who may use which model, and how much of it: rules for clients that have shown who they are, and what each of them has now.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use jaguar_engine::bundle::FileError;

use crate::book::Book;
use crate::counts::{self, Counts};
use crate::limits::{Refusal, SOON};

/// Rules for clients by name. A client without a name is under none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// For clients that have no rule of their own.
    pub everybody: ClientRules,
    /// For one client. What is not said there is as for everybody.
    pub clients: BTreeMap<String, ClientRules>,
    /// For one model, by its name.
    pub models: BTreeMap<String, ModelRules>,
}

/// What a client may take. `None`: no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRules {
    /// Sessions at once. (A client with prepared queries has two.)
    pub sessions: Option<usize>,
    /// Queries of a day (UTC), of all models together.
    pub queries_per_day: Option<u64>,
    /// The models that it may use.
    pub models: Option<BTreeSet<String>>,
}

/// Who may use a model, and how much. `None`: no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelRules {
    /// The clients that may use it.
    pub clients: Option<BTreeSet<String>>,
    /// Queries of a day (UTC) by each client.
    pub queries_per_client_and_day: Option<u64>,
}

impl Rules {
    fn of<T>(&self, client: &str, part: impl Fn(&ClientRules) -> Option<T>) -> Option<T> {
        self.clients.get(client).and_then(&part).or_else(|| part(&self.everybody))
    }

    /// Whether `client` may use `model`. One without a name may use what is not kept for others.
    pub(crate) fn may_use(&self, client: Option<&str>, model: &str) -> bool {
        let of_model = self.models.get(model).and_then(|rules| rules.clients.as_ref());
        let Some(client) = client else { return of_model.is_none() };
        of_model.is_none_or(|clients| clients.contains(client))
            && self.of(client, |rules| Some(rules.models.as_ref()?.contains(model))).unwrap_or(true)
    }

    /// Whether any of them bounds queries.
    pub(crate) fn bound_queries(&self) -> bool {
        let clients = self.clients.values().chain([&self.everybody]);
        clients.into_iter().any(|rules| rules.queries_per_day.is_some())
            || self.models.values().any(|rules| rules.queries_per_client_and_day.is_some())
    }

    /// Whether nobody is bound by anything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The rules in force, and what clients have of what they allow.
pub(crate) struct Register {
    rules: RwLock<Arc<Rules>>,
    sessions: Mutex<HashMap<String, usize>>,
    /// The file that queries are counted in.
    path: Mutex<Option<Counts>>,
    queries: Mutex<Option<Box<dyn Book>>>,
}

/// A session of a client, free again when dropped.
pub(crate) struct Attendance {
    register: Arc<Register>,
    client: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Register {
    /// A register that bounds nobody until rules are put in force.
    pub fn new() -> Self {
        Self {
            rules: RwLock::default(),
            sessions: Mutex::default(),
            path: Mutex::default(),
            queries: Mutex::default(),
        }
    }

    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts rules in force, for sessions that are there too. If they bound queries, these are counted in `counts`, which
    /// stays the one that was named first. The value says why they are not written, if they cannot be: then they are counted in memory.
    ///
    /// # Errors
    /// When the file is another server's, or no sound one; then the rules stay as they were.
    pub fn put_in_force(&self, rules: Rules, counts: Option<Counts>) -> Result<Option<FileError>, FileError> {
        let mut path = lock(&self.path);
        let mut unwritten = None;
        let known = path.clone().or(counts);
        if rules.bound_queries() {
            let mut book = lock(&self.queries);
            if book.is_none() {
                let (opened, written) = counts::open(known.clone(), SystemTime::now())?;
                *book = Some(opened);
                unwritten = written.err();
            }
        }
        *path = known;
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        Ok(unwritten)
    }

    /// Lets a client in, if it has not too many sessions, and has queries left today. (One that is there may have another connection for what
    /// it has prepared, which counts already.)
    pub fn enter(self: &Arc<Self>, client: Option<&str>) -> Result<Attendance, Refusal> {
        let Some(client) = client else { return Ok(Attendance { register: self.clone(), client: None }) };
        let rules = self.rules();
        let mut sessions = lock(&self.sessions);
        let open = sessions.get(client).copied().unwrap_or(0);
        if open == 0
            && let Some(book) = &mut *lock(&self.queries)
            && let Some(limit) = rules.of(client, |rules| rules.queries_per_day)
        {
            book.check_client(client, limit, SystemTime::now())?;
        }
        match rules.of(client, |rules| rules.sessions) {
            Some(limit) if open >= limit => Err(Refusal::ClientBusy { limit, again: SOON }),
            _ => {
                sessions.insert(client.to_owned(), open + 1);
                Ok(Attendance { register: self.clone(), client: Some(client.to_owned()) })
            }
        }
    }

    /// Counts a query of `client` to `model` about so many images, if it may have as many more. What cannot be written is told by the other value: it counts
    /// until this process ends.
    pub fn count_query(
        &self,
        client: Option<&str>,
        model: &str,
        images: u64,
    ) -> Result<Result<(), FileError>, Refusal> {
        let (Some(client), Some(book)) = (client, &mut *lock(&self.queries)) else { return Ok(Ok(())) };
        let rules = self.rules();
        let of_client = rules.of(client, |rules| rules.queries_per_day);
        let of_model = rules.models.get(model).and_then(|rules| rules.queries_per_client_and_day);
        book.count((client, model), images, (of_client, of_model), SystemTime::now())
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        let mut sessions = lock(&self.register.sessions);
        match sessions.get_mut(&client) {
            Some(open) if *open > 1 => *open -= 1,
            _ => {
                sessions.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> Option<BTreeSet<String>> {
        Some(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn models_and_clients_both_say_who_may() {
        let mut rules = Rules::default();
        assert!(rules.may_use(None, "a") && rules.may_use(Some("x"), "a") && rules.is_empty());
        rules
            .models
            .insert("a".into(), ModelRules { clients: set(&["alice", "bob"]), ..ModelRules::default() });
        rules.clients.insert("bob".into(), ClientRules { models: set(&["b"]), ..ClientRules::default() });
        rules.everybody.models = set(&["a", "b"]);
        let may = |client, model| rules.may_use(client, model);
        assert_eq!(["a", "b", "c"].map(|m| may(Some("alice"), m)), [true, true, false]);
        assert_eq!(["a", "b", "c"].map(|m| may(Some("bob"), m)), [false, true, false]);
        assert_eq!(["a", "b", "c"].map(|m| may(Some("carol"), m)), [false, true, false]);
        assert_eq!(["a", "b"].map(|m| may(None, m)), [false, true], "nobody in particular");
    }

    #[test]
    fn sessions_of_a_client_are_limited_and_given_back() {
        let register = Arc::new(Register::new());
        let mut rules = Rules {
            everybody: ClientRules { sessions: Some(1), ..ClientRules::default() },
            ..Rules::default()
        };
        rules.clients.insert("bob".into(), ClientRules { sessions: Some(2), ..ClientRules::default() });
        register.put_in_force(rules, None).expect("no file is needed");
        let enter = |client| register.enter(Some(client));
        let alice = enter("alice").expect("the first");
        let refused = enter("alice").err().expect("the second");
        assert_eq!(refused, Refusal::ClientBusy { limit: 1, again: SOON });
        let _bobs = [(); 2].map(|()| enter("bob").expect("two are allowed"));
        assert!(enter("bob").is_err());
        drop(alice);
        drop(enter("alice").expect("free again"));
        let _unnamed = [(); 3].map(|()| register.enter(None).expect("no rules for it"));
        assert_eq!(lock(&register.sessions).len(), 1, "nothing is remembered of who has gone");
    }

    #[test]
    fn queries_need_a_file() {
        let register = Register::new();
        let everybody = ClientRules { queries_per_day: Some(1), ..ClientRules::default() };
        let error =
            register.put_in_force(Rules { everybody, ..Rules::default() }, None).expect_err("no file");
        assert!(error.to_string().contains("no file is named"), "{error}");
        assert!(register.rules().is_empty(), "the rules stay as they were");
    }
}
