// SPDX-License-Identifier: Apache-2.0
// The bytes that a filter saves: its name, what it was made with, its counts. Numbers have the machine's order of bytes.
#ifndef ELASTIC_TRAINING_ADMISSION_STATE_BYTES_H_
#define ELASTIC_TRAINING_ADMISSION_STATE_BYTES_H_

#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace elastic_training {

class StateWriter {
 public:
  /// `name` says which filter wrote the state.
  explicit StateWriter(std::string_view name) { bytes_.append(name).push_back('\0'); }

  template <typename T>
  void Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string* bytes() { return &bytes_; }

 private:
  std::string bytes_;
};

/// Every function throws std::invalid_argument, which names the filter and what was found.
class StateReader {
 public:
  StateReader(std::string_view name, std::string_view state) : name_(name), rest_(state) {
    const size_t end = state.find('\0');
    const std::string_view found = state.substr(0, end);
    if (end == std::string_view::npos || found != name) {
      Refuse(state.empty()
                 ? "an empty state found, expected one of this filter"
                 : "a state of '" + std::string(found.substr(0, 40)) + "' found, expected one of this filter");
    }
    rest_.remove_prefix(end + 1);
  }

  template <typename T>
  T Get() {
    T value;
    if (rest_.size() < sizeof value) Refuse("the state ends early, expected all of it");
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }

  /// Reads what the filter was made with; the state must have the same.
  template <typename T>
  void Expect(std::string_view field, T expected) {
    const T found = Get<T>();
    if (found == expected) return;
    std::ostringstream text;
    text << field << " is " << found << " in the state, expected " << expected << " as configured";
    Refuse(text.str());
  }

  /// Returns what is left, which must have this size.
  std::string_view Rest(size_t size) {
    if (rest_.size() != size) {
      Refuse(std::to_string(rest_.size()) + " bytes of counts found, expected " + std::to_string(size));
    }
    return rest_;
  }

 private:
  [[noreturn]] void Refuse(const std::string& text) const {
    throw std::invalid_argument(std::string(name_) + ": " + text);
  }

  std::string_view name_, rest_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_ADMISSION_STATE_BYTES_H_
