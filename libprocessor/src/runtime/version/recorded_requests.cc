// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/recorded_requests.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "src/codec/prediction_log.h"
#include "tensorflow/core/lib/core/raw_coding.h"
#include "tensorflow/core/lib/hash/crc32c.h"
#include "tensorflow/core/lib/io/record_reader.h"
#include "tensorflow/core/platform/env.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxRecords = 1000;  // as in TensorFlow Serving

}  // namespace

bool HoldsRecords(const std::string& path) {
  // A TFRecord file begins with a length and the masked CRC of its eight bytes, which no request does by chance.
  char head[12];
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(head, sizeof head)) return false;
  return tensorflow::core::DecodeFixed32(head + 8) == tsl::crc32c::Mask(tsl::crc32c::Value(head, 8));
}

std::string WarmUpFileOf(const ModelConfig& config, const std::string& base_dir) {
  if (config.warmup_file_name.empty()) return "";
  // Hosts of the contract differ in what they pass.
  std::error_code error;
  const fs::path given(config.warmup_file_name);
  if (fs::exists(given, error) || given.is_absolute() || base_dir.empty()) return given.string();
  return (fs::path(base_dir) / given).string();
}

std::string RecordsOfModel(const std::string& saved_model_dir) {
  std::error_code error;
  const fs::path records = fs::path(saved_model_dir) / "assets.extra" / "tf_serving_warmup_requests";
  return fs::is_regular_file(records, error) ? records.string() : "";
}

absl::Status ReadRecordedRequests(const std::string& path, const std::function<absl::Status(std::string_view)>& visit,
                                  RecordCounts* counts) {
  std::unique_ptr<tensorflow::RandomAccessFile> file;
  if (absl::Status s = tensorflow::Env::Default()->NewRandomAccessFile(path, &file); !s.ok()) return s;
  tensorflow::io::SequentialRecordReader reader(file.get());
  *counts = RecordCounts();
  for (tensorflow::tstring record; counts->requests + counts->skipped < kMaxRecords;) {
    const absl::Status read = reader.ReadRecord(&record);
    if (absl::IsOutOfRange(read)) break;
    const std::string where = absl::StrCat("warm-up record ", counts->requests + counts->skipped, " of '", path, "': ");
    if (!read.ok()) return absl::Status(read.code(), absl::StrCat(where, read.message()));
    const auto request = PredictRequestOf(record);
    if (absl::IsUnimplemented(request.status())) {
      ++counts->skipped;
      continue;
    }
    absl::Status status = request.status();
    if (status.ok()) status = visit(*request);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(where, status.message()));
    ++counts->requests;
  }
  return absl::OkStatus();
}

}  // namespace processor
