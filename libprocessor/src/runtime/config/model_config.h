// SPDX-License-Identifier: Apache-2.0
// The configuration of a model as plain data: the keys of the drop-in contract, and ours.
//
// docs/configuration.md explains every key. A key that cannot be honored is refused by its name, never silently
// ignored.
#ifndef PROCESSOR_RUNTIME_CONFIG_MODEL_CONFIG_H_
#define PROCESSOR_RUNTIME_CONFIG_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "src/base/request_rows.h"
#include "src/runtime/config/batch_options.h"
#include "src/runtime/config/table_options.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

/// How a session is chosen for a request.
enum class SelectPolicy { kMod, kRoundRobin, kLeastLoaded };

/// Where a request runs: on the calling thread, or on threads of its session.
enum class Execution { kInline, kPinned };

/// The largest number of threads of one kind in all sessions of a model.
constexpr int kMaxThreads = 4096;

enum class ExecutorChoice { kAuto, kSingleThreaded, kDefault };

/// How far fused towers may leave fp32.
enum class PrecisionLimit {
  kAuto,      // as far as the model's certificate and the CPU allow
  kBfloat16,  // the same, but not to int8
  kFloat32,   // not at all
};

/// Which requests have their step statistics written to files: the keys `timeline_*`.
struct TimelineConfig {
  int64_t start_step = -1;  // first request to trace; -1: off
  int64_t interval_step = 1;
  int64_t trace_count = 0;
  std::string path;
};

struct ModelConfig {
  std::string savedmodel_dir;
  std::string signature_name;
  std::string checkpoint_dir;
  std::string warmup_file_name;
  std::string follow;                     // the folder of a timeline of deltas; empty: none
  std::optional<int64_t> follow_epoch;    // at which to stay; none: the newest
  bool follow_permit_not_finite = false;  // applies deltas with NaN and infinities, too
  std::string follow_store;               // below which copies of applied deltas are kept; empty: none are
  std::string log_name;                   // of the model, in the log; no key
  std::optional<std::string> model_name;
  std::optional<int64_t> model_version;

  int session_num = 1;
  SelectPolicy select_session_policy = SelectPolicy::kMod;
  std::vector<CpuSet> cpusets;  // [session_num], or empty: all that the process may use
  int inter_op_parallelism_threads = 0;
  int intra_op_parallelism_threads = 0;
  bool enable_inline_execute = false;
  int model_update_inter_threads = 0;
  int model_update_intra_threads = 0;

  Execution execution = Execution::kInline;
  ExecutorChoice executor = ExecutorChoice::kAuto;
  PrecisionLimit precision = PrecisionLimit::kAuto;
  int worker_threads = 0;  // 0: as many requests at a time as the process may use CPUs, on threads that models share
  int max_queue_size = 1024;
  int64_t max_rows = kDefaultMaxRows;
  BatchOptions batching;
  TableOptions tables;
  int warmup_runs = 5;
  int batch_process_count = 1;
  int init_timeout_minutes = -1;
  double checkpoint_poll_seconds = 60;
  double load_timeout_seconds = 0;  // 0: no limit
  double drain_seconds = 10;        // for running requests, when the model is freed
  TimelineConfig timeline;

  /// As given, for processor_model_info().
  nlohmann::json source = nlohmann::json::object();
};

/// Which keys are required: those of the drop-in contract, or none.
enum class ConfigDialect { kDropIn, kModern };

/// Reads a configuration, and logs keys that have no effect.
/// \return INVALID_ARGUMENT for what is not JSON, an unknown key, a value of the wrong type or out of its range, or one
///         that the library cannot satisfy; NOT_FOUND for a key that the dialect requires.
absl::Status ParseModelConfig(std::string_view json, ConfigDialect dialect, ModelConfig* dst);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_CONFIG_MODEL_CONFIG_H_
