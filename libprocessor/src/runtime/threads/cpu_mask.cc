// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/cpu_mask.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace processor {

CpuMask::CpuMask(const CpuSet& cpus) {
  for (int cpu : cpus) {
    const auto bit = static_cast<size_t>(cpu);
    if (bit >= 64 * kWords) {
      words_ = {};
      return;
    }
    words_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

CpuMask CpuMask::OfCaller() {
  CpuMask mask;
  // The function of the C library clears the rest of the mask, which is clear already.
  if (syscall(SYS_sched_getaffinity, 0, sizeof mask.words_, mask.words_.data()) < 0) mask.words_ = {};
  return mask;
}

void CpuMask::PinCaller() const {
  if (!empty()) syscall(SYS_sched_setaffinity, 0, sizeof words_, words_.data());
}

bool CpuMask::empty() const { return *this == CpuMask(); }

bool CpuMask::Contains(int cpu) const {
  const auto bit = static_cast<size_t>(cpu);
  return cpu >= 0 && bit < 64 * kWords && ((words_[bit / 64] >> (bit % 64)) & 1) != 0;
}

CpuMask CpuMask::operator&(const CpuMask& other) const {
  CpuMask both;
  for (size_t i = 0; i < kWords; ++i) both.words_[i] = words_[i] & other.words_[i];
  return both;
}

CpuMask CpuMask::operator|(const CpuMask& other) const {
  CpuMask any;
  for (size_t i = 0; i < kWords; ++i) any.words_[i] = words_[i] | other.words_[i];
  return any;
}

}  // namespace processor
