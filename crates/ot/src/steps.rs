//! Single steps on given secrets, for tools that look at what a step's time and branches depend on (`make test-timing`), and kernels by
//! name, for the tool that counts their instructions (`tools/arm_counts.py`). Nothing here is a protocol: keys are given, and no check
//! is made. Only with the feature `steps`, which no program that ships has.

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
    let (key, mut message) = (aes::Key::new(Block(5)), message.to_vec());
    match t.split_at(t.len() - lanes) {
        (t, []) => ggm::receive(&key, t, &mut message, leaves),
        (t, halves) => {
            let (levels, last) = message.split_at_mut(t.len());
            let path = ggm::learn(t, levels);
            ggm::receive_nodes(&key, levels, path, ggm::nodes(leaves, lanes));
            ggm::receive_rows(&key, CLEAR, halves, last, path, leaves);
        }
    }
}

/// The choice bits of leaves.
const CLEAR: u128 = Width::Vector.choice_mask();

/// The AES kernels of this processor, the scalar twin first.
pub fn kernels() -> Vec<&'static str> {
    aes::Kernel::available().into_iter().map(aes::Kernel::name).collect()
}

/// What [`run_kernel`] runs.
pub const BATCHES: [&str; 5] = ["pads", "tables", "tree-level", "leaves", "places"];

/// Runs a batched function of AES `times` times on 1,024 blocks, by the kernel of that name. Nothing, if one of the names is none.
pub fn run_kernel(kernel: &str, what: &str, times: usize) -> Option<()> {
    let kernel = aes::Kernel::available().into_iter().find(|known| known.name() == kernel)?;
    let (key, x) = (aes::Key::for_kernel(kernel, Block(3)), vec![Block(7); 1024]);
    let (mut blocks, mut words) = (vec![Block(9); 4 * x.len()], vec![0; x.len()]);
    let keys = aes::PadKeys { base: Block(11), number: 0, per_key: 32 };
    let shifts: [Block; 16] = std::array::from_fn(|i| Block(i as u128));
    let mut batch: Box<dyn FnMut()> = match what {
        "pads" => Box::new(|| aes::pads(kernel, keys, &shifts[..4], &x, &mut blocks)),
        "tables" => Box::new(|| aes::tables(kernel, keys, &shifts, 2, &x, &mut words)),
        "tree-level" => Box::new(|| {
            std::hint::black_box(key.expand(&mut blocks[..1024], aes::Patch::NONE));
        }),
        "leaves" => Box::new(|| {
            std::hint::black_box(key.leaves(&mut blocks[..1024], 4, CLEAR));
        }),
        "places" => Box::new(|| key.draw(5, 1 << 16, &mut blocks[..1024])),
        _ => return None,
    };
    (0..times).for_each(|_| batch());
    Some(())
}
