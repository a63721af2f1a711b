//! The chance of one private run, imitated.

use jaguar_mpc::semantics::opened_noise;

use crate::ir::shape::NodeId;

/// The chance in one private run, imitated: the low bits of the client's share of every value, those inside a max-pool
/// included. Reproducible from the seed; made for studying errors, and of no use as a source of secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// Runs with different seeds are independent.
    pub seed: u64,
    /// Whether linear layers round by chance too, as they do in a private run, instead of to nearest.
    pub rounding: bool,
}

impl Draws {
    /// 64 bits for one element of a node's input (of a max-pool, also for what it makes on the way): the output
    /// function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), over the place and then, with the seed, once
    /// more.
    pub(crate) fn bits(self, node: NodeId, element: usize) -> u64 {
        let place = (node as u64) << 32 | element as u64;
        mix(mix(place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            ^ mix(self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15)))
    }

    /// The server's noise of so many bits in one element of what is opened, behind the last of `nodes` nodes.
    pub(crate) fn noise(self, nodes: usize, element: usize, bits: u32) -> i64 {
        opened_noise([0, 1].map(|half| self.bits(nodes, 2 * element + half)), bits)
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use jaguar_mpc::semantics::relu_ignoring;

    use super::*;

    /// The draws of one run, counted over its elements: within five standard deviations of the stated probability, and
    /// different from node to node and seed to seed.
    #[test]
    fn draws_are_uniform() {
        const COUNT: usize = 1 << 16;
        for (seed, node) in [(0, 1), (0, 2), (1, 1), (u64::MAX, 1 << 19)] {
            let draws = Draws { seed, rounding: false };
            for (x, ignored) in [(0, 4), (7, 4), (14, 4), (100, 8), (3, 2)] {
                let lost = |i| relu_ignoring(x, ignored, draws.bits(node, i)) == 0;
                let p = if x == 0 { 1.0 } else { 1.0 - (x as f64 + 1.0) / f64::from(1u32 << ignored) };
                let found = (0..COUNT).filter(|&i| lost(i)).count() as f64;
                let deviation = (COUNT as f64 * p * (1.0 - p)).sqrt();
                assert!(
                    (found - p * COUNT as f64).abs() <= 5.0 * deviation,
                    "{found} of {COUNT} at {x}, {p}"
                );
            }
        }
        let of = |seed, node| (0..64).map(move |i| Draws { seed, rounding: false }.bits(node, i) & 1);
        assert!(of(0, 1).ne(of(0, 2)) && of(0, 1).ne(of(1, 1)));
    }
}
