//! Table 4 of PrivCirNet's paper: products, rotations and ciphertexts of one matrix product and one convolution, under what it
//! compares with and under CirEncode. N = 8192, b = 8.
//!
//! The paper gives orders of growth and one figure each. The functions here give those figures; they are what the orders say, with
//! what the figures show besides: a map of a convolution takes a power of two of places, padding included, and Cheetah's
//! convolution a ring of half the dimension. Figures that no such function gives are shown as they are printed.

use jaguar_graph::network::{BlockKind, Blocks, Linear, Shape};
use jaguar_hyena::{BlockPacking, Counts};

use crate::report::Table;

const N: usize = 8192;
const B: usize = 8;

/// `[d2 × d3]` weights times d1 columns.
#[derive(Clone, Copy)]
pub struct Product {
    pub d1: usize,
    pub d2: usize,
    pub d3: usize,
}

/// H × W places, C channels in, K out, a kernel of R × R, of stride 1.
#[derive(Clone, Copy)]
pub struct Convolution {
    pub side: usize,
    pub c: usize,
    pub k: usize,
    pub r: usize,
}

/// The paper's two examples.
pub const PRODUCT: Product = Product { d1: 512, d2: 768, d3: 3072 };
pub const CONVOLUTION: Convolution = Convolution { side: 16, c: 128, k: 128, r: 3 };

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A function gives it.
    Counted(usize),
    /// The paper says it, and nothing more is known.
    Printed(usize),
    /// Not legible in the text that was at hand.
    Unknown,
}

use Figure::{Counted, Printed, Unknown};

/// Products, rotations, ciphertexts.
pub type Row = [Figure; 3];

impl Product {
    /// Products of a ciphertext and a plaintext without blocks: every word of every one is used.
    fn products(self) -> usize {
        self.d1 * self.d2 * self.d3 / N
    }

    /// Ciphertexts in and out, where all slots are used.
    fn full(self) -> usize {
        self.d1 * (self.d2 + self.d3) / N
    }
}

impl Convolution {
    /// Places of a map with its padding.
    fn padded(self) -> usize {
        (self.side + self.r - 1).pow(2)
    }

    /// The same in slots.
    fn slots(self) -> usize {
        self.padded().next_power_of_two()
    }

    fn taps(self) -> usize {
        self.r * self.r
    }

    fn full(self) -> usize {
        self.slots() * (self.c + self.k) / N
    }

    /// Ciphertexts in of Cheetah, in a ring of half the dimension.
    fn cheetah_inputs(self) -> usize {
        self.c.div_ceil(N / 2 / self.padded())
    }
}

/// One way to compute both.
pub struct Framework {
    pub name: &'static str,
    pub product: Row,
    pub convolution: Row,
}

fn all_counted(counts: Counts) -> Row {
    [counts.products, counts.rotations, counts.ciphertexts].map(Counted)
}

/// What this program's own packing takes with blocks of `b`: the fewest rotations of the fewest products.
fn packed(spec: Linear, in_shape: Shape, b: usize) -> Counts {
    let blocks = (b > 1).then_some(Blocks { size: b, kind: BlockKind::Circulant });
    let packings = BlockPacking::all(N, &Linear { blocks, ..spec }, in_shape);
    let counts = packings.into_iter().map(|packing| packing.counts());
    counts.min_by_key(|c| (c.ciphertexts, c.products, c.rotations)).expect("it fits")
}

fn packed_product(Product { d1, d2, d3 }: Product, b: usize) -> Counts {
    // Columns are the places of a map.
    packed(Linear::same(d3, 1, 12), [d2, 1, d1], b)
}

fn packed_convolution(Convolution { side, c, k, r }: Convolution, b: usize) -> Counts {
    packed(Linear::same(k, r, 12), [c, side, side], b)
}

