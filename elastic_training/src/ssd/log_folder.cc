// SPDX-License-Identifier: Apache-2.0
#include "src/ssd/log_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <system_error>

#include "src/ssd/log_file.h"

namespace elastic_training {
namespace {

namespace fs = std::filesystem;
constexpr char kRunFile[] = "run.json";
constexpr char kPromise[] = "promise-";

std::string NewRun() {
  std::random_device device;
  char text[33];
  std::snprintf(text, sizeof(text), "%08x%08x%08x%07x", device(), device(), device(), device() >> 4);
  return text;
}

nlohmann::json ParsedFile(const fs::path& path) {
  std::ifstream stream(path);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object()) return parsed;
  throw SsdError(SsdError::Kind::kDamaged, path.string() + ": damaged, expected JSON; remove the folder to begin anew");
}

// A descriptor for the length of a block.
struct Descriptor {
  int number;
  ~Descriptor() { close(number); }
};

}  // namespace

LogFolder::LogFolder(const std::string& path) : path_(path) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw SsdError::OfCall(path_, "mkdir", error.value());
  const std::string lock = path_ + "/lock";
  lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) throw SsdError::OfCall(lock, "open", errno);
  try {
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      throw SsdError(SsdError::Kind::kRefused,
                     path_ + ": in use by another table or process, expected a folder for this table alone");
    }
    Read();
  } catch (...) {
    close(lock_);
    throw;
  }
}

LogFolder::~LogFolder() { close(lock_); }

void LogFolder::Read() {
  const fs::path run = fs::path(path_) / kRunFile;
  if (!fs::exists(run)) {
    if (const std::vector<uint32_t> serials = Serials(); !serials.empty()) {
      throw SsdError(SsdError::Kind::kRefused, path_ + "/" + LogFile::NameOf(serials[0]) +
                                                   ": of an unknown run, since there is no run.json; remove the file");
    }
    run_ = NewRun();
    WriteDurably(kRunFile, nlohmann::json({{"run", run_}}).dump());
    return;
  }
  run_ = ParsedFile(run).value("run", "");
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename();
    uint64_t token = 0;
    if (name.rfind(kPromise, 0) != 0 || entry.path().extension() != ".json") continue;
    if (std::sscanf(name.c_str() + sizeof(kPromise) - 1, "%" SCNx64, &token) != 1) continue;
    LogPromise promise;
    try {
      const nlohmann::json parsed = ParsedFile(entry.path());
      for (const nlohmann::json& file : parsed.at("files")) {
        promise.push_back({file.at(0), file.at(1), file.at(2)});
      }
    } catch (const nlohmann::json::exception&) {
      throw SsdError(SsdError::Kind::kDamaged, entry.path().string() + ": damaged, expected a list of files");
    }
    promises_.emplace(token, std::move(promise));
  }
}

std::vector<uint32_t> LogFolder::Serials() const {
  std::vector<uint32_t> serials;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    uint32_t serial = 0;
    const std::string name = entry.path().filename();
    if (std::sscanf(name.c_str(), "%8x", &serial) == 1 && name == LogFile::NameOf(serial)) serials.push_back(serial);
  }
  return serials;
}

std::string LogFolder::NameOf(uint64_t token) const {
  char name[40];
  std::snprintf(name, sizeof(name), "%s%016" PRIx64 ".json", kPromise, token);
  return name;
}

void LogFolder::SyncNames() const {
  const Descriptor folder{open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.number < 0 || fsync(folder.number) != 0) throw SsdError::OfCall(path_, "fsync", errno);
}

void LogFolder::WriteDurably(const std::string& name, const std::string& text) const {
  const std::string path = path_ + "/" + name, part = path + ".part";
  {
    const Descriptor file{open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
    if (file.number < 0) throw SsdError::OfCall(part, "open", errno);
    errno = EIO;
    if (write(file.number, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw SsdError::OfCall(part, "write", errno);
    }
    if (fsync(file.number) != 0) throw SsdError::OfCall(part, "fsync", errno);
  }
  // Before it has its name, so have the files that it names.
  SyncNames();
  if (rename(part.c_str(), path.c_str()) != 0) throw SsdError::OfCall(path, "rename", errno);
  SyncNames();
}

void LogFolder::Write(uint64_t token, const LogPromise& promise) {
  nlohmann::json files = nlohmann::json::array();
  for (const PromisedFile& file : promise) files.push_back({file.id, file.serial, file.records});
  WriteDurably(NameOf(token), nlohmann::json({{"run", run_}, {"files", files}}).dump());
  promises_[token] = promise;
}

void LogFolder::Remove(uint64_t token) {
  promises_.erase(token);
  unlink((path_ + "/" + NameOf(token)).c_str());
}

}  // namespace elastic_training
