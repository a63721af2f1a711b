//! Requests as other programs write them, byte by byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::site::Site;

pub mod grpc;

/// No answer takes nearly as long.
const WATCHDOG: Duration = Duration::from_secs(60);

/// An answer.
pub struct Reply {
    pub status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn of(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_else(|| {
            panic!("no answer: {}", bytes.escape_ascii());
        });
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Its JSON; null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }

    /// Its JSON, and the tensors behind it.
    #[track_caller]
    pub fn binary(&self) -> (Value, &[u8]) {
        let length = self.header("inference-header-content-length").expect("binary");
        let (json, behind) = self.body.split_at(length.parse().unwrap());
        (serde_json::from_slice(json).unwrap(), behind)
    }
}

fn exchange(address: SocketAddr, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
    // (One that is refused early may not be read to its end.)
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Reply::of(&answer)
}

pub fn send(site: &Site, request: &[u8]) -> Reply {
    exchange(site.address, request)
}

/// As [`send`], of a request whose rest never comes.
pub fn send_half(site: &Site, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(site.address).unwrap();
    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
    stream.write_all(request).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    Reply::of(&answer)
}

pub fn get(site: &Site, path: &str) -> Reply {
    send(
        site,
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", site.address).as_bytes(),
    )
}

pub fn post_to(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    exchange(address, &[head.as_bytes(), body].concat())
}

pub fn post(site: &Site, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    post_to(site.address, path, headers, body)
}

pub fn infer(site: &Site, request: &Value) -> Reply {
    post(site, "/v2/models/small/infer", &[], request.to_string().as_bytes())
}

/// With `bytes` behind the JSON.
pub fn binary(site: &Site, request: &Value, bytes: &[u8]) -> Reply {
    let json = request.to_string();
    let length = json.len().to_string();
    let headers = [("Inference-Header-Content-Length", &*length)];
    post(site, "/v2/models/small/infer", &headers, &[json.as_bytes(), bytes].concat())
}

pub fn base64(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().chain([&0; 2]).take(3).fold(0, |bits, &byte| bits << 8 | usize::from(byte));
        for place in 0..4 {
            let digit = char::from(digits[bits >> (18 - 6 * place) & 63]);
            text.push(if place <= three.len() { digit } else { '=' });
        }
    }
    text
}
