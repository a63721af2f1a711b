//! What making correlations sends, by their number.

use crate::block::Line;
use crate::cots::AHEAD;
use crate::ferret::Room;
use crate::instance::{Instances, Lpn};
use crate::{Block, Drawn, Width, base, iknp};

const BLOCK: u64 = size_of::<Block>() as u64;

/// Bytes that each party sends to set up both directions.
pub fn setup_bytes(instances: Instances) -> u64 {
    let chain = instances.chain(Width::Bit);
    let base_ots = base::POINT * (1 + iknp::BASE);
    (base_ots + iknp::bytes(chain[0].cost())) as u64 + first_secrets(&chain).0
}

/// Bytes and trees' levels of the instances that make the first secret of the last one.
fn first_secrets(chain: &[Lpn]) -> (u64, u64) {
    chain.windows(2).fold((0, 0), |(bytes, levels), pair| {
        let bins = pair[0].bins_for(pair[1].cost()) as u64;
        (bytes + bins * pair[0].message() as u64 * BLOCK, levels + bins * pair[0].log_bin as u64)
    })
}

/// Bins that `count` correlations take: whole ones, and before each iteration but the first those that it starts from.
fn bins(lpn: Lpn, count: u64) -> u64 {
    let aside = lpn.bins_for(lpn.cost()) as u64;
    let wanted = count.div_ceil(lpn.bin() as u64);
    wanted + aside * (wanted.saturating_sub(1) / (lpn.bins as u64 - aside))
}

/// Bytes that the sender of a direction sends for `more` correlations, when `before` were drawn already. The first
/// vectors bring the set-up of their instance with them.
pub fn extension_bytes(instances: Instances, before: Drawn, more: Drawn) -> u64 {
    let (bit_chain, vector_chain) = (instances.chain(Width::Bit), instances.chain(Width::Vector));
    let (bit, vector) = (*bit_chain.last().expect("not empty"), *vector_chain.last().expect("not empty"));
    let total = |drawn: Drawn| {
        let (mut bytes, mut bits) = (0, drawn.bits);
        if drawn.vectors > 0 {
            let (first_bytes, first_levels) = first_secrets(&vector_chain);
            let added_up = 4 * vector_chain[0].cost() as u64;
            let trees = bins(vector, drawn.vectors);
            bytes += added_up * BLOCK + first_bytes + trees * vector.message() as u64 * BLOCK;
            bits += added_up + first_levels + trees * vector.log_bin as u64;
        }
        bytes + bins(bit, bits) * bit.message() as u64 * BLOCK
    };
    total(before + more) - total(before)
}

/// Bytes that a party holds for a session at most: secrets of bits in both directions and of vectors in one (a client sends
/// none), those of the next iteration in the making, bits that are made ahead, and lines in the making.
pub fn session_bytes(instances: Instances) -> u64 {
    let of = |width| {
        let lpn = *instances.chain(width).last().expect("not empty");
        2 * (lpn.bins_for(lpn.cost()) * lpn.bin()) as u64
    };
    let blocks = 2 * of(Width::Bit) + of(Width::Vector) + AHEAD as u64;
    BLOCK * blocks + (Room::MOST * size_of::<Line>()) as u64
}

/// What a correlation of this width sends in the long run, in bytes: those of an iteration, over what it hands out.
pub fn mean_extension_bytes(instances: Instances, width: Width) -> f64 {
    let lpn = *instances.chain(width).last().expect("not empty");
    let used = (lpn.samples() - lpn.bins_for(lpn.cost()) * lpn.bin()) as f64;
    let levels = match width {
        Width::Bit => 0.0,
        Width::Vector => lpn.log_bin as f64 * mean_extension_bytes(instances, Width::Bit),
    };
    lpn.bins as f64 * (levels + (lpn.message() as u64 * BLOCK) as f64) / used
}
