//! TLS, certificates, tokens, and addresses of all kinds, as users name them.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};

use crate::predictions::{answers, number, photo};
use crate::private_files::write_secret;
use crate::process::{Process, Scratch, Server, jaguar};
use crate::{WATCHDOG, assert_fails, tiny};

/// A client with these options.
pub fn client(folder: &Scratch, server: &str, options: &[&str]) -> Process {
    let cache = folder.path("cache");
    let mut command = jaguar(&["predict", "--json", "--server", server, "--cache", &cache, &photo()]);
    command.args(options);
    Process::start(command)
}

/// A file with a new token for a client, whose hash is added to `tokens`.
#[track_caller]
pub fn token(folder: &Scratch, name: &str) -> String {
    let given = Process::start(jaguar(&["token", name, "--tokens", &folder.path("tokens")]));
    let file = folder.path(&format!("{name}.token"));
    write_secret(&file, &given.finish(WATCHDOG).succeeded());
    file
}

/// What a server said that clients should pin.
#[track_caller]
pub fn fingerprint(server: &mut Server) -> String {
    let line = server.process.line_with("--pin ", WATCHDOG);
    line.rsplit(' ').next().expect("a fingerprint at the end").to_owned()
}

#[test]
fn a_made_certificate_is_pinned() {
    let folder = Scratch::new("pinned");
    let (model, kept, other) = (tiny::compile(&folder), folder.path("server"), folder.path("other"));
    let mut plain = Server::start(&model, &[], WATCHDOG);
    let want = answers(client(&folder, &plain.address, &[]), 1).remove(0);
    let mut server = Server::start(&model, &["--tls", "on", "--cache", &kept], WATCHDOG);
    let pin = fingerprint(&mut server);
    assert_eq!(pin.len(), 64);
    let answer = answers(client(&folder, &server.address, &["--pin", &pin]), 1).remove(0);
    assert_eq!(answer["label"], want["label"]);
    // The same bytes, whatever is around them.
    for stage in ["model", "client", "offline", "online"] {
        let bytes = |answer| number(answer, &format!("cost/{stage}/bytes_up"));
        assert_eq!(bytes(&answer), bytes(&want), "{stage}");
    }
    // With colons, as openssl shows it.
    let pairs: Vec<char> = pin.to_uppercase().chars().collect();
    let colons = pairs.chunks(2).map(String::from_iter).collect::<Vec<_>>().join(":");
    answers(client(&folder, &server.address, &["--pin", &colons]), 1);

    // Another server's; none; not TLS; a server without.
    let mut elsewhere = Server::start(&model, &["--tls", "on", "--cache", &other], WATCHDOG);
    let wrong = fingerprint(&mut elsewhere);
    let at = &server.address;
    assert_fails(client(&folder, at, &["--pin", &wrong]), &[at, "not the pinned one", &pin, &wrong]);
    assert_fails(client(&folder, at, &["--tls", "on"]), &[at, "nothing tells whose", &pin]);
    assert_fails(client(&folder, at, &[]), &["TLS only"]);
    assert_fails(client(&folder, &plain.address, &["--pin", &pin]), &[&plain.address, "speaks in the clear"]);
    assert_fails(client(&folder, at, &["--pin", "12:34"]), &["--pin", "'12:34' is no fingerprint"]);
    assert_fails(client(&folder, at, &["--pin", &pin, "--tls", "off"]), &["--tls off"]);
    for (told, by) in
        [("does not accept this side's certificate", &mut server), ("a TLS handshake", &mut plain)]
    {
        by.process.line_with(told, WATCHDOG);
    }
    // The certificate stays.
    drop(server);
    let mut again = Server::start(&model, &["--tls", "on", "--cache", &kept], WATCHDOG);
    assert_eq!(fingerprint(&mut again), pin);
}

/// Files of an authority, and of what it signs.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub file: String,
}

impl Authority {
    pub fn new(folder: &Scratch, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(vec![]).expect("parameters");
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let file = folder.path(&format!("{name}.pem"));
        std::fs::write(&file, parameters.self_signed(&key).expect("signed").pem()).expect("written");
        Self { issuer: Issuer::new(parameters, key), file }
    }

    /// A certificate for a name, and its key.
    pub fn sign(&self, folder: &Scratch, name: &str) -> [String; 2] {
        self.sign_until(folder, name, None)
    }

    /// The same, valid until the first day of a year.
    pub fn sign_until(&self, folder: &Scratch, name: &str, year: Option<i32>) -> [String; 2] {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        if let Some(year) = year {
            parameters.not_before = date_time_ymd(year - 1, 1, 1);
            parameters.not_after = date_time_ymd(year, 1, 1);
        }
        let certificate = parameters.signed_by(&key, &self.issuer).expect("signed");
        let files = ["certificate", "key"].map(|kind| folder.path(&format!("{name}-{kind}.pem")));
        for (file, text) in files.iter().zip([certificate.pem(), key.serialize_pem()]) {
            write_secret(file, &text);
        }
        files
    }
}

