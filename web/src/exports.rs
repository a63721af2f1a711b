//! What JavaScript calls. One call at a time: each blocks until it is done, and its result is told before it returns.

use std::cell::RefCell;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use jaguar_engine::hint::HintPlace;
use jaguar_graph::network::{ImageSpec, Shape};

use crate::host::{Socket, kept_file, say};
use crate::picture::view;
use crate::session::{Failure, Session, Wishes};
use crate::threads;

thread_local! {
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

/// Room for `len` bytes, which JavaScript fills and hands back with the next call.
// SAFETY: nothing else in the module has this name.
#[unsafe(no_mangle)]
extern "C" fn room(len: usize) -> *mut u8 {
    Box::into_raw(vec![0u8; len].into_boxed_slice()).cast()
}

/// The `len` bytes that JavaScript has filled.
fn filled(from: *mut u8, len: usize) -> Box<[u8]> {
    // SAFETY: `from` is what `room(len)` gave, and is handed back once.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(from, len)) }
}

fn told(result: Result<Value, Failure>) {
    say(&match result {
        Ok(value) => json!({ "event": "done", "value": value }),
        Err(failure) => json!({ "event": "failed", "failure": failure }),
    });
}

fn ill_formed(error: &serde_json::Error) -> Failure {
    Failure { kind: "input", text: error.to_string() }
}

fn nobody() -> Failure {
    Failure { kind: "connection", text: "there is no session: connect first".into() }
}

/// Comes first: from here on panics are told, and `count` workers that call [`work`] compute beside this one, if more than one.
// SAFETY: nothing else in the module has this name.
#[unsafe(no_mangle)]
extern "C" fn begin(count: usize) {
    std::panic::set_hook(Box::new(|panic| say(&json!({ "event": "panic", "text": panic.to_string() }))));
    let begun = if count > 1 { threads::begin(count) } else { Ok(()) };
    told(begun.map(|()| Value::Null).map_err(|error| Failure { kind: "internal", text: error.to_string() }));
}

/// Computes what this session gives to its threads. It does not return.
// SAFETY: nothing else in the module has this name.
#[unsafe(no_mangle)]
extern "C" fn work() {
    threads::work();
}

/// Connects, with [`Wishes`] as JSON.
// SAFETY: nothing else in the module has this name.
#[unsafe(no_mangle)]
extern "C" fn connect(from: *mut u8, len: usize) {
    let connected = serde_json::from_slice::<Wishes>(&filled(from, len))
        .map_err(|error| ill_formed(&error))
        .and_then(|wishes| {
            let place = HintPlace::Opened(Arc::new(kept_file));
            Session::connect(Box::new(Socket::new()), place, &wishes, &mut say)
        });
    told(connected.map(|session| {
        let card = session.card();
        SESSION.set(Some(session));
        card
    }));
}

/// Prepares a query.
// SAFETY: nothing else in the module has this name.
#[unsafe(no_mangle)]
extern "C" fn prepare() {
    let prepared = SESSION.take().ok_or_else(nobody).and_then(|session| session.prepare(&mut say));
    told(prepared.map(|session| {
        SESSION.set(Some(session));
        Value::Null
    }));
}

/// Asks about a picture, four bytes a pixel.
// SAFETY: nothing else in the module has this name.
#[unsafe(no_mangle)]
extern "C" fn predict(from: *mut u8, len: usize, width: usize, height: usize) {
    let rgba = filled(from, len);
    let Some(session) = SESSION.take() else { return told(Err(nobody())) };
    let (session, answer) = session.predict(&rgba, (width, height), &mut say);
    SESSION.set(session);
    told(answer);
}

/// How a picture becomes an input.
#[derive(Deserialize)]
struct Eye {
    image: ImageSpec,
    shape: Shape,
}

/// What a network sees of a picture, four bytes a pixel: as many bytes as the network's shape has pixels, four each. JSON says how; 0: it cannot be, which is told.
// SAFETY: nothing else in the module has this name.
#[unsafe(no_mangle)]
extern "C" fn look(
    from: *mut u8,
    len: usize,
    width: usize,
    height: usize,
    eye: *mut u8,
    eye_len: usize,
) -> *mut u8 {
    let rgba = filled(from, len);
    let seen = serde_json::from_slice::<Eye>(&filled(eye, eye_len))
        .map_err(|error| ill_formed(&error))
        .and_then(|Eye { image, shape }| Ok(view(&image, shape, &rgba, (width, height))?));
    match seen {
        Ok(pixels) => Box::into_raw(pixels.into_boxed_slice()).cast(),
        Err(failure) => {
            told(Err(failure));
            std::ptr::null_mut()
        }
    }
}

/// Gives back what [`look`] gave.
// SAFETY: nothing else in the module has this name.
#[unsafe(no_mangle)]
extern "C" fn give_back(from: *mut u8, len: usize) {
    drop(filled(from, len));
}
