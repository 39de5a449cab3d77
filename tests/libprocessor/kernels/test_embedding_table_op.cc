// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>

#include "src/kernels/embedding_table_resource.h"
#include "table_file.h"
#include "temporary_folder.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/public/session.h"
#include "tensorflow/core/public/version.h"

namespace processor {
namespace {

using tensorflow::GraphDef;
using tensorflow::NodeDef;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::tstring;

REGISTER_OP("TestCountRows")
    .Input("table: resource")
    .Output("rows: int64")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    });

class CountRowsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    tensorflow::core::RefCountPtr<EmbeddingTableResource> table;
    OP_REQUIRES_OK(context, LookupEmbeddingTable(context, 0, &table));
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &rows));
    rows->scalar<int64_t>()() = static_cast<int64_t>(table->table().rows());
  }
};
REGISTER_KERNEL_BUILDER(Name("TestCountRows").Device(tensorflow::DEVICE_CPU), CountRowsOp);

// Two handles, one of them named; the file's name is fed.
class EmbeddingTableOpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GraphDef graph;
    const auto add = [&](const char* name, const char* op, std::initializer_list<const char*> inputs) -> NodeDef* {
      NodeDef* node = graph.add_node();
      node->set_name(name);
      node->set_op(op);
      for (const char* input : inputs) node->add_input(input);
      return node;
    };
    (*add("filename", "Placeholder", {})->mutable_attr())["dtype"].set_type(tensorflow::DT_STRING);
    (*add("variable", "VarHandleOp", {})->mutable_attr())["dtype"].set_type(tensorflow::DT_FLOAT);
    (*graph.mutable_node(1)->mutable_attr())["shape"].mutable_shape();
    for (const char* table : {"one", "two"}) (*add(table, "RecEmbeddingTable", {})->mutable_attr())["dim"].set_i(4);
    (*graph.mutable_node(3)->mutable_attr())["shared_name"].set_s("prices");
    add("init_one", "RecInitializeEmbeddingTable", {"one", "filename"});
    add("init_two", "RecInitializeEmbeddingTable", {"two", "filename"});
    add("init_variable", "RecInitializeEmbeddingTable", {"variable", "filename"});
    add("rows_one", "TestCountRows", {"one"});
    add("rows_two", "TestCountRows", {"two"});
    add("rows_variable", "TestCountRows", {"variable"});
    session_.reset(tensorflow::NewSession(tensorflow::SessionOptions()));
    const absl::Status status = session_->Create(graph);
    ASSERT_TRUE(status.ok()) << status;
  }

  absl::Status Initialize(const std::string& name, const Tensor& filename) {
    return session_->Run({{"filename", filename}}, {}, {name}, nullptr);
  }
  absl::Status Initialize(const std::string& name, const std::string& filename) {
    Tensor scalar(tensorflow::DT_STRING, {});
    scalar.scalar<tstring>()() = filename;
    return Initialize(name, scalar);
  }
  absl::Status CountRows(const std::string& name, int64_t* rows) {
    std::vector<Tensor> outputs;
    absl::Status status = session_->Run({}, {name + ":0"}, {}, &outputs);
    if (status.ok()) *rows = outputs[0].scalar<int64_t>()();
    return status;
  }
  std::string Write(const std::string& name, uint64_t rows) {
    TableFileContent content;
    content.rows = rows;
    return folder_.Write(name, content.Bytes());
  }

  TemporaryFolder folder_;
  std::unique_ptr<tensorflow::Session> session_;
};

TEST_F(EmbeddingTableOpTest, FindsTableOnceInitialized) {
  int64_t rows = 0;
  absl::Status status = CountRows("rows_one", &rows);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("table 'one': not initialized"), std::string::npos) << status;
  status = CountRows("rows_two", &rows);
  EXPECT_NE(status.message().find("table 'prices': not initialized"), std::string::npos) << status;

  ASSERT_TRUE(Initialize("init_one", Write("a.emb", 7)).ok());
  ASSERT_TRUE(CountRows("rows_one", &rows).ok());
  EXPECT_EQ(rows, 7);
  EXPECT_FALSE(CountRows("rows_two", &rows).ok());
  ASSERT_TRUE(Initialize("init_two", Write("b.emb", 9)).ok());
  ASSERT_TRUE(CountRows("rows_two", &rows).ok());
  EXPECT_EQ(rows, 9);
}

