// SPDX-License-Identifier: Apache-2.0
// SHA-256, by which files are checked: those of models against what was deployed, those of deltas against themselves.
#ifndef PROCESSOR_BASE_SHA256_H_
#define PROCESSOR_BASE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace processor {

/// Computes the SHA-256 (FIPS 180-4) of bytes that come piece by piece, with the CPU's instructions for it if there are
/// any. For one thread.
class Sha256 {
 public:
  void Update(std::string_view bytes);
  /// Returns 64 hexadecimal digits. No bytes may be added afterwards.
  std::string Finish();
  /// Returns the 32 bytes that these digits stand for.
  std::array<uint8_t, 32> FinishBytes();

 private:
  static constexpr size_t kBlock = 64;

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlock> rest_{};
  size_t rest_size_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_BASE_SHA256_H_
