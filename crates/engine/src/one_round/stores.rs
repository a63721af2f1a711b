//! What a server keeps beyond a session: clients' keys, and answers that were not collected yet. All of it in memory, bounded.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Ticket;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keys by their hash, complete or not. Those that were used longest ago make place for others.
pub(super) struct KeyStore {
    capacity: u64,
    /// The last one was used last.
    entries: Mutex<VecDeque<([u8; 32], Keys)>>,
}

/// One client's keys.
#[derive(Clone)]
pub(super) enum Keys {
    /// All of them; they match their hash.
    Complete(Arc<[u8]>),
    /// The first chunks. Each matched its own hash.
    Partial(Vec<u8>),
}

impl Keys {
    pub fn len(&self) -> usize {
        match self {
            Self::Complete(bytes) => bytes.len(),
            Self::Partial(bytes) => bytes.len(),
        }
    }
}

impl KeyStore {
    /// Holds at most `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, entries: Mutex::default() }
    }

    /// What there is of the keys with this hash. Partial ones are taken out: whoever goes on with them puts them back.
    pub fn take(&self, hash: &[u8; 32]) -> Keys {
        let mut entries = lock(&self.entries);
        let Some(at) = entries.iter().position(|(found, _)| found == hash) else {
            return Keys::Partial(Vec::new());
        };
        let (_, keys) = entries.remove(at).expect("just found");
        if let Keys::Complete(_) = &keys {
            entries.push_back((*hash, keys.clone()));
        }
        keys
    }

    /// Keeps keys, as far as there is room: of two parts of the same keys the longer one.
    pub fn put(&self, hash: [u8; 32], keys: Keys) {
        let mut entries = lock(&self.entries);
        if let Some(at) = entries.iter().position(|(found, _)| *found == hash) {
            if entries[at].1.len() >= keys.len() && !matches!(keys, Keys::Complete(_)) {
                return;
            }
            entries.remove(at);
        }
        entries.push_back((hash, keys));
        let mut total: u64 = entries.iter().map(|(_, keys)| keys.len() as u64).sum();
        while total > self.capacity
            && let Some((_, oldest)) = entries.pop_front()
        {
            total -= oldest.len() as u64;
        }
    }
}

/// Answers that are being computed or wait to be collected.
pub(super) struct Answers {
    /// Answers, and bytes of all outputs, at most.
    max_answers: usize,
    max_bytes: u64,
    /// The oldest first.
    answers: Mutex<VecDeque<(Ticket, Answer)>>,
    changed: Condvar,
}

/// How far an answer is.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// So many thousandths are done.
    Running(u16),
    Done(Arc<[u8]>),
    /// Why there is none.
    Failed(String),
}

impl Answer {
    fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }

    fn bytes(&self) -> u64 {
        if let Self::Done(output) = self { output.len() as u64 } else { 0 }
    }
}

/// An answer that is being computed. Dropped without an end, it has failed.
pub(super) struct Running<'a> {
    answers: &'a Answers,
    pub ticket: Ticket,
}

impl Answers {
    pub fn new(max_answers: usize, max_bytes: u64) -> Self {
        Self { max_answers, max_bytes, answers: Mutex::default(), changed: Condvar::new() }
    }

