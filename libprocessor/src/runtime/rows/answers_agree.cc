// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/rows/answers_agree.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensorflow/core/framework/types.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::tstring;

template <typename T>
bool NumbersAgree(const Tensor& a, const Tensor& b, const Tolerance& tolerance, double largest) {
  const auto *x = static_cast<const T*>(a.data()), *y = static_cast<const T*>(b.data());
  for (int64_t i = 0, n = a.NumElements(); i < n; ++i) {
    const auto p = static_cast<double>(x[i]), q = static_cast<double>(y[i]);
    if (p == q || (std::isnan(p) && std::isnan(q))) continue;
    if (!std::isfinite(p) || !std::isfinite(q)) return false;
    if (!(std::abs(p - q) <= tolerance.of_largest * largest + tolerance.relative * std::abs(q))) return false;
  }
  return true;
}

template <typename T>
double LargestNumber(const Tensor& tensor) {
  const auto* x = static_cast<const T*>(tensor.data());
  double largest = 0;
  for (int64_t i = 0, n = tensor.NumElements(); i < n; ++i) {
    const double size = std::abs(static_cast<double>(x[i]));
    if (std::isfinite(size)) largest = std::max(largest, size);
  }
  return largest;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.NumElements() == 0) return true;
  if (a.dtype() != tensorflow::DT_STRING) return std::memcmp(a.data(), b.data(), a.TotalBytes()) == 0;
  const auto *x = static_cast<const tstring*>(a.data()), *y = static_cast<const tstring*>(b.data());
  return std::equal(x, x + a.NumElements(), y);
}

}  // namespace

double LargestOf(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case tensorflow::DT_FLOAT:
      return LargestNumber<float>(tensor);
    case tensorflow::DT_DOUBLE:
      return LargestNumber<double>(tensor);
    case tensorflow::DT_HALF:
      return LargestNumber<Eigen::half>(tensor);
    case tensorflow::DT_BFLOAT16:
      return LargestNumber<tensorflow::bfloat16>(tensor);
    default:
      return 0;
  }
}

bool Agree(const Tensor& joint, const Tensor& alone, const Tolerance& tolerance, double largest) {
  if (joint.dtype() != alone.dtype() || joint.shape() != alone.shape()) return false;
  if (alone.NumElements() == 0) return true;
  switch (joint.dtype()) {
    case tensorflow::DT_FLOAT:
      return NumbersAgree<float>(joint, alone, tolerance, largest);
    case tensorflow::DT_DOUBLE:
      return NumbersAgree<double>(joint, alone, tolerance, largest);
    case tensorflow::DT_HALF:
      return NumbersAgree<Eigen::half>(joint, alone, Tolerance::OfHalves(), largest);
    case tensorflow::DT_BFLOAT16:
      return NumbersAgree<tensorflow::bfloat16>(joint, alone, Tolerance::OfHalves(), largest);
    default:
      return SameBits(joint, alone);
  }
}

bool Same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), SameBits);
}

}  // namespace processor
