// SPDX-License-Identifier: Apache-2.0
// The callables for requests that want some outputs of a signature only, which need not compute the others.
//
// Which outputs clients ask for shows only when they ask. Making a callable prunes the graph in every session, so a thread
// of its own makes it, while the callable of all outputs serves.
#ifndef PROCESSOR_RUNTIME_VERSION_OUTPUT_SUBSETS_H_
#define PROCESSOR_RUNTIME_VERSION_OUTPUT_SUBSETS_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/base/published.h"

namespace processor {

/// Any thread may call all functions. The version owns it.
class OutputSubsets {
 public:
  /// A client could ask for every subset of the outputs, so further ones have no callable.
  static constexpr size_t kMost = 64;

  /// Makes a callable with that number in all sessions. Called on one thread at a time.
  using Maker = std::function<absl::Status(int callable, int signature, const std::vector<int>& outputs)>;

  /// `first`: the lowest number of a callable of a subset.
  OutputSubsets(int first, Maker make) : first_(first), make_(std::move(make)) {}
  /// Waits until no callable is being made.
  ~OutputSubsets();
  OutputSubsets(const OutputSubsets&) = delete;
  OutputSubsets& operator=(const OutputSubsets&) = delete;

  /// Returns the number of the callable for outputs (ascending) of a signature; -1 if there is none. At the first time, a
  /// thread begins to make it.
  int Find(int signature, absl::Span<const int> outputs);

  /// Makes the callable now, unless there is one, and sets `callable` to its number.
  /// \return RESOURCE_EXHAUSTED if there are too many, or why it cannot be made.
  absl::Status MakeNow(int signature, absl::Span<const int> outputs, int* callable);

 private:
  struct Key {
    int signature;
    std::vector<int> outputs;
  };
  // Compares with the subset that a request wants without copying it.
  struct Less {
    using is_transparent = void;
    using Wanted = std::pair<int, absl::Span<const int>>;
    static Wanted View(const Key& key) { return {key.signature, key.outputs}; }
    static const Wanted& View(const Wanted& wanted) { return wanted; }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return View(a) < View(b);
    }
  };
  struct Callable {
    int number = -1;
    bool made = false;  // else it is to be made, or cannot be
  };
  using Subsets = std::map<Key, Callable, Less>;

  void Want(Key key);
  // These two are called with mutex_ held.
  bool Add(const Key& key);
  void Publish() { published_.Exchange(std::make_shared<const Subsets>(subsets_)); }
  absl::Status Make(const Key& key, int* callable);
  void MakeWanted();

  const int first_;
  const Maker make_;
  Published<const Subsets> published_{std::make_shared<const Subsets>()};

  std::mutex mutex_;  // of what follows, held briefly
  Subsets subsets_;
  std::deque<Key> wanted_;
  bool stopped_ = false;
  bool making_ = false;  // the thread takes from wanted_
  std::thread thread_;

  std::mutex make_mutex_;  // held while a callable is made
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_OUTPUT_SUBSETS_H_
