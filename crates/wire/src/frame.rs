//! Frames: `[kind: u8][length: u32, little-endian][payload]`, in both directions.
//!
//! | kind | payload |
//! |---|---|
//! | 1 data | at most 1 MiB of the byte stream |
//! | 2 keep-alive | none |
//! | 3 abort | at most 1 KiB of UTF-8 that says why; nothing follows it |
//! | 4 later | the same, of a side that does not do it for now: the peer may come back |
//! | 5 place | 8 bytes, of an accepting side to one that waits: its [place](Queued) in the line and seconds (u32 each) |

use crate::WireError;

/// Payload of a data frame, at most. Small enough to bound what one header can make a receiver reserve.
pub(crate) const MAX_DATA: usize = 1 << 20;

/// Length of an abort's reason, at most.
const MAX_REASON: usize = 1 << 10;

/// Length of what a side in the line is told.
const PLACE: usize = 8;

/// Bytes before the payload.
pub(crate) const HEAD: usize = 5;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Data = 1,
    KeepAlive = 2,
    Abort = 3,
    Later = 4,
    Place = 5,
}

/// What a client is told that waits for a place at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// How many are served before it, and itself. 0: it is served now.
    pub place: u32,
    /// After how many seconds its turn may come, as the server estimates it.
    pub seconds: u32,
}

impl Queued {
    /// Its turn has come.
    pub const SERVED: Self = Self { place: 0, seconds: 0 };

    pub(crate) fn to_bytes(self) -> [u8; PLACE] {
        let [place, seconds] = [self.place, self.seconds].map(u32::to_le_bytes);
        let mut bytes = [0; PLACE];
        bytes[..4].copy_from_slice(&place);
        bytes[4..].copy_from_slice(&seconds);
        bytes
    }

    /// None if these are not so many bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (place, seconds) = bytes.split_first_chunk()?;
        let seconds: [u8; 4] = seconds.try_into().ok()?;
        Some(Self { place: u32::from_le_bytes(*place), seconds: u32::from_le_bytes(seconds) })
    }
}

/// What a side says last when it gives up.
#[derive(Clone, Debug)]
pub(crate) struct Farewell {
    /// It would do it at another time.
    pub later: bool,
    pub reason: String,
}

impl Farewell {
    /// As much of the reason as a frame holds.
    pub fn new(later: bool, reason: &str) -> Self {
        Self { later, reason: bounded(reason).to_owned() }
    }

    pub fn kind(&self) -> FrameKind {
        if self.later { FrameKind::Later } else { FrameKind::Abort }
    }

    /// What the peer makes of it.
    pub fn error(self) -> WireError {
        if self.later { WireError::PeerBusy(self.reason) } else { WireError::PeerAborted(self.reason) }
    }
}

/// A header that breaks the rules: which, what was found, what may be.
#[derive(Debug)]
pub(crate) struct BadHead {
    pub what: &'static str,
    pub found: String,
    pub expected: String,
}

/// A frame's first bytes.
///
/// # Panics
/// When the payload is longer than any frame's.
pub(crate) fn head(kind: FrameKind, payload: usize) -> [u8; HEAD] {
    let len = u32::try_from(payload).expect("frames are bounded").to_le_bytes();
    [kind as u8, len[0], len[1], len[2], len[3]]
}

/// The kind of a frame and the length of its payload, which is at most 1 MiB.
pub(crate) fn parse(head: [u8; HEAD]) -> Result<(FrameKind, usize), BadHead> {
    let [kind, len @ ..] = head;
    let len = u32::from_le_bytes(len) as usize;
    let (parsed, most) = match kind {
        1 => (FrameKind::Data, MAX_DATA),
        2 => (FrameKind::KeepAlive, 0),
        3 => (FrameKind::Abort, MAX_REASON),
        4 => (FrameKind::Later, MAX_REASON),
        5 => (FrameKind::Place, PLACE),
        other => {
            return Err(BadHead {
                what: "the kind of a frame",
                found: other.to_string(),
                expected: "1 to 5".into(),
            });
        }
    };
    if len > most {
        return Err(BadHead {
            what: "the length of a frame",
            found: format!("{len} bytes in a frame of kind {kind}"),
            expected: format!("at most {most}"),
        });
    }
    Ok((parsed, len))
}

/// As much of `reason` as an abort frame holds.
pub(crate) fn bounded(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

/// A peer's text with control characters replaced, since it may end up on somebody's terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        let sound = [
            (FrameKind::Data, 0),
            (FrameKind::Data, MAX_DATA),
            (FrameKind::KeepAlive, 0),
            (FrameKind::Abort, 77),
            (FrameKind::Later, 1),
            (FrameKind::Place, PLACE),
        ];
        for (kind, len) in sound {
            assert_eq!(parse(head(kind, len)).unwrap(), (kind, len));
        }
        let bad = [
            [0, 0, 0, 0, 0],
            [6, 0, 0, 0, 0],
            [1, 1, 0, 16, 0],
            [2, 1, 0, 0, 0],
            [3, 1, 4, 0, 0],
            [4, 1, 4, 0, 0],
            [5, 9, 0, 0, 0],
        ];
        for bad in bad {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn places_are_read_as_they_were_written() {
        let queued = Queued { place: 3, seconds: 70_000 };
        assert_eq!(Queued::from_bytes(&queued.to_bytes()), Some(queued));
        for len in [0, 4, 7, 9] {
            assert_eq!(Queued::from_bytes(&[1; 9][..len]), None);
        }
    }

    #[test]
    fn reasons_are_cut_between_characters() {
        assert_eq!(bounded("short"), "short");
        let long = "ß".repeat(MAX_REASON);
        assert_eq!(bounded(&long).len(), MAX_REASON);
        assert_eq!(bounded(&format!("x{long}")).len(), MAX_REASON - 1);
    }
}
