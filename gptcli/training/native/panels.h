// Products of larger matrices. The right side is packed first, once for many left sides, into panels of a few columns
// that stay in the first cache; in fp32, or rounded to bf16 for a processor that sums their products in fp32, by matrix
// tiles (AMX) or by vectors (AVX512_BF16).
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "product.h"

#if defined(__AVX512BF16__)
#define HAS_BF16 1
#include <immintrin.h>
#else
#define HAS_BF16 0
#endif
#if HAS_BF16 && defined(__AMX_BF16__) && defined(__linux__)
#define HAS_AMX 1
#include <sys/syscall.h>
#include <unistd.h>
#else
#define HAS_AMX 0
#endif

constexpr int64_t PANEL = 2 * LANES, DEPTH = 192;  // a panel of DEPTH rows and a tile's rows fit the first cache
constexpr int64_t SIDE = 16, PAIR_DEPTH = 32;      // of a matrix tile: 16 rows of 32 bf16, summed into 16 x 16 floats
constexpr int64_t TILE_DEPTH = 512;
constexpr int64_t BLOCK_ROWS = 264;                // of the left side; with DEPTH columns a fraction of the second cache
constexpr int64_t FAR = 1 << 17;                   // floats that no second cache holds beside all else

static inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Floats that the panels of an inner x columns matrix take, in either precision.
static inline int64_t panel_floats(int64_t inner, int64_t columns) {
    return round_up(columns, PANEL) * round_up(inner, PAIR_DEPTH);
}

// Room for `floats` that lasts until the next call with the same number on the same thread.
template <int NUMBER> static float *scratch(int64_t floats) {
    static thread_local std::vector<float> space;
    if ((int64_t)space.size() < floats + 16) space.resize(floats + 16);
    return (float *)(((uintptr_t)space.data() + 63) / 64 * 64);
}

// Products no larger than this gain nothing from packing.
static inline bool is_small(int64_t inner, int64_t columns) { return inner * columns <= 4096; }

static void pack_floats(const float *b, int64_t b_row, int64_t b_column, int64_t inner, int64_t columns, float *panels) {
    if (columns % PANEL) std::memset(panels + columns / PANEL * inner * PANEL, 0, inner * PANEL * sizeof(float));
    for (int64_t k0 = 0; k0 < inner; k0 += SIDE)
        for (int64_t j = 0; j < columns; j += PANEL) {
            int64_t width = std::min(PANEL, columns - j), end = std::min(inner, k0 + SIDE);
            float *panel = panels + j * inner;
            if (b_column == 1)
                for (int64_t k = k0; k < end; k++) std::memcpy(panel + k * PANEL, b + k * b_row + j, width * sizeof(float));
            else
                for (int64_t c = 0; c < width; c++)
                    for (int64_t k = k0; k < end; k++) panel[k * PANEL + c] = b[k * b_row + (j + c) * b_column];
        }
}

template <int ROWS>
static inline void panel_tile(const float *a, int64_t a_row, int64_t a_inner, const float *panel, float *c, int64_t c_row,
                              int64_t columns, int64_t inner, bool accumulate) {
    if (columns >= PANEL) return tile<ROWS, 2, LANES>(a, a_row, a_inner, panel, PANEL, c, c_row, inner, accumulate);
    float edge[ROWS * PANEL];
    tile<ROWS, 2, LANES>(a, a_row, a_inner, panel, PANEL, edge, PANEL, inner, false);
    for (int i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < columns; j++) {
            float &out = c[i * c_row + j];
            out = accumulate ? out + edge[i * PANEL + j] : edge[i * PANEL + j];
        }
}

// A block of the left side: where it lies, and the distances between its rows, its columns and its tiles of TILE_ROWS.
struct LeftBlock {
    const float *data;
    int64_t row, inner, tile;
};

