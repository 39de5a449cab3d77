// SPDX-License-Identifier: Apache-2.0
// RecEmbeddingGroup: tables larger than the cache against reads of the same rows, quantized against fp32 rows, and a
// group of the shape of workload W1.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/direct_table.h"
#include "kernels/kernel_case.h"
#include "kernels/op_runner.h"
#include "src/kernels/embedding_table_resource.h"
#include "src/kernels/string_hash.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor::bench {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

using Tables = std::vector<std::shared_ptr<const EmbeddingTable>>;

// A group in an OpRunner, with its tables.
class Group {
 public:
  Group(const std::string& plan, const std::vector<DataType>& types, const Tables& tables, int outputs)
      : features_(types.size()), runner_(Node(plan, types, static_cast<int>(tables.size()), outputs)) {
    for (const auto& table : tables) {
      handles_.push_back(
          runner_.AddResource(absl::StrCat("table", handles_.size()), new EmbeddingTableResource(table)));
    }
  }

  /// Inputs of the kernel: the features, and the tables behind them.
  std::vector<Tensor> Inputs(std::vector<Tensor> features) const {
    features.insert(features.end(), handles_.begin(), handles_.end());
    return features;
  }
  void Run(const std::vector<Tensor>& inputs) { runner_.Run(inputs); }
  const float* output(int number) const { return runner_.output(number).flat<float>().data(); }

 private:
  static tensorflow::NodeDef Node(const std::string& plan, const std::vector<DataType>& types, int tables,
                                  int outputs) {
    tensorflow::NodeDef node;
    node.set_name("group");
    node.set_op("RecEmbeddingGroup");
    for (size_t i = 0; i < types.size() + tables; ++i) node.add_input(absl::StrCat("input", i));
    tensorflow::AddNodeAttr("Tfeatures", types, &node);
    tensorflow::AddNodeAttr("num_tables", tables, &node);
    tensorflow::AddNodeAttr("num_outputs", outputs, &node);
    tensorflow::AddNodeAttr("plan", plan, &node);
    return node;
  }

  size_t features_;
  OpRunner runner_;
  std::vector<Tensor> handles_;
};

float Element(const EmbeddingTable& table, uint32_t number, uint32_t e) {
  const uint8_t* row = table.row(number);
  float value = 0;
  uint16_t half;
  uint32_t bits;
  switch (table.row_type()) {
    case RowType::kFloat32:
      std::memcpy(&value, row + 4 * e, 4);
      return value;
    case RowType::kBfloat16:
      std::memcpy(&half, row + 2 * e, 2);
      bits = uint32_t{half} << 16;
      std::memcpy(&value, &bits, 4);
      return value;
    case RowType::kFloat16:
      std::memcpy(&half, row + 2 * e, 2);
      bits = half == 0 ? 0 : (uint32_t{half} << 13) + 0x38000000u;
      std::memcpy(&value, &bits, 4);
      return value;
    case RowType::kInt8:
      return static_cast<float>(row[4 + e]) / 256 + 1.0f / 16384;
    default:
      return static_cast<float>(row[4 + e / 2] >> (e % 2 * 4) & 15) / 16 + 1.0f / 16384;
  }
}

// ---- Tables larger than the last-level cache ----

constexpr int kIdFeatures = 8;
constexpr int64_t kIdBatch = 512;
constexpr int kRequests = 2048;  // of other rows each, so that no cache holds what they read

