// SPDX-License-Identifier: Apache-2.0
// A dense tower in plain loops and double precision: what DenseTower is compared with.
#ifndef PROCESSOR_TESTS_TOWER_REFERENCE_H_
#define PROCESSOR_TESTS_TOWER_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "src/base/huge_memory.h"
#include "src/kernels/dense_tower.h"
#include "src/kernels/tower_layout.h"
#include "src/kernels/tower_run.h"

namespace processor::reference {

struct Matrix {
  int64_t rows = 0;
  int64_t width = 0;
  std::vector<double> values;

  double At(int64_t row, int64_t column) const { return values[(rows == 1 ? 0 : row) * width + column]; }
};

class TowerReference {
 public:
  /// Rounds weights and sources as `tower` does.
  TowerReference(const DenseTower& tower, const std::vector<WeightView>& weights) : tower_(tower), weights_(weights) {}

  std::vector<Matrix> Compute(const std::vector<Matrix>& inputs) const {
    std::vector<Matrix> layers;
    const auto find = [&](const TowerValue& value) -> const Matrix& {
      return value.is_layer ? layers[value.number] : inputs[value.number];
    };
    for (size_t i = 0; i < tower_.plan().layers.size(); ++i) {
      const TowerLayer& layer = tower_.plan().layers[i];
      std::vector<Matrix> sources, adds;
      for (const TowerValue& value : layer.inputs) sources.push_back(find(value));
      for (const TowerValue& value : layer.add) adds.push_back(find(value));
      layers.push_back(Layer(layer, tower_.dense(i).type, sources, adds));
    }
    std::vector<Matrix> outputs;
    for (const TowerValue& value : tower_.plan().outputs) outputs.push_back(find(value));
    return outputs;
  }

 private:
  static double Half(double value) { return Bfloat16ToFloat(FloatToBfloat16(static_cast<float>(value))); }

  double Weight(int number, int64_t at) const {
    const WeightView& weight = weights_[number];
    return weight.data[weight.elements() == 1 ? 0 : at];
  }

  // The weights [k, units] of an input of a dense layer, rounded.
  std::vector<double> RoundedWeights(const TowerLayer& layer, size_t input, PanelType type) const {
    const WeightView& view = weights_[layer.weights[input]];
    const int64_t k = view.shape[layer.transposed ? 1 : 0], units = view.shape[layer.transposed ? 0 : 1];
    std::vector<double> rounded(k * units);
    for (int64_t j = 0; j < units; ++j) {
      double step = 0;
      for (int64_t i = 0; i < k; ++i) {
        double& weight = rounded[i * units + j];
        weight = view.data[layer.transposed ? j * k + i : i * units + j];
        step = std::max(step, std::fabs(weight) / 127);
      }
      for (int64_t i = 0; i < k; ++i) {
        double& weight = rounded[i * units + j];
        if (type == PanelType::kBfloat16) weight = Half(weight);
        if (type == PanelType::kInt8 && step > 0) weight = std::nearbyint(weight / step) * step;
      }
    }
    return rounded;
  }

  std::vector<double> RoundedSource(const Matrix& x, int64_t r, PanelType type) const {
    std::vector<double> row;
    double least = 0, greatest = 0;
    for (int64_t k = 0; k < x.width; ++k) {
      row.push_back(x.At(r, k));
      least = std::min(least, row.back());
      greatest = std::max(greatest, row.back());
    }
    const double step = (greatest - least) / 255;
    for (double& value : row) {
      if (type == PanelType::kBfloat16 && tower_.rounds_activations()) value = Half(value);
      if (type == PanelType::kInt8 && step > 0) {
        value = std::min(std::nearbyint(value / step), 255 - std::nearbyint(-least / step)) * step;
      }
    }
    return row;
  }

