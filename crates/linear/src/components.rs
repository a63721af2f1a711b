//! A client that only looks, and uses no coin: independent component analysis of the logits. Tests only.
//!
//! The client asks about one image again and again. Noise in hidden values is independent from unit to unit and not Gaussian, and the
//! logits are sums of it by the second layer's weights. So the directions in which the logits are least Gaussian are the columns of
//! those weights, one for each active unit (FastICA by kurtosis, symmetric: Hyvärinen and Oja, "Independent component analysis:
//! algorithms and applications", Neural Networks 13, 2000). Noise in what is opened has the logits themselves for its components.

use crate::known_coins::{Asked, Attack, Form, Simulation, active, cosine};

/// Steps of the fixed point. It moves no more after some ten where there is something to find.
const STEPS: usize = 20;

/// Queries whose sums are taken in single precision.
const BLOCK: usize = 256;

/// A square matrix, row by row.
type Square = Vec<Vec<f64>>;

/// What comes of asking about one image, with 64 hidden units and K logits.
pub struct Components {
    /// How well each active unit's column is matched by the component that is most like it: the cosine between them, without its sign.
    pub likeness: Vec<f64>,
}

impl Components {
    /// So many queries, with so many guard bits and noise as `form` says. The attacker takes as many components as there are active
    /// units, at most K. (With noise in hidden values the covariances' eigenvalues tell it how many there are.)
    pub fn run<const K: usize>(form: Form, guard_bits: u32, queries: usize) -> Self {
        let (mut toy, values) = Simulation::<K>::toy(form, guard_bits, 0);
        let (second, mut asked) = (Attack::<K>::new(values.len()), Asked::default());
        let opened: Vec<[f64; K]> = (0..queries).map(|_| toy.ask(&values, &second, &mut asked)).collect();
        let truth: Vec<[f64; K]> = active(&values).into_iter().map(|unit| second.weights_of(unit)).collect();
        let found = find(&opened, truth.len().min(K));
        let best = |column: &[f64; K]| found.iter().map(|f| cosine(f, column).abs()).fold(0.0, f64::max);
        Self { likeness: truth.iter().map(best).collect() }
    }

    /// The median.
    pub fn median(&self) -> f64 {
        let mut likeness = self.likeness.clone();
        likeness.sort_by(f64::total_cmp);
        likeness[likeness.len() / 2]
    }

    /// How many columns are found: those that are matched by more than 0.9.
    pub fn found(&self) -> usize {
        self.likeness.iter().filter(|&&cosine| cosine > 0.9).count()
    }
}

/// So many independent components of what was opened, as columns over the logits.
fn find<const K: usize>(opened: &[[f64; K]], count: usize) -> Vec<Vec<f64>> {
    let queries = opened.len() as f64;
    let mean: [f64; K] = std::array::from_fn(|k| opened.iter().map(|o| o[k]).sum::<f64>() / queries);
    let seen: Vec<[f32; K]> =
        opened.iter().map(|o| std::array::from_fn(|k| (o[k] - mean[k]) as f32)).collect();
    let (values, vectors) = eigen(products(&seen, |row| *row));
    let mut order: Vec<usize> = (0..K).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    order.truncate(count);
    // White: uncorrelated, of variance 1, in the directions of the largest variances.
    let whiten: Vec<Vec<f32>> =
        (0..K).map(|k| order.iter().map(|&i| (vectors[k][i] / values[i].sqrt()) as f32).collect()).collect();
    let white: Vec<Vec<f32>> = seen.iter().map(|row| times(row, &whiten)).collect();
    let turn = fixed_point(&white, count);
    let column = |j: usize| {
        let entry =
            |k: usize| (0..count).map(|i| vectors[k][order[i]] * values[order[i]].sqrt() * turn[i][j]).sum();
        (0..K).map(entry).collect()
    };
    (0..count).map(column).collect()
}

/// `E[x · (xᵀw)³] − 3w` for all columns w of a matrix at once, made orthogonal again; until it stands still.
fn fixed_point(white: &[Vec<f32>], count: usize) -> Square {
    // Any rotation will do to begin with: that of a symmetric matrix without any symmetry besides.
    let entry = |i: usize, j: usize| ((i * j + i + j) as f64).sin();
    let (_, mut turn) = eigen((0..count).map(|i| (0..count).map(|j| entry(i, j)).collect()).collect());
    for _ in 0..STEPS {
        let single: Vec<Vec<f32>> = turn.iter().map(|row| row.iter().map(|&t| t as f32).collect()).collect();
        let cubes = |row: &Vec<f32>| times(row, &single).into_iter().map(|y| y * y * y).collect::<Vec<f32>>();
        let mut moved = products(white, cubes);
        for (moved, turn) in moved.iter_mut().zip(&turn) {
            moved.iter_mut().zip(turn).for_each(|(moved, turn)| *moved -= 3.0 * turn);
        }
        turn = orthogonal(&moved);
    }
    turn
}