// `values_per_row` > 1: pooled.
class RandomRows {
 public:
  RandomRows(RowType type, uint32_t dim, uint64_t rows, int64_t per_row)
      : table_(MakeDirectTable(type, dim, rows)), per_row_(per_row) {
    std::string plan = absl::StrCat(R"({"version": 1, "outputs": [{"width": )", kIdFeatures * dim, "}], \"keys\": [");
    std::string columns;
    for (int f = 0; f < kIdFeatures; ++f) {
      absl::StrAppend(&plan, f == 0 ? "" : ", ", "{\"feature\": ", f, "}");
      absl::StrAppend(&columns, f == 0 ? "" : ", ", R"({"kind": "lookup", "table": 0, "output": 0, "key": )", f,
                      ", \"offset\": ", f * dim, per_row > 1 ? ", \"combiner\": \"mean\"}" : "}");
    }
    group_ = std::make_unique<Group>(absl::StrCat(plan, "], \"columns\": [", columns, "]}"),
                                     std::vector<DataType>(kIdFeatures, tensorflow::DT_INT32), Tables{table_}, 1);
    std::mt19937_64 random(1);
    for (int r = 0; r < Requests(); ++r) {
      std::vector<Tensor> ids;
      for (int f = 0; f < kIdFeatures; ++f) {
        ids.emplace_back(tensorflow::DT_INT32, TensorShape({Batch(), per_row_}));
        int32_t* data = ids.back().flat<int32_t>().data();
        for (int64_t i = 0; i < Batch() * per_row_; ++i) {
          data[i] = static_cast<int32_t>(static_cast<unsigned __int128>(random()) * rows >> 64);
        }
      }
      requests_.push_back(group_->Inputs(std::move(ids)));
    }
  }

  int64_t Lookups() const { return kIdFeatures * Batch() * per_row_; }
  double Bytes() const { return static_cast<double>(Lookups()) * RowBytes(table_->row_type(), table_->dim()); }

  void RunGroup() { group_->Run(Next()); }

  // The same rows in the same order, every line of them fetched ahead and added up, and nothing else.
  void ReadRows() {
    constexpr int64_t kAhead = 32;
    const std::vector<Tensor>& inputs = Next();
    const size_t bytes = RowBytes(table_->row_type(), table_->dim());
    uint64_t sum = 0;
    for (int f = 0; f < kIdFeatures; ++f) {
      const int32_t* ids = inputs[f].flat<int32_t>().data();
      const int64_t n = inputs[f].NumElements();
      for (int64_t i = 0; i < n; ++i) {
        if (i + kAhead < n) {
          const uint8_t* next = table_->row(ids[i + kAhead]);
          for (size_t b = 0; b < bytes; b += 64) __builtin_prefetch(next + b);
          __builtin_prefetch(next + bytes - 1);
        }
        const uint8_t* row = table_->row(ids[i]);
        uint64_t word;
        for (size_t b = 0; b + 8 <= bytes; b += 8) {
          std::memcpy(&word, row + b, 8);
          sum += word;
        }
      }
    }
    checksum_ = checksum_ + sum;
  }

  std::string Check() {
    RunGroup();
    const float* found = group_->output(0);
    const std::vector<Tensor>& inputs = requests_[at_];
    const uint32_t dim = table_->dim();
    for (int64_t row = 0; row < Batch(); ++row) {
      for (int f = 0; f < kIdFeatures; ++f) {
        const int32_t* ids = inputs[f].flat<int32_t>().data() + row * per_row_;
        for (uint32_t e = 0; e < dim; ++e) {
          double expected = 0;
          for (int64_t i = 0; i < per_row_; ++i)
            expected += Element(*table_, ids[i], e) / static_cast<double>(per_row_);
          const float value = found[(row * kIdFeatures + f) * dim + e];
          if (!(std::abs(value - expected) <= 1e-5 + 1e-5 * std::abs(expected))) {
            return absl::StrCat("row ", row, " feature ", f, " element ", e, ": ", value, ", expected ", expected);
          }
        }
      }
    }
    return "";
  }

 private:
  int64_t Batch() const { return kIdBatch / per_row_; }
  int Requests() const { return kRequests; }
  const std::vector<Tensor>& Next() {
    at_ = (at_ + 1) % requests_.size();
    return requests_[at_];
  }

  std::shared_ptr<const EmbeddingTable> table_;
  int64_t per_row_;
  std::unique_ptr<Group> group_;
  std::vector<std::vector<Tensor>> requests_;
  size_t at_ = 0;
  volatile uint64_t checksum_ = 0;
};

const char* NameOf(RowType type) {
  static const char* const kNames[] = {"fp32", "bf16", "fp16", "int8", "int4"};
  return kNames[static_cast<int>(type)];
}

