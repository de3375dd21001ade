// Loss and gradient of a small GPT: a tape of a few operations, run over slices of the batch.
//
// The backward pass is the same tape read from its end. Every buffer holds rows x width floats, one row a token. A batch
// is cut into PARTS of whole windows, whatever the number of threads; each part runs the tape on chunks that fit a cache
// and adds up a gradient of its own, and the parts' sums are joined in order: any number of threads gives the same bits.
// gptcli/training/native/tape.py builds the tapes.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "slice.h"

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
// Work on fewer parameters than this is over before another thread has started.
constexpr int64_t WORTH_SHARING = 200000;

static int64_t packed_floats(const Operation &o) {
    return o.kind == LINEAR ? panel_floats(o.width_in, o.width_out) + panel_floats(o.width_out, o.width_in) : 0;
}

// The workspace: for each member that is trained at the same time its packed weights and its parts' sums, then for each
// thread the buffers of a chunk.
struct Workspace {
    int64_t packed = 0, home, buffers = 0, homes;

    Workspace(const Shape &shape, const Operation *operations, const int64_t *widths, int64_t chunk, int64_t members,
              int64_t threads)
        : homes(std::min(members, threads)) {
        for (int64_t i = 0; i < shape.operations; i++) packed += packed_floats(operations[i]);
        for (int64_t i = 0; i < shape.buffers; i++) buffers += round_up(2 * widths[i] * chunk * shape.time, 16);
        home = packed + PARTS * round_up(shape.parameters, 16);
    }

    int64_t floats(int64_t threads) const { return homes * home + threads * buffers + 16; }
};

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
    Products products;
    Workspace layout;
    float *workspace;       // zeros at first

    // One member's losses and, when asked for, the gradient of their mean, on `threads` threads; `first_thread` is the
    // first whose workspace may be used.
    void member(int64_t index, int64_t threads, int64_t first_thread) const {
        float *packed = workspace + first_thread * layout.home, *sums = packed + layout.packed;
        int64_t sharing = shape.parameters < WORTH_SHARING ? 1 : threads;
        std::vector<Right> weights(2 * shape.operations);
        in_threads(sharing, [&](int64_t thread) { pack(index, packed, weights.data(), thread, sharing); });
        std::atomic<int64_t> next{0};  // a thread that is held up leaves more of the parts to the others
        in_threads(threads, [&](int64_t thread) {
            float *buffers = workspace + layout.homes * layout.home + (first_thread + thread) * layout.buffers;
            products.open();
            for (int64_t part = next++; part < PARTS; part = next++)
                run_part(index, part, weights.data(), sums + part * part_stride(), buffers);
            products.close();
        });
        if (!gradient) return;
        float *sum = gradient + index * shape.parameters;
        in_threads(sharing, [&](int64_t thread) {
            int64_t end = shape.parameters * (thread + 1) / sharing;
            for (int64_t i = shape.parameters * thread / sharing; i < end; i++) {
                float total = 0.0f;
                for (int64_t part = 0; part < PARTS; part++) total += sums[part * part_stride() + i];
                sum[i] = total;
            }
        });
    }

    int64_t part_stride() const { return round_up(shape.parameters, 16); }

    // Makes every sharing-th weight ready, from the first-th on.
    void pack(int64_t index, float *packed, Right *weights, int64_t first, int64_t sharing) const {
        const float *own = parameters + index * shape.parameters;
        for (int64_t i = 0, number = 0; i < shape.operations; i++) {
            const Operation &o = operations[i];
            if (o.kind != LINEAR) continue;
            if (number++ % sharing == first) {
                const float *weight = own + o.weight;
                weights[o.packed] = products.right(weight, 1, o.width_in, o.width_in, o.width_out, packed);
                if (gradient)
                    weights[o.packed + 1] = products.right(weight, o.width_in, 1, o.width_out, o.width_in,
                                                           packed + panel_floats(o.width_in, o.width_out));
            }
            packed += packed_floats(o);
        }
    }

    void run_part(int64_t index, int64_t part, const Right *weights, float *sum, float *buffers) const {
        Slice slice{shape, operations, widths, parameters + index * shape.parameters, constants, weights,
                    gradient ? sum : nullptr, gradient ? rates[index] : 0.0f, keys[index], products, {}, {}};
        slice.place_buffers(buffers, chunk * shape.time);
        int64_t start = windows * part / PARTS, end = windows * (part + 1) / PARTS;
        if (gradient) slice.clear_gradient(start == end);
        for (int64_t w = start; w < end; w += chunk) {
            int64_t at = (index * windows + w) * shape.time;
            slice.first_row = w * shape.time;
            slice.rows = (end - w < chunk ? end - w : chunk) * shape.time;
            slice.forward(x + at);
            slice.loss(operations[shape.operations - 1], y + at, 1.0f / (windows * shape.time), losses + at);
            if (gradient) slice.backward(x + at);
            slice.adds = true;
        }
    }
};

// Whether products in bf16 are to be had here.
extern "C" int has_bf16() { return HAS_BF16; }

// Floats of workspace that a call of run needs.
extern "C" int64_t workspace_floats(const Shape *shape, const Operation *operations, const int64_t *widths, int64_t members,
                                    int64_t chunk, int64_t threads) {
    return Workspace(*shape, operations, widths, chunk, members, threads).floats(threads);
}

// Returns 0; 1 when a symbol is not in the vocabulary; 2 when threads or memory could not be had.
extern "C" int run(const Shape *shape, const Operation *operations, const int64_t *widths, int64_t members,
                   const float *parameters, const float *constants, const float *rates, const uint64_t *keys,
                   const int64_t *x, const int64_t *y, int64_t windows, int64_t chunk, int64_t threads, int64_t bf16,
                   float *losses, float *gradient, float *workspace) {
    uint64_t vocabulary = shape->vocabulary;
    for (int64_t i = 0; i < members * windows * shape->time; i++)
        if ((uint64_t)x[i] >= vocabulary || (uint64_t)y[i] >= vocabulary) return 1;
    Call call{*shape, operations, widths, parameters, constants, rates, keys, x, y, windows, chunk, losses, gradient,
              Products{bf16 && HAS_BF16}, Workspace(*shape, operations, widths, chunk, members, threads), workspace};
    try {
        // As many members as divide evenly are trained one on each thread, the others by all threads together.
        int64_t alone = members / threads * threads;
        std::atomic<int64_t> next{0};
        if (alone)
            in_threads(threads, [&](int64_t thread) {
                for (int64_t member = next++; member < alone; member = next++) call.member(member, 1, thread);
            });
        for (int64_t member = alone; member < members; member++) call.member(member, threads < PARTS ? threads : PARTS, 0);
    } catch (const std::exception &) {
        return 2;
    }
    return 0;
}
