// SPDX-License-Identifier: Apache-2.0
// Copies of the segments that a process has applied, so that it comes back to its epoch without the timeline.
//
// A store is a folder in the form of a timeline: a hard link to each segment, or a copy on another file system. The
// followers of one timeline and lineage share it. A segment is kept until a compacted one has its epochs.
#ifndef PROCESSOR_RUNTIME_FOLLOW_SEGMENT_STORE_H_
#define PROCESSOR_RUNTIME_FOLLOW_SEGMENT_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/tables/delta_timeline.h"

namespace processor {

/// Any thread may call every function. All messages name the file.
class SegmentStore {
 public:
  /// Returns the store of a timeline below a folder, which need not exist yet.
  static std::shared_ptr<SegmentStore> Of(const std::string& parent, const std::string& timeline,
                                          const DeltaLineage& lineage);
  /// Returns how the names of the folders of a timeline begin; the lineage follows.
  static std::string NamePrefix(const std::string& timeline);

  const std::string& folder() const { return copies_.folder(); }

  /// Keeps a segment. A loss of power may damage it until Flush(); another end of the process does not.
  /// `added`: whether it was not there before.
  absl::Status Keep(const DeltaSegment& segment, bool* added);
  /// Writes what was kept to the disk.
  absl::Status Flush();
  /// Removes a segment that was kept.
  void Drop(const DeltaSegment& segment) noexcept;

  /// Opens the segment that follows a position, as DeltaTimeline::Next().
  absl::Status Next(const TimelinePosition& position, uint64_t most,
                    std::unique_ptr<const DeltaSegment>* segment) const;

  /// Keeps the compacted segments of the timeline that have epochs of several segments of the store, and removes these.
  absl::Status ReplaceByCompacted(const DeltaTimeline& timeline);
  /// Sets the epoch to which a follower has to come back; compacted segments do not replace it. None: the newest. Does not
  /// wait for the disk.
  void SetHeld(const void* follower, std::optional<int64_t> epoch);

 private:
  SegmentStore(std::string folder, DeltaLineage lineage) : copies_(std::move(folder)), lineage_(lineage) {}

  absl::Status KeepLocked(const DeltaSegment& segment, bool* added);
  absl::Status FlushLocked();
  absl::Status Replace(const DeltaSegment& segment, const std::string& path);
  absl::Status Copy(const DeltaSegment& segment, const std::string& path);
  bool IsHeldInside(const NamedEpochs& epochs) const;
  absl::Status RemoveCovered();
  std::string PathOf(const DeltaSegment& segment) const;

  const DeltaTimeline copies_;
  const DeltaLineage lineage_;
  std::mutex mutex_;                    // of those that change the folder, and of the next two
  std::vector<std::string> unflushed_;  // copies
  bool folder_changed_ = false;         // since it was written to the disk
  mutable std::mutex held_mutex_;       // held briefly, unlike the other
  std::map<const void*, uint64_t> held_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_FOLLOW_SEGMENT_STORE_H_
