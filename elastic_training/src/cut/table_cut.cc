// SPDX-License-Identifier: Apache-2.0
#include "src/cut/table_cut.h"

#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

namespace elastic_training {
namespace {

// Rows whose copying a writer may have to wait for.
constexpr size_t kWalkRows = 512;
// Kept rows that a segment hands over at once [bytes].
constexpr size_t kKeptBytes = 128 << 10;
constexpr std::chrono::microseconds kRest(20);

}  // namespace

TableCut::TableCut(ElasticTable* table, CutMemory* memory) : table_(table), memory_(memory) {
  // Walk adds no more than this, so it needs no memory.
  rows_.reserve(2 * kWalkRows);
  if (table_->has_cut_.exchange(true)) {
    ended_ = true;
    throw std::invalid_argument("table '" + table_->config().name +
                                "': a cut is being read, expected its end before the next one");
  }
}

bool TableCut::HasChangesSince(uint64_t base) const {
  const std::lock_guard<std::mutex> lock(table_->tombstones_mutex_);
  return base != 0 && table_->last_cut_.load() == base && !table_->tombstones_[kCheckpointConsumer].lost;
}

void TableCut::Begin(bool changes_only, bool tracks) {
  changes_only_ = changes_only;
  takes_marks_ = changes_only || tracks;
  begun_ = true;
  step_ = table_->step();
  occurrences_ = table_->occurrences();
  if (takes_marks_) {
    const std::lock_guard<std::mutex> lock(table_->tombstones_mutex_);
    ElasticTable::Tombstones& tombstones = table_->tombstones_[kCheckpointConsumer];
    if (changes_only) evicted_ = std::move(tombstones);
    tombstones = ElasticTable::Tombstones();
    tombstones.active = tracks;
    if (tracks) table_->records_tombstones_.store(true, std::memory_order_relaxed);
    table_->last_cut_.store(0);
  }
  table_->store_.keeper = this;
  table_->store_.cut_phase ^= kCutFlag;
}

bool TableCut::Wanted(RowHeader* header) const {
  if (changes_only_ && !header->Has(kCheckpointDirty)) return false;
  if (takes_marks_) header->Clear(kCheckpointDirty);
  return true;
}

void TableCut::Append(const Segment& segment, uint32_t row, RowBlock* block) const {
  const RowView view = table_->ViewOf(segment, row);
  block->keys.push_back(view.key);
  for (const uint32_t value : {view.touch, view.count, static_cast<uint32_t>(view.kind)}) block->meta.push_back(value);
  if (table_->config().string_keys) {
    block->lengths.push_back(static_cast<uint32_t>(view.text.size()));
    block->texts.append(view.text);
  }
  if (view.weights == nullptr) return;
  const size_t values = table_->layout().dim + table_->layout().slots;
  block->values.insert(block->values.end(), view.weights, view.weights + values);
}

void TableCut::Keep(Segment* segment, uint32_t row) {
  if (!Wanted(&table_->store_.header(row)) || memory_->gave_up()) return;
  try {
    RowBlock& kept = segment->kept();
    Append(*segment, row, &kept);
    const size_t bytes = kept.bytes();
    if (bytes < kKeptBytes) return;
    const std::lock_guard<std::mutex> lock(queue_mutex_);
    queue_.push_back(std::move(kept));
    kept = RowBlock();
    memory_->Add(bytes);
  } catch (const std::bad_alloc&) {
    out_of_memory_ = true;
  }
}

void TableCut::Walk(RowBlock* out) {
  bool more = true;
  const uint64_t end = table_->WithSegment<false>(cursor_, [&](Segment* segment) {
    if (segment != at_ || segment->index_version() != index_version_) {
      // Rows that were taken before the index changed are passed again.
      at_ = segment;
      index_version_ = segment->index_version();
      bucket_ = 0;
    }
    rows_.clear();
    while (more && rows_.size() < kWalkRows) {
      more = segment->ForEachFrom(&bucket_, [&](uint32_t row) {
        __builtin_prefetch(table_->store_.address(row), /*rw=*/1);
        rows_.push_back(row);
      });
    }
    for (const uint32_t row : rows_) {
      RowHeader& header = table_->store_.header(row);
      if ((header.count_flags & kCutFlag) == table_->store_.cut_phase) continue;
      if (Wanted(&header) && out != nullptr) Append(*segment, row, out);
      header.count_flags ^= kCutFlag;
    }
    if (out != nullptr) out->Append(std::move(segment->kept()));
    segment->kept() = RowBlock();
  });
  if (more) return;
  cursor_ = end;
  at_ = nullptr;
  walked_ = end == 0;
}

RowBlock TableCut::Read(size_t bytes) {
  const std::lock_guard<std::mutex> lock(read_mutex_);
  RowBlock out;
  while (out.bytes() < bytes) {
    RowBlock kept;
    {
      const std::lock_guard<std::mutex> queue_lock(queue_mutex_);
      if (!queue_.empty()) {
        kept = std::move(queue_.front());
        queue_.pop_front();
      }
    }
    if (!kept.empty()) {
      memory_->Remove(kept.bytes());
      out.Append(std::move(kept));
    } else if (!walked_) {
      Walk(&out);
      // A writer that waits for this segment needs longer to wake than the next walk to lock it again. Where nobody has
      // trained since the cut began, nobody waits.
      if (table_->occurrences() != occurrences_) std::this_thread::sleep_for(kRest);
    } else {
      break;
    }
  }
  memory_->Read();
  const std::string what = "table '" + table_->config().name + "': the cut is lost: ";
  if (memory_->gave_up()) {
    throw std::runtime_error(what + "training had changed more than " + std::to_string(memory_->limit()) +
                             " bytes of rows, and nobody read for too long");
  }
  if (out_of_memory_) throw std::runtime_error(what + "no memory for rows that training changed");
  return out;
}

std::string TableCut::TakeFilter() {
  filter_taken_ = true;
  return table_->admission().Save();
}

RowBlock TableCut::TakeEvicted() {
  RowBlock block;
  block.keys = std::move(evicted_.keys);
  for (const std::string& text : evicted_.texts) {
    block.lengths.push_back(static_cast<uint32_t>(text.size()));
    block.texts += text;
  }
  evicted_ = ElasticTable::Tombstones();
  return block;
}

void TableCut::End(uint64_t token) {
  const std::lock_guard<std::mutex> lock(read_mutex_);
  if (ended_) return;
  ended_ = true;
  if (begun_) {
    const bool complete = walked_;
    // All rows must have the bit of this phase before the next cut.
    while (!walked_) Walk(nullptr);
    if (!filter_taken_) TakeFilter();
    table_->store_.keeper = nullptr;
    if (takes_marks_ && complete && !out_of_memory_ && !memory_->gave_up()) table_->last_cut_.store(token);
  }
  {
    const std::lock_guard<std::mutex> queue_lock(queue_mutex_);
    for (const RowBlock& block : queue_) memory_->Remove(block.bytes());
    queue_.clear();
  }
  memory_->Read();
  table_->has_cut_.store(false);
}

}  // namespace elastic_training
