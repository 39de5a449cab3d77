// SPDX-License-Identifier: Apache-2.0
// Reads a SavedModel from its folder, prepares its graph for several sessions, and fills its variables and tables.
#ifndef PROCESSOR_RUNTIME_VERSION_SAVED_MODEL_H_
#define PROCESSOR_RUNTIME_VERSION_SAVED_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/platform/threadpool_options.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"
#include "tensorflow/core/public/session.h"

namespace processor {

/// Reads the graph that is tagged "serve".
/// \return NOT_FOUND for a missing folder or file, DATA_LOSS or TensorFlow's status for a damaged one.
absl::Status ReadSavedModel(const std::string& dir, tensorflow::MetaGraphDef* meta_graph);

/// Checks that TensorFlow has every op of the graph.
/// \return UNIMPLEMENTED, naming the ops and the remedy (`graph-tools cut`).
absl::Status CheckOps(const tensorflow::GraphDef& graph);

/// Sets a shared name for look-up tables without one, so that all sessions over one ResourceMgr use the same table.
/// Otherwise a table belongs to the kernel that made it, and is empty in all sessions but the one that initialized it.
void ShareTables(tensorflow::GraphDef* graph);

/// Sets the dtypes of signature inputs to those of their tensors in the graph. They differ only in a damaged model, but
/// TensorFlow does not check the dtypes of feeds: a kernel would end the process.
void TakeInputDtypesOfGraph(tensorflow::MetaGraphDef* meta_graph);

/// Restores the variables from `checkpoint_prefix` (empty: those of the SavedModel) with the changes of an incremental
/// checkpoint (empty: none), then runs the initializer that fills tables from assets.
absl::Status RestoreVariables(const std::string& dir, const std::string& checkpoint_prefix,
                              const std::string& increment, const tensorflow::MetaGraphDef& meta_graph,
                              const tensorflow::thread::ThreadPoolOptions& threads, tensorflow::Session* session);

/// Finds the view of a live model: the tensor that a run feeds, and the resource. Both are empty if the graph has none.
/// \return INVALID_ARGUMENT if the graph has several, or one in a function: a request could read two epochs.
absl::Status FindView(const tensorflow::GraphDef& graph, std::string* view, std::string* model);

/// Whether the signatures change state that outlives a request (variables, tables, queues). If so, inputs must be
/// copied, because a kernel might keep memory of the caller, and variables must not be treated as constants.
bool WritesState(const tensorflow::MetaGraphDef& meta_graph);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_SAVED_MODEL_H_
