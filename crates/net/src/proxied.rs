//! Behind a balancer: where a client really comes from, by version 2 of the PROXY protocol.
//!
//! A balancer that passes TCP on is all that a server sees of its clients. One that speaks this protocol begins each connection with a
//! header that names the client's address (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>, section 2.2). Who may say
//! so is listed; from anybody else such a header is no greeting.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, Instant};

use jaguar_wire::{ByteStream, WireError};

use crate::pages::read_some;

/// What each header begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes before the addresses: the signature, version and command, family, and how many bytes follow.
const HEAD: usize = 16;

/// Bytes behind the head that are read at most. Addresses take 12, 36 or 216 of them; the rest is what a balancer adds.
const MOST: usize = 4096;

/// Addresses that have the first `bits` bits in common: of balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

/// Why a text names no network.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no network: an address, or the first one of a network and its bits, such as 192.0.2.0/24 or 2001:db8::/48"
)]
pub struct NoNetwork(String);

impl FromStr for Network {
    type Err = NoNetwork;

    /// An address, or `ADDRESS/BITS`. Bits of the address behind those are zero.
    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let wrong = || NoNetwork(text.to_owned());
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let all = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), str::parse).map_err(|_| wrong())?;
        if bits > all || significant(first, bits) != significant(first, all) || first != first.to_canonical()
        {
            return Err(wrong());
        }
        Ok(Self { first, bits })
    }
}

impl Network {
    /// Whether `ip` is in it. An IPv4 address in IPv6's form is that IPv4 address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.first.is_ipv4()
            && significant(ip, self.bits) == significant(self.first, self.bits)
    }
}

