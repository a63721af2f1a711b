//! Every vector operation against the single lane of [`Portable`], on random and extreme lanes.

use super::*;
use crate::prg::Prg;

/// Words with extreme values among them.
fn test_lines(label: &str) -> [Line; 2] {
    let mut prg = Prg::derive(&[7; 32], label, &[]);
    let mut lines = [Line::ZERO; 2];
    for word in words_mut(&mut lines) {
        *word = match prg.next_u64() % 8 {
            0 => u32::MAX,
            1 => 0,
            2 => 0x8000_0000,
            3 => 0x7fff_8000,
            _ => prg.next_u64() as u32,
        };
    }
    lines
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn lanes_of<S: Simd>(simd: S, value: S::V) -> Vec<u32> {
    let mut lines = [Line::ZERO; 1];
    simd.view_mut(&mut lines)[0] = value;
    words(&lines)[..S::LANES].to_vec()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn words_of<S: Simd>(simd: S, value: S::W) -> Vec<u64> {
    let mut out = vec![0; S::LANES];
    simd.store_words(&mut out, value);
    out
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn matches_the_single_lane<S: Lanes16>(simd: S) {
    let one = Portable;
    for round in 0..64 {
        let (a_lines, b_lines) = (test_lines(&format!("a{round}")), test_lines(&format!("b{round}")));
        let (av, bv) = (simd.view(&a_lines)[0], simd.view(&b_lines)[0]);
        let (a, b) = (&words(&a_lines)[..S::LANES], &words(&b_lines)[..S::LANES]);
        let each =
            |f: &dyn Fn(u32, u32) -> u32| -> Vec<u32> { a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect() };

        assert_eq!(lanes_of(simd, simd.add(av, bv)), each(&|a, b| one.add(a, b)));
        assert_eq!(lanes_of(simd, simd.sub(av, bv)), each(&|a, b| one.sub(a, b)));
        assert_eq!(lanes_of(simd, simd.min(av, bv)), each(&|a, b| one.min(a, b)));
        assert_eq!(each(&|a, b| one.min(a, b)), each(&|a, b| a.min(b)));
        assert_eq!(lanes_of(simd, simd.mul_lo(av, bv)), each(&|a, b| one.mul_lo(a, b)));
        assert_eq!(lanes_of(simd, simd.mul_hi(av, bv)), each(&|a, b| one.mul_hi(a, b)));
        assert_eq!(lanes_of(simd, simd.and(av, bv)), each(&|a, b| a & b));
        assert_eq!(lanes_of(simd, simd.shr16_signed(av)), each(&|a, _| ((a as i32) >> 16) as u32));
        assert_eq!(lanes_of(simd, simd.splat(a[3])), vec![a[3]; S::LANES]);

        assert_eq!(lanes_of(simd, simd.add16(av, bv)), each(&|a, b| one.add16(a, b)));
        assert_eq!(lanes_of(simd, simd.sub16(av, bv)), each(&|a, b| one.sub16(a, b)));
        assert_eq!(lanes_of(simd, simd.min16(av, bv)), each(&|a, b| one.min16(a, b)));
        assert_eq!(lanes_of(simd, simd.mul_lo16(av, bv)), each(&|a, b| one.mul_lo16(a, b)));
        assert_eq!(lanes_of(simd, simd.mul_hi16(av, bv)), each(&|a, b| one.mul_hi16(a, b)));
        assert_eq!(lanes_of(simd, simd.xor(av, bv)), each(&|a, b| a ^ b));
        assert_eq!(lanes_of(simd, simd.shr28_signed(av)), each(&|a, _| ((a as i32) >> 28) as u32));
        assert_eq!(lanes_of(simd, simd.shl16(av)), each(&|a, _| a << 16));
        let high: Vec<u32> = [a, b].concat().chunks(2).map(|pair| one.pack_high(pair[0], pair[1])).collect();
        assert_eq!(lanes_of(simd, simd.pack_high(av, bv)), high);
        let joined: Vec<u64> = a.iter().zip(b).map(|(&a, &b)| one.join_words(a, b)).collect();
        assert_eq!(words_of(simd, simd.join_words(av, bv)), joined);

        let (x, y) = simd.zip(av, bv);
        let zipped: Vec<u32> = a.iter().zip(b).flat_map(|(&a, &b)| [a, b]).collect();
        assert_eq!([lanes_of(simd, x), lanes_of(simd, y)].concat(), zipped);
        let (x, y) = simd.unzip(x, y);
        assert_eq!((lanes_of(simd, x), lanes_of(simd, y)), (a.to_vec(), b.to_vec()));

        let wide: Vec<u64> = a.iter().zip(b).map(|(&a, &b)| (a as u64) << 32 | b as u64).collect();
        let w = simd.load_words(&wide);
        assert_eq!(words_of(simd, w), wide);
        let (low, high) = simd.split_words(w);
        assert_eq!((lanes_of(simd, low), lanes_of(simd, high)), (b.to_vec(), a.to_vec()));
        let swapped: Vec<u64> = wide.iter().map(|w| w.rotate_left(29)).collect();
        let v = simd.load_words(&swapped);
        let each = |f: &dyn Fn(u64, u64) -> u64| -> Vec<u64> {
            wide.iter().zip(&swapped).map(|(&a, &b)| f(a, b)).collect()
        };
        assert_eq!(words_of(simd, simd.add_words(w, v)), each(&|a, b| one.add_words(a, b)));
        assert_eq!(words_of(simd, simd.and_words(w, v)), each(&|a, b| one.and_words(a, b)));
        assert_eq!(words_of(simd, simd.mul_words(w, v)), each(&|a, b| one.mul_words(a, b)));
        assert_eq!(words_of(simd, simd.mul_low_words(w, v)), each(&|a, b| a.wrapping_mul(b)));
        assert_eq!(words_of(simd, simd.shl_words::<16>(w)), each(&|a, _| a << 16));
        assert_eq!(words_of(simd, simd.shl_words::<48>(w)), each(&|a, _| a << 48));
        assert_eq!(words_of(simd, simd.splat_word(wide[1])), vec![wide[1]; S::LANES]);
        let unsigned: Vec<u64> = a.iter().map(|&a| one.widen(a)).collect();
        assert_eq!(words_of(simd, simd.widen(av)), unsigned);
        let signed: Vec<u64> = a.iter().map(|&a| a as i32 as i64 as u64).collect();
        assert_eq!(words_of(simd, simd.widen_signed(av)), signed);

        // The order of spread lanes shows in nothing but what is joined again: here of products and differences.
        let (x, y) = (simd.spread(av), simd.spread(bv));
        let product = simd.mul_words(x, y);
        let high = |f: &dyn Fn(u64, u64) -> u64| -> Vec<u32> {
            a.iter().zip(b).map(|(&a, &b)| one.join_high(f(one.spread(a), one.spread(b)))).collect()
        };
        assert_eq!(lanes_of(simd, simd.join_high(product)), high(&|a, b| one.mul_words(a, b)));
        let twice = simd.sub_words(simd.mul_words(y, y), product);
        let difference = high(&|a, b| one.sub_words(one.mul_words(b, b), one.mul_words(a, b)));
        assert_eq!(lanes_of(simd, simd.join_high(twice)), difference);
        let modulus = (a[5] as u64) << 32;
        let reduced = simd.reduce_high(w, simd.splat_word(modulus));
        let expected: Vec<u64> = wide.iter().map(|&w| if w >= modulus { w - modulus } else { w }).collect();
        assert_eq!(words_of(simd, reduced), expected);
        assert_eq!(
            words_of(simd, reduced),
            wide.iter().map(|&w| one.reduce_high(w, modulus)).collect::<Vec<_>>()
        );

        // Weights are never -2^15 on both sides of a pair, the one case in which a dot product is not exact.
        let limited: Vec<u32> = b.iter().map(|&b| if b == 0x8000_8000 { 1 } else { b }).collect();
        let mut limited_lines = [Line::ZERO; 2];
        words_mut(&mut limited_lines)[..S::LANES].copy_from_slice(&limited);
        let sum: Vec<u32> = (0..S::LANES)
            .map(|i| {
                let (low, high) = (
                    a[i] as i16 as i64 * limited[i] as i16 as i64,
                    (a[i] as i32 as i64 >> 16) * (limited[i] as i32 as i64 >> 16),
                );
                (b[i] as i64 + low + high) as u32
            })
            .collect();
        assert_eq!(lanes_of(simd, simd.dot(bv, av, simd.view(&limited_lines)[0])), sum);

        let together = [a, b].concat();
        assert_eq!(lanes_of(simd, simd.load(&together[1..])), together[1..][..S::LANES]);

        let (left, right): (&[i16], &[i16]) =
            (bytemuck::cast_slice(&a_lines), bytemuck::cast_slice(&b_lines));
        let (x, y) = simd.pair_up(left, right);
        let pairs: Vec<u32> = left
            .iter()
            .zip(right)
            .take(2 * S::LANES)
            .map(|(&a, &b)| a as u16 as u32 | (b as u16 as u32) << 16)
            .collect();
        assert_eq!([lanes_of(simd, x), lanes_of(simd, y)].concat(), pairs);

        // Two terms have an order of their own, which shows in no sum.
        let weight = simd.splat(limited[round % S::LANES]);
        let (x, y) = (simd.dot(av, x, weight), simd.dot(bv, y, weight));
        let (first, second) = simd.two_terms(left, right);
        let terms = [simd.dot_terms(av, first, weight), simd.dot_terms(bv, second, weight)];
        let one = simd.dot_terms(bv, simd.terms_of(av), weight);
        assert_eq!(lanes_of(simd, one), lanes_of(simd, simd.dot(bv, av, weight)));
        assert_eq!(terms.map(|sum| lanes_of(simd, sum)), [x, y].map(|sum| lanes_of(simd, sum)));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn avx2_matches_the_single_lane() {
    if let Some(simd) = Avx2::of(crate::cpu::Cpu::detect()) {
        matches_the_single_lane(simd);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn avx512_matches_the_single_lane() {
    if let Some(simd) = Avx512::of(crate::cpu::Cpu::detect()) {
        matches_the_single_lane(simd);
    }
}

#[cfg(target_arch = "aarch64")]
#[test]
fn neon_matches_the_single_lane() {
    matches_the_single_lane(
        Neon::of(crate::cpu::Cpu::detect()).expect("every 64-bit Arm target of Rust's has it"),
    );
}

#[test]
fn wipe_clears() {
    let mut lines = test_lines("wipe");
    wipe(&mut lines);
    assert!(words(&lines).iter().all(|&word| word == 0));
}

/// The single lane's 16-bit halves against arithmetic on them, and its dot product.
#[test]
fn the_single_lane_has_two_halves() {
    let one = Portable;
    let edges = [0u16, 1, 2, 0x7fff, 0x8000, 0x8001, 0xffff, 12289];
    for low in edges {
        for high in edges {
            for other in edges {
                let a = u32::from(low) | u32::from(high) << 16;
                let b = u32::from(other) | u32::from(low) << 16;
                let each =
                    |f: &dyn Fn(u16, u16) -> u16| u32::from(f(low, other)) | u32::from(f(high, low)) << 16;
                assert_eq!(one.add16(a, b), each(&u16::wrapping_add));
                assert_eq!(one.sub16(a, b), each(&u16::wrapping_sub));
                assert_eq!(one.min16(a, b), each(&std::cmp::min));
                assert_eq!(one.mul_lo16(a, b), each(&u16::wrapping_mul));
                assert_eq!(one.mul_hi16(a, b), each(&|x, y| ((u32::from(x) * u32::from(y)) >> 16) as u16));
                let dot = i64::from(low as i16) * i64::from(other as i16)
                    + i64::from(high as i16) * i64::from(low as i16)
                    + i64::from(a);
                assert_eq!(one.dot(a, a, b), dot as u32);
                assert_eq!(one.pack_high(a, b), a >> 16 | (b >> 16) << 16);
            }
        }
    }
}
