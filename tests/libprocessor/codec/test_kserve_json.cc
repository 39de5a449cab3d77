// SPDX-License-Identifier: Apache-2.0
// Protocol "kserve_json", method infer.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "json_fixture.h"
#include "kserve_oracle.h"
#include "src/codec/kserve_parameters.h"

namespace processor {
namespace {

using Json = nlohmann::json;
using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

class KserveJsonTest : public JsonFixture {
 protected:
  KserveJsonTest() : JsonFixture("kserve_json") { SetOne(tensorflow::DT_FLOAT); }

  void SetOne(DataType dtype) {
    signatures_ = oracle::MakeSignatures({{"serving_default",
                                           {{"x", dtype, {}, true}},
                                           {{"y", dtype, {}, true}, {"z", tensorflow::DT_STRING, {}, true}}},
                                          {"other", {{"w", dtype, {}, true}}, {{"w", dtype, {}, true}}}});
  }

  static Json Input(const Tensor& tensor, const char* name = "x") {
    Json shape = Json::array();
    for (int d = 0; d < tensor.dims(); ++d) shape.push_back(tensor.dim_size(d));
    return {{"name", name}, {"datatype", oracle::DatatypeOf(tensor.dtype())}, {"shape", shape}};
  }

  static Json Request(const Tensor& tensor) {
    Json json;
    json["inputs"].push_back(Input(tensor));
    return json;
  }

  /// A body of JSON and the raw contents of tensors behind it.
  static std::string Body(Json json, const std::vector<Tensor>& tensors, size_t* header_length) {
    std::string binary;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string raw = oracle::ToRaw(tensors[i]);
      json["inputs"][i]["parameters"]["binary_data_size"] = raw.size();
      binary += raw;
    }
    const std::string header = json.dump();
    *header_length = header.size();
    return header + binary;
  }
};

TEST_F(KserveJsonTest, EveryDtypeSurvivesARoundTripAsBinaryData) {
  for (const DataType dtype : oracle::DtypesOf("kserve")) {
    for (const TensorShape& shape : {TensorShape(), TensorShape({3}), TensorShape({41, 5}), TensorShape({2, 0})}) {
      SCOPED_TRACE(tensorflow::DataType_Name(dtype) + " " + shape.DebugString());
      SetOne(dtype);
      const Tensor tensor = oracle::RandomTensor(dtype, shape, 5);
      const Tensor text = oracle::RandomTensor(tensorflow::DT_STRING, shape, 6);
      size_t header = 0;
      const std::string body =
          Body({{"id", "7"}, {"inputs", {Input(tensor)}}, {"parameters", {{"binary_data_output", true}}}}, {tensor},
               &header);
      const absl::Status status = Decode(body, header);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(oracle::Same(request_.feeds[0], tensor));
      const auto answer = Encode({tensor, text});
      ASSERT_TRUE(answer.ok()) << answer.status();
      ASSERT_GT(header_length_, 0u);
      const Json json = Json::parse(answer->substr(0, header_length_));
      EXPECT_EQ(json["model_name"], "ranking");
      EXPECT_EQ(json["model_version"], "7");
      EXPECT_EQ(json["id"], "7");
      const size_t size = json["outputs"][0]["parameters"]["binary_data_size"];
      Tensor back;
      ASSERT_TRUE(oracle::FromRaw(answer->substr(header_length_, size), dtype, shape, &back));
      EXPECT_TRUE(oracle::Same(back, tensor));
      ASSERT_TRUE(oracle::FromRaw(answer->substr(header_length_ + size), tensorflow::DT_STRING, shape, &back));
      EXPECT_TRUE(oracle::Same(back, text));
      EXPECT_EQ(json["outputs"][0]["datatype"], oracle::DatatypeOf(dtype));
      EXPECT_FALSE(json["outputs"][0].contains("data"));
    }
  }
}

TEST_F(KserveJsonTest, AcceptsFlatAndNestedDataAndReturnsFlatData) {
  for (const char* data : {"[1, 2, 3, 4]", "[[1, 2], [3, 4]]", "[[[1], [2], 3], 4]"}) {
    const absl::Status status = Decode(R"({"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": )" +
                                       std::string(data) + "}]}");
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(request_.feeds[0].shape(), TensorShape({2, 2}));
    EXPECT_EQ(Values<float>(request_.feeds[0]), (std::vector<float>{1, 2, 3, 4}));
  }
  Tensor text(tensorflow::DT_STRING, TensorShape({1}));
  text.flat<tstring>()(0) = "a\"\n\x01";
  const auto answer = Encode({request_.feeds[0], text});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(header_length_, 0u);
  EXPECT_EQ(*answer, R"({"model_name":"ranking","model_version":"7","outputs":[)"
                     R"({"name":"y","datatype":"FP32","shape":[2,2],"data":[1.0,2.0,3.0,4.0]},)"
                     R"({"name":"z","datatype":"BYTES","shape":[1],"data":["a\"\n\u0001"]}]})");
  text.flat<tstring>()(0) = "\xff";
  EXPECT_EQ(Encode({request_.feeds[0], text}).status(),
            absl::InvalidArgumentError("output 'z': bytes that are no UTF-8, expected 'binary_data' in the request"));
}

