// SPDX-License-Identifier: Apache-2.0
// Whether the files of a version are those that were deployed.
//
// The hash of a model covers every file below its folder: its name, its size and what is in it. To read gigabytes at each
// start would take as long as to load them. A seal, made of names, sizes and times, says that nothing has been written
// since the hash was taken: a change of contents changes a file's ctime, which no program can set. Tables (`.emb`) are
// links that several models share, and a link more changes the ctime as well: of them the time of writing counts, and their
// own checksums, which are compared when they are mapped.
#ifndef PROCESSOR_HOST_VERSIONS_MODEL_FILES_H_
#define PROCESSOR_HOST_VERSIONS_MODEL_FILES_H_

#include <sys/stat.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"

namespace processor {

struct ModelFile {
  std::string name;  // below the folder
  std::string path;
  struct stat found;
};

/// Lists the files below a folder in the order in which they are hashed: through links, but not to a folder that the link
/// lies in; what cannot be listed is left out.
/// \return why a file cannot be looked at.
absl::Status ListModelFiles(const std::string& folder, std::vector<ModelFile>* files);

/// 64 hexadecimal digits.
std::string SealOf(const std::vector<ModelFile>& files);

/// Reads all files. `give_up`: asked every few megabytes.
/// \return CANCELLED if it says so.
absl::Status HashModelFiles(const std::vector<ModelFile>& files, const std::function<bool()>& give_up,
                            std::string* sha256);

/// Checks versions when they are loaded, and remembers in a file what has been read. May be used by several threads.
class FileChecker {
 public:
  explicit FileChecker(std::string record);

  /// Compares the files in a folder with those that were deployed, and reads them if need be. `seal`: of what was found;
  /// empty where nobody knows what was deployed.
  /// \return FAILED_PRECONDITION with both hashes if they are others.
  absl::Status Check(const std::string& folder, const DesiredFiles& deployed, const std::function<bool()>& give_up,
                     std::string* seal);

  /// \return FAILED_PRECONDITION if something was written since Check() made the seal.
  static absl::Status Unchanged(const std::string& folder, const std::string& seal);

 private:
  void Remember(const std::string& folder, const std::string& seal, const std::string& sha256);

  const std::string record_;
  std::mutex mutex_;
  std::map<std::string, std::pair<std::string, std::string>> known_;  // folder -> seal, hash
};

}  // namespace processor

#endif  // PROCESSOR_HOST_VERSIONS_MODEL_FILES_H_
