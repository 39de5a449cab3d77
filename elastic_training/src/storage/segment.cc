// SPDX-License-Identifier: Apache-2.0
#include "src/storage/segment.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace elastic_training {

namespace {

// A number in [0, 1) that depends on the arguments alone.
double Draw(uint64_t prefix, int depth) { return FractionOf(Mix(prefix << 8 | depth)); }

// The room of an index of `rows` rows: 1.1 to 1.3 times as many.
uint32_t Room(size_t rows, uint64_t prefix) {
  return static_cast<uint32_t>(rows * (1.1 + 0.2 * Draw(prefix, static_cast<int>(rows)))) + 1;
}

}  // namespace

void Segment::DrawSplit() { split_rows_ = static_cast<uint32_t>(kMinSplitRows * std::exp2(Draw(prefix_, depth_))); }

bool Segment::IsKey(uint32_t row, const KeyRef& key) const {
  char* const address = store_.address(row);
  const RowHeader& header = store_.layout.header(address);
  return header.key == key.key && header.Has(kLiveFlag) &&
         (!store_.layout.string_keys || strings_.at(store_.layout.string(address)) == key.text);
}

uint32_t Segment::Take(bool record) {
  const uint32_t row = TakeRow(record);
  (record ? store_.record_rows : store_.full_rows).fetch_add(1, std::memory_order_relaxed);
  return row;
}

uint32_t Segment::TakeRow(bool record) {
  Pool& pool = record ? records_ : full_;
  RowSlabs& slabs = record ? store_.records : store_.full;
  const uint32_t bit = record ? kRecordBit : 0;
  if (pool.free != kNoRow) {
    const uint32_t row = pool.free;
    pool.free = store_.header(row).touch;
    return row;
  }
  if (pool.next == pool.end) {
    pool.next = slabs.TakeChunk();
    pool.end = pool.next + RowSlabs::kChunkRows;
  }
  return pool.next++ | bit;
}

void Segment::GiveBack(uint32_t row) {
  Pool& pool = IsRecord(row) ? records_ : full_;
  (IsRecord(row) ? store_.record_rows : store_.full_rows).fetch_sub(1, std::memory_order_relaxed);
  RowHeader& header = store_.header(row);
  header.count_flags = 0;
  header.touch = pool.free;
  pool.free = row;
}

uint32_t Segment::Add(const KeyRef& key, bool record) {
  if (index_.full()) Grow();
  if (strings_.wasteful()) CompactStrings();
  StringPlace place{0, 0};
  if (store_.layout.string_keys) place = strings_.Add(key.text);
  uint32_t row;
  try {
    row = Take(record);
  } catch (...) {
    strings_.Remove(place);
    throw;
  }
  char* const address = store_.address(row);
  store_.layout.header(address) = {key.key, 0, kLiveFlag | store_.cut_phase};
  if (store_.layout.string_keys) store_.layout.string(address) = place;
  index_.Insert(key.hash, row);
  return row;
}

void Segment::FillNew(uint32_t row, const RowHeader& header, bool zeros) {
  float* const weights = store_.weights(row);
  if (zeros) {
    std::fill_n(weights, store_.layout.dim, 0.0f);
  } else {
    store_.initial.Fill(header.key, weights);
  }
  store_.optimizer.InitSlots(weights + store_.layout.dim);
  ++counts_.full;
}

uint32_t Segment::AddFull(const KeyRef& key) {
  const uint32_t row = Add(key, /*record=*/false);
  RowHeader& header = store_.header(row);
  FillNew(row, header, /*zeros=*/false);
  store_.MarkDirty(row, &header);
  return row;
}

uint32_t Segment::AddCandidate(const KeyRef& key) {
  const uint32_t row = Add(key, /*record=*/true);
  store_.header(row).Set(kCheckpointDirty);
  ++counts_.candidates;
  return row;
}

