// SPDX-License-Identifier: Apache-2.0
// TensorFlow Serving's Input message: a list of tf.Examples, with or without a context.
#ifndef PROCESSOR_CODEC_TFSERVING_INPUT_H_
#define PROCESSOR_CODEC_TFSERVING_INPUT_H_

#include <forward_list>
#include <string>
#include <string_view>

#include "src/codec/examples.h"
#include "src/codec/predict_codec.h"
#include "src/codec/wire.h"

namespace processor {

/// Reads the message. The decoder of a request owns it; one thread uses it.
class InputMessage {
 public:
  InputMessage() = default;
  InputMessage(const InputMessage&) = delete;
  InputMessage& operator=(const InputMessage&) = delete;

  /// Merges one message into what was read. A list with context and one without exclude each other: the last one counts.
  /// Returns false for malformed bytes.
  bool Read(std::string_view message) {
    return ForEachField(message, [this](const WireField& field) {
      if (field.type != WireType::kBytes || (field.number != kList && field.number != kListWithContext)) return true;
      if (field.number != kind_) {
        kind_ = field.number;
        batch_ = ExampleBatch();
        context_ = JoinedField(&memory_);
      }
      return ReadList(field.payload);
    });
  }

  const ExampleBatch& batch() const { return batch_; }

 private:
  static constexpr uint32_t kList = 1;
  static constexpr uint32_t kListWithContext = 2;
  static constexpr uint32_t kExamples = 1;
  static constexpr uint32_t kContext = 2;

  bool ReadList(std::string_view list) {
    return ForEachField(list, [this](const WireField& field) {
      if (field.type != WireType::kBytes) return true;
      if (field.number == kExamples && batch_.examples.size() <= kMaxExamples) batch_.examples.push_back(field.payload);
      if (field.number == kContext && kind_ == kListWithContext) {
        context_.Add(field.payload);
        batch_.context = context_.bytes();
      }
      return true;
    });
  }

  uint32_t kind_ = 0;
  ExampleBatch batch_;
  std::forward_list<std::string> memory_;
  JoinedField context_{&memory_};
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_TFSERVING_INPUT_H_