// Rows so that the smallest of the tables of a dimension, that of int4, exceeds most last-level caches.
uint64_t RowsOf(uint32_t dim) { return (uint64_t{400} << 20) / RowBytes(RowType::kInt4, dim); }

KernelCase AgainstReads(RowType type, uint32_t dim, uint64_t rows, int64_t per_row) {
  auto ours = std::make_shared<RandomRows>(type, dim, rows, per_row);
  KernelCase made;
  made.bytes = ours->Bytes();
  made.ways = {{"group", [ours] { ours->RunGroup(); }}, {"reads", [ours] { ours->ReadRows(); }}};
  made.check = [ours] { return ours->Check(); };
  return made;
}

KernelCase AgainstFloats(RowType type, uint32_t dim) {
  auto ours = std::make_shared<RandomRows>(type, dim, RowsOf(dim), 1);
  auto floats = std::make_shared<RandomRows>(RowType::kFloat32, dim, RowsOf(dim), 1);
  KernelCase made;
  made.ways = {{NameOf(type), [ours] { ours->RunGroup(); }}, {"fp32", [floats] { floats->RunGroup(); }}};
  made.check = [ours, floats] { return ours->Check() + floats->Check(); };
  return made;
}

// ---- The shape of W1: 13 numbers and 26 strings, each looked up in a deep table [buckets, 16] and a wide one [buckets, 1]

constexpr int kBuckets[] = {2500, 2000,  100000, 100000, 1000,  100, 20000, 1000,   10,  20000, 10000,  100000, 10000,
                            100,  10000, 100000, 10,     10000, 10,  10,    100000, 100, 100,   100000, 1000,   100000};
constexpr int kStrings = 26, kNumbers = 13, kDim = 16;

class WideAndDeep {
 public:
  explicit WideAndDeep(int64_t batch) : batch_(batch) {
    std::string keys, columns, linear;
    std::vector<DataType> types(kStrings, tensorflow::DT_STRING);
    for (int f = 0; f < kStrings; ++f) {
      absl::StrAppend(&keys, f == 0 ? "" : ", ", "{\"feature\": ", f,
                      R"(, "ignore": "", "steps": [{"op": "fast_hash", "buckets": )", kBuckets[f], "}]}");
      absl::StrAppend(&columns, f == 0 ? "" : ", ", R"({"kind": "lookup", "combiner": "mean", "output": 0, "key": )", f,
                      ", \"table\": ", f, ", \"offset\": ", kNumbers + f * kDim, "}");
      absl::StrAppend(&linear,
                      R"(, {"kind": "lookup", "combiner": "sum", "accumulate": true, "output": 1, "offset": 0)",
                      ", \"key\": ", f, ", \"table\": ", kStrings + f, "}");
      tables_.push_back(MakeDirectTable(RowType::kFloat32, kDim, kBuckets[f]));
    }
    for (int f = 0; f < kStrings; ++f) tables_.push_back(MakeDirectTable(RowType::kFloat32, 1, kBuckets[f]));
    for (int f = 0; f < kNumbers; ++f) {
      absl::StrAppend(&columns, R"(, {"kind": "copy", "output": 0, "width": 1, "offset": )", f,
                      ", \"feature\": ", kStrings + f, "}");
      absl::StrAppend(&linear,
                      R"(, {"kind": "linear", "accumulate": true, "output": 1, "offset": 0, "weights": [[0.5]])",
                      ", \"feature\": ", kStrings + f, "}");
      types.push_back(tensorflow::DT_FLOAT);
    }
    const std::string plan = absl::StrCat(R"({"version": 1, "outputs": [{"width": )", kNumbers + kStrings * kDim,
                                          R"(}, {"width": 1, "initial": [0.25]}], "keys": [)", keys,
                                          "], \"columns\": [", columns, linear, "]}");
    group_ = std::make_unique<Group>(plan, types, tables_, 2);
    std::mt19937_64 random(2);
    const int64_t requests = std::max<int64_t>(1, 4096 / batch);
    for (int64_t r = 0; r < requests; ++r) {
      std::vector<Tensor> features;
      for (int f = 0; f < kStrings; ++f) {
        features.emplace_back(tensorflow::DT_STRING, TensorShape({batch}));
        for (int64_t i = 0; i < batch; ++i)
          features.back().flat<tstring>()(i) = absl::StrCat(absl::Hex(random() >> 32));
      }
      for (int f = 0; f < kNumbers; ++f) {
        features.emplace_back(tensorflow::DT_FLOAT, TensorShape({batch}));
        for (int64_t i = 0; i < batch; ++i) features.back().flat<float>()(i) = static_cast<float>(random() % 100);
      }
      requests_.push_back(group_->Inputs(std::move(features)));
    }
  }

