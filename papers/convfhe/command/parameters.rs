//! Which parameter set a network gets where nobody names one: the one with smaller keys and less time where accuracy bears it.
//!
//! The bounds of all layers are the same for both, so one calibration serves both; only ReLU's polynomial differs. The cheaper set is taken
//! if all of this holds, and what fails first is told:
//!
//! - there are enough samples that differ, and made-up inputs beside them: a few photographs say nothing of other pictures;
//! - samples and test inputs keep the class of ReLU itself, all of them, and every logit is off by at most [`ROUGH`] of the spread;
//! - made-up inputs, which are unlike any photograph, are off by no more. They are of no class, and of some (plain grey) the network says next
//!   to nothing: a spread that is smaller than that of every sample counts as the smallest of those.

use anyhow::Result;
use jaguar_convfhe::network::ENOUGH_SAMPLES;
use jaguar_convfhe::{COARSE_SET, Calibration, DEFAULT_SET, Figures};

use super::precision::{Precision, ROUGH};
use jaguar::reports::terminal::table::bytes;

/// What the default set makes of inputs, and the cheaper one.
pub type Both = [Precision; 2];

/// What was found, in a line for people, and whether the cheaper set is taken. `made_up` says what both sets make of made-up inputs; it
/// takes as long as a calibration, and is asked last.
///
/// # Errors
/// Of `made_up`.
pub fn choose(
    found: &Calibration,
    given: Both,
    [fine, cheap]: [&Figures; 2],
    made_up: impl FnOnce() -> Result<Both>,
) -> Result<(bool, String)> {
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    let off = |[fine, cheap]: Both| {
        format!("{} by {COARSE_SET} and {} by {DEFAULT_SET}", percent(cheap.worst), percent(fine.worst))
    };
    let mut told =
        format!("logits of {} inputs are off by at most {} of their spread", given[0].answered, off(given));
    let mut refused =
        few(found).or_else(|| classes(given)).or_else(|| rough("samples or test inputs", given));
    if refused.is_none() {
        let made_up = made_up()?;
        told += &format!(", of {} made-up ones by {}", made_up[0].answered, off(made_up));
        refused = rough("made-up inputs", made_up);
    }
    let (set, why) = match &refused {
        None => (COARSE_SET, format!("accuracy bears it, up to {} is accepted", percent(ROUGH))),
        Some(why) => (DEFAULT_SET, why.clone()),
    };
    let sizes = |figures: &Figures| {
        format!("{} of keys and {} of memory", bytes(figures.keys), bytes(figures.memory))
    };
    let line = format!(
        "took {set}, for {why}: {told}. {COARSE_SET} takes {}, {DEFAULT_SET} {}, and more time; --parameters names another",
        sizes(cheap),
        sizes(fine)
    );
    Ok((refused.is_none(), line))
}

/// Whether there is too little to tell by.
fn few(found: &Calibration) -> Option<String> {
    if found.few() {
        let distinct = found.distinct;
        return Some(format!(
            "{distinct} different samples are few to tell by ({ENOUGH_SAMPLES} are enough)"
        ));
    }
    (found.stress == 0)
        .then(|| "without made-up inputs nothing tells what becomes of pictures unlike the samples".into())
}

/// Whether a class is another by the cheaper set, or an answer is missing.
fn classes([fine, cheap]: Both) -> Option<String> {
    if cheap.answered < fine.answered {
        return Some(format!("only {} of {} inputs would have an answer", cheap.answered, fine.answered));
    }
    let lost = cheap.answered - cheap.same;
    (lost > 0).then(|| format!("{lost} of {} inputs would have another class", cheap.answered))
}

/// Whether logits are off by too much by the cheaper set. (What is no number is.)
fn rough(what: &str, [fine, cheap]: Both) -> Option<String> {
    let within = cheap.answered == fine.answered && cheap.answered > 0 && cheap.worst <= ROUGH;
    (!within).then(|| format!("the logits of {what} would be off by more than {:.2} %", 100.0 * ROUGH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(distinct: usize, stress: usize) -> Calibration {
        Calibration {
            samples: distinct,
            stress,
            distinct,
            left_out: 0.5,
            stressed: 0,
            stretch: 1.0,
            warnings: vec![],
        }
    }

    fn precision(answered: usize, same: usize, worst: f64) -> Precision {
        Precision { answered, same, worst }
    }

    /// The cheaper set is taken, or why not.
    fn chosen(found: &Calibration, cheap: Precision, made_up: Precision) -> Result<(), String> {
        let fine = |of: Precision| precision(of.answered.max(12), of.answered, 0.001);
        let sizes = |keys| Figures { keys, input: 1, answer: 1, memory: 2 * keys };
        let both = [sizes(1_181_291_849), sizes(843_314_505)];
        let (taken, line) =
            choose(found, [fine(cheap), cheap], both.each_ref(), || Ok([fine(made_up), made_up])).unwrap();
        for part in [
            "0.10 % by n16",
            "804.25 MiB of keys",
            "1126.57 MiB of keys",
            "1608.49 MiB of memory",
            "2253.14 MiB of memory",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        if taken { Ok(()) } else { Err(line) }
    }

    #[test]
    fn the_cheaper_set_is_taken_where_accuracy_bears_it_and_refused_with_the_reason() {
        let (enough, good) = (found(10, 95), precision(12, 12, ROUGH));
        assert_eq!(chosen(&enough, good, good), Ok(()));
        let refused = |found: &Calibration, cheap, made_up, why: &str| {
            let line = chosen(found, cheap, made_up).expect_err(why);
            assert!(line.contains(why) && line.starts_with("took n16, for "), "{why}: {line}");
        };
        refused(&found(9, 95), good, good, "9 different samples are few");
        refused(&found(10, 0), good, good, "unlike the samples");
        refused(&enough, precision(12, 11, ROUGH), good, "1 of 12 inputs would have another class");
        refused(&enough, precision(11, 11, ROUGH), good, "only 11 of 12 inputs");
        for worst in [ROUGH + 1e-9, f64::NAN, f64::INFINITY] {
            refused(
                &enough,
                precision(12, 12, worst),
                good,
                "of samples or test inputs would be off by more than 1.56 %",
            );
            refused(
                &enough,
                good,
                precision(12, 0, worst),
                "of made-up inputs would be off by more than 1.56 %",
            );
        }
        refused(&enough, good, precision(11, 11, 0.001), "of made-up inputs");
        refused(&enough, precision(0, 0, 0.0), good, "only 0 of 12 inputs");
        // Made-up inputs are of no class.
        assert_eq!(chosen(&enough, good, precision(12, 3, ROUGH)), Ok(()));
    }
}
