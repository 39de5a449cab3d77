// SPDX-License-Identifier: Apache-2.0
// Describes a model as JSON.
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/base/byte_budget.h"
#include "src/base/json_text.h"
#include "src/runtime/model/model.h"

namespace processor {
namespace {

using Json = nlohmann::ordered_json;

const char* PolicyName(SelectPolicy policy) {
  switch (policy) {
    case SelectPolicy::kMod:
      return "MOD";
    case SelectPolicy::kRoundRobin:
      return "RR";
    case SelectPolicy::kLeastLoaded:
      return "LEAST_LOADED";
  }
  return "";
}

const char* StateName(RequestGate::State state) {
  switch (state) {
    case RequestGate::State::kServing:
      return "ready";
    case RequestGate::State::kDraining:
      return "draining";
    case RequestGate::State::kClosed:
      return "closed";
  }
  return "";
}

Json ShapeJson(const tensorflow::PartialTensorShape& shape) {
  if (shape.unknown_rank()) return nullptr;
  Json dims = Json::array();
  for (int i = 0; i < shape.dims(); ++i) dims.push_back(shape.dim_size(i));
  return dims;
}

Json SpecsJson(const std::vector<TensorSpec>& specs) {
  Json list = Json::array();
  for (const TensorSpec& spec : specs) {
    list.push_back({{"name", spec.alias},
                    {"tensor", spec.tensor_name},
                    {"dtype", tensorflow::DataType_Name(spec.dtype)},
                    {"shape", ShapeJson(spec.shape)}});
    if (spec.default_value.has_value()) list.back()["optional"] = true;
  }
  return list;
}

Json SignaturesList(const ModelVersion& version) {
  Json list = Json::array();
  const SignatureSet& signatures = version.signatures();
  for (const auto& signature : signatures.all()) {
    list.push_back({{"signature_name", signature->name()},
                    {"method_name", signature->method_name()},
                    {"default", signature.get() == signatures.default_signature()},
                    {"executor", ExecutorName(version.executor(signatures.IndexOf(signature.get())))},
                    {"inputs", SpecsJson(signature->inputs())},
                    {"outputs", SpecsJson(signature->outputs())}});
  }
  return list;
}

}  // namespace

std::string Model::SignaturesJson() const {
  const std::shared_ptr<ModelVersion> version = this->version();
  return JsonText(version == nullptr ? Json::array() : SignaturesList(*version));
}

std::string Model::DropInSignatureJson() const {
  const std::shared_ptr<ModelVersion> version = this->version();
  if (version == nullptr) return "{}";
  const Signature& signature = *version->signatures().default_signature();
  const auto list = [](const std::vector<TensorSpec>& specs) {
    Json items = Json::array();
    for (const TensorSpec& spec : specs) {
      const Json shape = ShapeJson(spec.shape);
      items.push_back({{"name", spec.alias},
                       {"shape", shape.is_null() ? Json::array() : shape},
                       {"type", tensorflow::DataType_Name(spec.dtype)}});
    }
    return items;
  };
  return JsonText(Json{{"signature_name", signature.name()},
                       {"inputs", list(signature.inputs())},
                       {"outputs", list(signature.outputs())}});
}

std::string Model::InfoJson() const {
  const std::shared_ptr<ModelVersion> version = this->version();
  Json info;
  info["state"] = StateName(parts_.gate.state());
  if (version != nullptr) {
    const VersionSource& source = version->source();
    info["path"] = source.saved_model_dir;
    info["version"] = source.number.has_value() ? Json(*source.number) : Json(nullptr);
    info["generation"] = version->generation;
    info["checkpoint"] = source.checkpoint_prefix.empty() ? Json(nullptr) : Json(source.checkpoint_prefix);
    info["increment"] = source.increment.empty() ? Json(nullptr) : Json(source.increment);
    const SignatureSet& signatures = version->signatures();
    info["default_signature"] = signatures.default_signature()->name();
    info["executor"] = ExecutorName(version->executor(signatures.IndexOf(signatures.default_signature())));
    const PrecisionChoice precision = version->precision();
    info["precision"] = precision.precision.empty() ? Json(nullptr) : Json(precision.precision);
    info["precision_reason"] = precision.precision.empty() ? Json(nullptr) : Json(precision.reason);
    const std::optional<TierState> tiers = version->tiers();
    info["tables"] = tiers.has_value() ? tiers->Json() : Json(nullptr);
    info["warmup"] = version->warmup_outcome;
    info["load_ms"] = version->load_ms;
    info["zero_copy_inputs"] = version->may_borrow_inputs();
  }
  if (version != nullptr) info["batching_rows"] = version->output_rows.Json(version->signatures().all());
  info["execution"] = execution() == Execution::kInline ? "inline" : "pinned";
  info["select_session_policy"] = PolicyName(config().select_session_policy);
  info["sessions"] = parts_.slots.size();
  info["intra_op_threads"] = config().intra_op_parallelism_threads;
  info["batching"] = BatchOptionsJson(batching());
  info["cpusets"] = parts_.slots.Cpusets();
  const ModelVersions::Following following = parts_.versions.following();
  info["update"] = {{"checkpoint_dir", config().checkpoint_dir},
                    {"error", following.error},
                    {"refused", following.refused},
                    {"retired_versions", following.retired}};
  const std::optional<FollowState> live = this->following();
  info["live"] = live.has_value() ? live->Json() : Json(nullptr);
  if (version != nullptr) info["signatures"] = SignaturesList(*version);
  info["config"] = config().source;
  return JsonText(info);
}

std::string Model::StatsJson() const {
  Json stats;
  stats["in_flight"] = parts_.gate.in_flight();
  size_t queued = batched_.waiting();
  nlohmann::json total;
  std::vector<const SessionStats*> all = {&parts_.refused};
  Json sessions = Json::array();
  for (const auto& slot : parts_.slots) {
    nlohmann::json session;
    SessionStats::Describe({&slot->stats()}, &session);
    const size_t waiting = slot->queued();
    session["queued"] = waiting;
    session["load"] = slot->load().load();
    session["cpuset"] = FormatCpuset(slot->cpus());
    queued += waiting;
    sessions.push_back(Json(session));
    all.push_back(&slot->stats());
  }
  SessionStats::Describe(all, &total);
  for (const auto& item : total.items()) stats[item.key()] = Json(item.value());
  stats["queued"] = queued;
  Json batches = BatchOptionsJson(batching());
  batches["rows"] = batch_stats().rows.Json();
  batches["requests"] = batch_stats().requests.Json();
  batches["repeated"] = batch_stats().repeated.load();
  if (const std::shared_ptr<ModelVersion> version = this->version(); version != nullptr) {
    batches["checks"] = version->output_rows.checks();
    batches["differed"] = version->output_rows.differed();
  }
  stats["batching"] = batches;
  stats["request_bytes"] = RequestBytesJson();
  stats["sessions"] = sessions;
  return JsonText(stats);
}

}  // namespace processor
