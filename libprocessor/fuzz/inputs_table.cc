// SPDX-License-Identifier: Apache-2.0
// Tables for fuzz_table.cc.
#include "damage.h"
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

std::string DamagedInput(const std::string& input, std::mt19937_64* random) { return DamagedFile(input, random); }

}  // namespace processor::fuzz
