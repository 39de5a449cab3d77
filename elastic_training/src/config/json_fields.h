// SPDX-License-Identifier: Apache-2.0
// Fields of a JSON object, read with a default; errors name the object and the field.
#ifndef ELASTIC_TRAINING_CONFIG_JSON_FIELDS_H_
#define ELASTIC_TRAINING_CONFIG_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace elastic_training {

/// Reads fields of one object. Every function throws std::invalid_argument, which names the object and the field.
class JsonFields {
 public:
  /// `name` is what messages call the object: "optimizer adagrad". Keeps a reference to `object`.
  JsonFields(std::string name, const nlohmann::json& object);

  const std::string& name() const { return name_; }

  /// Returns a finite number in [low, high]; `fallback` if the field is missing.
  double Number(const char* field, double fallback, double low, double high) const;
  /// Returns an integer in [low, high]; `fallback` if the field is missing.
  int64_t Integer(const char* field, int64_t fallback, int64_t low, int64_t high) const;
  bool Flag(const char* field, bool fallback) const;
  /// Returns one of `allowed`; `fallback` if the field is missing; every string is allowed if `allowed` is empty.
  std::string Text(const char* field, const char* fallback, std::initializer_list<const char*> allowed) const;
  /// Returns an object; an empty one if the field is missing.
  nlohmann::json Object(const char* field) const;
  /// Refuses fields other than `known`.
  void RefuseOthers(std::initializer_list<const char*> known) const;

 private:
  [[noreturn]] void Refuse(const char* field, const std::string& expected) const;

  std::string name_;
  const nlohmann::json& object_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CONFIG_JSON_FIELDS_H_
