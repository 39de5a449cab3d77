// SPDX-License-Identifier: Apache-2.0
// Contents of rows of an ElasticTable: Insert, Read, Evict, and passes over all rows.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "src/storage/elastic_table.h"
#include "src/storage/read_all.h"

namespace elastic_training {
namespace {

void TakeAll(const KeyBatch& keys, KeyScratch* scratch) {
  scratch->Hash(keys);
  scratch->pending.resize(keys.count);
  std::iota(scratch->pending.begin(), scratch->pending.end(), 0u);
}

// Of a row that is not on SSD.
RowKind KindOf(uint32_t row, const RowHeader& header) {
  if (!IsRecord(row)) return RowKind::kFull;
  return header.Has(kReleasedFlag) ? RowKind::kReleased : RowKind::kCandidate;
}

bool AllZero(const float* values, size_t count) {
  return std::all_of(values, values + count, [](float value) { return value == 0; });
}

}  // namespace

void ElasticTable::Insert(const KeyBatch& keys, const RowContents& contents) {
  KeyScratch& scratch = KeyScratch::OfThread();
  TakeAll(keys, &scratch);
  const size_t dim = layout().dim, slots = layout().slots;
  int growths = LookupCounts().growths;
  const auto write = [&](Segment* segment, size_t i) {
    const KeyRef key = keys.at(i, scratch.hashes[i]);
    const RowKind kind = contents.kinds == nullptr ? RowKind::kFull : static_cast<RowKind>(contents.kinds[i]);
    uint32_t row = segment->Find(key);
    if (row != kNoRow) row = MoveIn(segment, key, row);
    if (row != kNoRow) segment->Keep(row);
    if (kind == RowKind::kCandidate) {
      if (row != kNoRow && !(IsRecord(row) && !store_.header(row).Has(kReleasedFlag))) {
        EvictRow(segment, key.hash, row);
        row = kNoRow;
      }
      if (row == kNoRow) row = segment->AddCandidate(key);
    } else {
      if (row == kNoRow) {
        row = segment->AddFull(key);
      } else if (IsRecord(row)) {
        const RowHeader& header = store_.header(row);
        if (KindOf(row, header) == RowKind::kCandidate) admission_->Forget(key.hash, header.count());
        row = segment->MakeFull(key.hash, row);
      }
      float* const weights = store_.weights(row);
      if (contents.weights != nullptr) std::memcpy(weights, contents.weights + i * dim, dim * sizeof(float));
      if (contents.slots != nullptr) std::memcpy(weights + dim, contents.slots + i * slots, slots * sizeof(float));
      RowHeader& header = store_.header(row);
      segment->SetZero(&header, store_.optimizer.tells_outcomes() && AllZero(weights, dim));
      store_.MarkDirty(row, &header);
      if (kind == RowKind::kReleased) row = segment->Release(key.hash, row);
    }
    RowHeader& header = store_.header(row);
    header.Set(kCheckpointDirty);
    if (contents.touches != nullptr) header.touch = static_cast<uint32_t>(contents.touches[i]);
    if (contents.counts != nullptr) {
      header.count_flags = header.flags();
      header.Count(static_cast<uint32_t>(std::min<int64_t>(contents.counts[i], RowHeader::kMaxCount)));
    }
  };
  const auto write_all = [&](Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>* again) {
    size_t i = 0;
    while (i < count && !segment->must_split()) write(segment, positions[i++]);
    again->insert(again->end(), positions + i, positions + count);
    Grow(segment, &growths);
  };
  ForEachGroup<false>(&scratch, write_all);
}

void ElasticTable::Read(const KeyBatch& keys, const RowContents& contents) const {
  KeyScratch& scratch = KeyScratch::OfThread();
  TakeAll(keys, &scratch);
  const size_t dim = layout().dim, slots = layout().slots;
  const auto take = [&](size_t i, const RowOnSsd& row) {
    if (contents.weights != nullptr) std::memcpy(contents.weights + i * dim, row.values, dim * sizeof(float));
    if (contents.slots != nullptr) std::memcpy(contents.slots + i * slots, row.values + dim, slots * sizeof(float));
    if (contents.touches != nullptr) contents.touches[i] = row.header.touch;
    if (contents.counts != nullptr) contents.counts[i] = row.header.count();
    if (contents.kinds != nullptr) contents.kinds[i] = static_cast<int64_t>(RowKind::kFull);
  };
  const auto read = [&](const Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>*) {
    for (size_t p = 0; p < count; ++p) {
      const size_t i = positions[p];
      uint32_t row = segment->Find(keys.at(i, scratch.hashes[i]));
      if (IsOnSsd(row) && !scratch.one_by_one) {
        scratch.on_ssd.push_back(positions[p]);
        scratch.ssd_places.push_back(segment->ssd().place(SsdSlot(row)));
        continue;
      }
      if (IsOnSsd(row)) {
        const RowOnSsd on_ssd = ReadFromSsd(*segment, row);
        if (on_ssd.header.key() == keys.keys[i]) {
          take(i, on_ssd);
          continue;
        }
        row = kNoRow;
      }
      const RowHeader absent{0, 0, 0};
      const RowHeader& header = row == kNoRow ? absent : store_.header(row);
      if (contents.weights != nullptr) CopyRow(row, contents.weights + i * dim);
      if (contents.slots != nullptr) {
        float* const out = contents.slots + i * slots;
        if (row == kNoRow || IsRecord(row)) {
          std::fill_n(out, slots, 0.0f);
        } else {
          std::memcpy(out, store_.weights(row) + dim, slots * sizeof(float));
        }
      }
      if (contents.touches != nullptr) contents.touches[i] = header.touch;
      if (contents.counts != nullptr) contents.counts[i] = header.count();
      if (contents.kinds != nullptr) {
        contents.kinds[i] = static_cast<int64_t>(row == kNoRow ? RowKind::kAbsent : KindOf(row, header));
      }
    }
  };
  while (!scratch.pending.empty()) {
    ForEachGroup<true>(&scratch, read);
    ReadAll(keys, &scratch, take);
  }
}

void ElasticTable::EstimateAdmission(const KeyBatch& keys, uint32_t now, AdmissionEstimate* estimates) const {
  KeyScratch& scratch = KeyScratch::OfThread();
  TakeAll(keys, &scratch);
  const AdmissionMoment moment{step(), occurrences(), now};
  const auto estimate = [&](const Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>*) {
    for (size_t p = 0; p < count; ++p) {
      const uint64_t hash = scratch.hashes[positions[p]];
      const uint32_t row = segment->Find(keys.at(positions[p], hash));
      uint32_t occurrences = 0;
      if (IsOnSsd(row)) {
        const RowOnSsd read = ReadFromSsd(*segment, row);
        if (read.header.key() == keys.keys[positions[p]]) occurrences = read.header.count();
      } else if (row != kNoRow) {
        occurrences = store_.header(row).count();
      }
      estimates[positions[p]] = admission_->Estimate(hash, occurrences, moment);
    }
  };
  ForEachGroup<true>(&scratch, estimate);
}

size_t ElasticTable::Evict(const KeyBatch& keys) {
  Prefetch(keys);
  KeyScratch& scratch = KeyScratch::OfThread();
  TakeAll(keys, &scratch);
  size_t evicted = 0;
  ForEachGroup<false>(&scratch, [&](Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>*) {
    for (size_t i = 0; i < count; ++i) {
      const KeyRef key = keys.at(positions[i], scratch.hashes[positions[i]]);
      const uint32_t row = segment->Find(key);
      if (row == kNoRow) continue;
      if (!IsOnSsd(row)) {
        EvictRow(segment, key.hash, row);
      } else if (ReadFromSsd(*segment, row).header.key() == key.key) {
        EvictFromSsd(segment, {row});
      } else {
        continue;
      }
      ++evicted;
    }
  });
  return evicted;
}

void ElasticTable::EvictRow(Segment* segment, uint64_t hash, uint32_t row) {
  const RowHeader& header = store_.header(row);
  const bool candidate = KindOf(row, header) == RowKind::kCandidate;
  if (records_tombstones_.load(std::memory_order_relaxed)) RecordEviction(header.key, segment->text(row), candidate);
  if (candidate) {
    admission_->Forget(hash, header.count());
  } else {
    evicted_.fetch_add(1, std::memory_order_relaxed);
  }
  segment->Remove(hash, row);
}

void ElasticTable::RecordEviction(uint64_t key, std::string_view text, bool candidate) {
  const std::lock_guard<std::mutex> lock(tombstones_mutex_);
  for (int consumer = 0; consumer < kConsumers; ++consumer) {
    Tombstones& one = tombstones_[consumer];
    // Only checkpoints know of candidates.
    if (!one.active || (candidate && consumer != kCheckpointConsumer)) continue;
    if (one.keys.size() >= kMostTombstones) {
      one.Lose();
      continue;
    }
    one.keys.push_back(key);
    if (config_.string_keys) one.texts.emplace_back(text);
  }
}

void ElasticTable::LoseEvictions() {
  const std::lock_guard<std::mutex> lock(tombstones_mutex_);
  for (Tombstones& one : tombstones_) {
    if (one.active) one.Lose();
  }
}

RowView ElasticTable::HeaderOf(const Segment& segment, uint32_t row) const {
  if (IsOnSsd(row)) {
    const SsdEntry entry = segment.ssd().at(SsdSlot(row));
    return {entry.hash, segment.text(row), RowKind::kFull, entry.touch, entry.count, nullptr, nullptr, entry.norm};
  }
  const RowHeader& header = store_.header(row);
  const float* const weights = IsRecord(row) ? nullptr : store_.weights(row);
  return {header.key,
          segment.text(row),
          KindOf(row, header),
          header.touch,
          header.count(),
          weights,
          weights == nullptr ? nullptr : weights + layout().dim};
}

RowView ElasticTable::ViewOf(const Segment& segment, uint32_t row) const {
  if (!IsOnSsd(row)) return HeaderOf(segment, row);
  const RowOnSsd read = ReadFromSsd(segment, row);
  return {read.header.key(), segment.text(row),         RowKind::kFull, read.header.touch, read.header.count(),
          read.values,       read.values + layout().dim};
}

uint64_t ElasticTable::Visit(uint64_t cursor, const std::function<void(const RowView&)>& visit) const {
  return WithSegment<true>(cursor, [&](const Segment* segment) {
    segment->ForEachHash([&](uint64_t, uint32_t row) { visit(ViewOf(*segment, row)); });
  });
}

uint64_t ElasticTable::VisitHeaders(uint64_t cursor, const std::function<void(const RowView&)>& visit) const {
  return WithSegment<true>(cursor, [&](const Segment* segment) {
    segment->ForEachHash([&](uint64_t, uint32_t row) { visit(HeaderOf(*segment, row)); });
  });
}

uint64_t ElasticTable::Sweep(uint64_t cursor, const std::function<RowFate(const RowView&)>& decide) {
  return WithSegment<false>(cursor, [&](Segment* segment) {
    std::vector<uint32_t> evicted;
    segment->ForEachOnSsd([&](uint64_t, uint32_t row) {
      if (decide(HeaderOf(*segment, row)) == RowFate::kEvict) evicted.push_back(row);
    });
    // Before others move to SSD, which may change the numbers of rows there.
    EvictFromSsd(segment, evicted);
    segment->ForEachInMemory([&](uint64_t hash, uint32_t row) {
      const RowFate fate = decide(HeaderOf(*segment, row));
      if (fate == RowFate::kEvict) {
        EvictRow(segment, hash, row);
      } else if (fate == RowFate::kRelease && !IsRecord(row)) {
        segment->Release(hash, row);
        released_.fetch_add(1, std::memory_order_relaxed);
      } else if (fate == RowFate::kMoveToSsd && !IsRecord(row)) {
        segment->MoveToSsd(hash, row);
      }
    });
  });
}

void ElasticTable::Follow() {
  if (has_cut_[kPublisherConsumer].exchange(true)) {
    throw std::invalid_argument("table '" + config_.name +
                                "': changes are being read, expected the end of that before they are followed anew");
  }
  {
    const std::lock_guard<std::mutex> lock(tombstones_mutex_);
    tombstones_[kPublisherConsumer] = Tombstones();
    tombstones_[kPublisherConsumer].active = true;
    records_tombstones_.store(true, std::memory_order_relaxed);
  }
  uint64_t cursor = 0;
  do {
    cursor = WithSegment<false>(cursor, [&](Segment* segment) {
      segment->ForEachHash([&](uint64_t, uint32_t row) {
        if (IsOnSsd(row) || KindOf(row, store_.header(row)) != RowKind::kCandidate) segment->MarkChanged(row);
      });
    });
  } while (cursor != 0);
  has_cut_[kPublisherConsumer].store(false);
}

void ElasticTable::Unfollow() {
  const std::lock_guard<std::mutex> lock(tombstones_mutex_);
  tombstones_[kPublisherConsumer] = Tombstones();
  records_tombstones_.store(tombstones_[kCheckpointConsumer].active, std::memory_order_relaxed);
}

}  // namespace elastic_training