#[test]
fn certificates_of_authorities_on_both_sides() {
    let folder = Scratch::new("authorities");
    let model = tiny::compile(&folder);
    let [ours, theirs, nobody] = ["ours", "theirs", "nobody"].map(|name| Authority::new(&folder, name));
    let [certificate, key] = ours.sign(&folder, "inference.example");
    let [alice, alices_key] = theirs.sign(&folder, "alice");
    let [mallory, mallorys_key] = nobody.sign(&folder, "mallory");
    let serve = ["--tls-cert", &certificate, "--tls-key", &key, "--client-ca", &theirs.file];
    let mut server = Server::start(&model, &serve, WATCHDOG);
    let at = server.address.clone();
    let named = ["--ca", &ours.file, "--server-name", "inference.example"];
    let with = |more: &[&str]| client(&folder, &at, &[&named[..], more].concat());
    answers(with(&["--cert", &alice, "--key", &alices_key]), 1);
    server.process.line_with("connected as rcgen self signed cert", WATCHDOG);
    assert_fails(with(&[]), &[&at, "nobody in without a certificate"]);
    assert_fails(
        with(&["--cert", &mallory, "--key", &mallorys_key]),
        &[&at, "does not accept this side's certificate"],
    );
    assert_fails(client(&folder, &at, &["--ca", &ours.file]), &[&at, "another name"]);
    let stranger = ["--ca", &nobody.file, "--server-name", "inference.example"];
    assert_fails(client(&folder, &at, &stranger), &[&at, "no authority that this side knows"]);
    assert_fails(with(&["--cert", &alice, "--key", &alice]), &["key", &alice, "no private key in it"]);
    for told in ["shows no certificate", "no authority that this side knows"] {
        server.process.line_with(told, WATCHDOG);
    }
    let serve = |options: &[&str]| {
        let mut command = jaguar(&["serve", &model, "--listen", "127.0.0.1:0", "--measure", "off"]);
        command.args(options);
        Process::start(command)
    };
    assert_fails(
        serve(&["--tls-cert", &certificate, "--tls-key", &alices_key]),
        &["certificate", &certificate],
    );
    assert_fails(serve(&["--tls-cert", &folder.path("none"), "--tls-key", &key]), &["none", "No such file"]);
    assert_fails(serve(&["--tls", "off", "--client-ca", &theirs.file]), &["--tls off"]);
    // A key that others may use; `doctor` says the same.
    others_may(&key, 0o644);
    let told = ["others may use it (mode 644)", "chmod 600", &key];
    let named = ["--tls-cert", &certificate, "--tls-key", &key];
    assert_fails(serve(&named), &told);
    let doctor = Process::start(jaguar(&[&["doctor"][..], &named].concat())).finish(WATCHDOG);
    assert!(!doctor.status.success());
    assert!(told.iter().all(|part| doctor.stdout.contains(part)), "{}", doctor.stdout);
}

fn others_may(file: &str, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(file, mode).expect("our own file");
}

#[test]
fn tokens_let_clients_in() {
    let folder = Scratch::new("tokens");
    let (model, tokens) = (tiny::compile(&folder), folder.path("tokens"));
    let (alice, bob) = (token(&folder, "alice"), token(&folder, "bob"));
    let mut server = Server::start(
        &model,
        &["--tls", "on", "--cache", &folder.path("server"), "--tokens", &tokens],
        WATCHDOG,
    );
    let (pin, at) = (fingerprint(&mut server), server.address.clone());
    let with = |more: &[&str]| client(&folder, &at, &[&["--pin", &pin][..], more].concat());
    answers(with(&["--token-file", &alice]), 1);
    server.process.line_with("connected as alice", WATCHDOG);
    assert_fails(with(&[]), &["nobody in without a token"]);
    // Taken out, it counts at once; who else is there stays.
    let text = std::fs::read_to_string(&tokens).expect("there");
    let rest: String = text.lines().filter(|l| !l.ends_with(" alice")).map(|l| format!("{l}\n")).collect();
    std::fs::write(&tokens, rest).expect("written");
    assert_fails(with(&["--token-file", &alice]), &["does not know the token"]);
    answers(with(&["--token-file", &bob]), 1);
    std::fs::write(&tokens, "nonsense").expect("written");
    assert_fails(with(&["--token-file", &bob]), &["try again later"]);
    server.process.line_with("line 1 is no hash", WATCHDOG);
    assert_fails(with(&["--token-file", &tokens]), &[&tokens, "no token"]);
    // What others may read is not taken for a secret: a token, and the key of a certificate; `doctor` says the same.
    std::fs::write(&tokens, text).expect("written");
    for mode in [0o644, 0o640, 0o604] {
        others_may(&alice, mode);
        let told = [&format!("others may use it (mode {mode:o})")[..], "chmod 600", &alice];
        assert_fails(with(&["--token-file", &alice]), &told);
        let doctor = Process::start(jaguar(&["doctor", "--token-file", &alice])).finish(WATCHDOG);
        assert!(!doctor.status.success());
        assert!(told.iter().all(|part| doctor.stdout.contains(part)), "{}", doctor.stdout);
    }
    others_may(&alice, 0o600);
    answers(with(&["--token-file", &alice]), 1);
    let [certificate, key] = Authority::new(&folder, "theirs").sign(&folder, "alice");
    others_may(&key, 0o644);
    let told = ["others may use it (mode 644)", "chmod 600", &key];
    assert_fails(with(&["--token-file", &alice, "--cert", &certificate, "--key", &key]), &told);
    // Nobody is let in by a token that everybody can read, and none is sent so.
    let serve =
        ["serve", &model, "--listen", "0.0.0.0:0", "--measure", "off", "--tls", "off", "--tokens", &tokens];
    assert_fails(Process::start(jaguar(&serve)), &["--tokens needs TLS"]);
    let clear = ["--tls", "off", "--token-file", &alice];
    assert_fails(client(&folder, "192.0.2.1:7447", &clear), &["192.0.2.1:7447", "not encrypted"]);
}