TEST_F(KserveJsonTest, EveryDtypeSurvivesARoundTripAsData) {
  for (const DataType dtype : oracle::DtypesOf("kserve")) {
    if (dtype == tensorflow::DT_STRING) continue;
    SetOne(dtype);
    SCOPED_TRACE(tensorflow::DataType_Name(dtype));
    const Tensor tensor = oracle::RandomTensor(dtype, TensorShape({3, 7}), 5);
    size_t header = 0;
    const std::string body = Body(Request(tensor), {tensor}, &header);
    ASSERT_TRUE(Decode(body, header).ok());
    const auto answer = Encode({tensor, Tensor(tensorflow::DT_STRING, TensorShape({0}))});
    ASSERT_TRUE(answer.ok());
    const size_t begin = answer->find("\"data\":"), end = answer->find(']', begin);
    const std::string input = R"({"inputs": [{"name": "x", "shape": [3, 7], "datatype": ")" +
                              oracle::DatatypeOf(dtype) + "\", " + answer->substr(begin, end + 1 - begin) + "}]}";
    const absl::Status status = Decode(input);
    ASSERT_TRUE(status.ok()) << status << input;
    if (dtype == tensorflow::DT_FLOAT || dtype == tensorflow::DT_DOUBLE) continue;  // NaN; see test_tfserving_json.cc
    EXPECT_TRUE(oracle::Same(request_.feeds[0], tensor));
  }
}

TEST_F(KserveJsonTest, EachOutputSelectsBinaryData) {
  const absl::Status status = Decode(R"({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}],
      "parameters": {"binary_data_output": true, "priority": 1},
      "outputs": [{"name": "z"}, {"name": "y", "parameters": {"binary_data": false, "color": 3}}, {"name": "z"}]})");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(request_.fetches, (std::vector<int>{1, 0}));
  bytes_.assign(bytes_.size(), 'x');  // names in the answer do not lie in the request
  Tensor text(tensorflow::DT_STRING, TensorShape({1}));
  text.flat<tstring>()(0) = "ab";
  const auto answer = Encode({text, request_.feeds[0]});
  ASSERT_TRUE(answer.ok());
  const Json json = Json::parse(answer->substr(0, header_length_));
  EXPECT_EQ(json["outputs"][0]["name"], "z");
  EXPECT_EQ(json["outputs"][0]["parameters"]["binary_data_size"], 6);
  EXPECT_EQ(json["outputs"][1]["name"], "y");
  EXPECT_EQ(json["outputs"][1]["data"], Json({1.0}));
  EXPECT_EQ(answer->substr(header_length_), std::string("\2\0\0\0ab", 6));
}

