// Loss and gradient of a small GPT: a tape of a few operations, run over slices of the batch.
//
// The backward pass is the same tape read from its end. Every buffer holds rows x width floats, one row a token. A batch
// is cut into PARTS of whole windows, whatever the number of threads; each part runs the tape on chunks that fit a cache
// and adds up a gradient of its own, and the parts' sums are joined in order: any number of threads gives the same bits.
// gptcli/training/native/tape.py builds the tapes.
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "slice.h"

static void pack(const Shape &shape, const Operation *operations, const int64_t *widths, const float *parameters,
                 float *packed) {
    for (int64_t i = 0; i < shape.operations; i++) {
        const Operation &o = operations[i];
        if (o.kind != LINEAR) continue;
        int64_t stride = widths[o.output];
        for (int64_t k = 0; k < o.width_in; k++)
            for (int64_t n = 0; n < o.width_out; n++)
                packed[o.packed + k * stride + n] = parameters[o.weight + n * o.width_in + k];
    }
}

template <typename Work> static void in_threads(int64_t threads, const Work &work) {
    std::vector<std::thread> others;
    others.reserve(threads);
    int64_t started = 1;
    try {
        for (; started < threads; started++) others.emplace_back(work, started);
    } catch (const std::system_error &) {
        // No more threads to be had: this one takes over their parts.
    }
    for (int64_t i = started; i < threads; i++) work(i);
    work(0);
    for (auto &thread : others) thread.join();
}

constexpr int64_t PARTS = 4;

struct Call {
    const Shape &shape;
    const Operation *operations;
    const int64_t *widths;
    const float *parameters, *constants;
    const float *rates;     // of dropout, one a member
    const uint64_t *keys;   // of dropout, one a member
    const int64_t *x, *y;   // (members, windows, time)
    int64_t windows, chunk;
    float *losses;          // (members, windows, time)
    float *gradient;        // (members, parameters), or null
    float *workspace;       // zeros at first
    int64_t per_thread;

    // One member's losses and, when asked for, the gradient of their mean, on `threads` threads; `first_thread` is the
    // first whose workspace may be used.
    void member(int64_t index, int64_t threads, int64_t first_thread) const {
        float *packed = workspace + first_thread * per_thread, *sums = packed + shape.packed;
        pack(shape, operations, widths, parameters + index * shape.parameters, packed);
        in_threads(threads, [&](int64_t thread) {
            float *buffers = workspace + (first_thread + thread) * per_thread + shape.packed + PARTS * shape.parameters;
            for (int64_t part = thread; part < PARTS; part += threads)
                run_part(index, part, packed, sums + part * shape.parameters, buffers);
        });
        if (!gradient) return;
        float *sum = gradient + index * shape.parameters;
        for (int64_t i = 0; i < shape.parameters; i++) {
            float total = 0.0f;
            for (int64_t part = 0; part < PARTS; part++) total += sums[part * shape.parameters + i];
            sum[i] = total;
        }
    }

    void run_part(int64_t index, int64_t part, const float *packed, float *sum, float *buffers) const {
        Slice slice{shape, operations, widths, parameters + index * shape.parameters, constants, packed,
                    gradient ? sum : nullptr, gradient ? rates[index] : 0.0f, keys[index], {}, {}};
        if (gradient) std::memset(sum, 0, shape.parameters * sizeof(float));
        slice.place_buffers(buffers, chunk * shape.time);
        int64_t end = windows * (part + 1) / PARTS;
        for (int64_t w = windows * part / PARTS; w < end; w += chunk) {
            int64_t at = (index * windows + w) * shape.time;
            slice.first_row = w * shape.time;
            slice.rows = (end - w < chunk ? end - w : chunk) * shape.time;
            slice.forward(x + at);
            slice.loss(operations[shape.operations - 1], y + at, 1.0f / (windows * shape.time), losses + at);
            if (gradient) slice.backward(x + at);
        }
    }
};

// Floats of workspace that each thread needs.
extern "C" int64_t workspace_per_thread(const Shape *shape, const int64_t *widths, int64_t chunk) {
    int64_t columns = 0;
    for (int64_t i = 0; i < shape->buffers; i++) columns += widths[i];
    return (shape->packed + PARTS * shape->parameters + 2 * columns * chunk * shape->time + 63) / 64 * 64;
}

// Returns 0; 1 when a symbol is not in the vocabulary; 2 when threads or memory could not be had.
extern "C" int run(const Shape *shape, const Operation *operations, const int64_t *widths, int64_t members,
                   const float *parameters, const float *constants, const float *rates, const uint64_t *keys,
                   const int64_t *x, const int64_t *y, int64_t windows, int64_t chunk, int64_t threads, float *losses,
                   float *gradient, float *workspace) {
    uint64_t vocabulary = shape->vocabulary;
    for (int64_t i = 0; i < members * windows * shape->time; i++)
        if ((uint64_t)x[i] >= vocabulary || (uint64_t)y[i] >= vocabulary) return 1;
    Call call{*shape, operations, widths, parameters, constants, rates, keys, x, y, windows, chunk,
              losses, gradient, workspace, workspace_per_thread(shape, widths, chunk)};
    try {
        // As many members as divide evenly are trained one on each thread, the others by all threads together.
        int64_t alone = members / threads * threads;
        if (alone)
            in_threads(threads, [&](int64_t thread) {
                for (int64_t member = thread; member < alone; member += threads) call.member(member, 1, thread);
            });
        for (int64_t member = alone; member < members; member++) call.member(member, threads < PARTS ? threads : PARTS, 0);
    } catch (const std::exception &) {
        return 2;
    }
    return 0;
}
