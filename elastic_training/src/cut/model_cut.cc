// SPDX-License-Identifier: Apache-2.0
#include "src/cut/model_cut.h"

namespace elastic_training {

ModelCut::ModelCut(const std::vector<ElasticTable*>& tables, const CutSettings& settings, Writers* writers)
    : settings_(settings), memory_(writers, settings.memory_bytes) {
  for (ElasticTable* const table : tables) cuts_.push_back(std::make_unique<TableCut>(table, &memory_));
  writers->Stop();
  size_t begun = 0;
  try {
    for (; begun < cuts_.size(); ++begun) cuts_[begun]->BeginFilter(settings_.leaves_ssd ? settings_.token : 0);
  } catch (...) {
    for (size_t i = 0; i < begun; ++i) cuts_[i]->EndFilter();
    writers->Resume();
    throw;
  }
  for (const auto& cut : cuts_) changes_only_ = changes_only_ && cut->HasChangesSince(settings_.base);
  for (const auto& cut : cuts_) cut->Begin(changes_only_, settings_.token != 0);
  writers->Resume();
}

bool ModelCut::End(bool succeeded) {
  bool whole = succeeded;
  for (const auto& cut : cuts_) whole = cut->End(succeeded ? settings_.token : 0) && whole;
  return whole;
}

}  // namespace elastic_training
