// SPDX-License-Identifier: Apache-2.0
// The activation functions of layers. Plain data.
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

/// An activation as the plan describes it. The number of a weight is -1 if the activation has no such weight.
struct Activation {
  ActivationKind kind = ActivationKind::kNone;
  float alpha = 0;
  int weight = -1;
  int scale = -1;
  int shift = -1;
  /// For relu and relu6: whether a NaN becomes 0 if TensorFlow uses oneDNN, which fuses them with the product.
  bool onednn = false;
};

constexpr double kSeluAlpha = 1.6732632423543772;
constexpr double kSeluScale = 1.0507009873554805;

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ACTIVATION_H_