// A whose columns lie side by side is copied first, tile by tile: the rows of one tile side by side. Tiles are a little
// apart, so that they do not displace each other in a cache.
static LeftBlock turn_left(const float *a, int64_t a_inner, int64_t rows, int64_t inner) {
    int64_t tile = inner * TILE_ROWS + SIDE;
    float *turned = scratch<0>((BLOCK_ROWS / TILE_ROWS + 1) * tile);
    for (int64_t k = 0; k < inner; k++, a += a_inner) {
        float *to = turned + k * TILE_ROWS;
        int64_t i = 0;
        for (; i + TILE_ROWS <= rows; i += TILE_ROWS, to += tile) std::memcpy(to, a + i, TILE_ROWS * sizeof(float));
        for (; i < rows; i++) *to++ = a[i];
    }
    return {turned, 1, TILE_ROWS, tile};
}

// What is needed next lies a page or more from what is needed now, where the processor does not look by itself: the sums
// of the next tile, and the share of the next panel that is this tile's to fetch.
static inline void fetch_ahead(const float *sums, int64_t row, int64_t rows, const float *panel, int64_t floats) {
    for (int64_t r = 0; r < rows; r++) {
        __builtin_prefetch(sums + r * row, 1);
        __builtin_prefetch(sums + r * row + LANES, 1);
    }
    for (int64_t i = 0; i < floats; i += 16) __builtin_prefetch(panel + i, 0, 2);
}

// C (rows x columns) = or += a block times `depth` rows of the panels, which are panel_row apart.
static void multiply_block(const LeftBlock &a, const float *panel, int64_t panel_row, float *c, int64_t c_row,
                           int64_t rows, int64_t columns, int64_t depth, bool accumulate, bool far) {
    for (int64_t j = 0; j < columns; j += PANEL, panel += panel_row) {
        int64_t width = columns - j, share = width > PANEL ? depth * PANEL * TILE_ROWS / rows : 0;
        for (int64_t i = 0; i < rows;) {
            const float *from = a.data + i / TILE_ROWS * a.tile + i % TILE_ROWS * a.row;
            float *out = c + i * c_row + j;
            int64_t left = rows - i;
            if (left >= TILE_ROWS) {
                if (far)
                    fetch_ahead(out + TILE_ROWS * c_row, c_row, std::min<int64_t>(left - TILE_ROWS, TILE_ROWS),
                                panel + panel_row + i / TILE_ROWS * share, share);
                panel_tile<TILE_ROWS>(from, a.row, a.inner, panel, out, c_row, width, depth, accumulate);
                i += TILE_ROWS;
            } else if (left >= 4) {
                panel_tile<4>(from, a.row, a.inner, panel, out, c_row, width, depth, accumulate);
                i += 4;
            } else {
                panel_tile<1>(from, a.row, a.inner, panel, out, c_row, width, depth, accumulate);
                i += 1;
            }
        }
    }
}

static void multiply_floats(const float *a, int64_t a_row, int64_t a_inner, const float *panels, int64_t packed_inner,
                            float *c, int64_t c_row, int64_t rows, int64_t columns, int64_t inner, bool accumulate) {
    bool far = columns * std::max(rows, inner) > FAR;
    for (int64_t i = 0; i < rows; i += BLOCK_ROWS)
        for (int64_t k = 0; k < inner; k += DEPTH) {
            int64_t depth = std::min(DEPTH, inner - k), count = std::min(BLOCK_ROWS, rows - i);
            const float *from = a + i * a_row + k * a_inner;
            LeftBlock block{from, a_row, 1, TILE_ROWS * a_row};
            if (a_inner != 1) block = turn_left(from, a_inner, count, depth);
            multiply_block(block, panels + k * PANEL, packed_inner * PANEL, c + i * c_row, c_row, count, columns, depth,
                           accumulate || k, far);
        }
}

