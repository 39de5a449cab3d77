// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/model_version.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/rows/row_proof.h"
#include "src/runtime/version/saved_model.h"
#include "src/runtime/version/variables.h"
#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/public/session_options.h"

namespace processor {
namespace {

std::atomic<int> versions_alive{0};  // in the process

absl::Status MakeBaseDevice(std::unique_ptr<tensorflow::Device>* device) {
  tensorflow::DeviceFactory* factory = tensorflow::DeviceFactory::GetFactory("CPU");
  if (factory == nullptr) return absl::InternalError("TensorFlow: no CPU devices registered");
  tensorflow::SessionOptions options;
  (*options.config.mutable_device_count())["CPU"] = 1;
  std::vector<std::unique_ptr<tensorflow::Device>> devices;
  if (absl::Status s = factory->CreateDevices(options, "/job:localhost/replica:0/task:0", &devices); !s.ok()) return s;
  if (devices.empty()) return absl::InternalError("TensorFlow: no CPU device made");
  *device = std::move(devices.front());
  return absl::OkStatus();
}

// TensorFlow's thread pools abort the process if a thread cannot be started. This is checked here and not when the
// configuration is read, since most models have no such threads.
absl::Status CheckThreadsInAll(const ModelConfig& config) {
  if (int64_t{config.session_num} * config.inter_op_parallelism_threads <= kMaxThreads) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("config key 'inter_op_parallelism_threads': ", config.inter_op_parallelism_threads,
                   " found for each of ", config.session_num, " sessions, expected at most ", kMaxThreads,
                   " threads in all for a graph on TensorFlow's executor"));
}

// The threads that restore variables, kept apart from those that serve.
struct UpdateThreads {
  UpdateThreads(const ModelConfig& config, bool background) {
    if (!background) return;
    if (config.model_update_inter_threads > 0) {
      inter = std::make_unique<PinnedPool>("update-inter", config.model_update_inter_threads, CpuSet(),
                                           PinnedPool::Single::kOwn);
      options.inter_op_threadpool = inter.get();
    }
    if (config.model_update_intra_threads > 0) {
      intra = std::make_unique<PinnedPool>("update-intra", config.model_update_intra_threads, CpuSet());
      options.intra_op_threadpool = intra.get();
    }
  }
  std::unique_ptr<PinnedPool> inter, intra;
  tensorflow::thread::ThreadPoolOptions options;
};

// Returns whether the graph has 16-bit numbers, or fused towers that may compute with them or with bytes.
bool ComputesInHalves(const tensorflow::GraphDef& graph) {
  const auto is_half = [](const tensorflow::NodeDef& node) {
    for (const char* key : {"T", "DstT", "dtype"}) {
      const auto attr = node.attr().find(key);
      if (attr == node.attr().end()) continue;
      const tensorflow::DataType dtype = attr->second.type();
      if (dtype == tensorflow::DT_BFLOAT16 || dtype == tensorflow::DT_HALF) return true;
    }
    const auto precision = node.attr().find("precision");
    return node.op() == "RecDenseTower" && precision != node.attr().end() &&
           (absl::StartsWith(precision->second.s(), "bf16") || precision->second.s() == "int8");
  };
  const auto any = [&](const auto& nodes) { return std::any_of(nodes.begin(), nodes.end(), is_half); };
  const auto& functions = graph.library().function();
  return any(graph.node()) ||
         std::any_of(functions.begin(), functions.end(),
                     [&](const tensorflow::FunctionDef& function) { return any(function.node_def()); });
}

}  // namespace

absl::Status CheckWanted(const Cancellation& cancellation) {
  return cancellation.requested() ? cancellation.why() : absl::OkStatus();
}

