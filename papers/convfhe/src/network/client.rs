//! The client's half: an input is encrypted, an answer decrypted.

use jaguar_ckks::answer::{self, ReadError};
use jaguar_ckks::{Context, SecretKey, wire};
use jaguar_ring::prg::Prg;
use zeroize::Zeroizing;

use super::evaluate::answer_bytes;
use super::plan::{NetworkError, value_scale};
use super::public::Public;

impl Public {
    fn check_set(&self, context: &Context) -> Result<(), NetworkError> {
        let (set, own) = (context.params().name(), &self.set);
        if set == own {
            return Ok(());
        }
        Err(NetworkError::Set { set: set.to_owned(), why: format!("the network was made for {own:?}") })
    }

    /// Encrypts inputs `[n, C, H, W]`, at most [`images`](Self::images), in [`input_bytes`](Self::input_bytes), however many they are:
    /// the last one stands where there are no more.
    ///
    /// # Errors
    /// [`NetworkError::Input`] if there are no inputs, too many, or one of another size, or a value is no number or exceeds the input's bound.
    pub fn encrypt(&self, secret: &SecretKey, inputs: &[f32]) -> Result<Vec<u8>, NetworkError> {
        let context = secret.context();
        self.check_set(context)?;
        let (grid, size) = (self.grid()?, self.input_bytes(context)?);
        let refuse = |why: String| NetworkError::Input { what: "input", index: 0, why };
        let needed: usize = grid.shape().iter().product();
        let many = inputs.len() / needed;
        if !inputs.len().is_multiple_of(needed) || !(1..=self.images).contains(&many) {
            let most = if self.images > 1 {
                format!(" each, of 1 to {} inputs", self.images)
            } else {
                String::new()
            };
            return Err(refuse(format!("{} values, not {needed}{most}", inputs.len())));
        }
        let bound = self.input_bound;
        if let Some(at) = inputs.iter().position(|x| x.is_nan() || f64::from(x.abs()) > bound) {
            return Err(refuse(format!("value {at} is no number, or beyond the input's bound {bound}")));
        }
        let scaled = Zeroizing::new(inputs.iter().map(|&x| f64::from(x) / bound).collect::<Vec<f64>>());
        let mut parts = Zeroizing::new(grid.scatter(&scaled[..needed], context.params().values())?);
        for number in 1..self.images {
            let input = &scaled[number.min(many - 1) * needed..][..needed];
            let own = Zeroizing::new(grid.scatter(input, self.apart)?);
            parts[0][number * self.apart..][..self.apart].copy_from_slice(&own[0]);
        }
        let (mut bytes, mut prg) = (Vec::with_capacity(size), Prg::from_os());
        for part in parts.iter() {
            let plaintext =
                context.encode_coefficients(part, answer::LEVEL, value_scale(context.params()))?;
            wire::write_seeded(context, &secret.encrypt(&plaintext, &mut prg), &mut bytes)?;
        }
        Ok(bytes)
    }

    /// The logits of an answer, `[images, outputs]`, rounded to 2^-8 of their bound. They are the client's own: no one should be told more of
    /// them than the class, since errors of decrypted numbers tell of the secret key.
    ///
    /// # Errors
    /// [`NetworkError::Message`] if it is no answer at all; [`NetworkError::Spoilt`] if it was not made with this client's
    /// keys; [`NetworkError::Left`] if a value left the interval of ReLU's polynomial on the way, as far as the answer
    /// shows it. No error says what numbers there were.
    pub fn decrypt(&self, secret: &SecretKey, answer: &[u8]) -> Result<Vec<f64>, NetworkError> {
        let context = secret.context();
        self.check_set(context)?;
        let refuse = |why: String| NetworkError::Message { what: "the answer", why };
        let (found, needed) = (answer.len(), answer_bytes(context)?);
        if found != needed {
            return Err(refuse(format!("{found} bytes, not {needed}")));
        }
        let ct =
            wire::read_ciphertext(context, &mut &answer[..]).map_err(|error| refuse(error.to_string()))?;
        let count = self.outputs.saturating_mul(self.images);
        let numbers =
            answer::read(secret, &ct, count.saturating_add(self.checks)).map_err(|error| match error {
                ReadError::Spoilt => NetworkError::Spoilt,
                other => refuse(other.to_string()),
            })?;
        let (logits, checks) = numbers.split_at(count);
        let most = 1.0 + answer::most_error(1.0);
        // All are looked at.
        let left = checks.iter().fold(false, |left, &x| left | !answer::is_noise(x));
        if logits.iter().fold(left, |left, x| left | x.is_nan() | (x.abs() > most)) {
            return Err(NetworkError::Left);
        }
        Ok(logits.iter().map(|x| answer::round(x * self.output_bound, self.output_bound)).collect())
    }

    /// Bytes of an encrypted input.
    ///
    /// # Errors
    /// As [`Public::grid`].
    pub fn input_bytes(&self, context: &Context) -> Result<usize, NetworkError> {
        Ok(self.ciphertexts()? * wire::seeded_bytes(context, answer::LEVEL)?)
    }

    /// Bytes of an answer.
    ///
    /// # Errors
    /// If the set has no level for it.
    pub fn answer_bytes(&self, context: &Context) -> Result<usize, NetworkError> {
        answer_bytes(context)
    }
}
