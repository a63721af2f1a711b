//! Base OTs over ristretto255, in both directions at once.
//!
//! `(k0, k1) ; k_c <- BaseOt(; c)`: the sender gets two random 32-byte keys per OT, the receiver the one of its choice
//! bit. Chou and Orlandi, *The Simplest Protocol for Oblivious Transfer*, LATINCRYPT 2015, in the random-oracle
//! form: a sender's point A = a·G; per OT a receiver's point B = b·G + c·A; the keys are hashes of a·B and
//! a·B − a·A, of which the receiver can compute b·A. Secure against a semi-honest peer under the
//! computational Diffie–Hellman assumption on ristretto255 in the random oracle model (the published doubts concern
//! extraction from a malicious receiver). B is uniform whatever c is; the other key needs a² ·G. The hash binds
//! A, B and the index, so that equal points in two OTs or sessions give unrelated keys.
//!
//! Bytes: 32 from the sender, 32 an OT from the receiver. Rounds: 2 for any number of OTs, both directions in
//! the same two. Points that do not decode, and A = 0 (which would make the keys equal), are errors.

use curve25519_dalek::ristretto::CompressedRistretto;
use curve25519_dalek::traits::{Identity, IsIdentity};
use curve25519_dalek::{RistrettoPoint, Scalar};
use jaguar_ring::Prg;
use jaguar_wire::Channel;
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, Zeroizing};

use crate::OtError;

/// Bytes of a point.
pub(crate) const POINT: usize = 32;

/// A key that a base OT gives.
pub(crate) type Key = Zeroizing<[u8; 32]>;

/// What the sender keeps between its two messages. The scalar is zeroised on drop.
pub(crate) struct Offer {
    a: Zeroizing<Scalar>,
    point: CompressedRistretto,
}

/// Step 1, sender: draw a, send A = a·G.
pub(crate) fn offer(chan: &mut Channel, prg: &mut Prg) -> Result<Offer, OtError> {
    let a = Zeroizing::new(scalar(prg));
    let point = RistrettoPoint::mul_base(&a).compress();
    chan.send(point.as_bytes())?;
    Ok(Offer { a, point })
}

/// Step 2, receiver: read A, send B = b·G + c·A for every choice bit c. Returns the chosen keys and the hash of
/// everything sent.
pub(crate) fn choose(
    chan: &mut Channel,
    prg: &mut Prg,
    choices: &[bool],
) -> Result<(Vec<Key>, [u8; 32]), OtError> {
    let (a_bytes, a) = point(chan)?;
    if a.is_identity() {
        return Err(misbehaved("the sender's point is the identity"));
    }
    let mut transcript = transcript(&a_bytes);
    let mut keys = Vec::with_capacity(choices.len());
    for (i, &choice) in choices.iter().enumerate() {
        let b = Zeroizing::new(scalar(prg));
        let shift = RistrettoPoint::conditional_select(
            &RistrettoPoint::identity(),
            &a,
            Choice::from(u8::from(choice)),
        );
        let b_bytes = (RistrettoPoint::mul_base(&b) + shift).compress();
        chan.send(b_bytes.as_bytes())?;
        transcript.update(b_bytes.as_bytes());
        keys.push(key(i, &a_bytes, &b_bytes, *b * a));
    }
    Ok((keys, transcript.finalize().into()))
}

impl Offer {
    /// Step 3, sender: read every B, hash a·B and a·B − a·A. Returns the pairs of keys and the hash of everything
    /// sent.
    pub(crate) fn finish(
        self,
        chan: &mut Channel,
        count: usize,
    ) -> Result<(Vec<[Key; 2]>, [u8; 32]), OtError> {
        let aa = *self.a * RistrettoPoint::mul_base(&self.a);
        let mut transcript = transcript(&self.point);
        let mut keys = Vec::with_capacity(count);
        for i in 0..count {
            let (b_bytes, b) = point(chan)?;
            transcript.update(b_bytes.as_bytes());
            let ab = *self.a * b;
            keys.push([key(i, &self.point, &b_bytes, ab), key(i, &self.point, &b_bytes, ab - aa)]);
        }
        Ok((keys, transcript.finalize().into()))
    }
}

fn scalar(prg: &mut Prg) -> Scalar {
    let mut wide = Zeroizing::new([0; 64]);
    prg.fill(wide.as_mut());
    Scalar::from_bytes_mod_order_wide(&wide)
}

fn point(chan: &mut Channel) -> Result<(CompressedRistretto, RistrettoPoint), OtError> {
    let mut bytes = [0; 32];
    chan.recv_into(&mut bytes)?;
    let compressed = CompressedRistretto(bytes);
    let point = compressed.decompress().ok_or(misbehaved("bytes that are no point"))?;
    Ok((compressed, point))
}