/// The first `bits` bits of an address, the others zero.
fn significant(ip: IpAddr, bits: u8) -> u128 {
    let (value, all) = match ip {
        IpAddr::V4(ip) => (ip.to_bits().into(), 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    };
    let rest = u32::from(all - bits.min(all));
    value.checked_shr(rest).and_then(|first| first.checked_shl(rest)).unwrap_or(0)
}

/// Reads the header of a connection that `proxy` has opened, and no byte behind it. None: the balancer comes for itself (a look at
/// the server's health), or does not say for whom.
///
/// # Errors
/// When there is none, it breaks the rules, or it does not come within `patience`.
pub(crate) fn read(
    stream: &dyn ByteStream,
    proxy: &str,
    patience: Duration,
) -> Result<Option<SocketAddr>, WireError> {
    let deadline = Instant::now() + patience;
    let waiting_for = || format!("waiting for the PROXY header of {proxy}");
    let fill = |buf: &mut [u8]| {
        let mut have = 0;
        while have < buf.len() {
            have += read_some(stream, &mut buf[have..], &waiting_for, (deadline, patience))?;
        }
        Ok(())
    };
    let mut head = [0; HEAD];
    fill(&mut head)?;
    let [signature @ .., version_and_command, family, high, low] = head;
    if signature != SIGNATURE {
        return Err(WireError::misbehaved(
            "the first bytes of a connection of a balancer",
            format!("\"{}\"", head.escape_ascii()),
            "a header of the PROXY protocol, version 2 (HAProxy: send-proxy-v2)",
        ));
    }
    let len = u16::from_be_bytes([high, low]).into();
    if len > MOST {
        let allowed = format!("at most {MOST} bytes");
        return Err(WireError::misbehaved("the length of a PROXY header", len, allowed));
    }
    let mut rest = vec![0; len];
    fill(&mut rest)?;
    let for_a_client = match version_and_command {
        0x20 => false,
        0x21 => true,
        other => {
            let found = format!("{other:#04x}");
            return Err(WireError::misbehaved(
                "version and command of a PROXY header",
                found,
                "0x20 or 0x21",
            ));
        }
    };
    if !for_a_client {
        return Ok(None);
    }
    let short = || WireError::misbehaved("a PROXY header's addresses", format!("{len} bytes"), "12 or 36");
    match family {
        // TCP over IPv4: two addresses, two ports. We want the first of each.
        0x11 => {
            let [ip @ .., _, _, _, _, high, low, _, _] = *rest.first_chunk::<12>().ok_or_else(short)?;
            Ok(Some((Ipv4Addr::from(ip), u16::from_be_bytes([high, low])).into()))
        }
        0x21 => {
            let (addresses, ports) = rest.split_at_checked(32).ok_or_else(short)?;
            let ip: [u8; 16] = *addresses.first_chunk().ok_or_else(short)?;
            let [high, low, _, _] = *ports.first_chunk().ok_or_else(short)?;
            Ok(Some((Ipv6Addr::from(ip), u16::from_be_bytes([high, low])).into()))
        }
        // Unknown to the balancer, or a Unix socket's.
        0x00 | 0x31 => Ok(None),
        other => {
            let found = format!("{other:#04x}");
            Err(WireError::misbehaved(
                "the family of a PROXY header",
                found,
                "TCP (0x11, 0x21, 0x31 or 0x00)",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn networks_hold_what_they_say() {
        let inside =
            |network: &str, ip: &str| network.parse::<Network>().unwrap().contains(ip.parse().unwrap());
        assert!(inside("192.0.2.7", "192.0.2.7") && inside("192.0.2.7", "::ffff:192.0.2.7"));
        assert!(!inside("192.0.2.7", "192.0.2.6"));
        assert!(inside("192.0.2.0/25", "192.0.2.127") && !inside("192.0.2.0/25", "192.0.2.128"));
        assert!(inside("0.0.0.0/0", "255.0.0.1") && !inside("0.0.0.0/0", "::1"));
        assert!(inside("::/0", "2001:db8::1") && !inside("::/0", "192.0.2.1"));
        assert!(inside("2001:db8::/33", "2001:db8:7fff::") && !inside("2001:db8::/33", "2001:db8:8000::"));
        for wrong in [
            "",
            "example",
            "192.0.2.1/33",
            "192.0.2.1/24",
            "::1/129",
            "192.0.2.0/",
            "192.0.2.0/-1",
            "::ffff:192.0.2.7",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    /// What `words` say when a balancer sends them, and closes.
    fn said(words: &[u8]) -> Result<Option<SocketAddr>, WireError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut balancer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        balancer.write_all(words).unwrap();
        balancer.shutdown(Shutdown::Write).unwrap();
        let stream = listener.accept().unwrap().0;
        let said = read(&stream, "the balancer", Duration::from_secs(20));
        if said.is_ok() {
            // Nothing behind the header is read.
            let mut next = [0; 2];
            let n = ByteStream::read(&stream, &mut next).unwrap();
            assert_eq!(&next[..n], if words.ends_with(b"JA") { b"JA" } else { &b""[..] });
        }
        said
    }

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = (rest.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, rest].concat()
    }

    #[test]
    fn a_header_says_where_the_client_is() {
        let v4 = [203, 0, 113, 9, 192, 0, 2, 1, 0x1f, 0x90, 0x1d, 0x17];
        let at = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        assert_eq!(said(&[&header(0x21, 0x11, &v4)[..], b"JA"].concat()).unwrap(), at("203.0.113.9:8080"));
        // With something that the balancer adds.
        let more = [&v4[..], &[4, 0, 3, 1, 2, 3]].concat();
        assert_eq!(said(&[&header(0x21, 0x11, &more)[..], b"JA"].concat()).unwrap(), at("203.0.113.9:8080"));
        let ip: Ipv6Addr = "2001:db8::9".parse().unwrap();
        let v6 = [&ip.octets()[..], &Ipv6Addr::LOCALHOST.octets(), &[0x1f, 0x90, 0, 1]].concat();
        assert_eq!(said(&header(0x21, 0x21, &v6)).unwrap(), at("[2001:db8::9]:8080"));
        // For itself, of whom it does not say, and of a Unix socket.
        assert_eq!(said(&header(0x20, 0x11, &v4)).unwrap(), None);
        assert_eq!(said(&header(0x20, 0, &[])).unwrap(), None);
        assert_eq!(said(&header(0x21, 0, &[1, 2])).unwrap(), None);
        assert_eq!(said(&header(0x21, 0x31, &[0; 216])).unwrap(), None);
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let whole = header(0x21, 0x11, &[0; 12]);
        for len in 0..whole.len() {
            let error = said(&whole[..len]).unwrap_err();
            assert!(matches!(error, WireError::Closed { .. }), "{len}: {error}");
        }
        for words in [
            &b"PROXY TCP4 203.0.113.9 192.0.2.1 8080 7447\r\n"[..],
            b"JAGUAR/0003 \r\n\r\n",
            &header(0x11, 0x11, &[0; 12]),
            &header(0x22, 0x11, &[0; 12]),
            &header(0x21, 0x11, &[0; 11]),
            &header(0x21, 0x21, &[0; 35]),
            &header(0x21, 0x12, &[0; 12]),
            &header(0x21, 0x11, &[0; MOST + 1]),
        ] {
            let error = said(words).unwrap_err();
            assert!(matches!(error, WireError::PeerMisbehaved { .. }), "{error}");
        }
    }

    #[test]
    fn a_balancer_that_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _balancer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        let error = read(&stream, "the balancer", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, WireError::Silent { .. }), "{error}");
    }
}