  void RunGroup() { group_->Run(requests_[at_ = (at_ + 1) % requests_.size()]); }

  // Only what cannot be left out: hashes, and rows copied one after the other.
  void RunPlainly() {
    const std::vector<Tensor>& inputs = requests_[at_ = (at_ + 1) % requests_.size()];
    constexpr int kWidth = kNumbers + kStrings * kDim;
    deep_.resize(batch_ * kWidth);
    wide_.assign(batch_, 0.25f);
    for (int f = 0; f < kStrings; ++f) {
      const tstring* strings = inputs[f].flat<tstring>().data();
      for (int64_t i = 0; i < batch_; ++i) {
        const auto row = static_cast<uint32_t>(FastHash(strings[i].data(), strings[i].size()) % kBuckets[f]);
        std::memcpy(&deep_[i * kWidth + kNumbers + f * kDim], tables_[f]->row(row), sizeof(float) * kDim);
        float value;
        std::memcpy(&value, tables_[kStrings + f]->row(row), sizeof(value));
        wide_[i] += value;
      }
    }
    for (int f = 0; f < kNumbers; ++f) {
      const float* numbers = inputs[kStrings + f].flat<float>().data();
      for (int64_t i = 0; i < batch_; ++i) {
        deep_[i * kWidth + f] = numbers[i];
        wide_[i] += numbers[i] * 0.5f;
      }
    }
  }

  std::string Check() {
    RunGroup();
    at_ = (at_ + requests_.size() - 1) % requests_.size();
    RunPlainly();
    if (!std::equal(deep_.begin(), deep_.end(), group_->output(0))) return "other deep columns";
    return std::equal(wide_.begin(), wide_.end(), group_->output(1)) ? "" : "other sums";
  }

 private:
  int64_t batch_;
  Tables tables_;
  std::unique_ptr<Group> group_;
  std::vector<std::vector<Tensor>> requests_;
  size_t at_ = 0;
  std::vector<float> deep_, wide_;
};

KernelCase WideAndDeepCase(int64_t batch) {
  auto model = std::make_shared<WideAndDeep>(batch);
  KernelCase made;
  made.ways = {{"group", [model] { model->RunGroup(); }}, {"loops", [model] { model->RunPlainly(); }}};
  made.check = [model] { return model->Check(); };
  return made;
}

const bool embedding_registered = [] {
  for (const int64_t rows : {1, 16, 128, 512}) {
    RegisterCase(absl::StrCat("embedding/w1/rows:", rows), [rows] { return WideAndDeepCase(rows); });
  }
  // 1.5 GiB each.
  for (const uint32_t dim : {16, 32, 64}) {
    const uint64_t rows = (uint64_t{3} << 29) / (4 * dim);
    RegisterCase(absl::StrCat("embedding/reads/fp32/dim:", dim),
                 [=] { return AgainstReads(RowType::kFloat32, dim, rows, 1); });
    RegisterCase(absl::StrCat("embedding/reads/fp32/dim:", dim, "/pooled:16"),
                 [=] { return AgainstReads(RowType::kFloat32, dim, rows, 16); });
  }
  for (const RowType type : {RowType::kInt8, RowType::kInt4, RowType::kBfloat16}) {
    for (const uint32_t dim : {16, 64}) {
      RegisterCase(absl::StrCat("embedding/", NameOf(type), "-fp32/dim:", dim),
                   [=] { return AgainstFloats(type, dim); });
    }
  }
  return true;
}();

}  // namespace
}  // namespace processor::bench
