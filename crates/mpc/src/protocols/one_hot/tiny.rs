//! All randomness of small places: what each party sees is uniform, whatever the other one drew and holds.
//!
//! *Functionality.* A uniform r and shares of it and of e; the server knows ρ_s, the client ρ_c, with r = ρ_c ⊕ ρ_s. Then δ = i + r is
//! opened, where i is shared.
//!
//! *Moved*, a place among four: the client's view are its choices, its pads, what the server sent, and the server's share of δ. It must be the same for all
//! ρ_s and i_s. The server's view are its pads, of which ρ_s comes, and the client's share of δ.
//!
//! *Outer*, the same for the step from V to four times as many places, with strings of one bit. (The bits of a string have pads of their own.) Each party's view
//! must be the same for all V and all b0 and b1 of the other one's. So both together are: V is what the first step left.

use super::halves::FIRST;
use crate::kernels::lanes::{GROUP, Lanes, group_len, groups};
use crate::party::Pads;

/// Takes `bits` bits off a number.
fn take(from: &mut u64, bits: u32) -> u64 {
    let low = *from & ((1 << bits) - 1);
    *from >>= bits;
    low
}

/// Numbers of so many bits, packed into one, the first lowest; and how many bits it has.
fn packed(parts: impl IntoIterator<Item = (u64, u32)>) -> (u64, u32) {
    parts.into_iter().fold((0, 0), |(all, at), (part, bits)| {
        assert!(part >> bits == 0, "{part} in {bits} bits");
        (all | part << at, at + bits)
    })
}

/// Whether all of so many views that there may be come up equally often.
fn uniform(views: impl Iterator<Item = u64>, of: u32) -> bool {
    let mut counts = vec![0u32; 1 << of];
    views.for_each(|view| counts[view as usize] += 1);
    counts.iter().all(|&count| count == counts[0] && count > 0)
}

/// The pads that a receiver with these choices gets.
fn chosen(pads: &[Vec<jaguar_ot::Block>; 2], choices: &[bool]) -> Vec<jaguar_ot::Block> {
    let each = pads[0].iter().zip(&pads[1]).zip(choices);
    each.map(|((zero, one), &choice)| if choice { *one } else { *zero }).collect()
}

mod moved {
    use super::super::moved::*;
    use super::*;

    /// Bits of the pads that are used: of D, of the product (of the first OT only), and the highest.
    const USED: [u32; 2] = [2 + 1 + 1, 2 + 1];

    const FORM: Form = Form { k: 2, ring: 2 };

    /// Everything that both parties have of one OT, for all randomness side by side.
    struct Ot {
        pads: [Vec<jaguar_ot::Block>; 2],
        choices: Vec<bool>,
        halves: Vec<u64>,
        products: Vec<u64>,
    }

    /// A pad of so many bits, where the protocol looks for them.
    fn pad(bits: u64, used: u32) -> jaguar_ot::Block {
        let (d, top, product) = (bits & 3, bits >> 2 & 1, bits >> 3);
        assert!(product < 1 << (used - 3));
        jaguar_ot::Block(u128::from(d) << FIRST | u128::from(top) << 127 | u128::from(product))
    }

    /// The bits of a pad, as [`pad`] took them.
    fn bits_of(pad: jaguar_ot::Block) -> u64 {
        (pad.0 >> FIRST) as u64 & 3 | ((pad.0 >> 127) as u64) << 2 | (pad.0 as u64 & 1) << 3
    }

    /// One party's places, of all randomness.
    struct Places {
        e: Vec<[u64; 2]>,
        r: Vec<u16>,
    }

    impl Places {
        /// Its four bits.
        fn bits(&self, element: usize) -> u64 {
            let [low, high] = self.e[element];
            low | high << 2
        }
    }

