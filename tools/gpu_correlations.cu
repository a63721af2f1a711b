// What a card would take for the server's share of preparing a query: the building blocks of correlated OT alone, without the
// protocol around them. It says whether a server with a card could be worth building (docs/gpu.md has the verdict).
//
//     nvcc -O3 -arch=native tools/gpu_correlations.cu -o correlations && ./correlations
//
// 1. *Rows*: 64 rows of the LPN matrix at a time. Ten places a row come from AES in counter mode (160 blocks for 64 rows), and ten
//    lines of 64 bytes of the secret are added to the row (four correlations). The secret is that of bins of 2,048: 156,300 lines,
//    10 MB, which stays in the card's L2 cache.
// 2. *Pads*: AES under one key of a half moved by 16 sums of keys, and three bits of each kept in a word: a vector's table.
//
// AES is by one table of 256 words, which every lane of a warp has for itself in shared memory. It is not constant-time towards who
// shares the card. FIPS-197's example is checked before anything is measured, and some rows against the processor.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using u32 = uint32_t;
using u64 = uint64_t;

constexpr int ROWS = 64, WEIGHT = 10, SEGMENT = 15630, PLACES = ROWS * WEIGHT / 4;

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        cudaError_t error = (call);                                                                   \
        if (error != cudaSuccess) { printf("%s: %s\n", #call, cudaGetErrorString(error)); exit(1); }  \
    } while (0)

struct Schedule { u32 words[44]; };

__constant__ Schedule the_key;
__constant__ u32 the_table[256];

// The S-box by its definition: the inverse in GF(2^8), then the affine map.
static uint8_t times(uint8_t a, uint8_t b) {
    uint8_t product = 0;
    for (; b; b >>= 1, a = (a << 1) ^ (a & 0x80 ? 0x1b : 0))
        if (b & 1) product ^= a;
    return product;
}

static uint8_t sbox(uint8_t x) {
    uint8_t inverse = 0;
    for (int y = 1; y < 256 && x; y++)
        if (times(x, y) == 1) inverse = y;
    uint8_t s = 0x63;
    for (int i = 0; i < 5; i++) s ^= uint8_t(inverse << i | inverse >> (8 - i));
    return s;
}

static u32 sub_word(u32 w) {
    u32 out = 0;
    for (int i = 0; i < 4; i++) out |= u32(sbox(w >> (8 * i))) << (8 * i);
    return out;
}

// Words are little-endian: byte 0 of a column is the lowest.
static Schedule schedule(const u32 key[4]) {
    Schedule s;
    uint8_t round = 1;
    for (int i = 0; i < 44; i++) {
        if (i < 4) { s.words[i] = key[i]; continue; }
        u32 w = s.words[i - 1];
        if (i % 4 == 0) {
            w = sub_word(w >> 8 | w << 24) ^ round;
            round = times(round, 2);
        }
        s.words[i] = s.words[i - 4] ^ w;
    }
    return s;
}

__host__ __device__ inline u32 turned(u32 w, int bytes) { return bytes ? w << (8 * bytes) | w >> (32 - 8 * bytes) : w; }

// `look(x)` is column (2·S(x), S(x), S(x), 3·S(x)).
template <class Look>
__host__ __device__ inline uint4 encrypt(const Schedule &key, uint4 block, Look look) {
    u32 s[4] = {block.x ^ key.words[0], block.y ^ key.words[1], block.z ^ key.words[2], block.w ^ key.words[3]};
#pragma unroll
    for (int round = 1; round < 10; round++) {
        u32 t[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            t[c] = look(s[c] & 255) ^ turned(look(s[(c + 1) & 3] >> 8 & 255), 1) ^ turned(look(s[(c + 2) & 3] >> 16 & 255), 2)
                 ^ turned(look(s[(c + 3) & 3] >> 24), 3) ^ key.words[4 * round + c];
#pragma unroll
        for (int c = 0; c < 4; c++) s[c] = t[c];
    }
    u32 t[4];
#pragma unroll
    for (int c = 0; c < 4; c++)
        t[c] = ((look(s[c] & 255) >> 8 & 255) | (look(s[(c + 1) & 3] >> 8 & 255) & 0xff00)
                | (look(s[(c + 2) & 3] >> 16 & 255) << 8 & 0xff0000) | (look(s[(c + 3) & 3] >> 24) << 16 & 0xff000000))
             ^ key.words[40 + c];
    return make_uint4(t[0], t[1], t[2], t[3]);
}

// For the processor.
struct Plain {
    const u32 *table;
    __host__ __device__ u32 operator()(u32 x) const { return table[x]; }
};

struct Shared { u32 words[256][32]; };

__device__ inline void share_table(Shared &table) {
    for (int i = threadIdx.x; i < 256 * 32; i += blockDim.x) table.words[i / 32][i % 32] = the_table[i / 32];
    __syncthreads();
}

__device__ inline uint4 plus(uint4 a, uint4 b) { return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w); }

__global__ void rows(const uint4 *secret, uint4 *out, int batches) {
    extern __shared__ char memory[];
    Shared &table = *reinterpret_cast<Shared *>(memory);
    u32 *places = reinterpret_cast<u32 *>(memory + sizeof(Shared));
    share_table(table);
    const int lane = threadIdx.x % 32;
    for (int batch = blockIdx.x; batch < batches; batch += gridDim.x) {
        if (threadIdx.x < PLACES) {
            uint4 block = encrypt(the_key, make_uint4(u32(batch) * PLACES + threadIdx.x, 0, 0, 0),
                                  [&](u32 x) { return table.words[x][lane]; });
            reinterpret_cast<uint4 *>(places)[threadIdx.x] = block;
        }
        __syncthreads();
        const int row = threadIdx.x / 4, part = threadIdx.x % 4;
        uint4 sum = out[(size_t(batch) * ROWS + row) * 4 + part];
#pragma unroll
        for (int w = 0; w < WEIGHT; w++) {
            u32 place = w * SEGMENT + __umulhi(places[w / 2 * 128 + 2 * row + w % 2], SEGMENT);
            sum = plus(sum, __ldg(secret + size_t(place) * 4 + part));
        }
        out[(size_t(batch) * ROWS + row) * 4 + part] = sum;
        __syncthreads();
    }
}

__global__ void tables(const uint4 *halves, const uint4 *sums, u64 *words, int count) {
    extern __shared__ char memory[];
    Shared &table = *reinterpret_cast<Shared *>(memory);
    share_table(table);
    const int lane = threadIdx.x % 32;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const uint4 half = halves[i];
        u64 word = 0;
#pragma unroll 1
        for (int v = 0; v < 16; v++) {
            uint4 moved = plus(half, sums[v]);
            uint4 pad = plus(moved, encrypt(the_key, moved, [&](u32 x) { return table.words[x][lane]; }));
            word |= u64(pad.x & 7) << (3 * v);
        }
        words[i] = word;
    }
}

