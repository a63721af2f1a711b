//! By how much simulated answers are off since a polynomial stands for ReLU, and whether they are answers still.

use jaguar::outputs::worse;
use jaguar_convfhe::Simulated;

use super::predict::order;

/// By which part of their spread logits may be off at most, where it is not said how they would be less.
pub const ROUGH: f64 = 1.0 / 64.0;

/// What inputs came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// How many stay within the bounds, so that they have an answer.
    pub answered: usize,
    /// How many of these have the class of ReLU itself; a single logit has one class.
    pub same: usize,
    /// By which part of their spread logits are off at most; no number where one of them is none.
    pub worst: f64,
}

impl Precision {
    /// Of simulated inputs. A spread counts as `least` where it is smaller.
    pub fn of(simulated: &[Simulated], least: f64) -> Self {
        let found = answers(simulated);
        let worst = off(&found, least).into_iter().fold(0.0, worse);
        Self { answered: found.len(), same: same(&found), worst }
    }
}

/// The least spread of the logits of one input; none of single logits.
pub fn least_spread(simulated: &[Simulated]) -> f64 {
    let several = simulated.iter().filter(|one| one.exact.len() > 1);
    several.map(|one| spread(one.exact.iter().copied())).reduce(f64::min).unwrap_or(0.0)
}

fn spread(values: impl Iterator<Item = f64>) -> f64 {
    let ends = values.fold([f64::INFINITY, f64::NEG_INFINITY], |[l, h], v| [l.min(v), h.max(v)]);
    ends[1] - ends[0]
}

/// Simulated answers beside the exact ones, of inputs that stay within the bounds.
fn answers(simulated: &[Simulated]) -> Vec<(&[f64], &[f64])> {
    simulated.iter().filter_map(|one| Some((one.logits.as_deref()?, &one.exact[..]))).collect()
}

/// How many have the class of ReLU itself.
fn same(answers: &[(&[f64], &[f64])]) -> usize {
    let first = |logits: &[f64]| order(logits).first().copied();
    answers.iter().filter(|(logits, exact)| first(logits) == first(exact)).count()
}

/// By which part of its spread each answer is off. A single logit's spread is that of all inputs.
fn off(answers: &[(&[f64], &[f64])], least: f64) -> Vec<f64> {
    let of_all = spread(answers.iter().filter_map(|(_, exact)| exact.first().copied()));
    let largest =
        answers.iter().flat_map(|(_, exact)| exact.iter()).fold(0.0, |largest: f64, v| largest.max(v.abs()));
    let of_all = if of_all > 0.0 { of_all } else { largest };
    let off = |(logits, exact): &(&[f64], &[f64])| {
        let worst = logits.iter().zip(*exact).map(|(a, b)| (a - b).abs()).fold(0.0, worse);
        let own = if exact.len() > 1 { spread(exact.iter().copied()) } else { of_all };
        // Equal logits are right whatever they are.
        if worst == 0.0 { 0.0 } else { worst / own.max(least) }
    };
    answers.iter().map(off).collect()
}

/// How the simulated network was found to be another function than the network, if it is: by the rule that holds for all models
/// ([`jaguar::compile::Disagreement`]).
pub fn lost(simulated: &[Simulated]) -> Option<String> {
    let (all, answers) = (simulated.len(), answers(simulated));
    if 2 * answers.len() <= all {
        return Some(format!("{} of {all} inputs leave the bounds", all - answers.len()));
    }
    let mut errors = off(&answers, 0.0);
    errors.sort_by(f64::total_cmp);
    let typical = errors[errors.len() / 2];
    let same = same(&answers);
    let several = answers.iter().all(|(_, exact)| exact.len() > 1);
    (typical.is_nan() || typical > jaguar::compile::LOST || several && 2 * same < answers.len()).then(|| {
        let classes = if several {
            format!("same class on {same} of {} inputs, ", answers.len())
        } else {
            String::new()
        };
        format!("{classes}logits are off by {:.0} % of their spread on half of them or more", 100.0 * typical)
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn simulated(logits: Option<&[f64]>, exact: &[f64]) -> Simulated {
        Simulated {
            logits: logits.map(<[f64]>::to_vec),
            exact: exact.to_vec(),
            reach: 0.5,
            layer: "relu 1".into(),
        }
    }

    #[test]
    fn a_model_that_answers_otherwise_is_told() {
        let right = || simulated(Some(&[1.0, 5.01, 2.0]), &[1.0, 5.0, 2.0]);
        let other = || simulated(Some(&[5.0, 1.0, 2.0]), &[1.0, 5.0, 2.0]);
        let outside = || simulated(None, &[1.0, 5.0, 2.0]);
        assert_eq!(lost(&[right(), right(), other()]), None);
        assert_eq!(lost(&[right(), right(), outside()]), None);
        assert!(lost(&[right(), other(), other()]).unwrap().contains("same class on 1 of 3 inputs"));
        assert!(lost(&[right(), outside()]).unwrap().contains("1 of 2 inputs leave the bounds"));
        assert!(lost(&[simulated(Some(&[f64::NAN]), &[1.0]), right(), right()]).is_none(), "one of three");
        assert!(
            lost(&[simulated(Some(&[3.0]), &[1.0]), simulated(Some(&[0.0]), &[2.0])]).is_some(),
            "a single logit"
        );
        let found = Precision::of(&[right(), other(), outside()], 0.0);
        assert_eq!((found.answered, found.same, found.worst), (2, 1, 1.0));
        assert!(
            Precision::of(&[simulated(Some(&[f64::NAN, 1.0]), &[0.0, 1.0]), right()], 0.0).worst.is_nan()
        );
        // An input of which the network says little is measured by what it says of others.
        assert_eq!(
            least_spread(&[right(), simulated(None, &[0.0, 9.0]), simulated(Some(&[1.0]), &[1.0])]),
            4.0
        );
        let little = [simulated(Some(&[0.0, 0.25]), &[0.0, 0.125])];
        assert_eq!([0.0, 0.1, 4.0].map(|least| Precision::of(&little, least).worst), [1.0, 1.0, 1.0 / 32.0]);
        assert_eq!(least_spread(&[]), 0.0);
    }
}
