// SPDX-License-Identifier: Apache-2.0
// Overlays of tables in memory that other processes share.
#include <gtest/gtest.h>

#include <string>

#include "overlay_fixture.h"

namespace processor {
namespace {

// The stride of a row. With the large one, the table is on reserved huge pages, if the machine has any.
class OverlayResidentTest : public OverlayTableTest, public testing::WithParamInterface<uint32_t> {
 protected:
  static constexpr uint32_t kRows = 10000;

  void SetUp() override {
    TableFileContent content;
    content.index_kind = IndexKind::kDirect;
    content.dim = kOverlayDim;
    content.rows = kRows;
    content.row_stride = GetParam();
    content.row_data.resize(uint64_t{kRows} * GetParam());
    for (uint32_t row = 0; row < kRows; ++row) {
      const std::vector<float> values = FourFrom(-static_cast<float>(row));
      std::memcpy(&content.row_data[uint64_t{row} * GetParam()], values.data(), 4 * kOverlayDim);
    }
    TableStorage storage;
    storage.resident = true;
    storage.share_folder = folder_.Path("shared");
    const absl::Status opened = EmbeddingTable::Open(folder_.Write("table.emb", content.Bytes()), storage, &base_);
    ASSERT_TRUE(opened.ok()) << opened;
    const ResidentMemory& memory = base_->resident()->memory();
    before_.assign(reinterpret_cast<const char*>(memory.data()), memory.size());
    overlay_ = NewOverlay();
  }

  std::shared_ptr<OverlayTable> NewOverlay() const {
    std::unique_ptr<OverlayTable> made;
    const absl::Status status = OverlayTable::Create(base_, DeltaKeyKind::kRowNumber, {}, &made);
    EXPECT_TRUE(status.ok()) << status;
    return made;
  }

  void Change(uint32_t rows, uint32_t epoch) {
    DeltaFixture<int64_t> delta;
    delta.kind = DeltaKeyKind::kRowNumber;
    for (uint32_t row = 0; row < rows; ++row) delta.changed[row] = FourFrom(static_cast<float>(epoch + row));
    ASSERT_TRUE(Apply(epoch, delta).ok());
  }

  void ExpectRows(uint32_t changed, uint32_t epoch) {
    const TableView view(overlay_, epoch);
    for (uint32_t row = 0; row < kRows; ++row) {
      const float expected = row < changed ? static_cast<float>(epoch + row) : -static_cast<float>(row);
      ASSERT_EQ(Read(view, int64_t{row}), FourFrom(expected)) << row;
    }
  }

  // What the other processes read.
  bool IsMemoryAsBefore() const {
    const ResidentMemory& memory = base_->resident()->memory();
    return std::memcmp(memory.data(), before_.data(), before_.size()) == 0;
  }

  std::string before_;
};

TEST_P(OverlayResidentTest, RowsThatAreWrittenInPlaceDoNotReachTheSharedMemory) {
  const std::shared_ptr<OverlayTable> other = NewOverlay();
  for (uint32_t epoch = 1; epoch <= 3; ++epoch) {
    Change(kRows, epoch);
    WriteInPlaceFor(epoch);
    CompactFor(epoch);
    EXPECT_TRUE(overlay_->IsInFile(epoch));
    EXPECT_EQ(overlay_->live_rows(), 0) << "all rows are in copies of blocks";
    ExpectRows(kRows, epoch);
  }
  EXPECT_TRUE(IsMemoryAsBefore());
  EXPECT_EQ(Read(TableView(other, 0), int64_t{77}), FourFrom(-77));
  EXPECT_EQ(Read(TableView(NewOverlay(), 0), int64_t{78}), FourFrom(-78));
}

TEST_P(OverlayResidentTest, FewRowsOfABlockStayBesideIt) {
  Change(kRows / 16, 1);
  WriteInPlaceFor(1);
  CompactFor(1);
  EXPECT_EQ(overlay_->live_rows(), kRows / 16) << "the memory of a block that was copied could not be given back";
  ExpectRows(kRows / 16, 1);
  EXPECT_TRUE(IsMemoryAsBefore());
}

INSTANTIATE_TEST_SUITE_P(Strides, OverlayResidentTest, testing::Values(16, 104, 2048));

}  // namespace
}  // namespace processor
