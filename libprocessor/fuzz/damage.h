// SPDX-License-Identifier: Apache-2.0
// Damages inputs that are files, after a first byte of their own.
#ifndef PROCESSOR_FUZZ_DAMAGE_H_
#define PROCESSOR_FUZZ_DAMAGE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <string>

namespace processor::fuzz {

/// Damages one to three places: bits, numbers of 4 and 8 bytes at their multiples in the file, or its end. Half of the places
/// are in the header.
inline std::string DamagedFile(const std::string& input, std::mt19937_64* random) {
  constexpr size_t kHeaderBytes = 256;
  constexpr uint64_t kSpecial[] = {0, 1, 2, 5, 8, 64, 256, 4096, uint64_t{1} << 32, uint64_t{1} << 61, ~uint64_t{0}};
  std::string damaged = input;
  for (uint64_t n = 1 + (*random)() % 3; n > 0; --n) {
    if (damaged.size() < 18) return damaged;
    const uint64_t chosen = (*random)() % (std::size(kSpecial) + 1);
    const uint64_t value = chosen < std::size(kSpecial) ? kSpecial[chosen] : (*random)();
    const size_t end = (*random)() % 2 == 0 ? std::min(kHeaderBytes, damaged.size()) : damaged.size();
    const size_t at = (*random)() % (end - 8);
    const auto put = [&](size_t size) {
      std::memcpy(&damaged[1 + at / size * size % (damaged.size() - 9)], &value, size);
    };
    switch ((*random)() % 5) {
      case 0:
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << (*random)() % 8));
        break;
      case 1:
        put(4);
        break;
      case 2:
        put(8);
        break;
      case 3:
        damaged[at] = static_cast<char>(damaged[at] + 1);
        break;
      default:
        damaged.resize((*random)() % damaged.size());
    }
  }
  return damaged;
}

}  // namespace processor::fuzz

#endif  // PROCESSOR_FUZZ_DAMAGE_H_