#[test]
fn beyond_this_machine_tls_is_spoken() {
    let folder = Scratch::new("beyond");
    let (model, cache) = (tiny::compile(&folder), folder.path("server"));
    let mut command =
        jaguar(&["serve", &model, "--listen", "0.0.0.0:0", "--measure", "off", "--cache", &cache]);
    command.env_remove("HOME");
    let mut process = Process::start(command);
    let line = process.line_with("listening on ", WATCHDOG);
    let port = line.rsplit(':').next().expect("a port").to_owned();
    let mut server = Server { process, address: format!("127.0.0.1:{port}") };
    let pin = fingerprint(&mut server);
    assert!(Path::new(&cache).join("tls/key.pem").exists());
    answers(client(&folder, &server.address, &["--pin", &pin]), 1);
    // From here it could be spoken in the clear; the server speaks TLS all the same.
    assert_fails(client(&folder, &server.address, &[]), &["TLS only"]);
}

#[test]
fn addresses_of_all_kinds() {
    let folder = Scratch::new("kinds");
    let (model, cache) = (tiny::compile(&folder), folder.path("server"));
    let socket = format!("unix:{}", folder.path("socket"));
    let mut kinds = vec![socket.as_str()];
    if Path::new("/proc/net/if_inet6").exists() {
        kinds.push("[::1]:0");
    }
    for listen in kinds {
        for tls in ["off", "on"] {
            let options = ["--tls", tls, "--cache", &cache];
            let mut command = jaguar(&["serve", &model, "--listen", listen, "--measure", "off"]);
            command.args(options);
            let mut process = Process::start(command);
            let line = process.line_with("listening on ", WATCHDOG);
            let address = line.rsplit(' ').next().expect("an address").to_owned();
            let mut server = Server { process, address };
            let pin = if tls == "on" { fingerprint(&mut server) } else { String::new() };
            let options = if tls == "on" { vec!["--pin", &pin] } else { vec![] };
            answers(client(&folder, &server.address, &options), 1);
        }
    }
    // A killed server's socket is there still, and the next one's clients do not mind.
    assert!(Path::new(&folder.path("socket")).exists());
    assert_fails(client(&folder, &socket, &[]), &[&socket, "refused"]);
}

#[cfg(unix)]
#[test]
fn a_new_certificate_at_the_same_path_is_shown_after_a_reload() {
    use crate::operation::{figure, figure_becomes, metrics_of, page, signal};
    let folder = Scratch::new("renewed");
    let model = tiny::compile(&folder);
    let ours = Authority::new(&folder, "ours");
    let files = ours.sign_until(&folder, "inference.example", Some(2051));
    let [certificate, key] = &files;
    let serve = ["--tls-cert", certificate, "--tls-key", key, "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&model, &serve, WATCHDOG);
    let (metrics, first) = (metrics_of(&mut server), fingerprint(&mut server));
    let expires = || figure(&page(&metrics, "/metrics").1, "jaguar_certificate_expires_seconds");
    // date -u -d 2051-01-01 +%s
    assert_eq!(expires(), 2_556_144_000.0);
    let at = server.address.clone();
    answers(client(&folder, &at, &["--pin", &first]), 1);

    ours.sign_until(&folder, "inference.example", Some(2052));
    signal(&server.process, "-HUP");
    let line = server.process.line_with("the certificate is new", WATCHDOG);
    let second = line.rsplit(' ').next().expect("a fingerprint at the end").to_owned();
    assert_ne!(first, second);
    figure_becomes(&metrics, "jaguar_reloads_total{result=\"ok\"}", 1.0);
    assert_eq!(expires(), 2_556_144_000.0 + 365.0 * 86400.0);
    answers(client(&folder, &at, &["--pin", &second]), 1);
    assert_fails(client(&folder, &at, &["--pin", &first]), &["not the pinned one", &second]);

    // One that is none leaves the other in its place.
    write_secret(certificate, "nonsense");
    signal(&server.process, "-HUP");
    server.process.line_with("the certificate is not reloaded", WATCHDOG);
    figure_becomes(&metrics, "jaguar_last_reload_successful", 0.0);
    answers(client(&folder, &at, &["--pin", &second]), 1);
}