fn key(i: usize, a: &CompressedRistretto, b: &CompressedRistretto, mut shared: RistrettoPoint) -> Key {
    let mut hasher = blake3::Hasher::new_derive_key("jaguar-ot base OT key");
    hasher.update(&(i as u64).to_le_bytes()).update(a.as_bytes()).update(b.as_bytes());
    let mut bytes = shared.compress().to_bytes();
    hasher.update(&bytes);
    shared.zeroize();
    bytes.zeroize();
    let key = Zeroizing::new(hasher.finalize().into());
    hasher.zeroize();
    key
}

fn transcript(a: &CompressedRistretto) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new_derive_key("jaguar-ot base OT transcript");
    hasher.update(a.as_bytes());
    hasher
}

fn misbehaved(what: &'static str) -> OtError {
    OtError::PeerMisbehaved { protocol: "base OT", what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::two_parties;

    const COUNT: usize = 20;

    fn run_sender(chan: &mut Channel) -> Result<(Vec<[Key; 2]>, [u8; 32]), OtError> {
        offer(chan, &mut Prg::new([1; 32]))?.finish(chan, COUNT)
    }

    fn run_receiver(chan: &mut Channel) -> Result<(Vec<Key>, [u8; 32]), OtError> {
        let done = choose(chan, &mut Prg::new([2; 32]), &choices())?;
        chan.flush()?;
        Ok(done)
    }

    fn choices() -> Vec<bool> {
        (0..COUNT).map(|i| i % 3 == 1).collect()
    }

    #[test]
    fn the_receiver_gets_the_chosen_key_only() {
        let run = two_parties::run(run_sender, run_receiver);
        let (pairs, sender_transcript) = run.first.as_ref().unwrap();
        let (chosen, receiver_transcript) = run.second.as_ref().unwrap();
        assert_eq!(sender_transcript, receiver_transcript);
        let mut all = std::collections::HashSet::new();
        for ((pair, key), choice) in pairs.iter().zip(chosen).zip(choices()) {
            assert!(**key == *pair[usize::from(choice)]);
            assert!(all.insert(*pair[0]) && all.insert(*pair[1]), "all keys differ");
        }
        assert_eq!((run.traffic.sent, run.traffic.received, run.traffic.rounds), (32, 32 * COUNT as u64, 1));
        assert_eq!(run.digest(), "f41cb345c7050f752df6f96f10bebdbb392868cc8ee181f0a04c426ffda84646");
    }

    fn misbehaved<T>(result: Result<T, OtError>, rule: &str) {
        match result {
            Err(OtError::PeerMisbehaved { protocol: "base OT", what }) => {
                assert!(what.contains(rule), "{what}")
            }
            Err(other) => panic!("another error: {other}"),
            Ok(_) => panic!("no error"),
        }
    }

    #[test]
    fn malformed_points_are_errors() {
        // 2^255 − 1 is no canonical field element; 1 is one, but negative (odd), so no encoding either.
        for bytes in [[0xff; 32], std::array::from_fn(|i| u8::from(i == 0))] {
            let lie = |chan: &mut Channel| {
                for _ in 0..COUNT {
                    let _ = chan.send(&bytes);
                }
                let _ = chan.flush();
            };
            misbehaved(two_parties::run(run_receiver, lie).first, "no point");
            let lie = |chan: &mut Channel| {
                let mut point = [0; 32];
                chan.recv_into(&mut point).unwrap();
                for _ in 0..COUNT - 1 {
                    let _ = chan.send(RistrettoPoint::mul_base(&Scalar::from(5u8)).compress().as_bytes());
                }
                let _ = chan.send(&bytes);
                let _ = chan.flush();
            };
            misbehaved(two_parties::run(run_sender, lie).first, "no point");
        }
    }

    #[test]
    fn the_identity_as_the_senders_point_is_an_error() {
        // All keys of both choices would be equal.
        let lie = |chan: &mut Channel| chan.send(&[0; 32]).and_then(|()| chan.flush());
        misbehaved(two_parties::run(run_receiver, lie).first, "identity");
    }

    #[test]
    fn a_peer_that_stops_is_an_error() {
        let stop = |chan: &mut Channel| {
            let _ = chan.send(&[7; 31]);
            let _ = chan.flush();
        };
        assert!(matches!(two_parties::run(run_receiver, stop).first, Err(OtError::Wire(_))));
        assert!(matches!(two_parties::run(run_sender, stop).first, Err(OtError::Wire(_))));
    }
}
