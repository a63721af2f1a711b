//! Transports for tests and measurements, each around another: a recorder, a shaped link, injected faults.
//!
//! - [`Recorder`] keeps what went over the wire, for tests that pin a protocol's traffic or look at what a
//!   party got to see.
//! - [`Shaped`] delays as a link of given bandwidth and latency does. Both ends must be shaped.
//! - [`Faulty`] cuts the connection, flips a bit or falls silent at a chosen byte.
//! - [`repeats`] finds what was sent twice.
//! - [`link`] has both ends of a connection, on which something goes wrong at a chosen message, and its own time.

mod faulty;
pub mod link;
pub mod repeats;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Clock, SystemClock, Transport, WireError};

pub use faulty::{Fault, Faulty};

/// A clock that stands where the system's stood when it was made: times that a session measures, and tells its peer, are zeros. It is
/// never behind what the system's told before: a budget that both were asked for would make its client wait.
#[derive(Clone, Copy, Debug)]
pub struct Frozen(Duration);

impl Default for Frozen {
    fn default() -> Self {
        Self(SystemClock.now())
    }
}

impl Clock for Frozen {
    fn now(&self) -> Duration {
        self.0
    }
}

// ---- Recorder ----

/// Passes everything through and records both directions.
pub struct Recorder<T> {
    inner: T,
    record: Transcript,
}

/// A handle on what a [`Recorder`] has seen. It outlives the recorder.
#[derive(Clone)]
pub struct Transcript(Arc<Mutex<Record>>);

struct Record {
    sent: Direction,
    received: Direction,
}

struct Direction {
    hash: blake3::Hasher,
    len: u64,
    bytes: Option<Vec<u8>>,
}

impl Direction {
    fn new(keep: bool) -> Self {
        Self { hash: blake3::Hasher::new(), len: 0, bytes: keep.then(Vec::new) }
    }

    fn add(&mut self, chunk: &[u8]) {
        self.hash.update(chunk);
        self.len += chunk.len() as u64;
        if let Some(bytes) = &mut self.bytes {
            bytes.extend_from_slice(chunk);
        }
    }
}

impl<T: Transport> Recorder<T> {
    /// Records every byte of both directions, in memory.
    pub fn new(inner: T) -> (Self, Transcript) {
        Self::with(inner, true)
    }

    /// Records lengths and hashes only, for traffic too large to keep.
    pub fn hashing(inner: T) -> (Self, Transcript) {
        Self::with(inner, false)
    }

    fn with(inner: T, keep: bool) -> (Self, Transcript) {
        let record = Record { sent: Direction::new(keep), received: Direction::new(keep) };
        let record = Transcript(Arc::new(Mutex::new(record)));
        (Self { inner, record: record.clone() }, record)
    }
}

impl Transcript {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes sent and received by the recorded party.
    pub fn lengths(&self) -> (u64, u64) {
        let record = self.lock();
        (record.sent.len, record.received.len)
    }

    /// What the recorded party sent. Empty if only hashes are kept.
    pub fn sent(&self) -> Vec<u8> {
        self.lock().sent.bytes.clone().unwrap_or_default()
    }

    /// What the recorded party received. Empty if only hashes are kept.
    pub fn received(&self) -> Vec<u8> {
        self.lock().received.bytes.clone().unwrap_or_default()
    }

    /// BLAKE3 over the length and hash of what was sent, then of what was received. It does not depend on
    /// how the bytes were cut into chunks.
    pub fn digest(&self) -> [u8; 32] {
        let record = self.lock();
        let mut all = blake3::Hasher::new();
        for direction in [&record.sent, &record.received] {
            all.update(&direction.len.to_le_bytes());
            all.update(direction.hash.finalize().as_bytes());
        }
        *all.finalize().as_bytes()
    }
}

impl<T: Transport> Transport for Recorder<T> {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        self.record.lock().sent.add(&chunk);
        self.inner.send(chunk)
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        let chunk = self.inner.recv()?;
        self.record.lock().received.add(&chunk);
        Ok(chunk)
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        let chunk = self.inner.recv_within(time)?;
        chunk.iter().for_each(|chunk| self.record.lock().received.add(chunk));
        Ok(chunk)
    }

    fn abort(&mut self, reason: &str) {
        self.inner.abort(reason);
    }

    fn put_off(&mut self, reason: &str) {
        self.inner.put_off(reason);
    }
}

// ---- Shaped link ----

/// What a link delays by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes a second, in each direction.
    pub bytes_per_second: f64,
    /// From one end to the other: half a round trip.
    pub one_way: Duration,
}

