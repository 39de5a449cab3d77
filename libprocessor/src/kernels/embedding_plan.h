// SPDX-License-Identifier: Apache-2.0
// The plan of a RecEmbeddingGroup, read from JSON; docs/fused_ops.md describes the fields. Plain data.
#ifndef PROCESSOR_KERNELS_EMBEDDING_PLAN_H_
#define PROCESSOR_KERNELS_EMBEDDING_PLAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace processor {

enum class StepKind {
  kFastHash,
  kStrongHash,
  kLegacyHash,
  kToString,
  kMod,
  kAdd,
  kMultiply,
  kClip,
  kBucketize,
  kWrapNegative,
  kDivide,
  kXorShift,
  kBits
};

struct PlanStep {
  StepKind kind;
  int64_t first = 0;              // buckets, by, value, low or first
  int64_t second = 0;             // high or count
  int64_t third = 1;              // every
  uint64_t key[2] = {0, 0};       // strong_hash
  std::vector<float> boundaries;  // ascending
};

enum class KeyLayout { kDense, kSparse, kRagged, kSegments };

/// The kind of value that is ignored.
enum class IgnoreKind { kNothing, kString, kInteger };

struct PlanKey {
  int feature = 0;
  KeyLayout layout = KeyLayout::kDense;
  // Features with indices and shape (sparse), row_splits (ragged) or segment_ids and rows (segments); else -1.
  int structure = -1;
  int extent = -1;
  IgnoreKind ignore = IgnoreKind::kNothing;
  std::string ignored_string;
  int64_t ignored_integer = 0;
  bool ignore_negative = false;
  std::vector<PlanStep> steps;
};

enum class ColumnKind { kLookup, kCopy, kLinear };
enum class Combiner { kNone, kSum, kMean, kSqrtn };

/// Rows with which those of a lookup are multiplied, element by element.
struct PlanFactor {
  int key;
  int table;
};

struct PlanColumn {
  ColumnKind kind = ColumnKind::kLookup;
  int output = 0;
  int64_t offset = 0;
  bool accumulate = false;
  // lookup
  int key = 0;
  int table = 0;
  std::vector<PlanFactor> factors;
  Combiner combiner = Combiner::kNone;
  int weights = -1;               // a feature, or -1
  bool positive_weights = false;  // a value is ignored unless its weight is above 0
  bool has_empty = false;         // a row without values reads the row of the key `empty`
  bool empty_is_string = false;
  std::string empty_string;
  int64_t empty_integer = 0;
  // copy, linear
  int feature = 0;
  int64_t width = 0;
  std::vector<float> matrix;  // linear: [k, width]
};

struct PlanOutput {
  int64_t width = 0;
  std::vector<float> initial;  // [width], or empty: zeros
  int sequence = -1;           // a key, or -1
};

struct EmbeddingPlan {
  std::vector<PlanOutput> outputs;
  std::vector<PlanKey> keys;
  std::vector<PlanColumn> columns;
};

/// Reads a plan and checks all numbers in it: features are below `features` and tables below `tables`, there are `outputs`
/// outputs, no column begins beyond its output, and no copy or linear column ends there.
/// \return INVALID_ARGUMENT that names the fault, for any text that is not such a plan.
absl::Status ParseEmbeddingPlan(std::string_view text, int features, int tables, int outputs, EmbeddingPlan* plan);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_EMBEDDING_PLAN_H_
