// SPDX-License-Identifier: Apache-2.0
// Rows of a segment that are on SSD.
#include <algorithm>
#include <utility>

#include "src/base/norm.h"
#include "src/storage/segment.h"

namespace elastic_training {
namespace {

// The index grows by little at a time, so that little of it is free: by 5 to 12 %. How much differs, since segments that grow
// at the same rate would else all be full in the same batch.
constexpr double kLeastGrowth = 1.05, kGrowthRange = 0.07;

}  // namespace

uint32_t Segment::FindOnSsd(const KeyRef& key) const {
  if (!store_.layout.string_keys) return RowOf(ssd_.Find(key.hash));
  return RowOf(ssd_.Find(key.hash, [&](uint32_t slot) { return strings_.at(ssd_.text(slot)) == key.text; }));
}

float Segment::NormOfRow(const float* weights) const { return static_cast<float>(NormOf(weights, store_.layout.dim)); }

SsdIndex Segment::NewSsdIndex(size_t rows, int depth, uint64_t prefix) const {
  const double growth = kLeastGrowth + kGrowthRange * FractionOf(Mix(prefix << 8 ^ rows));
  SsdIndex index(static_cast<uint32_t>(static_cast<double>(rows) * growth) + 1, depth);
  if (store_.layout.string_keys) index.AddTexts();
  return index;
}

void Segment::TakeSsdIndex(SsdIndex&& index) {
  store_.ssd_index_bytes.fetch_add(static_cast<int64_t>(index.bytes()) - static_cast<int64_t>(ssd_.bytes()),
                                   std::memory_order_relaxed);
  ssd_ = std::move(index);
}

void Segment::GrowSsd() {
  SsdIndex larger = NewSsdIndex(ssd_.size() + 1, depth_, prefix_);
  ssd_.ForEach([&](uint32_t slot) {
    const uint32_t there = larger.InsertFrom(ssd_, slot);
    if (store_.layout.string_keys) larger.text(there) = ssd_.text(slot);
  });
  TakeSsdIndex(std::move(larger));
  ++index_version_;
}

bool Segment::MoveToSsd(uint64_t hash, uint32_t row) {
  if (!store_.layout.string_keys && ssd_.Find(hash) != SsdIndex::kNone) return false;
  if (ssd_.full()) GrowSsd();
  // Cuts look for what changed by the chunk of a row, so those that have begun take it before it moves.
  Keep(row);
  const RowHeader& header = store_.header(row);
  const float* const weights = store_.weights(row);
  const LogPlace place = store_.log->Append({header.key, header.touch, header.count(), 0, weights});
  const uint32_t slot =
      ssd_.Insert({SsdIndex::BitsOf(hash), place, header.flags(), header.touch, header.count(), NormOfRow(weights)});
  if (store_.layout.string_keys) ssd_.text(slot) = store_.layout.string(store_.address(row));
  --counts_.full;
  ++counts_.ssd;
  index_.Erase(hash, row);
  GiveBack(row);
  return true;
}

uint32_t Segment::AddOnSsd(const KeyRef& key, LogPlace place, const RowOnSsd& read) {
  if (ssd_.full()) GrowSsd();
  StringPlace text{0, 0};
  if (store_.layout.string_keys) {
    if (strings_.wasteful()) CompactStrings();
    text = strings_.Add(key.text);
  }
  const uint32_t flags = store_.cut_phase | store_.changed_mark | kCheckpointDirty;
  const uint32_t slot = ssd_.Insert(
      {SsdIndex::BitsOf(key.hash), place, flags, read.header.touch, read.header.count(), NormOfRow(read.values)});
  if (store_.layout.string_keys) ssd_.text(slot) = text;
  ++counts_.ssd;
  return SsdRow(slot);
}

uint32_t Segment::MoveToMemory(uint32_t on_ssd, const RowOnSsd& read) {
  Keep(on_ssd);
  if (index_.full()) Grow();
  const uint32_t row = Take(/*record=*/false), slot = SsdSlot(on_ssd);
  RowHeader& header = store_.header(row);
  header = {read.header.key(), read.header.touch, read.header.count() << 8 | ssd_.flags(slot)};
  if (store_.layout.string_keys) store_.layout.string(store_.address(row)) = ssd_.text(slot);
  if (header.Has(store_.changed_mark)) store_.MarkChanged(row, &header);
  std::copy_n(read.values, store_.layout.dim + store_.layout.slots, store_.weights(row));
  ++counts_.full;
  --counts_.ssd;
  store_.log->Drop(ssd_.place(slot));
  ssd_.Erase(slot);
  index_.Insert(HashKey(header.key), row);
  return row;
}

}  // namespace elastic_training
