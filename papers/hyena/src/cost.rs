//! What a layer costs: counts of work on N words modulo one prime, by what is done with them ([`Units`]). The
//! search multiplies them by figures of its own, the planner by a machine's.

use super::blocks::GroupWork;
use super::interleaved::Interleaved;
use super::places::Places;
use super::search::{Fitted, Sizes};
use super::{Form, SlotWork as Units};
use jaguar_linear::backend::Work;

impl Sizes {
    /// N words, all primes: encoded, and made a polynomial that ciphertexts are multiplied by.
    fn plaintext(self) -> Units {
        Units { encoding: 1.0, small: self.limbs, transform: self.limbs, ..Units::default() }
    }

    /// The a half in digits.
    fn split(self) -> Units {
        let Self { limbs, digits, .. } = self;
        Units { transform: limbs * (1.0 + digits), small: limbs * digits, ..Units::default() }
    }

    /// A split ciphertext turned.
    fn turn(self) -> Units {
        Units { switch: self.limbs * self.digits, ..Units::default() }
    }

    /// A half transformed back, and without the primes that a response drops.
    fn dropped(self) -> Units {
        // With l primes left, l products.
        let left = |limbs: f64| limbs * (limbs - 1.0) / 2.0;
        Units { transform: self.limbs, product: left(self.limbs) - left(self.kept), ..Units::default() }
    }

    /// A response's a half made part of what several share.
    fn joined(self) -> Units {
        let Self { kept, joint_digits: digits, together, .. } = self;
        let limbs = kept + 1.0;
        // Halves are made two at once.
        let pairs = (together / 2.0).floor() + 1.0;
        Units {
            transform: limbs * digits,
            small: limbs * digits,
            switch: limbs * digits * pairs,
            ..Units::default()
        }
    }

    /// A share in slots to what is added to a ciphertext.
    fn message(self) -> Units {
        Units { encoding: 1.0, rounding: self.limbs, transform: self.limbs, ..Units::default() }
    }

    /// Offline, client: a ciphertext.
    fn fresh(self) -> Units {
        Units { encryption: self.limbs, ..Units::default() }
    }

    /// Offline, server: so many responses' encryptions of zero with so many a halves, their masks, and the shares that follow from them.
    /// A third of an encryption is the b half.
    fn covers(self, joints: f64, responses: f64) -> Units {
        let Self { kept, .. } = self;
        // Of a prime more than responses have, if there is one.
        let limbs = (kept + 1.0).min(self.limbs);
        let half = Units { zero: limbs / 3.0, ..Self { limbs, ..self }.dropped() };
        let mask = Units { uniform: kept, rounding: kept, encoding: 1.0, ..Units::default() };
        (half + Units { zero: limbs / 3.0, ..Units::default() }) * joints + (half + mask) * responses
    }
}

impl Fitted {
    /// Online, both parties: a ciphertext, from the client's message to the server's rotations.
    fn entering(&self, sizes: Sizes) -> [Units; 2] {
        let Sizes { limbs, .. } = sizes;
        let taps = self.taps();
        let sent = sizes.message() + Units { packing: limbs, ..Units::default() };
        let received = Units { uniform: limbs, packing: limbs, ..Units::default() } + sizes.message();
        let rotated = if taps > 1.0 { sizes.split() + sizes.turn() * (taps - 1.0) } else { Units::default() };
        [sent, received + rotated]
    }

    /// What every further part of split plaintexts would add, where weights are plaintexts: ciphertexts of multiples of the
    /// input, and products with each.
    #[cfg(test)]
    pub(super) fn another_part(&self, sizes: Sizes) -> Units {
        let [sent, received] = self.entering(sizes);
        let products = self.pairs() * self.taps() * 2.0 * sizes.limbs;
        (sent + received + sizes.fresh()) * self.packing.ciphertexts() as f64
            + Units { product: products, ..Units::default() } * self.packing.responses() as f64
    }

    /// How many a halves responses have, and how many there are.
    fn answers(&self, sizes: Sizes) -> [f64; 2] {
        [self.packing.joints(sizes.together as usize), self.packing.responses()].map(|count| count as f64)
    }

    /// Online, client: all ciphertexts and responses.
    fn client(&self, sizes: Sizes) -> Units {
        let kept = sizes.kept;
        let [sent, _] = self.entering(sizes);
        let half = Units { packing: kept, transform: kept, ..Units::default() };
        let opened = half + Units { product: kept, rounding: kept, encoding: 1.0, ..Units::default() };
        let [joints, responses] = self.answers(sizes);
        sent * self.packing.ciphertexts() as f64 + half * joints + opened * responses
    }

