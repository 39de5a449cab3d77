// SPDX-License-Identifier: Apache-2.0
// Computes CRC-32C with the instruction that CPUs have for it, because whole tables are checked.
#ifndef PROCESSOR_TABLES_TABLE_CRC_H_
#define PROCESSOR_TABLES_TABLE_CRC_H_

#include <cstddef>
#include <cstdint>

namespace processor {

/// Returns the checksum of the bytes that `crc` stands for (0: none so far) followed by `size` bytes at `bytes`.
uint32_t ExtendTableCrc(uint32_t crc, const uint8_t* bytes, size_t size);

}  // namespace processor

#endif  // PROCESSOR_TABLES_TABLE_CRC_H_