absl::Status ModelVersion::Load(const ModelConfig& config, const VersionSource& source, const SessionSlots& slots,
                                bool background, const Cancellation& cancellation,
                                std::shared_ptr<ModelVersion>* version) {
  std::shared_ptr<ModelVersion> result(new ModelVersion);
  result->source_ = source;
  tensorflow::MetaGraphDef meta_graph;
  if (absl::Status s = ReadSavedModel(source.saved_model_dir, &meta_graph); !s.ok()) return s;
  if (absl::Status s = CheckOps(meta_graph.graph_def()); !s.ok()) return s;
  if (absl::Status s = result->Specialize(config, meta_graph.mutable_graph_def()); !s.ok()) return s;
  ShareTables(meta_graph.mutable_graph_def());
  TakeInputDtypesOfGraph(&meta_graph);
  result->writes_state_ = WritesState(meta_graph);

  if (absl::Status s = result->signatures_.Load(meta_graph, config.max_rows); !s.ok()) return s;
  if (result->signatures_.all().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("savedmodel_dir '", source.saved_model_dir, "': no signature"));
  }
  const std::string wanted = !config.signature_name.empty() ? config.signature_name : "serving_default";
  const Signature* signature = result->signatures_.Find(wanted);
  if (signature == nullptr && config.signature_name.empty()) signature = result->signatures_.all().front().get();
  if (signature == nullptr) {
    return absl::NotFoundError(absl::StrCat("signature_name '", wanted, "': not in the model"));
  }
  result->signatures_.set_default(signature);

  result->FollowRows(meta_graph);

  if (absl::Status s = CheckWanted(cancellation); !s.ok()) return s;
  if (absl::Status s = MakeBaseDevice(&result->base_device_); !s.ok()) return s;
  {
    // A separate session restores: it may need ops and an executor that serving does not, and may have its own threads.
    // The variables that it fills belong to the base device and stay.
    const UpdateThreads threads(config, background);
    PinnedPool pool("restore", 1, CpuSet());
    std::unique_ptr<Session> loader;
    SessionOptions options;
    options.executor = ExecutorChoice::kDefault;
    options.inter_op_pool = threads.inter.get();
    if (absl::Status s = Session::Create(meta_graph.graph_def(), options, result->base_device_.get(), &pool, &loader);
        !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("graph: ", s.message()));
    }
    if (absl::Status s = RestoreVariables(source.saved_model_dir, source.checkpoint_prefix, source.increment,
                                          meta_graph, threads.options, loader->tensorflow_session());
        !s.ok()) {
      return s;
    }
    tensorflow::ResourceMgr& resources = *result->base_device_->resource_manager();
    if (absl::Status s = CheckVariableShapes(meta_graph.graph_def(), resources); !s.ok()) {
      const std::string& prefix = source.checkpoint_prefix;
      return absl::Status(s.code(), absl::StrCat(prefix.empty() ? "variables" : prefix, ": ", s.message()));
    }
  }
  result->tables_ = TablesOf(meta_graph.graph_def(), result->base_device_->resource_manager());
  if (absl::Status s = result->FindLiveModel(meta_graph.graph_def()); !s.ok()) return s;
  if (absl::Status s = result->MakeSessions(config, meta_graph.graph_def(), slots, cancellation); !s.ok()) return s;
  // Other executors run ops on threads that do not know of the request.
  if (config.tables.early_reads && config.tables.tier == TableTier::kTiered && result->bounded()) {
    Attempt([&] { return result->FindEarlyLookups(meta_graph), absl::OkStatus(); }).IgnoreError();
  }
  *version = std::move(result);
  return absl::OkStatus();
}

absl::Status ModelVersion::FindLiveModel(const tensorflow::GraphDef& graph) {
  std::string model;
  if (absl::Status s = FindView(graph, &view_, &model); !s.ok() || model.empty()) return s;
  tensorflow::ResourceMgr& resources = *base_device_->resource_manager();
  LiveModel* found = nullptr;
  if (!resources.Lookup(resources.default_container(), model, &found).ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("live model '", model, "': not initialized, expected the initializer of the graph to do so"));
  }
  live_.reset(found);
  return absl::OkStatus();
}

void ModelVersion::FindEarlyLookups(const tensorflow::MetaGraphDef& meta_graph) {
  const PinnedEpoch pinned = Pin();
  const EpochView* view = nullptr;
  if (pinned.tensor() != nullptr && !ReadViewTensor(pinned.view, &view).ok()) return;
  early_ = EarlyLookups::Find(meta_graph, signatures_, base_device_->resource_manager(), view);
}

void ModelVersion::FollowRows(const tensorflow::MetaGraphDef& meta_graph) {
  if (writes_state_) return;  // each request runs alone
  if (ComputesInHalves(meta_graph.graph_def())) output_rows.SetTolerance(Tolerance::OfHalves());
  for (const auto& signature : signatures_.all()) {
    std::vector<RowProof> proofs(signature->outputs().size());
    // If the proof fails, nothing is proved, and the version serves nevertheless.
    Attempt([&] { return proofs = ProveRows(meta_graph, *signature), absl::OkStatus(); }).IgnoreError();
    output_rows.SetProofs(*signature, std::move(proofs));
  }
}

absl::Status ModelVersion::Specialize(const ModelConfig& config, tensorflow::GraphDef* graph) {
  if (absl::Status s = SetTableTier(config.tables, source_.saved_model_dir, graph); !s.ok()) return s;
  if (!UsesOurOps(*graph)) return absl::OkStatus();
  SetMaxRows(config.max_rows, graph);
  Artifact artifact;
  if (absl::Status s = ReadArtifact(source_.saved_model_dir, &artifact); !s.ok()) return s;
  if (!source_.checkpoint_prefix.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(source_.checkpoint_prefix,
                     ": a checkpoint for a fused model found, expected none: its tables are "
                     "files of the artifact; run `graph-tools optimize` for the new weights and serve what it writes"));
  }
  return SetPrecision(artifact, config.precision, graph, &precision_);
}