    /// The protocol's own code on all randomness; ρ_s, and both parties' places. `weak` spoils the messages of an OT.
    fn all(weak: impl Fn(&mut Ot)) -> (Vec<Ot>, Vec<u64>, [Places; 2]) {
        let random: u32 = USED.iter().map(|used| 2 * used + 1).sum();
        let count = 1usize << random;
        let words = || vec![0u64; count];
        let mut ots: Vec<Ot> = USED
            .iter()
            .map(|_| Ot { pads: Default::default(), choices: Vec::new(), halves: words(), products: words() })
            .collect();
        for mut from in 0..1u64 << random {
            for (ot, &used) in ots.iter_mut().zip(&USED) {
                ot.pads.iter_mut().for_each(|pads| pads.push(pad(take(&mut from, used), used)));
                ot.choices.push(take(&mut from, 1) == 1);
            }
        }
        let mut rho = words();
        for (t, ot) in ots.iter().enumerate() {
            own_bits(t as u32, &ot.pads[0], &ot.pads[1], &mut rho);
        }
        let [mut client, mut server] = [0; 2].map(|_| Places { e: vec![[0; 2]; count], r: vec![0; count] });
        begin(FORM, &rho, &mut server.e);
        for (t, ot) in ots.iter_mut().enumerate() {
            let Ot { pads, choices, halves, products } = ot;
            let Places { e, r } = &mut server;
            let group = Group { e, r, rho: &mut rho, halves, products };
            group.absorb(&Pads::Sender(&pads[0], &pads[1]), FORM, t as u32);
            let own = chosen(pads, choices);
            let (mut halves, mut products, mut nothing) = (halves.clone(), products.clone(), words());
            let Places { e, r } = &mut client;
            let group = Group { e, r, rho: &mut nothing, halves: &mut halves, products: &mut products };
            group.absorb(&Pads::Receiver(&own, choices), FORM, t as u32);
            weak(ot);
        }
        for places in [&mut client, &mut server] {
            places.r.iter_mut().for_each(|r| *r %= 4);
        }
        (ots, rho, [client, server])
    }

    /// What the client sees of element e without δ, and of how many bits.
    fn of_client(ots: &[Ot], e: usize) -> (u64, u32) {
        packed(ots.iter().zip(&USED).flat_map(|(ot, &used)| {
            let choice = ot.choices[e];
            let own = bits_of(ot.pads[usize::from(choice)][e]);
            [(choice.into(), 1), (own, used), (ot.halves[e], 2), (ot.products[e], used - 3)]
        }))
    }

    /// Whether the client's view is uniform for all that the server drew and holds: of ρ_s, and of its share of i.
    fn client_learns_nothing(weak: impl Fn(&mut Ot)) -> bool {
        let (ots, rho, [_, server]) = all(weak);
        let bits = of_client(&ots, 0).1;
        (0..4).all(|drawn| {
            let own = || (0..rho.len()).filter(|&e| rho[e] == drawn);
            (0..4).all(|i| {
                // Once ρ_s is fixed the server's share of δ may follow from the view, but not i from both.
                let view = |e: usize| of_client(&ots, e).0 | (u64::from(server.r[e] + i) % 4) << bits;
                let alone = uniform(own().map(|e| of_client(&ots, e).0), bits);
                alone && uniform((0..rho.len()).map(view), bits + 2)
            })
        })
    }

    #[test]
    fn the_client_learns_nothing_of_the_place() {
        assert!(client_learns_nothing(|_| ()));
    }

    /// What the test must find: a message under one pad only, one without, and a product that is not masked.
    #[test]
    fn planted_weaknesses_are_found() {
        let d = |ot: &Ot, pad: usize, e: usize| bits_of(ot.pads[pad][e]) & 3;
        let each = |ot: &Ot| 0..ot.choices.len();
        assert!(!client_learns_nothing(|ot| each(ot).for_each(|e| ot.halves[e] ^= d(ot, 0, e))));
        assert!(
            !client_learns_nothing(|ot| each(ot).for_each(|e| ot.halves[e] ^= d(ot, 0, e) ^ d(ot, 1, e)))
        );
        assert!(!client_learns_nothing(|ot| each(ot).for_each(|e| {
            let [zero, one] = [0, 1].map(|pad| bits_of(ot.pads[pad][e]) >> 3);
            ot.products[e] ^= zero ^ one;
        })));
    }

    /// Of all that the server has, the client's share of δ is uniform, whatever the client holds; and the places are those of r.
    #[test]
    fn the_server_learns_nothing_and_the_place_is_right() {
        let (ots, rho, [client, server]) = all(|_| ());
        let pads = |e: usize| {
            let used = ots.iter().zip(&USED);
            packed(used.flat_map(|(ot, &used)| ot.pads.each_ref().map(|p| (bits_of(p[e]), used))))
        };
        let bits = pads(0).1;
        for i in 0..4 {
            let views = (0..rho.len()).map(|e| pads(e).0 | (u64::from(client.r[e] + i) % 4) << bits);
            assert!(uniform(views, bits + 2));
        }
        for (e, rho) in rho.iter().enumerate() {
            let chosen = u64::from(ots[0].choices[e]) | u64::from(ots[1].choices[e]) << 1;
            let r = u64::from(client.r[e] + server.r[e]) % 4;
            assert_eq!(r, chosen ^ rho);
            assert_eq!(client.bits(e) ^ server.bits(e), 1 << r);
        }
    }

