// Dropout masks as a pure function of a key: nothing is stored, and the backward pass draws them again.
#pragma once
#include <cstdint>

static inline uint32_t scramble(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

struct Mask {
    uint32_t first, second, threshold;
    float scale;

    Mask(uint64_t key, int64_t operation, float rate) {
        uint64_t mixed = (key + operation + 1) * 0x9e3779b97f4a7c15u;
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
        mixed ^= mixed >> 31;
        first = (uint32_t)mixed, second = (uint32_t)(mixed >> 32);
        threshold = (uint32_t)(rate * 4294967296.0);
        scale = 1.0f / (1.0f - rate);
    }

    float operator()(uint32_t index) const {
        return scramble(scramble(index + first) ^ second) < threshold ? 0.0f : scale;
    }
};

