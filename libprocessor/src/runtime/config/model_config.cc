// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/config/model_config.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/runtime/config/config_check.h"
#include "src/runtime/config/config_reader.h"

namespace processor {
namespace {

// Half of the CPUs that the scheduler of the cluster granted, as the contract has it.
int DefaultParallelism() {
  const char* text = std::getenv("SCHEDULABLE_CPUS");
  int cpus = 8;
  if (text != nullptr && (!absl::SimpleAtoi(text, &cpus) || cpus < 1)) cpus = 8;
  return cpus < 2 ? 1 : cpus / 2;
}

void ReadSource(ConfigReader& reader, ConfigDialect dialect, ModelConfig* dst) {
  if (dialect == ConfigDialect::kDropIn) {
    for (const char* key : {"signature_name", "feature_store_type", "serialize_protocol"}) reader.RequireNonEmpty(key);
    for (const char* key : {"savedmodel_dir", "model_store_type"}) reader.Require(key);
  }
  reader.String("savedmodel_dir", &dst->savedmodel_dir);
  reader.String("signature_name", &dst->signature_name);
  reader.String("checkpoint_dir", &dst->checkpoint_dir);
  reader.String("warmup_file_name", &dst->warmup_file_name);
  if (reader.Has("model_name")) reader.String("model_name", &dst->model_name.emplace());
  if (reader.Has("model_version")) reader.Int64("model_version", 0, INT64_MAX, &dst->model_version.emplace(0));
}

void ReadSessions(ConfigReader& reader, ConfigDialect dialect, ModelConfig* dst) {
  reader.Int("session_num", 1, 1024, &dst->session_num);
  int policy = static_cast<int>(dst->select_session_policy);
  reader.Choice("select_session_policy", {"MOD", "RR", "LEAST_LOADED"}, &policy);
  dst->select_session_policy = static_cast<SelectPolicy>(policy);
  bool per_session = true;  // which it is always
  reader.Bool("use_per_session_threads", &per_session);

  dst->inter_op_parallelism_threads = dst->intra_op_parallelism_threads = DefaultParallelism();
  reader.Int("inter_op_parallelism_threads", -1, kMaxThreads, &dst->inter_op_parallelism_threads);
  reader.Int("intra_op_parallelism_threads", 0, kMaxThreads, &dst->intra_op_parallelism_threads);
  const int cpus = static_cast<int>(AllowedCpus().size());
  if (dst->inter_op_parallelism_threads == 0) dst->inter_op_parallelism_threads = cpus;
  if (dst->intra_op_parallelism_threads == 0) dst->intra_op_parallelism_threads = cpus;
  // TensorFlow's thread pools abort the process where a thread cannot be had.
  if (int64_t{dst->session_num} * dst->intra_op_parallelism_threads > kMaxThreads) {
    reader.Refuse("intra_op_parallelism_threads",
                  absl::StrCat(dst->intra_op_parallelism_threads, " found for each of ", dst->session_num,
                               " sessions, expected at most ", kMaxThreads, " threads in all"));
  }
  reader.Bool("enable_inline_execute", &dst->enable_inline_execute);

  std::string cpusets;
  reader.String("cpusets", &cpusets);
  if (!cpusets.empty()) {
    const absl::Status status = ParseCpusets(cpusets, dst->session_num, AllowedCpus(), &dst->cpusets);
    if (!status.ok()) reader.Refuse("cpusets", status.message());
  }
  int execution = static_cast<int>(dst->cpusets.empty() ? Execution::kInline : Execution::kPinned);
  reader.Choice("execution", {"inline", "pinned"}, &execution);
  dst->execution = static_cast<Execution>(execution);
  int executor = 0;
  reader.Choice("executor", {"auto", "single_threaded", "default"}, &executor);
  dst->executor = static_cast<ExecutorChoice>(executor);
  int precision = 0;
  reader.Choice("precision", {"auto", "fp32"}, &precision);
  dst->precision = static_cast<PrecisionLimit>(precision);
  // Hosts of the contract count on a thread for each session, and so does who asks for threads of its own.
  if (dialect == ConfigDialect::kDropIn || dst->execution == Execution::kPinned) dst->worker_threads = 1;
  reader.Int("worker_threads", 1, kMaxThreads, &dst->worker_threads);
  reader.Int("max_queue_size", 1, 1 << 24, &dst->max_queue_size);
  reader.Int64("max_rows", 1, int64_t{1} << 32, &dst->max_rows);
  if (reader.Has("batching")) {
    const absl::Status status = ParseBatchOptions(reader.object().at("batching").dump(), &dst->batching);
    if (!status.ok()) reader.Refuse("batching", status.message());
  }
}

void ReadLifecycle(ConfigReader& reader, ModelConfig* dst) {
  reader.Int("model_update_inter_threads", 0, kMaxThreads, &dst->model_update_inter_threads);
  reader.Int("model_update_intra_threads", 0, kMaxThreads, &dst->model_update_intra_threads);
  reader.Int("init_timeout_minutes", -1, 1 << 20, &dst->init_timeout_minutes);
  reader.Double("checkpoint_poll_seconds", 0.01, 1e9, &dst->checkpoint_poll_seconds);
  reader.Double("load_timeout_seconds", 0, 1e6, &dst->load_timeout_seconds);
  reader.Double("drain_seconds", 0, 3600, &dst->drain_seconds);
  reader.Int("warmup_runs", 1, 1000, &dst->warmup_runs);
  reader.Int("batch_process_count", 1, 1 << 20, &dst->batch_process_count);
}

void ReadTimeline(ConfigReader& reader, ModelConfig* dst) {
  const std::vector<std::string> keys = {"timeline_start_step", "timeline_interval_step", "timeline_trace_count",
                                         "timeline_path"};
  int given = 0;
  for (const std::string& key : keys) given += reader.Has(key);
  if (given == 0) return;
  for (const std::string& key : keys) {
    if (!reader.Has(key)) reader.Refuse(key, "missing, expected all four of timeline_* or none");
  }
  TimelineConfig& timeline = dst->timeline;
  reader.Int64(keys[0], 0, INT64_MAX, &timeline.start_step);
  reader.Int64(keys[1], 1, INT64_MAX, &timeline.interval_step);
  reader.Int64(keys[2], 1, 1000000, &timeline.trace_count);
  reader.String(keys[3], &timeline.path);
  if (absl::StrContains(timeline.path, "oss://")) {
    reader.Refuse(keys[3], "an oss:// path, expected a local one: the library writes to local files only");
  } else if (!absl::StartsWith(timeline.path, "/")) {
    reader.Refuse(keys[3], absl::StrCat(reader.Show(keys[3]), " found, expected a path that begins with '/'"));
  }
}

// Stores: only the local one.
void ReadStores(ConfigReader& reader) {
  std::string text;
  reader.String("feature_store_type", &text);
  if (text == "redis" || text == "cluster_redis") {
    reader.Refuse("feature_store_type", absl::StrCat("\"", text,
                                                     "\" found, expected \"local\" or \"memory\": tables are "
                                                     "served from memory, there is no Redis client"));
  } else if (!text.empty() && text != "local" && text != "memory") {
    reader.Refuse("feature_store_type", absl::StrCat("\"", text, "\" found, expected \"local\" or \"memory\""));
  }
  text.clear();
  reader.String("serialize_protocol", &text);
  if (text == "flatbuffer") {
    reader.Refuse("serialize_protocol",
                  "\"flatbuffer\" found, expected \"protobuf\": the contract defines no "
                  "FlatBuffers request");
  } else if (!text.empty() && text != "protobuf") {
    reader.Refuse("serialize_protocol", absl::StrCat("\"", text, "\" found, expected \"protobuf\""));
  }
  text.clear();
  reader.String("model_store_type", &text);
  if (text == "oss" || text == "hdfs") {
    reader.Refuse("model_store_type", absl::StrCat("\"", text,
                                                   "\" found, expected \"local\": models are read from local "
                                                   "folders; mount or copy them"));
  } else if (!text.empty() && text != "local") {
    reader.Refuse("model_store_type", absl::StrCat("\"", text, "\" found, expected \"local\""));
  }
  for (const char* key : {"redis_url", "redis_password"}) {
    text.clear();
    reader.String(key, &text);
    if (!text.empty()) reader.Refuse(key, "set, expected nothing: there is no Redis client");
  }
  for (const char* key : {"oss_endpoint", "oss_access_id", "oss_access_key"}) {
    text.clear();
    reader.String(key, &text);
    if (!text.empty()) reader.Refuse(key, "set, expected nothing: models are read from local folders");
  }
  struct Range {
    const char* key;
    int neutral, low, high;
  };
  for (const Range& range : {Range{"lock_timeout", 900, 0, INT32_MAX}, Range{"read_thread_num", 4, 1, 96},
                             Range{"update_thread_num", 2, 1, 16}}) {
    int number = range.neutral;
    reader.Int(range.key, range.low, range.high, &number);
    if (number != range.neutral) reader.Notice(range.key, "it concerns the Redis store");
  }
}

void ReadDevices(ConfigReader& reader) {
  std::string gpus;
  reader.String("gpu_ids_list", &gpus);
  if (!gpus.empty()) reader.Refuse("gpu_ids_list", "set, expected nothing: the library serves on CPUs");
  for (const char* key : {"use_multi_stream", "enable_device_placement_optimization"}) {
    bool on = false;
    reader.Bool(key, &on);
    if (on) reader.Refuse(key, "true found, expected false: the library serves on CPUs");
  }
  for (const char* key : {"omp_num_threads", "kmp_blocktime"}) {
    int number = -1;
    reader.Int(key, -1, INT32_MAX, &number);
    if (reader.Has(key)) {
      reader.Notice(key,
                    "OpenMP settings concern the whole process; sessions have thread pools of their own "
                    "(intra_op_parallelism_threads)");
    }
  }
}

// Keys of EmbeddingVariable storage and of tables split over machines.
void ReadEmbeddings(ConfigReader& reader) {
  int storage = 0;
  reader.Int("ev_storage_type", 0, INT32_MAX, &storage);
  if (storage == 12) {
    reader.Refuse("ev_storage_type", "12 (DRAM_SSDHASH) found, expected 0 or 1: tables are served from memory");
  } else if (storage > 1) {
    reader.Refuse("ev_storage_type", absl::StrCat(storage, " found, expected 0 or 1"));
  }
  std::string path;
  reader.String("ev_storage_path", &path);
  if (!path.empty()) reader.Refuse("ev_storage_path", "set, expected nothing: tables are served from memory");
  if (reader.Has("ev_storage_size")) {
    if (!reader.object().at("ev_storage_size").is_array()) {
      reader.Refuse("ev_storage_size", absl::StrCat(reader.Show("ev_storage_size"), " found, expected a list"));
    }
    for (const auto& size : reader.object().at("ev_storage_size")) {
      if (!size.is_number_integer() || size < 0) {
        reader.Refuse("ev_storage_size",
                      absl::StrCat(reader.Show("ev_storage_size"), " found, expected sizes in bytes"));
      }
    }
    reader.Notice("ev_storage_size", "tables are served from memory, whole");
  }
  bool shard = false;
  reader.Bool("shard_embedding", &shard);
  if (shard) reader.Refuse("shard_embedding", "true found, expected false: a model is served whole by one process");
  std::string text;
  reader.String("embedding_names", &text);
  int id_type = 0;
  reader.Choice("id_type", {"string", "int64"}, &id_type);
  int count = 0;
  reader.Int("shard_instance_count", 0, INT32_MAX, &count);
  for (const char* key : {"embedding_names", "id_type", "shard_instance_count"}) {
    if (reader.Has(key)) reader.Notice(key, "shard_embedding is off");
  }
}

absl::Status Read(ConfigReader& reader, std::string_view json, ConfigDialect dialect, ModelConfig* dst) {
  if (absl::Status status = reader.Parse(json); !status.ok()) return status;
  ModelConfig config;
  ReadSource(reader, dialect, &config);
  ReadSessions(reader, dialect, &config);
  ReadLifecycle(reader, &config);
  ReadTimeline(reader, &config);
  ReadStores(reader);
  ReadDevices(reader);
  ReadEmbeddings(reader);
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  config.source = reader.object();
  *dst = std::move(config);
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseModelConfig(std::string_view json, ConfigDialect dialect, ModelConfig* dst) {
  ConfigReader reader;
  const absl::Status status = Read(reader, json, dialect, dst);
  for (const std::string& notice : reader.notices()) Log(Severity::kWarning, notice);
  return status;
}

absl::Status ReadModelConfig(std::string_view json, ConfigDialect dialect, ModelConfig* dst) {
  ConfigReader reader;
  return Read(reader, json, dialect, dst);
}

}  // namespace processor
