//! Whose keys, tickets and answers: what a token or a certificate says, and nothing else.

use super::*;
use crate::connections::Authority;
use crate::private_files::write_secret;

/// What bob must not get of alice's, however each shows who it is. `storage` has room for the keys of two.
fn apart(it: &Site, at: &str, [alice, bob]: [&[&str]; 2]) {
    let ask =
        |client: &str, shown: &[&str], options: &[&str]| it.predict(at, client, &[shown, options].concat());
    let asked = lines(ask("alice", alice, &["--detach", &it.inputs[0], &it.inputs[1]]));
    let tickets: Vec<&str> = asked.iter().map(|line| line["ticket"].as_str().unwrap()).collect();
    let bobs = lines(ask("bob", bob, &[&it.inputs[2]]));
    assert_eq!(bobs[0]["cost"]["keys_sent"], KEYS);
    // Neither as itself, nor with all of alice's files.
    for folder in ["bob", "alice"] {
        assert_fails(ask(folder, bob, &["--ticket", tickets[0]]), &["no answer under this ticket"]);
    }
    // Alice's second machine takes the place of her first one, and nobody else's.
    assert_eq!(lines(ask("alice-elsewhere", alice, &[&it.inputs[3]]))[0]["cost"]["keys_sent"], KEYS);
    assert_eq!(it.kept().len(), 2);
    assert_eq!(lines(ask("bob", bob, &[&it.inputs[2]]))[0]["cost"]["keys_sent"], 0);
    // What was computed under the former keys is hers all the same.
    lines(ask("alice", alice, &["--ticket", tickets[0]]));
    lines(ask("alice", alice, &["--ticket", tickets[1]]));
}

#[test]
fn tokens_tell_owners_apart() {
    let it = Site::new("owners-tokens");
    let (tokens, kept) = (it.scratch.path("tokens"), it.scratch.path("certificate"));
    let [alice, bob] = ["alice", "bob"].map(|name| {
        let given =
            Process::start(jaguar(&["token", name, "--tokens", &tokens])).finish(WATCHDOG).succeeded();
        let file = it.scratch.path(&format!("{name}.token"));
        write_secret(&file, &given);
        file
    });
    let room = (KEYS * 21 / 10).to_string();
    let options = ["--tls", "on", "--cache", &kept, "--tokens", &tokens, "--key-storage", &room];
    let mut server = it.serve(&options);
    let pin = fingerprint(&mut server);
    let [alice, bob] = [&alice, &bob].map(|file| ["--pin", &pin, "--token-file", file]);
    apart(&it, &server.address, [&alice, &bob]);
}

#[test]
fn certificates_tell_owners_apart() {
    let it = Site::new("owners-certificates");
    let [ours, theirs] = ["ours", "theirs"].map(|name| Authority::new(&it.scratch, name));
    let [certificate, key] = ours.sign(&it.scratch, "inference.example");
    let room = (KEYS * 21 / 10).to_string();
    let options = ["--tls-cert", &certificate, "--tls-key", &key, "--client-ca", &theirs.file];
    let server = it.serve(&[&options[..], &["--key-storage", &room]].concat());
    let files = ["alice", "bob"].map(|name| theirs.sign(&it.scratch, name));
    let [alice, bob] = files.each_ref().map(|[certificate, key]| {
        ["--ca", &ours.file, "--server-name", "inference.example", "--cert", certificate, "--key", key]
    });
    apart(&it, &server.address, [&alice, &bob]);
}

/// Evaluation keys of another secret: the answer is noise, and told to be.
#[test]
fn a_wrong_key_is_told() {
    let it = Site::new("wrong-key");
    let server = it.serve(&[]);
    for client in ["client", "other"] {
        lines(it.predict(&server.address, client, &[&it.inputs[0]]));
    }
    for name in ["keys", "keys.hash"] {
        std::fs::copy(it.of_client("other", name), it.of_client("client", name)).unwrap();
    }
    let parts = ["decrypting the answer", "keys of another client"];
    assert_fails(it.predict(&server.address, "client", &[&it.inputs[0]]), &parts);
    // Keys that came to harm on the server's disk, in a single bit: they go, and are sent again.
    let folder = it.scratch.path("server/insecure-n10");
    for name in it.kept() {
        let path = format!("{folder}/{name}");
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let damaged = it.predict(&server.address, "other", &[&it.inputs[0]]);
    assert_fails(damaged, &["the server has no answer", "spoilt keys: ", "send them again"]);
    assert_eq!(lines(it.predict(&server.address, "other", &[&it.inputs[0]]))[0]["cost"]["keys_sent"], KEYS);
}