template <class F>
static double milliseconds(F run) {
    cudaEvent_t from, to;
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    run();
    double best = 1e30;
    for (int i = 0; i < 7; i++) {
        float took;
        CHECK(cudaEventRecord(from));
        run();
        CHECK(cudaEventRecord(to));
        CHECK(cudaEventSynchronize(to));
        CHECK(cudaEventElapsedTime(&took, from, to));
        if (took < best) best = took;
    }
    return best;
}

int main() {
    std::vector<u32> table(256);
    for (int x = 0; x < 256; x++) {
        uint8_t s = sbox(x);
        table[x] = u32(times(s, 2)) | u32(s) << 8 | u32(s) << 16 | u32(times(s, 3)) << 24;
    }
    const Plain look{table.data()};
    // FIPS-197, appendix C.1.
    u32 key[4] = {0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c};
    Schedule expanded = schedule(key);
    uint4 example = encrypt(expanded, make_uint4(0x33221100, 0x77665544, 0xbbaa9988, 0xffeeddcc), look);
    if (example.x != 0xd8e0c469 || example.y != 0x30047b6a || example.z != 0x80b7cdd8 || example.w != 0x5ac5b470) {
        printf("AES is wrong: %08x %08x %08x %08x\n", example.x, example.y, example.z, example.w);
        return 1;
    }
    CHECK(cudaMemcpyToSymbol(the_key, &expanded, sizeof expanded));
    CHECK(cudaMemcpyToSymbol(the_table, table.data(), 1024));

    const int batches = 1 << 15, lines = batches * ROWS, count = 1 << 22;
    std::vector<uint4> secret(size_t(WEIGHT) * SEGMENT * 4);
    for (size_t i = 0; i < secret.size(); i++) secret[i] = encrypt(expanded, make_uint4(u32(i), 1, 2, 3), look);
    uint4 *on_card, *out;
    u64 *words;
    CHECK(cudaMalloc(&on_card, secret.size() * 16));
    CHECK(cudaMalloc(&out, size_t(lines) * 64));
    CHECK(cudaMalloc(&words, size_t(count) * 8));
    CHECK(cudaMemcpy(on_card, secret.data(), secret.size() * 16, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(out, 0, size_t(lines) * 64));

    const int shared = sizeof(Shared) + PLACES * 16, blocks = 132 * 5;
    CHECK(cudaFuncSetAttribute(rows, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CHECK(cudaFuncSetAttribute(tables, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    rows<<<blocks, 256, shared>>>(on_card, out, batches);
    std::vector<uint4> first(4096);
    CHECK(cudaMemcpy(first.data(), out, first.size() * 16, cudaMemcpyDeviceToHost));
    for (int row = 0; row < 1024; row++)
        for (int part = 0; part < 4; part++) {
            uint4 sum = make_uint4(0, 0, 0, 0);
            for (int w = 0; w < WEIGHT; w++) {
                int word = row / 64 * 640 + w / 2 * 128 + row % 64 * 2 + w % 2;
                uint4 drawn = encrypt(expanded, make_uint4(word / 4, 0, 0, 0), look);
                u32 a = (&drawn.x)[word % 4];
                uint4 line = secret[(size_t(w) * SEGMENT + (u64(a) * SEGMENT >> 32)) * 4 + part];
                sum = make_uint4(sum.x ^ line.x, sum.y ^ line.y, sum.z ^ line.z, sum.w ^ line.w);
            }
            uint4 got = first[row * 4 + part];
            if (got.x != sum.x || got.y != sum.y || got.z != sum.z || got.w != sum.w) {
                printf("row %d is wrong\n", row);
                return 1;
            }
        }

    double ms = milliseconds([&] { rows<<<blocks, 256, shared>>>(on_card, out, batches); });
    printf("rows: %.2f ns a correlation (%.0f GB/s of lines read)\n", ms * 1e6 / lines / 4, lines * 640.0 / ms / 1e6);
    ms = milliseconds([&] { tables<<<132 * 7, 256, sizeof(Shared)>>>(out, on_card, words, count); });
    printf("tables: %.2f ns a vector (%.1f billion AES blocks a second)\n", ms * 1e6 / count, 16e-6 * count / ms);
    void *host;
    CHECK(cudaMallocHost(&host, size_t(count) * 8));
    ms = milliseconds([&] { CHECK(cudaMemcpyAsync(host, words, size_t(count) * 8, cudaMemcpyDeviceToHost)); });
    printf("words to the host: %.2f ns each (%.1f GB/s)\n", ms * 1e6 / count, count * 8e-6 / ms);
    CHECK(cudaGetLastError());
    return 0;
}
