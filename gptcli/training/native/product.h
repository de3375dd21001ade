// Products of small row-major matrices in registers; exp and the largest of a row as vector code.
#pragma once
#include <cstdint>

#if defined(__AVX512F__)
constexpr int LANES = 16, TILE_ROWS = 12;
#elif defined(__AVX__)
constexpr int LANES = 8, TILE_ROWS = 6;
#else
constexpr int LANES = 4, TILE_ROWS = 4;
#endif
template <int WIDTH> struct Lanes {
    typedef float Vector __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));
};

// C (ROWS x WIDE * WIDTH) = or += A B; A is read at a_row * i + a_inner * k, so that it may be transposed.
template <int ROWS, int WIDE, int WIDTH>
static inline void tile(const float *a, int64_t a_row, int64_t a_inner, const float *b, int64_t b_row, float *c,
                        int64_t c_row, int64_t inner, bool accumulate) {
    using Vector = typename Lanes<WIDTH>::Vector;
    Vector sum[ROWS][WIDE];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDE; j++)
            sum[i][j] = accumulate ? *(const Vector *)(c + i * c_row + j * WIDTH) : Vector{};
    for (int64_t k = 0; k < inner; k++) {
        Vector row[WIDE];
        for (int j = 0; j < WIDE; j++) row[j] = *(const Vector *)(b + k * b_row + j * WIDTH);
        for (int i = 0; i < ROWS; i++) {
            float scalar = a[i * a_row + k * a_inner];
            for (int j = 0; j < WIDE; j++) sum[i][j] += scalar * row[j];
        }
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDE; j++) *(Vector *)(c + i * c_row + j * WIDTH) = sum[i][j];
}

template <int ROWS>
static inline void row_of_tiles(const float *a, int64_t a_row, int64_t a_inner, const float *b, int64_t b_row, float *c,
                                int64_t c_row, int64_t columns, int64_t inner, bool accumulate) {
    int64_t j = 0;
    for (; j + 2 * LANES <= columns; j += 2 * LANES)
        tile<ROWS, 2, LANES>(a, a_row, a_inner, b + j, b_row, c + j, c_row, inner, accumulate);
    for (; j + LANES <= columns; j += LANES)
        tile<ROWS, 1, LANES>(a, a_row, a_inner, b + j, b_row, c + j, c_row, inner, accumulate);
    for (; LANES > 8 && j + 8 <= columns; j += 8)
        tile<ROWS, 1, 8>(a, a_row, a_inner, b + j, b_row, c + j, c_row, inner, accumulate);
    for (; j + 4 <= columns; j += 4)
        tile<ROWS, 1, 4>(a, a_row, a_inner, b + j, b_row, c + j, c_row, inner, accumulate);
    for (; j < columns; j++)
        for (int i = 0; i < ROWS; i++) {
            float sum = accumulate ? c[i * c_row + j] : 0.0f;
            for (int64_t k = 0; k < inner; k++) sum += a[i * a_row + k * a_inner] * b[k * b_row + j];
            c[i * c_row + j] = sum;
        }
}

__attribute__((noinline)) static void product(const float *a, int64_t a_row, int64_t a_inner, const float *b, int64_t b_row, float *c,
                    int64_t c_row, int64_t rows, int64_t columns, int64_t inner, bool accumulate) {
    int64_t i = 0;
    for (; i + TILE_ROWS <= rows; i += TILE_ROWS)
        row_of_tiles<TILE_ROWS>(a + i * a_row, a_row, a_inner, b, b_row, c + i * c_row, c_row, columns, inner,
                                accumulate);
    for (; i + 8 <= rows; i += 8)
        row_of_tiles<8>(a + i * a_row, a_row, a_inner, b, b_row, c + i * c_row, c_row, columns, inner, accumulate);
    for (; i + 4 <= rows; i += 4)
        row_of_tiles<4>(a + i * a_row, a_row, a_inner, b, b_row, c + i * c_row, c_row, columns, inner, accumulate);
    for (; i < rows; i++)
        row_of_tiles<1>(a + i * a_row, a_row, a_inner, b, b_row, c + i * c_row, c_row, columns, inner, accumulate);
}

// exp by 2^n times a polynomial (Cephes expf), without a branch, so that loops over it become vector code.
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = __builtin_floorf(x * 1.44269504088896341f + 0.5f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union { int32_t i; float f; } scale;
    scale.i = ((int32_t)n + 127) << 23;
    return p * scale.f;
}

// The largest of `count` values; not-a-numbers among them may be passed over.
static inline float largest(const float *values, int64_t count) {
    float most = values[0];
    int64_t i = 0;
    if (count >= LANES) {
        float lanes[LANES];
        for (int k = 0; k < LANES; k++) lanes[k] = values[k];
        for (i = LANES; i + LANES <= count; i += LANES)
            for (int k = 0; k < LANES; k++) lanes[k] = values[i + k] > lanes[k] ? values[i + k] : lanes[k];
        for (int k = 0; k < LANES; k++) most = lanes[k] > most ? lanes[k] : most;
    }
    for (; i < count; i++) most = values[i] > most ? values[i] : most;
    return most;
}
