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
    let name = |kind| format!("{}-{}.{kind}", "ab".repeat(32), "cd".repeat(32));
    for (file, bytes) in [(name("keys"), 3), (name("part"), KEYS + 1), ("notes.txt".into(), 1)] {
        std::fs::write(scratch.store().join(file), vec![0; bytes]).unwrap();
    }
    let _site = Site::plain(&scratch);
    assert_eq!(scratch.kept(), ["notes.txt"]);
}
