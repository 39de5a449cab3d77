// SPDX-License-Identifier: Apache-2.0
// One version of a model, ready to run: it owns sessions over shared variables and tables.
//
// Every version has a base device, and thus a ResourceMgr, of its own: two versions with equal variable names never
// meet. A version is immutable once loaded. The model's versions and the requests that run on it share it.
#ifndef PROCESSOR_RUNTIME_VERSION_MODEL_VERSION_H_
#define PROCESSOR_RUNTIME_VERSION_MODEL_VERSION_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/base/signature.h"
#include "src/codec/codec.h"
#include "src/live/live_model.h"
#include "src/runtime/config/model_config.h"
#include "src/runtime/requests/cancellation.h"
#include "src/runtime/rows/output_rows.h"
#include "src/runtime/session/session.h"
#include "src/runtime/session/session_slots.h"
#include "src/runtime/version/artifact.h"
#include "src/runtime/version/early_lookups.h"
#include "src/runtime/version/output_subsets.h"
#include "src/runtime/version/pinned_epoch.h"
#include "src/runtime/version/table_tiers.h"

namespace processor {

/// Returns why a load was canceled, or OK. To be called between the steps of a load, because the model may be freed
/// meanwhile.
absl::Status CheckWanted(const Cancellation& cancellation);

/// Where a version comes from.
struct VersionSource {
  std::string saved_model_dir;
  std::string checkpoint_prefix;  // empty: the variables of the SavedModel
  std::string increment;          // the prefix of an incremental checkpoint after that one; empty: none
  std::optional<int64_t> number;  // what clients see as the model's version
};

class Timeline;

/// Any number of threads may run requests at once.
class ModelVersion {
 public:
  /// Reads a model, restores its variables, and makes the sessions of all slots and their callables. The caller warms
  /// it up. `background`: restore with the threads that the configuration sets aside for updates. `cancellation`: as
  /// CheckWanted().
  static absl::Status Load(const ModelConfig& config, const VersionSource& source, const SessionSlots& slots,
                           bool background, const Cancellation& cancellation, std::shared_ptr<ModelVersion>* version);
  ~ModelVersion();

  /// Runs a decoded request on a session. `epoch`: of Pin(). `outputs` [request.fetches.size(), then those of
  /// request.next], in that order. `timeline`: decides whether the request is traced; may be null.
  absl::Status Run(int session, const DecodedRequest& request, const PinnedEpoch& epoch,
                   std::vector<tensorflow::Tensor>* outputs, Timeline* timeline = nullptr);

  /// Returns the epoch that serves now.
  PinnedEpoch Pin() const;

  /// Returns the rows of tiered tables that should be read before a request runs; null if there are none. Throws
  /// std::bad_alloc.
  std::shared_ptr<EarlyRows> RowsToRead(const DecodedRequest& request) const;
  /// Whether there can be such rows.
  bool reads_early() const { return early_ != nullptr; }

  /// Sets the budget that pays for the memory of runs from now on.
  void Claim(ScratchUse use);

  const SignatureSet& signatures() const { return signatures_; }
  /// The live model of the graph; null if it has none.
  LiveModel* live() const { return live_.get(); }
  /// The state of its tiered tables; nothing if it has none.
  std::optional<TierState> tiers() const { return TierStateOf(tables_); }
  const VersionSource& source() const { return source_; }
  /// Of a signature, by its position in signatures().
  Executor executor(int signature) const { return executors_[signature]; }
  /// Whether the work of a request is bounded by its size, as no graph has loops: our own executor refuses them.
  bool bounded() const;
  /// The precision that fused towers compute with; empty if there are none.
  PrecisionChoice precision() const;
  /// Serves a live model in the first of these precisions, or in fp32 if there is none. Requests that have begun keep theirs.
  absl::Status ChangePrecision(std::vector<PermittedPrecision> permitted, std::string reason);
  /// Whether the tensors of a request may refer to memory of the caller.
  bool may_borrow_inputs() const { return !writes_state_; }
  /// Whether running a request changes the outputs of later ones.
  bool writes_state() const { return writes_state_; }

  /// What is known about the rows of its outputs.
  OutputRows output_rows;

  /// The outcome of the warm-up, for processor_model_info(). This and the next three are set before the version is
  /// published.
  std::string warmup_outcome;
  /// The file of recorded requests that it was warmed up with; empty if there is none.
  std::string records;
  double load_ms = 0;
  uint64_t generation = 0;

 private:
  ModelVersion();
  /// As Run(), without request.next.
  absl::Status RunOne(int session, const DecodedRequest& request, const PinnedEpoch& epoch,
                      std::vector<tensorflow::Tensor>* outputs);
  /// As RunOne(), traced.
  absl::Status RunTraced(int session, const DecodedRequest& request, const PinnedEpoch& epoch,
                         std::vector<tensorflow::Tensor>* outputs, tensorflow::StepStats* stats);
  void FollowRows(const tensorflow::MetaGraphDef& meta_graph);
  absl::Status Specialize(const ModelConfig& config, tensorflow::GraphDef* graph);
  /// Finds the live model that the initializer has made, if the graph has one.
  absl::Status FindLiveModel(const tensorflow::GraphDef& graph);
  void FindEarlyLookups(const tensorflow::MetaGraphDef& meta_graph);
  absl::Status MakeSessions(const ModelConfig& config, const tensorflow::GraphDef& graph, const SessionSlots& slots,
                            const Cancellation& cancellation);
  absl::Status MakeSession(const ModelConfig& config, const tensorflow::GraphDef& graph, bool has_pool,
                           SessionSlot& slot, std::unique_ptr<Session>* session);
  /// Makes the callables of all outputs.
  absl::Status PrepareSignatures(Session& session);
  static std::vector<int> AllOutputs(const Signature& signature);

  /// Runs the callable of outputs (ascending) of a signature; `outputs` is set to theirs.
  absl::Status RunCallable(Session& session, int callable, const DecodedRequest& request, const PinnedEpoch& epoch,
                           absl::Span<const int> wanted, std::vector<tensorflow::Tensor>* outputs);
  /// Runs a request for some outputs; `outputs` is set to those of `wanted`, which is ascending.
  absl::Status RunSubset(Session& session, const DecodedRequest& request, const PinnedEpoch& epoch,
                         absl::Span<const int> wanted, std::vector<tensorflow::Tensor>* outputs);

  VersionSource source_;
  SignatureSet signatures_;
  std::vector<Executor> executors_;  // of the callables of all outputs [signatures]
  mutable std::mutex precision_mutex_;
  PrecisionChoice precision_;
  bool writes_state_ = true;

  // Sessions are destroyed before the device whose resources they use.
  std::unique_ptr<tensorflow::Device> base_device_;
  std::vector<std::shared_ptr<const EmbeddingTable>> tables_;
  tensorflow::core::RefCountPtr<LiveModel> live_;
  std::string view_;                           // the tensor of its view
  std::unique_ptr<const EarlyLookups> early_;  // or null
  std::vector<std::unique_ptr<Session>> sessions_;

  // The callable of all outputs of signature i has the number i.
  std::unique_ptr<OutputSubsets> subsets_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_MODEL_VERSION_H_
