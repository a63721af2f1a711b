//! `jaguar plan --security`: on what a compiled model's sessions rest, what each party learns, and what is known to be weak.
//!
//! Estimates are read from the records in `params/`, which are compiled in. What is in use and has no record is named as such.

use std::collections::BTreeMap;
use std::fmt;

use jaguar::bundle::Bundle;
use jaguar::network::Op;
use jaguar::nonlinear::cost::{LpnSize, Width};
use jaguar::plan::Plan;
use serde::{Deserialize, Serialize};

use crate::hide;

const RLWE_RECORD: &str = include_str!("../../../params/rlwe.json");
const LPN_RECORD: &str = include_str!("../../../params/lpn.json");

/// What a person reads (`Display`), and a program ([`Serialize`]).
#[derive(Serialize)]
pub struct Security {
    network: String,
    model: String,
    /// Against whom a session is secure: always *semi-honest*.
    adversary: &'static str,
    assumptions: Vec<Assumption>,
    bounds: Vec<Bound>,
    learns: Vec<Learns>,
    weaknesses: Vec<Weakness>,
}

/// One assumption, with an instance that is in use.
#[derive(Serialize)]
struct Assumption {
    assumption: &'static str,
    instance: String,
    /// Which layers or steps rest on it.
    used_by: String,
    /// The estimate on record for it, if there is one.
    estimate: Option<Estimate>,
}

/// What an instance is estimated to be worth.
#[derive(Serialize)]
struct Estimate {
    /// log2 of operations of the best attack.
    bits: f64,
    attack: String,
    /// The file that has it, and what computes it again; none for figures of the literature.
    record: Option<&'static str>,
    command: Option<String>,
    /// Other cost models or attacks, by name.
    others: BTreeMap<String, f64>,
}

/// What holds for anybody, however fast, within some number of queries or messages.
#[derive(Serialize)]
struct Bound {
    what: &'static str,
    bound: String,
    source: &'static str,
}

#[derive(Serialize)]
struct Learns {
    who: &'static str,
    learns: String,
}

/// A row of SECURITY.md that applies here.
#[derive(Serialize)]
struct Weakness {
    number: u32,
    here: String,
}

// ---- The records. ----

#[derive(Deserialize)]
struct RlweRecord {
    sets: Vec<RlweSet>,
}

