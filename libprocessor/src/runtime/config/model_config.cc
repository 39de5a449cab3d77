// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/config/model_config.h"

#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/base/json_text.h"
#include "src/base/log.h"
#include "src/runtime/config/config_check.h"
#include "src/runtime/config/config_reader.h"

namespace processor {
namespace {

// Returns half of the CPUs that the scheduler of the cluster granted, as in the contract.
int DefaultParallelism() {
  const char* text = std::getenv("SCHEDULABLE_CPUS");
  int cpus = 8;
  if (text != nullptr && (!absl::SimpleAtoi(text, &cpus) || cpus < 1)) cpus = 8;
  return cpus < 2 ? 1 : cpus / 2;
}

void RequireNonEmpty(ConfigReader& reader, const std::string& key) {
  reader.Require(key);
  const JsonValue value = reader.Member(key);
  if (value.present() && value.json() == "") value.Fault("empty, expected a value");
}

void ReadSource(ConfigReader& reader, ConfigDialect dialect, ModelConfig* dst) {
  if (dialect == ConfigDialect::kDropIn) {
    for (const char* key : {"signature_name", "feature_store_type", "serialize_protocol"}) RequireNonEmpty(reader, key);
    for (const char* key : {"savedmodel_dir", "model_store_type"}) reader.Require(key);
  }
  reader.Member("savedmodel_dir").String(&dst->savedmodel_dir);
  reader.Member("signature_name").String(&dst->signature_name);
  reader.Member("checkpoint_dir").String(&dst->checkpoint_dir);
  reader.Member("warmup_file_name").String(&dst->warmup_file_name);
  if (reader.Has("model_name")) reader.Member("model_name").String(&dst->model_name.emplace());
  if (reader.Has("model_version")) reader.Member("model_version").Integer(0, INT64_MAX, &dst->model_version.emplace(0));
}

void ReadSessions(ConfigReader& reader, ConfigDialect dialect, ModelConfig* dst) {
  reader.Member("session_num").Integer(1, 1024, &dst->session_num);
  int policy = static_cast<int>(dst->select_session_policy);
  reader.Member("select_session_policy").Choice({"MOD", "RR", "LEAST_LOADED"}, &policy);
  dst->select_session_policy = static_cast<SelectPolicy>(policy);
  bool per_session = true;  // has no effect: sessions always have their own threads
  reader.Boolean("use_per_session_threads", &per_session);

  dst->inter_op_parallelism_threads = dst->intra_op_parallelism_threads = DefaultParallelism();
  reader.Member("inter_op_parallelism_threads").Integer(-1, kMaxThreads, &dst->inter_op_parallelism_threads);
  reader.Member("intra_op_parallelism_threads").Integer(0, kMaxThreads, &dst->intra_op_parallelism_threads);
  const int cpus = static_cast<int>(AllowedCpus().size());
  if (dst->inter_op_parallelism_threads == 0) dst->inter_op_parallelism_threads = cpus;
  if (dst->intra_op_parallelism_threads == 0) dst->intra_op_parallelism_threads = cpus;
  // TensorFlow's thread pools abort the process if a thread cannot be started.
  if (int64_t{dst->session_num} * dst->intra_op_parallelism_threads > kMaxThreads) {
    reader.Member("intra_op_parallelism_threads")
        .Fault(absl::StrCat(dst->intra_op_parallelism_threads, " found for each of ", dst->session_num,
                            " sessions, expected at most ", kMaxThreads, " threads in all"));
  }
  reader.Boolean("enable_inline_execute", &dst->enable_inline_execute);

  std::string cpusets;
  reader.Member("cpusets").String(&cpusets);
  if (!cpusets.empty()) {
    reader.Member("cpusets").Check(
        [&] { return ParseCpusets(cpusets, dst->session_num, AllowedCpus(), &dst->cpusets); });
  }
  int execution = static_cast<int>(dst->cpusets.empty() ? Execution::kInline : Execution::kPinned);
  reader.Member("execution").Choice({"inline", "pinned"}, &execution);
  dst->execution = static_cast<Execution>(execution);
  int executor = 0;
  reader.Member("executor").Choice({"auto", "single_threaded", "default"}, &executor);
  dst->executor = static_cast<ExecutorChoice>(executor);
  int precision = 0;
  reader.Member("precision").Choice({"auto", "bf16", "fp32"}, &precision);
  dst->precision = static_cast<PrecisionLimit>(precision);
  // Hosts of the contract rely on a thread for each session, and so does a configuration of worker threads.
  if (dialect == ConfigDialect::kDropIn || dst->execution == Execution::kPinned) dst->worker_threads = 1;
  reader.Member("worker_threads").Integer(1, kMaxThreads, &dst->worker_threads);
  reader.Member("max_queue_size").Integer(1, 1 << 24, &dst->max_queue_size);
  reader.Member("max_rows").Integer(1, int64_t{1} << 32, &dst->max_rows);
  const JsonValue batching = reader.Member("batching");
  batching.Check([&] { return ParseBatchOptions(JsonText(batching.json()), &dst->batching); });
  const JsonValue tables = reader.Member("tables");
  tables.Check([&] {
    absl::Status fault;
    if (tables.present()) ReadTableOptions(JsonValue("", tables.json(), &fault), &dst->tables);
    return fault;
  });
}

void ReadLifecycle(ConfigReader& reader, ModelConfig* dst) {
  reader.Member("model_update_inter_threads").Integer(0, kMaxThreads, &dst->model_update_inter_threads);
  reader.Member("model_update_intra_threads").Integer(0, kMaxThreads, &dst->model_update_intra_threads);
  reader.Member("init_timeout_minutes").Integer(-1, 1 << 20, &dst->init_timeout_minutes);
  reader.Member("checkpoint_poll_seconds").Number(0.01, 1e9, &dst->checkpoint_poll_seconds);
  reader.Member("load_timeout_seconds").Number(0, 1e6, &dst->load_timeout_seconds);
  reader.Member("drain_seconds").Number(0, 3600, &dst->drain_seconds);
  reader.Member("warmup_runs").Integer(1, 1000, &dst->warmup_runs);
  reader.Member("batch_process_count").Integer(1, 1 << 20, &dst->batch_process_count);
}

void ReadFollow(ConfigReader& reader, ModelConfig* dst) {
  const JsonValue follow = reader.Member("follow");
  follow.String(&dst->follow);
  const JsonValue epoch = reader.Member("follow_epoch");
  if (epoch.present()) epoch.Integer(0, INT64_MAX, &dst->follow_epoch.emplace());
  reader.Boolean("follow_permit_not_finite", &dst->follow_permit_not_finite);
  const JsonValue store = reader.Member("follow_store");
  store.String(&dst->follow_store);
  if (!dst->follow_store.empty() && dst->follow_store.front() != '/') store.Refuse("a path that begins with '/'");
  if (dst->follow.empty()) {
    if (!dst->follow_store.empty()) store.Fault("set, expected nothing: the model follows no timeline");
    if (epoch.present()) epoch.Fault("set, expected nothing: the model follows no timeline");
    return;
  }
  if (dst->follow.front() != '/') follow.Refuse("a path that begins with '/'");
  if (!dst->checkpoint_dir.empty()) {
    follow.Fault("set besides checkpoint_dir, expected one of them: a version follows deltas or checkpoints");
  }
}

void ReadTimeline(ConfigReader& reader, ModelConfig* dst) {
  const std::vector<std::string> keys = {"timeline_start_step", "timeline_interval_step", "timeline_trace_count",
                                         "timeline_path"};
  int given = 0;
  for (const std::string& key : keys) given += reader.Has(key);
  if (given == 0) return;
  for (const std::string& key : keys) {
    if (!reader.Has(key)) reader.Member(key).Fault("missing, expected all four of timeline_* or none");
  }
  TimelineConfig& timeline = dst->timeline;
  reader.Member(keys[0]).Integer(0, INT64_MAX, &timeline.start_step);
  reader.Member(keys[1]).Integer(1, INT64_MAX, &timeline.interval_step);
  reader.Member(keys[2]).Integer(1, 1000000, &timeline.trace_count);
  reader.Member(keys[3]).String(&timeline.path);
  if (absl::StrContains(timeline.path, "oss://")) {
    reader.Member(keys[3]).Fault("an oss:// path, expected a local one: the library writes to local files only");
  } else if (!absl::StartsWith(timeline.path, "/")) {
    reader.Member(keys[3]).Refuse("a path that begins with '/'");
  }
}

// Keys whose values the library supports only in part: other values of the contract are refused with the reason.
void ReadStores(ConfigReader& reader) {
  struct Choice {
    const char* key;
    std::set<std::string> served, elsewhere;
    const char* expected;
    const char* reason;
  };
  const Choice choices[] = {{"feature_store_type",
                             {"local", "memory"},
                             {"redis", "cluster_redis"},
                             "\"local\" or \"memory\"",
                             "tables are served from memory, there is no Redis client"},
                            {"serialize_protocol",
                             {"protobuf"},
                             {"flatbuffer"},
                             "\"protobuf\"",
                             "the contract defines no FlatBuffers request"},
                            {"model_store_type",
                             {"local"},
                             {"oss", "hdfs"},
                             "\"local\"",
                             "models are read from local folders; mount or copy them"}};
  for (const Choice& choice : choices) {
    std::string text;
    const JsonValue value = reader.Member(choice.key);
    value.String(&text);
    if (text.empty() || choice.served.count(text) > 0) continue;
    value.Refuse(choice.elsewhere.count(text) > 0 ? absl::StrCat(choice.expected, ": ", choice.reason)
                                                  : choice.expected);
  }
  struct Range {
    const char* key;
    int neutral, low, high;
  };
  for (const Range& range : {Range{"lock_timeout", 900, 0, INT32_MAX}, Range{"read_thread_num", 4, 1, 96},
                             Range{"update_thread_num", 2, 1, 16}}) {
    int number = range.neutral;
    reader.Member(range.key).Integer(range.low, range.high, &number);
    if (number != range.neutral) reader.Notice(range.key, "it concerns the Redis store");
  }
}

// Refuses texts that name a store, a device or a way to serve that the library does not have.
void RefuseUnserved(ConfigReader& reader) {
  using Entry = std::pair<const char*, const char*>;
  for (const auto& [key, reason] :
       {Entry{"redis_url", "there is no Redis client"}, Entry{"redis_password", "there is no Redis client"},
        Entry{"oss_endpoint", "models are read from local folders"},
        Entry{"oss_access_id", "models are read from local folders"},
        Entry{"oss_access_key", "models are read from local folders"},
        Entry{"gpu_ids_list", "the library serves on CPUs"},
        Entry{"ev_storage_path", "tables are served from memory"}}) {
    std::string text;
    reader.Member(key).String(&text);
    if (!text.empty()) reader.Member(key).Fault(absl::StrCat("set, expected nothing: ", reason));
  }
  for (const auto& [key, reason] : {Entry{"use_multi_stream", "the library serves on CPUs"},
                                    Entry{"enable_device_placement_optimization", "the library serves on CPUs"},
                                    Entry{"shard_embedding", "a model is served whole by one process"}}) {
    bool on = false;
    reader.Boolean(key, &on);
    if (on) reader.Member(key).Fault(absl::StrCat("true found, expected false: ", reason));
  }
}

// Reads settings of OpenMP, of EmbeddingVariable storage and of sharded tables; most of them have no effect.
void ReadIgnored(ConfigReader& reader) {
  for (const char* key : {"omp_num_threads", "kmp_blocktime"}) {
    int number = -1;
    reader.Member(key).Integer(-1, INT32_MAX, &number);
    if (reader.Has(key)) {
      reader.Notice(key,
                    "OpenMP settings concern the whole process; sessions have thread pools of their own "
                    "(intra_op_parallelism_threads)");
    }
  }
  int storage = 0;
  const JsonValue storage_type = reader.Member("ev_storage_type");
  storage_type.Integer(0, INT32_MAX, &storage);
  if (storage == 12) {
    storage_type.Fault("12 (DRAM_SSDHASH) found, expected 0 or 1: tables are served from memory");
  } else if (storage > 1) {
    storage_type.Refuse("0 or 1");
  }
  const JsonValue sizes = reader.Member("ev_storage_size");
  sizes.ForEachItem([&](const JsonValue& size) {
    if (!size.json().is_number_unsigned()) sizes.Refuse("sizes in bytes");
  });
  if (sizes.present()) reader.Notice("ev_storage_size", "tables are served from memory, whole");
  std::string names;
  reader.Member("embedding_names").String(&names);
  int id_type = 0;
  reader.Member("id_type").Choice({"string", "int64"}, &id_type);
  int count = 0;
  reader.Member("shard_instance_count").Integer(0, INT32_MAX, &count);
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
  ReadFollow(reader, &config);
  ReadTimeline(reader, &config);
  ReadStores(reader);
  RefuseUnserved(reader);
  ReadIgnored(reader);
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
