// SPDX-License-Identifier: Apache-2.0
// Kernels over sequences and outer products of fields, against plain loops.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/floats.h"
#include "kernels/kernel_case.h"
#include "src/kernels/field_outer.h"
#include "src/kernels/head_attention.h"
#include "src/kernels/recurrent_layer.h"
#include "src/kernels/sequence_pooling.h"

namespace processor::bench {
namespace {

/// What a case computes with, and what its two ways give.
struct SequenceData : TwoAnswers {
  Floats x, y, z, more, scratch;
};

KernelCase OuterCase(int64_t rows, int64_t fields, int64_t others, int64_t dim) {
  auto data = std::make_shared<SequenceData>();
  data->x = Random(rows * fields * dim, 1, 1);
  data->y = Random(rows * others * dim, 1, 2);
  data->ours.resize(rows * dim * fields * others);
  data->theirs.resize(data->ours.size());
  data->scratch.resize(fields + others);
  auto ours = [=] {
    for (int64_t row = 0; row < rows; ++row) {
      FieldOuter(data->x.data() + row * fields * dim, fields, data->y.data() + row * others * dim, others, dim,
                 data->scratch.data(), data->ours.data() + row * dim * fields * others);
    }
  };
  auto loops = [=] {
    float* dst = data->theirs.data();
    for (int64_t row = 0; row < rows; ++row) {
      const float *x = data->x.data() + row * fields * dim, *y = data->y.data() + row * others * dim;
      for (int64_t e = 0; e < dim; ++e) {
        for (int64_t i = 0; i < fields; ++i) {
          for (int64_t j = 0; j < others; ++j) *dst++ = x[i * dim + e] * y[j * dim + e];
        }
      }
    }
  };
  KernelCase made = CompareWays(data, {"outer", ours}, {"loops", loops});
  made.flops = static_cast<double>(data->ours.size());
  return made;
}

KernelCase PoolingCase(int64_t rows, int64_t length, int64_t dim) {
  auto data = std::make_shared<SequenceData>();
  data->x = Random(rows * length * dim, 1, 1);
  data->y = Random(rows * length, 1, 2);
  for (float& weight : data->y) weight = weight > 0 ? 1.0f : 0.0f;
  data->ours.resize(rows * dim);
  data->theirs.resize(rows * dim);
  PoolingRule rule;
  rule.combiner = Pooling::kMax;
  rule.padding = -2;
  auto ours = [=] {
    for (int64_t row = 0; row < rows; ++row) {
      PoolSequence(data->x.data() + row * length * dim, data->y.data() + row * length, length, dim, rule, 0,
                   data->ours.data() + row * dim);
    }
  };
  auto loops = [=] {
    for (int64_t row = 0; row < rows; ++row) {
      float* dst = data->theirs.data() + row * dim;
      std::fill_n(dst, dim, -2.0f);
      for (int64_t t = row * length; t < (row + 1) * length; ++t) {
        if (data->y[t] == 0) continue;
        for (int64_t e = 0; e < dim; ++e) {
          const float value = data->x[t * dim + e];
          dst[e] = value > dst[e] || value != value ? value : dst[e];
        }
      }
    }
  };
  KernelCase made = CompareWays(data, {"max", ours}, {"loops", loops});
  made.bytes = 4.0 * static_cast<double>(rows * length * dim);
  return made;
}

KernelCase HeadsCase(int64_t rows, int64_t length, int64_t heads, int64_t dim) {
  auto data = std::make_shared<SequenceData>();
  const int64_t width = heads * dim, size = length * width;
  data->x = Random(rows * size, 1, 1);
  data->y = Random(rows * size, 1, 2);
  data->z = Random(rows * size, 1, 3);
  data->more.resize(length);
  data->ours.resize(rows * size);
  data->theirs.resize(rows * size);
  const AttentionShape shape{heads, length, length, dim, dim};
  data->scratch.resize(AttentionScratch(shape));
  HeadAttentionRule rule;
  rule.scale = 1 / std::sqrt(static_cast<float>(dim));
  auto ours = [=] {
    for (int64_t row = 0; row < rows; ++row) {
      AttendHeads(shape, rule, data->x.data() + row * size, data->y.data() + row * size, data->z.data() + row * size,
                  {}, data->scratch.data(), data->ours.data() + row * size);
    }
  };
  auto loops = [=] {
    float* weights = data->more.data();
    for (int64_t place = 0; place < rows * length * heads; ++place) {
      const int64_t head = place % heads, row = place / heads / length;
      const float* query = data->x.data() + place * dim;
      float *dst = data->theirs.data() + place * dim, most = -INFINITY, sum = 0;
      for (int64_t k = 0; k < length; ++k) {
        const float* key = data->y.data() + row * size + k * width + head * dim;
        float dot = 0;
        for (int64_t e = 0; e < dim; ++e) dot += query[e] * key[e];
        weights[k] = dot * rule.scale;
        most = std::max(most, weights[k]);
      }
      for (int64_t k = 0; k < length; ++k) sum += weights[k] = std::exp(weights[k] - most);
      std::fill_n(dst, dim, 0.0f);
      for (int64_t k = 0; k < length; ++k) {
        const float* value = data->z.data() + row * size + k * width + head * dim;
        for (int64_t e = 0; e < dim; ++e) dst[e] += weights[k] / sum * value[e];
      }
    }
  };
  KernelCase made = CompareWays(data, {"heads", ours}, {"loops", loops});
  made.flops = 4.0 * static_cast<double>(rows * length * size);
  return made;
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

KernelCase GruCase(int64_t rows, int64_t length, int64_t inputs, int64_t units) {
  auto data = std::make_shared<SequenceData>();
  const int64_t n = 3 * units;
  data->x = Random(rows * length * inputs, 1, 1);
  data->y = Random(inputs * n, 0.3f, 2);
  data->z = Random(units * n, 0.3f, 3);
  data->ours.resize(rows * units);
  data->theirs.resize(rows * units);
  data->more.resize(2 * n);
  RecurrentWeights weights;
  weights.inputs = inputs;
  weights.units = units;
  weights.kernel = data->y.data();
  weights.recurrent = data->z.data();
  auto layer = std::make_shared<RecurrentLayer>(weights);
  data->scratch.resize(layer->scratch(length));
  auto ours = [=] {
    layer->Rows(data->x.data(), nullptr, 0, rows, length, {}, data->scratch.data(), data->ours.data());
  };
  auto multiply = [=](const float* src, int64_t k, const float* matrix, float* dst) {
    std::fill_n(dst, n, 0.0f);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < n; ++j) dst[j] += src[i] * matrix[i * n + j];
    }
  };
  auto loops = [=] {
    float *of_x = data->more.data(), *of_state = of_x + n;
    for (int64_t row = 0; row < rows; ++row) {
      float* state = data->theirs.data() + row * units;
      std::fill_n(state, units, 0.0f);
      for (int64_t t = row * length; t < (row + 1) * length; ++t) {
        multiply(data->x.data() + t * inputs, inputs, data->y.data(), of_x);
        multiply(state, units, data->z.data(), of_state);
        for (int64_t i = 0; i < units; ++i) {
          const float z = Sigmoid(of_x[i] + of_state[i]), r = Sigmoid(of_x[units + i] + of_state[units + i]);
          state[i] = z * state[i] + (1 - z) * std::tanh(of_x[2 * units + i] + r * of_state[2 * units + i]);
        }
      }
    }
  };
  KernelCase made = CompareWays(data, {"gru", ours}, {"loops", loops});
  made.flops = 2.0 * static_cast<double>(rows * length * (inputs + units) * n);
  return made;
}

bool RegisterSequenceCases() {
  for (int64_t rows : {1, 16, 128}) {
    RegisterCase(absl::StrCat("outer/26x26x16/rows:", rows), [=] { return OuterCase(rows, 26, 26, 16); });
    RegisterCase(absl::StrCat("max/50x32/rows:", rows), [=] { return PoolingCase(rows, 50, 32); });
    RegisterCase(absl::StrCat("heads/26x2x16/rows:", rows), [=] { return HeadsCase(rows, 26, 2, 16); });
    RegisterCase(absl::StrCat("heads/50x4x16/rows:", rows), [=] { return HeadsCase(rows, 50, 4, 16); });
    RegisterCase(absl::StrCat("gru/20x16/24/rows:", rows), [=] { return GruCase(rows, 20, 16, 24); });
    RegisterCase(absl::StrCat("gru/50x32/64/rows:", rows), [=] { return GruCase(rows, 50, 32, 64); });
  }
  return true;
}

[[maybe_unused]] const bool sequence_registered = RegisterSequenceCases();

}  // namespace
}  // namespace processor::bench
