// SPDX-License-Identifier: Apache-2.0
#include "src/ssd/log_writer.h"

#include <chrono>
#include <cstring>
#include <utility>

namespace elastic_training {
namespace {

constexpr size_t kMostBuffers = 16;
constexpr size_t kSpareBuffers = 4;
// Removed files that are kept for the next ones.
constexpr size_t kSpareFiles = 1;
constexpr std::chrono::milliseconds kRetry(100);

}  // namespace

LogWriter::LogWriter(std::string folder) : folder_(std::move(folder)), thread_([this] { Run(); }) {}

LogWriter::~LogWriter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
    work_.notify_all();
  }
  thread_.join();
  if (made_ != nullptr) made_->Remove();
}

void LogWriter::Throw() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_) throw SsdError(*error_);
}

std::unique_ptr<char[]> LogWriter::TakeMemory(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (spare_.empty()) return std::unique_ptr<char[]>(new char[bytes]);
  std::unique_ptr<char[]> taken = std::move(spare_.back());
  spare_.pop_back();
  return taken;
}

void LogWriter::Add(LogBuffer buffer) {
  std::unique_lock<std::mutex> lock(mutex_);
  queue_.push_back(std::move(buffer));
  work_.notify_one();
  done_.wait(lock, [&] { return queue_.size() <= kMostBuffers || error_; });
}

bool LogWriter::Copy(const LogFile& file, uint32_t slot, char* record) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const LogBuffer& buffer : queue_) {
    if (buffer.file.get() != &file || slot < buffer.first || slot - buffer.first >= buffer.count) continue;
    const size_t bytes = file.identity().record_bytes;
    std::memcpy(record, buffer.bytes.get() + (slot - buffer.first) * bytes, bytes);
    return true;
  }
  return false;
}

void LogWriter::Flush() {
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [&] { return queue_.empty() || error_; });
  if (!queue_.empty()) throw SsdError(*error_);
}

void LogWriter::AskFile(const LogFile::Identity& identity) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (made_ != nullptr) return;
  asked_ = identity;
  work_.notify_one();
}

std::shared_ptr<LogFile> LogWriter::TakeFile() {
  std::unique_lock<std::mutex> lock(mutex_);
  // A file of this serial number may be on its way.
  done_.wait(lock, [&] { return !asked_ || error_; });
  asked_.reset();
  return std::move(made_);
}

void LogWriter::Remove(std::shared_ptr<LogFile> file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  removed_.push_back(std::move(file));
  work_.notify_one();
}

void LogWriter::WriteFront(std::unique_lock<std::mutex>* lock) {
  LogBuffer& buffer = queue_.front();
  LogFile& file = *buffer.file;
  lock->unlock();
  std::optional<SsdError> error;
  try {
    file.Write(buffer.first, buffer.bytes.get(), buffer.count);
  } catch (const SsdError& caught) {
    error = caught;
  }
  lock->lock();
  error_ = error;
  failed_.store(error.has_value(), std::memory_order_relaxed);
  if (!error) {
    file.written.store(buffer.first + buffer.count, std::memory_order_release);
    if (spare_.size() < kSpareBuffers) spare_.push_back(std::move(buffer.bytes));
    queue_.pop_front();
  }
}

// A removed file that no reader has, of the size of `like` unless it is null.
std::shared_ptr<LogFile> LogWriter::TakeUnread(const LogFile::Identity* like) {
  for (std::shared_ptr<LogFile>& file : removed_) {
    if (like != nullptr && (file.use_count() != 1 || file->slots() != like->slots || file->failed())) continue;
    std::swap(file, removed_.back());
    std::shared_ptr<LogFile> taken = std::move(removed_.back());
    removed_.pop_back();
    return taken;
  }
  return nullptr;
}

void LogWriter::MakeFile(std::unique_lock<std::mutex>* lock) {
  const LogFile::Identity identity = *asked_;
  const std::shared_ptr<LogFile> old = TakeUnread(&identity);
  lock->unlock();
  std::shared_ptr<LogFile> made;
  try {
    made.reset(old != nullptr ? LogFile::Recycle(folder_, *old, identity) : LogFile::Create(folder_, identity));
  } catch (const std::exception&) {
    // Whoever needs the file tries again, and gets the error.
  }
  lock->lock();
  made_ = std::move(made);
  asked_.reset();
}

void LogWriter::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (!queue_.empty() && !(ends_ && error_)) {
      WriteFront(&lock);
      done_.notify_all();
      if (error_) work_.wait_for(lock, kRetry, [&] { return ends_; });
    } else if (asked_) {
      MakeFile(&lock);
      done_.notify_all();
    } else if (removed_.size() > (ends_ ? 0 : kSpareFiles)) {
      const std::shared_ptr<LogFile> file = TakeUnread(nullptr);
      lock.unlock();
      file->Remove();
      lock.lock();
    } else if (ends_) {
      return;
    } else {
      work_.wait(lock);
    }
  }
}

}  // namespace elastic_training
