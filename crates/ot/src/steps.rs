//! Single steps on given secrets, for tools that look at what a step's time and branches depend on (`make test-timing`). Nothing here
//! is a protocol: keys are given, and no check is made. Only with the feature `steps`, which no program that ships has.

use jaguar_ring::Prg;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::{Block, OtError, Width, aes, base, ggm, iknp};

/// Base OTs that an extension starts from.
pub const BASE_OTS: usize = iknp::BASE;

/// The receiver of base OTs with these choices: reads the sender's point, sends its own.
///
/// # Errors
/// As a session.
pub fn choose(chan: &mut Channel, prg: &mut Prg, choices: &[bool]) -> Result<(), OtError> {
    base::choose(chan, prg, choices).map(drop)
}

/// The sender of `count` base OTs, whose secret scalar comes from `prg`: sends its point, reads the receiver's.
///
/// # Errors
/// As a session.
pub fn offer(chan: &mut Channel, prg: &mut Prg, count: usize) -> Result<(), OtError> {
    base::offer(chan, prg)?.finish(chan, count).map(drop)
}

/// Columns of the extension at the sender of `count` correlations, who has Δ, and as keys the bytes 0, 1, …
///
/// # Errors
/// As a session.
pub fn extension_sender(
    chan: &mut Channel,
    delta: Block,
    count: usize,
) -> Result<Zeroizing<Vec<Block>>, OtError> {
    let keys: Vec<base::Key> = (0..BASE_OTS).map(|j| Zeroizing::new([j as u8; 32])).collect();
    iknp::send(chan, delta, &keys, &[7; 32], count)
}

/// The same at the receiver, whose choices come from `prg`. Keys are the bytes 0, 1, … and 128, 129, …
///
/// # Errors
/// As a session.
pub fn extension_receiver(
    chan: &mut Channel,
    prg: &mut Prg,
    count: usize,
) -> Result<Zeroizing<Vec<Block>>, OtError> {
    let keys: Vec<[base::Key; 2]> =
        (0..BASE_OTS).map(|j| [j, j + 128].map(|byte| Zeroizing::new([byte as u8; 32]))).collect();
    iknp::receive(chan, prg, &keys, &[7; 32], count)
}

/// A tree at the sender: halves `q` of as many correlations as it has levels, and behind them one for each of `lanes` leaves of
/// a row (none, where all errors are Δ).
pub fn tree_sender(
    delta: Block,
    seed: Block,
    q: &[Block],
    lanes: usize,
    leaves: &mut [Block],
    message: &mut [Block],
) {
    let key = aes::Key::new(Block(5));
    match q.split_at(q.len() - lanes) {
        (q, []) => ggm::send(&key, delta, seed, q, leaves, message),
        (q, halves) => {
            let (levels, last) = message.split_at_mut(q.len());
            ggm::send_nodes(&key, delta, seed, q, ggm::nodes(leaves, lanes), levels);
            ggm::send_rows(&key, CLEAR, halves, leaves, last);
        }
    }
}

/// The same tree at the receiver, with halves `t`, whose bits 0 are the choices.
pub fn tree_receiver(t: &[Block], lanes: usize, message: &[Block], leaves: &mut [Block]) {
    let key = aes::Key::new(Block(5));
    match t.split_at(t.len() - lanes) {
        (t, []) => ggm::receive(&key, t, message, leaves),
        (t, halves) => {
            let (levels, last) = message.split_at(t.len());
            let path = ggm::receive_nodes(&key, t, levels, ggm::nodes(leaves, lanes));
            ggm::receive_rows(&key, CLEAR, halves, last, path, leaves);
        }
    }
}

/// The choice bits of leaves.
const CLEAR: u128 = Width::Vector.choice_mask();
