// The plain integer product of a linear layer, modulo 2^64, for NVIDIA GPUs.
//
//     out[group][output][place] = sum over terms t of weights[group][output][t] * x[group * group_step + bases[place] + terms[t]]
//
// Compiled to product.ptx by tools/gpu_kernel.py; it includes nothing. tests/ptx.rs runs that file, instruction by
// instruction.
//
// Arithmetic. No GPU multiplies 64-bit words in one instruction, but weights have at most 31 bits and a sign. So a word
// x is taken apart into two limbs, x = high * 2^32 + low with low *signed*: low = (int) x, high = (x - low) >> 32. Then
//
//     w * x = w * low + ((w * high mod 2^32) << 32)    modulo 2^64
//
// is a widening and a narrow multiply-add of 32 bits, one instruction each (IMAD.WIDE, IMAD). The narrow sums are
// shifted and added to the wide ones once, at the end.

#define DEVICE __attribute__((device))
#define KERNEL extern "C" __attribute__((global))
#define SHARED __attribute__((shared))

typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// A block makes TILE outputs at TILE places; each of its SIDE * SIDE threads PER * PER of these.
#define TILE 64
#define SIDE 16
#define PER 4
// Terms that are held in shared memory at once.
#define DEPTH 16

static DEVICE inline u32 thread_x() { return __nvvm_read_ptx_sreg_tid_x(); }
static DEVICE inline u32 thread_y() { return __nvvm_read_ptx_sreg_tid_y(); }
static DEVICE inline u32 block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
static DEVICE inline u32 block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
static DEVICE inline u32 block_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }

static DEVICE inline i32 low_limb(u64 x) { return (i32)(u32)x; }
static DEVICE inline i32 high_limb(u64 x) { return (i32)(u32)((x - (u64)(i64)low_limb(x)) >> 32); }

SHARED i32 tile_weights[DEPTH][TILE];
SHARED i32 tile_low[DEPTH][TILE];
SHARED i32 tile_high[DEPTH][TILE];

// Grid: (places / TILE, outputs / TILE, groups), rounded up. Block: (SIDE, SIDE).
KERNEL void product_tiled(const i32 *weights, const u64 *x, const u32 *terms, const u32 *bases, u64 *out, u32 n_outputs,
                          u32 n_terms, u32 n_places, u32 group_step) {
    u32 group = block_z();
    u32 first_output = block_y() * TILE, first_place = block_x() * TILE;
    u32 column = thread_x(), row = thread_y();
    const i32 *group_weights = weights + (u64)group * n_outputs * n_terms;
    const u64 *group_x = x + (u64)group * group_step;

    i64 wide[PER][PER];
    i32 narrow[PER][PER];
#pragma unroll
    for (u32 i = 0; i < PER; i++)
#pragma unroll
        for (u32 j = 0; j < PER; j++) {
            wide[i][j] = 0;
            narrow[i][j] = 0;
        }

    for (u32 from = 0; from < n_terms; from += DEPTH) {
        // Each thread fetches PER weights and PER words. Beyond the ends there are zeros.
#pragma unroll
        for (u32 i = 0; i < PER; i++) {
            u32 at = row * SIDE + column + i * SIDE * SIDE;
            // Terms lie side by side in memory for weights,
            u32 term = at % DEPTH, output = at / DEPTH;
            i32 w = 0;
            if (from + term < n_terms && first_output + output < n_outputs)
                w = group_weights[(u64)(first_output + output) * n_terms + from + term];
            tile_weights[term][output] = w;
            // and places for words.
            u32 place = at % TILE, depth = at / TILE;
            u64 word = 0;
            if (from + depth < n_terms && first_place + place < n_places)
                word = group_x[(u64)bases[first_place + place] + terms[from + depth]];
            tile_low[depth][place] = low_limb(word);
            tile_high[depth][place] = high_limb(word);
        }
        __nvvm_bar_sync(0);
#pragma unroll
        for (u32 term = 0; term < DEPTH; term++) {
#pragma unroll
            for (u32 i = 0; i < PER; i++) {
                i32 w = tile_weights[term][row + i * SIDE];
#pragma unroll
                for (u32 j = 0; j < PER; j++) {
                    wide[i][j] += (i64)w * tile_low[term][column + j * SIDE];
                    narrow[i][j] += w * tile_high[term][column + j * SIDE];
                }
            }
        }
        __nvvm_bar_sync(0);
    }

#pragma unroll
    for (u32 i = 0; i < PER; i++)
#pragma unroll
        for (u32 j = 0; j < PER; j++) {
            u32 output = first_output + row + i * SIDE, place = first_place + column + j * SIDE;
            if (output < n_outputs && place < n_places)
                out[((u64)group * n_outputs + output) * n_places + place] =
                    (u64)wide[i][j] + ((u64)(u32)narrow[i][j] << 32);
        }
}

// For groups of few outputs (depthwise layers): a thread makes one value. Grid: (places / (SIDE * SIDE), outputs,
// groups), rounded up. Block: (SIDE * SIDE).
KERNEL void product_narrow(const i32 *weights, const u64 *x, const u32 *terms, const u32 *bases, u64 *out, u32 n_outputs,
                           u32 n_terms, u32 n_places, u32 group_step) {
    u32 group = block_z(), output = block_y(), place = block_x() * SIDE * SIDE + thread_x();
    if (place >= n_places) return;
    const i32 *row = weights + ((u64)group * n_outputs + output) * n_terms;
    const u64 *from = x + (u64)group * group_step + bases[place];
    i64 wide = 0;
    i32 narrow = 0;
    for (u32 term = 0; term < n_terms; term++) {
        i32 w = row[term];
        u64 word = from[terms[term]];
        wide += (i64)w * low_limb(word);
        narrow += w * high_limb(word);
    }
    out[((u64)group * n_outputs + output) * n_places + place] = (u64)wide + ((u64)(u32)narrow << 32);
}