TEST_F(KserveJsonTest, SignatureIsAParameter) {
  const char* const body = R"({"parameters": {"signature_name": "other"},
      "inputs": [{"name": "w", "shape": [], "datatype": "FP32", "data": [-Infinity]}]})";
  ASSERT_TRUE(Decode(body).ok()) << Decode(body);
  EXPECT_EQ(request_.signature->name(), "other");
  EXPECT_TRUE(std::isinf(request_.feeds[0].scalar<float>()()));
}

TEST_F(KserveJsonTest, ErrorsNameTheKeyAndTheInput) {
  const auto input = [this](const std::string& members) {
    return Words(R"({"inputs": [{"name": "x")" + members + "}]}");
  };
  EXPECT_EQ(Words("{}"), "inputs: missing");
  EXPECT_EQ(Words(R"({"inputs": 1})"), "inputs: 1, expected a list");
  EXPECT_EQ(Words(R"({"inputs": [1]})"), "inputs: 1, expected an object");
  EXPECT_EQ(Words(R"({"inputs": [], "inputs": []})"), "inputs: given twice, expected once");
  EXPECT_EQ(Words(R"({"inputs": []})"), "input 'x': missing");
  EXPECT_EQ(Words(R"({"id": 1, "inputs": []})"), "id: 1, expected text");
  EXPECT_EQ(Words(R"({"outputs": {}, "inputs": []})"), "outputs: an object, expected a list");
  EXPECT_EQ(Words(R"({"outputs": [{"name": []}], "inputs": []})"), "output: name: a list, expected text");
  EXPECT_EQ(Words(R"({"parameters": [], "inputs": []})"), "parameters: a list, expected an object");
  EXPECT_EQ(Words(R"({"parameters": {"binary_data_output": 1}, "inputs": []})"),
            "parameter 'binary_data_output': 1, expected true or false");
  EXPECT_EQ(input(""), "input 'x': no shape, expected one");
  EXPECT_EQ(input(R"(, "shape": 2)"), "input 'x': shape: 2, expected a list");
  EXPECT_EQ(input(R"(, "shape": [2.5])"), "input 'x': shape: 2.5, expected a whole number");
  EXPECT_EQ(input(R"(, "shape": [2])"), "input 'x': neither of 'data' and 'binary_data_size', expected one of them");
  EXPECT_EQ(input(R"(, "shape": [1], "data": [1])"), "input 'x': datatype '', expected FP32");
  EXPECT_EQ(input(R"(, "shape": [1], "datatype": "INT8", "data": [1])"), "input 'x': datatype 'INT8', expected FP32");
  const std::string fp32 = R"(, "datatype": "FP32")";
  EXPECT_EQ(input(fp32 + R"(, "shape": [2], "data": [1])"), "input 'x': 1 values in data, expected 2 for shape [2]");
  EXPECT_EQ(input(fp32 + R"(, "shape": [2], "data": [1, 2, 3])"), "input 'x': more values, expected 2 for its shape");
  EXPECT_EQ(input(fp32 + R"(, "shape": [1], "data": ["1"])"), "input 'x': text, expected a value of DT_FLOAT");
  EXPECT_EQ(input(fp32 + R"(, "shape": [-1], "data": [1])"), "input 'x': shape [-1], expected no negative dimension");
  EXPECT_EQ(input(fp32 + R"(, "shape": [1000000000000], "data": [1])"),
            "input 'x': 1000000000000 rows, expected at most 1048576 (max_rows)");
  EXPECT_EQ(input(fp32 + R"(, "shape": [1], "parameters": {"binary_data_size": 4})"),
            "input 'x': binary_data_size: 4, expected at most the 0 bytes that are left");
  EXPECT_EQ(input(fp32 + R"(, "shape": [1], "parameters": {"binary_data_size": -4})"),
            "input 'x': binary_data_size: -4, expected at most the 0 bytes that are left");
}

