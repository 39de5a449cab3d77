// SPDX-License-Identifier: Apache-2.0
// A timeline (docs/delta_format.md): the folder with the segments of one lineage, from which a model is kept up to date.
#ifndef PROCESSOR_TABLES_DELTA_TIMELINE_H_
#define PROCESSOR_TABLES_DELTA_TIMELINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/tables/delta_header.h"
#include "src/tables/delta_segment.h"

namespace processor {

/// The state of a model in a timeline: all that the next segment must continue.
struct TimelinePosition {
  DeltaLineage lineage{};
  uint64_t epoch = 0;
  ChainHash chain{};  // of the epoch
  uint64_t term = 0;  // of the segment that led to the epoch; 0 for an export
};

/// Returns the position of an export.
TimelinePosition PositionOfExport(const DeltaLineage& lineage);
/// Returns the position that a segment leads to.
TimelinePosition PositionAfter(const DeltaHeader& header);

/// Returns the name of a segment's file.
std::string DeltaFileName(uint64_t first_epoch, uint64_t last_epoch);

/// The epochs of a segment, as the name of its file says.
struct NamedEpochs {
  uint64_t first = 0;
  uint64_t last = 0;

  std::string FileName() const { return DeltaFileName(first, last); }
  bool compacted() const { return first != last; }
  /// Whether it has all epochs of another one.
  bool Covers(const NamedEpochs& other) const { return first <= other.first && other.last <= last; }
  bool operator==(const NamedEpochs& other) const { return first == other.first && last == other.last; }
  bool operator<(const NamedEpochs& other) const {
    return first != other.first ? first < other.first : last < other.last;
  }
};

/// Lists the segments of a folder, in no order.
/// \return NOT_FOUND without a folder, PERMISSION_DENIED or UNAVAILABLE if it cannot be listed; all name the folder.
absl::Status ListSegments(const std::string& folder, std::vector<NamedEpochs>* found);

/// Checks that a segment continues a position: it begins with the next epoch, or has that one and lists, in `chains`, the
/// chain hashes of its epochs.
/// \return FAILED_PRECONDITION for another lineage, other epochs, another history or a second writer; the message does not
/// name the file.
absl::Status CheckContinues(const DeltaHeader& header, absl::Span<const ChainHash> chains,
                            const TimelinePosition& position);

/// Finds segments in a folder. It keeps no state between calls; any thread may call it.
class DeltaTimeline {
 public:
  explicit DeltaTimeline(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

  /// Lists the folder, and opens and checks the segment that follows a position; of several, that with the greatest last
  /// epoch up to `most`. If none begins with the next epoch, one that has it among others may continue as well. `segment` is
  /// null if none has been published yet. Lists again if a file has disappeared.
  /// \return as DeltaSegment::Open() and ListSegments(); FAILED_PRECONDITION for a gap, if all segments with the next
  /// epoch end after `most`, and as CheckContinues(). All name the file or the folder.
  absl::Status Next(const TimelinePosition& position, uint64_t most,
                    std::unique_ptr<const DeltaSegment>* segment) const;
  absl::Status Next(const TimelinePosition& position, std::unique_ptr<const DeltaSegment>* segment) const {
    return Next(position, kGreatestEpoch, segment);
  }

 private:
  std::string folder_;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_DELTA_TIMELINE_H_
