// The operations of a tape, forward and backward, on the rows of one thread.
#pragma once
#include <cmath>
#include <vector>

#include "dropout.h"
#include "panels.h"

enum Kind { EMBED, LINEAR, NORM, ATTENTION, RELU, DROPOUT, ADD, LOSS };

struct Operation {
    int64_t kind, input, other, output;        // buffers
    int64_t width_in, width_out;               // columns of input and output
    int64_t weight, bias;                      // offsets into the parameters, -1 for none
    int64_t constant;                          // embedding: 1 when the positions are constants and not parameters
    int64_t saved;                             // buffer of what the backward pass needs, -1 for none
    int64_t heads;
    int64_t packed;                            // number of the weight's first Right
    int64_t add_input, add_other;              // whether the gradient buffer already holds a part of the sum
    int64_t drops;                             // attention: whether weights are dropped
};

struct Shape {
    int64_t operations, buffers, parameters, time, vocabulary;
};

constexpr int64_t BLOCK = 64;  // queries at a time: what comes after a block is not computed

struct Slice {
    const Shape &shape;
    const Operation *operations;
    const int64_t *widths;  // columns of every buffer
    const float *parameters, *constants;
    const Right *weights;  // two for each LINEAR operation, from its `packed` on
    float *gradient;  // this thread's own sum, null when only the loss is wanted
    float rate;       // of dropout
    uint64_t key;
    Products products;
    std::vector<float *> values, gradients;
    int64_t rows = 0, first_row = 0;
    bool adds = false;  // whether the gradient holds the sum of earlier chunks

    // Lays the buffers out in the workspace from `next` on.
    void place_buffers(float *next, int64_t most_rows) {
        for (int pass = 0; pass < (gradient ? 2 : 1); pass++)
            for (int64_t i = 0; i < shape.buffers; i++) {
                (pass ? gradients : values).push_back(next);
                next += widths[i] * most_rows;  // widths are multiples of 16
            }
    }

    // Zeros the gradient; where chunks will follow, not the weights of linear layers, which the first of them writes.
    void clear_gradient(bool whole) {
        std::vector<std::pair<int64_t, int64_t>> written;
        for (int64_t i = 0; i < shape.operations; i++)
            if (operations[i].kind == LINEAR && !whole)
                written.emplace_back(operations[i].weight, operations[i].width_in * operations[i].width_out);
        std::sort(written.begin(), written.end());
        written.emplace_back(shape.parameters, 0);
        int64_t from = 0;
        for (auto [weight, count] : written) {
            std::memset(gradient + from, 0, (weight - from) * sizeof(float));
            from = weight + count;
        }
    }

    void forward(const int64_t *x) {
        for (int64_t i = 0; i < shape.operations; i++) {
            const Operation &o = operations[i];
            switch (o.kind) {
                case EMBED: embed(o, x); break;
                case LINEAR: linear(o); break;
                case NORM: norm(o); break;
                case ATTENTION: attention(o, i); break;
                case RELU: relu(o); break;
                case DROPOUT: dropout(o, i, values[o.input], values[o.output], false); break;
                case ADD: add(o); break;
            }
        }
    }

    void backward(const int64_t *x) {
        for (int64_t i = shape.operations - 1; i >= 0; i--) {
            const Operation &o = operations[i];
            switch (o.kind) {
                case EMBED: embed_backward(o, x); break;
                case LINEAR: linear_backward(o); break;
                case NORM: norm_backward(o); break;
                case ATTENTION: attention_backward(o, i); break;
                case RELU: relu_backward(o); break;
                case DROPOUT: dropout(o, i, gradients[o.output], gradients[o.input], o.add_input); break;
                case ADD: add_backward(o); break;
            }
        }
    }

    void embed(const Operation &o, const int64_t *x) {
        int64_t width = o.width_out, stride = widths[o.output];
        for (int64_t r = 0; r < rows; r++) {
            const float *token = parameters + o.weight + x[r] * width;
            const float *place = (o.constant ? constants : parameters) + o.bias + (r % shape.time) * width;
            float *out = values[o.output] + r * stride;
            for (int64_t j = 0; j < width; j++) out[j] = o.bias < 0 ? token[j] : token[j] + place[j];
        }
    }

