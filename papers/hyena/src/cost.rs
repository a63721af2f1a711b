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

    /// Both halves without the primes that a response drops.
    fn dropped(self) -> Units {
        // With l primes left, l products a half.
        let left = |limbs: f64| limbs * (limbs - 1.0);
        Units { product: left(self.limbs) - left(self.kept), ..Units::default() }
    }

    /// A share in slots to what is added to a ciphertext.
    fn message(self) -> Units {
        Units { encoding: 1.0, rounding: self.limbs, transform: self.limbs, ..Units::default() }
    }

    /// Offline, client: a ciphertext.
    fn fresh(self) -> Units {
        Units { encryption: self.limbs, ..Units::default() }
    }

    /// Offline, server: a response's encryption of zero, its mask, and the share that follows from it.
    fn cover(self) -> Units {
        let Self { limbs, kept, .. } = self;
        let zero = Units { zero: limbs, transform: 2.0 * limbs, ..self.dropped() };
        zero + Units { uniform: kept, rounding: kept, encoding: 1.0, ..Units::default() }
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

    /// Online, client: all ciphertexts and responses.
    fn client(&self, sizes: Sizes) -> Units {
        let kept = sizes.kept;
        let [sent, _] = self.entering(sizes);
        let opened = Units {
            packing: 2.0 * kept,
            transform: 3.0 * kept,
            product: kept,
            rounding: kept,
            encoding: 1.0,
            ..Units::default()
        };
        sent * self.packing.ciphertexts() as f64 + opened * self.packing.responses() as f64
    }

    /// Online, server: all rotated inputs and responses. `encoded`: plaintexts are made in every query.
    fn server(&self, sizes: Sizes, encoded: bool) -> Units {
        let Sizes { limbs, kept, .. } = sizes;
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
        let sent = sizes.dropped() + Units { transform: halves, packing: 2.0 * kept, ..Units::default() };
        received * self.packing.ciphertexts() as f64
            + (sums + aligned + sent) * self.packing.responses() as f64
    }

    /// The same for interleaved channels.
    fn interleaved_server(&self, sizes: Sizes, packing: &Interleaved) -> Units {
        let Sizes { limbs, kept, .. } = sizes;
        let [_, received] = self.entering(sizes);
        let work = packing.work();
        let [products, sums, moved] = [work.products, work.sums, work.moved].map(|count| count as f64);
        // Of the words of a plaintext, D are computed.
        let made = sizes.plaintext() * (packing.dimension() as f64 / packing.slots() as f64);
        let product = made + Units { stretches: 2.0 * limbs, ..Units::default() };
        let group = product * products
            + Units { product: 2.0 * limbs, ..Units::default() } * sums
            + (sizes.split() + sizes.turn()) * moved;
        let sent =
            sizes.dropped() + Units { transform: 2.0 * limbs, packing: 2.0 * kept, ..Units::default() };
        received * self.packing.ciphertexts() as f64
            + group * self.packing.groups() as f64
            + sent * self.packing.responses() as f64
    }

    /// The same for a layer of blocks.
    fn blocks_server(&self, sizes: Sizes, encoded: bool, work: GroupWork) -> Units {
        let Sizes { limbs, kept, .. } = sizes;
        let GroupWork { products, turned, babies, giants } = work;
        let [_, received] = self.entering(sizes);
        let sent =
            sizes.dropped() + Units { transform: 2.0 * limbs, packing: 2.0 * kept, ..Units::default() };
        let made = if encoded { sizes.plaintext() } else { Units::default() };
        let product = made + Units { product: 2.0 * limbs, ..Units::default() };
        let group = sizes.split() * (turned + giants) as f64
            + sizes.turn() * (babies + giants) as f64
            + product * products as f64;
        received * self.packing.ciphertexts() as f64
            + group * self.packing.groups() as f64
            + sent * self.packing.responses() as f64
    }

    /// Everything that both parties do for one query. `encoded` as in the planner's work.
    pub(super) fn units(&self, sizes: Sizes, encoded: bool) -> Units {
        let [ciphertexts, responses] =
            [self.packing.ciphertexts(), self.packing.responses()].map(|n| n as f64);
        self.client(sizes)
            + self.server(sizes, encoded)
            + sizes.fresh() * ciphertexts
            + sizes.cover() * responses
    }

    /// The same in seconds, by when and by whom. `ahead`: how many ciphertexts and responses are made offline, `held`: how many
    /// plaintexts are made once per model.
    pub(super) fn work(
        &self,
        sizes: Sizes,
        ahead: [usize; 2],
        (plaintexts, held): (usize, bool),
        costs: &Units,
    ) -> Work {
        let seconds = |units: Units| units.seconds(costs);
        let all = [self.packing.ciphertexts(), self.packing.responses()];
        let late = [0, 1].map(|i| (all[i] - ahead[i]) as f64);
        let made = if held { plaintexts as f64 } else { 0.0 };
        Work {
            model: seconds(sizes.plaintext() * made),
            offline: [seconds(sizes.fresh() * ahead[0] as f64), seconds(sizes.cover() * ahead[1] as f64)],
            online_parallel: [
                seconds(self.client(sizes) + sizes.fresh() * late[0]),
                seconds(self.server(sizes, !held) + sizes.cover() * late[1]),
            ],
            ..Work::default()
        }
    }
}
