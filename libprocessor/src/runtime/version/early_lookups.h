// SPDX-License-Identifier: Apache-2.0
// The lookups in tiered tables whose keys a request brings as they are, so that their rows can be read before it runs.
#ifndef PROCESSOR_RUNTIME_VERSION_EARLY_LOOKUPS_H_
#define PROCESSOR_RUNTIME_VERSION_EARLY_LOOKUPS_H_

#include <memory>
#include <string>
#include <vector>

#include "src/base/signature.h"
#include "src/codec/codec.h"
#include "src/kernels/key_steps.h"
#include "src/live/epoch_view.h"
#include "src/tables/early_rows.h"
#include "src/tables/embedding_table.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"

namespace processor {

/// Constant once it is made; any thread may use it.
class EarlyLookups {
 public:
  /// Finds them in a graph whose initializer has run. A feature that passes other ops than reshapes and casts of int32 to
  /// int64 on its way is left to the lookup op.
  /// \param view  of the live model, or null
  /// \return null if there are none.
  static std::unique_ptr<const EarlyLookups> Find(const tensorflow::MetaGraphDef& meta_graph,
                                                  const SignatureSet& signatures, tensorflow::ResourceMgr* resources,
                                                  const EpochView* view);

  /// Returns what to read for a request, or null if there is nothing: all rows are in memory, the memory for rows that are
  /// read early is taken, or the request has no such features.
  /// \param view  of the live model, at any epoch: others only cost reads that are not needed
  std::shared_ptr<EarlyRows> RowsOf(const DecodedRequest& request, const EpochView* view) const;

  /// Returns the number of lookups of a signature, by its position.
  size_t count(int signature) const { return lookups_[signature].size(); }

 private:
  struct Lookup {
    int input;  // of the signature
    tensorflow::DataType dtype;
    KeySteps steps;
    const EmbeddingTable* table;
    int live;  // its number in the live model, or -1
  };
  using Tables = std::vector<std::shared_ptr<const EmbeddingTable>>;

  class Search;

  static void Want(const Lookup& lookup, const tensorflow::Tensor& feed, const EpochView* view, EarlyRows* rows);

  const SignatureSet* signatures_ = nullptr;
  std::vector<std::vector<Lookup>> lookups_;  // by signature
  std::shared_ptr<Tables> tables_ = std::make_shared<Tables>();
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_EARLY_LOOKUPS_H_
