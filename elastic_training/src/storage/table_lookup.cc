// SPDX-License-Identifier: Apache-2.0
// Lookups of an ElasticTable.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "src/storage/elastic_table.h"
#include "src/storage/read_all.h"

namespace elastic_training {
namespace {

// Keys whose memory is asked for before the first of them is used.
constexpr size_t kLookupBlock = 64;
constexpr size_t kCacheLine = 64;

void PrefetchBytes(const char* begin, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(begin + i);
  __builtin_prefetch(begin + bytes - 1);
}

// Fills `distinct` with the positions of the first of equal keys, `occurrences` with their numbers, `repeated` with the other
// positions, and `firsts`.
void FindDistinct(const KeyBatch& keys, const uint32_t* positions, size_t count, int32_t* firsts, KeyScratch* scratch) {
  size_t size = 16;
  while (size < 2 * count) size *= 2;
  // The place in `distinct` plus one, by hash.
  scratch->seen.assign(size, 0);
  scratch->distinct.clear();
  scratch->occurrences.clear();
  scratch->repeated.clear();
  for (size_t i = 0; i < count; ++i) {
    const uint32_t position = positions[i];
    for (size_t slot = scratch->hashes[position] >> 8 & (size - 1);; slot = (slot + 1) & (size - 1)) {
      const uint32_t seen = scratch->seen[slot];
      if (seen == 0) {
        scratch->distinct.push_back(position);
        scratch->occurrences.push_back(1);
        scratch->seen[slot] = static_cast<uint32_t>(scratch->distinct.size());
        firsts[position] = static_cast<int32_t>(position);
        break;
      }
      const uint32_t first = scratch->distinct[seen - 1];
      if (!keys.Equal(first, position)) continue;
      ++scratch->occurrences[seen - 1];
      scratch->repeated.push_back(position);
      firsts[position] = static_cast<int32_t>(first);
      break;
    }
  }
}

}  // namespace

void ElasticTable::Lookup(const LookupRequest& request) {
  KeyScratch& scratch = KeyScratch::OfThread();
  const KeyBatch& keys = request.keys;
  scratch.Hash(keys);
  scratch.pending.clear();
  for (size_t i = 0; i < keys.count; ++i) {
    if (request.masked == nullptr || request.masked[i] == 0) {
      scratch.pending.push_back(static_cast<uint32_t>(i));
    } else {
      std::fill_n(request.rows + i * layout().dim, layout().dim, 0.0f);
      if (!request.training) continue;
      request.places[i] = -1;
      request.firsts[i] = static_cast<int32_t>(i);
    }
  }
  LookupCounts counts;
  const size_t looked_up = scratch.pending.size();
  const auto lookup = [&](Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>* again) {
    LookupGroup(request, &scratch, segment, positions, count, again, &counts);
  };
  if (request.training) {
    if (store_.log != nullptr) MoveIn(keys, &scratch);
    ForEachGroup<false>(&scratch, lookup);
    occurrences_.fetch_add(looked_up, std::memory_order_relaxed);
    if (counts.admitted != 0) admitted_.fetch_add(counts.admitted, std::memory_order_relaxed);
    if (counts.refused != 0) refused_.fetch_add(counts.refused, std::memory_order_relaxed);
  } else {
    while (!scratch.pending.empty()) {
      ForEachGroup<true>(&scratch, lookup);
      ReadAll(keys, &scratch, [&](size_t i, const RowOnSsd& row) {
        std::memcpy(request.rows + i * layout().dim, row.values, layout().dim * sizeof(float));
      });
    }
  }
}

void ElasticTable::LookupGroup(const LookupRequest& request, KeyScratch* scratch, Segment* segment,
                               const uint32_t* positions, size_t count, std::vector<uint32_t>* again,
                               LookupCounts* counts) {
  const KeyBatch& keys = request.keys;
  const size_t dim = layout().dim;
  const size_t read_bytes = layout().weights_offset + dim * sizeof(float);
  if (request.training) {
    FindDistinct(keys, positions, count, request.firsts, scratch);
  } else {
    scratch->distinct.assign(positions, positions + count);
    scratch->repeated.clear();
  }
  const std::vector<uint32_t>& distinct = scratch->distinct;
  const uint64_t* const hashes = scratch->hashes.data();
  size_t done = 0;
  bool split = false;
  while (done < distinct.size() && !split) {
    const size_t end = std::min(done + kLookupBlock, distinct.size());
    for (size_t i = done; i < end; ++i) segment->Prefetch(hashes[distinct[i]]);
    for (size_t i = done; i < end; ++i) {
      const uint32_t guess = segment->index().Guess(hashes[distinct[i]]);
      if (guess != kNoRow) PrefetchBytes(store_.address(guess), IsRecord(guess) ? layout().record_bytes : read_bytes);
    }
    for (; done < end && !split; ++done) {
      const uint32_t position = distinct[done];
      const KeyRef key = keys.at(position, hashes[position]);
      uint32_t row = segment->Find(key);
      if (request.training) {
        row = TrainingRow(key, row, scratch->occurrences[done], request.now, segment, counts);
        split = segment->must_split();
      }
      if (!IsOnSsd(row)) {
        CopyRow(row, request.rows + position * dim);
      } else if (!scratch->one_by_one) {
        scratch->on_ssd.push_back(position);
        scratch->ssd_places.push_back(segment->ssd().place(SsdSlot(row)));
      } else if (const RowOnSsd read = ReadFromSsd(*segment, row); read.header.key() == key.key) {
        std::memcpy(request.rows + position * dim, read.values, dim * sizeof(float));
      } else {
        CopyRow(kNoRow, request.rows + position * dim);
      }
      if (!request.training) continue;
      const bool candidate = row != kNoRow && IsRecord(row) && !store_.header(row).Has(kReleasedFlag);
      request.places[position] = row == kNoRow || candidate ? -1 : static_cast<int64_t>(row);
    }
  }
  // What was not reached because the segment is too large now comes again after it has split.
  for (size_t i = done; i < distinct.size(); ++i) {
    request.firsts[distinct[i]] = -1;
    again->push_back(distinct[i]);
  }
  for (const uint32_t position : scratch->repeated) {
    const int32_t first = request.firsts[position];
    if (request.firsts[first] < 0) {
      again->push_back(position);
      continue;
    }
    std::memcpy(request.rows + position * dim, request.rows + first * dim, dim * sizeof(float));
    request.places[position] = request.places[first];
  }
  if (request.training) Grow(segment, &counts->growths);
}

void ElasticTable::Grow(Segment* segment, int* growths) {
  if (segment->must_split() || (*growths > 0 && segment->shall_split())) {
    directory_.Split(segment);
  } else if (*growths > 0 && segment->shall_grow()) {
    segment->Grow();
  } else {
    return;
  }
  --*growths;
}

uint32_t ElasticTable::TrainingRow(const KeyRef& key, uint32_t found, uint32_t occurrences, uint32_t now,
                                   Segment* segment, LookupCounts* counts) {
  // Other calls may have moved a row to SSD since this one moved its rows in.
  if (found != kNoRow) found = MoveIn(segment, key, found);
  uint32_t row = found;
  if (found != kNoRow) segment->Keep(found);
  const bool candidate = found != kNoRow && IsRecord(found) && !store_.header(found).Has(kReleasedFlag);
  if (found == kNoRow || candidate) {
    bool admitted = admission_->admits_all();
    if (!admitted) {
      const uint32_t before = candidate ? store_.header(found).count() : 0;
      const uint32_t counted = std::min(before + std::min(occurrences, RowHeader::kMaxCount), RowHeader::kMaxCount);
      const AdmissionMoment moment{step(), this->occurrences(), now};
      admitted = admission_->Admit({key.hash, occurrences, counted}, moment);
    }
    ++(admitted ? counts->admitted : counts->refused);
    if (admitted) {
      row = candidate ? segment->MakeFull(key.hash, found) : segment->AddFull(key);
    } else if (!candidate) {
      if (!admission_->table_counts()) return kNoRow;
      row = segment->AddCandidate(key);
    }
  }
  RowHeader& header = store_.header(row);
  header.Set(kCheckpointDirty);
  header.Count(occurrences);
  header.touch = now;
  return row;
}

void ElasticTable::CopyRow(uint32_t row, float* out) const {
  if (row != kNoRow && !IsRecord(row)) {
    std::memcpy(out, store_.weights(row), layout().dim * sizeof(float));
  } else {
    const bool released = row != kNoRow && store_.header(row).Has(kReleasedFlag);
    std::fill_n(out, layout().dim, released ? 0.0f : config_.default_value);
  }
}

}  // namespace elastic_training