    void embed_backward(const Operation &o, const int64_t *x) {
        int64_t width = o.width_out, stride = widths[o.output];
        for (int64_t r = 0; r < rows; r++) {
            float *token = gradient + o.weight + x[r] * width;
            float *place = gradient + o.bias + (r % shape.time) * width;
            const float *out = gradients[o.output] + r * stride;
            for (int64_t j = 0; j < width; j++) token[j] += out[j];
            if (o.bias >= 0 && !o.constant)
                for (int64_t j = 0; j < width; j++) place[j] += out[j];
        }
    }

    void linear(const Operation &o) {
        int64_t stride = widths[o.output];
        float *out = values[o.output];
        for (int64_t r = 0; r < rows && o.bias >= 0; r++)
            std::memcpy(out + r * stride, parameters + o.bias, o.width_out * sizeof(float));
        products.multiply(values[o.input], widths[o.input], 1, weights[o.packed], 0, out, stride, rows, stride, o.width_in,
                          o.bias >= 0);
    }

    void linear_backward(const Operation &o) {
        int64_t stride = widths[o.output];
        const float *out = gradients[o.output];
        Right in = products.right(values[o.input], widths[o.input], 1, rows, o.width_in,
                                  scratch<1>(panel_floats(rows, o.width_in)));
        products.multiply(out, 1, stride, in, 0, gradient + o.weight, o.width_in, o.width_out, o.width_in, rows, adds);
        if (o.bias >= 0)
            for (int64_t r = 0; r < rows; r++)
                for (int64_t j = 0; j < o.width_out; j++) gradient[o.bias + j] += out[r * stride + j];
        products.multiply(out, stride, 1, weights[o.packed + 1], 0, gradients[o.input], widths[o.input], rows, o.width_in,
                          o.width_out, o.add_input);
    }

    void norm(const Operation &o) {
        int64_t width = o.width_out;
        const float *scale = parameters + o.weight, *shift = parameters + o.bias;
        for (int64_t r = 0; r < rows; r++) {
            const float *in = values[o.input] + r * widths[o.input];
            float *out = values[o.output] + r * widths[o.output], *saved = values[o.saved] + r * widths[o.saved];
            float mean = 0.0f, square = 0.0f;
            for (int64_t j = 0; j < width; j++) mean += in[j];
            mean /= width;
            for (int64_t j = 0; j < width; j++) square += (in[j] - mean) * (in[j] - mean);
            float inverse = 1.0f / std::sqrt(square / width + 1e-5f);
            for (int64_t j = 0; j < width; j++) out[j] = (in[j] - mean) * inverse * scale[j] + shift[j];
            saved[0] = mean;
            saved[1] = inverse;
        }
    }

    void norm_backward(const Operation &o) {
        int64_t width = o.width_out;
        const float *scale = parameters + o.weight;
        float *scale_gradient = gradient + o.weight, *shift_gradient = gradient + o.bias;
        for (int64_t r = 0; r < rows; r++) {
            const float *in = values[o.input] + r * widths[o.input], *out = gradients[o.output] + r * widths[o.output];
            const float *saved = values[o.saved] + r * widths[o.saved];
            float *in_gradient = gradients[o.input] + r * widths[o.input];
            float mean = saved[0], inverse = saved[1], sum = 0.0f, product = 0.0f;
            for (int64_t j = 0; j < width; j++) {
                float unit = (in[j] - mean) * inverse, g = out[j] * scale[j];
                scale_gradient[j] += out[j] * unit;
                shift_gradient[j] += out[j];
                sum += g;
                product += g * unit;
            }
            sum /= width;
            product /= width;
            for (int64_t j = 0; j < width; j++) {
                float unit = (in[j] - mean) * inverse;
                float g = inverse * (out[j] * scale[j] - sum - unit * product);
                in_gradient[j] = o.add_input ? in_gradient[j] + g : g;
            }
        }
    }