    /// Each of the server's bits is one of its own.
    #[test]
    fn the_server_draws_every_bit() {
        let [high, low] = [1u128 << 127, 0].map(jaguar_ot::Block);
        for t in 0..9 {
            for (zero, one, set) in [(high, low, 1), (low, high, 1), (high, high, 0), (low, low, 0)] {
                let mut rho = [0];
                own_bits(t, &[zero], &[one], &mut rho);
                assert_eq!(rho, [set << t]);
            }
        }
    }
}

mod outer {
    use super::super::outer::*;
    use super::*;

    /// Strings of one bit: V is a bit, and four places are made of it.
    const FORM: Form = Form { low: 0 };

    /// Bits of the pads that are used, of the OTs from the server: of the string, of the product of bits, of the product for r.
    const TO: [u32; 3] = [1 + 1 + 1, 1 + 1, 1];

    /// And of those from the client: of the string.
    const FROM: [u32; 3] = [1; 3];

    /// A pad of so many bits, where the protocol looks for them.
    fn pad(bits: u64) -> jaguar_ot::Block {
        let [string, and, product] = [0, 1, 2].map(|bit| u128::from(bits >> bit & 1));
        jaguar_ot::Block(string << FIRST | and << AND | product)
    }

    /// The bits of a pad, as [`pad`] took them.
    fn bits_of(pad: jaguar_ot::Block) -> u64 {
        [FIRST, AND, 0].into_iter().enumerate().map(|(at, bit)| ((pad.0 >> bit) as u64 & 1) << at).sum()
    }

    /// One OT, for all randomness side by side.
    #[derive(Default)]
    struct Ot {
        pads: [Vec<jaguar_ot::Block>; 2],
        choices: Vec<bool>,
    }

    /// Which pads take all values, by bits of theirs; all choices do. The rest are zero.
    struct Drawn {
        to: [u32; 3],
        /// The bits of strings are left out of `to`.
        without_strings: bool,
        from: [u32; 3],
    }

    /// All that the client's view depends on: the server's messages do not depend on the pads that the client sends.
    const OF_CLIENT: Drawn = Drawn { to: TO, without_strings: false, from: [0; 3] };

    /// All that the server's view depends on: the client's messages do not depend on the pads of the server's strings.
    const OF_SERVER: Drawn =
        Drawn { to: [TO[0] - 1, TO[1] - 1, TO[2] - 1], without_strings: true, from: FROM };

    /// What both parties have, by element.
    struct Made {
        to: Vec<Ot>,
        from: Vec<Ot>,
        /// The server's messages: of b0, b1 and b2; for r; the strings.
        said: Vec<[u64; 3]>,
        products: Vec<u64>,
        strings: Vec<u64>,
        /// The client's.
        opened: Vec<u64>,
        answers: Vec<u64>,
        /// Places and r of the client and of the server.
        e: [Vec<u64>; 2],
        r: [Vec<u64>; 2],
    }

    /// The halves of b0 and b1 that these are.
    fn halves(ots: &[Ot], e: usize) -> u64 {
        u64::from(ots[0].choices[e]) | u64::from(ots[1].choices[e]) << 1
    }

