// SPDX-License-Identifier: Apache-2.0
// RecEmbeddingGroup on a live model: a tenth of the rows changed against none, right after the epoch and when the rows have
// been written in place, and the time to apply an epoch.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/direct_table.h"
#include "kernels/kernel_case.h"
#include "kernels/op_runner.h"
#include "src/kernels/embedding_table_resource.h"
#include "src/live/live_model.h"
#include "table_file.h"
#include "temporary_folder.h"
#include "tensorflow/core/framework/node_def_builder.h"

namespace processor::bench {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr uint32_t kLiveDim = 16;
constexpr int64_t kIds = 4096;
constexpr int kIdRequests = 512;  // of other rows each, so that no cache holds what they read

void Must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

int64_t KeyOf(uint64_t row) { return static_cast<int64_t>(row) * 7 - 50; }

// A table with keys, whose file is gone when it has been mapped.
std::shared_ptr<const EmbeddingTable> MakeKeyTable(uint64_t rows) {
  TableFileContent content;
  content.dim = kLiveDim;
  content.version = 1;
  content.index_kind = IndexKind::kInt64;
  for (uint64_t row = 0; row < rows; ++row) {
    content.keys.push_back(KeyOf(row));
    const auto value = static_cast<float>(row % 1000);
    content.row_data.append(64, '\0');
    std::memcpy(&content.row_data[64 * row], &value, sizeof(value));
  }
  const TemporaryFolder folder;
  std::shared_ptr<const EmbeddingTable> table;
  Must(EmbeddingTable::Open(folder.Write("table.emb", content.Bytes()), &table));
  return table;
}

// A live model of one table of `rows`, of which each one in `every` has changed; 0: none.
class LiveRows {
 public:
  LiveRows(uint64_t rows, uint64_t every, bool keys, bool in_place = false)
      : rows_(rows), every_(every), has_keys_(keys), runner_(Node()) {
    table_ = keys ? MakeKeyTable(rows) : MakeDirectTable(RowType::kFloat32, kLiveDim, rows);
    handle_ = runner_.AddResource("table", new EmbeddingTableResource(table_));
    LiveDescription description;
    LiveDescription::Table& table = description.tables.emplace_back();
    table.source = "table";
    table.dim = kLiveDim;
    Must(LiveModel::Create(std::move(description), {table_},
                           {TableResourceName(handle_.scalar<tensorflow::ResourceHandle>()())}, nullptr, &model_));
    if (every > 0) {
      for (uint64_t row = 0; row < rows; row += every) keys_.push_back(keys ? KeyOf(row) : static_cast<int64_t>(row));
      Apply();
      while (in_place && model_->Compact(std::chrono::seconds(1))) {
      }
    }
    std::mt19937_64 random(1);
    for (int r = 0; r < kIdRequests; ++r) {
      Tensor ids(tensorflow::DT_INT64, TensorShape({kIds}));
      for (int64_t i = 0; i < kIds; ++i) {
        const auto row = static_cast<uint64_t>(static_cast<unsigned __int128>(random()) * rows >> 64);
        ids.flat<int64_t>()(i) = keys ? KeyOf(row) : static_cast<int64_t>(row);
      }
      requests_.push_back(std::move(ids));
    }
  }

  void Run() {
    at_ = (at_ + 1) % requests_.size();
    runner_.Run({requests_[at_], handle_, model_->Pin()});
  }

  // Changes the rows of `keys_` to 1000 plus the epoch.
  void Apply() {
    ++epoch_;
    values_.assign(keys_.size() * kLiveDim, 1000.0f + static_cast<float>(epoch_));
    DeltaTable delta;
    delta.name = "table";
    delta.dim = kLiveDim;
    delta.changed = {DeltaKeyKind::kInt64, keys_.size(), keys_.data(), nullptr, nullptr};
    delta.rows = values_.data();
    LiveModel::Changes changes{"epoch", {}, absl::MakeConstSpan(&delta, 1), {}, {}};
    changes.header.first_epoch = changes.header.last_epoch = epoch_;
    Must(model_->Apply(changes));
  }

  void SetKeys(size_t count) {
    std::mt19937_64 random(2);
    keys_.clear();
    for (uint64_t row = random() % 8; keys_.size() < count; row += 1 + random() % (2 * rows_ / count - 1)) {
      keys_.push_back(static_cast<int64_t>(row % rows_));
    }
  }

  std::string Check() {
    Run();
    const float* found = runner_.output(0).flat<float>().data();
    for (int64_t i = 0; i < kIds; ++i) {
      const int64_t id = requests_[at_].flat<int64_t>()(i);
      const auto row = static_cast<uint64_t>(has_keys_ ? (id + 50) / 7 : id);
      float expected = 1000.0f + static_cast<float>(epoch_);
      if (every_ == 0 || row % every_ != 0) std::memcpy(&expected, table_->row(static_cast<uint32_t>(row)), 4);
      if (found[i * kLiveDim] != expected) {
        return absl::StrCat("row ", row, ": ", found[i * kLiveDim], ", expected ", expected);
      }
    }
    return "";
  }

 private:
  static tensorflow::NodeDef Node() {
    tensorflow::NodeDef node;
    node.set_name("group");
    node.set_op("RecEmbeddingGroup");
    for (const char* input : {"ids", "table", "view"}) node.add_input(input);
    tensorflow::AddNodeAttr("Tfeatures", std::vector<tensorflow::DataType>{tensorflow::DT_INT64}, &node);
    tensorflow::AddNodeAttr("num_tables", 1, &node);
    tensorflow::AddNodeAttr("num_outputs", 1, &node);
    tensorflow::AddNodeAttr("num_views", 1, &node);
    tensorflow::AddNodeAttr("plan",
                            R"({"version": 1, "outputs": [{"width": 16}], "keys": [{"feature": 0}], "columns":
                                [{"kind": "lookup", "key": 0, "table": 0, "output": 0, "offset": 0}]})",
                            &node);
    return node;
  }

  const uint64_t rows_, every_;
  const bool has_keys_;
  OpRunner runner_;
  std::shared_ptr<const EmbeddingTable> table_;
  Tensor handle_;
  tensorflow::core::RefCountPtr<LiveModel> model_;
  std::vector<int64_t> keys_;
  std::vector<float> values_;
  std::vector<Tensor> requests_;
  uint64_t epoch_ = 0;
  size_t at_ = 0;
};

const bool live_registered = [] {
  for (const auto& [keys, in_place] : {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
    const char* const name = keys ? "live/lookups/keys/changed:10%" : "live/lookups/rows/changed:10%";
    RegisterCase(absl::StrCat(name, in_place ? "/in_place" : "/new"), [keys = keys, in_place = in_place] {
      const uint64_t rows = keys ? 4'000'000 : 10'000'000;
      auto changed = std::make_shared<LiveRows>(rows, 10, keys, in_place);
      auto same = std::make_shared<LiveRows>(rows, 0, keys);
      KernelCase made;
      made.ways = {{"changed", [changed] { changed->Run(); }}, {"same", [same] { same->Run(); }}};
      made.check = [changed, same] { return changed->Check() + same->Check(); };
      return made;
    });
  }
  RegisterCase("live/apply/rows:100000", [] {
    auto live = std::make_shared<LiveRows>(10'000'000, 0, false);
    live->SetKeys(100'000);
    KernelCase made;
    made.ways = {{"apply", [live] { live->Apply(); }}};
    made.check = [] { return std::string(); };
    return made;
  });
  return true;
}();

}  // namespace
}  // namespace processor::bench
