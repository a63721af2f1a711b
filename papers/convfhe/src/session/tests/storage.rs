//! The quota, and the folder with clients' keys.

use super::*;

#[test]
fn those_used_longest_ago_make_place_and_are_sent_again() {
    let scratch = Scratch::new("quota");
    let site = Site::new(&scratch, Sums::default(), 2 * KEYS as u64 + 5, DeskLimits::default());
    let clients = [1, 2, 3].map(|seed| scratch.keys(seed));
    let sent = |n: usize| site.ask(&clients[n], &[[1; CIPHERTEXT]]).unwrap().0.sent > 0;
    assert!(sent(0) && sent(1), "new ones");
    assert!(!sent(0), "used again");
    assert!(sent(2), "takes the place of the second");
    assert_eq!(scratch.kept().len(), 2);
    assert!(!sent(0));
    assert!(sent(1), "had to go");
    assert_eq!(scratch.kept().len(), 2);
    // Other keys of one client replace its own.
    let other = Own { client: clients[1].client, ..scratch.keys(9) };
    assert!(site.ask(&other, &[]).unwrap().0.sent > 0);
    assert!(!sent(0));
}

#[test]
fn a_client_that_is_back_before_its_former_session_is_over_may_bring_other_keys() {
    let scratch = Scratch::new("back-at-once");
    let site = Site::plain(&scratch);
    let former = scratch.keys(1);
    let other = Own { client: former.client, ..scratch.keys(2) };
    let (given, served) = site.over(None, |channel| {
        let mut session = begin(channel, &other).unwrap();
        site.ask(&former, &[[1; CIPHERTEXT]]).unwrap();
        let given = session.give_keys(&other.offered(), &mut |_, _| ())?;
        session.leave().map(|()| given)
    });
    served.unwrap();
    assert!(given.unwrap().sent > 0, "in place of the former ones");
}

#[test]
fn a_quota_that_is_in_use_or_too_small_is_told() {
    let scratch = Scratch::new("in-use");
    let site = Site::new(&scratch, Sums::default(), KEYS as u64, DeskLimits::default());
    let (own, other) = (scratch.keys(1), scratch.keys(2));
    let (told, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own).unwrap();
        session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
        // As long as this session lasts, its keys stay.
        let busy = site.ask(&other, &[]).unwrap_err();
        session.leave().unwrap();
        busy
    });
    served.unwrap();
    assert!(told.to_string().contains("taken up by clients that use it now"), "{told}");
    assert!(site.ask(&other, &[]).unwrap().0.sent > 0, "its turn");
    drop(site);
    std::fs::remove_dir_all(scratch.store()).unwrap();
    let site = Site::new(&scratch, Sums::default(), KEYS as u64 - 1, DeskLimits::default());
    says(site.ask(&own, &[]), "--key-storage");
    assert_eq!(scratch.kept(), [""; 0]);
}

#[test]
fn a_folder_has_one_server() {
    let scratch = Scratch::new("locked");
    let _site = Site::plain(&scratch);
    let again = KeyStore::open(&scratch.store(), KEYS as u64, 1 << 30);
    assert!(matches!(again, Err(StoreError::Locked(_))));
}

#[test]
fn what_is_no_key_in_the_folder_is_removed_and_strange_files_stay() {
    let scratch = Scratch::new("tidy");
    std::fs::create_dir_all(scratch.store()).unwrap();
    let name = |kind| format!("{}-{}-{}.{kind}", "ab".repeat(32), "cd".repeat(32), "ef".repeat(8));
    for (file, bytes) in [(name("keys"), 3), (name("part"), KEYS + 1), ("notes.txt".into(), 1)] {
        std::fs::write(scratch.store().join(file), vec![0; bytes]).unwrap();
    }
    let _site = Site::plain(&scratch);
    assert_eq!(scratch.kept(), ["notes.txt"]);
}

/// Whoever draws names pushes out keys of one other client at most, then its own.
#[test]
fn an_address_makes_room_among_its_own() {
    let scratch = Scratch::new("shares");
    let mut site = Site::new(&scratch, Sums::default(), 3 * KEYS as u64, DeskLimits::default());
    let [here, there] = ["192.0.2.1", "192.0.2.2"].map(|ip| Some(ip.parse().unwrap()));
    let clients: Vec<Own> = (1..=9).map(|seed| scratch.keys(seed)).collect();
    let mut sent = |address, client: usize| {
        site.address = address;
        site.ask(&clients[client], &[]).unwrap().0.sent > 0
    };
    for client in [0, 1, 2] {
        assert!(sent(here, client));
    }
    // The first one there takes from those here, who have most; the second one still may; the third does not.
    for client in 3..9 {
        assert!(sent(there, client));
    }
    assert!(!sent(here, 2), "the one that was used last stays");
    assert_eq!(scratch.kept().len(), 3);
    // It stays so behind a restart: what is in the folder knows its share.
    drop(site);
    let mut site = Site::new(&scratch, Sums::default(), 3 * KEYS as u64, DeskLimits::default());
    site.address = there;
    assert!(site.ask(&clients[3], &[]).unwrap().0.sent > 0);
    site.address = here;
    assert_eq!(site.ask(&clients[2], &[]).unwrap().0.sent, 0);
}

#[test]
fn who_has_its_share_waits_for_itself() {
    let scratch = Scratch::new("share-in-use");
    let site = Site::new(&scratch, Sums::default(), 2 * KEYS as u64, DeskLimits::default());
    let clients = [1, 2, 3].map(|seed| scratch.keys(seed));
    let name = |name| Some(Owner::known("token", name));
    let session = |known, own: &Own, meanwhile: &dyn Fn()| {
        let (given, _) = site.over(known, |channel| {
            let mut session = begin(channel, own)?;
            let given = session.give_keys(&own.offered(), &mut |_, _| ())?;
            meanwhile();
            session.leave()?;
            Ok::<_, EngineError>(given)
        });
        given
    };
    session(name("alice"), &clients[0], &|| ()).unwrap();
    // A stranger's first keys are in use: its second ones do not take alice's place, who has not more than it.
    session(None, &clients[1], &|| {
        says(session(None, &clients[2], &|| ()), "have their share");
        assert_eq!(session(name("alice"), &clients[0], &|| ()).unwrap().sent, 0);
    })
    .unwrap();
    // Those with names have a share each.
    session(name("bob"), &clients[2], &|| ()).unwrap();
    assert_eq!(session(name("alice"), &clients[0], &|| ()).unwrap().sent, 0);
}

#[test]
fn shares_are_of_networks_and_of_known_clients() {
    let of = |ip: &str| Share::unknown(Some(ip.parse().unwrap()));
    assert!(of("2001:db8::1") == of("2001:db8::2:0:0:9") && of("2001:db8::1") != of("2001:db8:0:1::1"));
    assert!(of("::ffff:192.0.2.1") == of("192.0.2.1") && of("192.0.2.1") != of("192.0.2.2"));
    let known = |name| Share::known(Owner::known("token", name));
    assert!(known("alice") != known("bob") && Share::unknown(None) != of("::"));
}