TEST_F(KserveJsonTest, ChecksSizeOfBinaryData) {
  const Tensor tensor = oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({2}), 5);
  size_t header = 0;
  const std::string body = Body(Request(tensor), {tensor}, &header);
  ASSERT_TRUE(Decode(body, header).ok());
  EXPECT_EQ(Decode(body + "xy", header),
            absl::InvalidArgumentError("request: 2 bytes behind the inputs' binary data, expected none"));
  EXPECT_FALSE(Decode(body.substr(0, body.size() - 1), header).ok());
  EXPECT_FALSE(Decode(body, header - 1).ok());
  EXPECT_FALSE(Decode(body, header + 1).ok());
  EXPECT_FALSE(Decode(body).ok()) << "all is JSON";
  EXPECT_EQ(Decode(body, body.size() + 1),
            absl::InvalidArgumentError(absl::StrCat("Inference-Header-Content-Length: ", body.size() + 1,
                                                    ", expected at most the ", body.size(), " bytes of the body")));
}

TEST_F(KserveJsonTest, ABodyWithoutJsonIsTheValueOfTheOnlyInput) {
  const auto shape_of = [this](DataType dtype, const std::vector<int64_t>& dims, const std::string& bytes) {
    signatures_ = oracle::MakeSignatures("serving_default", {{"x", dtype, dims}}, {{"y", dtype, dims}});
    const absl::Status status = Decode(bytes, kNoHeader);
    return status.ok() ? request_.feeds[0].shape().DebugString() : std::string(status.message());
  };
  const std::string six(24, '\0');
  EXPECT_EQ(shape_of(tensorflow::DT_FLOAT, {-1, 3}, six), "[2,3]");
  EXPECT_EQ(shape_of(tensorflow::DT_FLOAT, {-1, -1}, six), "[6,1]") << "the first open dimension takes all";
  EXPECT_EQ(shape_of(tensorflow::DT_FLOAT, {6}, six), "[6]");
  EXPECT_EQ(shape_of(tensorflow::DT_STRING, {-1}, "one string"), "[1]");
  EXPECT_EQ(Values<tstring>(request_.feeds[0]), std::vector<tstring>{"one string"}) << "without a length before it";
  EXPECT_NE(shape_of(tensorflow::DT_FLOAT, {-1, 3}, six.substr(1)).find("input 'x'"), std::string::npos);
  EXPECT_NE(shape_of(tensorflow::DT_FLOAT, {-1, 4}, six).find("input 'x'"), std::string::npos);
  EXPECT_NE(shape_of(tensorflow::DT_STRING, {2}, "s").find("input 'x'"), std::string::npos);
  signatures_ = oracle::MakeSignatures("serving_default", {{"x", tensorflow::DT_FLOAT, {}, true}},
                                       {{"y", tensorflow::DT_FLOAT, {}, true}});
  EXPECT_EQ(Decode(six, kNoHeader),
            absl::InvalidArgumentError("input 'x': open rank, expected a shape in a request without JSON"));
}

TEST_F(KserveJsonTest, RefusesParametersThatWouldChangeTheAnswer) {
  const Json valid = {{"inputs", Json::array({{{"name", "x"}, {"datatype", "FP32"}, {"shape", {1}}, {"data", {1}}}})}};
  for (const char* name : {"classification", "shared_memory_region", "shared_memory_byte_size"}) {
    Json output = valid, input = valid;
    output["outputs"] = Json::array({{{"name", "y"}, {"parameters", {{name, 1}}}}});
    input["inputs"][0]["parameters"] = {{name, 1}};
    EXPECT_NE(Words(output.dump()).find(absl::StrCat("output: parameter '", name)), std::string::npos);
    EXPECT_NE(Words(input.dump()).find(absl::StrCat("input: parameter '", name)), std::string::npos);
  }
  Json unknown = valid;
  unknown["inputs"][0]["parameters"] = {{"color", "red"}};
  EXPECT_TRUE(Decode(unknown.dump()).ok());
}

}  // namespace
}  // namespace processor