  Matrix Layer(const TowerLayer& layer, PanelType type, const std::vector<Matrix>& sources,
               const std::vector<Matrix>& adds) const {
    Matrix result;
    result.rows = 1;
    for (const std::vector<Matrix>* list : {&sources, &adds}) {
      for (const Matrix& source : *list) result.rows = source.rows == 1 ? result.rows : source.rows;
    }
    result.width = sources[layer.kind == LayerKind::kMix ? 1 : 0].width;
    if (layer.kind == LayerKind::kDense) result.width = weights_[layer.weights[0]].shape[layer.transposed ? 0 : 1];
    if (layer.kind == LayerKind::kConcat) {
      result.width = 0;
      for (const Matrix& source : sources) result.width += source.width;
    }
    std::vector<std::vector<double>> weights;
    for (size_t i = 0; layer.kind == LayerKind::kDense && i < sources.size(); ++i) {
      weights.push_back(RoundedWeights(layer, i, type));
    }
    for (int64_t r = 0; r < result.rows; ++r) {
      const std::vector<double> row = Row(layer, type, weights, sources, adds, r, result.width);
      result.values.insert(result.values.end(), row.begin(), row.end());
    }
    return result;
  }

  std::vector<double> Row(const TowerLayer& layer, PanelType type, const std::vector<std::vector<double>>& weights,
                          const std::vector<Matrix>& sources, const std::vector<Matrix>& adds, int64_t r,
                          int64_t width) const {
    std::vector<double> row(width, layer.kind == LayerKind::kMultiply ? 1.0 : 0.0);
    double mean = 0, variance = 0;
    if (layer.kind == LayerKind::kLayerNorm) {
      for (int64_t j = 0; j < width; ++j) mean += sources[0].At(r, j) / width;
      for (int64_t j = 0; j < width; ++j) variance += std::pow(sources[0].At(r, j) - mean, 2) / width;
    }
    int64_t column = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      const Matrix& x = sources[i];
      const std::vector<double> rounded = RoundedSource(x, r, type);
      for (int64_t j = 0; j < (layer.kind == LayerKind::kConcat ? x.width : width); ++j) {
        switch (layer.kind) {
          case LayerKind::kDense:
            for (int64_t k = 0; k < x.width; ++k) row[j] += rounded[k] * weights[i][k * width + j];
            break;
          case LayerKind::kAffine:
            row[j] = x.At(r, j) * (layer.scale < 0 ? 1 : Weight(layer.scale, j)) +
                     (layer.shift < 0 ? 0 : Weight(layer.shift, j));
            break;
          case LayerKind::kAdd:
            row[j] += x.At(r, j);
            break;
          case LayerKind::kMultiply:
            row[j] *= x.At(r, j);
            break;
          case LayerKind::kConcat:
            row[column++] = x.At(r, j);
            break;
          case LayerKind::kLayerNorm:
            row[j] = (x.At(r, j) - mean) / std::sqrt(variance + layer.epsilon) *
                         (layer.gamma < 0 ? 1 : Weight(layer.gamma, j)) +
                     (layer.beta < 0 ? 0 : Weight(layer.beta, j));
            break;
          case LayerKind::kMix:
            if (i > 0) row[j] += sources[0].At(r, static_cast<int64_t>(i) - 1) * x.At(r, j);
            break;
        }
      }
    }
    for (int64_t j = 0; j < width; ++j) {
      if (layer.bias >= 0) row[j] += weights_[layer.bias].data[j];
      for (const Matrix& add : adds) row[j] += add.At(r, j);
    }
    Activate(layer.activation, &row);
    return row;
  }

  void Activate(const Activation& activation, std::vector<double>* row) const {
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    double greatest = (*row)[0], sum = 0;
    for (double x : *row) greatest = std::max(greatest, x);
    for (double x : *row) sum += std::exp(x - greatest);
    for (size_t j = 0; j < row->size(); ++j) {
      double& x = (*row)[j];
      const double elu = x < 0 ? std::expm1(x) : x;
      switch (activation.kind) {
        case ActivationKind::kNone:
          break;
        case ActivationKind::kRelu:
          x = std::max(x, 0.0);
          break;
        case ActivationKind::kRelu6:
          x = std::min(std::max(x, 0.0), 6.0);
          break;
        case ActivationKind::kLeakyRelu:
          x = x < 0 ? activation.alpha * x : x;
          break;
        case ActivationKind::kElu:
          x = elu;
          break;
        case ActivationKind::kSelu:
          x = kSeluScale * (x < 0 ? kSeluAlpha * elu : x);
          break;
        case ActivationKind::kSigmoid:
          x = sigmoid(x);
          break;
        case ActivationKind::kTanh:
          x = std::tanh(x);
          break;
        case ActivationKind::kGelu:
          x = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
          break;
        case ActivationKind::kGeluTanh:
          x = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
          break;
        case ActivationKind::kSwish:
          x *= sigmoid(x);
          break;
        case ActivationKind::kSoftplus:
          x = std::log1p(std::exp(x));
          break;
        case ActivationKind::kSoftmax:
          x = std::exp(x - greatest) / sum;
          break;
        case ActivationKind::kPrelu:
          x = x < 0 ? Weight(activation.weight, j) * x : x;
          break;
        case ActivationKind::kDice: {
          const double p = sigmoid(x * Weight(activation.scale, j) + Weight(activation.shift, j));
          x = p * x + (1 - p) * Weight(activation.weight, j) * x;
          break;
        }
      }
    }
  }

