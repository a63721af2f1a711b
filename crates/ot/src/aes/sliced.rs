//! AES on eight blocks at once, bit by bit, in 128-bit registers that have no AES instruction: WebAssembly's.
//!
//! Register i holds bit i of every byte: its byte p has that of byte p of eight blocks, a bit each. SubBytes is the circuit of Boyar
//! and Peralta (*A depth-16 circuit for the AES S-box*, ePrint 2011/332); ShiftRows and MixColumns move whole bytes. There are no
//! branches and no addresses that depend on data.
//!
//! Elsewhere it is compiled for tests only, over the scalar twin of the registers.

use super::eight::{EIGHT, Eight, ROUNDS, add};
use crate::Block;
pub(crate) use register::Register;

#[cfg(target_arch = "wasm32")]
mod register {
    use std::arch::wasm32::{
        i8x16_shuffle, i8x16_swizzle, i32x4_shuffle, i64x2_shuffle, u8x16, u8x16_splat, u32x4_splat, u64x2,
        u64x2_extmul_high_u32x4, u64x2_extmul_low_u32x4, u64x2_shl, u64x2_shr, v128, v128_and, v128_xor,
    };

    use crate::Block;

    /// WebAssembly's.
    #[derive(Clone, Copy)]
    pub(crate) struct Register(v128);

    impl Register {
        #[inline(always)]
        pub fn of(block: Block) -> Self {
            Self(bytemuck::must_cast(block))
        }

        #[inline(always)]
        pub fn block(self) -> Block {
            bytemuck::must_cast(self.0)
        }

        #[inline(always)]
        pub fn bytes(byte: u8) -> Self {
            Self(u8x16_splat(byte))
        }

        #[inline(always)]
        pub fn xor(self, other: Self) -> Self {
            Self(v128_xor(self.0, other.0))
        }

        #[inline(always)]
        pub fn and(self, other: Self) -> Self {
            Self(v128_and(self.0, other.0))
        }

        #[inline(always)]
        pub fn left(self, bits: u32) -> Self {
            Self(u64x2_shl(self.0, bits))
        }

        #[inline(always)]
        pub fn right(self, bits: u32) -> Self {
            Self(u64x2_shr(self.0, bits))
        }

        #[inline(always)]
        pub fn shift_rows(self) -> Self {
            // (The compiler makes a shuffle of it, whose places V8 makes anew each time: some five instructions more.)
            Self(i8x16_swizzle(self.0, u8x16(0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11)))
        }

        #[inline(always)]
        pub fn shift_rows_and_one_down(self) -> Self {
            Self(i8x16_swizzle(self.0, u8x16(5, 10, 15, 0, 9, 14, 3, 4, 13, 2, 7, 8, 1, 6, 11, 12)))
        }

        #[inline(always)]
        pub fn two_down(self) -> Self {
            Self(i8x16_shuffle::<2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13>(self.0, self.0))
        }

        #[inline(always)]
        pub fn sigma(self) -> Self {
            let high = v128_and(self.0, u64x2(0, u64::MAX));
            Self(v128_xor(i64x2_shuffle::<1, 0>(self.0, self.0), high))
        }