#if HAS_AMX
struct TileShape {
    uint8_t palette = 1, start = 0, unused[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
};

// Whether the system lets this process use AMX; asks for it the first time.
static bool may_use_amx() {
    static const bool may = syscall(SYS_arch_prctl, 0x1023, 18) == 0;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return may;
}

static void open_amx() {
    TileShape shape;
    for (int i = 0; i < 8; i++) shape.bytes[i] = 64, shape.rows[i] = SIDE;
    _tile_loadconfig(&shape);
}

static void close_amx() { _tile_release(); }

// 32 x 32 sums of `steps` pairs of tiles; lower is the second row of left tiles.
static inline void four_tiles_by_amx(const __m512i *upper, const __m512i *lower, const __m512i *panel, int64_t steps,
                                     float *c, int64_t c_row, bool accumulate) {
    if (accumulate) {
        _tile_loadd(0, c, c_row * 4);
        _tile_loadd(1, c + SIDE, c_row * 4);
        _tile_loadd(2, c + SIDE * c_row, c_row * 4);
        _tile_loadd(3, c + SIDE * c_row + SIDE, c_row * 4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < steps; k++) {
        _tile_loadd(4, upper + k * SIDE, 64);
        _tile_loadd(6, panel + 2 * k * SIDE, 64);
        _tile_loadd(7, panel + (2 * k + 1) * SIDE, 64);
        _tile_loadd(5, lower + k * SIDE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_row * 4);
    _tile_stored(1, c + SIDE, c_row * 4);
    _tile_stored(2, c + SIDE * c_row, c_row * 4);
    _tile_stored(3, c + SIDE * c_row + SIDE, c_row * 4);
}
#else
static bool may_use_amx() { return false; }
static void open_amx() {}
static void close_amx() {}
#endif

#if HAS_BF16
static inline __m512 load_floats(const float *from, int64_t count) {
    return _mm512_maskz_loadu_ps(count >= 16 ? 0xffff : count <= 0 ? 0 : (1 << count) - 1, from);
}

// The columns of two rows in turns, as bf16.
static inline __m512i pairs(__m512 even, __m512 odd) {
    __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even));
    __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd)), 16);
    return _mm512_or_si512(low, high);
}

