// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/float_products.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "src/base/huge_memory.h"
#include "src/kernels/panel_matmul.h"
#include "src/kernels/tower_layout.h"

namespace processor {
namespace {

constexpr int64_t kManyRows = 4 * kFewestOnednnRows;
constexpr int kRounds = 5;
constexpr double kClearly = 1.05;
// So much work takes longer than the clock's steps.
constexpr double kLeastFlops = 4e6;

HugeMemory Ones(int64_t floats) {
  HugeMemory memory(static_cast<size_t>(floats) * sizeof(float));
  std::fill_n(reinterpret_cast<float*>(memory.data()), floats, 1.0f);
  return memory;
}

template <typename Run>
double SecondsOf(int repeats, const Run& run) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Seconds {
  double ours = 0;
  double theirs = 0;
};

// Both take turns, and the best of their rounds count: other programs only ever make a round slower.
Seconds Measure(Isa isa, const FloatProduct& product, int64_t rows) {
  const PanelShape& shape = product.shape;
  const HugeMemory src = Ones(rows * StrideFor(shape.k)), dst = Ones(rows * StrideFor(shape.n)), bias = Ones(shape.n);
  PanelMatmul ours;
  ours.rows = rows;
  ours.src = reinterpret_cast<const float*>(src.data());
  ours.src_stride = StrideFor(shape.k);
  ours.shape = shape;
  ours.panels = product.panels;
  ours.bias = reinterpret_cast<const float*>(bias.data());
  ours.dst = reinterpret_cast<float*>(dst.data());
  ours.dst_stride = StrideFor(shape.n);
  OnednnMatmul::Call theirs;
  theirs.rows = rows;
  theirs.src = src.data();
  theirs.src_stride = shape.k;
  theirs.bias = ours.bias;
  theirs.dst = dst.data();
  theirs.dst_stride = shape.n;

  const double flops = 2.0 * static_cast<double>(rows * shape.k * shape.n);
  const int repeats = static_cast<int>(std::max(1.0, kLeastFlops / flops));
  Seconds best{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  if (!product.onednn->Run(theirs).ok()) return {0, best.theirs};
  MultiplyPanels(isa, ours);
  for (int round = 0; round < kRounds; ++round) {
    best.theirs = std::min(best.theirs, SecondsOf(repeats, [&] { product.onednn->Run(theirs).IgnoreError(); }));
    best.ours = std::min(best.ours, SecondsOf(repeats, [&] { MultiplyPanels(isa, ours); }));
  }
  return {best.ours / repeats, best.theirs / repeats};
}

// The times that this process has measured.
class Measurements {
 public:
  static Measurements& Global() {
    static auto* const measurements = new Measurements;
    return *measurements;
  }

  /// Returns the times of a product. What is known already does not wait for a measurement, which takes long in idle time.
  Seconds Of(Isa isa, const FloatProduct& product, int64_t rows) {
    const Form form(isa, product.shape.k, product.shape.n, rows);
    Seconds seconds;
    if (Find(form, &seconds)) return seconds;
    // Two measurements at once would disturb each other.
    std::lock_guard<std::mutex> measuring(measuring_);
    if (Find(form, &seconds)) return seconds;
    seconds = Measure(isa, product, rows);
    std::lock_guard<std::mutex> lock(mutex_);
    return known_.emplace(form, seconds).first->second;
  }

 private:
  using Form = std::tuple<Isa, int64_t, int64_t, int64_t>;

  bool Find(const Form& form, Seconds* seconds) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(form);
    if (found == known_.end()) return false;
    *seconds = found->second;
    return true;
  }

  std::mutex measuring_;  // held while measuring
  std::mutex mutex_;      // held briefly
  std::map<Form, Seconds> known_;
};

bool OnednnWins(Isa isa, absl::Span<const FloatProduct> products, int64_t rows) {
  Seconds all;
  for (const FloatProduct& product : products) {
    const Seconds each = Measurements::Global().Of(isa, product, rows);
    all.ours += each.ours;
    all.theirs += each.theirs;
  }
  return all.theirs * kClearly < all.ours;
}

}  // namespace

int64_t FewestRowsForOnednn(Isa isa, absl::Span<const FloatProduct> products) {
  if (!OnednnWins(isa, products, kManyRows)) return kNoOnednnRows;
  return OnednnWins(isa, products, kFewestOnednnRows) ? kFewestOnednnRows : kManyRows;
}

}  // namespace processor