    // Saved: the weights (heads, time) of each query, negative where dropout takes them; after a query's block of rows
    // nothing is written. Keys and queries of one window and head are strided in place.
    void attention(const Operation &o, int64_t index) {
        int64_t width = o.width_out, size = width / o.heads, time = shape.time, stride = widths[o.input];
        int64_t saved = widths[o.saved];
        float *kept = scratch<2>(BLOCK * time);
        for (int64_t w = 0; w < rows; w += time)
            for (int64_t h = 0; h < o.heads; h++) {
                const float *query = values[o.input] + w * stride + h * size, *key = query + width;
                float *weights = values[o.saved] + w * saved + h * time;
                Right keys = products.right(key, 1, stride, size, time, scratch<3>(panel_floats(size, time)));
                Right items = products.right(key + width, stride, 1, time, size, scratch<4>(panel_floats(time, size)));
                for (int64_t t = 0; t < time; t += BLOCK) {
                    int64_t end = std::min(time, t + BLOCK);
                    float *block = weights + t * saved;
                    products.multiply(query + t * stride, stride, 1, keys, 0, block, saved, end - t, end, size, false);
                    softmax_of_past(block, saved, t, end, 1.0f / std::sqrt((float)size));
                    const float *factor = drop_weights(o, index, w, h, t, block, kept);
                    products.multiply(factor, factor == kept ? time : saved, 1, items, 0,
                                      values[o.output] + (w + t) * widths[o.output] + h * size, widths[o.output], end - t,
                                      size, end, false);
                }
            }
    }

    // Marks dropped weights of the rows from t on and returns the weights that count, in `kept` when any may be dropped.
    const float *drop_weights(const Operation &o, int64_t index, int64_t window, int64_t head, int64_t t, float *weights,
                              float *kept) const {
        if (!o.drops || rate == 0.0f) return weights;
        int64_t time = shape.time, saved = widths[o.saved], end = std::min(time, t + BLOCK);
        Mask mask(key, index, rate);
        for (int64_t row = t; row < end; row++, weights += saved, kept += time) {
            uint32_t first = (uint32_t)(((first_row + window + row) * o.heads + head) * time);
            for (int64_t u = 0; u < end; u++) {
                float factor = mask(first + (uint32_t)u);
                kept[u] = weights[u] * factor;
                weights[u] = factor == 0.0f ? -weights[u] : weights[u];
            }
        }
        return kept - (end - t) * time;
    }

    // Rows t..end - 1 of scores become weights; columns from the query's own on are the future, and zero.
    static void softmax_of_past(float *scores, int64_t stride, int64_t t, int64_t end, float scale) {
        float *row = scores;
        for (int64_t now = t; now < end; now++, row += stride) {
            float most = largest(row, now + 1), sum = 0.0f;
            for (int64_t u = 0; u < end; u++) row[u] = exponential((row[u] - most) * scale);
            for (int64_t u = now + 1; u < end; u++) row[u] = 0.0f;
            for (int64_t u = 0; u < end; u++) sum += row[u];
            float inverse = 1.0f / sum;
            for (int64_t u = 0; u < end; u++) row[u] *= inverse;
        }
    }

    void attention_backward(const Operation &o, int64_t index) {
        int64_t width = o.width_out, size = width / o.heads, time = shape.time, stride = widths[o.input];
        int64_t out_stride = widths[o.output], saved = widths[o.saved];
        bool drops = o.drops && rate > 0.0f;
        float keeps = drops ? 1.0f / (1.0f - rate) : 1.0f, scale = 1.0f / std::sqrt((float)size);
        float *scores = scratch<2>(2 * BLOCK * time), *kept = scores + BLOCK * time;
        int64_t floats = panel_floats(time, size);
        for (int64_t w = 0; w < rows; w += time)
            for (int64_t h = 0; h < o.heads; h++) {
                const float *query = values[o.input] + w * stride + h * size, *key = query + width, *value = key + width;
                float *query_gradient = gradients[o.input] + w * stride + h * size;
                const float *weights = values[o.saved] + w * saved + h * time;
                const float *out = gradients[o.output] + w * out_stride + h * size;
                Right values_across = products.right(value, 1, stride, size, time, scratch<3>(panel_floats(size, time)));
                Right keys = products.right(key, stride, 1, time, size, scratch<4>(floats));
                Right queries = products.right(query, stride, 1, time, size, scratch<5>(floats));
                Right outs = products.right(out, out_stride, 1, time, size, scratch<6>(floats));
                // From the last block of queries, which writes the gradient of every key and value, to the first.
                for (int64_t t = (time - 1) / BLOCK * BLOCK; t >= 0; t -= BLOCK) {
                    int64_t end = std::min(time, t + BLOCK), count = end - t;
                    bool adds = end < time;
                    products.multiply(out + t * out_stride, out_stride, 1, values_across, 0, scores, time, count, end, size,
                                      false);
                    softmax_backward(weights + t * saved, saved, scores, kept, time, count, end, keeps, scale);
                    products.multiply(scores, time, 1, keys, 0, query_gradient + t * stride, stride, count, size, end, false);
                    products.multiply(scores, 1, time, queries, t, query_gradient + width, stride, end, size, count, adds);
                    products.multiply(kept, 1, time, outs, t, query_gradient + 2 * width, stride, end, size, count, adds);
                }
            }
    }

