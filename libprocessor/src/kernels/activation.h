// SPDX-License-Identifier: Apache-2.0
// The functions that layers apply to their sums.
#ifndef PROCESSOR_KERNELS_ACTIVATION_H_
#define PROCESSOR_KERNELS_ACTIVATION_H_

namespace processor {

enum class ActivationKind {
  kNone,
  kRelu,
  kRelu6,
  kLeakyRelu,
  kElu,
  kSelu,
  kSigmoid,
  kTanh,
  kGelu,
  kGeluTanh,
  kSwish,
  kSoftplus,
  kSoftmax,
  kPrelu,
  kDice,
};

/// As a plan gives it; numbers of weights are -1 where there is none.
struct Activation {
  ActivationKind kind = ActivationKind::kNone;
  float alpha = 0;
  int weight = -1;
  int scale = -1;
  int shift = -1;
  /// Of relu and relu6: a NaN becomes 0 where TensorFlow runs with oneDNN, which computes it with the product.
  bool onednn = false;
};

constexpr double kSeluAlpha = 1.6732632423543772;
constexpr double kSeluScale = 1.0507009873554805;

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ACTIVATION_H_
