// SPDX-License-Identifier: Apache-2.0
// Rows of an ElasticTable that are on SSD.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "src/storage/elastic_table.h"
#include "src/storage/read_all.h"

namespace elastic_training {

const float* ElasticTable::ReadFromSsd(uint32_t record) const {
  thread_local std::vector<float> values;
  values.resize(layout().dim + layout().slots);
  const LogPlace place = store_.stub(record).place;
  const uint64_t key = store_.header(record).key;
  uint8_t found = 0;
  store_.log->Read(&place, &key, 1, values.data(), values.size(), &found);
  if (found == 0) {
    throw SsdError(SsdError::Kind::kDamaged,
                   config_.tiers.folder + ": no row of key " + std::to_string(key) + " where it was written");
  }
  return values.data();
}

void ElasticTable::MoveIn(const KeyBatch& keys, KeyScratch* scratch) {
  const std::vector<uint32_t> wanted = scratch->pending;
  ForEachGroup<true>(scratch,
                     [&](const Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>*) {
                       for (size_t p = 0; p < count; ++p) {
                         const uint32_t row = segment->Find(keys.at(positions[p], scratch->hashes[positions[p]]));
                         if (row == kNoRow || !store_.IsOnSsd(row)) continue;
                         scratch->on_ssd.push_back(positions[p]);
                         scratch->ssd_places.push_back(store_.stub(row).place);
                       }
                     });
  // Their places in the batch of values, by position.
  std::vector<uint32_t> at(scratch->on_ssd.empty() ? 0 : keys.count, kNoRow);
  std::vector<uint32_t> found;
  const std::vector<uint32_t> places = scratch->ssd_places;
  const std::vector<uint32_t> positions_read = scratch->on_ssd;
  for (uint32_t i = 0; i < positions_read.size(); ++i) at[positions_read[i]] = i;
  ReadAll(keys, scratch, [&](size_t position, const float*) { found.push_back(static_cast<uint32_t>(position)); });
  scratch->pending = std::move(found);
  const size_t values = layout().dim + layout().slots;
  ForEachGroup<false>(scratch, [&](Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>*) {
    for (size_t p = 0; p < count; ++p) {
      const KeyRef key = keys.at(positions[p], scratch->hashes[positions[p]]);
      const uint32_t row = segment->Find(key), i = at[positions[p]];
      // It may have come back, or be elsewhere in the log: the lookup that follows reads it then.
      if (row == kNoRow || !store_.IsOnSsd(row) || store_.stub(row).place != places[i]) continue;
      segment->MoveToMemory(key.hash, row, &scratch->ssd_values[i * values]);
    }
  });
  scratch->pending = wanted;
}

void ElasticTable::Prefetch(const KeyBatch& keys) const {
  if (store_.log == nullptr) return;
  KeyScratch& scratch = KeyScratch::OfThread();
  scratch.Hash(keys);
  scratch.pending.resize(keys.count);
  std::iota(scratch.pending.begin(), scratch.pending.end(), 0u);
  std::vector<LogPlace> places;
  ForEachGroup<true>(&scratch,
                     [&](const Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>*) {
                       for (size_t p = 0; p < count; ++p) {
                         const uint32_t row = segment->Find(keys.at(positions[p], scratch.hashes[positions[p]]));
                         if (row != kNoRow && store_.IsOnSsd(row)) places.push_back(store_.stub(row).place);
                       }
                     });
  std::sort(places.begin(), places.end());
  store_.log->Fetch(places.data(), places.size());
}

void ElasticTable::MoveInLog(RowLog::Moved* rows, size_t count) {
  KeyScratch& scratch = KeyScratch::OfThread();
  scratch.hashes.resize(count);
  for (size_t i = 0; i < count; ++i) scratch.hashes[i] = HashKey(rows[i].key);
  scratch.pending.resize(count);
  std::iota(scratch.pending.begin(), scratch.pending.end(), 0u);
  ForEachGroup<false>(&scratch, [&](Segment* segment, const uint32_t* positions, size_t size, std::vector<uint32_t>*) {
    for (size_t p = 0; p < size; ++p) {
      RowLog::Moved& row = rows[positions[p]];
      const uint32_t record = segment->index().Find(scratch.hashes[positions[p]], [&](uint32_t candidate) {
        return store_.IsOnSsd(candidate) && store_.header(candidate).key == row.key &&
               store_.stub(candidate).place == row.from;
      });
      if (record == kNoRow) continue;
      // A cut that has begun has pinned the files of its instant only.
      segment->Keep(record);
      segment->Relocate(record, row.to);
      row.taken = true;
    }
  });
}

void ElasticTable::Adopt(const KeyBatch& keys, const RowContents& rows, const LogPlace* places) {
  if (store_.log == nullptr) {
    throw std::invalid_argument("rows of the checkpoint are on SSD, expected a table with tiers");
  }
  KeyScratch& scratch = KeyScratch::OfThread();
  scratch.Hash(keys);
  scratch.pending.resize(keys.count);
  std::iota(scratch.pending.begin(), scratch.pending.end(), 0u);
  // All records are read, so that what is damaged is found now.
  const size_t values = layout().dim + layout().slots;
  scratch.ssd_values.resize(keys.count * values);
  std::vector<uint8_t> found(keys.count);
  store_.log->Read(places, keys.keys, keys.count, scratch.ssd_values.data(), values, found.data());
  if (const auto missing = std::find(found.begin(), found.end(), 0); missing != found.end()) {
    throw SsdError(SsdError::Kind::kDamaged, config_.tiers.folder + ": no row of key " +
                                                 std::to_string(keys.keys[missing - found.begin()]) +
                                                 ", which the checkpoint has left there");
  }
  int growths = LookupCounts().growths;
  ForEachGroup<false>(&scratch,
                      [&](Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>* again) {
                        size_t p = 0;
                        for (; p < count && !segment->must_split(); ++p) {
                          const uint32_t i = positions[p];
                          const KeyRef key = keys.at(i, scratch.hashes[i]);
                          uint32_t row = segment->Find(key);
                          // A later checkpoint may name the place that an earlier one has named.
                          if (row == kNoRow || !store_.IsOnSsd(row) || store_.stub(row).place != places[i]) {
                            store_.log->Adopt(places[i]);
                            if (row != kNoRow) segment->Remove(key.hash, row);
                            row = segment->AddOnSsd(key, places[i], &scratch.ssd_values[i * values]);
                          }
                          RowHeader& header = store_.header(row);
                          header.touch = static_cast<uint32_t>(rows.touches[i]);
                          header.count_flags = header.flags();
                          header.Count(static_cast<uint32_t>(std::min<int64_t>(rows.counts[i], RowHeader::kMaxCount)));
                        }
                        again->insert(again->end(), positions + p, positions + count);
                        Grow(segment, &growths);
                      });
}

}  // namespace elastic_training
