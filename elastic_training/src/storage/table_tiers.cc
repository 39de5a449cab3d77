// SPDX-License-Identifier: Apache-2.0
// Rows of an ElasticTable that are on SSD.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "src/storage/elastic_table.h"
#include "src/storage/read_all.h"

namespace elastic_training {
namespace {

// Whether a record may be that of an entry with these bits.
bool IsRowOf(const RecordHeader& header, uint64_t bits) { return SsdIndex::BitsOf(HashKey(header.key())) == bits; }

}  // namespace

RowOnSsd ElasticTable::ReadFromSsd(const Segment& segment, uint32_t row) const {
  thread_local std::vector<float> values;
  values.resize(layout().dim + layout().slots);
  const LogPlace place = segment.ssd().place(SsdSlot(row));
  RowOnSsd read{{}, values.data()};
  uint8_t found = 0;
  store_.log->Read(&place, nullptr, 1, values.data(), values.size(), &found, &read.header);
  if (found == 0 || !IsRowOf(read.header, segment.ssd().hash(SsdSlot(row)))) throw NoRowAt(place);
  return read;
}

SsdError ElasticTable::NoRowAt(LogPlace place) const {
  return SsdError(SsdError::Kind::kDamaged, config_.tiers.folder + ": no row of the expected key at record " +
                                                std::to_string(SlotOf(place)) + " of file " +
                                                std::to_string(FileOf(place)) + ", where it was written");
}

uint32_t ElasticTable::MoveIn(Segment* segment, const KeyRef& key, uint32_t row) {
  if (!IsOnSsd(row)) return row;
  const RowOnSsd read = ReadFromSsd(*segment, row);
  return read.header.key() == key.key ? segment->MoveToMemory(row, read) : kNoRow;
}

void ElasticTable::MoveIn(const KeyBatch& keys, KeyScratch* scratch) {
  const std::vector<uint32_t> wanted = scratch->pending;
  ForEachGroup<true>(scratch,
                     [&](const Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>*) {
                       for (size_t p = 0; p < count; ++p) segment->Prefetch(scratch->hashes[positions[p]]);
                       for (size_t p = 0; p < count; ++p) {
                         const uint32_t row = segment->Find(keys.at(positions[p], scratch->hashes[positions[p]]));
                         if (!IsOnSsd(row)) continue;
                         scratch->on_ssd.push_back(positions[p]);
                         scratch->ssd_places.push_back(segment->ssd().place(SsdSlot(row)));
                       }
                     });
  // Their places in the batch of values, by position.
  std::vector<uint32_t> at(scratch->on_ssd.empty() ? 0 : keys.count, kNoRow);
  std::vector<uint32_t> found;
  const std::vector<uint32_t> places = scratch->ssd_places;
  const std::vector<uint32_t> positions_read = scratch->on_ssd;
  for (uint32_t i = 0; i < positions_read.size(); ++i) at[positions_read[i]] = i;
  ReadAll(keys, scratch, [&](size_t position, const RowOnSsd&) { found.push_back(static_cast<uint32_t>(position)); });
  scratch->pending = std::move(found);
  const size_t values = layout().dim + layout().slots;
  ForEachGroup<false>(scratch, [&](Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>*) {
    for (size_t p = 0; p < count; ++p) {
      const KeyRef key = keys.at(positions[p], scratch->hashes[positions[p]]);
      const uint32_t row = segment->Find(key), i = at[positions[p]];
      // It may have come back, or be elsewhere in the log: the lookup that follows reads it then.
      if (!IsOnSsd(row) || segment->ssd().place(SsdSlot(row)) != places[i]) continue;
      segment->MoveToMemory(row, {scratch->ssd_headers[i], &scratch->ssd_values[i * values]});
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
                         if (IsOnSsd(row)) places.push_back(segment->ssd().place(SsdSlot(row)));
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
    for (size_t p = 0; p < size; ++p) segment->ssd().Prefetch(scratch.hashes[positions[p]]);
    for (size_t p = 0; p < size; ++p) {
      RowLog::Moved& row = rows[positions[p]];
      const uint32_t record = segment->FindPlace(scratch.hashes[positions[p]], row.from);
      if (record == kNoRow) continue;
      // A cut that has begun has pinned the files of its instant only.
      segment->Keep(record);
      segment->Relocate(record, row.to);
      row.taken = true;
    }
  });
}

void ElasticTable::EvictFromSsd(Segment* segment, const std::vector<uint32_t>& rows) {
  constexpr size_t kMostReads = 1024;
  const bool records = records_tombstones_.load(std::memory_order_relaxed);
  const size_t values = layout().dim + layout().slots;
  std::vector<LogPlace> places(kMostReads);
  std::vector<RecordHeader> headers(kMostReads);
  std::vector<float> read(records ? std::min(rows.size(), kMostReads) * values : 0);
  std::vector<uint8_t> found(kMostReads);
  for (size_t begin = 0; begin < rows.size(); begin += kMostReads) {
    const size_t count = std::min(kMostReads, rows.size() - begin);
    for (size_t i = 0; i < count; ++i) places[i] = segment->ssd().place(SsdSlot(rows[begin + i]));
    // Rows whose keys cannot be read are evicted all the same: else each update would fail that comes past them.
    bool known = records;
    if (records) {
      try {
        store_.log->Read(places.data(), nullptr, count, read.data(), values, found.data(), headers.data());
        known = std::find(found.begin(), found.begin() + count, 0) == found.begin() + count;
      } catch (const SsdError& error) {
        if (error.kind() != SsdError::Kind::kDamaged) throw;
        known = false;
      }
      if (!known) LoseEvictions();
    }
    for (size_t i = 0; i < count; ++i) {
      const uint32_t row = rows[begin + i];
      if (known) RecordEviction(headers[i].key(), segment->text(row), /*candidate=*/false);
      evicted_.fetch_add(1, std::memory_order_relaxed);
      segment->Remove(/*hash=*/0, row);
    }
  }
}

void ElasticTable::AdoptRow(Segment* segment, const KeyRef& key, LogPlace place, const RowOnSsd& read) {
  const auto is_here = [&](uint32_t row) { return IsOnSsd(row) && segment->ssd().place(SsdSlot(row)) == place; };
  // A later checkpoint may name the place that an earlier one has named.
  if (is_here(segment->Find(key))) return;
  store_.log->Adopt(place);
  for (uint32_t row; (row = segment->Find(key)) != kNoRow;) {
    if (!IsOnSsd(row)) {
      segment->Remove(key.hash, row);
      continue;
    }
    const RowOnSsd other = ReadFromSsd(*segment, row);
    if (other.header.key() == key.key) {
      segment->Remove(key.hash, row);
    } else {
      segment->MoveToMemory(row, other);
    }
  }
  segment->AddOnSsd(key, place, read);
}

void ElasticTable::Adopt(const KeyBatch& keys, const LogPlace* places) {
  if (store_.log == nullptr) {
    throw std::invalid_argument("rows of the checkpoint are on SSD, expected a table with tiers");
  }
  // All records are read, so that what is damaged is found now.
  const size_t values = layout().dim + layout().slots;
  std::vector<float> rows(keys.count * values);
  std::vector<RecordHeader> headers(keys.count);
  std::vector<uint8_t> found(keys.count);
  store_.log->Read(places, nullptr, keys.count, rows.data(), values, found.data(), headers.data());
  std::vector<uint64_t> numbers(keys.count);
  for (size_t i = 0; i < keys.count; ++i) {
    numbers[i] = headers[i].key();
    const bool is_row = numbers[i] == keys.keys[i] || (keys.texts == nullptr && IsRowOf(headers[i], keys.keys[i]));
    if (found[i] == 0 || !is_row) throw NoRowAt(places[i]);
  }
  const KeyBatch batch{numbers.data(), keys.texts, keys.count};
  KeyScratch& scratch = KeyScratch::OfThread();
  scratch.Hash(batch);
  scratch.pending.resize(keys.count);
  std::iota(scratch.pending.begin(), scratch.pending.end(), 0u);
  int growths = LookupCounts().growths;
  ForEachGroup<false>(&scratch,
                      [&](Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>* again) {
                        size_t p = 0;
                        for (; p < count && !segment->must_split(); ++p) {
                          const uint32_t i = positions[p];
                          AdoptRow(segment, batch.at(i, scratch.hashes[i]), places[i], {headers[i], &rows[i * values]});
                        }
                        again->insert(again->end(), positions + p, positions + count);
                        Grow(segment, &growths);
                      });
}

}  // namespace elastic_training
