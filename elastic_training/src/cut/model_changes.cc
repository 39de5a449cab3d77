// SPDX-License-Identifier: Apache-2.0
#include "src/cut/model_changes.h"

namespace elastic_training {

ModelChanges::ModelChanges(const std::vector<ElasticTable*>& tables, size_t memory_bytes, Writers* writers)
    : memory_{memory_bytes} {
  for (ElasticTable* const table : tables) cuts_.push_back(std::make_unique<ChangesCut>(table, &memory_));
  writers->Stop();
  for (const auto& cut : cuts_) cut->Begin();
  writers->Resume();
}

bool ModelChanges::End(bool succeeded) {
  bool whole = succeeded;
  for (const auto& cut : cuts_) whole = cut->End() && whole;
  return whole;
}

}  // namespace elastic_training
