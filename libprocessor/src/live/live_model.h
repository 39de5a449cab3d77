// SPDX-License-Identifier: Apache-2.0
// A model whose rows and weights follow a timeline of deltas while it is served.
#ifndef PROCESSOR_LIVE_LIVE_MODEL_H_
#define PROCESSOR_LIVE_LIVE_MODEL_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/base/published.h"
#include "src/live/epoch_view.h"
#include "src/live/formula_graph.h"
#include "src/live/overlay_group.h"
#include "src/tables/delta_segment.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// Owns the overlays of its tables and the newest epochs. Any thread may pin an epoch and ask for the status, without a
/// lock: a thread that loads another version of the timeline in idle time may hold the locks for seconds. Segments are
/// applied one at a time.
class LiveModel : public tensorflow::ResourceBase {
 public:
  /// How many epochs before the newest one a roll-back may return to.
  static constexpr size_t kKeptEpochs = 8;

  /// `tables` are those of the description; `names` are the names of their resources.
  /// \return INVALID_ARGUMENT for tables that do not fit, or RESOURCE_EXHAUSTED.
  static absl::Status Create(LiveDescription description, std::vector<std::shared_ptr<const EmbeddingTable>> tables,
                             const std::vector<std::string>& names, std::unique_ptr<FormulaGraph> formulas,
                             tensorflow::core::RefCountPtr<LiveModel>* model);

  /// Shares the overlays of the models of this process that follow the same timeline and begin at the same epoch. To be
  /// called before the first segment. What others have written already is not kept for this model: it serves its first
  /// epoch until it has reached one that they keep; see Settle().
  void Share(const std::string& timeline);
  /// Goes back to the first epoch, with overlays of its own, if no epoch could be served that others keep.
  /// `again`: whether it has to, so that all segments are to be applied again. \return RESOURCE_EXHAUSTED.
  absl::Status Settle(bool* again);

  /// Applies segments with NaN and infinities, too. To be called before the first segment.
  void PermitNotFinite() { permit_not_finite_ = true; }

  /// Returns the epoch that is served, as a tensor that keeps it. Takes no lock and no memory.
  tensorflow::Tensor Pin() const;

  /// Makes the next epoch of a segment and serves it. A failure leaves everything as it was.
  /// \return FAILED_PRECONDITION for a segment that does not follow the newest epoch, and while the model is held;
  /// INVALID_ARGUMENT for one that does not fit the model; RESOURCE_EXHAUSTED; ABORTED if `give_up` returned true while
  /// another model of the timeline was changing overlays. All name the segment.
  /// \param give_up  called every millisecond meanwhile; may be null
  absl::Status Apply(const DeltaSegment& segment, const std::function<bool()>& give_up = nullptr);

  /// The changes of a segment, in memory of the caller.
  struct Changes {
    std::string name;  // for messages
    DeltaHeader header;
    absl::Span<const DeltaTable> tables;
    absl::Span<const DeltaVariable> variables;
    absl::Span<const ChainHash> chains;  // as DeltaSegment::chains()
  };
  absl::Status Apply(const Changes& changes, const std::function<bool()>& give_up = nullptr);

  /// Gives back what no request reads any more, and writes changed rows into the memory of the table files where that saves
  /// memory. For idle time: it ends after about `most`, and at once while another model of the timeline changes overlays.
  /// \return whether something is left to do.
  bool Compact(std::chrono::microseconds most);

  /// Serves an earlier epoch until Resume(); meanwhile no segment is applied. This, Resume() and SetPrecision() do not wait
  /// for other models of the timeline, unless Apply() runs, which waits for them until it gives up.
  /// \return FAILED_PRECONDITION that lists the epochs that are kept.
  absl::Status RollBack(uint64_t epoch);
  /// Serves the newest epoch again.
  void Resume();

  /// Serves this epoch and all others in a precision, from now on: see EpochView::precision().
  /// \return what kernels return that make weights; the precision then stays as it was.
  absl::Status SetPrecision(const std::string& precision);
  /// Returns the epoch of a tensor of Pin() in another precision; its weights are made when it is first run.
  /// \return INVALID_ARGUMENT for another tensor.
  static absl::Status InPrecision(const tensorflow::Tensor& pinned, const std::string& precision,
                                  tensorflow::Tensor* other);

  struct Epochs {
    EpochFacts served, newest;
    bool held = false;
    uint64_t oldest_kept = 0;
  };
  /// Returns the epochs of one point in time, without a lock; so do the next two functions.
  Epochs epochs() const { return published_.Read()->epochs; }

