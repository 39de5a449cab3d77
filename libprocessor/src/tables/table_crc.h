// SPDX-License-Identifier: Apache-2.0
// CRC-32C by the instruction that CPUs have for it: whole tables are read through it.
#ifndef PROCESSOR_TABLES_TABLE_CRC_H_
#define PROCESSOR_TABLES_TABLE_CRC_H_

#include <cstddef>
#include <cstdint>

namespace processor {

/// The CRC-32C of bytes whose beginning has the checksum `crc` (0: none so far) and whose end are `size` at `bytes`.
uint32_t ExtendTableCrc(uint32_t crc, const uint8_t* bytes, size_t size);

}  // namespace processor

#endif  // PROCESSOR_TABLES_TABLE_CRC_H_
