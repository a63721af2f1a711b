//! Parameter sets: sizes as somebody asks for them ([`Literal`]), and what was checked ([`Parameters`]).

use jaguar_ring::modular::{self, NARROW_BITS};

use crate::Error;

/// One line of `papers/convfhe/params/ckks.json`: a ring, a modulus and a weight, and the attack that costs least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// log2 N.
    pub log_n: u32,
    /// log2 of the modulus, rounded up.
    pub log_modulus: u32,
    /// Hamming weight of the secret; the mean weight 2N/3 of a dense one.
    pub weight: usize,
    /// log2 of the gates that the cheapest attack on record takes.
    pub bits: f64,
}

/// The least security that a set has whose name does not begin with "insecure", in bits.
pub const LEAST_SECURITY: f64 = 128.0;

/// What is on record. A test compares it with the file.
pub const RECORDS: [Record; 3] = [
    Record { log_n: 16, log_modulus: 1447, weight: 43690, bits: 156.3 },
    Record { log_n: 16, log_modulus: 1555, weight: 43690, bits: 144.6 },
    Record { log_n: 16, log_modulus: 116, weight: 32, bits: 160.6 },
];

const INSECURE: &str = "insecure";
/// Most primes of Q and of P.
const MOST_PRIMES: [usize; 2] = [64, 14];
/// Most primes of one level.
const MOST_LEVEL_PRIMES: usize = 4;
/// Bits of a prime.
const PRIME_BITS: std::ops::RangeInclusive<u32> = 20..=NARROW_BITS;
/// Longest name.
const NAME_BYTES: usize = 32;

/// Sizes of a set; nothing of it is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Literal {
    /// One that begins with "insecure" needs no security record. At most 32 bytes.
    pub name: String,
    /// log2 N: 10 to 16.
    pub log_n: u32,
    /// By level, the sizes in bits of the primes whose product is the level's modulus; level 0 first. Each 20 to 50
    /// bits.
    pub levels: Vec<Vec<u32>>,
    /// Sizes in bits of the special primes, whose product is P.
    pub special: Vec<u32>,
    /// Hamming weight of the secret under which the modulus is raised. The main secret is dense: each coefficient is
    /// -1, 0 or 1 with the same chance.
    pub ephemeral_weight: usize,
    /// Whether a value is meant to stand in every coefficient, not in every second one: a bootstrap takes other keys.
    pub full: bool,
}

impl Literal {
    /// N = 2^16, the chain of ConvFHE's layer in moduli of at most 50 bits (`precision.md` says why these): log QP =
    /// 1540.
    ///
    /// ```text
    /// q0 50 | convolution 50 | StoC 40, 30, 30 | ReLU 11 times 40 | sine 8 times 50 | CtoS 4 times 50 | P 6 times 50
    /// ```
    pub fn n16() -> Self {
        let sizes = [vec![50, 50, 40, 30, 30], vec![40; 11], vec![50; 12]].concat();
        let levels = sizes.into_iter().map(|bits| vec![bits]).collect();
        Self {
            name: "n16".into(),
            log_n: 16,
            levels,
            special: vec![50; 6],
            ephemeral_weight: 32,
            full: false,
        }
    }

    /// Three levels less for ReLU, which leave room for nine special primes: three digits instead of five, so keys are smaller and
    /// key switches faster. CtoS has 46 bits a level, so that log QP = 1554.
    ///
    /// ```text
    /// q0 50 | convolution 50 | StoC 40, 30, 30 | ReLU 8 times 40 | sine 8 times 50 | CtoS 4 times 46 | P 9 times 50
    /// ```
    pub fn n16_relu8() -> Self {
        let sizes = [vec![50, 50, 40, 30, 30], vec![40; 8], vec![50; 8], vec![46; 4]].concat();
        let levels = sizes.into_iter().map(|bits| vec![bits]).collect();
        Self { name: "n16-relu8".into(), levels, special: vec![50; 9], ..Self::n16() }
    }

    /// The same chain for twice as many values.
    #[must_use]
    pub fn full(self) -> Self {
        Self { name: format!("{}-full", self.name), full: true, ..self }
    }

    /// The same chain in a ring of degree `2^log_n`. It protects nothing.
    pub fn insecure(self, log_n: u32) -> Self {
        let name = self.name.replacen("n16", &format!("{INSECURE}-n{log_n}"), 1);
        Self { name, log_n, ..self }
    }
}

/// A checked set. It does not change.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    name: String,
    log_n: u32,
    primes: Vec<u64>,
    /// By level, how many primes are left.
    ends: Vec<usize>,
    special: Vec<u64>,
    ephemeral_weight: usize,
    full: bool,
    security: Option<f64>,
}

