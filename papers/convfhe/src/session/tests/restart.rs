//! Servers that end, and what the next one finds.

use super::*;

/// Gives keys and inputs, and leaves.
fn leave_inputs(site: &Site, own: &Own, inputs: &[u8]) -> Vec<Ticket> {
    let (tickets, served) = site.over(None, |channel| {
        let mut session = begin(channel, own).unwrap();
        session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
        let tickets = inputs.iter().map(|&i| session.send(&[i; CIPHERTEXT], false).unwrap()).collect();
        session.leave().unwrap();
        tickets
    });
    served.unwrap();
    tickets
}

fn fetch(site: &Site, own: &Own, ticket: Ticket) -> Result<Vec<u8>, EngineError> {
    let (answer, _) = site.over(None, |channel| {
        let mut session = begin(channel, own)?;
        session.collect(ticket)?;
        let answer = session.answer(&mut |_| ())?;
        session.leave()?;
        Ok(answer)
    });
    answer
}

/// Files of the queue.
fn queue(scratch: &Scratch) -> Vec<PathBuf> {
    let files = std::fs::read_dir(scratch.store().join("queue")).unwrap();
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths
}

/// A site whose evaluations stop half way, and what tells that one has.
fn stopping(scratch: &Scratch, limits: DeskLimits) -> (Site, Receiver<()>, Sender<()>) {
    let (gate, reached, go_on) = gate();
    let sums = Sums { gate: Some(gate), ..Sums::default() };
    (Site::new(scratch, sums, 10 * KEYS as u64, limits), reached, go_on)
}

#[test]
fn the_next_server_goes_on_with_inputs_and_answers() {
    let scratch = Scratch::new("restart");
    let (own, other) = (scratch.keys(1), scratch.keys(2));
    let (site, reached, go_on) = stopping(&scratch, DeskLimits::default());
    let first = leave_inputs(&site, &own, &[1, 2]);
    let second = leave_inputs(&site, &other, &[3]);
    reached.recv_timeout(PATIENCE).unwrap();
    go_on.send(()).unwrap();
    // The first answer is there, the second input is computed, the third waits.
    reached.recv_timeout(PATIENCE).unwrap();
    assert_eq!(site.service.stock(), [2, 1]);
    assert_eq!(queue(&scratch).len(), 3);
    for path in queue(&scratch) {
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    drop(site);

    let sums = Sums::default();
    let opened = sums.opened.clone();
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, DeskLimits::default());
    assert_eq!(fetch(&site, &other, second[0]).unwrap(), other.expected(&[3; CIPHERTEXT]));
    assert_eq!(opened.load(Ordering::SeqCst), 2, "what was computed is not computed again");
    says(fetch(&site, &other, first[0]), "no answer under this ticket");
    for (ticket, input) in first.into_iter().zip([1, 2]) {
        assert_eq!(fetch(&site, &own, ticket).unwrap(), own.expected(&[input; CIPHERTEXT]));
        says(fetch(&site, &own, ticket), "no answer under this ticket");
    }
    assert_eq!(queue(&scratch), [""; 0].map(PathBuf::from));
    // Why there is none is kept, too.
    let failed = leave_inputs(&site, &own, &[255]);
    says(fetch(&site, &own, failed[0]), "the first byte is 255");
    drop(site);
    says(fetch(&Site::plain(&scratch), &own, failed[0]), "the first byte is 255");
}

/// What takes the machine down is not begun for ever. An orderly end is not held against an input.
#[test]
fn an_evaluation_is_not_begun_for_ever() {
    let scratch = Scratch::new("begun");
    let own = scratch.keys(1);
    let limits = DeskLimits { begin: 2, ..DeskLimits::default() };
    let (site, reached, _go_on) = stopping(&scratch, limits);
    let ticket = leave_inputs(&site, &own, &[1])[0];
    reached.recv_timeout(PATIENCE).unwrap();
    let cut = std::fs::read(&queue(&scratch)[0]).unwrap();
    drop(site);
    for _ in 0..4 {
        let (site, reached, _go_on) = stopping(&scratch, limits);
        reached.recv_timeout(PATIENCE).unwrap();
        drop(site);
    }
    // Now as a server leaves it that is killed: what was written when its evaluation began.
    std::fs::write(&queue(&scratch)[0], &cut).unwrap();
    let (site, reached, _go_on) = stopping(&scratch, limits);
    reached.recv_timeout(PATIENCE).unwrap();
    let cut = std::fs::read(&queue(&scratch)[0]).unwrap();
    drop(site);
    std::fs::write(&queue(&scratch)[0], &cut).unwrap();
    let sums = Sums::default();
    let opened = sums.opened.clone();
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, limits);
    says(fetch(&site, &own, ticket), "ended 2 times in the middle of its evaluation");
    assert_eq!(opened.load(Ordering::SeqCst), 0);
}

