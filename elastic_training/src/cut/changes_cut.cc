// SPDX-License-Identifier: Apache-2.0
#include "src/cut/changes_cut.h"

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace elastic_training {
namespace {

// Size of the blocks of kept rows [bytes], so that no writer copies much to make one larger.
constexpr size_t kBlockBytes = 128 << 10;

}  // namespace

ChangesCut::ChangesCut(ElasticTable* table, ChangesMemory* memory)
    : TableReader(table, kPublisherConsumer, table->layout().dim), memory_(memory) {
  const std::lock_guard<std::mutex> lock(table_->tombstones_mutex_);
  const ElasticTable::Tombstones& tombstones = table_->tombstones_[kPublisherConsumer];
  if (!tombstones.active && !tombstones.lost) {
    throw std::invalid_argument("table '" + table_->config().name + "': not followed, expected a publisher that does");
  }
}

void ChangesCut::Begin() {
  begun_ = true;
  NoteBegin();
  {
    const std::lock_guard<std::mutex> lock(table_->tombstones_mutex_);
    ElasticTable::Tombstones& tombstones = table_->tombstones_[kPublisherConsumer];
    lost_ = tombstones.lost;
    evicted_ = std::move(tombstones);
    tombstones = ElasticTable::Tombstones();
    tombstones.active = !lost_;
  }
  RowStore& store = table_->store_;
  mark_ = store.changed_mark;
  store.changed_mark = store.pending_mark();
  store.changes_keeper = this;
}

void ChangesCut::Keep(Segment* segment, uint32_t row) {
  if (memory_->kept.load(std::memory_order_relaxed) >= memory_->limit) {
    segment->MarkChanged(row);
    left_some_.store(true, std::memory_order_relaxed);
    return;
  }
  try {
    const std::lock_guard<std::mutex> lock(kept_mutex_);
    if (kept_.empty() || kept_.back().bytes() >= kBlockBytes) kept_.emplace_back();
    RowBlock& block = kept_.back();
    const size_t before = block.bytes();
    Append(*segment, row, &block);
    memory_->kept.fetch_add(block.bytes() - before, std::memory_order_relaxed);
  } catch (const std::bad_alloc&) {
    out_of_memory_ = true;
  } catch (const SsdError&) {
    unreadable_ = true;
  }
}

RowBlock ChangesCut::TakeKept() {
  const std::lock_guard<std::mutex> lock(kept_mutex_);
  if (kept_.empty()) return RowBlock();
  RowBlock block = std::move(kept_.front());
  kept_.pop_front();
  memory_->kept.fetch_sub(block.bytes(), std::memory_order_relaxed);
  return block;
}

RowBlock ChangesCut::Read(size_t bytes) {
  const std::lock_guard<std::mutex> lock(read_mutex_);
  RowStore& store = table_->store_;
  if (!has_chunks_) {
    // No row gets this mark until the next cut.
    full_ = store.full.TakeMarks(static_cast<uint8_t>(mark_));
    records_ = store.records.TakeMarks(static_cast<uint8_t>(mark_));
    has_chunks_ = true;
  }
  const auto may_have_changed = [&](const Segment& segment, uint32_t row) {
    if (IsOnSsd(row)) return (segment.flags(row) & mark_) != 0;
    const std::vector<bool>& chunks = IsRecord(row) ? records_ : full_;
    const size_t chunk = (row & ~kRecordBit) / RowSlabs::kChunkRows;
    return chunk < chunks.size() && chunks[chunk];
  };
  RowBlock out;
  while (out.bytes() < bytes) {
    RowBlock kept = TakeKept();
    if (!kept.empty()) {
      out.Append(std::move(kept));
    } else if (!walked_) {
      Walk(may_have_changed, [&](Segment* segment, const std::vector<uint32_t>& rows) {
        FetchFromSsd(*segment, rows, [&](uint32_t flags) { return (flags & mark_) != 0; });
        for (const uint32_t row : rows) {
          if ((segment->flags(row) & mark_) == 0) continue;
          Append(*segment, row, &out);
          segment->ClearFlags(row, mark_);
        }
      });
      Rest();
    } else {
      whole_ = true;
      break;
    }
  }
  if (lost_) throw Lost("the changes since the one before are not known, expected that the table is followed anew");
  if (out_of_memory_) throw Lost("no memory for rows that training changed");
  if (unreadable_) throw Lost("a row on SSD that training changed could not be read");
  return out;
}

bool ChangesCut::End() {
  const std::lock_guard<std::mutex> lock(read_mutex_);
  if (ended_) return whole_ && !left_some_;
  ended_ = true;
  if (begun_) {
    // No row may have the mark when the next cut begins, and then nobody calls Keep any more.
    while (!walked_) {
      Walk([](const Segment&, uint32_t) { return true; },
           [&](Segment* segment, const std::vector<uint32_t>& rows) {
             for (const uint32_t row : rows) segment->ClearFlags(row, mark_);
           });
    }
    whole_ = whole_ && !lost_ && !out_of_memory_ && !unreadable_;
    if (!whole_) {
      const std::lock_guard<std::mutex> tombstones_lock(table_->tombstones_mutex_);
      ElasticTable::Tombstones& tombstones = table_->tombstones_[kPublisherConsumer];
      tombstones = ElasticTable::Tombstones();
      tombstones.lost = true;
    }
  }
  LetOthersBegin();
  return whole_ && !left_some_;
}

}  // namespace elastic_training
