// SPDX-License-Identifier: Apache-2.0
// Memory that processes share by a file without a name (memfd), and that nobody can change once it is sealed.
#ifndef PROCESSOR_TABLES_RESIDENT_MEMORY_H_
#define PROCESSOR_TABLES_RESIDENT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace processor {

/// The pages of memory, from the best kind on.
enum class PageKind {
  kReserved,     // huge pages that the administrator has set aside (vm.nr_hugepages)
  kTransparent,  // huge pages that the kernel has found, for all but the end
  kMixed,        // some of these
  kSmall,
};

/// Returns "reserved", "transparent", "mixed" or "small".
const char* PageKindName(PageKind kind);

/// Owns a descriptor, and a mapping of its bytes at the beginning of a huge page. Any thread may read them once they are sealed.
class ResidentMemory {
 public:
  /// Takes memory with all its pages, so that writing to it cannot fail: reserved huge pages if enough of them are free, else
  /// other pages, as huge as the kernel makes them.
  /// `name`: what /proc shows. `on_progress`: called while pages are taken.
  /// \return RESOURCE_EXHAUSTED if the machine or a cgroup of the process has not as much; UNAVAILABLE without memfd.
  static absl::Status Create(const std::string& name, uint64_t bytes, const std::function<void()>& on_progress,
                             std::unique_ptr<ResidentMemory>* memory);

  /// Maps sealed memory of another process. The descriptor, which can only be read, belongs to the object, also after an error.
  /// \return FAILED_PRECONDITION if it is no memfd of this size that is sealed and belongs to this user; RESOURCE_EXHAUSTED.
  static absl::Status Adopt(int descriptor, uint64_t bytes, std::unique_ptr<ResidentMemory>* memory);

  ~ResidentMemory();
  ResidentMemory(const ResidentMemory&) = delete;
  ResidentMemory& operator=(const ResidentMemory&) = delete;

  /// Returns the bytes, which can be written until Seal().
  uint8_t* writable() { return is_sealed_ ? nullptr : data_; }
  /// Lets nobody change the bytes or their number any more. \return UNAVAILABLE if the kernel refuses.
  absl::Status Seal();

  const uint8_t* data() const { return data_; }
  /// Bytes with those that fill the last page.
  size_t size() const { return size_; }
  /// Whole pages: mappings begin and end with one.
  size_t page_bytes() const { return page_bytes_; }
  PageKind page_kind() const { return kind_; }
  /// Bytes that are in huge pages.
  size_t huge_bytes() const { return huge_bytes_; }
  int descriptor() const { return descriptor_; }

  /// Maps the first bytes, a number of pages, once more at an address that begins with a page; what was mapped there goes.
  bool MapAt(uint8_t* address, size_t bytes) const;

 private:
  ResidentMemory() = default;

  absl::Status TakeReserved(const std::string& name, uint64_t bytes, const std::function<void()>& on_progress);
  absl::Status TakePages(const std::string& name, uint64_t bytes, const std::function<void()>& on_progress);
  absl::Status Map(int protection);
  absl::Status MapForReading();

  int descriptor_ = -1;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t page_bytes_ = 4096;
  size_t huge_bytes_ = 0;
  PageKind kind_ = PageKind::kSmall;
  bool is_sealed_ = false;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_RESIDENT_MEMORY_H_
