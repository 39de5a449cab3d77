// SPDX-License-Identifier: Apache-2.0
// Recurrent layers against loops in double precision, for each instruction set.
#include "src/kernels/recurrent_layer.h"

#include <limits>
#include <memory>

#include "naive.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {
namespace {

constexpr RecurrentCell kCells[] = {RecurrentCell::kGru, RecurrentCell::kGruResetBefore, RecurrentCell::kLstm};
struct RandomRecurrence {
  RandomRecurrence(RecurrentCell cell, int64_t inputs, int64_t units, bool biased)
      : kernel(SomeFloats(inputs * RecurrentGates(cell) * units, 1)),
        recurrent(SomeFloats(units * RecurrentGates(cell) * units, 2)),
        bias(SomeFloats(RecurrentGates(cell) * units, 3)),
        recurrent_bias(SomeFloats(RecurrentGates(cell) * units, 4)) {
    for (float& weight : recurrent) weight *= 0.5f;
    given.cell = cell;
    given.inputs = inputs;
    given.units = units;
    given.kernel = kernel.data();
    given.recurrent = recurrent.data();
    given.bias = biased ? bias.data() : nullptr;
    given.recurrent_bias = biased && cell == RecurrentCell::kGru ? recurrent_bias.data() : nullptr;
  }
  std::vector<float> kernel, recurrent, bias, recurrent_bias;
  RecurrentWeights given;
};

/// `x · W + b` of one column.
double Sum(const float* matrix, const float* bias, int64_t n, int64_t column, const std::vector<double>& x) {
  double sum = bias != nullptr ? bias[column] : 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * matrix[i * n + column];
  return sum;
}

void Step(const RecurrentWeights& w, const std::vector<double>& x, std::vector<double>* h, std::vector<double>* c) {
  const int64_t u = w.units, n = RecurrentGates(w.cell) * u;
  const std::vector<double> before = *h;
  auto of_x = [&](int64_t gate, int64_t i) { return Sum(w.kernel, w.bias, n, gate * u + i, x); };
  auto of_h = [&](int64_t gate, int64_t i, const std::vector<double>& state) {
    return Sum(w.recurrent, w.recurrent_bias, n, gate * u + i, state);
  };
  std::vector<double> reset(u);
  for (int64_t i = 0; i < u; ++i) reset[i] = Sigmoid(of_x(1, i) + of_h(1, i, before)) * before[i];
  for (int64_t i = 0; i < u; ++i) {
    const double first = Sigmoid(of_x(0, i) + of_h(0, i, before)), second = Sigmoid(of_x(1, i) + of_h(1, i, before));
    if (w.cell == RecurrentCell::kLstm) {
      (*c)[i] = second * (*c)[i] + first * std::tanh(of_x(2, i) + of_h(2, i, before));
      (*h)[i] = Sigmoid(of_x(3, i) + of_h(3, i, before)) * std::tanh((*c)[i]);
    } else {
      const double inner = w.cell == RecurrentCell::kGru ? second * of_h(2, i, before) : of_h(2, i, reset);
      (*h)[i] = first * before[i] + (1 - first) * std::tanh(of_x(2, i) + inner);
    }
  }
}

std::vector<double> NaiveRecurrence(const RecurrentWeights& w, const std::vector<float>& x, const bool* mask,
                                    int64_t rows, int64_t length, const RecurrentRule& rule) {
  std::vector<double> found;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> h(w.units, 0), c(w.units, 0);
    for (int64_t step = 0; step < length; ++step) {
      const int64_t place = row * length + (rule.backwards ? length - 1 - step : step);
      const std::vector<double> inputs(x.begin() + place * w.inputs, x.begin() + (place + 1) * w.inputs);
      if (mask == nullptr || mask[place]) Step(w, inputs, &h, &c);
      if (rule.sequences) found.insert(found.end(), h.begin(), h.end());
    }
    if (!rule.sequences) found.insert(found.end(), h.begin(), h.end());
  }
  return found;
}