  struct Status : Epochs {
    uint64_t changed_rows = 0;  // versions that the overlays have
    uint64_t overlay_bytes = 0;
    uint64_t applied_rows = 0;  // since the model was made
  };
  /// What the overlays take is as of the last change of each, by any model of the timeline.
  Status status() const;
  /// Returns the memory of the changed rows of each table [bytes], by what models of one timeline share.
  std::map<const void*, int64_t> overlay_sizes() const;
  const LiveDescription& description() const { return parts_->description; }

  std::string DebugString() const override;

 private:
  // What is served, and what the status says of it; immutable.
  struct Publication {
    // A tensor of the view for each group of threads, so that they do not count references in the same memory.
    static constexpr size_t kParts = 16;
    std::array<tensorflow::Tensor, kParts> tensors;
    Epochs epochs;
    uint64_t applied_rows = 0;
    std::vector<std::shared_ptr<const SharedOverlay>> overlays;
  };
  // A view that was published. Its tensors refer to it, so a count of one means that no request has it.
  struct Generation {
    uint64_t number;
    std::shared_ptr<const std::shared_ptr<const EpochView>> view;
  };
  // The changes of all tables, which are given back unless they are committed.
  struct PreparedRows;

  LiveModel() = default;
  ~LiveModel() override;

  /// Locks the overlays, for a thread that has locked the model.
  class OverlayLock;

  /// The epoch after which the next segment comes.
  const EpochView& Newest() const { return pending_ != nullptr ? *pending_ : *kept_.back(); }
  bool ReadsShared(const EpochView& view) const;
  absl::Status Follows(const Changes& changes) const;
  absl::Status ApplyChecked(const Changes& changes, const std::function<bool()>& give_up);
  absl::Status CheckNumbers(const Changes& changes) const;
  /// Makes the view of the epoch after the newest one, with all but its tables.
  absl::Status MakeView(const Changes& changes, std::shared_ptr<EpochView>* made);
  absl::Status ChangeTables(absl::Span<const DeltaTable> tables, EpochView* view, std::vector<bool>* changed_variables);
  absl::Status ChangeVariables(absl::Span<const DeltaVariable> variables, EpochView* view,
                               std::vector<bool>* changed_variables);
  absl::Status CheckAllRows(const DeltaVariable& delta, bool* known) const;
  absl::Status PrepareRows(const Changes& changes, PreparedRows* rows);
  absl::Status PrepareAllRows(const DeltaVariable& delta, PreparedRows* rows);
  /// Writes the changes of the tables as versions of an epoch, and serves its view.
  absl::Status Commit(const Changes& changes, std::shared_ptr<EpochView> view);
  absl::Status ChangeRowsOfVariable(const DeltaTable& delta, int number, EpochView* view);
  absl::Status ComputeFormulas(const std::vector<bool>& changed_variables, EpochView* view,
                               std::vector<bool>* changed_formulas);
  /// Serves a view as a new generation, which needs the lock of the overlays.
  void Serve(std::shared_ptr<const EpochView> view);
  /// Serves a view of a kept epoch without that lock. It counts as one of the last generation, so what it may read is given
  /// back no earlier than what that one reads.
  void ServeKept(std::shared_ptr<const EpochView> view);
  void Publish(std::shared_ptr<const EpochView> view, uint64_t generation);
  /// Publishes the newest epoch if memory was short when it was made.
  void PublishMissed();
  /// Replaces a kept epoch by one in the precision that is served, unless it is that already.
  absl::Status ToPrecision(const std::string& precision, std::shared_ptr<const EpochView>* kept);
  OverlayTable::Readers FindReaders();
  /// Tells all overlays who reads them.
  void UpdateReaders();
  /// Counts what they take, for status().
  void CountMemory() const;
  absl::Status ValueOf(int variable, const EpochView& view, tensorflow::Tensor* value);

  std::shared_ptr<LiveParts> parts_;
  Published<const Publication> published_;

  std::mutex mutex_;                                   // of everything below, and of those that change the model
  std::deque<std::shared_ptr<const EpochView>> kept_;  // ascending; the last is the newest
  // In the order in which they were published; the number of one of ServeKept() is that of the one before. Requests may read
  // them; the last is published.
  std::vector<Generation> generations_;
  std::shared_ptr<const EpochView> served_;
  bool held_ = false;
  bool permit_not_finite_ = false;
  std::shared_ptr<OverlayGroup> group_ = std::make_shared<OverlayGroup>();
  std::vector<std::shared_ptr<SharedOverlay>> overlays_;  // by table
  uint32_t layout_ = 0;                                   // of views of these overlays
  std::vector<bool> writes_;                              // of each, whether the segment being applied is written to it
  std::shared_ptr<const EpochView> first_;                // from Share() to Settle()
  std::shared_ptr<const EpochView> pending_;              // the newest epoch, if not all overlays keep it; else null
  std::string precision_;                                 // of new epochs
  uint64_t applied_rows_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_LIVE_MODEL_H_
