//! What the operating system's word for a failed connection means, in a person's words.

use std::io::{self, ErrorKind};

use jaguar_wire::WireError;

/// The same error, with what to look at behind the system's word.
pub fn advised(error: WireError) -> WireError {
    match error {
        WireError::Io { what, source } => WireError::Io { what, source: with_advice(source) },
        other => other,
    }
}

/// The same error, of the same kind, with what to look at behind the system's word.
pub fn with_advice(error: io::Error) -> io::Error {
    let word = error.to_string();
    let advice = match error.kind() {
        ErrorKind::ConnectionRefused => "nobody listens there: is the server running, and is the port right?",
        ErrorKind::TimedOut => {
            "nothing came back: is the address right, and does a firewall let this port through?"
        }
        ErrorKind::AddrInUse => "another program listens there: end it, or take another port",
        ErrorKind::AddrNotAvailable => "this machine has no such address; 0.0.0.0 stands for all that it has",
        // (A name that does not resolve has no kind of its own.)
        _ if word.starts_with("failed to lookup address") => "is the host's name right?",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{word}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_follows_the_systems_word() {
        let refused = with_advice(ErrorKind::ConnectionRefused.into());
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(refused.to_string().contains("connection refused; nobody listens there"), "{refused}");
        let other = with_advice(io::Error::other("what nobody knows"));
        assert_eq!(other.to_string(), "what nobody knows");
        let io = |source| WireError::Io { what: "connecting to x:1".into(), source };
        let told = advised(io(io::Error::other("failed to lookup address information: unknown"))).to_string();
        assert!(told.contains("is the host's name right?"), "{told}");
    }
}
