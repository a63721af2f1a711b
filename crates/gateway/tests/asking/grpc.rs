//! gRPC by hand: HTTP/2 from a library, messages byte by byte.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Request;
use hyper::body::{Body, Bytes, Frame};
use hyper::header::HeaderMap;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::site::Site;

/// An answer, its message without the frame.
pub struct Reply {
    pub status: String,
    pub message: String,
    pub body: Vec<u8>,
}

struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(Frame::data).map(Ok))
    }
}

/// Calls a method.
pub fn call(site: &Site, method: &str, message: &[u8]) -> Reply {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();
    let frame = [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
    let request = Request::post(format!("http://{}/inference.GRPCInferenceService/{method}", site.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Whole(Some(frame.into())))
        .unwrap();
    let address = site.address;
    runtime.block_on(async {
        let stream = TokioIo::new(tokio::net::TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        let (head, mut body) = sender.send_request(request).await.unwrap().into_parts();
        assert_eq!(head.status, 200);
        let (mut data, mut trailers) = (Vec::new(), HeaderMap::new());
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            match frame.unwrap().into_data() {
                Ok(bytes) => data.extend_from_slice(&bytes),
                Err(frame) => trailers.extend(frame.into_trailers().unwrap()),
            }
        }
        let of = |name: &str| {
            let value = trailers.get(name).or(head.headers.get(name));
            value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
        };
        let body = data.get(5..).unwrap_or_default().to_vec();
        assert_eq!(data.is_empty(), of("grpc-status") != "0");
        Reply { status: of("grpc-status"), message: of("grpc-message"), body }
    })
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field of bytes.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A field of text.
pub fn text(number: u64, text: &str) -> Vec<u8> {
    field(number, text.as_bytes())
}

/// `ModelInferRequest` with one raw input of FP32.
pub fn infer(model: &str, shape: &[u64], raw: &[u8]) -> Vec<u8> {
    let shape = shape.iter().flat_map(|&dim| varint(dim)).collect::<Vec<u8>>();
    let tensor = [text(1, "input"), text(2, "FP32"), field(3, &shape)].concat();
    [text(1, model), field(5, &tensor), field(7, raw)].concat()
}

/// The contents of all fields of bytes that have this number; of a message without numbers of fixed size.
pub fn fields(mut message: &[u8], number: u64) -> Vec<Vec<u8>> {
    fn take(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = take(&mut message);
        let value = take(&mut message);
        match key & 7 {
            0 => {}
            2 => {
                let (own, rest) = message.split_at(value as usize);
                message = rest;
                if key >> 3 == number {
                    found.push(own.to_vec());
                }
            }
            other => panic!("a field of kind {other}"),
        }
    }
    found
}