uint32_t Segment::MakeFull(uint64_t hash, uint32_t record) {
  Keep(record);
  const uint32_t row = Take(/*record=*/false);
  RowHeader& header = store_.header(row);
  header = store_.header(record);
  if (store_.layout.string_keys) {
    store_.layout.string(store_.address(row)) = store_.layout.string(store_.address(record));
  }
  const bool released = header.Has(kReleasedFlag);
  --(released ? counts_.released : counts_.candidates);
  header.Clear(kReleasedFlag | kZeroFlag);
  FillNew(row, header, released);
  SetZero(&header, released);
  store_.MarkDirty(row, &header);
  index_.Replace(hash, record, row);
  GiveBack(record);
  return row;
}

uint32_t Segment::Release(uint64_t hash, uint32_t row) {
  Keep(row);
  const uint32_t record = Take(/*record=*/true);
  RowHeader& header = store_.header(record);
  SetZero(&store_.header(row), false);
  header = store_.header(row);
  if (store_.layout.string_keys) {
    store_.layout.string(store_.address(record)) = store_.layout.string(store_.address(row));
  }
  --counts_.full;
  ++counts_.released;
  header.Set(kReleasedFlag | kZeroFlag);
  store_.MarkDirty(record, &header);
  index_.Replace(hash, row, record);
  GiveBack(row);
  return record;
}

int64_t& Segment::CountOf(const RowHeader& record) {
  return record.Has(kReleasedFlag) ? counts_.released : counts_.candidates;
}

void Segment::Remove(uint64_t hash, uint32_t row) {
  Keep(row);
  if (IsOnSsd(row)) {
    const uint32_t slot = SsdSlot(row);
    if ((ssd_.flags(slot) & kZeroFlag) != 0) --counts_.zero;
    --counts_.ssd;
    if (store_.layout.string_keys) strings_.Remove(ssd_.text(slot));
    store_.log->Drop(ssd_.place(slot));
    ssd_.Erase(slot);
    return;
  }
  RowHeader& header = store_.header(row);
  if (!IsRecord(row)) {
    SetZero(&header, false);
    --counts_.full;
  } else {
    --CountOf(header);
  }
  if (store_.layout.string_keys) strings_.Remove(store_.layout.string(store_.address(row)));
  index_.Erase(hash, row);
  GiveBack(row);
}

void Segment::ChangeFlags(uint32_t row, uint32_t set, uint32_t clear) {
  if (IsOnSsd(row)) {
    ssd_.set_flags(SsdSlot(row), (ssd_.flags(SsdSlot(row)) | set) & ~clear);
  } else {
    store_.header(row).Set(set);
    store_.header(row).Clear(clear);
  }
}

void Segment::KeepForCuts(uint32_t row, uint32_t unread) {
  if ((unread & kCutFlag) != 0) {
    if (store_.keeper != nullptr) store_.keeper->Keep(this, row);
    ChangeFlags(row, store_.cut_phase, kCutFlag ^ store_.cut_phase);
  }
  if ((unread & kPublisherMarks) != 0) {
    ClearFlags(row, unread & kPublisherMarks);
    store_.changes_keeper->Keep(this, row);
  }
}

void Segment::SetZero(RowHeader* header, bool zero) {
  if (header->Has(kZeroFlag) == zero) return;
  header->count_flags ^= kZeroFlag;
  counts_.zero += zero ? 1 : -1;
}

void Segment::Grow() {
  // Small indexes double; large ones grow by about a fifth. How much differs, since segments that grow at the same rate
  // would else all be full in the same batch.
  const uint32_t rows = index_.size();
  BucketIndex larger(rows < 1024 ? 2 * rows + 8 : Room(rows, prefix_));
  ForEachInMemory([&](uint64_t hash, uint32_t row) { larger.Insert(hash, row); });
  index_ = std::move(larger);
  ++index_version_;
}

