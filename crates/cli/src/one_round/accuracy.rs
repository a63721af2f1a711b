//! `jaguar accuracy` of a protocol of one round: what ciphertexts would answer, computed without them.

use anyhow::{Context, Result, ensure};
use jaguar::compile::samples;
use jaguar::compile::samples::labelled::{Found, Labelled};
use jaguar::outputs::worse;
use jaguar::reports::accuracy::{Ranking, Score};
use jaguar::reports::terminal::{in_one_line, say};
use rayon::prelude::*;
use serde::Serialize;

use super::{Answered, Unencrypted};
use crate::progress::Steps;
use crate::scores::{AT_ONCE, Measured, table};

#[derive(Serialize)]
struct Answer {
    model: String,
    labels_by: &'static str,
    classes: usize,
    /// How many pictures could not be read.
    failed: usize,
    /// How many leave what calibration allows: an encrypted answer would mean nothing.
    outside: usize,
    /// On those within.
    float: Score,
    /// On those within; `same_class` is beside the float network.
    encrypted: Score,
    /// By which part of the float logits' spread an answer is off at most, and on half of the pictures.
    largest_error: f64,
    median_error: f64,
}

/// Runs the pictures, and shows what comes out.
///
/// # Errors
/// When none can be used, or one could not.
pub fn run(model: &dyn Unencrypted, found: Found, tops: &[usize], json: bool) -> Result<()> {
    let Found { pictures, by, .. } = found;
    let mut steps = Steps::default();
    let mut answered = Vec::new();
    let mut failed = 0;
    let at_once = AT_ONCE * rayon::current_num_threads();
    for (i, some) in pictures.chunks(at_once).enumerate() {
        let first = i * at_once + 1;
        steps.begin(format!("pictures {first} to {} of {}", first + some.len() - 1, pictures.len()));
        let read: Vec<Result<Vec<f32>>> = some.par_iter().map(|picture| tensor(model, picture)).collect();
        let mut tensors = Vec::new();
        let mut classes = Vec::new();
        for (picture, tensor) in some.iter().zip(read) {
            match tensor {
                Ok(tensor) => {
                    tensors.push(tensor);
                    classes.push(picture.class);
                }
                Err(e) => {
                    failed += 1;
                    eprintln!("error: {}", in_one_line(e.as_ref()));
                }
            }
        }
        answered.extend(model.answers(&tensors)?.into_iter().zip(classes));
        steps.finish();
    }
    ensure!(!answered.is_empty(), "none of the {} pictures could be used", pictures.len());
    let answer = Answer { failed, labels_by: by, ..scored(model, &answered, tops) };
    if json {
        say!("{}", serde_json::to_string(&answer)?);
    } else {
        show(&answer, tops);
    }
    ensure!(failed == 0, "{failed} of {} pictures could not be used", pictures.len());
    Ok(())
}

fn tensor(model: &dyn Unencrypted, picture: &Labelled) -> Result<Vec<f32>> {
    let source = samples::open(&picture.path)?;
    model.tensor(&source).with_context(|| picture.path.display().to_string())
}

/// The scores of answers with their right classes. Those that leave what calibration allows are counted only.
fn scored(model: &dyn Unencrypted, answered: &[(Answered, usize)], tops: &[usize]) -> Answer {
    let within = || {
        answered.iter().filter_map(|(answer, class)| {
            answer.encrypted.as_ref().map(|encrypted| (encrypted, &answer.float, *class))
        })
    };
    let float: Vec<Ranking> = within().map(|(_, float, class)| Ranking::new(float, class)).collect();
    let encrypted: Vec<Ranking> =
        within().map(|(encrypted, _, class)| Ranking::new(encrypted, class)).collect();
    let mut errors: Vec<f64> = within().map(|(encrypted, float, _)| off(encrypted, float)).collect();
    errors.sort_by(f64::total_cmp);
    Answer {
        model: model.name(),
        labels_by: "",
        classes: model.classes(),
        failed: 0,
        outside: answered.len() - encrypted.len(),
        float: Score::new(&float, &float, tops),
        encrypted: Score::new(&encrypted, &float, tops),
        largest_error: errors.last().copied().unwrap_or(0.0),
        median_error: errors.get(errors.len() / 2).copied().unwrap_or(0.0),
    }
}

/// By which part of its spread a float answer is missed.
fn off(encrypted: &[f64], float: &[f64]) -> f64 {
    let [low, high] =
        float.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[l, h], v| [l.min(*v), h.max(*v)]);
    let worst = encrypted.iter().zip(float).map(|(a, b)| (a - b).abs()).fold(0.0, worse);
    // Equal logits are right whatever they are.
    if worst == 0.0 { 0.0 } else { worst / (high - low) }
}

fn show(answer: &Answer, tops: &[usize]) {
    let Answer {
        model,
        labels_by,
        classes,
        outside,
        float,
        encrypted,
        largest_error,
        median_error,
        failed: _,
    } = answer;
    say!("model {model}, {classes} classes, labels by {labels_by}");
    let rows: [Measured<'_>; 2] = [("float", float), ("in one round", encrypted)];
    say!("{}", table(&rows, tops, "class of the float network"));
    say!("(in brackets: where it lies with 95 % confidence, were the pictures drawn by chance)");
    say!(
        "computed without encryption, whose noise is not in it; logits are off by {:.2} % of their spread on half of the pictures, \
         by {:.2} % at most",
        100.0 * median_error,
        100.0 * largest_error
    );
    if *outside > 0 {
        eprintln!(
            "warning: {outside} pictures more leave what calibration allows, and are not in the table: their answers would mean \
             nothing. Calibrate with inputs like them"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Three;

    impl Unencrypted for Three {
        fn name(&self) -> String {
            "three".into()
        }

        fn labels(&self) -> &[String] {
            &[]
        }

        fn classes(&self) -> usize {
            3
        }

        fn tensor(&self, _: &samples::Source) -> Result<Vec<f32>> {
            Ok(Vec::new())
        }

        fn answers(&self, _: &[Vec<f32>]) -> Result<Vec<Answered>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn answers_outside_the_bounds_are_counted_apart() {
        let answer = |encrypted: Option<[f64; 3]>, float: [f64; 3], class: usize| {
            (Answered { encrypted: encrypted.map(Vec::from), float: float.to_vec() }, class)
        };
        let answered = [
            answer(Some([0.0, 1.0, 3.9]), [0.0, 1.0, 4.0], 2),
            answer(Some([2.0, 1.0, 0.0]), [1.0, 2.0, 0.0], 1),
            answer(None, [5.0, 1.0, 0.0], 0),
            answer(Some([1.0, 0.0, 0.5]), [1.0, 0.0, 0.5], 1),
        ];
        let found = scored(&Three, &answered, &[1, 2]);
        assert_eq!((found.outside, found.float.pictures, found.encrypted.pictures), (1, 3, 3));
        let third = 1.0 / 3.0;
        assert_eq!([found.float.top[&1], found.float.top[&2]], [2.0 * third, 2.0 * third]);
        assert_eq!([found.encrypted.top[&1], found.encrypted.top[&2]], [third, 2.0 * third]);
        assert_eq!(found.encrypted.same_class, 2.0 * third);
        assert!((found.largest_error - 0.5).abs() < 1e-12 && (found.median_error - 0.025).abs() < 1e-12);
        assert!(off(&[f64::NAN, 0.0], &[1.0, 0.0]).is_nan(), "no number is never right");
    }
}
