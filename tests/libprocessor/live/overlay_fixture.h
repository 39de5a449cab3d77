// SPDX-License-Identifier: Apache-2.0
// Tables of four floats, with overlays.
#ifndef PROCESSOR_TESTS_LIVE_OVERLAY_FIXTURE_H_
#define PROCESSOR_TESTS_LIVE_OVERLAY_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delta_fixture.h"
#include "src/live/overlay_table.h"
#include "src/live/table_view.h"
#include "table_file.h"
#include "temporary_folder.h"

namespace processor {

constexpr uint32_t kOverlayDim = 4;

inline std::vector<float> FourFrom(float value) { return {value, value + 1, value + 2, value + 3}; }

inline std::string RowsOfFloats(uint64_t rows) {
  std::string bytes;
  for (uint64_t row = 0; row < rows; ++row) {
    const std::vector<float> values = FourFrom(-static_cast<float>(row));
    bytes.append(reinterpret_cast<const char*>(values.data()), 4 * kOverlayDim);
  }
  return bytes;
}

inline TableFileContent OverlayContent(IndexKind kind, uint64_t rows, AbsentKey absent = AbsentKey::kDefaultRows) {
  TableFileContent content;
  content.index_kind = kind;
  content.dim = kOverlayDim;
  content.absent_key = absent;
  content.default_rows = absent == AbsentKey::kDefaultRows ? 3 : 0;
  content.rows = rows;
  for (uint64_t row = 0; row < rows; ++row) {
    content.keys.push_back(static_cast<int64_t>(row) * 7 - 50);
    content.texts.push_back("key " + std::to_string(row));
  }
  content.row_data = RowsOfFloats(rows + content.default_rows);
  return content;
}

class OverlayTableTest : public testing::Test {
 protected:
  void Open(const std::string& bytes, DeltaKeyKind kind = DeltaKeyKind::kInt64, SourceRows source = {}) {
    ASSERT_TRUE(EmbeddingTable::Open(folder_.Write("table.emb", bytes), &base_).ok());
    std::unique_ptr<OverlayTable> made;
    const absl::Status status = OverlayTable::Create(base_, kind, std::move(source), &made);
    ASSERT_TRUE(status.ok()) << status;
    overlay_ = std::move(made);
  }

  template <typename Key>
  absl::Status Apply(uint32_t epoch, DeltaFixture<Key>& delta) {
    OverlayTable::Change change;
    absl::Status status = overlay_->Prepare(delta.Table(), &change);
    if (status.ok()) overlay_->Commit(epoch, &change);
    return status;
  }

  // Compacts everything that no epoch before `oldest` reads; no request is running.
  void CompactFor(uint32_t oldest) {
    ++generation_;
    overlay_->SetReaders({oldest, generation_, generation_});
    EXPECT_FALSE(overlay_->Compact(std::chrono::steady_clock::time_point::max()));
    EXPECT_FALSE(overlay_->AdvanceIndex(std::chrono::steady_clock::time_point::max()));
    ++generation_;
    overlay_->SetReaders({oldest, generation_, generation_});
  }

  // Writes the newest versions into the rows of the file; no request is running.
  void WriteInPlaceFor(uint32_t oldest) {
    do {
      ++generation_;
      overlay_->SetReaders({oldest, generation_, generation_});
      EXPECT_FALSE(overlay_->WriteInPlace(std::chrono::steady_clock::time_point::max()));
    } while (overlay_->awaited() != 0);
    ++generation_;
    overlay_->SetReaders({oldest, generation_, generation_});
  }

  template <typename Key>
  static std::optional<std::vector<float>> Read(const TableView& view, const Key& key) {
    uint32_t row = 0;
    view.FindRows(absl::MakeConstSpan(&key, 1), &row);
    if (row >= kRefusedRow) return std::nullopt;
    std::vector<float> values(kOverlayDim);
    std::memcpy(values.data(), view.overlay().rows() + size_t{row} * view.base().row_stride(), 4 * kOverlayDim);
    return values;
  }

  const TemporaryFolder folder_;
  std::shared_ptr<const EmbeddingTable> base_;
  std::shared_ptr<OverlayTable> overlay_;
  uint64_t generation_ = 1;
};

template <typename Key>
Key NumberedKey(uint32_t number);
template <>
inline int64_t NumberedKey<int64_t>(uint32_t number) {
  return static_cast<int64_t>(number) * 7 - 50;
}
template <>
inline std::string NumberedKey<std::string>(uint32_t number) {
  return "key " + std::to_string(number);
}

}  // namespace processor

#endif  // PROCESSOR_TESTS_LIVE_OVERLAY_FIXTURE_H_