PrecisionChoice ModelVersion::precision() const {
  std::lock_guard<std::mutex> lock(precision_mutex_);
  return precision_;
}

absl::Status ModelVersion::ChangePrecision(std::vector<PermittedPrecision> permitted, std::string reason) {
  const bool exact = permitted.empty();
  if (absl::Status s = live_->SetPrecision(exact ? "fp32" : permitted.front().attribute); !s.ok()) return s;
  std::lock_guard<std::mutex> lock(precision_mutex_);
  precision_.precision = exact ? "fp32" : permitted.front().name;
  precision_.reason = std::move(reason);
  precision_.permitted = std::move(permitted);
  return absl::OkStatus();
}

ModelVersion::ModelVersion() { ++versions_alive; }

ModelVersion::~ModelVersion() {
  subsets_.reset();
  sessions_.clear();
  early_.reset();
  tables_.clear();
  live_.reset();
  base_device_.reset();
  // Its tensors have been unmapped (mapped_memory.h). The small objects of its graphs are still kept by malloc, for the
  // next version. They are given back only when no version is left whose requests would wait for the locks of malloc.
  if (--versions_alive == 0) malloc_trim(0);
}

absl::Status ModelVersion::PrepareSignatures(Session& session) {
  absl::Status result;
  const auto& all = signatures_.all();
  executors_.assign(all.size(), Executor::kDefault);
  for (size_t i = 0; i < all.size() && i < Session::kMaxCallables / 2; ++i) {
    Session::Handle handle;
    const absl::Status status = session.Prepare(static_cast<int>(i), *all[i], AllOutputs(*all[i]), &handle);
    if (status.ok()) {
      executors_[i] = handle.executor;
    } else if (all[i].get() == signatures_.default_signature()) {
      // Only the default signature decides whether the model can be served; requests for others get their own error.
      result = status;
    }
  }
  return result;
}

absl::Status ModelVersion::MakeSession(const ModelConfig& config, const tensorflow::GraphDef& graph, bool has_pool,
                                       SessionSlot& slot, std::unique_ptr<Session>* session) {
  SessionOptions options;
  // A timeline needs the executor that keeps step statistics.
  const bool traces = config.executor == ExecutorChoice::kAuto && config.timeline.start_step >= 0;
  options.executor = traces ? ExecutorChoice::kDefault : config.executor;
  if (has_pool) options.inter_op_pool = &slot.inter_op_pool();
  options.variables_are_constant = !writes_state_;
  options.view = view_;
  std::unique_ptr<Session> made;
  if (absl::Status s = Session::Create(graph, options, base_device_.get(), &slot.intra_op_pool(), &made); !s.ok()) {
    return s;
  }
  if (absl::Status s = PrepareSignatures(*made); !s.ok()) return s;
  *session = std::move(made);
  return absl::OkStatus();
}

absl::Status ModelVersion::MakeSessions(const ModelConfig& config, const tensorflow::GraphDef& graph,
                                        const SessionSlots& slots, const Cancellation& cancellation) {
  // With cpusets, ops run on the session's own thread.
  const bool one_thread =
      config.enable_inline_execute || !config.cpusets.empty() || config.inter_op_parallelism_threads < 0;
  bool has_pool = false;
  for (int i = 0; i < slots.size(); ++i) {
    if (absl::Status s = CheckWanted(cancellation); !s.ok()) return s;
    std::unique_ptr<Session> session;
    if (absl::Status s = MakeSession(config, graph, has_pool, slots[i], &session); !s.ok()) return s;
    if (!has_pool && !one_thread && !bounded()) {
      // The first session has shown that there is a graph which only the default executor runs: TensorFlow rewrites graphs
      // before it makes executors, so nothing else shows it. Such graphs get threads.
      if (absl::Status s = CheckThreadsInAll(config); !s.ok()) return s;
      has_pool = true;
      session.reset();
      if (absl::Status s = MakeSession(config, graph, has_pool, slots[i], &session); !s.ok()) return s;
    }
    sessions_.push_back(std::move(session));
  }
  const auto make = [this](int callable, int signature, const std::vector<int>& outputs) -> absl::Status {
    Session::Handle unused;
    for (const auto& session : sessions_) {
      if (absl::Status s = session->Prepare(callable, *signatures_.all()[signature], outputs, &unused); !s.ok())
        return s;
    }
    return absl::OkStatus();
  };
  subsets_ = std::make_unique<OutputSubsets>(static_cast<int>(signatures_.all().size()), make);
  return absl::OkStatus();
}

bool ModelVersion::bounded() const {
  return std::all_of(executors_.begin(), executors_.end(),
                     [](Executor executor) { return executor == Executor::kSingleThreaded; });
}

void ModelVersion::Claim(ScratchUse use) {
  for (const auto& session : sessions_) session->Claim(use);
}

}  // namespace processor
