// SPDX-License-Identifier: Apache-2.0
// A SavedModel that needs no Python to make: x float32 [-1] -> y, the same.
#ifndef PROCESSOR_TESTS_RUNTIME_TINY_SAVED_MODEL_H_
#define PROCESSOR_TESTS_RUNTIME_TINY_SAVED_MODEL_H_

#include <string>

#include "temporary_folder.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/tensor_shape.pb.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"
#include "tensorflow/core/protobuf/saved_model.pb.h"

namespace processor {

/// Its folder, removed with the object.
class TinySavedModel {
 public:
  TinySavedModel() {
    tensorflow::SavedModel saved_model;
    saved_model.set_saved_model_schema_version(1);
    tensorflow::MetaGraphDef& meta_graph = *saved_model.add_meta_graphs();
    meta_graph.mutable_meta_info_def()->add_tags("serve");
    tensorflow::NodeDef& x = *meta_graph.mutable_graph_def()->add_node();
    x.set_name("x");
    x.set_op("Placeholder");
    (*x.mutable_attr())["dtype"].set_type(tensorflow::DT_FLOAT);
    tensorflow::NodeDef& y = *meta_graph.mutable_graph_def()->add_node();
    y.set_name("y");
    y.set_op("Identity");
    y.add_input("x");
    (*y.mutable_attr())["T"].set_type(tensorflow::DT_FLOAT);
    tensorflow::SignatureDef& signature = (*meta_graph.mutable_signature_def())["serving_default"];
    signature.set_method_name("tensorflow/serving/predict");
    for (auto* info : {&(*signature.mutable_inputs())["x"], &(*signature.mutable_outputs())["y"]}) {
      info->set_dtype(tensorflow::DT_FLOAT);
      info->mutable_tensor_shape()->add_dim()->set_size(-1);
    }
    (*signature.mutable_inputs())["x"].set_name("x:0");
    (*signature.mutable_outputs())["y"].set_name("y:0");
    folder_.Write("saved_model.pb", saved_model.SerializeAsString());
  }

  const std::string& path() const { return folder_.path(); }

 private:
  const TemporaryFolder folder_;
};

}  // namespace processor

#endif  // PROCESSOR_TESTS_RUNTIME_TINY_SAVED_MODEL_H_
