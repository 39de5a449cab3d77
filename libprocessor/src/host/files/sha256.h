// SPDX-License-Identifier: Apache-2.0
// Hashes of files, by which a host checks that they are those that were deployed.
#ifndef PROCESSOR_HOST_FILES_SHA256_H_
#define PROCESSOR_HOST_FILES_SHA256_H_

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

 private:
  static constexpr size_t kBlock = 64;

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlock> rest_{};
  size_t rest_size_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_FILES_SHA256_H_
