// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/thread_starter.h"

#include <pthread.h>

#include <utility>

#include "src/runtime/threads/process_threads.h"

namespace processor {
namespace {

thread_local ThreadStarter* elsewhere = nullptr;

}  // namespace

ThreadStarter::ThreadStarter() : thread_([this] { Work(); }) {}

ThreadStarter::~ThreadStarter() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ThreadStarter::Run(const std::function<void()>& start) {
  std::lock_guard<std::mutex> caller(callers_);
  std::unique_lock<std::mutex> lock(mutex_);
  start_ = &start;
  wake_.notify_all();
  wake_.wait(lock, [this] { return start_ == nullptr; });
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void ThreadStarter::Work() {
  pthread_setname_np(pthread_self(), "thread-starter");
  KeepThreadInPlace();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopped_ || start_ != nullptr; });
    if (start_ == nullptr) return;
    try {
      (*start_)();
    } catch (...) {
      thrown_ = std::current_exception();
    }
    start_ = nullptr;
    wake_.notify_all();
  }
}

StartThreadsElsewhere::StartThreadsElsewhere(ThreadStarter* starter) : before_(std::exchange(elsewhere, starter)) {}

StartThreadsElsewhere::~StartThreadsElsewhere() { elsewhere = before_; }

void StartServingThreads(const std::function<void()>& start) {
  if (elsewhere == nullptr) {
    start();
  } else {
    elsewhere->Run(start);
  }
}

}  // namespace processor
