// The operations of a tape, forward and backward, on the rows of one thread.
#pragma once
#include <cmath>
#include <vector>

#include "dropout.h"
#include "product.h"

enum Kind { EMBED, LINEAR, NORM, ATTENTION, RELU, DROPOUT, ADD, LOSS };

struct Operation {
    int64_t kind, input, other, output;        // buffers
    int64_t width_in, width_out;               // columns of input and output
    int64_t weight, bias;                      // offsets into the parameters, -1 for none
    int64_t constant;                          // embedding: 1 when the positions are constants and not parameters
    int64_t saved;                             // buffer of what the backward pass needs, -1 for none
    int64_t heads;
    int64_t packed;                            // offset of the transposed weight among the packed weights
    int64_t add_input, add_other;              // whether the gradient buffer already holds a part of the sum
    int64_t drops;                             // attention: whether weights are dropped
};

struct Shape {
    int64_t operations, buffers, parameters, packed, time, vocabulary;
};

struct Slice {
    const Shape &shape;
    const Operation *operations;
    const int64_t *widths;  // columns of every buffer
    const float *parameters, *constants, *packed;
    float *gradient;  // this thread's own sum, null when only the loss is wanted
    float rate;       // of dropout
    uint64_t key;
    std::vector<float *> values, gradients;
    int64_t rows = 0, first_row = 0;

    // Lays the buffers out in the workspace from `next` on.
    void place_buffers(float *next, int64_t most_rows) {
        for (int pass = 0; pass < (gradient ? 2 : 1); pass++)
            for (int64_t i = 0; i < shape.buffers; i++) {
                (pass ? gradients : values).push_back(next);
                next += widths[i] * most_rows;
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
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < o.width_out; j++) out[r * stride + j] = o.bias < 0 ? 0.0f : parameters[o.bias + j];
        product(values[o.input], widths[o.input], 1, packed + o.packed, stride, out, stride, rows, stride, o.width_in,
                true);
    }

    void linear_backward(const Operation &o) {
        int64_t stride = widths[o.output];
        const float *out = gradients[o.output];
        product(out, 1, stride, values[o.input], widths[o.input], gradient + o.weight, o.width_in, o.width_out,
                o.width_in, rows, true);
        if (o.bias >= 0)
            for (int64_t r = 0; r < rows; r++)
                for (int64_t j = 0; j < o.width_out; j++) gradient[o.bias + j] += out[r * stride + j];
        product(out, stride, 1, parameters + o.weight, o.width_in, gradients[o.input], widths[o.input], rows, o.width_in,
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

    // Saved: the weights (heads, time) of each query. Keys and queries of one window and head are strided in place.
    void attention(const Operation &o, int64_t index) {
        int64_t width = o.width_out, size = width / o.heads, time = shape.time, stride = widths[o.input];
        float scale = 1.0f / std::sqrt((float)size);
        std::vector<float> turned(size * time), kept(time * time);
        for (int64_t w = 0; w < rows; w += time)
            for (int64_t h = 0; h < o.heads; h++) {
                const float *query = values[o.input] + w * stride + h * size, *key = query + width;
                float *weights = values[o.saved] + w * widths[o.saved] + h * time;
                for (int64_t u = 0; u < time; u++)
                    for (int64_t d = 0; d < size; d++) turned[d * time + u] = key[u * stride + d] * scale;
                product(query, stride, 1, turned.data(), time, weights, widths[o.saved], time, time, size, false);
                for (int64_t t = 0; t < time; t++) softmax_of_past(weights + t * widths[o.saved], t, time);
                const float *factor = dropped_weights(o, index, w, h, weights, kept.data());
                product(factor, factor == weights ? widths[o.saved] : time, 1, key + width, stride,
                        values[o.output] + w * widths[o.output] + h * size, widths[o.output], time, size, time, false);
            }
    }

    // The attention weights with some of them zero, in `kept`; or the weights themselves when none is dropped.
    const float *dropped_weights(const Operation &o, int64_t index, int64_t window, int64_t head, const float *weights,
                                 float *kept) const {
        if (!o.drops || rate == 0.0f) return weights;
        int64_t time = shape.time, stride = widths[o.saved];
        Mask mask(key, index, rate);
        for (int64_t t = 0; t < time; t++)
            for (int64_t u = 0; u < time; u++)
                kept[t * time + u] = weights[t * stride + u] * mask(mask_index(o, window + t, head, u));
        return kept;
    }

    uint32_t mask_index(const Operation &o, int64_t row, int64_t head, int64_t key_time) const {
        return (uint32_t)(((first_row + row) * o.heads + head) * shape.time + key_time);
    }

    static inline void softmax_of_past(float *row, int64_t t, int64_t time) {
        float most = row[0], sum = 0.0f;
        for (int64_t u = 1; u <= t; u++) most = row[u] > most ? row[u] : most;
        for (int64_t u = 0; u < time; u++) row[u] = u <= t ? exponential(row[u] - most) : 0.0f;
        for (int64_t u = 0; u < time; u++) sum += row[u];
        float inverse = 1.0f / sum;
        for (int64_t u = 0; u < time; u++) row[u] *= inverse;
    }

    void attention_backward(const Operation &o, int64_t index) {
        int64_t width = o.width_out, size = width / o.heads, time = shape.time, stride = widths[o.input];
        int64_t out_stride = widths[o.output], saved = widths[o.saved];
        float scale = 1.0f / std::sqrt((float)size);
        std::vector<float> turned(size * time), scores(time * time), kept(time * time);
        bool drops = o.drops && rate > 0.0f;
        Mask mask(key, index, rate);
        for (int64_t w = 0; w < rows; w += time)
            for (int64_t h = 0; h < o.heads; h++) {
                const float *query = values[o.input] + w * stride + h * size, *key = query + width, *value = key + width;
                float *query_gradient = gradients[o.input] + w * stride + h * size;
                const float *weights = values[o.saved] + w * saved + h * time;
                const float *out = gradients[o.output] + w * out_stride + h * size;
                for (int64_t u = 0; u < time; u++)
                    for (int64_t d = 0; d < size; d++) turned[d * time + u] = value[u * stride + d];
                product(out, out_stride, 1, turned.data(), time, scores.data(), time, time, time, size, false);
                const float *factor = dropped_weights(o, index, w, h, weights, kept.data());
                if (drops)
                    for (int64_t t = 0; t < time; t++)
                        for (int64_t u = 0; u < time; u++) scores[t * time + u] *= mask(mask_index(o, w + t, h, u));
                for (int64_t t = 0; t < time; t++) {
                    float sum = 0.0f;
                    for (int64_t u = 0; u < time; u++) sum += scores[t * time + u] * weights[t * saved + u];
                    for (int64_t u = 0; u < time; u++)
                        scores[t * time + u] = (scores[t * time + u] - sum) * weights[t * saved + u] * scale;
                }
                product(factor, 1, drops ? time : saved, out, out_stride, query_gradient + 2 * width, stride, time, size, time,
                        false);
                product(scores.data(), time, 1, key, stride, query_gradient, stride, time, size, time, false);
                product(scores.data(), 1, time, query, stride, query_gradient + width, stride, time, size, time, false);
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
            float most = logits[0], sum = 0.0f;
            for (int64_t j = 1; j < shape.vocabulary; j++) most = logits[j] > most ? logits[j] : most;
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

