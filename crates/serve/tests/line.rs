//! Clients that find no place, and wait for one.

use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jaguar_engine::EngineError;
use jaguar_net::{Dialer, Listener};
use jaguar_serve::{Control, Event, Hosted, Limits, Server, Told, Visit};
use jaguar_wire::framed::{Framed, Options};
use jaguar_wire::{Channel, Queued, Transport, WireError};

/// Says a byte to whoever comes, and serves it until it leaves.
struct Hello;

impl Hosted for Hello {
    fn serve(&self, mut channel: Channel, _: &Visit<'_>, _: &mut dyn FnMut(Told)) -> Result<(), EngineError> {
        channel.send(&[7])?;
        channel.flush()?;
        Ok(channel.recv(1).map(drop)?)
    }
}

/// A server, and what it told of clients in the line: how many wait.
struct Site {
    dialer: Dialer,
    control: Control,
    waits: Receiver<Queued>,
    serving: JoinHandle<()>,
}

fn site(limits: Limits) -> Site {
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server::new(Hello, listener, limits).unwrap();
    let (dialer, control) = (Dialer::new(server.bound().to_string().parse().unwrap()), server.control());
    let (told, waits) = channel();
    let serving = thread::spawn(move || {
        let ran = server.run(move |event| {
            if let Event::Waits(_, _, place) = event {
                let _ = told.send(place);
            }
        });
        ran.unwrap();
    });
    Site { dialer, control, waits, serving }
}

const LONG: Duration = Duration::from_secs(300);

impl Site {
    /// A client that waits in a thread of its own; with what it hears.
    fn waits(&self, time: Duration) -> (JoinHandle<Result<Framed, WireError>>, Receiver<Queued>) {
        let (told, heard) = channel();
        let dialer = self.dialer.clone().waiting(time, move |queued| {
            // (Who heard enough listens no more.)
            let _ = queued.map(|queued| told.send(queued));
            true
        });
        (thread::spawn(move || dialer.connect(Options::default())), heard)
    }

    /// One that has a place.
    fn served(&self) -> Framed {
        let mut connection = self.dialer.connect(Options::default()).expect("greeted");
        assert_eq!(connection.recv().expect("served"), [7]);
        connection
    }

    fn end(self) {
        self.control.drain(Duration::ZERO);
        self.serving.join().unwrap();
    }
}

#[test]
fn who_waits_is_served_when_a_place_is_free() {
    let site = site(Limits { clients: 1, ..Limits::default() });
    let first = site.served();
    let (one, heard) = site.waits(LONG);
    assert_eq!(heard.recv().unwrap().place, 1);
    let (two, heard_by_two) = site.waits(LONG);
    assert_eq!(heard_by_two.recv().unwrap().place, 2);
    assert_eq!([(); 2].map(|()| site.waits.recv().unwrap().place), [1, 2]);
    let count = site.control.places();
    assert_eq!((count.all, count.free, count.waiting), (1, 0, 2));
    assert!(count.seconds > 0 && site.control.ready().is_err());
    // Who does not wait is told at once.
    let mut third = site.dialer.connect(Options::default()).expect("greeted");
    assert!(matches!(third.recv(), Err(WireError::PeerBusy(why)) if why.contains("busy with as many")));
    // One leaves the line: the other moves up.
    drop(first);
    let mut one = one.join().unwrap().expect("its turn");
    assert_eq!(one.recv().expect("served"), [7]);
    // (Meanwhile it may have heard another estimate of its place.)
    while heard_by_two.recv().unwrap().place != 1 {}
    drop(one);
    let two = two.join().unwrap().expect("its turn");
    drop(two);
    site.end();
}

#[test]
fn a_wait_has_an_end_and_who_leaves_the_line_is_forgotten() {
    let site = site(Limits { clients: 1, ..Limits::default() });
    let _first = site.served();
    let (short, _) = site.waits(Duration::from_millis(100));
    assert!(
        matches!(short.join().unwrap(), Err(WireError::PeerBusy(why)) if why.contains("seconds or more"))
    );
    // One gives up by itself.
    let dialer = site.dialer.clone().waiting(LONG, |queued| queued.is_none());
    assert!(dialer.connect(Options::default()).is_err());
    while site.control.places().waiting > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    // A server that ends tells who waits.
    let (waits, heard) = site.waits(LONG);
    heard.recv().expect("in the line");
    site.end();
    let told = waits.join().unwrap().err().expect("refused").to_string();
    assert!(told.contains("shutting down"), "{told}");
}

#[test]
fn who_is_idle_makes_room_for_who_waits() {
    let limits = Limits { clients: 1, idle_when_full: Duration::from_millis(50), ..Limits::default() };
    let site = site(limits);
    let mut idle = site.served();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(site.control.clients(), 1, "nobody wants its place");
    let (waits, _) = site.waits(LONG);
    let told = idle.recv().expect_err("it asks for nothing").to_string();
    assert!(told.contains("others wait for a place"), "{told}");
    drop(idle);
    assert_eq!(waits.join().unwrap().expect("its turn").recv().expect("served"), [7]);
    site.end();
}
