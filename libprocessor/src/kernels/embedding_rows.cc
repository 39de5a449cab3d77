// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding_rows.h"

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace processor {
namespace {

using tensorflow::tstring;

// A table fetches what many keys need while it looks for others. Of few it is fetched for all tables first.
constexpr size_t kFewKeys = 16;

// Numbers of rows of a direct table whose rows are all there; false: some key is not.
bool DirectRows(const int64_t* keys, size_t n, uint64_t rows, uint32_t* numbers) {
  bool beyond = false;
  for (size_t i = 0; i < n; ++i) {
    beyond |= static_cast<uint64_t>(keys[i]) >= rows;
    numbers[i] = static_cast<uint32_t>(keys[i]);
  }
  return !beyond;
}

absl::Status RefuseKey(const PlanKey& key, const KeySteps& steps, const KeyValues& values, int64_t position,
                       const EmbeddingTable& table) {
  const void* value = static_cast<const char*>(values.values) + position * steps.value_size();
  std::string shown;
  uint8_t none;
  if (steps.gives_strings()) {
    tstring made;
    if (!steps.passes_strings()) steps.Strings(value, 1, &made, &none);
    const tstring& text = steps.passes_strings() ? *static_cast<const tstring*>(value) : made;
    const absl::string_view start(text.data(), std::min<size_t>(text.size(), 100));
    shown = absl::StrCat("'", absl::CHexEscape(start), "'");
  } else {
    int64_t number = 0;
    steps.Numbers(value, 1, &number, &none);
    shown = absl::StrCat(number);
  }
  return absl::InvalidArgumentError(absl::StrCat("embedding group: feature ", key.feature, ": key ", shown,
                                                 " at position ", position, ", expected one that table ", table.path(),
                                                 " holds"));
}

}  // namespace

void EmbeddingRows::MakeKeys(absl::Span<const KeySteps> steps, const EmbeddingRequest& request, int64_t begin,
                             int64_t end) {
  size_t all = 0, all_made = 0;
  for (size_t k = 0; k < steps.size(); ++k) {
    const size_t n = request.keys[k].Begin(end) - request.keys[k].Begin(begin);
    all += n;
    if (steps[k].gives_strings() && !steps[k].passes_strings()) all_made += n;
  }
  int64_t* numbers = numbers_.Get(all);
  uint8_t* none = none_.Get(all);
  tstring* made = strings_.Get(all_made);
  keys_.resize(steps.size());
  // Steps whose results `shared_` has, of the keys before.
  size_t kept = 0;
  bool kept_none = false;
  for (size_t k = 0; k < steps.size(); ++k) {
    const KeyValues& values = request.keys[k];
    const int64_t first = values.Begin(begin);
    const size_t n = values.Begin(end) - first;
    const void* src = static_cast<const char*>(values.values) + first * steps[k].value_size();
    bool any_none;
    keys_[k] = {n, numbers, nullptr, none};
    const size_t wanted = k + 1 < steps.size() ? steps[k + 1].shared() : 0;
    if (steps[k].gives_strings()) kept = 0;
    if (!steps[k].gives_strings() && kept > 0 && steps[k].shared() == kept) {
      std::copy_n(shared_.Get(n), n, numbers);
      if (kept_none) std::copy_n(shared_none_.Get(n), n, none);
      any_none = steps[k].Finish(kept, n, numbers, none, kept_none);
    } else if (!steps[k].gives_strings() && wanted > 0) {
      kept = wanted;
      kept_none = steps[k].Start(src, n, kept, numbers, none);
      std::copy_n(numbers, n, shared_.Get(n));
      if (kept_none) std::copy_n(none, n, shared_none_.Get(n));
      any_none = steps[k].Finish(kept, n, numbers, none, kept_none);
    } else if (!steps[k].gives_strings()) {
      kept = 0;
      any_none = steps[k].Numbers(src, n, numbers, none);
    } else if (steps[k].passes_strings()) {
      keys_[k].strings = static_cast<const tstring*>(src);
      any_none = steps[k].Strings(src, n, nullptr, none);
    } else {
      keys_[k].strings = made;
      any_none = steps[k].Strings(src, n, made, none);
      made += n;
    }
    if (!any_none) keys_[k].none = nullptr;
    numbers += n;
    none += n;
  }
}

absl::Status EmbeddingRows::Find(const EmbeddingPlan& plan, absl::Span<const KeySteps> steps,
                                 const EmbeddingBinding& binding, const EmbeddingRequest& request, int64_t begin,
                                 int64_t end) {
  MakeKeys(steps, request, begin, end);
  const absl::Span<const EmbeddingBinding::Lookup> lookups = binding.lookups();
  size_t all = 0;
  for (const EmbeddingBinding::Lookup& lookup : lookups) {
    const KeyBlock& key = keys_[lookup.key];
    all += key.n;
    if (lookup.table->index_kind() == IndexKind::kDirect || key.n > kFewKeys) continue;
    const auto fetch = [&](const auto& table) {
      if (key.strings != nullptr) {
        table.FetchIndex(absl::MakeConstSpan(key.strings, key.n));
      } else {
        table.FetchIndex(absl::MakeConstSpan(key.numbers, key.n));
      }
    };
    if (lookup.live >= 0) {
      fetch(request.view->table(lookup.live));
    } else {
      fetch(*lookup.table);
    }
  }
  uint32_t* rows = rows_.Get(all);
  lookups_.resize(lookups.size());
  for (size_t l = 0; l < lookups.size(); ++l) {
    const KeyBlock& key = keys_[lookups[l].key];
    const EmbeddingTable& table = *lookups[l].table;
    lookups_[l] = rows;
    bool all_there = false;
    if (lookups[l].live >= 0) {
      const TableView& at_epoch = request.view->table(lookups[l].live);
      if (key.strings != nullptr) {
        at_epoch.FindRows(absl::MakeConstSpan(key.strings, key.n), rows);
      } else {
        at_epoch.FindRows(absl::MakeConstSpan(key.numbers, key.n), rows);
      }
    } else if (key.strings != nullptr) {
      table.FindRows(absl::MakeConstSpan(key.strings, key.n), rows);
    } else if (table.index_kind() == IndexKind::kDirect && DirectRows(key.numbers, key.n, table.rows(), rows)) {
      all_there = true;
    } else {
      table.FindRows(absl::MakeConstSpan(key.numbers, key.n), rows);
    }
    if (key.none != nullptr) {
      for (size_t i = 0; i < key.n; ++i) rows[i] = key.none[i] ? kNoRow : rows[i];
    }
    if (!all_there && table.absent_key() == AbsentKey::kError) {
      const uint32_t* refused = std::find(rows, rows + key.n, kRefusedRow);
      if (refused != rows + key.n) {
        const int k = lookups[l].key;
        return RefuseKey(plan.keys[k], steps[k], request.keys[k], request.keys[k].Begin(begin) + (refused - rows),
                         table);
      }
    }
    rows += key.n;
  }
  return absl::OkStatus();
}

}  // namespace processor
