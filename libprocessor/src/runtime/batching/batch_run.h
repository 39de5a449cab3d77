// SPDX-License-Identifier: Apache-2.0
// Runs several decoded requests in one run of the graph: concatenates their inputs by rows, and splits the outputs
// again.
//
// This presumes that the first dimension of all inputs and outputs counts rows, and that a row's outputs do not depend
// on other rows: output_rows.h says whether that is known, has to be tried, or is to be checked. No request is affected
// by another's failure: if a run fails, each request is repeated alone.
#ifndef PROCESSOR_RUNTIME_BATCHING_BATCH_RUN_H_
#define PROCESSOR_RUNTIME_BATCHING_BATCH_RUN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "src/codec/codec.h"
#include "src/runtime/rows/output_rows.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// Returns the rows of a request: the first dimension of all its inputs. 0 if they differ, if an input has no dimension
/// or the signature fixes it, or if an input is of a dtype that cannot be copied.
int64_t RowsOf(const DecodedRequest& request);

/// Whether two requests may be in one batch: they have the same signature and outputs, and equal dimensions except for
/// the first.
bool SameKind(const DecodedRequest& a, const DecodedRequest& b);

/// Returns a hash that is equal for requests of the same kind, and almost always different for others.
uint64_t KindOf(const DecodedRequest& request);

/// One request of a run.
struct JointRequest {
  const DecodedRequest* request = nullptr;
  int64_t rows = 0;
  std::vector<tensorflow::Tensor> outputs;
  absl::Status status;
};

using RunRequest = std::function<absl::Status(const DecodedRequest&, std::vector<tensorflow::Tensor>*)>;

/// How requests were run.
struct JointOutcome {
  bool together = false;  // the requests ran as one batch, whose outputs they have
  bool repeated = false;  // they ran one by one, because the batch had failed or its outputs were wrong
};

/// Runs requests of one kind, and sets outputs and status of each. `run`: runs one decoded request.
JointOutcome RunTogether(const RunRequest& run, OutputRows* known, std::vector<JointRequest>* requests) noexcept;

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_BATCHING_BATCH_RUN_H_
