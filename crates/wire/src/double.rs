//! Transports for tests: a recorder, a shaped link, and injected faults.
