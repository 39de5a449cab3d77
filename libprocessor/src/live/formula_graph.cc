// SPDX-License-Identifier: Apache-2.0
#include "src/live/formula_graph.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/protobuf/rewriter_config.pb.h"
#include "tensorflow/core/public/session_options.h"

namespace processor {
namespace {

using tensorflow::Tensor;

// The arithmetic must be that of the pass which made the formula, so nothing is rewritten.
tensorflow::SessionOptions PlainOptions() {
  tensorflow::SessionOptions options;
  tensorflow::ConfigProto& config = options.config;
  config.set_use_per_session_threads(true);
  config.set_intra_op_parallelism_threads(1);
  config.set_inter_op_parallelism_threads(1);
  (*config.mutable_device_count())["GPU"] = 0;
  auto* const graph = config.mutable_graph_options();
  graph->mutable_optimizer_options()->set_opt_level(tensorflow::OptimizerOptions::L0);
  graph->mutable_rewrite_options()->set_disable_meta_optimizer(true);
  return options;
}

}  // namespace

FormulaGraph::~FormulaGraph() {
  for (const auto& value : first_values_) delete value.load(std::memory_order_relaxed);
  if (session_ != nullptr) session_->Close().IgnoreError();
}

absl::Status FormulaGraph::Open(const std::string& path, size_t formulas, size_t variables,
                                std::unique_ptr<FormulaGraph>* graph) {
  std::unique_ptr<FormulaGraph> made(new FormulaGraph(formulas, variables));
  made->path_ = path;
  tensorflow::GraphDef definition;
  if (absl::Status s = tensorflow::ReadBinaryProto(tensorflow::Env::Default(), path, &definition); !s.ok()) {
    return absl::Status(s.code(), absl::StrCat("formulas '", path, "': ", s.message()));
  }
  tensorflow::Session* session = nullptr;
  absl::Status status = tensorflow::NewSession(PlainOptions(), &session);
  made->session_.reset(session);
  if (status.ok()) status = session->Create(std::move(definition));
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat("formulas '", path, "': ", status.message()));
  *graph = std::move(made);
  return absl::OkStatus();
}

absl::Status FormulaGraph::Formula(int number, const std::vector<Feed>& feeds, tensorflow::Tensor* value) {
  return Run(feeds, absl::StrCat("formula/", number), value);
}

absl::Status FormulaGraph::Variable(int number, tensorflow::Tensor* value) {
  return Run({}, absl::StrCat("source/", number), value);
}

absl::Status FormulaGraph::AtFirstEpoch(bool formula, int number, const Tensor** value) {
  std::atomic<const Tensor*>& kept = first_values_[formula ? number : num_formulas_ + number];
  *value = kept.load(std::memory_order_acquire);
  if (*value != nullptr) return absl::OkStatus();
  std::lock_guard<std::mutex> lock(mutex_);
  *value = kept.load(std::memory_order_relaxed);
  if (*value != nullptr) return absl::OkStatus();
  auto made = std::make_unique<Tensor>();
  if (absl::Status s = formula ? Formula(number, {}, made.get()) : Variable(number, made.get()); !s.ok()) return s;
  *value = made.release();
  kept.store(*value, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status FormulaGraph::Run(const std::vector<Feed>& feeds, const std::string& node, tensorflow::Tensor* value) {
  std::vector<std::pair<std::string, tensorflow::Tensor>> inputs;
  for (const Feed& feed : feeds) inputs.emplace_back(absl::StrCat("source/", feed.variable, ":0"), feed.value);
  tensorflow::RunOptions options;
  options.set_inter_op_thread_pool(-1);  // the calling thread
  std::vector<tensorflow::Tensor> outputs;
  absl::Status status = session_->Run(options, inputs, {node}, {}, &outputs, nullptr);
  if (status.ok() && outputs[0].dtype() != tensorflow::DT_FLOAT) {
    status =
        absl::InvalidArgumentError(absl::StrCat(tensorflow::DataTypeString(outputs[0].dtype()), ", expected float"));
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("formulas '", path_, "': node '", node, "': ", status.message()));
  }
  *value = outputs[0];
  return absl::OkStatus();
}

}  // namespace processor
