// SPDX-License-Identifier: Apache-2.0
// Reads the rows on SSD that a call has found.
#ifndef ELASTIC_TRAINING_STORAGE_READ_ALL_H_
#define ELASTIC_TRAINING_STORAGE_READ_ALL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/storage/elastic_table.h"

namespace elastic_training {

template <typename Take>
void ElasticTable::ReadAll(const KeyBatch& keys, KeyScratch* scratch, const Take& take) const {
  const size_t count = scratch->on_ssd.size(), values = layout().dim + layout().slots;
  if (count == 0) return;
  std::vector<uint64_t> wanted(count);
  std::vector<uint8_t> found(count);
  for (size_t i = 0; i < count; ++i) wanted[i] = keys.keys[scratch->on_ssd[i]];
  scratch->ssd_values.resize(count * values);
  scratch->ssd_headers.resize(count);
  const std::vector<uint32_t> positions = std::move(scratch->on_ssd), places = std::move(scratch->ssd_places);
  // An error leaves nothing to the next call.
  scratch->on_ssd.clear();
  scratch->ssd_places.clear();
  store_.log->Read(places.data(), wanted.data(), count, scratch->ssd_values.data(), values, found.data(),
                   scratch->ssd_headers.data());
  for (size_t i = 0; i < count; ++i) {
    if (found[i] != 0) {
      take(positions[i], RowOnSsd{scratch->ssd_headers[i], &scratch->ssd_values[i * values]});
    } else {
      // It has moved meanwhile, or it is the row of another key.
      scratch->pending.push_back(positions[i]);
      scratch->one_by_one = true;
    }
  }
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_READ_ALL_H_
