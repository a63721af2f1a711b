//! What making correlations sends, by their number.

use crate::block::Line;
use crate::ferret::Room;
use crate::instance::{Instances, Lpn};
use crate::{Block, Drawn, Width, base, iknp};

const BLOCK: u64 = size_of::<Block>() as u64;

/// Bytes that each party sends to set up both directions.
pub fn setup_bytes(instances: Instances) -> u64 {
    let chain = instances.chain(Width::Bit);
    let base_ots = base::POINT * (1 + iknp::BASE);
    (base_ots + iknp::bytes(chain[0].cost(0))) as u64 + first_secrets(&chain).0
}

/// Bytes and trees' levels of the instances that make the first secret of the last one.
fn first_secrets(chain: &[Lpn]) -> (u64, u64) {
    chain.windows(2).fold((0, 0), |(bytes, levels), pair| {
        let bins = pair[0].bins_for(pair[1].cost(0)) as u64;
        (bytes + bins * pair[0].message(0) as u64 * BLOCK, levels + bins * pair[0].log_bin as u64)
    })
}

/// What bins send, and levels of their trees.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sent {
    blocks: u64,
    pub(crate) levels: u64,
}

impl Sent {
    /// These and `bins` bins of an iteration, `times` over.
    fn and(self, lpn: Lpn, iteration: u64, bins: u64, times: u64) -> Self {
        Self {
            blocks: self.blocks + times * bins * lpn.message(iteration) as u64,
            levels: self.levels + times * bins * lpn.levels(iteration) as u64,
        }
    }

    pub(crate) fn bytes(self) -> u64 {
        self.blocks * BLOCK
    }
}

/// Bins for use of an iteration.
fn for_use(lpn: Lpn, iteration: u64) -> u64 {
    (lpn.bins - lpn.aside(iteration)) as u64
}

/// What `count` correlations take: whole bins, and before each iteration but the first those that it starts from.
pub(crate) fn sent(lpn: Lpn, count: u64) -> Sent {
    let wanted = count.div_ceil(lpn.bin() as u64);
    let of_life: u64 = (0..lpn.life).map(|iteration| for_use(lpn, iteration)).sum();
    // The last of them may be all of an iteration: what that makes for the next one is not there yet.
    let lives = wanted.saturating_sub(1) / of_life;
    let whole = |sum: Sent, iteration| sum.and(lpn, iteration, lpn.bins as u64, lives);
    let mut sum = (0..lpn.life).fold(Sent::default(), whole);
    let mut left = wanted - lives * of_life;
    for iteration in 0..lpn.life {
        if left <= for_use(lpn, iteration) {
            return sum.and(lpn, iteration, left, 1);
        }
        sum = sum.and(lpn, iteration, lpn.bins as u64, 1);
        left -= for_use(lpn, iteration);
    }
    unreachable!("less than a life's bins were left")
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
            let added_up = 4 * vector_chain[0].cost(0) as u64;
            let vectors = sent(vector, drawn.vectors);
            bytes += added_up * BLOCK + first_bytes + vectors.bytes();
            bits += added_up + first_levels + vectors.levels;
        }
        bytes + sent(bit, bits).bytes()
    };
    total(before + more) - total(before)
}

/// Bytes that a party holds for a session at most: secrets of bits in both directions and of vectors in one (a client sends
/// none), those of the next iteration in the making, what trees are made of again where noise is stationary, and lines
/// in the making.
pub fn session_bytes(instances: Instances) -> u64 {
    let of = |width| {
        let lpn = *instances.chain(width).last().expect("not empty");
        // A receiver's; a sender keeps a block.
        let kept =
            if lpn.life > 1 { lpn.bins * (lpn.log_bin * size_of::<Block>() + size_of::<u64>()) } else { 0 };
        2 * (lpn.bins_for(lpn.cost(0)) * lpn.bin()) as u64 * BLOCK + kept as u64
    };
    2 * of(Width::Bit) + of(Width::Vector) + (Room::MOST * size_of::<Line>()) as u64
}

/// What a correlation of this width sends in the long run, in bytes: those of all iterations of a life, over what they hand out.
pub fn mean_extension_bytes(instances: Instances, width: Width) -> f64 {
    let lpn = *instances.chain(width).last().expect("not empty");
    let all = |sum: Sent, iteration| sum.and(lpn, iteration, lpn.bins as u64, 1);
    let life = (0..lpn.life).fold(Sent::default(), all);
    let used: u64 = (0..lpn.life).map(|iteration| for_use(lpn, iteration)).sum();
    let levels = match width {
        Width::Bit => 0.0,
        Width::Vector => life.levels as f64 * mean_extension_bytes(instances, Width::Bit),
    };
    (levels + life.bytes() as f64) / (used * lpn.bin() as u64) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bin, Noise};

    /// The figures of `docs/protocols/oblivious-transfer.md`, in thousandths of a byte.
    #[test]
    fn the_page_has_these_bytes() {
        for (bin, fresh, stationary) in [
            (Bin::B512, [331, 365], [331, 363]),
            (Bin::B1024, [220, 222], [82, 83]),
            (Bin::B2048, [111, 111], [39, 39]),
            (Bin::B4096, [59, 60], [20, 20]),
        ] {
            for (noise, figures) in [(Noise::Fresh, fresh), (Noise::Stationary, stationary)] {
                for (width, figure) in Width::ALL.into_iter().zip(figures) {
                    // Vectors' trees take bits of the usual bins.
                    let bits = if width == Width::Bit { bin } else { Bin::B2048 };
                    let bytes = mean_extension_bytes(Instances { bits, vectors: bin, noise }, width);
                    assert_eq!((1000.0 * bytes).round() as u64, figure, "{bin:?} {noise:?} {width:?}");
                }
            }
        }
    }
}