/// The paper's rows, in its order.
pub fn frameworks(product: Product, conv: Convolution) -> Vec<Framework> {
    let Product { d1, d2, d3 } = product;
    let Convolution { c, k, .. } = conv;
    let products = Counted(product.products());
    // Slots that both halves of a ring fill: √(2N) is the length of a baby step.
    let packing = |outputs: usize| outputs / (2 * (2 * N).isqrt());
    // Iron's blocks are d1 × s × s words, with as many rows in as out.
    let side = (N / d1).isqrt();
    let cheetah = conv.cheetah_inputs() * k;
    vec![
        Framework {
            name: "CrypTFlow2",
            product: [products, Counted(product.full() + d3), Counted(product.full())],
            convolution: [
                Counted(conv.slots() * c * k * conv.taps() / N),
                Counted(conv.slots() * (c * conv.taps() + k) / N + k),
                Counted(conv.full()),
            ],
        },
        Framework {
            name: "Cheetah",
            product: [products, Counted(0), Counted(d1 * d2 / N + d1.div_ceil(N) * d3)],
            convolution: [Counted(cheetah), Counted(0), Unknown],
        },
        Framework {
            name: "Iron",
            product: [products, Counted(0), Counted(d2.div_ceil(side) + d3.div_ceil(side))],
            convolution: [Counted(cheetah * conv.taps()), Counted(0), Printed(257)],
        },
        Framework {
            name: "Bumblebee",
            product: [products, Counted(packing(d1 * d3)), Counted(product.full())],
            convolution: [Counted(cheetah), Counted(packing(conv.slots() * k)), Counted(conv.full())],
        },
        Framework {
            name: "Neujeans with baby and giant steps",
            product: [products, Printed(588), Counted(product.full())],
            convolution: all_counted(packed_convolution(conv, 1)),
        },
        Framework {
            name: "Bolt with baby and giant steps",
            product: all_counted(packed_product(product, 1)),
            convolution: [Printed(1700), Printed(106), Printed(100)],
        },
        Framework {
            name: "CirEncode, b = 8",
            product: all_counted(packed_product(product, B)),
            convolution: all_counted(packed_convolution(conv, B)),
        },
    ]
}

/// The table as it is shown.
pub fn table() -> Table {
    let text = |figure: Figure| match figure {
        Counted(count) => count.to_string(),
        Printed(count) => format!("{count} *"),
        Unknown => "-".into(),
    };
    let row = |framework: Framework| {
        let figures = [framework.product, framework.convolution].concat();
        std::iter::once(framework.name.to_owned()).chain(figures.into_iter().map(text)).collect()
    };
    Table {
        name: "table-4",
        title: "the paper's Table 4: matrix product (512, 768, 3072), and convolution 16×16, 128 to 128, 3×3; N = 8192".into(),
        header: vec![
            "framework",
            "products",
            "rotations",
            "ciphertexts",
            "conv. products",
            "conv. rotations",
            "conv. ciphertexts",
        ],
        numbers_from: 1,
        rows: frameworks(PRODUCT, CONVOLUTION).into_iter().map(row).collect(),
        notes: "*: as it is printed; the others are counted, and are what is printed.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, with the figures of the product and of the convolution.
    type PrintedRow = (&'static str, [usize; 3], [Option<usize>; 3]);

    /// Every figure that is counted is the paper's.
    #[test]
    fn figures_are_the_papers() {
        let printed: [PrintedRow; 7] = [
            ("CrypTFlow2", [147_456, 3312, 240], [Some(9216), Some(208), Some(16)]),
            ("Cheetah", [147_456, 0, 3120], [Some(1408), Some(0), None]),
            ("Iron", [147_456, 0, 960], [Some(12_672), Some(0), Some(257)]),
            ("Bumblebee", [147_456, 6144, 240], [Some(1408), Some(256), Some(16)]),
            ("Neujeans with baby and giant steps", [147_456, 588, 240], [Some(1024), Some(48), Some(16)]),
            ("Bolt with baby and giant steps", [147_456, 528, 240], [Some(1700), Some(106), Some(100)]),
            ("CirEncode, b = 8", [18_432, 48, 240], [Some(128), Some(8), Some(16)]),
        ];
        let value = |figure: Figure| match figure {
            Counted(count) | Printed(count) => Some(count),
            Unknown => None,
        };
        let found = frameworks(PRODUCT, CONVOLUTION);
        assert_eq!(found.len(), printed.len());
        for (framework, (name, product, convolution)) in found.iter().zip(printed) {
            assert_eq!(framework.name, name);
            assert_eq!(framework.product.map(value), product.map(Some), "{name}");
            assert_eq!(framework.convolution.map(value), convolution, "{name}");
        }
        // Blocks take b times fewer products than the same method without them.
        let [bolt, ours] = [5, 6].map(|row| value(found[row].product[0]).unwrap());
        assert_eq!(bolt, B * ours);
    }

    /// Functions, not constants: other shapes have other counts.
    #[test]
    fn counts_follow_the_shape() {
        let half = Product { d3: PRODUCT.d3 / 2, ..PRODUCT };
        let wider = Convolution { k: 2 * CONVOLUTION.k, ..CONVOLUTION };
        for (framework, other) in frameworks(PRODUCT, CONVOLUTION).iter().zip(frameworks(half, wider)) {
            let [Counted(product), Counted(smaller)] = [framework.product[0], other.product[0]] else {
                panic!("{}: products are counted", framework.name)
            };
            assert_eq!(product, 2 * smaller, "{}", framework.name);
            if let [Counted(convolution), Counted(larger)] = [framework.convolution[0], other.convolution[0]]
            {
                assert_eq!(2 * convolution, larger, "{}", framework.name);
            }
        }
    }
}
