// SPDX-License-Identifier: Apache-2.0
// Resident tables, and processes that have them.
#ifndef PROCESSOR_TESTS_TABLES_RESIDENT_FIXTURE_H_
#define PROCESSOR_TESTS_TABLES_RESIDENT_FIXTURE_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "src/tables/embedding_table.h"
#include "table_file.h"
#include "temporary_folder.h"

namespace processor {

/// This program in another process, which opens a table, checks it and holds it until it is killed: the test
/// ResidentTableProcess.HoldsATable.
class OtherProcess {
 public:
  /// Begins.
  OtherProcess(const std::string& path, const std::string& share_folder) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const std::string end = std::to_string(ends[1]);
    const char* const arguments[] = {"/proc/self/exe", "--gtest_filter=ResidentTableProcess.HoldsATable", nullptr};
    process_ = fork();
    if (process_ == 0) {
      setenv("HELD_TABLE", path.c_str(), 1);
      setenv("HELD_FOLDER", share_folder.c_str(), 1);
      setenv("HELD_PIPE", end.c_str(), 1);
      execv(arguments[0], const_cast<char* const*>(arguments));
      _exit(1);
    }
    close(ends[1]);
    end_ = ends[0];
  }
  ~OtherProcess() {
    Kill();
    close(end_);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  /// Waits until it holds the table; returns 'r' if it received the table, 'l' if it has loaded it, 'x' if it failed.
  char Answer() {
    if (answer_ == 0 && read(end_, &answer_, 1) != 1) answer_ = 'x';
    return answer_;
  }
  void Stop() const { kill(process_, SIGSTOP); }
  void Kill() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  pid_t process_ = -1;
  int end_ = -1;
  char answer_ = 0;
};

class ResidentTableTest : public testing::Test {
 protected:
  using Table = std::shared_ptr<const EmbeddingTable>;

  static TableFileContent Content() {
    TableFileContent content;
    content.dim = 26;
    content.row_stride = 104;
    content.rows = 30000;  // 3 MB: more than a huge page
    content.absent_key = AbsentKey::kDefaultRows;
    content.default_rows = 3;
    content.index_kind = IndexKind::kInt64;
    for (int64_t i = 0; i < 30000; ++i) content.keys.push_back(i * 7919 - 1000000);
    return content;
  }

  /// Writes a file whose name is a hash, into a folder of its own.
  std::string Write(const std::string& bytes, char digit = 'a') {
    return folder_.Write(std::to_string(++files_) + "/" + std::string(64, digit) + ".emb", bytes);
  }

  static TableStorage Storage(const std::string& share_folder) {
    TableStorage storage;
    storage.resident = true;
    storage.share_folder = share_folder;
    return storage;
  }
  absl::Status Open(const std::string& path, Table* table) const {
    return EmbeddingTable::Open(path, Storage(folder_.Path("shared")), table);
  }
  OtherProcess Other(const std::string& path) const { return OtherProcess(path, folder_.Path("shared")); }
  Table MustOpen(const std::string& path) const {
    Table table;
    const absl::Status status = Open(path, &table);
    EXPECT_TRUE(status.ok()) << status;
    return table;
  }

  std::vector<std::string> Shared() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.Path("shared"))) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  /// Whether a table has the rows and keys of Content().
  static bool HasContent(const EmbeddingTable& table) {
    static const TableFileContent content = Content();
    static const std::string bytes = content.Bytes();
    const uint64_t rows = Get<uint64_t>(bytes, kSectionFields[0]);
    if (std::memcmp(table.row(0), bytes.data() + rows, Get<uint64_t>(bytes, kSectionFields[0] + 8)) != 0) return false;
    std::vector<uint32_t> found(content.keys.size());
    if (table.FindKeys(absl::MakeConstSpan(content.keys), found.data()) != 0) return false;
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] != i) return false;
    }
    return true;
  }

  TemporaryFolder folder_;
  int files_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_TESTS_TABLES_RESIDENT_FIXTURE_H_
