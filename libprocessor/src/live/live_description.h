// SPDX-License-Identifier: Apache-2.0
// What live.json says (docs/fused_ops.md): which source tables and variables a served graph is made of. Plain data.
#ifndef PROCESSOR_LIVE_LIVE_DESCRIPTION_H_
#define PROCESSOR_LIVE_LIVE_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/live/overlay_table.h"
#include "src/tables/delta_content.h"
#include "src/tables/delta_header.h"

namespace processor {

struct LiveDescription {
  struct Table {
    std::string source;
    DeltaKeyKind key_kind = DeltaKeyKind::kInt64;
    uint32_t dim = 0;
    SourceRows rows;
  };
  struct Variable {
    std::string source;
    std::vector<int64_t> shape;
  };
  struct Formula {
    std::string name;
    std::vector<int> inputs;  // numbers of variables
  };

  DeltaLineage lineage{};
  uint64_t epoch = 0;
  ChainHash chain{};
  std::vector<Table> tables;
  std::vector<Variable> variables;
  std::vector<Formula> formulas;
  std::vector<std::string>
      unserved;  // sources of the model that the served graph does not read; their changes count nothing

  /// Return numbers, or -1.
  int FormulaOf(const std::string& name) const;
  int VariableOf(std::string_view source) const;
  bool IsUnserved(std::string_view source) const;
};

/// Reads live.json and the files beside it. \return errors that name the file and the field.
absl::Status ReadLiveDescription(const std::string& path, LiveDescription* description);

}  // namespace processor

#endif  // PROCESSOR_LIVE_LIVE_DESCRIPTION_H_
