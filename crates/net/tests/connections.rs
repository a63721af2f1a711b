//! Two parties over real sockets: who believes whom, and what is between them.

mod site;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use jaguar_net::tls::{Client, Server, Trust};
use jaguar_net::{Address, Dialer, Listener, Token};
use jaguar_wire::{Transport, WireError};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use site::{Authority, Scratch, both, greet, listen, much_both_ways, options, refused};

fn dial(address: &str) -> Dialer {
    Dialer::new(address.parse().expect("an address"))
}

fn trusting(trust: &Trust) -> Client {
    Client::new(trust, None).expect("sound")
}

#[test]
fn a_made_certificate_is_kept_and_pinned() {
    let folder = Scratch::new("made");
    let server = Server::made(folder.path(), None).expect("made");
    let again = Server::made(folder.path(), None).expect("there");
    assert_eq!(server.fingerprint(), again.fingerprint());
    #[cfg(unix)]
    for name in ["key.pem", "certificate.pem"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(folder.file(name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let client = trusting(&Trust::Pin(server.fingerprint()));
    let (listener, address) = listen(Some(server));
    let (connected, accepted) = both(&listener, &dial(&address).with_tls(client));
    much_both_ways(connected.expect("pinned"), accepted.expect("greeted").connection);
}

#[test]
fn servers_that_are_not_believed() {
    let folder = Scratch::new("unbelieved");
    let authority = Authority::new("one");
    let other = Authority::new("other");
    let [good, strange] = [&authority, &other].map(|a| folder.write(&format!("{}.pem", a.name), &a.pem()));
    let fingerprint = |server: &Server| server.fingerprint().to_string();
    let made = Server::made(folder.path(), None).expect("made");
    let elsewhere = Server::made(&folder.file("elsewhere"), None).expect("made");
    let signed = authority.server(&folder, "localhost", None);
    let expired = authority.server(&folder, "localhost", Some(2001));
    let pin = Trust::Pin(elsewhere.fingerprint());
    let cases: [(&Server, &Trust, Vec<String>); 5] = [
        (&made, &pin, vec!["not the pinned one".into(), fingerprint(&made), fingerprint(&elsewhere)]),
        (&made, &Trust::Nobody, vec![fingerprint(&made), "pin it".into()]),
        (&signed, &Trust::Authorities(strange), vec!["no authority that this side knows".into()]),
        (&expired, &Trust::Authorities(good.clone()), vec!["not valid any more".into()]),
        (&made, &Trust::Authorities(good.clone()), vec!["certificate".into()]),
    ];
    for (server, trust, parts) in cases {
        let (listener, address) = listen(Some(server.clone()));
        let address = address.replace("127.0.0.1", "localhost");
        let (connected, accepted) = both(&listener, &dial(&address).with_tls(trusting(trust)));
        let error = refused(connected);
        assert!(parts.iter().chain([&address]).all(|part| error.contains(part)), "{error}: {parts:?}");
        let error = refused(accepted);
        assert!(
            error.contains("does not accept this side's certificate") && error.contains("127.0.0.1:"),
            "{error}"
        );
    }
    // The right authority and name, and the right authority and another name.
    let (listener, address) = listen(Some(signed));
    let by_authority = trusting(&Trust::Authorities(good));
    let (connected, accepted) = both(
        &listener,
        &dial(&address).with_tls(by_authority.clone().expecting("localhost").expect("a name")),
    );
    assert!(connected.is_ok() && accepted.is_ok());
    let (connected, _) = both(&listener, &dial(&address).with_tls(by_authority));
    let error = refused(connected);
    assert!(error.contains("another name") && error.contains(&address), "{error}");
}

#[test]
fn clients_show_certificates_where_they_must() {
    let folder = Scratch::new("clients");
    let authority = Authority::new("clients");
    let clients = folder.write("clients.pem", &authority.pem());
    let server = Server::made(folder.path(), Some(&clients)).expect("made");
    let trust = Trust::Pin(server.fingerprint());
    let (listener, address) = listen(Some(server));
    let [(one, one_key), (stranger, stranger_key)] =
        [&authority, &Authority::new("stranger")].map(|a| a.client(&folder, "alice"));

    let showing = Client::new(&trust, Some((&one, &one_key))).expect("sound");
    let (connected, accepted) = both(&listener, &dial(&address).with_tls(showing));
    assert!(connected.is_ok() && accepted.is_ok());

    let (connected, accepted) = both(&listener, &dial(&address).with_tls(trusting(&trust)));
    let error = refused(connected);
    assert!(error.contains("nobody in without a certificate") && error.contains(&address), "{error}");
    let error = refused(accepted);
    assert!(error.contains("shows no certificate"), "{error}");

    let showing = Client::new(&trust, Some((&stranger, &stranger_key))).expect("sound");
    let (connected, accepted) = both(&listener, &dial(&address).with_tls(showing));
    let error = refused(connected);
    assert!(error.contains("does not accept this side's certificate") && error.contains(&address), "{error}");
    let error = refused(accepted);
    assert!(error.contains("no authority that this side knows"), "{error}");

    // A key of another certificate, and files that are none.
    let error = Client::new(&trust, Some((&one, &stranger_key))).err().expect("not a pair").to_string();
    assert!(error.contains(&one.display().to_string()), "{error}");
    for (certificate, key, part) in [
        (&one_key, &one_key, "no certificate in it"),
        (&one, &one, "no private key in it"),
        (&folder.file("nothing"), &one_key, "nothing"),
    ] {
        let error = Client::new(&trust, Some((certificate, key))).err().expect("no files of it").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn one_speaks_tls_and_the_other_does_not() {
    let folder = Scratch::new("clear");
    let server = Server::made(folder.path(), None).expect("made");
    let client = trusting(&Trust::Pin(server.fingerprint()));
    let (secret, secret_address) = listen(Some(server));
    let (clear, clear_address) = listen(None);

    let (connected, accepted) = both(&secret, &dial(&secret_address));
    let error = connected.expect("greeted").recv().expect_err("turned away");
    assert!(matches!(&error, WireError::PeerAborted(why) if why.contains("TLS only")), "{error}");
    let error = refused(accepted);
    assert!(error.contains("a Jaguar that speaks in the clear"), "{error}");

    let (connected, accepted) = both(&clear, &dial(&clear_address).with_tls(client));
    let error = refused(connected);
    assert!(error.contains("a Jaguar that speaks in the clear") && error.contains(&clear_address), "{error}");
    let error = refused(accepted);
    assert!(error.contains("a TLS handshake"), "{error}");

    let asking = thread::spawn(move || {
        let mut socket = TcpStream::connect(secret_address).expect("listening");
        socket.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
        let mut page = String::new();
        socket.read_to_string(&mut page).expect("a page");
        page
    });
    assert!(greet(&secret).is_err());
    assert!(asking.join().expect("answered").starts_with("HTTP/1.1 400"));
}

/// Ends the client's TLS, and passes on what it reads to the server: in TLS of its own, or in the clear.
fn in_between(server: String, shown: Arc<ServerConfig>, believed: Option<Arc<ClientConfig>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        let socket = listener.accept().expect("a client").0;
        let mut client = StreamOwned::new(ServerConnection::new(shown).expect("sound"), socket);
        let socket = TcpStream::connect(server).expect("listening");
        let other = socket.try_clone().expect("a handle");
        let mut server: Box<dyn ReadWrite> = match believed {
            None => Box::new(socket),
            Some(config) => {
                let name = "localhost".try_into().expect("a name");
                Box::new(StreamOwned::new(ClientConnection::new(config, name).expect("sound"), socket))
            }
        };
        let mut greeting = [0; 52];
        client.read_exact(&mut greeting).expect("the client's");
        server.write_all(&greeting).expect("sent");
        server.read_exact(&mut greeting).expect("the server's");
        client.write_all(&greeting).expect("sent");
        let mut more = [0; 6];
        if server.read_exact(&mut more).is_ok() {
            let _ = client.write_all(&more);
        }
        let _ = client.read(&mut more);
        let _ = other.shutdown(Shutdown::Both);
    });
    address
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// An attacker, or a company's proxy, whose certificate the client believes: what passes the bytes on is found by the binding.
#[test]
fn who_decrypts_in_between_is_found() {
    let folder = Scratch::new("between");
    let authority = Authority::new("company");
    let trusted = folder.write("authority.pem", &authority.pem());
    let client = || trusting(&Trust::Authorities(trusted.clone())).expecting("localhost").expect("a name");
    let server = authority.server(&folder, "localhost", None);
    let (shown, believed) = (authority.raw_server("localhost"), authority.raw_client());
    let (secret, secret_address) = listen(Some(server));
    let (clear, clear_address) = listen(None);

    let between = in_between(secret_address, shown.clone(), Some(believed));
    let (connected, accepted) = both(&secret, &dial(&between).with_tls(client()));
    for error in [refused(connected), refused(accepted)] {
        assert!(
            error.contains("not bound to one TLS connection") && error.contains("encrypts anew"),
            "{error}"
        );
    }
    let between = in_between(clear_address.clone(), shown.clone(), None);
    let (connected, _) = both(&clear, &dial(&between).with_tls(client()));
    let error = refused(connected);
    assert!(error.contains("TLS ends before it") && error.contains(&between), "{error}");

    let between = in_between(clear_address, shown, None);
    let (connected, accepted) = both(&clear, &dial(&between).with_tls(client()).through_proxy());
    let mut connected = connected.expect("a proxy is accepted");
    accepted.expect("greeted").connection.send(b"!".to_vec()).expect("sent");
    assert_eq!(connected.recv().expect("through the proxy"), b"!");
}

#[test]
fn another_protocol_in_tls_is_refused() {
    let folder = Scratch::new("alpn");
    let authority = Authority::new("web");
    let (listener, address) = listen(Some(authority.server(&folder, "localhost", None)));
    // HTTP/2; and what may be a WebSocket's client, and is none: a page, and a Jaguar that does not say so.
    type Ask<'a> = (&'a [&'a [u8]], &'a [u8], &'a str, &'a str);
    let asks: [Ask<'_>; 4] = [
        (&[b"h2"], b"GET / HTTP/1.1\r\n\r\n", "not Jaguar's protocol", ""),
        (&[], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\"Connection: upgrade\"", "HTTP/1.1 400"),
        (&[b"http/1.1"], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\"Connection: upgrade\"", "HTTP/1.1 400"),
        (&[], b"JAGUAR/0003 \r\n\r\n", "no HTTP", "HTTP/1.1 400"),
    ];
    for (protocols, words, told, answered) in asks {
        let mut config = (*authority.raw_client()).clone();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let address = address.clone();
        let web = thread::spawn(move || {
            let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().expect("a name"));
            let socket = TcpStream::connect(address).expect("listening");
            let mut stream = StreamOwned::new(connection.expect("sound"), socket);
            let _ = stream.write_all(words);
            let mut page = Vec::new();
            let _ = stream.read_to_end(&mut page);
            page
        });
        let error = refused(greet(&listener));
        assert!(error.contains(told), "{error}");
        let page = web.join().expect("ended");
        assert!(page.starts_with(answered.as_bytes()), "{}", page.escape_ascii());
        assert_eq!(page.is_empty(), answered.is_empty(), "{}", page.escape_ascii());
    }
}

#[test]
fn tokens_go_where_they_are_safe() {
    let folder = Scratch::new("tokens");
    let server = Server::made(folder.path(), None).expect("made");
    let client = trusting(&Trust::Pin(server.fingerprint()));
    let token = Token::new();
    let (listener, address) = listen(Some(server));
    let (connected, accepted) = both(&listener, &dial(&address).with_tls(client).with_token(token.clone()));
    assert!(connected.is_ok());
    let shown = accepted.expect("greeted").token;
    let file = folder.file("tokens");
    let known = jaguar_net::TokenFile::add(&file, "alice").expect("added");
    let tokens = jaguar_net::TokenFile::open(&file).expect("sound");
    assert_eq!(tokens.find(&shown).expect("sound"), None, "not in the file");
    assert_eq!(shown.len(), 32);

    let (clear, clear_address) = listen(None);
    let (connected, accepted) = both(&clear, &dial(&clear_address).with_token(known));
    assert!(connected.is_ok(), "on one machine");
    assert_eq!(tokens.find(&accepted.expect("greeted").token).expect("sound").as_deref(), Some("alice"));
    // (Refused before anything is sent: nobody need listen there.)
    let error = refused(dial("192.0.2.1:9").with_token(token).connect(options()));
    assert!(error.contains("192.0.2.1:9") && error.contains("not encrypted"), "{error}");
}

#[test]
fn addresses_of_the_other_kinds() {
    let folder = Scratch::new("kinds");
    let server = Server::made(folder.path(), None).expect("made");
    let client = trusting(&Trust::Pin(server.fingerprint()));
    let path = folder.file("socket");
    for address in ["[::1]:0".to_owned(), format!("unix:{}", path.display())] {
        for secret in [false, true] {
            let parsed: Address = address.parse().expect("an address");
            let listener = match Listener::bind(&parsed) {
                Err(_)
                    if address.starts_with('[') && !std::path::Path::new("/proc/net/if_inet6").exists() =>
                {
                    continue;
                }
                bound => bound.expect("bound"),
            };
            let listener = if secret { listener.with_tls(server.clone()) } else { listener };
            let bound = listener.bound().expect("known");
            assert!(bound.is_local());
            let dialer = dial(&bound.to_string());
            let dialer = if secret { dialer.with_tls(client.clone()) } else { dialer };
            let (connected, accepted) = both(&listener, &dialer);
            connected.expect("connected").send(b"hello".to_vec()).expect("sent");
            assert_eq!(accepted.expect("greeted").connection.recv().expect("sent"), b"hello");
            if !address.starts_with('[') {
                let error = Listener::bind(&parsed).err().expect("taken").to_string();
                assert!(error.contains(&address), "{error}");
            }
            drop(listener);
        }
    }
    assert!(!path.exists(), "a server's socket goes with it");
    // What a killed server left is replaced; a file that is no socket is left alone.
    #[cfg(unix)]
    {
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        assert!(path.exists());
        assert!(Listener::bind(&Address::Unix(path.clone())).is_ok());
        std::fs::write(&path, "a text").expect("written");
        assert!(Listener::bind(&Address::Unix(path.clone())).is_err());
        assert_eq!(std::fs::read(&path).expect("there"), b"a text");
    }
}