  const DenseTower& tower_;
  const std::vector<WeightView>& weights_;
};

/// Makes the tower of a plan (JSON), with as many inputs and outputs as are given.
inline absl::Status MakeTower(const std::string& text, size_t inputs, size_t outputs,
                              const std::vector<WeightView>& weights, const TowerOptions& options,
                              std::shared_ptr<const DenseTower>* tower) {
  TowerPlan plan;
  const absl::Status parsed = ParseTowerPlan(text, static_cast<int>(inputs), static_cast<int>(weights.size()),
                                             static_cast<int>(outputs), &plan);
  return parsed.ok() ? DenseTower::Create(plan, weights, options, tower) : parsed;
}

/// Computes all rows of a layout in `parts` calls, at most `most_rows` at once: outputs [rows, width] each.
inline absl::Status ComputeTower(const TowerLayout& layout, absl::Span<const TowerInput> inputs, int64_t rows,
                                 int64_t most_rows, int parts, std::vector<std::vector<float>>* outputs) {
  std::vector<float*> places;
  outputs->clear();
  for (size_t i = 0; i < layout.tower().plan().outputs.size(); ++i) {
    outputs->emplace_back(rows * layout.output_width(static_cast<int>(i)), -77.0f);
    places.push_back(outputs->back().data());
  }
  const int64_t block = std::min(layout.block_rows(), most_rows);
  const HugeMemory single(layout.single_floats() * sizeof(float)), scratch(layout.block_floats(block) * sizeof(float));
  const TowerRun run(layout, inputs, places, reinterpret_cast<float*>(single.data()));
  absl::Status status = run.ComputeSingles();
  for (int part = 0; part < parts && status.ok(); ++part) {
    status = run.ComputeRows(rows * part / parts, rows * (part + 1) / parts, block,
                             reinterpret_cast<float*>(scratch.data()));
  }
  return status;
}

/// Weights of given shapes with random numbers, as small as those of trained layers.
class RandomWeights {
 public:
  explicit RandomWeights(const std::vector<std::vector<int64_t>>& shapes, unsigned seed = 1) : generator_(seed) {
    for (const std::vector<int64_t>& shape : shapes) {
      WeightView view{nullptr, shape};
      const double scale =
          shape.size() == 2 ? 1.5 / std::sqrt(static_cast<double>(std::max(shape[0], int64_t{1}))) : 0.5;
      std::uniform_real_distribution<float> uniform(static_cast<float>(-scale), static_cast<float>(scale));
      std::vector<float> values(view.elements());
      for (float& value : values) value = uniform(generator_);
      numbers_.push_back(std::move(values));
      views_.push_back(view);
      views_.back().data = numbers_.back().data();
    }
  }

  const std::vector<WeightView>& views() const { return views_; }

 private:
  std::mt19937 generator_;
  std::vector<std::vector<float>> numbers_;
  std::vector<WeightView> views_;
};

/// In each precision, for each instruction set, and with oneDNN.
inline std::vector<TowerOptions> AllTowerOptions() {
  std::vector<TowerOptions> all;
  for (Isa isa : SupportedIsas()) {
    for (Precision precision : {Precision::kFloat32, Precision::kBfloat16Weights}) all.push_back({precision, isa});
  }
  all.push_back({Precision::kFloat32, ThisCpu().isa, true});
  // oneDNN computes it on every CPU with AVX-512, if slowly.
  if (ThisCpu().isa == Isa::kAvx512) all.push_back({Precision::kBfloat16, Isa::kAvx512, true});
  if (HasInt8(ThisCpu())) all.push_back({Precision::kInt8, Isa::kAvx512});
  return all;
}

}  // namespace processor::reference

#endif  // PROCESSOR_TESTS_TOWER_REFERENCE_H_
