// SPDX-License-Identifier: Apache-2.0
// Attention of several heads against loops in double precision, for each instruction set.
#include "src/kernels/head_attention.h"

#include <limits>
#include <memory>

#include "naive.h"

namespace processor {
namespace {

struct Tensors {
  explicit Tensors(const AttentionShape& shape)
      : query(SomeFloats(shape.queries * shape.heads * shape.dim, 1)),
        key(SomeFloats(shape.keys * shape.heads * shape.dim, 2)),
        value(SomeFloats(shape.keys * shape.heads * shape.value_dim, 3)) {}
  std::vector<float> query, key, value;
};

template <typename T>
T At(const Broadcast<T>& mask, int64_t h, int64_t q, int64_t k) {
  return mask.data[h * mask.head_stride + q * mask.query_stride + k * mask.key_stride];
}

std::vector<double> NaiveAttention(const AttentionShape& shape, const HeadAttentionRule& rule, const Tensors& in,
                                   const AttentionMasks& masks) {
  std::vector<double> found(shape.queries * shape.heads * shape.value_dim, 0);
  for (int64_t q = 0; q < shape.queries; ++q) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      std::vector<double> weights(shape.keys);
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t k = 0; k < shape.keys; ++k) {
        double dot = 0;
        for (int64_t e = 0; e < shape.dim; ++e) {
          dot +=
              double{in.query[(q * shape.heads + h) * shape.dim + e]} * in.key[(k * shape.heads + h) * shape.dim + e];
        }
        weights[k] = dot * rule.scale;
        if (masks.bias.data != nullptr) weights[k] += At(masks.bias, h, q, k);
        if (masks.condition.data != nullptr && !At(masks.condition, h, q, k)) weights[k] = rule.padding;
        most = std::max(most, weights[k]);
      }
      for (double& weight : weights) sum += weight = std::exp(weight - most);
      for (int64_t k = 0; k < shape.keys; ++k) {
        const double weight = weights[k] / sum * (masks.gate != nullptr ? masks.gate[q] : 1);
        for (int64_t e = 0; e < shape.value_dim; ++e) {
          found[(q * shape.heads + h) * shape.value_dim + e] +=
              weight * in.value[(k * shape.heads + h) * shape.value_dim + e];
        }
      }
    }
  }
  return found;
}

std::vector<float> Attend(const AttentionShape& shape, const HeadAttentionRule& rule, const Tensors& in,
                          const AttentionMasks& masks, Isa isa) {
  std::vector<float> scratch(AttentionScratch(shape), kNan), dst(shape.queries * shape.heads * shape.value_dim, -7);
  AttendHeads(shape, rule, in.query.data(), in.key.data(), in.value.data(), masks, scratch.data(), dst.data(), isa);
  return dst;
}

TEST(HeadAttention, EqualsLoops) {
  for (Isa isa : SupportedIsas()) {
    for (int64_t heads : {1, 2, 5}) {
      for (int64_t queries : {0, 1, 3, 7, 8}) {
        for (int64_t keys : {1, 2, 31, 33}) {
          for (int64_t dim : {1, 4, 17}) {
            const AttentionShape shape{heads, queries, keys, dim, dim == 4 ? 33 : dim};
            SCOPED_TRACE(testing::Message()
                         << IsaName(isa) << " " << heads << " heads " << queries << "x" << keys << "x" << dim);
            const Tensors in(shape);
            const HeadAttentionRule rule{0.37f, 0};
            ExpectNear(Attend(shape, rule, in, {}, isa), NaiveAttention(shape, rule, in, {}));
          }
        }
      }
    }
  }
}

// With few queries scores have a row for each, otherwise one for each key.
constexpr int64_t kQueries[] = {3, 6};

TEST(HeadAttention, AcceptsMasksOfEveryShape) {
  for (int64_t queries : kQueries) {
    const AttentionShape shape{2, queries, 5, 4, 6};
    const Tensors in(shape);
    const HeadAttentionRule rule{0.5f, -4294967295.0f};
    const std::vector<float> bias = SomeFloats(2 * queries * 5, 4), gate = {1, 0, 0.5f, 2, -1, 0};
    const std::unique_ptr<bool[]> condition(new bool[2 * queries * 5]);
    for (int i = 0; i < 2 * queries * 5; ++i) condition[i] = i % 3 != 1;
    const int64_t strides[][3] = {{queries * 5, 5, 1}, {0, 5, 1}, {0, 0, 1}, {1, 0, 0}, {0, 0, 0}};
    for (Isa isa : SupportedIsas()) {
      for (const auto& stride : strides) {
        for (const auto& two : strides) {
          AttentionMasks masks;
          masks.bias = {bias.data(), stride[0], stride[1], stride[2]};
          masks.condition = {condition.get(), two[0], two[1], two[2]};
          masks.gate = gate.data();
          ExpectNear(Attend(shape, rule, in, masks, isa), NaiveAttention(shape, rule, in, masks));
        }
      }
    }
  }
}

TEST(HeadAttention, WeightsAreEqualIfAllPositionsAreMasked) {
  for (int64_t queries : kQueries) {
    const AttentionShape shape{1, queries, 7, 3, 1};
    const Tensors in(shape);
    const bool none = false;
    AttentionMasks masks;
    masks.condition = {&none, 0, 0, 0};
    for (Isa isa : SupportedIsas()) {
      double mean = 0;
      for (float value : in.value) mean += value / 7;
      ExpectNear(Attend(shape, {1, -1e9f}, in, masks, isa), std::vector<double>(queries, mean));
    }
  }
}

TEST(HeadAttention, NanStaysInItsHeadAndRow) {
  for (float strange : {kNan, kInfinity}) {
    for (int64_t queries : kQueries) {
      const AttentionShape shape{2, queries, 4, 2, 2};
      Tensors in(shape);
      in.query[(1 * 2 + 1) * 2] = strange;  // the second query's second head
      for (Isa isa : SupportedIsas()) {
        const std::vector<float> found = Attend(shape, {}, in, {}, isa);
        for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(std::isnan(found[i]), i == 6 || i == 7) << strange << i;
      }
    }
  }
}

TEST(HeadAttention, SumsOverNoKeyAreZero) {
  const AttentionShape shape{2, 3, 0, 2, 2};
  for (Isa isa : SupportedIsas()) EXPECT_EQ(Attend(shape, {}, Tensors(shape), {}, isa), std::vector<float>(12, 0));
}

}  // namespace
}  // namespace processor