std::vector<float> States(const RecurrentWeights& w, const std::vector<float>& x, const bool* mask, int64_t rows,
                          int64_t length, const RecurrentRule& rule, Isa isa) {
  const RecurrentLayer layer(w);
  tensorflow::Tensor tensor(tensorflow::DT_BOOL, {rows, length});
  SequenceMask read;
  if (mask != nullptr) {
    std::copy_n(mask, rows * length, tensor.flat<bool>().data());
    EXPECT_TRUE(SequenceMask::Read(tensor, rows, length, &read).ok());
  }
  std::vector<float> scratch(layer.scratch(length), kNan), states(rows * (rule.sequences ? length : 1) * w.units, -7);
  layer.Rows(x.data(), mask != nullptr ? &read : nullptr, 0, rows, length, rule, scratch.data(), states.data(), isa);
  return states;
}

TEST(RecurrentLayer, EqualsLoops) {
  for (Isa isa : SupportedIsas()) {
    for (RecurrentCell cell : kCells) {
      for (int64_t units : {1, 5, 16, 67}) {
        const RandomRecurrence weights(cell, units == 5 ? 1 : 7, units, units != 16);
        for (int64_t rows : {0, 1, 3, 25}) {
          for (int64_t length : {1, 2, 13}) {
            SCOPED_TRACE(testing::Message() << IsaName(isa) << " cell " << static_cast<int>(cell) << " units " << units
                                            << " " << rows << "x" << length);
            const std::vector<float> x = SomeFloats(rows * length * weights.given.inputs, 9);
            const std::unique_ptr<bool[]> mask(new bool[rows * length + 1]);
            for (int64_t i = 0; i < rows * length; ++i) mask[i] = i % 3 != 1;
            const RecurrentRule rule{length != 2, rows == 3};
            ExpectNear(States(weights.given, x, nullptr, rows, length, rule, isa),
                       NaiveRecurrence(weights.given, x, nullptr, rows, length, rule));
            ExpectNear(States(weights.given, x, mask.get(), rows, length, rule, isa),
                       NaiveRecurrence(weights.given, x, mask.get(), rows, length, rule));
          }
        }
      }
    }
  }
}

TEST(RecurrentLayer, SplitsSequencesWhoseSumsExceedTheBuffer) {
  const RandomRecurrence weights(RecurrentCell::kLstm, 3, 130, true);
  const int64_t rows = 2, length = 40;
  const std::vector<float> x = SomeFloats(rows * length * 3, 5);
  for (const bool backwards : {false, true}) {
    const RecurrentRule rule{true, backwards};
    ExpectNear(States(weights.given, x, nullptr, rows, length, rule, ThisCpu().isa),
               NaiveRecurrence(weights.given, x, nullptr, rows, length, rule));
  }
}

TEST(RecurrentLayer, EmptySequencesAreZero) {
  const RandomRecurrence weights(RecurrentCell::kGru, 3, 4, true);
  for (Isa isa : SupportedIsas()) {
    EXPECT_EQ(States(weights.given, {}, nullptr, 2, 0, {}, isa), std::vector<float>(8, 0));
    EXPECT_TRUE(States(weights.given, {}, nullptr, 2, 0, {true, false}, isa).empty());
  }
}

TEST(RecurrentLayer, NanStaysInItsRowAndLaterPositions) {
  for (RecurrentCell cell : kCells) {
    const RandomRecurrence weights(cell, 2, 3, true);
    const int64_t rows = 3, length = 4;
    std::vector<float> x = SomeFloats(rows * length * 2, 5);
    x[(1 * length + 2) * 2] = kNan;  // the second row's third position
    for (Isa isa : SupportedIsas()) {
      const std::vector<float> found = States(weights.given, x, nullptr, rows, length, {true, false}, isa);
      for (int64_t i = 0; i < rows * length * 3; ++i) {
        const int64_t row = i / (length * 3), position = i / 3 % length;
        EXPECT_EQ(std::isnan(found[i]), row == 1 && position >= 2) << i;
      }
      // A position that does not count changes nothing, whatever it has.
      const bool mask[] = {true, true, true, true, true, true, false, true, true, true, true, true};
      for (float state : States(weights.given, x, mask, rows, length, {true, false}, isa))
        EXPECT_FALSE(std::isnan(state));
    }
  }
}

TEST(RecurrentLayer, StaysWithinOneForInfinities) {
  for (RecurrentCell cell : kCells) {
    RandomRecurrence weights(cell, 1, 2, true);
    for (Isa isa : SupportedIsas()) {
      for (float state : States(weights.given, {kInfinity}, nullptr, 1, 1, {}, isa)) EXPECT_LE(std::abs(state), 1);
    }
  }
}

}  // namespace
}  // namespace processor
