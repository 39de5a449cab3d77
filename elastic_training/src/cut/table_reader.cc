// SPDX-License-Identifier: Apache-2.0
#include "src/cut/table_reader.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

namespace elastic_training {

TableReader::TableReader(ElasticTable* table, int consumer, size_t columns)
    : table_(table), consumer_(consumer), columns_(columns) {
  // Walk adds no more than this, so it needs no memory.
  rows_.reserve(2 * kWalkRows);
  if (table_->has_cut_[consumer_].exchange(true)) {
    throw std::invalid_argument("table '" + table_->config().name +
                                "': a cut is being read, expected its end before the next one");
  }
  has_table_ = true;
}

void TableReader::LetOthersBegin() {
  if (has_table_) table_->has_cut_[consumer_].store(false);
  has_table_ = false;
}

void TableReader::Append(const Segment& segment, uint32_t row, RowBlock* block) const {
  const bool stays = leaves_ssd_ && IsOnSsd(row);
  const RowView view = stays ? table_->HeaderOf(segment, row) : table_->ViewOf(segment, row);
  const uint32_t kind = stays ? kOnSsdKind | segment.ssd().place(SsdSlot(row)) : static_cast<uint32_t>(view.kind);
  AppendView(view, kind, block);
}

void TableReader::AppendView(const RowView& view, uint32_t kind, RowBlock* block) const {
  block->keys.push_back(view.key);
  for (const uint32_t value : {view.touch, view.count, kind}) block->meta.push_back(value);
  if (table_->config().string_keys) {
    block->lengths.push_back(static_cast<uint32_t>(view.text.size()));
    block->texts.append(view.text);
  }
  if (view.weights == nullptr) return;
  block->values.insert(block->values.end(), view.weights, view.weights + columns_);
}

void TableReader::FetchFromSsd(const Segment& segment, const std::vector<uint32_t>& rows,
                               const std::function<bool(uint32_t flags)>& wanted) const {
  std::vector<LogPlace> places;
  for (const uint32_t row : rows) {
    if (IsOnSsd(row) && wanted(segment.flags(row))) places.push_back(segment.ssd().place(SsdSlot(row)));
  }
  if (places.empty()) return;
  std::sort(places.begin(), places.end());
  table_->store_.log->Fetch(places.data(), places.size());
}

RowBlock TableReader::TakeEvicted() {
  RowBlock block;
  block.keys = std::move(evicted_.keys);
  for (const std::string& text : evicted_.texts) {
    block.lengths.push_back(static_cast<uint32_t>(text.size()));
    block.texts += text;
  }
  evicted_ = ElasticTable::Tombstones();
  return block;
}

void TableReader::Rest() const {
  // A writer that waits for this segment needs longer to wake than the next walk to lock it again. Where nobody has
  // trained since the cut began, nobody waits.
  if (table_->occurrences() != occurrences_) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

std::runtime_error TableReader::Lost(const std::string& why) const {
  return std::runtime_error("table '" + table_->config().name + "': the cut is lost: " + why);
}

}  // namespace elastic_training
