// SPDX-License-Identifier: Apache-2.0
// Checks whether the files of a version are those that were deployed.
//
// The hash of a model covers the name, size and content of every file below its folder. Reading gigabytes at each start
// would take as long as loading them. Therefore a seal, made of names, sizes and times, shows whether a file was
// written since the hash was computed: a change of content changes a file's ctime, which no program can set. Tables
// (`.emb`) are hard links that several models share, and another link changes the ctime as well: for them the time of
// writing counts, and their own checksums, which are compared when they are mapped.
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

/// A file of a model.
struct ModelFile {
  std::string name;  // below the folder
  std::string path;
  struct stat found;
};

/// Lists the files below a folder in the order in which they are hashed. Links are followed, except to a folder that
/// the link lies in; folders that cannot be listed are left out.
/// \return why a file cannot be examined.
absl::Status ListModelFiles(const std::string& folder, std::vector<ModelFile>* files);

/// Returns the seal of files: 64 hexadecimal digits.
std::string SealOf(const std::vector<ModelFile>& files);

/// Reads and hashes all files. `give_up` is called every few megabytes.
/// \return CANCELLED once it returns true.
absl::Status HashModelFiles(const std::vector<ModelFile>& files, const std::function<bool()>& give_up,
                            std::string* sha256);

/// Checks versions when they are loaded, and records in a file which of them were verified. Any thread may call;
/// LoadLanes owns it.
class FileChecker {
 public:
  explicit FileChecker(std::string record);

  /// Compares the files in a folder with those that were deployed, and reads them if necessary. `seal` is set to that
  /// of the files, or to "" if it is not known what was deployed.
  /// \return FAILED_PRECONDITION with both hashes if they differ.
  absl::Status Check(const std::string& folder, const DesiredFiles& deployed, const std::function<bool()>& give_up,
                     std::string* seal);

  /// Checks that nothing was written since Check() made the seal.
  /// \return FAILED_PRECONDITION if something was.
  static absl::Status Unchanged(const std::string& folder, const std::string& seal);

 private:
  void Remember(const std::string& folder, const std::string& seal, const std::string& sha256);

  const std::string record_;
  std::mutex mutex_;
  std::map<std::string, std::pair<std::string, std::string>> known_;  // folder -> seal, hash
};

}  // namespace processor

#endif  // PROCESSOR_HOST_VERSIONS_MODEL_FILES_H_