/// The mean of `x · f(x)ᵀ` over all rows x.
fn products<Row: AsRef<[f32]>, Other: AsRef<[f32]>>(rows: &[Row], f: impl Fn(&Row) -> Other) -> Square {
    let mut sums: Square = Vec::new();
    for block in rows.chunks(BLOCK) {
        let mut of_block: Vec<Vec<f32>> = Vec::new();
        for row in block {
            let other = f(row);
            let other = other.as_ref();
            of_block.resize(row.as_ref().len(), vec![0.0; other.len()]);
            for (sums, &x) in of_block.iter_mut().zip(row.as_ref()) {
                sums.iter_mut().zip(other).for_each(|(sum, &y)| *sum += x * y);
            }
        }
        sums.resize(of_block.len(), vec![0.0; of_block[0].len()]);
        for (sums, of_block) in sums.iter_mut().zip(of_block) {
            sums.iter_mut().zip(of_block).for_each(|(sum, of_block)| *sum += f64::from(of_block));
        }
    }
    sums.iter_mut().flatten().for_each(|sum| *sum /= rows.len() as f64);
    sums
}

/// A row times a matrix.
fn times(row: &[f32], matrix: &[Vec<f32>]) -> Vec<f32> {
    let mut product = vec![0.0; matrix[0].len()];
    for (&x, row) in row.iter().zip(matrix) {
        product.iter_mut().zip(row).for_each(|(sum, &y)| *sum += x * y);
    }
    product
}

/// The orthogonal matrix that is nearest to M: `(M·Mᵀ)^(-1/2) · M`.
fn orthogonal(matrix: &Square) -> Square {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let size = matrix.len();
    let (values, vectors) =
        eigen(matrix.iter().map(|a| matrix.iter().map(|b| dot(a, b)).collect()).collect());
    // `vectors · values^(-1/2) · vectorsᵀ`.
    let root =
        |a: usize, b: usize| (0..size).map(|i| vectors[a][i] * vectors[b][i] / values[i].sqrt()).sum::<f64>();
    let roots: Square = (0..size).map(|a| (0..size).map(|b| root(a, b)).collect()).collect();
    let entry = |a: usize, j: usize| (0..size).map(|b| roots[a][b] * matrix[b][j]).sum::<f64>();
    (0..size).map(|a| (0..size).map(|j| entry(a, j)).collect()).collect()
}

/// A symmetric matrix's eigenvalues, and its eigenvectors as columns (Jacobi's rotations, round by round).
fn eigen(mut matrix: Square) -> (Vec<f64>, Square) {
    let size = matrix.len();
    let one = |i: usize| (0..size).map(move |j| f64::from(u8::from(i == j)));
    let mut vectors: Square = (0..size).map(|i| one(i).collect()).collect();
    for _ in 0..12 {
        for (a, b) in (0..size).flat_map(|a| (a + 1..size).map(move |b| (a, b))) {
            if matrix[a][b] == 0.0 {
                continue;
            }
            let half = (matrix[b][b] - matrix[a][a]) / (2.0 * matrix[a][b]);
            let tangent = half.signum() / (half.abs() + (half * half + 1.0).sqrt());
            let cosine = 1.0 / (tangent * tangent + 1.0).sqrt();
            let rotate = |x: &mut f64, y: &mut f64| {
                (*x, *y) = (cosine * (*x - tangent * *y), cosine * (*y + tangent * *x))
            };
            for row in matrix.iter_mut().chain(&mut vectors) {
                let (left, right) = row.split_at_mut(b);
                rotate(&mut left[a], &mut right[0]);
            }
            let (upper, lower) = matrix.split_at_mut(b);
            upper[a].iter_mut().zip(&mut lower[0]).for_each(|(x, y)| rotate(x, y));
        }
    }
    ((0..size).map(|i| matrix[i][i]).collect(), vectors)
}

#[cfg(test)]
mod tests {
    use jaguar_graph::network::DEFAULT_GUARD_BITS;

    use super::*;

    #[test]
    fn eigenvectors_belong_to_their_values() {
        let entry = |i: usize, j: usize| ((i + j) as f64).cos() + f64::from(u8::from(i == j)) * i as f64;
        let matrix: Square = (0..9).map(|i| (0..9).map(|j| entry(i, j)).collect()).collect();
        let (values, vectors) = eigen(matrix.clone());
        for (j, value) in values.iter().enumerate() {
            for i in 0..9 {
                let product: f64 = (0..9).map(|k| matrix[i][k] * vectors[k][j]).sum();
                assert!((product - value * vectors[i][j]).abs() < 1e-9, "{i} {j}");
            }
        }
    }

    /// A hundred logits, some thirty active units, no coin: with noise in hidden values their columns come out, and with noise in what is
    /// opened none does.
    #[test]
    fn components_tell_of_hidden_noise_and_of_opened_noise_nothing() {
        let of = |form| {
            let components = Components::run::<100>(form, DEFAULT_GUARD_BITS, 100_000);
            println!(
                "{form:?}: {} of {} columns, median {:.2}",
                components.found(),
                components.likeness.len(),
                components.median()
            );
            components
        };
        let hidden = of(Form::Hidden);
        assert!(
            10 * hidden.found() >= 9 * hidden.likeness.len() && hidden.median() > 0.95,
            "{:.2?}",
            hidden.likeness
        );
        // By chance 0.1 for one of the components, and below 0.6 for the best of all but for an event of probability 10^-6.
        let opened = of(Form::Opened);
        assert!(opened.likeness.iter().all(|&cosine| cosine < 0.6), "{:.2?}", opened.likeness);
    }
}
