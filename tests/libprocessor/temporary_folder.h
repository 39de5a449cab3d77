// SPDX-License-Identifier: Apache-2.0
// A folder that is removed with the object, and files in it.
#ifndef PROCESSOR_TESTS_TEMPORARY_FOLDER_H_
#define PROCESSOR_TESTS_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace processor {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "processor-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

  /// Writes a file and the folders above it. An old one is replaced by renaming, so that it is another file each time.
  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::string file = Path(name);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream stream(file + ".new", std::ios::binary);
    stream << bytes;
    stream.close();
    if (!stream) throw std::runtime_error("cannot write " + file);
    std::filesystem::rename(file + ".new", file);
    return file;
  }

  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(Path(name), std::ios::binary).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

}  // namespace processor

#endif  // PROCESSOR_TESTS_TEMPORARY_FOLDER_H_
