// SPDX-License-Identifier: Apache-2.0
#include "src/c_api/boundary.h"

#include <cstdio>

#include "src/base/log.h"

namespace processor {

processor_status Report(const absl::Status &status, processor_error *error) noexcept {
  if (status.ok()) return PROCESSOR_OK;
  const std::string_view message = status.message();
  if (error != nullptr) {
    error->code = static_cast<processor_status>(status.code());
    size_t size = std::min(message.size(), sizeof(error->message) - 1);
    // Do not cut a character of several bytes in two.
    if (size < message.size()) {
      while (size > 0 && (static_cast<unsigned char>(message[size]) & 0xC0) == 0x80) --size;
    }
    std::memcpy(error->message, message.data(), size);
    error->message[size] = '\0';
    if (size < message.size()) Log(Severity::kError, message);
  }
  return static_cast<processor_status>(status.code());
}

absl::Status CheckAbiVersion(uint32_t version) {
  constexpr uint32_t kMajor = PROCESSOR_ABI_VERSION >> 16, kMinor = PROCESSOR_ABI_VERSION & 0xFFFF;
  const uint32_t major = version >> 16, minor = version & 0xFFFF;
  if (major == kMajor && minor <= kMinor) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("abi_version: ", major, ".", minor, " found, expected ", kMajor, ".0 to ", kMajor, ".", kMinor));
}

}  // namespace processor
