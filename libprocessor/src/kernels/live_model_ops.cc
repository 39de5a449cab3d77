// SPDX-License-Identifier: Apache-2.0
// The ops of live models: a model whose rows and weights change while it is served, epoch by epoch.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status InferScalar(InferenceContext* c) {
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

absl::Status InferVariableShape(InferenceContext* c) {
  tensorflow::PartialTensorShape partial;
  if (absl::Status s = c->GetAttr("shape", &partial); !s.ok()) return s;
  ShapeHandle shape;
  if (absl::Status s = c->MakeShapeFromPartialTensorShape(partial, &shape); !s.ok()) return s;
  c->set_output(0, shape);
  return absl::OkStatus();
}

REGISTER_OP("RecLiveModel")
    .Output("live: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .SetIsStateful()
    .SetShapeFn(InferScalar)
    .Doc(R"doc(
A model whose tables and weights follow a timeline of deltas, empty until RecInitializeLiveModel has run.

container: container of the resource.
shared_name: name of the resource; by default that of the node.
live: handle of the live model.
)doc");

REGISTER_OP("RecInitializeLiveModel")
    .Input("live: resource")
    .Input("tables: num_tables * resource")
    .Input("description: string")
    .Input("formulas: string")
    .Attr("num_tables: int >= 0")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Reads the description of a live model, which is at epoch 0 then. It runs after the initializers of the tables.

live: handle of the live model; a model that is initialized already stays as it is.
tables: handles of RecEmbeddingTable, initialized, in the order of the description.
description: scalar, path of live.json.
formulas: scalar, path of formulas.pb, a GraphDef.
)doc");

REGISTER_OP("RecPinView")
    .Input("live: resource")
    .Output("view: variant")
    .SetIsStateful()
    .SetShapeFn(InferScalar)
    .Doc(R"doc(
The newest epoch of a live model. Ops that take the same view read the same epoch, which is kept as long as the tensor.

live: handle of the live model, initialized.
view: scalar.
)doc");

REGISTER_OP("RecViewVariable")
    .Input("view: variant")
    .Output("value: float")
    .Attr("variable: string")
    .Attr("shape: shape")
    .SetShapeFn(InferVariableShape)
    .Doc(R"doc(
The value of a formula, or of a source variable, at the epoch of a view.

view: output of RecPinView.
variable: name of a formula or, if there is none, of a source variable.
shape: shape of the value; a value with another shape is refused.
)doc");

REGISTER_OP("RecApplySegments")
    .Input("live: resource")
    .Input("filenames: string")
    .Output("epoch: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) -> absl::Status {
      ShapeHandle unused;
      if (absl::Status s = c->WithRank(c->input(1), 1, &unused); !s.ok()) return s;
      return InferScalar(c);
    })
    .Doc(R"doc(
Applies segments of deltas to a live model, one after the other. The first one that does not fit ends it with an error.

live: handle of the live model, initialized.
filenames: paths of segments, in the order of their epochs.
epoch: scalar, the epoch of the model afterwards.
)doc");

}  // namespace
}  // namespace processor