impl Parameters {
    /// Checks a literal and finds its primes: those that are nearest to the powers of two of their sizes, all
    /// different.
    ///
    /// # Errors
    /// If sizes are out of range, there are not so many primes, or the set has no record of 128 bits for both of its
    /// secrets and does not say that it is insecure. The main secret is attacked under QP, the ephemeral one under q0
    /// times the first special prime.
    pub fn new(literal: &Literal) -> Result<Self, Error> {
        let Literal { name, log_n, levels, special, ephemeral_weight, full } = literal;
        let fail = |why: String| Error::Parameters { name: name.clone(), why };
        let check = |fits: bool, why: &dyn Fn() -> String| if fits { Ok(()) } else { Err(fail(why())) };
        check(!name.is_empty() && name.len() <= NAME_BYTES && name.is_ascii(), &|| {
            format!("a name of 1 to {NAME_BYTES} ASCII characters")
        })?;
        check((10..=16).contains(log_n), &|| format!("log2 N = {log_n}, not 10 to 16"))?;
        check(!levels.is_empty() && !special.is_empty(), &|| "no level or no special prime".into())?;
        let count = levels.iter().map(Vec::len).fold(0usize, usize::saturating_add);
        check(count <= MOST_PRIMES[0] && special.len() <= MOST_PRIMES[1], &|| {
            format!("{count} primes and {} special ones, not {MOST_PRIMES:?}", special.len())
        })?;
        check(levels.iter().all(|level| (1..=MOST_LEVEL_PRIMES).contains(&level.len())), &|| {
            format!("a level of more than {MOST_LEVEL_PRIMES} primes, or of none")
        })?;
        check(levels.iter().flatten().chain(special).all(|bits| PRIME_BITS.contains(bits)), &|| {
            format!("a prime that has not {PRIME_BITS:?} bits")
        })?;
        let n = 1usize << log_n;
        check((1..=n / 4).contains(ephemeral_weight), &|| {
            format!("an ephemeral secret of weight {ephemeral_weight}, not 1 to {}", n / 4)
        })?;

        let mut taken = Vec::new();
        let mut find = |bits: u32| -> Result<u64, Error> {
            let found = nearest(bits, 2 * n as u64).find(|prime| !taken.contains(prime));
            let prime = found.ok_or_else(|| fail(format!("not enough primes of {bits} bits")))?;
            taken.push(prime);
            Ok(prime)
        };
        // The special ones first: they are to be no smaller than others of their size.
        let special: Vec<u64> = special.iter().map(|&bits| find(bits)).collect::<Result<_, _>>()?;
        let primes: Vec<u64> = levels.iter().flatten().map(|&bits| find(bits)).collect::<Result<_, _>>()?;
        let ends = levels.iter().scan(0, |end, level| {
            *end += level.len();
            Some(*end)
        });
        let mut set = Self {
            name: name.clone(),
            log_n: *log_n,
            ends: ends.collect(),
            primes,
            special,
            ephemeral_weight: *ephemeral_weight,
            full: *full,
            security: None,
        };
        if !name.starts_with(INSECURE) {
            set.security = Some(set.on_record()?);
        }
        Ok(set)
    }

    /// The lesser security of the two secrets, in bits.
    fn on_record(&self) -> Result<f64, Error> {
        let first = self.ends[0];
        let ephemeral = log2(self.primes[..first].iter().chain(&self.special[..1]));
        let needs = [(self.log_modulus(), 2 * self.n() / 3), (ephemeral, self.ephemeral_weight)];
        let bits = needs.map(|(modulus, weight)| {
            // Upwards: a modulus that is next to a power of two counts as above it.
            let log_modulus = (modulus + 1e-9).ceil() as u32;
            let covers =
                |r: &&Record| r.log_n == self.log_n && r.weight <= weight && r.log_modulus >= log_modulus;
            let best = RECORDS.iter().filter(covers).map(|r| r.bits).fold(0.0, f64::max);
            (best, log_modulus, weight)
        });
        match bits.iter().find(|(best, _, _)| *best < LEAST_SECURITY) {
            Some((_, modulus, weight)) => Err(Error::Parameters {
                name: self.name.clone(),
                why: format!(
                    "N = {}, a modulus of {modulus} bits, weight {weight}: no record of {LEAST_SECURITY} bits",
                    self.n()
                ),
            }),
            None => Ok(bits[0].0.min(bits[1].0)),
        }
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// N: how many coefficients a polynomial has.
    pub fn n(&self) -> usize {
        1 << self.log_n
    }

    /// How many values a ciphertext of a network carries: N, or half as many.
    pub fn values(&self) -> usize {
        if self.full { self.n() } else { self.n() / 2 }
    }

    /// log2 N.
    pub fn log_n(&self) -> u32 {
        self.log_n
    }

    /// The highest level.
    pub fn top(&self) -> usize {
        self.ends.len() - 1
    }

    /// The primes of Q, those of level 0 first.
    pub fn primes(&self) -> &[u64] {
        &self.primes
    }

    /// The special primes.
    pub fn special(&self) -> &[u64] {
        &self.special
    }

    /// How many primes of Q a ciphertext of a level has.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn limbs(&self, level: usize) -> usize {
        self.ends[level]
    }

