// SPDX-License-Identifier: Apache-2.0
// A table at one epoch of its overlay.
#ifndef PROCESSOR_LIVE_TABLE_VIEW_H_
#define PROCESSOR_LIVE_TABLE_VIEW_H_

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "src/live/overlay_table.h"

namespace processor {

/// Immutable; any thread may search. Its owner must keep the writer from giving back what the epoch reads.
class TableView {
 public:
  /// `epoch`: the newest one of the overlay.
  TableView(std::shared_ptr<const OverlayTable> overlay, uint32_t epoch)
      : overlay_(std::move(overlay)), epoch_(epoch) {}

  const OverlayTable& overlay() const { return *overlay_; }
  const EmbeddingTable& base() const { return overlay_->base(); }

  /// Finds rows as EmbeddingTable::FindRows() does, at this epoch. Numbers refer to overlay().rows().
  void FindRows(absl::Span<const int64_t> keys, uint32_t* rows) const;
  void FindRows(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const;

  /// Prefetches what FindRows() will read first, as EmbeddingTable::FetchIndex() does.
  void FetchIndex(absl::Span<const int64_t> keys) const;
  void FetchIndex(absl::Span<const tensorflow::tstring> keys) const;

 private:
  template <typename Key>
  void Find(absl::Span<const Key> keys, uint32_t* rows) const;
  template <typename Key>
  void LayOver(const Key* keys, size_t n, bool any_absent, uint32_t* rows) const;
  template <typename Key>
  void FindAbsent(const Key* keys, size_t n, uint32_t* rows) const;
  template <typename Key>
  VersionRef VersionOfKey(const OverlayIndex* index, const Key& key) const;
  template <typename Key>
  uint32_t AbsentRow(const Key& key) const;

  std::shared_ptr<const OverlayTable> overlay_;
  uint32_t epoch_;
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_TABLE_VIEW_H_
