// SPDX-License-Identifier: Apache-2.0
#include "src/tables/table_index.h"

#include "external/farmhash_archive/src/farmhash.h"
#include "src/tables/bucket_search.h"

namespace processor {

uint64_t StringKey(std::string_view text) { return util::Fingerprint64(text.data(), text.size()); }

size_t TableIndex::Find(absl::Span<const int64_t> keys, uint32_t* rows) const {
  return FindIntegers(*this, keys, rows);
}

size_t TableIndex::Find(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const {
  return FindTexts(*this, keys, rows);
}

size_t FindDirect(absl::Span<const int64_t> keys, uint64_t num_rows, uint32_t* rows) {
  size_t absent = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool exists = static_cast<uint64_t>(keys[i]) < num_rows;
    rows[i] = exists ? static_cast<uint32_t>(keys[i]) : kNotFound;
    absent += !exists;
  }
  return absent;
}

}  // namespace processor
