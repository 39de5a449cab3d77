// SPDX-License-Identifier: Apache-2.0
// A timeline (docs/delta_format.md): the folder with the segments of one lineage, from which a model is kept up to date.
#ifndef PROCESSOR_TABLES_DELTA_TIMELINE_H_
#define PROCESSOR_TABLES_DELTA_TIMELINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
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

/// Checks that a segment with that header continues a position.
/// \return FAILED_PRECONDITION for another lineage, other epochs, another history or a second writer; the message does not
/// name the file.
absl::Status CheckContinues(const DeltaHeader& header, const TimelinePosition& position);

/// Finds segments in a folder. It keeps no state between calls; any thread may call it.
class DeltaTimeline {
 public:
  explicit DeltaTimeline(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

  /// Lists the folder, and opens and checks the segment that follows a position; of several, that with the greatest last
  /// epoch. `segment` is null if none has been published yet. Lists again if a file has disappeared.
  /// \return as DeltaSegment::Open(); FAILED_PRECONDITION for a gap and as CheckContinues(); NOT_FOUND without a folder,
  /// PERMISSION_DENIED or UNAVAILABLE if it cannot be listed. All name the file or the folder.
  absl::Status Next(const TimelinePosition& position, std::unique_ptr<const DeltaSegment>* segment) const;

 private:
  std::string folder_;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_DELTA_TIMELINE_H_