// 16 x 16 words turned.
static inline void turn_words(__m512i *rows) {
    __m512i other[16];
    for (int i = 0; i < 8; i++) {
        other[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        other[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        const __m512i *four = other + 4 * i;
        rows[4 * i] = _mm512_unpacklo_epi64(four[0], four[2]);
        rows[4 * i + 1] = _mm512_unpackhi_epi64(four[0], four[2]);
        rows[4 * i + 2] = _mm512_unpacklo_epi64(four[1], four[3]);
        rows[4 * i + 3] = _mm512_unpackhi_epi64(four[1], four[3]);
    }
    for (int i = 0; i < 4; i++) {
        other[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
        other[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
        other[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
        other[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        rows[i] = _mm512_shuffle_i32x4(other[i], other[i + 8], 0x88);
        rows[i + 8] = _mm512_shuffle_i32x4(other[i], other[i + 8], 0xdd);
    }
}

// 16 rows of 32 values as one tile of rows; what lies outside rows x inner is zero.
static inline void pack_rows(const float *a, int64_t a_row, int64_t rows, int64_t inner, __m512i *tile) {
    for (int64_t r = 0; r < SIDE; r++) {
        int64_t count = r < rows ? inner : 0;
        __m512 low = load_floats(a + r * a_row, count), high = load_floats(a + r * a_row + 16, count - 16);
        tile[r] = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    }
}

// The same of a matrix whose rows lie across: 32 rows of 16 values, each two rows in turns.
static inline void pack_pairs(const float *b, int64_t b_row, int64_t inner, int64_t columns, __m512i *tile) {
    for (int64_t p = 0; p < SIDE; p++) {
        int64_t even = 2 * p < inner ? columns : 0, odd = 2 * p + 1 < inner ? columns : 0;
        tile[p] = pairs(load_floats(b + 2 * p * b_row, even), load_floats(b + (2 * p + 1) * b_row, odd));
    }
}

// Panels of 32 columns: for each 32 values of the inner dimension two tiles of pairs.
static void pack_tiles(const float *b, int64_t b_row, int64_t b_column, int64_t inner, int64_t columns, __m512i *panels) {
    for (int64_t j = 0; j < columns; j += 2 * SIDE)
        for (int64_t k = 0; k < inner; k += PAIR_DEPTH)
            for (int64_t half = 0; half < 2 * SIDE; half += SIDE, panels += SIDE) {
                const float *from = b + k * b_row + (j + half) * b_column;
                if (b_column == 1) {
                    pack_pairs(from, b_row, inner - k, columns - j - half, panels);
                } else {
                    pack_rows(from, b_column, columns - j - half, inner - k, panels);
                    turn_words(panels);
                }
            }
}

static void pack_left(const float *a, int64_t a_row, int64_t a_inner, int64_t rows, int64_t inner, __m512i *tiles) {
    for (int64_t i = 0; i < rows; i += SIDE)
        for (int64_t k = 0; k < inner; k += PAIR_DEPTH, tiles += SIDE) {
            const float *from = a + i * a_row + k * a_inner;
            if (a_inner == 1) {
                pack_rows(from, a_row, rows - i, inner - k, tiles);
            } else {
                pack_pairs(from, a_inner, inner - k, rows - i, tiles);
                turn_words(tiles);
            }
        }
}

typedef int32_t Word __attribute__((may_alias));

// 8 x 32 sums by vectors: of half a tile's rows with two tiles of pairs, `steps` times.
static inline void half_tile(const __m512i *left, const __m512i *panel, int64_t steps, float *c, int64_t c_row,
                             bool accumulate) {
    __m512 sum[8][2];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 2; j++) sum[i][j] = accumulate ? _mm512_loadu_ps(c + i * c_row + j * SIDE) : _mm512_setzero_ps();
    for (int64_t k = 0; k < steps; k++, left += SIDE, panel += 2 * SIDE)
        for (int64_t p = 0; p < SIDE; p++)
            for (int i = 0; i < 8; i++) {
                __m512i pair = _mm512_set1_epi32(((const Word *)(left + i))[p]);
                for (int j = 0; j < 2; j++)
                    sum[i][j] = _mm512_dpbf16_ps(sum[i][j], (__m512bh)pair, (__m512bh)panel[j * SIDE + p]);
            }
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 2; j++) _mm512_storeu_ps(c + i * c_row + j * SIDE, sum[i][j]);
}

// 32 x 32 sums of `steps` pairs of tiles; lower is the second row of left tiles.
static inline void four_tiles(const __m512i *upper, const __m512i *lower, const __m512i *panel, int64_t steps, float *c,
                              int64_t c_row, bool accumulate, bool amx) {
#if HAS_AMX
    if (amx) return four_tiles_by_amx(upper, lower, panel, steps, c, c_row, accumulate);
#endif
    for (int64_t i = 0; i < SIDE; i += 8) half_tile(upper + i, panel, steps, c + i * c_row, c_row, accumulate);
    for (int64_t i = 0; i < SIDE; i += 8) half_tile(lower + i, panel, steps, c + (SIDE + i) * c_row, c_row, accumulate);
}

static void multiply_tiles(const float *a, int64_t a_row, int64_t a_inner, const __m512i *panels, int64_t packed_inner,
                           float *c, int64_t c_row, int64_t rows, int64_t columns, int64_t inner, bool accumulate, bool amx) {
    __m512i *left = (__m512i *)scratch<0>(round_up(rows, SIDE) * TILE_DEPTH / 2);
    int64_t panel_size = round_up(packed_inner, PAIR_DEPTH) / PAIR_DEPTH * 2 * SIDE;
    for (int64_t k0 = 0; k0 < inner; k0 += TILE_DEPTH) {
        int64_t depth = std::min(TILE_DEPTH, inner - k0), steps = round_up(depth, PAIR_DEPTH) / PAIR_DEPTH;
        bool adds = accumulate || k0;
        pack_left(a + k0 * a_inner, a_row, a_inner, rows, depth, left);
        for (int64_t j = 0; j < columns; j += 2 * SIDE) {
            const __m512i *panel = panels + j / (2 * SIDE) * panel_size + k0 / PAIR_DEPTH * 2 * SIDE;
            for (int64_t i = 0; i < rows; i += 2 * SIDE) {
                const __m512i *upper = left + i * steps, *lower = i + SIDE < rows ? upper + SIDE * steps : upper;
                int64_t high = std::min(2 * SIDE, rows - i), wide = std::min(2 * SIDE, columns - j);
                float *out = c + i * c_row + j;
                if (high == 2 * SIDE && wide == 2 * SIDE) {
                    four_tiles(upper, lower, panel, steps, out, c_row, adds, amx);
                    continue;
                }
                float edge[4 * SIDE * SIDE];
                four_tiles(upper, lower, panel, steps, edge, 2 * SIDE, false, amx);
                for (int64_t r = 0; r < high; r++)
                    for (int64_t s = 0; s < wide; s++)
                        out[r * c_row + s] = edge[r * 2 * SIDE + s] + (adds ? out[r * c_row + s] : 0.0f);
            }
        }
    }
}
#endif

// The right side of products: as it lies, or in panels (row 0).
struct Right {
    const float *data;
    int64_t row, inner;
};

// Products in one of the two precisions; in bf16 only between open and close on the same thread.
struct Products {
    bool bf16;

    void open() const {
        if (bf16 && may_use_amx()) open_amx();
    }

    void close() const {
        if (bf16 && may_use_amx()) close_amx();
    }

    // B (inner x columns), read at b_row * k + b_column * j, made ready; `space` has room for panel_floats and is
    // 64-byte aligned. Kept out of line, as multiply is, so that the kernels compile in seconds.
    __attribute__((noinline)) Right right(const float *b, int64_t b_row, int64_t b_column, int64_t inner,
                                          int64_t columns, float *space) const {
        bool narrow = !bf16 && columns <= LANES && columns % 4 == 0;  // most of a panel would be empty
        if (is_small(inner, columns) || (narrow && b_column == 1)) {
            if (b_column == 1) return {b, b_row, inner};
            int64_t row = round_up(columns, SIDE);
            for (int64_t j = 0; j < columns; j++)
                for (int64_t k = 0; k < inner; k++) space[k * row + j] = b[k * b_row + j * b_column];
            return {space, row, inner};
        }
#if HAS_BF16
        if (bf16)
            pack_tiles(b, b_row, b_column, inner, columns, (__m512i *)space);
        else
#endif
            pack_floats(b, b_row, b_column, inner, columns, space);
        return {space, 0, inner};
    }

    // C (rows x columns) = or += A B; A is read at a_row * i + a_inner * k, one of them 1; B from its row `from`, a
    // multiple of 32, on.
    __attribute__((noinline)) void multiply(const float *a, int64_t a_row, int64_t a_inner, const Right &b, int64_t from,
                                            float *c, int64_t c_row, int64_t rows, int64_t columns, int64_t inner,
                                            bool accumulate) const {
        if (b.row)
            return product(a, a_row, a_inner, b.data + from * b.row, b.row, c, c_row, rows, columns, inner, accumulate);
#if HAS_BF16
        if (bf16) {
            const __m512i *panels = (const __m512i *)b.data + from / PAIR_DEPTH * 2 * SIDE;
            return multiply_tiles(a, a_row, a_inner, panels, b.inner, c, c_row, rows, columns, inner, accumulate,
                                  may_use_amx());
        }
#endif
        multiply_floats(a, a_row, a_inner, b.data + from * PANEL, b.inner, c, c_row, rows, columns, inner, accumulate);
    }
};
