// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired/accepted_state.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/json_text.h"
#include "src/base/json_value.h"

namespace processor {
namespace {

// Both texts have been parsed before, or are empty.
nlohmann::json ParsedOrEmpty(std::string_view text) {
  nlohmann::json document = nlohmann::json::object();
  std::vector<JsonFault> faults;
  if (!text.empty()) ParseJson("desired.json", text, &document, &faults).IgnoreError();
  return document;
}

bool AnyRefused(const DesiredState& state) {
  for (const DesiredFault& fault : state.faults) {
    if (fault.refuses_model()) return true;
  }
  return false;
}

// Replaces a refused model by that of the former document, or removes it.
void Replace(const std::string& model, const nlohmann::json& former, nlohmann::json* document) {
  nlohmann::json& models = (*document)["models"];
  const auto kept = former.find("models");
  if (kept != former.end() && kept->is_object() && kept->contains(model)) {
    models[model] = kept->at(model);
  } else {
    models.erase(model);
  }
}

}  // namespace

absl::Status AcceptDesired(std::string_view text, std::string_view former, std::string_view host_id,
                           AcceptedState* accepted) {
  AcceptedState read;
  if (absl::Status s = ParseDesiredState(text, host_id, &read.state); !s.ok()) return s;
  read.text = text;
  nlohmann::json kept = ParsedOrEmpty(AnyRefused(read.state) ? former : "");
  // An entry that was accepted before is accepted again; if not, the second pass removes it.
  for (int turn = 0; turn < 3; ++turn) {
    nlohmann::json document;
    for (const DesiredFault& fault : read.state.faults) {
      if (fault.version != 0) continue;
      if (turn == 0) {
        absl::StrAppend(&read.error, read.error.empty() ? "" : "; ", fault.message,
                        fault.refuses_model() ? ", the model stays as it was" : "");
      }
      if (!fault.refuses_model()) continue;
      if (document.is_null()) document = ParsedOrEmpty(read.text);
      Replace(fault.model, turn == 0 ? kept : nlohmann::json::object(), &document);
    }
    if (document.is_null()) break;
    read.text = JsonText(document);
    DesiredState again;
    if (absl::Status s = ParseDesiredState(read.text, host_id, &again); !s.ok()) return s;
    read.state = std::move(again);
  }
  *accepted = std::move(read);
  return absl::OkStatus();
}

}  // namespace processor