#[derive(Deserialize)]
struct RlweSet {
    n: usize,
    log2_q: u32,
    secret: String,
    bits: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct LpnRecord {
    sets: Vec<LpnSet>,
}

#[derive(Deserialize)]
struct LpnSet {
    name: String,
    safe: bool,
    k: usize,
    t: usize,
    b: usize,
    m: u32,
    /// Iterations that have their errors in the same rows.
    #[serde(default = "one")]
    life: u64,
    /// log2 of how many lives the figures are to cover.
    iterations: f64,
    /// By attack: on the full matrix, and on a random, a greedy and the least sub-matrix.
    bits: BTreeMap<String, Vec<f64>>,
}

fn one() -> u64 {
    1
}

/// The record of ternary RLWE with this N and a q as large or larger; a smaller q is only harder.
fn rlwe(ring_dim: usize, modulus_bits: u32) -> Option<Estimate> {
    let record: RlweRecord = serde_json::from_str(RLWE_RECORD).expect("params/rlwe.json is a record");
    let fits = |set: &&RlweSet| set.n == ring_dim && set.log2_q >= modulus_bits && set.secret == "ternary";
    let mut set = record.sets.iter().filter(fits).min_by_key(|set| set.log2_q)?.bits.clone();
    let (bits, attack, command) = match set.remove("matzov") {
        Some(bits) => (bits, "the cheapest of primal uSVP, BDD and dual hybrid, cost model MATZOV", ""),
        None => (set.remove("formula")?, "BDD by formula, cost model MATZOV", " --formula"),
    };
    Some(Estimate {
        bits,
        attack: attack.into(),
        record: Some("params/rlwe.json"),
        command: Some(format!("python3 params/rlwe.py{command} --n {ring_dim}")),
        others: set,
    })
}

/// The record of this LPN instance: its lowest line, bounds that are no attacks included, less what all iterations of a
/// session together may lose.
fn lpn(size: LpnSize) -> Option<(String, Estimate)> {
    let record: LpnRecord = serde_json::from_str(LPN_RECORD).expect("params/lpn.json is a record");
    let is = |set: &&LpnSet| {
        (set.k, set.t, set.b, set.m, set.life)
            == (size.secret, size.bins, 1 << size.log_bin, size.columns(), size.life)
            && set.safe
    };
    let set = record.sets.iter().find(is)?;
    let least = |lines: &Vec<f64>| lines.iter().copied().fold(f64::INFINITY, f64::min) - set.iterations;
    let others: BTreeMap<String, f64> =
        set.bits.iter().map(|(name, lines)| (name.clone(), least(lines))).collect();
    let (attack, bits) = others.iter().min_by(|a, b| a.1.total_cmp(b.1)).map(|(n, b)| (n.clone(), *b))?;
    let estimate = Estimate {
        bits,
        attack: format!(
            "{attack}, on the least sub-matrix (a bound), all of 2^{} iterations together",
            set.iterations + (set.life as f64).log2()
        ),
        record: Some("params/lpn.json"),
        command: Some("python3 params/lpn.py".into()),
        others,
    };
    Some((set.name.clone(), estimate))
}

/// A figure of the literature, for which there is no script.
fn literature(bits: f64, attack: &str) -> Option<Estimate> {
    Some(Estimate { bits, attack: attack.into(), record: None, command: None, others: BTreeMap::new() })
}

// ---- What is in use. ----

impl Security {
    /// Of sessions with `bundle` under `plan`.
    pub fn new(bundle: &Bundle, plan: &Plan) -> Self {
        let network = &bundle.model.network;
        Self {
            network: network.name.clone(),
            model: bundle.id().to_string(),
            adversary: "semi-honest: both parties follow the protocol and look at what they receive",
            assumptions: assumptions(plan),
            bounds: bounds(bundle, plan),
            learns: learns(),
            weaknesses: weaknesses(bundle, plan),
        }
    }
}

fn assumptions(plan: &Plan) -> Vec<Assumption> {
    let mut found = Vec::new();
    for layers in &plan.backends {
        for set in layers.rlwe() {
            found.push(Assumption {
                assumption: "RLWE, uniform ternary secrets, centred binomial noise (variance 10.5)",
                instance: format!("N = {}, q of at most {} bits", set.ring_dim, set.modulus_bits),
                used_by: format!("linear layers, {}: the image, and the weights", layers.backend()),
                estimate: rlwe(set.ring_dim, set.modulus_bits),
            });
        }
        if layers.client_keys().sent > 0 {
            found.push(Assumption {
                assumption: "circular security of RLWE: rotation keys encrypt functions of the secret under itself",
                instance: "the same rings".into(),
                used_by: format!("linear layers, {}", layers.backend()),
                estimate: None,
            });
        }
    }
    for size in plan.choices.instances.sizes() {
        let life = match size.life {
            1 => String::new(),
            life => format!(
                ", the same rows in {life} iterations (stationary syndrome decoding, ePrint 2025/295)"
            ),
        };
        let kind = if size.width == Width::Vector { "vectors of 4 bits" } else { "bits" };
        let record = lpn(size);
        let name = record.as_ref().map_or_else(|| "no name".into(), |(name, _)| name.clone());
        let (k, t, h) = (size.secret, size.bins, size.log_bin);
        let shared = match size.columns() {
            1 => String::new(),
            m => format!(", {m} secrets under one matrix with errors in the same rows"),
        };
        found.push(Assumption {
            assumption: "LPN over F2 with regular noise, rows of weight 10",
            instance: format!("{name}: k = {k}, t = {t}, bins of 2^{h}{shared}{life}"),
            used_by: format!("OT extension, {kind}: all nonlinear layers"),
            estimate: record.map(|(_, estimate)| estimate),
        });
    }
    found.push(Assumption {
        assumption: "computational Diffie-Hellman on ristretto255, BLAKE3 as a random oracle (not post-quantum)",
        instance: "a group of 2^252 elements".into(),
        used_by: "base OTs".into(),
        estimate: literature(126.0, "Pollard's rho"),
    });
    found.push(Assumption {
        assumption: "AES-128 as an ideal cipher, under keys that change",
        instance: "120 unknown pads under one key at most".into(),
        used_by: "pads of OTs: all nonlinear layers".into(),
        estimate: literature(116.0, "advantage 2^-116 for each call of AES (ePrint 2019/1168)"),
    });
    found.push(Assumption {
        assumption: "AES-256 in counter mode as a PRG, and under public keys as a random oracle",
        instance: "fresh seeds from the operating system".into(),
        used_by: "public polynomials, masks, secrets".into(),
        estimate: None,
    });
    found
}

fn bounds(bundle: &Bundle, plan: &Plan) -> Vec<Bound> {
    let mut found = vec![
        Bound {
            what: "rounding coins",
            bound: hide::describe(bundle),
            source: "docs/attacks.md#rounding-coins",
        },
        Bound {
            what: "a receiver of OTs that lies",
            bound: "found with probability 1 - 2^-c where it would learn c bits of the sender's key".into(),
            source: "crates/ot/src/iknp.rs",
        },
    ];
    if plan.steps.iter().any(|step| step.domain.modulus.log2().is_none()) {
        found.push(Bound {
            what: "masks modulo an odd number",
            bound: "each within 2^-65 of uniform".into(),
            source: "docs/protocols/nonlinear.md#odd-moduli",
        });
    }
    found
}

fn learns() -> Vec<Learns> {
    vec![
        Learns {
            who: "client",
            learns: "the logits, with the server's noise where there are guard bits, or the label only (serve --reveal label); the public part: shapes, widths, shifts, scales; \
                     times"
                .into(),
        },
        Learns { who: "server", learns: "that a query was made, when, from where, by which client name".into() },
        Learns { who: "someone on the wire", learns: "sizes and times; with --tls off the messages too".into() },
    ]
}

fn weaknesses(bundle: &Bundle, plan: &Plan) -> Vec<Weakness> {
    let network = &bundle.model.network;
    let row = |number, here: &str| Weakness { number, here: here.into() };
    // What a query can carry at most, and what there is to carry.
    let weights: usize = bundle.model.weights.iter().flatten().map(|of| of.weights.len()).sum();
    let logits: usize = network.nodes.last().map_or(1, |node| node.shape.iter().product());
    let mut found = vec![Weakness {
        number: 1,
        here: format!(
            "a client that deviates takes up to one weight a logit and query: with {weights} weights and {logits} logits, \
             all in {} queries, or in five times as many",
            weights.div_ceil(logits)
        ),
    }];
    found.push(match network.guard_bits {
        0 => row(2, "no guard bits: the coins are given away"),
        _ => Weakness { number: 2, here: hide::describe(bundle) },
    });
    found.push(row(4, "copies of secrets outside the heap are not wiped"));
    found.push(row(5, "limit the number of queries; --reveal label gives less"));
    found.push(row(9, "a sender of OTs that deviates is not found"));
    let reduced = |op: &Op| op.ignored().is_some_and(|ignored| ignored > network.guard_bits.max(1));
    if network.nodes.iter().any(|node| reduced(&node.op)) {
        found.push(row(10, "signs of reduced precision: logits depend on how shares fall"));
    }
    if plan.backends.iter().any(|layers| layers.rlwe().is_empty()) {
        found.push(row(12, "a backend that protects nothing: for tests"));
    }
    found
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.network, self.model)?;
        writeln!(f, "secure against: {}", self.adversary)?;
        writeln!(f, "\nassumptions")?;
        for a in &self.assumptions {
            writeln!(f, "  {}\n    {}; {}", a.assumption, a.instance, a.used_by)?;
            match &a.estimate {
                None => writeln!(f, "    no estimate on record")?,
                Some(e) => {
                    writeln!(f, "    {:.1} bits: {}", e.bits, e.attack)?;
                    match (e.record, &e.command) {
                        (Some(record), Some(command)) => writeln!(f, "    {record}, computed by: {command}")?,
                        _ => writeln!(f, "    from the literature; no script on record")?,
                    }
                }
            }
        }
        writeln!(f, "\nbounds")?;
        for b in &self.bounds {
            writeln!(f, "  {}: {} ({})", b.what, b.bound, b.source)?;
        }
        writeln!(f, "\nwho learns what")?;
        for l in &self.learns {
            writeln!(f, "  {}: {}", l.who, l.learns)?;
        }
        writeln!(f, "\nknown weaknesses (numbers of SECURITY.md; details in docs/audit.md)")?;
        for w in &self.weaknesses {
            writeln!(f, "  {}: {}", w.number, w.here)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jaguar::nonlinear::cost::{Instances, Noise};

    use super::*;

    /// Every LPN instance that may be chosen has its line.
    #[test]
    fn every_lpn_instance_is_on_record() {
        for size in
            [Noise::Fresh, Noise::Stationary].into_iter().flat_map(Instances::all).flat_map(Instances::sizes)
        {
            let (name, estimate) = lpn(size).unwrap_or_else(|| panic!("{size:?} is not on record"));
            assert!(estimate.bits >= 127.95, "{name}: {}", estimate.bits);
        }
    }

    #[test]
    fn rings_are_looked_up_by_n_and_the_next_larger_q() {
        assert_eq!(rlwe(2048, 48).unwrap().bits, 143.2);
        assert_eq!(rlwe(2048, 47).unwrap().bits, 143.2);
        assert_eq!(rlwe(4096, 60).unwrap().bits, 224.6);
        assert_eq!(rlwe(8192, 214).unwrap().bits, 128.3);
        for (n, bits) in [(2048, 55), (8192, 219), (1024, 20), (32768, 60)] {
            assert!(rlwe(n, bits).is_none(), "{n} {bits}");
        }
        let formula = rlwe(16384, 424).unwrap();
        assert!(formula.bits >= 128.0 && formula.command.unwrap().contains("--formula"));
    }

    /// The numbers are those of SECURITY.md.
    #[test]
    fn weaknesses_have_the_numbers_of_the_page() {
        let page = include_str!("../../../SECURITY.md");
        let source = include_str!("security.rs");
        for number in [1, 2, 4, 5, 9, 10, 12] {
            assert!(page.contains(&format!("\n| {number} | ")), "row {number}");
            assert!(
                source.contains(&format!("row({number}, ")) || source.contains(&format!("number: {number},")),
                "{number}"
            );
        }
    }
}
