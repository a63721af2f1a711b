//! Made-up inputs that lie far out, to calibrate with: single colours, stripes, chequers, noise.
//!
//! A value beyond its layer's bound spoils an answer, and ten photographs say little of what a drawing does: red beside blue drives
//! the first layers of a network to twice what photographs do. Places of random extreme colours, two wide, reach farthest
//! (`docs/protocols/convfhe.md` has the figures).

use jaguar_graph::network::Shape;

/// By how much inputs may exceed the made-up ones. (Of 224 other simple pictures none did by more than 1.09 in ResNet-20.)
pub const STRESS_MARGIN: f64 = 1.2;

/// Sides of the squares of one random colour, and how many inputs there are of each.
const NOISE: [(usize, u64); 6] = [(1, 10), (2, 24), (3, 8), (4, 10), (6, 4), (8, 2)];
/// The same with two colours only, the two ends.
const TWO_COLOURS: [(usize, u64); 3] = [(1, 2), (2, 2), (4, 2)];
/// Sides of the squares of chequers.
const CHEQUERS: [usize; 4] = [1, 2, 4, 8];
/// Widths of stripes.
const STRIPES: [usize; 3] = [1, 2, 16];

/// Which end of a channel's range a value is at.
fn ends(ranges: &[[f32; 2]], high: impl Fn(usize) -> bool) -> Vec<f32> {
    ranges.iter().enumerate().map(|(c, [low, top])| if high(c) { *top } else { *low }).collect()
}

/// Tensors `[C, H, W]` whose channels stay in `ranges` and reach both ends. The same at every call.
#[must_use]
pub fn stress(shape: Shape, ranges: &[[f32; 2]]) -> Vec<Vec<f32>> {
    let [channels, height, width] = shape;
    let mut made: Vec<Vec<f32>> = Vec::new();
    let mut push = |colour_at: &dyn Fn(usize, usize) -> Vec<f32>| {
        let mut tensor = vec![0.0; channels * height * width];
        for y in 0..height {
            for x in 0..width {
                for (c, value) in colour_at(y, x).into_iter().enumerate() {
                    tensor[(c * height + y) * width + x] = value;
                }
            }
        }
        // A vector or a network of one channel has fewer.
        if !made.contains(&tensor) {
            made.push(tensor);
        }
    };
    // Colours: both ends of all channels, one channel at its other end, and for three channels that is all corners.
    let [low, high] = [ends(ranges, |_| false), ends(ranges, |_| true)];
    let mut pairs = vec![(low, high)];
    pairs.extend((0..channels.min(3)).map(|one| (ends(ranges, |c| c == one), ends(ranges, |c| c != one))));
    let middle: Vec<f32> = ranges.iter().map(|[low, high]| f32::midpoint(*low, *high)).collect();
    push(&|_, _| middle.clone());
    for (a, b) in &pairs {
        push(&|_, _| a.clone());
        push(&|_, _| b.clone());
        let pick = |second: bool| if second { b.clone() } else { a.clone() };
        for side in CHEQUERS {
            push(&|y, x| pick((x / side + y / side) % 2 == 1));
        }
    }
    let (a, b) = &pairs[0];
    for wide in STRIPES {
        push(&|_, x| if (x / wide) % 2 == 1 { b.clone() } else { a.clone() });
        push(&|y, _| if (y / wide) % 2 == 1 { b.clone() } else { a.clone() });
    }
    for (side, count) in NOISE {
        for seed in 0..count {
            push(&|y, x| ends(ranges, |c| coin([side, y / side, x / side, c], seed)));
        }
    }
    for (side, count) in TWO_COLOURS {
        for seed in 0..count {
            push(&|y, x| ends(ranges, |_| coin([side, y / side, x / side, channels], seed)));
        }
    }
    made
}

/// A coin for a place, always the same: the top bit of `splitmix64` over what is hashed.
fn coin(place: [usize; 4], seed: u64) -> bool {
    let mixed = place.iter().fold(seed, |state, &part| {
        let mut z = (state ^ part as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    });
    mixed >> 63 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_stay_in_their_ranges_and_reach_both_ends() {
        let ranges = [[-2.0, 3.0], [-1.0, 1.0], [0.0, 5.0]];
        let made = stress([3, 32, 32], &ranges);
        assert_eq!(made.len(), 95);
        for (c, [low, high]) in ranges.iter().enumerate() {
            let of = |tensor: &[f32]| tensor[c * 1024..][..1024].to_vec();
            assert!(made.iter().flat_map(|tensor| of(tensor)).all(|v| (*low..=*high).contains(&v)));
            // Noise of single places: both ends about as often.
            let noise = of(&made[made.len() - 64]);
            let tops = noise.iter().filter(|v| *v == high).count();
            assert!(noise.iter().all(|v| v == low || v == high) && (400..624).contains(&tops), "{tops}");
        }
        // All corners.
        let plain =
            |tensor: &&Vec<f32>| tensor.chunks(1024).all(|plane| plane.iter().all(|v| *v == plane[0]));
        assert_eq!(made.iter().filter(plain).count(), 9);
        assert_eq!(made, stress([3, 32, 32], &ranges));
    }

    #[test]
    fn shapes_that_are_no_pictures_have_some_too() {
        for (shape, least) in [([1, 32, 32], 20), ([16, 1, 1], 20), ([1, 1, 1], 3), ([5, 1, 7], 40)] {
            let made = stress(shape, &vec![[-1.0, 1.0]; shape[0]]);
            assert!(made.len() >= least, "{shape:?}: {}", made.len());
            assert!(made.iter().all(|tensor| tensor.len() == shape.iter().product::<usize>()));
        }
    }
}
