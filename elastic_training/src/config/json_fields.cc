// SPDX-License-Identifier: Apache-2.0
#include "src/config/json_fields.h"

#include <cmath>
#include <stdexcept>

namespace elastic_training {

using nlohmann::json;

JsonFields::JsonFields(std::string name, const json& object) : name_(std::move(name)), object_(object) {
  if (!object.is_object()) {
    throw std::invalid_argument(name_ + ": " + object.dump() + " found, expected an object");
  }
}

void JsonFields::Refuse(const char* field, const std::string& expected) const {
  throw std::invalid_argument(name_ + ": " + field + " is " + object_.at(field).dump() + ", expected " + expected);
}

double JsonFields::Number(const char* field, double fallback, double low, double high) const {
  const auto found = object_.find(field);
  if (found == object_.end()) return fallback;
  const double value = found->is_number() ? found->get<double>() : std::nan("");
  if (!(value >= low && value <= high)) {
    Refuse(field, "a number from " + json(low).dump() + " to " + json(high).dump());
  }
  return value;
}

int64_t JsonFields::Integer(const char* field, int64_t fallback, int64_t low, int64_t high) const {
  const auto found = object_.find(field);
  if (found == object_.end()) return fallback;
  const bool fits = found->is_number_integer() &&
                    !(found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (!fits || found->get<int64_t>() < low || found->get<int64_t>() > high) {
    Refuse(field, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return found->get<int64_t>();
}

bool JsonFields::Flag(const char* field, bool fallback) const {
  const auto found = object_.find(field);
  if (found == object_.end()) return fallback;
  if (!found->is_boolean()) Refuse(field, "true or false");
  return found->get<bool>();
}

std::string JsonFields::Text(const char* field, const char* fallback,
                             std::initializer_list<const char*> allowed) const {
  const auto found = object_.find(field);
  if (found == object_.end()) return fallback;
  if (!found->is_string()) Refuse(field, "a string");
  std::string value = found->get<std::string>(), list;
  if (allowed.size() == 0) return value;
  for (const char* one : allowed) {
    if (value == one) return value;
    list += (list.empty() ? "'" : ", '") + std::string(one) + "'";
  }
  Refuse(field, "one of " + list);
}

json JsonFields::Object(const char* field) const {
  const auto found = object_.find(field);
  if (found == object_.end()) return json::object();
  if (!found->is_object()) Refuse(field, "an object");
  return *found;
}

void JsonFields::RefuseOthers(std::initializer_list<const char*> known) const {
  for (const auto& item : object_.items()) {
    bool found = false;
    for (const char* one : known) found = found || item.key() == one;
    if (!found) throw std::invalid_argument(name_ + ": unknown field '" + item.key() + "'");
  }
}

}  // namespace elastic_training