    /// The protocol's own code on all randomness that is drawn, of such shares of V, the client's and the server's.
    fn all(drawn: &Drawn, v: [u64; 2]) -> Made {
        let used = || drawn.to.iter().chain(&drawn.from);
        let count = 1usize << used().map(|pad| 2 * pad + 1).sum::<u32>();
        let ots = || (0..3).map(|_| Ot::default()).collect::<Vec<_>>();
        let (mut to, mut from) = (ots(), ots());
        for mut random in 0..count as u64 {
            for (j, (ot, &bits)) in to.iter_mut().chain(&mut from).zip(used()).enumerate() {
                let skipped = u32::from(j < 3 && drawn.without_strings);
                ot.pads.iter_mut().for_each(|pads| pads.push(pad(take(&mut random, bits) << skipped)));
                ot.choices.push(take(&mut random, 1) == 1);
            }
        }
        let mut e = [0; 2].map(|_| vec![0u64; count]);
        let mut r = [0; 2].map(|_| vec![0u16; count]);
        let planes = |n: usize| vec![Lanes::ZERO; n * groups(count)];
        let (mut said, mut opened) = (planes(3), planes(1));
        let (mut products, mut strings) = (vec![0; count], vec![0; 3 * count]);
        let mut answers = Vec::new();
        for g in 0..groups(count) {
            let (at, len) = (g * GROUP, group_len(count, g));
            let range = at..at + len;
            let both = |ots: &[Ot]| -> Vec<[Vec<jaguar_ot::Block>; 2]> {
                ots.iter().map(|ot| ot.pads.each_ref().map(|pads| pads[range.clone()].to_vec())).collect()
            };
            let (pads_to, pads_from) = (both(&to), both(&from));
            let choices = |ots: &[Ot]| -> Vec<Vec<bool>> {
                ots.iter().map(|ot| ot.choices[range.clone()].to_vec()).collect()
            };
            let (choices_to, choices_from) = (choices(&to), choices(&from));
            let own = |pads: &[[Vec<jaguar_ot::Block>; 2]], choices: &[Vec<bool>]| -> Vec<Vec<_>> {
                pads.iter().zip(choices).map(|(pads, choices)| chosen(pads, choices)).collect()
            };
            let (own_to, own_from) = (own(&pads_to, &choices_to), own(&pads_from, &choices_from));
            fn sends(pads: &[[Vec<jaguar_ot::Block>; 2]]) -> [Pads<'_>; 3] {
                [0, 1, 2].map(|j| Pads::Sender(&pads[j][0], &pads[j][1]))
            }
            fn receives<'a>(pads: &'a [Vec<jaguar_ot::Block>], choices: &'a [Vec<bool>]) -> [Pads<'a>; 3] {
                [0, 1, 2].map(|j| Pads::Receiver(&pads[j], &choices[j]))
            }
            let [v_c, v_s] = v.map(|v| vec![[v, 0]; len]);
            let mut chosen_by_server = [Lanes::ZERO; 3];
            let group = Group {
                v: &v_s,
                e: &mut e[1][range.clone()],
                r: &mut r[1][range.clone()],
                said: &mut said[3 * g..][..3],
                products: &mut products[range.clone()],
                strings: &mut strings[3 * at..][..3 * len],
                opened: &mut Lanes::ZERO.clone(),
                chosen: &mut chosen_by_server,
            };
            group.absorb(FORM, &sends(&pads_to), &receives(&own_from, &choices_from));
            let mut sent = strings[3 * at..][..3 * len].to_vec();
            let group = Group {
                v: &v_c,
                e: &mut e[0][range.clone()],
                r: &mut r[0][range.clone()],
                said: &mut said[3 * g..][..3],
                products: &mut products[range.clone()],
                strings: &mut sent,
                opened: &mut opened[g],
                chosen: &mut [Lanes::ZERO; 3],
            };
            group.absorb(FORM, &receives(&own_to, &choices_to), &sends(&pads_from));
            answer(FORM, &mut e[1][range.clone()], &sent, &chosen_by_server, &opened[g]);
            answers.extend(sent);
        }
        let bit = |lanes: &[Lanes], of: usize, j: usize, i: usize| lanes[of * (i / GROUP) + j].bit(i % GROUP);
        Made {
            said: (0..count).map(|i| [0, 1, 2].map(|j| bit(&said, 3, j, i))).collect(),
            opened: (0..count).map(|i| bit(&opened, 1, 0, i)).collect(),
            to,
            from,
            products,
            strings,
            answers,
            e,
            r: r.map(|r| r.into_iter().map(|r| u64::from(r % 4)).collect()),
        }
    }

    /// Both parties' V.
    fn shares_of_v() -> impl Iterator<Item = [u64; 2]> {
        (0..4).map(|v| [v & 1, v >> 1])
    }

    /// The products are what they should be.
    #[track_caller]
    fn assert_right(made: &Made, [v_c, v_s]: [u64; 2]) {
        for i in 0..made.opened.len() {
            let b = halves(&made.to, i) ^ halves(&made.from, i);
            assert_eq!((made.r[0][i] + made.r[1][i]) % 4, b);
            assert_eq!(made.e[0][i] ^ made.e[1][i], (v_c ^ v_s) << b, "{b}");
        }
    }

    /// Whether the client's view, the server's share of δ with it, is uniform for all that the server drew and holds. `weak` spoils
    /// messages of the server's: those of b0, b1 and b2, for r, and the strings.
    fn client_learns_nothing(weak: impl Fn(&Made, usize) -> [u64; 3 + 1 + 3]) -> bool {
        shares_of_v().all(|v| {
            let made = all(&OF_CLIENT, v);
            assert_right(&made, v);
            let view = |i: usize| {
                let spoilt = weak(&made, i);
                let messages = made.said[i].into_iter().chain([made.products[i]]);
                let messages = messages.chain(made.strings[3 * i..][..3].iter().copied());
                let own = made.to.iter().zip(TO).flat_map(|(ot, used)| {
                    let choice = ot.choices[i];
                    [(choice.into(), 1), (bits_of(ot.pads[usize::from(choice)][i]), used)]
                });
                packed(own.chain(messages.zip(spoilt).map(|(message, spoilt)| (message ^ spoilt, 1))))
            };
            let (count, bits) = (made.opened.len(), view(0).1);
            (0..4).all(|drawn| {
                uniform((0..count).filter(|&i| halves(&made.from, i) == drawn).map(|i| view(i).0), bits)
            }) && (0..4).all(|i_s| {
                uniform((0..count).map(|i| view(i).0 | ((made.r[1][i] + i_s) % 4) << bits), bits + 2)
            })
        })
    }

    /// Whether the server's view is, the client's share of δ with it, for all that the client drew and holds. `weak` spoils what the client
    /// says of b2, and its strings.
    fn server_learns_nothing(weak: impl Fn(&Made, usize) -> [u64; 1 + 3]) -> bool {
        shares_of_v().all(|v| {
            let made = all(&OF_SERVER, v);
            assert_right(&made, v);
            let view = |i: usize| {
                let spoilt = weak(&made, i);
                let sent = made
                    .to
                    .iter()
                    .zip(OF_SERVER.to)
                    .flat_map(|(ot, used)| ot.pads.each_ref().map(|pads| (bits_of(pads[i]) >> 1, used)));
                let own = made.from.iter().zip(FROM).flat_map(|(ot, used)| {
                    let choice = ot.choices[i];
                    [(choice.into(), 1), (bits_of(ot.pads[usize::from(choice)][i]), used)]
                });
                let messages = [made.opened[i]].into_iter().chain(made.answers[3 * i..][..3].iter().copied());
                let messages = messages.zip(spoilt).map(|(message, spoilt)| (message ^ spoilt, 1));
                packed(sent.chain(own).chain(messages))
            };
            let (count, bits) = (made.opened.len(), view(0).1);
            (0..4).all(|drawn| {
                uniform((0..count).filter(|&i| halves(&made.to, i) == drawn).map(|i| view(i).0), bits)
            }) && (0..4).all(|i_c| {
                uniform((0..count).map(|i| view(i).0 | ((made.r[0][i] + i_c) % 4) << bits), bits + 2)
            })
        })
    }

    #[test]
    fn the_client_learns_nothing_of_v_and_the_servers_halves() {
        assert!(client_learns_nothing(|_, _| [0; 7]));
    }

    #[test]
    fn the_server_learns_nothing_of_v_and_the_clients_halves() {
        assert!(server_learns_nothing(|_, _| [0; 4]));
    }

    /// What the tests must find: each message without one of its pads, and without both.
    #[test]
    fn planted_weaknesses_are_found() {
        // Which bit of the pads of which OT masks each message of the server's; that of b2 is masked by a choice.
        let masked_by =
            [Some((0, 1)), Some((1, 1)), None, Some((0, 2)), Some((0, 0)), Some((1, 0)), Some((2, 0))];
        for (message, by) in masked_by.into_iter().enumerate() {
            for pads in [[1, 0], [0, 1], [1, 1]] {
                let found = !client_learns_nothing(|made, i| {
                    let mut spoilt = [0; 7];
                    spoilt[message] = match by {
                        Some((ot, bit)) => {
                            let bit = |pad: usize| bits_of(made.to[ot].pads[pad][i]) >> bit & pads[pad];
                            (bit(0) ^ bit(1)) & 1
                        }
                        None => made.from[2].choices[i].into(),
                    };
                    spoilt
                });
                assert!(found, "message {message} of the server's without {pads:?}");
            }
        }
        for message in 0..4 {
            for pads in [[1, 0], [0, 1], [1, 1]] {
                let found = !server_learns_nothing(|made, i| {
                    let mut spoilt = [0; 4];
                    spoilt[message] = match message.checked_sub(1) {
                        Some(ot) => {
                            let bit = |pad: usize| bits_of(made.from[ot].pads[pad][i]) & pads[pad];
                            bit(0) ^ bit(1)
                        }
                        None => made.to[2].choices[i].into(),
                    };
                    spoilt
                });
                assert!(found, "message {message} of the client's without {pads:?}");
            }
        }
    }
}