impl Link {
    /// The LAN of Fregata's paper (section VI-A): 460 MB/s. It does not say how long a round trip takes; 0.3 ms is
    /// assumed.
    pub const LAN_460: Self = Self { bytes_per_second: 460e6, one_way: Duration::from_micros(150) };
    /// The LAN of Jaguar's paper (section 5, *Implementation*): 384 MB/s, 0.3 ms round trip.
    pub const LAN: Self = Self { bytes_per_second: 384e6, one_way: Duration::from_micros(150) };
    /// Its WAN: 62.5 MB/s, 20 ms round trip.
    pub const WAN: Self = Self { bytes_per_second: 62.5e6, one_way: Duration::from_millis(10) };

    /// How long `bytes` occupy the link.
    fn occupied(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second)
    }
}

/// A link of given bandwidth and latency, without privileges or kernel queues.
///
/// The sender cuts what it sends into parcels and stamps each with the time at which its last byte
/// arrives: the link takes up a parcel when it has done with the one before, is occupied by it for
/// length / bandwidth, and delivers it `one_way` later. The receiver waits for the stamp. So a sender never
/// waits, parcels follow each other at the link's rate with the latency paid once, and the delay counts from
/// when the data was sent, not from when it was asked for. The two ends' clocks must agree (one machine).
///
/// Its own 12 bytes a parcel are not charged.
pub struct Shaped<T> {
    inner: T,
    link: Link,
    /// When the outgoing direction has done with everything sent so far, since the epoch.
    free_at: Duration,
    /// Came from `inner`, not yet delivered: `input[read..]`.
    input: Vec<u8>,
    read: usize,
}

/// Data a parcel holds, at most: 16 KiB, a quarter of a millisecond at the WAN's rate.
const PARCEL: usize = 1 << 14;

/// Stamp (u64, nanoseconds since the epoch) and length (u32), little-endian.
const STAMP: usize = 12;

impl<T: Transport> Shaped<T> {
    /// One end of the link.
    ///
    /// # Panics
    /// When the bandwidth is not positive.
    pub fn new(inner: T, link: Link) -> Self {
        assert!(link.bytes_per_second > 0.0, "a link carries something");
        Self { inner, link, free_at: Duration::ZERO, input: Vec::new(), read: 0 }
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970")
}

/// Sleeps until shortly before `time`, then yields, as a sleep alone ends some 60 µs late.
fn wait_until(time: Duration) {
    const LATE: Duration = Duration::from_micros(100);
    while let Some(left) = time.checked_sub(now()).filter(|left| !left.is_zero()) {
        match left.checked_sub(LATE) {
            Some(sleep) => std::thread::sleep(sleep),
            None => std::thread::yield_now(),
        }
    }
}

impl<T: Transport> Transport for Shaped<T> {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        self.free_at = self.free_at.max(now());
        let mut stamped = Vec::with_capacity(chunk.len() + STAMP * chunk.len().div_ceil(PARCEL));
        for parcel in chunk.chunks(PARCEL) {
            self.free_at += self.link.occupied(parcel.len());
            let arrives = self.free_at + self.link.one_way;
            stamped.extend_from_slice(&(arrives.as_nanos() as u64).to_le_bytes());
            stamped.extend_from_slice(&(parcel.len() as u32).to_le_bytes());
            stamped.extend_from_slice(parcel);
        }
        self.inner.send(stamped)
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        self.next(|inner| inner.recv().map(Some)).map(|parcel| parcel.expect("it waits until there is one"))
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        self.next(|inner| inner.recv_within(time))
    }

    fn abort(&mut self, reason: &str) {
        self.inner.abort(reason);
    }

    fn put_off(&mut self, reason: &str) {
        self.inner.put_off(reason);
    }
}

impl<T: Transport> Shaped<T> {
    /// The next parcel, when it has arrived; none when `more` has nothing for it.
    fn next(
        &mut self,
        mut more: impl FnMut(&mut T) -> Result<Option<Vec<u8>>, WireError>,
    ) -> Result<Option<Vec<u8>>, WireError> {
        loop {
            if let Some((stamp, rest)) = self.input[self.read..].split_first_chunk::<STAMP>() {
                let (arrives, len) = stamp.split_at(8);
                let arrives = u64::from_le_bytes(arrives.try_into().expect("8 bytes"));
                let len = u32::from_le_bytes(len.try_into().expect("4 bytes")) as usize;
                if len > PARCEL {
                    return Err(WireError::misbehaved("a parcel's length", len, format!("at most {PARCEL}")));
                }
                if rest.len() >= len {
                    let parcel = rest[..len].to_vec();
                    self.read += STAMP + len;
                    wait_until(Duration::from_nanos(arrives));
                    return Ok(Some(parcel));
                }
            }
            let Some(chunk) = more(&mut self.inner)? else { return Ok(None) };
            self.input.drain(..self.read);
            self.read = 0;
            self.input.extend_from_slice(&chunk);
        }
    }
}
