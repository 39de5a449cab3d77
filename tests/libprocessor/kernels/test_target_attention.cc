// SPDX-License-Identifier: Apache-2.0
// The attention unit against its definition, for each instruction set.
#include "src/kernels/target_attention.h"

#include <functional>
#include <limits>

#include "naive.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {
namespace {

struct Case {
  int64_t rows = 3;
  int64_t length = 7;
  int64_t dim = 5;
  std::vector<AttentionPart> parts = {AttentionPart::kQuery, AttentionPart::kKey, AttentionPart::kQueryMinusKey,
                                      AttentionPart::kProduct};
  std::vector<int64_t> units = {8, 4, 1};
  ActivationKind activation = ActivationKind::kSigmoid;
  AttentionRule rule;
  bool masked = true;
};

double Activate(ActivationKind kind, double x, const std::vector<float>& weights) {
  switch (kind) {
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ActivationKind::kPrelu:
      return x > 0 ? x : weights[0] * x;
    case ActivationKind::kDice: {
      const double p = 1 / (1 + std::exp(-(x * weights[1] + weights[2])));
      return p * x + (1 - p) * weights[0] * x;
    }
    default:
      return x;
  }
}

/// Everything that a case is computed from.
struct Data {
  std::vector<float> query, keys;
  tensorflow::Tensor mask;
  std::vector<std::vector<float>> kernels, biases, alphas, scales, shifts;
};

Data MakeData(const Case& c) {
  Data data{SomeFloats(c.rows * c.dim, 1),
            SomeFloats(c.rows * c.length * c.dim, 2),
            tensorflow::Tensor(tensorflow::DT_BOOL, {c.rows, c.length}),
            {},
            {},
            {},
            {},
            {}};
  int64_t inputs = static_cast<int64_t>(c.parts.size()) * c.dim;
  for (size_t i = 0; i < c.units.size(); ++i) {
    const auto seed = static_cast<uint32_t>(10 * i);
    data.kernels.push_back(SomeFloats(inputs * c.units[i], seed + 3));
    for (float& weight : data.kernels.back()) weight *= 2 / std::sqrt(static_cast<float>(inputs));
    data.biases.push_back(SomeFloats(c.units[i], seed + 4));
    data.alphas.push_back(SomeFloats(c.units[i], seed + 5));
    data.scales.push_back(SomeFloats(c.units[i], seed + 6));
    data.shifts.push_back(SomeFloats(c.units[i], seed + 7));
    inputs = c.units[i];
  }
  std::mt19937 random(5);
  // The first row has nothing that counts, the last one everything.
  for (int64_t i = 0; i < c.rows * c.length; ++i) {
    data.mask.flat<bool>()(i) = i >= c.length && (random() % 2 != 0 || i >= (c.rows - 1) * c.length);
  }
  return data;
}

double Score(const Case& c, const Data& data, const float* query, const float* key) {
  std::vector<double> x;
  for (AttentionPart part : c.parts) {
    for (int64_t e = 0; e < c.dim; ++e) {
      const double q = query[e], k = key[e];
      x.push_back(part == AttentionPart::kQuery           ? q
                  : part == AttentionPart::kKey           ? k
                  : part == AttentionPart::kQueryMinusKey ? q - k
                  : part == AttentionPart::kKeyMinusQuery ? k - q
                                                          : q * k);
    }
  }
  for (size_t layer = 0; layer < c.units.size(); ++layer) {
    std::vector<double> y(data.biases[layer].begin(), data.biases[layer].end());
    for (size_t j = 0; j < y.size(); ++j) {
      for (size_t i = 0; i < x.size(); ++i) y[j] += x[i] * data.kernels[layer][i * y.size() + j];
      const bool last = layer + 1 == c.units.size();
      y[j] = Activate(last ? ActivationKind::kNone : c.activation, y[j],
                      {data.alphas[layer][j], data.scales[layer][j], data.shifts[layer][j]});
    }
    x = y;
  }
  return x[0];
}

std::vector<double> NaiveScores(const Case& c, const Data& data) {
  std::vector<double> pooled;
  for (int64_t row = 0; row < c.rows; ++row) {
    std::vector<double> scores(c.length);
    for (int64_t t = 0; t < c.length; ++t) {
      const bool counts = !c.masked || data.mask.flat<bool>()(row * c.length + t);
      scores[t] =
          c.rule.scale * (counts ? Score(c, data, &data.query[row * c.dim], &data.keys[(row * c.length + t) * c.dim])
                                 : c.rule.padding);
    }
    if (c.rule.softmax) {
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      for (double score : scores) most = std::max(most, score);
      for (double& score : scores) sum += score = std::exp(score - most);
      for (double& score : scores) score /= sum;
    }
    for (int64_t e = 0; e < c.dim; ++e) {
      double sum = 0;
      for (int64_t t = 0; t < c.length; ++t) sum += scores[t] * data.keys[(row * c.length + t) * c.dim + e];
      pooled.push_back(sum);
    }
  }
  return pooled;
}

/// Makes two masks of which both are true where one is.
std::vector<tensorflow::Tensor> SplitMask(const tensorflow::Tensor& mask) {
  std::vector<tensorflow::Tensor> both(2, tensorflow::Tensor(tensorflow::DT_BOOL, mask.shape()));
  both[1] = tensorflow::Tensor(tensorflow::DT_BOOL, mask.shape());
  for (int64_t i = 0; i < mask.NumElements(); ++i) {
    const bool counts = mask.flat<bool>()(i);
    both[0].flat<bool>()(i) = counts || i % 2 == 0;
    both[1].flat<bool>()(i) = counts || i % 2 != 0;
  }
  return both;
}

void CheckCase(const Case& c) {
  const Data data = MakeData(c);
  std::vector<AttentionLayer> layers;
  for (size_t i = 0; i < c.units.size(); ++i) {
    AttentionLayer layer{c.units[i], data.kernels[i].data(), data.biases[i].data(), {}};
    if (i + 1 < c.units.size()) layer.activation.kind = c.activation;
    if (layer.activation.kind == ActivationKind::kPrelu || layer.activation.kind == ActivationKind::kDice) {
      layer.activation.weight = data.alphas[i].data();
    }
    if (layer.activation.kind == ActivationKind::kDice) {
      layer.activation.scale = data.scales[i].data();
      layer.activation.shift = data.shifts[i].data();
    }
    layers.push_back(layer);
  }
  const TargetAttention unit(c.dim, c.parts, layers, c.rule);
  // Masks that all let a position count.
  std::vector<SequenceMask> masks(c.masked ? 2 : 0);
  const std::vector<tensorflow::Tensor> given = SplitMask(data.mask);
  for (size_t i = 0; i < masks.size(); ++i) {
    ASSERT_TRUE(SequenceMask::Read(given[i], c.rows, c.length, &masks[i]).ok());
  }
  for (Isa isa : SupportedIsas()) {
    SCOPED_TRACE(testing::Message() << IsaName(isa) << " " << c.rows << "x" << c.length << "x" << c.dim);
    std::vector<float> scratch(unit.scratch(c.length), NAN), dst(c.rows * c.dim, -7);
    // In two parts, as threads would.
    const int64_t middle = c.rows / 2;
    for (auto [begin, end] : {std::pair{int64_t{0}, middle}, std::pair{middle, c.rows}}) {
      unit.Rows(data.query.data(), data.keys.data(), masks, begin, end, c.length, scratch.data(), dst.data(), isa);
    }
    ExpectNear(dst, NaiveScores(c, data), static_cast<double>(c.length));
  }
}

TEST(TargetAttention, EqualsItsDefinitionForAllShapes) {
  for (int64_t rows : {0, 1, 2, 5}) {
    for (int64_t length : {0, 1, 7, 50, 600}) {
      for (int64_t dim : {1, 8, 17}) {
        Case c;
        c.rows = rows;
        c.length = length;
        c.dim = dim;
        CheckCase(c);
      }
    }
  }
}

TEST(TargetAttention, EqualsItsDefinitionForAllParts) {
  using enum_part = AttentionPart;
  for (const std::vector<AttentionPart>& parts : std::vector<std::vector<AttentionPart>>{
           {enum_part::kQuery},
           {enum_part::kProduct},
           {enum_part::kKey, enum_part::kQuery},
           {enum_part::kKeyMinusQuery, enum_part::kProduct},
           {enum_part::kProduct, enum_part::kQueryMinusKey, enum_part::kKey, enum_part::kQuery, enum_part::kKey}}) {
    Case c;
    c.parts = parts;
    CheckCase(c);
  }
}

TEST(TargetAttention, EqualsItsDefinitionForAllRules) {
  for (ActivationKind activation :
       {ActivationKind::kNone, ActivationKind::kRelu, ActivationKind::kPrelu, ActivationKind::kDice}) {
    for (bool masked : {false, true}) {
      for (const AttentionRule& rule : {AttentionRule{}, AttentionRule{true, -4294967295.0f, 1},
                                        AttentionRule{true, -4294967295.0f, 0.25f}, AttentionRule{false, 0.5f, 2}}) {
        for (const std::vector<int64_t>& units : std::vector<std::vector<int64_t>>{{1}, {80, 40, 1}, {3, 70, 5, 1}}) {
          Case c;
          c.activation = activation;
          c.masked = masked;
          c.rule = rule;
          c.units = units;
          CheckCase(c);
        }
      }
    }
  }
}

}  // namespace
}  // namespace processor
