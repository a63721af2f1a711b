//! Polynomials for ReLU: levels and errors.

use jaguar_ckks::circuits::{COMPOSITES, Composite};

use super::rows::Polynomial;

/// All of them, with their errors over (0, 1].
pub fn all() -> Vec<Polynomial> {
    let made = |composite: &Composite| Polynomial {
        name: composite.name.to_owned(),
        levels: composite.levels() as u32,
        error: composite.error,
        curve: (0..=96).rev().map(|eighths| near(*composite, eighths)).collect(),
    };
    COMPOSITES.iter().map(made).collect()
}

/// The place x = 2^(-eighths/8), and the largest error from there down to the next one.
fn near(composite: Composite, eighths: i32) -> [f64; 2] {
    let place = |part: i32| (-f64::from(eighths) / 8.0 - f64::from(part) / 512.0).exp2();
    let error = |part| (composite.value(place(part)) - place(part)).abs();
    [place(0), (0..64).map(error).fold(0.0, f64::max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The curve goes up to the error on record, and no higher. (It begins at 2^-12, so it misses none of the largest.)
    #[test]
    fn errors_are_those_on_record() {
        let all = all();
        let cases: Vec<_> = all.iter().map(|p| (p.name.as_str(), p.levels)).collect();
        assert_eq!(cases, [("7-15", 8), ("7-7-7", 10), ("7-7-13", 11)]);
        for polynomial in all {
            let most = polynomial.curve.iter().map(|[_, error]| *error).fold(0.0, f64::max);
            assert!((most / polynomial.error - 1.0).abs() < 2e-3, "{}: {most}", polynomial.name);
            assert_eq!(polynomial.curve.len(), 97);
        }
    }
}