        #[inline(always)]
        pub fn below(self, bound: u32) -> Self {
            let bound = u32x4_splat(bound);
            let (low, high) = (u64x2_extmul_low_u32x4(self.0, bound), u64x2_extmul_high_u32x4(self.0, bound));
            Self(i32x4_shuffle::<1, 3, 5, 7>(low, high))
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod register {
    use crate::Block;

    /// The scalar twin.
    #[derive(Clone, Copy)]
    pub(crate) struct Register(u128);

    impl Register {
        pub fn of(block: Block) -> Self {
            Self(block.0)
        }

        pub fn block(self) -> Block {
            Block(self.0)
        }

        /// The same byte sixteen times.
        pub fn bytes(byte: u8) -> Self {
            Self(u128::from_le_bytes([byte; 16]))
        }

        pub fn xor(self, other: Self) -> Self {
            Self(self.0 ^ other.0)
        }

        pub fn and(self, other: Self) -> Self {
            Self(self.0 & other.0)
        }

        /// Shifts each half.
        pub fn left(self, bits: u32) -> Self {
            self.halves(|half| half << bits)
        }

        /// Shifts each half.
        pub fn right(self, bits: u32) -> Self {
            self.halves(|half| half >> bits)
        }

        fn halves(self, f: impl Fn(u64) -> u64) -> Self {
            Self(u128::from(f((self.0 >> 64) as u64)) << 64 | u128::from(f(self.0 as u64)))
        }

        /// Byte 4·c + r of the state is in row r of column c, and comes from column c + r.
        pub fn shift_rows(self) -> Self {
            self.moved(|column, row| 4 * ((column + row) % 4) + row)
        }

        /// Then each row has what was in the one below.
        pub fn shift_rows_and_one_down(self) -> Self {
            self.moved(|column, row| 4 * ((column + (row + 1) % 4) % 4) + (row + 1) % 4)
        }

        /// Each row has what was two below.
        pub fn two_down(self) -> Self {
            self.moved(|column, row| 4 * column + (row + 2) % 4)
        }

        fn moved(self, from: impl Fn(usize, usize) -> usize) -> Self {
            let bytes = self.0.to_le_bytes();
            Self(u128::from_le_bytes(std::array::from_fn(|i| bytes[from(i / 4, i % 4)])))
        }

        /// The halves (high, low) become (high ⊕ low, high).
        pub fn sigma(self) -> Self {
            let (high, low) = ((self.0 >> 64) as u64, self.0 as u64);
            Self(u128::from(high ^ low) << 64 | u128::from(high))
        }

        /// Each 32-bit word w becomes ⌊w·`bound` / 2^32⌋.
        pub fn below(self, bound: u32) -> Self {
            let words: [u32; 4] = bytemuck::must_cast(self.0);
            Self(bytemuck::must_cast(words.map(|w| ((u64::from(w) * u64::from(bound)) >> 32) as u32)))
        }
    }
}

/// Turns eight blocks into registers of one bit of each byte, and back.
#[inline(always)]
fn transpose(q: &mut [Register; EIGHT]) {
    for (distance, mask) in [(1, 0x55), (2, 0x33), (4, 0x0f)] {
        let mask = Register::bytes(mask);
        for i in (0..EIGHT).filter(|i| i & distance == 0) {
            let moved = q[i].right(distance as u32).xor(q[i + distance]).and(mask);
            q[i + distance] = q[i + distance].xor(moved);
            q[i] = q[i].xor(moved.left(distance as u32));
        }
    }
}

/// SubBytes but for the constant 0x63, which is in the round keys. Names are the paper's: x0 and s0 are the highest bits.
#[inline(always)]
#[rustfmt::skip]
fn sub_bytes([x7, x6, x5, x4, x3, x2, x1, x0]: [Register; EIGHT]) -> [Register; EIGHT] {
    let x = Register::xor;
    let a = Register::and;
    // The linear part in front.
    let (y14, y13, y9, y8, t0) = (x(x3, x5), x(x0, x6), x(x0, x3), x(x0, x5), x(x1, x2));
    let y1 = x(t0, x7);
    let (y4, y12, y2, y5) = (x(y1, x3), x(y13, y14), x(y1, x0), x(y1, x6));
    let (y3, t1) = (x(y5, y8), x(x4, y12));
    let (y15, y20) = (x(t1, x5), x(t1, x1));
    let (y6, y10, y11) = (x(y15, x7), x(y15, t0), x(y20, y9));
    let (y7, y17, y19, y16) = (x(x7, y11), x(y10, y11), x(y10, y8), x(t0, y11));
    let (y21, y18) = (x(y13, y16), x(x0, y16));
    // The inversion.
    let (t2, t7, t12) = (a(y12, y15), a(y13, y16), a(y9, y11));
    let (t4, t6) = (x(a(y3, y6), t2), x(a(y4, x7), t2));
    let (t9, t11) = (x(a(y5, y1), t7), x(a(y2, y7), t7));
    let (t14, t16) = (x(a(y14, y17), t12), x(a(y8, y10), t12));
    let (t21, t22) = (x(x(t4, t14), y20), x(x(t6, t16), y19));
    let (t23, t24) = (x(x(t9, t14), y21), x(x(t11, t16), y18));
    let (t25, t26, t30) = (x(t21, t22), a(t21, t23), x(t23, t24));
    let t27 = x(t24, t26);
    let t29 = x(a(t25, t27), t22);
    let t33 = x(a(x(t22, t26), t30), t24);
    let t36 = a(t24, x(t27, t33));
    let t37 = x(t36, x(t23, t33));
    let t40 = x(t25, a(t29, x(t27, t36)));
    let (t41, t42, t43, t44) = (x(t40, t37), x(t29, t33), x(t29, t40), x(t33, t37));
    let t45 = x(t42, t41);
    let (z0, z1, z2, z3, z4, z5) = (a(t44, y15), a(t37, y6), a(t33, x7), a(t43, y16), a(t40, y1), a(t29, y7));
    let (z6, z7, z8, z9, z10, z11) = (a(t42, y11), a(t45, y17), a(t41, y10), a(t44, y12), a(t37, y3), a(t33, y4));
    let (z12, z13, z14, z15, z16, z17) = (a(t43, y13), a(t40, y5), a(t29, y2), a(t42, y9), a(t45, y14), a(t41, y8));
    // The linear part behind.
    let (t46, t48, t50, t53, t54) = (x(z15, z16), x(z5, z13), x(z2, z12), x(z0, z3), x(z6, z7));
    let (t57, t58, t59) = (x(t50, t53), x(z4, t46), x(z3, t54));
    let (t60, t61, t62, t63) = (x(t46, t57), x(z14, t57), x(x(z7, z8), t58), x(x(z9, z10), t58));
    let (t64, t65, t66) = (x(z4, t59), x(t61, t62), x(z1, t63));
    let s3 = x(t53, t66);
    let (s0, s6, s7) = (x(t59, t63), x(x(z12, t48), t62), x(t48, t60));
    let (s4, s5, s1) = (x(x(z2, z5), t66), x(x(z10, z11), t65), x(t64, s3));
    let s2 = x(x(z16, z17), x(t64, t65));
    [s7, s6, s5, s4, s3, s2, s1, s0]
}

#[inline(always)]
fn mix_columns(s: [Register; EIGHT]) -> [Register; EIGHT] {
    let below = s.map(Register::shift_rows_and_one_down);
    let sum: [Register; EIGHT] = std::array::from_fn(|i| s[i].shift_rows().xor(below[i]));
    // Twice the sum, in the field: what falls out at the top comes in at the bits of 0x1b.
    let twice = |i: usize| match i {
        0 => sum[7],
        1 | 3 | 4 => sum[i - 1].xor(sum[7]),
        _ => sum[i - 1],
    };
    std::array::from_fn(|i| twice(i).xor(below[i]).xor(sum[i].two_down()))
}

impl Eight for Register {
    /// The round keys, as registers hold them, those of all rounds with SubBytes' constant in them.
    type Schedule = [[Self; EIGHT]; ROUNDS + 1];

    fn schedule(keys: [[Block; EIGHT]; ROUNDS + 1]) -> Self::Schedule {
        let mut round = 0;
        keys.map(|keys| {
            let constant = Self::bytes(if round == 0 { 0 } else { 0x63 });
            round += 1;
            let mut q = keys.map(|key| Self::of(key).xor(constant));
            transpose(&mut q);
            q
        })
    }

    fn permute(keys: &Self::Schedule, mut q: [Self; EIGHT]) -> [Self; EIGHT] {
        transpose(&mut q);
        q = add(q, &keys[0]);
        for key in &keys[1..ROUNDS] {
            q = add(mix_columns(sub_bytes(q)), key);
        }
        q = add(sub_bytes(q).map(Register::shift_rows), &keys[ROUNDS]);
        transpose(&mut q);
        q
    }

    #[inline(always)]
    fn of(block: Block) -> Self {
        Self::of(block)
    }

    #[inline(always)]
    fn block(self) -> Block {
        self.block()
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self.xor(other)
    }

    #[inline(always)]
    fn sigma(self) -> Self {
        self.sigma()
    }

    #[inline(always)]
    fn below(self, bound: u32) -> Self {
        self.below(bound)
    }
}
