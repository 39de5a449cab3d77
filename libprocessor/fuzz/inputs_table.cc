// SPDX-License-Identifier: Apache-2.0
// Tables for fuzz_table.cc.
#include <algorithm>
#include <iterator>

#include "inputs.h"
#include "table_file.h"

namespace processor::fuzz {

const char* const kTarget = "fuzz_table";

// The first byte says what fuzz_table.cc is to make right; the rest is a file without the gap behind its header.
std::string RandomInput(int number, std::mt19937_64* random) {
  TableFileContent content;
  content.version = 1 + (*random)() % 2;
  content.index_kind = static_cast<IndexKind>(number % 3);
  content.row_type = static_cast<RowType>((*random)() % 5);
  content.absent_key = static_cast<AbsentKey>((*random)() % 3);
  content.dim = 1 + (*random)() % 9;
  if (content.absent_key == AbsentKey::kDefaultRows) content.default_rows = 1 + (*random)() % 4;
  content.rows = (*random)() % 40;
  for (uint64_t i = 0; i < content.rows; ++i) {
    content.keys.push_back(static_cast<int64_t>((*random)() >> (*random)() % 64));
    content.texts.push_back(std::string((*random)() % 12, static_cast<char>('a' + i % 26)));
  }
  if ((*random)() % 2 == 0) content.home_buckets = 1 + (*random)() % 4;
  const std::string bytes = content.Bytes();
  const std::string rest = bytes.size() > 4096 ? bytes.substr(4096) : "";
  return static_cast<char>((*random)() % 4 + 4 * (content.version - 1)) + bytes.substr(0, kTableHeaderBytes) + rest;
}

std::string DamagedInput(const std::string& input, std::mt19937_64* random) {
  std::string damaged = input;
  for (uint64_t n = 1 + (*random)() % 3; n > 0; --n) {
    const uint64_t small[] = {0, 1, 5, 8, 64, 4096, uint64_t{1} << 32, ~uint64_t{0}, (*random)()};
    const uint64_t value = small[(*random)() % std::size(small)];
    if (damaged.size() < 10) return damaged;
    const bool in_header = (*random)() % 2 == 0;
    const size_t at = (*random)() % (std::min<size_t>(in_header ? 256 : damaged.size(), damaged.size()) - 8);
    switch ((*random)() % 5) {
      case 0:
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << (*random)() % 8));
        break;
      case 1:
        Put<uint32_t>(&damaged, 1 + at / 4 * 4, static_cast<uint32_t>(value));
        break;
      case 2:
        Put<uint64_t>(&damaged, 1 + (at / 8 * 8) % (damaged.size() - 9), value);
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
