// SPDX-License-Identifier: Apache-2.0
// Weights of a live model that take as long as a test wants.
#ifndef PROCESSOR_TESTS_LIVE_SLOW_WEIGHTS_H_
#define PROCESSOR_TESTS_LIVE_SLOW_WEIGHTS_H_

#include <future>
#include <memory>

#include "absl/status/status.h"
#include "src/live/epoch_view.h"

namespace processor {

/// A slot of weights that can be made once. Whoever makes them waits for Release().
class SlowWeights {
 public:
  absl::Status AddTo(const EpochView& view) {
    const auto make = [this](const EpochView&, std::shared_ptr<const void>* object) {
      begun_.set_value();
      released_.get_future().wait();
      *object = std::make_shared<const int>(0);
      return absl::OkStatus();
    };
    int slot = -1;
    return view.parts().slots->Add("slow", {{}, /*has_precision=*/true}, make, this, &slot);
  }
  /// Waits until somebody makes them.
  void WaitUntilBegun() { begun_.get_future().wait(); }
  void Release() { released_.set_value(); }

 private:
  std::promise<void> begun_, released_;
};

}  // namespace processor

#endif  // PROCESSOR_TESTS_LIVE_SLOW_WEIGHTS_H_
