// SPDX-License-Identifier: Apache-2.0
// A segment of a timeline (docs/delta_format.md), read into memory and checked.
#ifndef PROCESSOR_TABLES_DELTA_SEGMENT_H_
#define PROCESSOR_TABLES_DELTA_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/tables/delta_content.h"
#include "src/tables/delta_header.h"

namespace processor {

/// Owns the bytes of one segment, to which all views refer. It is immutable; any thread may read it.
class DeltaSegment {
 public:
  /// Reads a file with pread(), so that a file that ends or fails is an error, and checks everything that a segment alone
  /// can show. Whether it fits a model and follows an epoch, others check.
  /// \return NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT if it is not a file, DATA_LOSS for a damaged file,
  /// FAILED_PRECONDITION for a newer version or an unknown feature, UNAVAILABLE or RESOURCE_EXHAUSTED; all name the file.
  static absl::Status Open(const std::string& path, std::unique_ptr<const DeltaSegment>* segment);

  ~DeltaSegment();
  DeltaSegment(const DeltaSegment&) = delete;
  DeltaSegment& operator=(const DeltaSegment&) = delete;

  const std::string& path() const { return path_; }
  /// Its `chain` is that of the last epoch, whether the segment is compacted or not.
  const DeltaHeader& header() const { return header_; }
  absl::Span<const DeltaTable> tables() const { return content_.tables; }
  absl::Span<const DeltaVariable> variables() const { return content_.variables; }
  absl::Span<const DeltaStream> streams() const { return content_.streams; }
  /// The chain hashes of all epochs but the last; empty if the segment does not list them.
  absl::Span<const ChainHash> chains() const { return content_.chains; }
  /// The whole file.
  absl::Span<const uint8_t> bytes() const { return {bytes_, static_cast<size_t>(header_.file_size)}; }

 private:
  explicit DeltaSegment(std::string path) : path_(std::move(path)) {}

  std::string path_;
  DeltaHeader header_;
  uint8_t* bytes_ = nullptr;
  DeltaContent content_;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_DELTA_SEGMENT_H_