    /// Begins an answer under a new ticket; `None` when as many as may be are being computed. The oldest answers that nobody
    /// collected make place.
    pub fn begin(&self, ticket: Ticket) -> Option<Running<'_>> {
        let mut answers = lock(&self.answers);
        while answers.len() >= self.max_answers {
            let oldest = answers.iter().position(|(_, answer)| !answer.is_running())?;
            answers.remove(oldest);
        }
        answers.push_back((ticket, Answer::Running(0)));
        Some(Running { answers: self, ticket })
    }

    /// Waits until an answer is further than `seen`; `None` where there is no such answer.
    pub fn wait(&self, ticket: Ticket, seen: Option<u16>) -> Option<Answer> {
        let mut answers = lock(&self.answers);
        loop {
            let (_, answer) = answers.iter().find(|(found, _)| *found == ticket)?;
            match answer {
                Answer::Running(now) if seen.is_some_and(|seen| *now <= seen) => {}
                answer => return Some(answer.clone()),
            }
            answers = self.changed.wait(answers).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Drops an answer that is there; one that is being computed goes on.
    pub fn forget(&self, ticket: Ticket) {
        lock(&self.answers).retain(|(found, answer)| *found != ticket || answer.is_running());
    }

    fn set(&self, ticket: Ticket, state: Answer) {
        let mut answers = lock(&self.answers);
        if let Some((_, answer)) = answers.iter_mut().find(|(found, _)| *found == ticket) {
            *answer = state;
        }
        let mut total: u64 = answers.iter().map(|(_, answer)| answer.bytes()).sum();
        while total > self.max_bytes {
            // The newest stays: its length was checked.
            let other = |(found, answer): &(Ticket, Answer)| *found != ticket && answer.bytes() > 0;
            let Some(oldest) = answers.iter().position(other) else { break };
            total -= answers.remove(oldest).map_or(0, |(_, answer)| answer.bytes());
        }
        self.changed.notify_all();
    }
}

impl Running<'_> {
    pub fn progress(&self, thousandths: u16) {
        self.answers.set(self.ticket, Answer::Running(thousandths));
    }

    /// It is there, or will never be.
    pub fn end(self, answer: Answer) {
        self.answers.set(self.ticket, answer);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut answers = lock(&self.answers.answers);
        if let Some((_, answer)) = answers.iter_mut().find(|(found, _)| *found == self.ticket)
            && answer.is_running()
        {
            *answer = Answer::Failed("computing the answer broke off".into());
            self.answers.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(n: u8) -> Ticket {
        Ticket([n; 32])
    }

    #[test]
    fn keys_make_place_in_the_order_of_their_use() {
        let store = KeyStore::new(10);
        let complete = |n: usize| Keys::Complete(vec![0; n].into());
        store.put([1; 32], complete(4));
        store.put([2; 32], Keys::Partial(vec![0; 4]));
        // The first is used again, so the second goes.
        assert!(matches!(store.take(&[1; 32]), Keys::Complete(_)));
        store.put([3; 32], complete(5));
        assert_eq!([1, 2, 3].map(|n| store.take(&[n; 32]).len()), [4, 0, 5]);
        // Too large to be kept at all.
        store.put([4; 32], complete(11));
        assert_eq!([1, 3, 4].map(|n| store.take(&[n; 32]).len()), [0, 0, 0]);
    }

    #[test]
    fn the_longer_part_stays_and_is_taken_out() {
        let store = KeyStore::new(10);
        store.put([1; 32], Keys::Partial(vec![0; 4]));
        store.put([1; 32], Keys::Partial(vec![0; 2]));
        assert_eq!(store.take(&[1; 32]).len(), 4);
        assert_eq!(store.take(&[1; 32]).len(), 0);
    }

    #[test]
    fn answers_are_bounded_in_number_and_bytes() {
        let answers = Answers::new(2, 5);
        let first = answers.begin(ticket(1)).unwrap();
        let second = answers.begin(ticket(2)).unwrap();
        assert!(answers.begin(ticket(3)).is_none(), "both are being computed");
        second.end(Answer::Done(vec![0; 3].into()));
        first.end(Answer::Done(vec![0; 3].into()));
        assert!(answers.wait(ticket(2), None).is_none(), "six bytes are too many");
        assert!(matches!(answers.wait(ticket(1), None), Some(Answer::Done(_))));
        // What nobody collected makes place; what is being computed cannot be forgotten.
        let _third = answers.begin(ticket(3)).unwrap();
        let fourth = answers.begin(ticket(4)).unwrap();
        assert!(answers.wait(ticket(1), None).is_none());
        answers.forget(ticket(4));
        fourth.progress(7);
        assert!(matches!(answers.wait(ticket(4), Some(6)), Some(Answer::Running(7))));
        drop(fourth);
        assert!(matches!(answers.wait(ticket(4), Some(7)), Some(Answer::Failed(_))));
    }
}
