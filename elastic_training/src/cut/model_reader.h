// SPDX-License-Identifier: Apache-2.0
// A cut over all tables of a model, of whatever kind: one instant between the calls that write into tables.
#ifndef ELASTIC_TRAINING_CUT_MODEL_READER_H_
#define ELASTIC_TRAINING_CUT_MODEL_READER_H_

#include <cstddef>

#include "src/cut/table_reader.h"

namespace elastic_training {

class ModelReader {
 public:
  virtual ~ModelReader() = default;

  virtual size_t size() const = 0;
  virtual TableReader& at(size_t table) = 0;
  /// Ends the cut. `succeeded`: whether all was read and is kept elsewhere. Returns whether it had all rows as they were.
  virtual bool End(bool succeeded) = 0;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CUT_MODEL_READER_H_
