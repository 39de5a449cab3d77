// SPDX-License-Identifier: Apache-2.0
// Finds the checkpoint that a model should serve, in a folder that a trainer writes to.
#ifndef PROCESSOR_RUNTIME_VERSION_CHECKPOINT_H_
#define PROCESSOR_RUNTIME_VERSION_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace processor {

/// The checkpoint to serve, and later ones that cannot be served.
struct Checkpoint {
  std::string prefix;             // ".../model.ckpt-1200", without ".index"
  int64_t step = -1;              // 1200
  int64_t incomplete_step = -1;   // the newest one later than these that lacks data files; -1: none
  std::string increment;          // of the newest complete incremental checkpoint later than `step`, likewise; or empty
  int64_t incremental_step = -1;  // its step; -1: none
};

/// Finds the full checkpoint with the largest step in the newest sub-folder of `dir` that holds a file named
/// "checkpoint", or in `dir` itself if it holds one and no sub-folder does; and the newest incremental checkpoint after it.
/// A checkpoint that lacks data files is skipped.
/// \return NOT_FOUND if there is none.
absl::Status FindCheckpoint(const std::string& dir, Checkpoint* checkpoint);

/// Returns the step in a prefix; -1 if it has none.
int64_t StepOfCheckpoint(const std::string& prefix);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_CHECKPOINT_H_
