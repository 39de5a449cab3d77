// SPDX-License-Identifier: Apache-2.0
// What bench_kernels measures: cases, each with several ways to compute the same thing.
#ifndef PROCESSOR_BENCH_KERNELS_KERNEL_CASE_H_
#define PROCESSOR_BENCH_KERNELS_KERNEL_CASE_H_

#include <functional>
#include <string>
#include <vector>

namespace processor::bench {

/// One way to compute what a case is about, with all that it needs in its captures. The first way of a case is ours.
struct Way {
  std::string name;
  std::function<void()> run;
};

struct KernelCase {
  double flops = 0;  // of one run; 0: not counted
  double bytes = 0;  // read in one run; 0: not counted
  std::vector<Way> ways;
  /// Computes with every way and compares the answers with those of a plain reference. Returns what is wrong, or "".
  std::function<std::string()> check;
};

/// Makes a case. It is called only if the case is to be measured; its memory is given back before the next is made.
using MakeCase = std::function<KernelCase()>;

/// Adds a case to the list that bench_kernels goes through. A file of cases registers them when it is loaded:
///
///     const bool tower_registered = RegisterCase("tower/fp32/rows:128", [] { ... });
///
/// `name` is what --filter looks into, and holds all that tells the case from others.
bool RegisterCase(const std::string& name, MakeCase make);

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_KERNELS_KERNEL_CASE_H_