    /// Online, server: sums become responses.
    fn leaving(&self, sizes: Sizes) -> Units {
        let [joints, responses] = self.answers(sizes);
        let halves = joints + responses;
        let sums =
            sizes.dropped() * (2.0 * responses) + Units { packing: sizes.kept * halves, ..Units::default() };
        if joints == responses {
            return sums;
        }
        // Halves of joint responses drop one prime more.
        let joined = Sizes { limbs: sizes.kept + 1.0, ..sizes }.dropped() * halves;
        sums + sizes.joined() * responses + joined
    }

    /// Online, server: all rotated inputs and responses. `encoded`: plaintexts are made in every query.
    fn server(&self, sizes: Sizes, encoded: bool) -> Units {
        let limbs = sizes.limbs;
        let (taps, channels, diagonals) = (self.taps(), self.packing.channels() as f64, self.diagonals());
        let each = self.pairs() * taps;
        match &self.packing {
            Places::Blocks(packing) => return self.blocks_server(sizes, encoded, packing.work()),
            Places::Interleaved(packing) => return self.interleaved_server(sizes, packing),
            Places::Channels(_) => {}
        }
        let [_, received] = self.entering(sizes);
        let halves = 2.0 * limbs;
        let sums = match self.form {
            Form::Padded => Units { scalar: each * halves, sum: diagonals * halves, ..Units::default() },
            Form::WalshHadamard => Units {
                scalar: each * channels * halves,
                sum: diagonals * channels * halves,
                product: diagonals * (channels - 1.0) * halves,
                ..Units::default()
            },
            Form::Interleaved | Form::Conventional | Form::Blocks => {
                let made = if encoded { sizes.plaintext() * each } else { Units::default() };
                made + Units { product: each * halves, ..Units::default() }
            }
        };
        let aligned = (sizes.split() + sizes.turn()) * (diagonals - 1.0);
        received * self.packing.ciphertexts() as f64
            + (sums + aligned) * self.packing.responses() as f64
            + self.leaving(sizes)
    }

    /// The same for interleaved channels.
    fn interleaved_server(&self, sizes: Sizes, packing: &Interleaved) -> Units {
        let limbs = sizes.limbs;
        let [_, received] = self.entering(sizes);
        let work = packing.work();
        let [products, sums, moved] = [work.products, work.sums, work.moved].map(|count| count as f64);
        // Of the words of a plaintext, D are computed.
        let made = sizes.plaintext() * (packing.dimension() as f64 / packing.slots() as f64);
        let product = made + Units { stretches: 2.0 * limbs, ..Units::default() };
        let group = product * products
            + Units { product: 2.0 * limbs, ..Units::default() } * sums
            + (sizes.split() + sizes.turn()) * moved;
        received * self.packing.ciphertexts() as f64
            + group * self.packing.groups() as f64
            + self.leaving(sizes)
    }

    /// The same for a layer of blocks.
    fn blocks_server(&self, sizes: Sizes, encoded: bool, work: GroupWork) -> Units {
        let limbs = sizes.limbs;
        let GroupWork { products, turned, babies, giants } = work;
        let [_, received] = self.entering(sizes);
        let made = if encoded { sizes.plaintext() } else { Units::default() };
        let product = made + Units { product: 2.0 * limbs, ..Units::default() };
        let group = sizes.split() * (turned + giants) as f64
            + sizes.turn() * (babies + giants) as f64
            + product * products as f64;
        received * self.packing.ciphertexts() as f64
            + group * self.packing.groups() as f64
            + self.leaving(sizes)
    }

    /// Everything that both parties do for one query. `encoded` as in the planner's work.
    pub(super) fn units(&self, sizes: Sizes, encoded: bool) -> Units {
        let [joints, responses] = self.answers(sizes);
        self.client(sizes)
            + self.server(sizes, encoded)
            + sizes.fresh() * self.packing.ciphertexts() as f64
            + sizes.covers(joints, responses)
    }

    /// The same in seconds, by when and by whom. `ahead`: how many ciphertexts and groups of responses with one a half are made offline, `held`: how many
    /// plaintexts are made once per model.
    pub(super) fn work(
        &self,
        sizes: Sizes,
        ahead: [usize; 2],
        (plaintexts, held): (usize, bool),
        costs: &Units,
    ) -> Work {
        let seconds = |units: Units| units.seconds(costs);
        let [joints, responses] = self.answers(sizes);
        let late = (self.packing.ciphertexts() - ahead[0]) as f64;
        let covers = sizes.covers(joints, responses);
        let [early, rest] = [ahead[1] as f64, joints - ahead[1] as f64].map(|count| count / joints);
        let made = if held { plaintexts as f64 } else { 0.0 };
        Work {
            model: seconds(sizes.plaintext() * made),
            offline: [seconds(sizes.fresh() * ahead[0] as f64), seconds(covers * early)],
            online_parallel: [
                seconds(self.client(sizes) + sizes.fresh() * late),
                seconds(self.server(sizes, !held) + covers * rest),
            ],
            ..Work::default()
        }
    }
}