#[test]
fn damaged_records_are_removed_and_told() {
    let scratch = Scratch::new("records");
    let own = scratch.keys(1);
    let (site, reached, _go_on) = stopping(&scratch, DeskLimits::default());
    let tickets = leave_inputs(&site, &own, &[1, 2, 3]);
    reached.recv_timeout(PATIENCE).unwrap();
    drop(site);
    let folder = scratch.store().join("queue");
    let whole = queue(&scratch);
    let bytes = std::fs::read(&whole[0]).unwrap();
    // Every part of a file is under its hash, and a file under its name.
    for (i, place) in [0, 5, bytes.len() / 2, bytes.len() - 1].into_iter().enumerate() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        std::fs::write(folder.join(format!("{:064x}.ticket", i)), &damaged).unwrap();
    }
    std::fs::write(folder.join(format!("{:064x}.ticket", 7)), &bytes).unwrap();
    std::fs::write(folder.join(format!("{:064x}.ticket", 8)), b"short").unwrap();
    std::fs::write(folder.join(format!("{:064x}.ticket", 9)), vec![7; 1 << 20]).unwrap();
    std::fs::write(folder.join(format!("{:064x}.ticket.99.part", 1)), b"half of one").unwrap();
    std::fs::write(folder.join("notes.txt"), b"strange").unwrap();
    let (site, reached, go_on) = stopping(&scratch, DeskLimits::default());
    reached.recv_timeout(PATIENCE).unwrap();
    assert_eq!(queue(&scratch), [whole.as_slice(), &[folder.join("notes.txt")]].concat());
    let logged = site.logged.lock().unwrap().clone();
    assert!(matches!(logged.as_slice(), [line] if line.contains("removed 7 damaged files")), "{logged:?}");
    drop(go_on);
    let answers: Vec<_> = tickets.iter().map(|&ticket| fetch(&site, &own, ticket)).collect();
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
}

#[test]
fn what_is_too_old_or_without_keys_is_not_computed() {
    let scratch = Scratch::new("too-old");
    let own = scratch.keys(1);
    let later = || {
        let (site, reached, _go_on) = stopping(&scratch, DeskLimits::default());
        let tickets = leave_inputs(&site, &own, &[1, 2]);
        reached.recv_timeout(PATIENCE).unwrap();
        drop(site);
        tickets
    };
    let tickets = later();
    let limits = DeskLimits { wait: Duration::ZERO, ..DeskLimits::default() };
    let site = Site::new(&scratch, Sums::default(), 10 * KEYS as u64, limits);
    assert_eq!(queue(&scratch), [""; 0].map(PathBuf::from));
    says(fetch(&site, &own, tickets[0]), "no answer under this ticket");
    drop(site);

    let tickets = later();
    for name in scratch.kept() {
        std::fs::remove_file(scratch.store().join(name)).unwrap();
    }
    let site = Site::plain(&scratch);
    for ticket in tickets {
        says(fetch(&site, &own, ticket), "has these keys no longer");
    }
}

/// Another model's inputs are of no use to this one; they wait for it.
#[test]
fn another_model_does_not_take_them() {
    let scratch = Scratch::new("models");
    let own = scratch.keys(1);
    let (site, reached, _go_on) = stopping(&scratch, DeskLimits::default());
    let ticket = leave_inputs(&site, &own, &[1])[0];
    reached.recv_timeout(PATIENCE).unwrap();
    drop(site);
    let sums = Sums::default();
    let opened = sums.opened.clone();
    let other = Site::of_model([8; 32], &scratch, sums, 10 * KEYS as u64, DeskLimits::default());
    assert_eq!(other.service.stock(), [0, 0]);
    says(fetch(&other, &own, ticket), "no answer under this ticket");
    assert_eq!(opened.load(Ordering::SeqCst), 0);
    drop(other);
    assert_eq!(fetch(&Site::plain(&scratch), &own, ticket).unwrap(), own.expected(&[1; CIPHERTEXT]));
}

/// A disk that takes nothing: no ticket for an input; an answer is given all the same, once.
#[test]
fn a_disk_that_fails_is_told() {
    let scratch = Scratch::new("disk-fails");
    let own = scratch.keys(1);
    let (site, reached, go_on) = stopping(&scratch, DeskLimits::default());
    let ticket = leave_inputs(&site, &own, &[1])[0];
    reached.recv_timeout(PATIENCE).unwrap();
    let folder = scratch.store().join("queue");
    std::fs::remove_dir_all(&folder).unwrap();
    says(site.ask(&own, &[[2; CIPHERTEXT]]), "the input was not kept");
    go_on.send(()).unwrap();
    assert_eq!(fetch(&site, &own, ticket).unwrap(), own.expected(&[1; CIPHERTEXT]));
    assert!(site.logged.lock().unwrap().iter().any(|line| line.contains("writing")));
    drop(site);
    assert_eq!(Site::plain(&scratch).service.stock(), [0, 0]);
}
