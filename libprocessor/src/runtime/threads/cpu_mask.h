// SPDX-License-Identifier: Apache-2.0
// A set of CPUs as the kernel stores it. Unlike a CpuSet it needs no memory, so requests can afford it.
#ifndef PROCESSOR_RUNTIME_THREADS_CPU_MASK_H_
#define PROCESSOR_RUNTIME_THREADS_CPU_MASK_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/runtime/threads/cpuset.h"

namespace processor {

class CpuMask {
 public:
  /// No CPU.
  CpuMask() = default;
  /// Empty if a CPU is beyond the 1,024 that a mask has room for.
  explicit CpuMask(const CpuSet& cpus);

  /// Returns the CPUs of the calling thread; none on a machine with more CPUs than a mask has room for.
  static CpuMask OfCaller();
  /// Moves the calling thread. As PinThread(), it does nothing if the set is empty, and no failure is an error.
  void PinCaller() const;

  bool empty() const;
  bool Contains(int cpu) const;
  /// Whether all of these CPUs are in `other`.
  bool IsWithin(const CpuMask& other) const { return (*this & other) == *this; }
  CpuMask operator&(const CpuMask& other) const;
  CpuMask operator|(const CpuMask& other) const;
  bool operator==(const CpuMask& other) const { return words_ == other.words_; }

 private:
  static constexpr size_t kWords = 16;

  std::array<uint64_t, kWords> words_{};
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_CPU_MASK_H_
