// SPDX-License-Identifier: Apache-2.0
#include "src/cut/table_cut.h"

#include <new>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace elastic_training {
namespace {

// Kept rows that a segment hands over at once [bytes].
constexpr size_t kKeptBytes = 128 << 10;

}  // namespace

TableCut::TableCut(ElasticTable* table, CutMemory* memory)
    : TableReader(table, kCheckpointConsumer, table->layout().dim + table->layout().slots), memory_(memory) {}

void TableCut::BeginFilter(uint64_t pin) {
  if (pin != 0 && table_->log() != nullptr) {
    table_->log()->Pin(pin);
    pin_ = pin;
    leaves_ssd_ = true;
  }
  table_->admission().BeginCut();
}

std::string TableCut::Promise() {
  if (pin_ == 0) return "";
  table_->log()->Promise(pin_);
  return table_->log()->run();
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
  // Changes are few, so they are read where the index finds them.
  scanned_ = table_->log() == nullptr || leaves_ssd_ || changes_only_;
  NoteBegin();
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

bool TableCut::Wanted(Segment* segment, uint32_t row) const {
  if (changes_only_ && (segment->flags(row) & kCheckpointDirty) == 0) return false;
  if (takes_marks_) segment->ClearFlags(row, kCheckpointDirty);
  return true;
}

void TableCut::Keep(Segment* segment, uint32_t row) {
  if (!Wanted(segment, row) || memory_->gave_up()) return;
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
  } catch (const SsdError&) {
    unreadable_ = true;
  }
}

void TableCut::WalkInto(RowBlock* out) {
  const uint32_t phase = table_->store_.cut_phase;
  Walk([](const Segment&, uint32_t) { return true; },
       [&](Segment* segment, const std::vector<uint32_t>& rows) {
         if (out != nullptr && !leaves_ssd_) {
           FetchFromSsd(*segment, rows, [&](uint32_t flags) {
             return (flags & kCutFlag) != phase && (!changes_only_ || (flags & kCheckpointDirty) != 0);
           });
         }
         for (const uint32_t row : rows) {
           if ((segment->flags(row) & kCutFlag) == phase) continue;
           if (Wanted(segment, row) && out != nullptr) Append(*segment, row, out);
           SetRead(segment, row);
         }
         if (out != nullptr) out->Append(std::move(segment->kept()));
         segment->kept() = RowBlock();
       });
}

void TableCut::ScanInto(RowBlock* out) {
  if (!table_->log()->ReadNext(&scan_)) {
    scan_ = LogScan();
    scanned_ = true;
    return;
  }
  const RowStore& store = table_->store_;
  std::vector<float> values(columns());
  KeyScratch& scratch = KeyScratch::OfThread();
  scratch.hashes.clear();
  for (const RecordHeader& header : scan_.headers) scratch.hashes.push_back(HashKey(header.key()));
  scratch.pending.resize(scan_.places.size());
  std::iota(scratch.pending.begin(), scratch.pending.end(), 0u);
  table_->ForEachGroup<false>(&scratch,
                              [&](Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>*) {
                                for (size_t p = 0; p < count; ++p)
                                  segment->ssd().Prefetch(scratch.hashes[positions[p]]);
                                for (size_t p = 0; p < count; ++p) {
                                  const uint32_t i = positions[p];
                                  const uint32_t row = segment->FindPlace(scratch.hashes[i], scan_.places[i]);
                                  if (row == kNoRow || (segment->flags(row) & kCutFlag) == store.cut_phase) continue;
                                  // The row may be in a new file of the same number; the walk over the index takes it then.
                                  if (!table_->log()->IsCurrent(scan_)) continue;
                                  const RecordHeader& header = scan_.headers[i];
                                  if (Wanted(segment, row)) {
                                    AppendView({header.key(), segment->text(row), RowKind::kFull, header.touch,
                                                header.count(), scan_.values(i, &values), nullptr},
                                               static_cast<uint32_t>(RowKind::kFull), out);
                                  }
                                  SetRead(segment, row);
                                }
                              });
}

void TableCut::SetRead(Segment* segment, uint32_t row) const {
  if (table_->store_.cut_phase != 0) {
    segment->SetFlags(row, kCutFlag);
  } else {
    segment->ClearFlags(row, kCutFlag);
  }
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
    } else if (!scanned_) {
      ScanInto(&out);
      Rest();
    } else if (!walked_) {
      WalkInto(&out);
      Rest();
    } else {
      break;
    }
  }
  memory_->Read();
  if (memory_->gave_up()) {
    throw Lost("training had changed more than " + std::to_string(memory_->limit()) +
               " bytes of rows, and nobody read for too long");
  }
  if (out_of_memory_) throw Lost("no memory for rows that training changed");
  if (unreadable_) throw Lost("a row on SSD that training changed could not be read");
  return out;
}

std::string TableCut::TakeFilter() {
  const std::lock_guard<std::mutex> lock(read_mutex_);
  if (filter_taken_ || ended_) throw Lost("the state of its filter was taken before, or it has ended");
  filter_taken_ = true;
  return table_->admission().Save();
}

bool TableCut::End(uint64_t token) {
  const std::lock_guard<std::mutex> lock(read_mutex_);
  if (ended_) return whole_;
  ended_ = true;
  if (pin_ != 0 && token == 0) table_->log()->Forget(pin_);
  if (begun_) {
    whole_ = walked_;
    // All rows must have the bit of this phase before the next cut.
    while (!walked_) WalkInto(nullptr);
    if (!filter_taken_) EndFilter();
    table_->store_.keeper = nullptr;
    whole_ = whole_ && !out_of_memory_ && !unreadable_ && !memory_->gave_up();
    if (takes_marks_ && whole_) table_->last_cut_.store(token);
  }
  {
    const std::lock_guard<std::mutex> queue_lock(queue_mutex_);
    for (const RowBlock& block : queue_) memory_->Remove(block.bytes());
    queue_.clear();
  }
  memory_->Read();
  LetOthersBegin();
  return whole_;
}

}  // namespace elastic_training