    // Turns the gradients of kept weights in `scores` into those of the scores, and writes the kept weights.
    static void softmax_backward(const float *weights, int64_t saved, float *scores, float *kept, int64_t stride,
                                 int64_t count, int64_t columns, float keeps, float scale) {
        for (int64_t t = 0; t < count; t++, weights += saved, scores += stride, kept += stride) {
            float sum = 0.0f;
            for (int64_t u = 0; u < columns; u++) {
                kept[u] = weights[u] > 0.0f ? weights[u] * keeps : 0.0f;
                sum += scores[u] * kept[u];
            }
            for (int64_t u = 0; u < columns; u++) {
                float gradient = weights[u] > 0.0f ? scores[u] * keeps : 0.0f;
                scores[u] = (gradient - sum) * std::fabs(weights[u]) * scale;
            }
        }
    }

    void relu(const Operation &o) {
        int64_t count = rows * widths[o.output];
        const float *in = values[o.input];
        float *out = values[o.output];
        for (int64_t i = 0; i < count; i++) out[i] = in[i] < 0.0f ? 0.0f : in[i];
    }

    void relu_backward(const Operation &o) {
        int64_t count = rows * widths[o.output];
        const float *in = values[o.input], *out = gradients[o.output];
        float *in_gradient = gradients[o.input];
        for (int64_t i = 0; i < count; i++) in_gradient[i] = in[i] <= 0.0f ? 0.0f : out[i];
    }

    // The same map takes values forward and gradients backward.
    void dropout(const Operation &o, int64_t index, const float *from, float *to, bool accumulate) {
        int64_t width = o.width_out, stride = widths[o.output];
        Mask mask(key, index, rate);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < width; j++) {
                float factor = rate > 0.0f ? mask((uint32_t)((first_row + r) * width + j)) : 1.0f;
                float kept = factor == 0.0f ? 0.0f : from[r * stride + j] * factor;
                to[r * stride + j] = accumulate ? to[r * stride + j] + kept : kept;
            }
    }

    void add(const Operation &o) {
        int64_t count = rows * widths[o.output];
        const float *a = values[o.input], *b = values[o.other];
        float *out = values[o.output];
        for (int64_t i = 0; i < count; i++) out[i] = a[i] + b[i];
    }

    void add_backward(const Operation &o) {
        pass_on(gradients[o.output], gradients[o.input], rows * widths[o.output], o.add_input);
        pass_on(gradients[o.output], gradients[o.other], rows * widths[o.output], o.add_other);
    }

    static inline void pass_on(const float *from, float *to, int64_t count, bool accumulate) {
        for (int64_t i = 0; i < count; i++) to[i] = accumulate ? to[i] + from[i] : from[i];
    }

    // Cross entropy of each row in nats; the gradient of scale times their sum goes to the logits' gradient.
    void loss(const Operation &o, const int64_t *y, float scale, float *losses) {
        int64_t stride = widths[o.input];
        for (int64_t r = 0; r < rows; r++) {
            const float *logits = values[o.input] + r * stride;
            float most = largest(logits, shape.vocabulary), sum = 0.0f;
            float *out = gradient ? gradients[o.input] + r * stride : values[o.saved] + r * stride;
            for (int64_t j = 0; j < shape.vocabulary; j++) out[j] = exponential(logits[j] - most);
            for (int64_t j = 0; j < shape.vocabulary; j++) sum += out[j];
            losses[r] = std::log(sum) + most - logits[y[r]];
            if (!gradient) continue;
            float factor = scale / sum;
            for (int64_t j = 0; j < shape.vocabulary; j++) out[j] *= factor;
            out[y[r]] -= scale;
        }
    }
};