TEST_F(EmbeddingTableOpTest, InitialisingAgainReplaces) {
  int64_t rows = 0;
  const std::string path = Write("a.emb", 7);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Initialize("init_one", path).ok());
  ASSERT_TRUE(Initialize("init_one", Write("b.emb", 8)).ok());
  ASSERT_TRUE(CountRows("rows_one", &rows).ok());
  EXPECT_EQ(rows, 8);
  EXPECT_FALSE(Initialize("init_one", folder_.Path("missing.emb")).ok());
  ASSERT_TRUE(CountRows("rows_one", &rows).ok()) << "what was there stays";
  EXPECT_EQ(rows, 8);
}

TEST_F(EmbeddingTableOpTest, SessionDestroysItsTable) {
  const std::string path = Write("a.emb", 7);
  ASSERT_TRUE(Initialize("init_one", path).ok());
  std::weak_ptr<const EmbeddingTable> observer;
  {
    std::shared_ptr<const EmbeddingTable> table;
    ASSERT_TRUE(EmbeddingTable::Open(path, &table).ok());
    EXPECT_EQ(table.use_count(), 2) << "the resource's and this one";
    observer = table;
  }
  EXPECT_FALSE(observer.expired());
  session_.reset();
  EXPECT_TRUE(observer.expired());
}

TEST_F(EmbeddingTableOpTest, RefusesTablesThatDoNotMatchAttributes) {
  TableFileContent content;
  content.dim = 5;
  absl::Status status = Initialize("init_two", folder_.Write("dim.emb", content.Bytes()));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("rows of 5, expected 4 for 'prices'"), std::string::npos) << status;
  status = Initialize("init_one", Tensor(tensorflow::DT_STRING, {2}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("table 'one': filename has shape [2], expected a scalar"), std::string::npos)
      << status;
  EXPECT_EQ(Initialize("init_variable", Write("a.emb", 7)).code(), absl::StatusCode::kInvalidArgument);
  int64_t rows = 0;
  EXPECT_EQ(CountRows("rows_variable", &rows).code(), absl::StatusCode::kInvalidArgument);
}

TEST(EmbeddingTableOp, IsAConstantForExecutors) {
  NodeDef node;
  node.set_name("table");
  node.set_op("RecEmbeddingTable");
  (*node.mutable_attr())["container"].set_s("");
  (*node.mutable_attr())["shared_name"].set_s("prices");
  std::vector<std::unique_ptr<tensorflow::Device>> devices;
  ASSERT_TRUE(tensorflow::DeviceFactory::AddCpuDevices({}, "/job:localhost/replica:0/task:0", &devices).ok());
  tensorflow::Device& device = *devices[0];
  for (int dim : {4, 0}) {
    (*node.mutable_attr())["dim"].set_i(dim);
    std::shared_ptr<const tensorflow::NodeProperties> properties;
    ASSERT_TRUE(
        tensorflow::NodeProperties::CreateFromNodeDef(node, tensorflow::OpRegistry::Global(), &properties).ok());
    OpKernel* made = nullptr;
    const absl::Status status =
        tensorflow::CreateOpKernel(tensorflow::DEVICE_CPU, &device, device.GetAllocator({}), nullptr,
                                   device.resource_manager(), properties, TF_GRAPH_DEF_VERSION, &made);
    const std::unique_ptr<OpKernel> kernel(made);
    ASSERT_EQ(status.ok(), dim > 0) << status;
    if (!status.ok()) continue;
    const Tensor* handle = kernel->const_tensor();
    ASSERT_NE(handle, nullptr);
    EXPECT_EQ(handle->scalar<tensorflow::ResourceHandle>()().name(), "prices");
  }
}

}  // namespace
}  // namespace processor
