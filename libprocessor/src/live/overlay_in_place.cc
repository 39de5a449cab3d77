// SPDX-License-Identifier: Apache-2.0
// Writes the newest versions of an overlay into the rows of the file.
//
// An epoch comes as versions beside the file, so that it can be served at once. In idle time, the order is turned: the
// row of the file becomes the newest version, and what it was before becomes a version that earlier epochs read. Requests
// of the newest epoch then read the rows of the file without a look at versions.
//
// A chain of versions that ends at the row of the file says "from epoch e on, row x". One that was turned says "before
// epoch e, row x". First all rows of an epoch are turned in memory that nobody reads yet: the row of the file is copied,
// and each version leads to "before" the one above it. When all requests have begun after that, nobody reads the row of
// the file any more, and the version is written there.
#include <algorithm>
#include <cstring>
#include <new>

#include "src/live/overlay_table.h"

namespace processor {
namespace {

// Rows that are written between two looks at the clock.
constexpr size_t kWrittenAtOnce = 256;

}  // namespace

// What epoch `epoch` reads of a row whose version is of a later epoch, and in place.
VersionRef OverlayTable::Before(VersionRef in_place, uint32_t epoch) const {
  for (;;) {
    const uint32_t row = RowOf(in_place);
    const VersionRef earlier = memory_->replaced(row).load(std::memory_order_acquire);
    if (EpochOf(earlier) <= epoch) return MakeVersion(1, false, row);
    in_place = earlier;
  }
}

bool OverlayTable::WriteInPlace(std::chrono::steady_clock::time_point until) noexcept {
  try {
    for (;;) {
      const auto epoch =
          std::find_if(log_.begin(), log_.end(), [this](const ChangedAt& at) { return at.epoch > written_; });
      if (epoch == log_.end()) break;
      if (epoch->epoch != writing_.epoch) {
        writing_ = Writing{epoch->epoch};
      }
      if (awaited() != 0) return false;
      const std::vector<uint32_t>& rows = epoch->rows;
      while (writing_.done < rows.size()) {
        const size_t count = std::min(kWrittenAtOnce, rows.size() - writing_.done);
        (writing_.is_kept ? Write(rows.data() + writing_.done, count) : Keep(rows.data() + writing_.done, count));
        writing_.done += count;
        if (std::chrono::steady_clock::now() >= until) return true;
      }
      if (writing_.is_kept || rows.empty()) {
        written_ = epoch->epoch;
        writing_ = {};
      } else {
        writing_ = Writing{epoch->epoch, 0, true, readers_.generation};
      }
    }
    if (rows_in_place_ == changed_->size()) in_file_from_.store(newest_, std::memory_order_release);
  } catch (const std::bad_alloc&) {
    // Another time. What is done is complete.
  }
  return false;
}

// Turns the versions of rows whose blocks can be written, so that earlier epochs do not read the rows of the file.
void OverlayTable::Keep(const uint32_t* rows, size_t count) {
  for (size_t i = 0; i < count; ++i) changed_->FetchRun(rows[i]);
  for (size_t i = 0; i < count; ++i) changed_->FetchNewest(rows[i]);
  size_t rejected = SIZE_MAX;
  for (size_t i = 0; i < count; ++i) {
    const size_t block = memory_->BlockOf(rows[i]);
    if (block == rejected) continue;
    if (!memory_->IsCopied(block)) {
      const auto [first, end] = memory_->RowsOf(block);
      if (!IsWorthIt(first, end) || !memory_->Copy(block)) {
        rejected = block;
        continue;
      }
    }
    if (IsWritable(rows[i]) && !KeepRow(rows[i])) throw std::bad_alloc();
  }
}

// Returns false if there is no memory.
bool OverlayTable::KeepRow(uint32_t row) {
  const std::atomic<VersionRef>* const newest = changed_->Newest(row);
  if (newest == nullptr) return true;
  std::vector<VersionRef> chain;  // from the newest one on, without the last
  VersionRef version = newest->load(std::memory_order_relaxed);
  for (; EpochOf(version) != 0 && !IsInPlace(version); version = memory_->replaced(RowOf(version))) {
    if (IsDeleted(version) || !memory_->IsOverlayRow(RowOf(version))) return true;
    chain.push_back(version);
  }
  if (chain.empty() || (version != 0 && !IsInPlace(version))) return true;
  if (!IsInPlace(version) || EpochOf(version) != EpochOf(chain.back())) {
    if (!memory_->Reserve(1).ok()) return false;
    const uint32_t before = memory_->Take();
    std::memcpy(memory_->row(before), memory_->row(row), RowBytes(base_->row_type(), base_->dim()));
    memory_->SetReplaced(before, version);
    memory_->SetReplaced(RowOf(chain.back()), MakeInPlace(EpochOf(chain.back()), before));
  }
  for (size_t i = chain.size() - 1; i-- > 0;) {
    memory_->SetReplaced(RowOf(chain[i]), MakeInPlace(EpochOf(chain[i]), RowOf(chain[i + 1])));
  }
  return true;
}

// Writes the uppermost turned versions of rows into those of the file.
void OverlayTable::Write(const uint32_t* rows, size_t count) {
  for (size_t i = 0; i < count; ++i) changed_->FetchRun(rows[i]);
  for (size_t i = 0; i < count; ++i) changed_->FetchNewest(rows[i]);
  retired_rows_.Reserve(count);
  const size_t bytes = RowBytes(base_->row_type(), base_->dim());
  for (size_t i = 0; i < count; ++i) {
    std::atomic<VersionRef>* leads_to = changed_->Newest(rows[i]);
    if (leads_to == nullptr || !IsWritable(rows[i])) continue;
    bool is_newest = true;
    for (;;) {
      const VersionRef version = leads_to->load(std::memory_order_relaxed);
      if (EpochOf(version) == 0 || IsInPlace(version) || IsDeleted(version)) break;
      if (!memory_->IsOverlayRow(RowOf(version))) break;
      const VersionRef turned = memory_->replaced(RowOf(version)).load(std::memory_order_relaxed);
      if (IsInPlace(turned) && EpochOf(turned) == EpochOf(version)) {
        std::memcpy(memory_->row(rows[i]), memory_->row(RowOf(version)), bytes);
        leads_to->store(turned, std::memory_order_release);
        retired_rows_.Add(readers_.generation, RowOf(version));
        rows_in_place_ += is_newest;
        break;
      }
      leads_to = &memory_->replaced(RowOf(version));
      is_newest = false;
    }
  }
}

}  // namespace processor