void Segment::CompactStrings() {
  StringArena compact;
  std::vector<std::pair<uint32_t, StringPlace>> places;
  places.reserve(size());
  ForEachHash([&](uint64_t, uint32_t row) { places.emplace_back(row, compact.Add(text(row))); });
  for (const auto& [row, place] : places) {
    (IsOnSsd(row) ? ssd_.text(SsdSlot(row)) : store_.layout.string(store_.address(row))) = place;
  }
  strings_ = std::move(compact);
}

std::unique_ptr<Segment> Segment::Split() {
  auto upper = std::make_unique<Segment>(&store_, depth_ + 1, 2 * prefix_ + 1);
  // All that can throw comes first, so that nothing is half moved. Passes over the rows have the same order.
  uint32_t go = 0, go_on_ssd = 0;
  ForEachHash([&](uint64_t hash, uint32_t row) { (IsOnSsd(row) ? go_on_ssd : go) += upper->Covers(hash); });
  BucketIndex stays(Room(index_.size() - go, 2 * prefix_)), goes(Room(go, 2 * prefix_ + 1));
  SsdIndex ssd_stays, ssd_goes;
  if (ssd_.buckets() != 0) {
    ssd_stays = NewSsdIndex(ssd_.size() - go_on_ssd, depth_ + 1, 2 * prefix_);
    ssd_goes = NewSsdIndex(go_on_ssd, depth_ + 1, 2 * prefix_ + 1);
  }
  StringArena kept, moved;
  std::vector<StringPlace> places;
  if (store_.layout.string_keys) {
    places.reserve(size());
    ForEachHash(
        [&](uint64_t hash, uint32_t row) { places.push_back((upper->Covers(hash) ? moved : kept).Add(text(row))); });
  }
  size_t i = 0;
  const auto move = [](int64_t& from, int64_t& to) { --from, ++to; };
  ForEachHash([&](uint64_t hash, uint32_t row) {
    const bool goes_up = upper->Covers(hash);
    const StringPlace text = store_.layout.string_keys ? places[i++] : StringPlace{0, 0};
    if (IsOnSsd(row)) {
      SsdIndex& index = goes_up ? ssd_goes : ssd_stays;
      const uint32_t slot = index.InsertFrom(ssd_, SsdSlot(row));
      if (store_.layout.string_keys) index.text(slot) = text;
      if (!goes_up) return;
      move(counts_.ssd, upper->counts_.ssd);
      if ((index.flags(slot) & kZeroFlag) != 0) move(counts_.zero, upper->counts_.zero);
      return;
    }
    (goes_up ? goes : stays).Insert(hash, row);
    if (store_.layout.string_keys) store_.layout.string(store_.address(row)) = text;
    if (!goes_up) return;
    const RowHeader& header = store_.header(row);
    if (!IsRecord(row)) {
      move(counts_.full, upper->counts_.full);
      if (header.Has(kZeroFlag)) move(counts_.zero, upper->counts_.zero);
    } else {
      move(CountOf(header), upper->CountOf(header));
    }
  });
  // Rows that were given back stay with the segment of the key that they had: update ops may still have their numbers.
  for (Pool* pool : {&full_, &records_}) {
    Pool& other = pool == &full_ ? upper->full_ : upper->records_;
    uint32_t row = pool->free;
    pool->free = kNoRow;
    while (row != kNoRow) {
      RowHeader& header = store_.header(row);
      const uint32_t next = header.touch;
      uint32_t& list = upper->Covers(HashKey(header.key)) ? other.free : pool->free;
      header.touch = list;
      list = row;
      row = next;
    }
  }
  index_ = std::move(stays);
  ++index_version_;
  upper->index_ = std::move(goes);
  TakeSsdIndex(std::move(ssd_stays));
  upper->TakeSsdIndex(std::move(ssd_goes));
  strings_ = std::move(kept);
  upper->strings_ = std::move(moved);
  ++depth_;
  prefix_ *= 2;
  DrawSplit();
  return upper;
}

}  // namespace elastic_training