    /// Which primes of Q a level's modulus is the product of.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn level_primes(&self, level: usize) -> std::ops::Range<usize> {
        (if level == 0 { 0 } else { self.ends[level - 1] })..self.ends[level]
    }

    /// The modulus by which a level is rescaled.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn modulus(&self, level: usize) -> f64 {
        self.primes[self.level_primes(level)].iter().map(|&p| p as f64).product()
    }

    /// log2 of the product of all primes of a level and below.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn log_modulus_at(&self, level: usize) -> f64 {
        log2(self.primes[..self.ends[level]].iter())
    }

    /// Hamming weight of the ephemeral secret.
    pub fn ephemeral_weight(&self) -> usize {
        self.ephemeral_weight
    }

    /// log2 of QP.
    pub fn log_modulus(&self) -> f64 {
        log2(self.primes.iter().chain(&self.special))
    }

    /// How many bits of security are on record; `None` for a set that is called insecure.
    pub fn security(&self) -> Option<f64> {
        self.security
    }
}

fn log2<'a>(primes: impl Iterator<Item = &'a u64>) -> f64 {
    primes.map(|&p| (p as f64).log2()).sum()
}

/// Primes that are 1 modulo `order`, nearest to `2^bits` first; of at most 50 bits.
fn nearest(bits: u32, order: u64) -> impl Iterator<Item = u64> {
    let centre = (1u64 << bits) / order;
    // Neither half as large nor twice as large.
    let places = (0..centre / 2).flat_map(move |step| [centre + step, centre - 1 - step]);
    places.map(move |k| k * order + 1).filter(|&p| p >> NARROW_BITS == 0 && modular::is_prime(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_on_record() {
        let set = Parameters::new(&Literal::n16()).unwrap();
        assert_eq!((set.security(), set.n(), set.top()), (Some(144.6), 65536, 27));
        assert!((set.log_modulus() - 1540.0).abs() < 1.0, "{}", set.log_modulus());
        assert_eq!((set.primes().len(), set.special().len()), (28, 6));
        assert_eq!((set.level_primes(3), set.limbs(3), set.limbs(0)), (3..4, 4, 1));
        let mut literal = Literal::n16();
        literal.levels[3] = vec![30, 31];
        let two = Parameters::new(&literal).unwrap_err().to_string();
        assert!(two.contains("a modulus of 1571 bits"), "{two}");
        literal.name = "insecure-two".into();
        let two = Parameters::new(&literal).unwrap();
        assert_eq!((two.level_primes(3), two.limbs(3), two.top()), (3..5, 5, 27));
        assert!((two.modulus(3).log2() - 61.0).abs() < 0.01);
        let mut all = [set.primes(), set.special()].concat();
        assert!(all.iter().all(|&p| p % 131_072 == 1 && p >> 50 == 0));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 34);
        assert!(Parameters::new(&Literal::n16().insecure(10)).unwrap().security().is_none());
    }

    #[test]
    fn fewer_levels_leave_room_for_special_primes() {
        let set = Parameters::new(&Literal::n16_relu8()).unwrap();
        assert_eq!((set.security(), set.top(), set.special().len()), (Some(144.6), 24, 9));
        assert!((set.log_modulus() - 1554.0).abs() < 0.5, "{}", set.log_modulus());
        let mut literal = Literal::n16_relu8();
        literal.special.push(50);
        let more = Parameters::new(&literal).unwrap_err().to_string();
        assert!(more.contains("a modulus of 1604 bits"), "{more}");
        assert_eq!(Literal::n16_relu8().insecure(12).name, "insecure-n12-relu8");
    }

    #[test]
    fn records_are_those_of_the_file() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../params/ckks.json");
        let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for record in RECORDS {
            let found = file["sets"].as_array().unwrap().iter().find(|set| {
                set["log_n"] == record.log_n
                    && set["log2_q"] == record.log_modulus
                    && set["weight"] == record.weight
            });
            let bits = found.unwrap()["bits"].as_object().unwrap().values();
            let least = bits.map(|bits| bits.as_f64().unwrap()).fold(f64::INFINITY, f64::min);
            assert_eq!(least, record.bits);
        }
    }

    #[test]
    fn sets_without_a_record_are_refused() {
        let refused = |change: &dyn Fn(&mut Literal), part: &str| {
            let mut literal = Literal::n16();
            change(&mut literal);
            let error = Parameters::new(&literal).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        refused(
            &|l| l.levels.extend([vec![50], vec![50]]),
            "a modulus of 1640 bits, weight 43690: no record",
        );
        refused(&|l| l.log_n = 15, "no record");
        refused(&|l| l.ephemeral_weight = 31, "a modulus of 100 bits, weight 31: no record");
        refused(
            &|l| l.levels[0..2].clone_from_slice(&[vec![40, 40], vec![20]]),
            "a modulus of 130 bits, weight 32: no record",
        );
        refused(&|l| l.log_n = 9, "log2 N = 9");
        refused(&|l| l.levels.clear(), "no level");
        refused(&|l| l.special.clear(), "no level or no special");
        refused(&|l| l.levels[2] = vec![51], "bits");
        refused(&|l| l.levels[2] = vec![], "a level");
        refused(&|l| l.special = vec![50; 15], "special ones");
        refused(&|l| l.levels = vec![vec![20]; 60], "not enough primes of 20 bits");
        refused(&|l| l.name = "x".repeat(33), "a name");
        refused(&|l| l.ephemeral_weight = 0, "weight 0");
    }
}
