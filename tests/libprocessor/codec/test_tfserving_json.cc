// SPDX-License-Identifier: Apache-2.0
// Protocol "tfserving_json", method predict.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "json_fixture.h"

namespace processor {
namespace {

using Json = nlohmann::json;
using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
Tensor Make(const std::vector<T>& values, const TensorShape& shape) {
  Tensor tensor(tensorflow::DataTypeToEnum<T>::value, shape);
  for (size_t i = 0; i < values.size(); ++i) tensor.flat<T>()(i) = values[i];
  return tensor;
}

template <typename T>
bool SameFloats(const Tensor& a, const Tensor& b) {
  for (int64_t i = 0; i < a.NumElements(); ++i) {
    const T x = a.flat<T>()(i), y = b.flat<T>()(i);
    if (std::memcmp(&x, &y, sizeof(x)) != 0 && !(std::isnan(x) && std::isnan(y))) return false;
  }
  return true;
}

/// The bits of a NaN do not survive.
bool SameButNaN(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.dtype() == tensorflow::DT_FLOAT) return SameFloats<float>(a, b);
  if (a.dtype() == tensorflow::DT_DOUBLE) return SameFloats<double>(a, b);
  return oracle::Same(a, b);
}

class TfServingJsonTest : public JsonFixture {
 protected:
  TfServingJsonTest() : JsonFixture("tfserving_json") {
    signatures_ = oracle::MakeSignatures({
        {"serving_default",
         {{"dense", tensorflow::DT_FLOAT, {-1, 2}},
          {"id", tensorflow::DT_INT64, {-1}},
          {"tag", tensorflow::DT_STRING, {-1}}},
         {{"prob", tensorflow::DT_FLOAT, {-1}}, {"raw_bytes", tensorflow::DT_STRING, {-1}}}},
        {"one", {{"x", tensorflow::DT_FLOAT, {}, true}}, {{"y", tensorflow::DT_FLOAT, {}, true}}},
    });
  }

  void SetOne(DataType dtype) {
    signatures_ = oracle::MakeSignatures("serving_default", {{"x", dtype, {}, true}}, {{"y", dtype, {}, true}});
  }
};

TEST_F(TfServingJsonTest, RowsBecomeTensors) {
  const absl::Status status = Decode(R"({"instances": [
      {"dense": [0.5, -1], "id": 3, "tag": "a"},
      {"tag": {"b64": "AP8="}, "id": -9223372036854775808, "dense": [1e-3, 2]}]})");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(request_.feeds[0].shape(), TensorShape({2, 2}));
  EXPECT_EQ(Values<float>(request_.feeds[0]), (std::vector<float>{0.5f, -1, 1e-3f, 2}));
  EXPECT_EQ(Values<int64_t>(request_.feeds[1]), (std::vector<int64_t>{3, std::numeric_limits<int64_t>::min()}));
  EXPECT_EQ(request_.feeds[2].flat<tstring>()(1), tstring("\0\xff", 2));
  EXPECT_EQ(request_.fetches, (std::vector<int>{0, 1}));

  const auto json = Encode({Make<float>({0.25f, 3}, TensorShape({2})), Make<tstring>({"a", "b"}, TensorShape({2}))});
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*json,
            R"({"predictions":[{"prob":0.25,"raw_bytes":{"b64":"YQ=="}},{"prob":3.0,"raw_bytes":{"b64":"Yg=="}}]})");
}

TEST_F(TfServingJsonTest, ColumnsBecomeTensors) {
  const absl::Status status = Decode(R"({"signature_name": "serving_default", "inputs": {
      "dense": [[0.5, -1]], "id": [3], "serving_default_tag:0": ["ä"]}, "unknown": {}})");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(request_.feeds[2].flat<tstring>()(0), "ä");
  const auto json = Encode({Make<float>({0.25f}, TensorShape({1})), Make<tstring>({"a"}, TensorShape({1}))});
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(*json, R"({"outputs":{"prob":[0.25],"raw_bytes":[{"b64":"YQ=="}]}})");
}

TEST_F(TfServingJsonTest, NameOfOnlyInputIsOptional) {
  const std::vector<std::pair<const char*, TensorShape>> bodies = {
      {R"({"signature_name": "one", "instances": [1, 2]})", TensorShape({2})},
      {R"({"signature_name": "one", "instances": [[[1, 2]]]})", TensorShape({1, 1, 2})},
      {R"({"signature_name": "one", "instances": [{"x": [1, 2]}]})", TensorShape({1, 2})},
      {R"({"signature_name": "one", "inputs": [1, 2]})", TensorShape({2})},
      {R"({"signature_name": "one", "inputs": {"x": [[1], [2]]}})", TensorShape({2, 1})},
  };
  for (const auto& [body, shape] : bodies) {
    const absl::Status status = Decode(body);
    ASSERT_TRUE(status.ok()) << status << " " << body;
    EXPECT_EQ(request_.feeds[0].shape(), shape) << body;
    EXPECT_EQ(Values<float>(request_.feeds[0]), (std::vector<float>{1, 2})) << body;
  }
  ASSERT_TRUE(Decode(R"({"signature_name": "one", "inputs": 7})").ok());
  EXPECT_EQ(request_.feeds[0].shape(), TensorShape());
  auto json = Encode({Make<float>({7}, TensorShape())});
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(*json, R"({"outputs":7.0})");
  ASSERT_TRUE(Decode(R"({"signature_name": "one", "instances": [1]})").ok());
  json = Encode({Make<float>({1, 2, 3, 4}, TensorShape({2, 2}))});
  EXPECT_EQ(*json, R"({"predictions":[[1.0,2.0],[3.0,4.0]]})");
  json = Encode({Make<float>({}, TensorShape({0, 2}))});
  EXPECT_EQ(*json, R"({"predictions":[]})");
}

TEST_F(TfServingJsonTest, WritesShortestFloatsThatRoundTrip) {
  ASSERT_TRUE(Decode(R"({"signature_name": "one", "inputs": [1]})").ok());
  auto json = Encode({Make<float>({9e6f, 999999, 0.5f, 3e-5f, NAN, kInfinity, -kInfinity, -0.0f, 3.4028235e38f, 1e-45f},
                                  TensorShape({10}))});
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(*json, R"({"outputs":[9e+06,999999.0,0.5,3e-05,NaN,Infinity,-Infinity,-0.0,3.4028235e+38,1e-45]})");
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    const Tensor tensor = oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({5}), random());
    json = Encode({tensor});
    ASSERT_TRUE(json.ok());
    // What is answered can be sent again; NaN loses its bits.
    json->replace(0, std::strlen(R"({"outputs")"), R"({"signature_name":"one","inputs")");
    ASSERT_TRUE(Decode(*json).ok()) << *json;
    ASSERT_TRUE(SameButNaN(request_.feeds[0], tensor)) << *json;
  }
}

TEST_F(TfServingJsonTest, EveryDtypeSurvivesARoundTrip) {
  std::mt19937_64 random(7);
  for (const DataType dtype : oracle::DtypesOf("kserve")) {
    SetOne(dtype);
    for (const TensorShape& shape : {TensorShape(), TensorShape({3}), TensorShape({4, 1, 5}), TensorShape({2, 0})}) {
      SCOPED_TRACE(tensorflow::DataType_Name(dtype) + " " + shape.DebugString());
      const Tensor tensor = oracle::RandomTensor(dtype, shape, random());
      ASSERT_TRUE(Decode(dtype == tensorflow::DT_STRING ? R"({"inputs": [""]})"
                         : dtype == tensorflow::DT_BOOL ? R"({"inputs": true})"
                                                        : R"({"inputs": 1})")
                      .ok());
      auto json = Encode({tensor});
      ASSERT_TRUE(json.ok()) << json.status();
      ASSERT_EQ(json->substr(0, 11), R"({"outputs":)");
      const absl::Status status = Decode("{\"inputs\":" + json->substr(11));
      ASSERT_TRUE(status.ok()) << status << " " << *json;
      EXPECT_TRUE(SameButNaN(request_.feeds[0], tensor)) << *json;
    }
  }
}

TEST_F(TfServingJsonTest, ReadsNanAndInfinityOutsideStrings) {
  ASSERT_TRUE(Decode(R"({"signature_name": "one", "instances": [NaN, -Infinity, Inf, Infinity, 1]})").ok());
  const auto values = Values<float>(request_.feeds[0]);
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], -kInfinity);
  EXPECT_EQ(values[2], kInfinity);
  ASSERT_TRUE(Decode(R"({"instances": [{"dense": [NaN, 1], "id": 1, "tag": "\"NaN, Infinity\\"}]})").ok());
  EXPECT_EQ(request_.feeds[2].flat<tstring>()(0), "\"NaN, Infinity\\");
  EXPECT_EQ(Words(R"({"instances": [{"dense": [1, 1], "id": NaN, "tag": ""}]})"),
            "instances[0]: input 'id': text, expected a value of DT_INT64");
  EXPECT_EQ(Words(R"({"signature_name": "one", "instances": ["NaN"]})"),
            "input 'x': text, expected a value of DT_FLOAT");
  EXPECT_NE(Decode(R"({"signature_name": "one", "instances": [NaNs]})"), absl::OkStatus());
  EXPECT_NE(Decode(R"({"signature_name": "one", "instances": [NaN NaN]})"), absl::OkStatus());
}

TEST_F(TfServingJsonTest, NumbersMustFitTheirDtype) {
  SetOne(tensorflow::DT_INT8);
  EXPECT_TRUE(Decode(R"({"inputs": [-128, 127]})").ok());
  EXPECT_EQ(Words(R"({"inputs": [128]})"), "input 'x': 128, expected a value of DT_INT8");
  EXPECT_EQ(Words(R"({"inputs": [1.0]})"), "input 'x': 1.0, expected a value of DT_INT8");
  SetOne(tensorflow::DT_UINT64);
  EXPECT_TRUE(Decode(R"({"inputs": [18446744073709551615]})").ok());
  EXPECT_EQ(Words(R"({"inputs": [-1]})"), "input 'x': -1, expected a value of DT_UINT64");
  SetOne(tensorflow::DT_FLOAT);
  EXPECT_TRUE(Decode(R"({"inputs": [16777216, 16777217.0, -16777218, 3.4028235e38]})").ok());
  EXPECT_EQ(Words(R"({"inputs": [16777217]})"),
            "input 'x': 16777217, expected a number that DT_FLOAT holds without loss");
  EXPECT_EQ(Words(R"({"inputs": [1e39]})"), "input 'x': 1e+39, expected a number that DT_FLOAT holds without loss");
  SetOne(tensorflow::DT_DOUBLE);
  EXPECT_TRUE(Decode(R"({"inputs": [9007199254740992, 9007199254740994, 18446744073709549568, 1e308]})").ok());
  EXPECT_EQ(Words(R"({"inputs": [9007199254740993]})"),
            "input 'x': 9007199254740993, expected a number that DT_DOUBLE holds without loss");
  EXPECT_NE(Decode(R"({"inputs": [18446744073709551615]})"), absl::OkStatus());
  for (const char* huge : {"1e400", "123456789012345678901234567890", "1e999999999999999999999"}) {
    EXPECT_EQ(Decode("{\"inputs\": [" + std::string(huge) + "]}").code(), absl::StatusCode::kInvalidArgument) << huge;
  }
  SetOne(tensorflow::DT_HALF);
  EXPECT_TRUE(Decode(R"({"inputs": [65504, 0.1]})").ok());
  EXPECT_FALSE(Decode(R"({"inputs": [70000]})").ok());
  SetOne(tensorflow::DT_BOOL);
  EXPECT_EQ(Words(R"({"inputs": [1]})"), "input 'x': 1, expected a value of DT_BOOL");
  SetOne(tensorflow::DT_STRING);
  EXPECT_EQ(Words(R"({"inputs": [{"b64": "a"}]})"), "input 'x': b64 of other bytes, expected base64");
  EXPECT_EQ(Words(R"({"inputs": [{"b64": "", "c": ""}]})"), "input 'x': an object, expected a value of DT_STRING");
  SetOne(tensorflow::DT_COMPLEX64);
  EXPECT_EQ(Decode(R"({"inputs": [1]})"),
            absl::UnimplementedError("input 'x': dtype DT_COMPLEX64, expected one that protocol 'tfserving_json' has"));
}

TEST_F(TfServingJsonTest, CountsRowsWithoutElements) {
  signatures_ =
      oracle::MakeSignatures("serving_default", {{"a", DataType::DT_FLOAT, {-1, -1}}, {"b", DataType::DT_FLOAT, {-1}}},
                             {{"y", DataType::DT_FLOAT, {-1}}});
  // Of b there would be a row that nobody wrote.
  EXPECT_EQ(Words(R"({"instances": [{"a": [], "b": 1}, {"a": [], "a": []}]})"),
            "instances[1]: input 'a': given twice, expected once");
  EXPECT_TRUE(Decode(R"({"instances": [{"a": [], "b": 1}, {"b": 2, "a": []}]})").ok());
}

TEST_F(TfServingJsonTest, ErrorsNameTheKeyTheInstanceAndTheInput) {
  EXPECT_EQ(Words("{}"), "request: neither of 'instances' and 'inputs', expected one of them");
  EXPECT_EQ(Words(R"({"instances": [1], "inputs": 1})"),
            "request: both of 'instances' and 'inputs', expected one of them");
  EXPECT_EQ(Words(R"({"inputs": {}, "inputs": {}})"), "inputs: given twice, expected once");
  EXPECT_EQ(Words(R"({"signature_name": 1, "inputs": {}})"), "signature_name: 1, expected text");
  EXPECT_EQ(Words(R"({"instances": []})"), "instances: a list, expected a list of at least one");
  EXPECT_EQ(Words(R"({"instances": {}})"), "instances: an object, expected a list of at least one");
  EXPECT_EQ(Words(R"({"instances": [1]})"),
            "instances: values without names, expected names, as signature 'serving_default' has 3 inputs");
  EXPECT_EQ(Words(R"({"inputs": {"dense": [[1, 2]], "id": [1]}})"), "input 'tag': missing");
  EXPECT_EQ(Words(R"({"inputs": {"dense": [[1, 2]], "dense": [[1, 2]]}})"),
            "input 'dense': given twice, expected once");
  EXPECT_EQ(Words(R"({"inputs": {"none": 1}})"),
            "input 'none': not in signature 'serving_default' (has dense, id, tag)");
  EXPECT_EQ(Words(R"({"inputs": {"dense": [[1, 2, 3]]}})"), "input 'dense': shape [1,3], expected [?,2]");
  EXPECT_EQ(Words(R"({"inputs": {"dense": [[1, 2], [3]]}})"), "input 'dense': a list of 1, expected 2");
  EXPECT_EQ(Words(R"({"inputs": {"dense": [[1, 2], 3]}})"), "input 'dense': 3, expected a list of 2");
  EXPECT_EQ(Words(R"({"inputs": {"dense": [[1, [2]]]}})"), "input 'dense': a list, expected a value of DT_FLOAT");
  EXPECT_EQ(Words(R"({"inputs": {"dense": [[1, null]]}})"), "input 'dense': null, expected a value of DT_FLOAT");
  const std::string row = R"({"dense": [1, 2], "id": 1, "tag": ""})";
  EXPECT_EQ(Words("{\"instances\": [" + row + ", 5]}"), "instances[1]: 5, expected an object as the first");
  EXPECT_EQ(Words("{\"instances\": [" + row + ", {\"id\": 1}]}"), "instances[1]: 1 inputs, expected 3 as in the first");
  EXPECT_EQ(Words("{\"instances\": [" + row + R"(, {"dense": [1, 2], "id": 1, "id": 1}]})"),
            "instances[1]: input 'id': given twice, expected once");
  EXPECT_EQ(Words("{\"instances\": [" + row + R"(, {"dense": [1, 2], "none": 1, "id": 1}]})"),
            "instances[1]: input 'none': not in the first instance, expected the same inputs");
  EXPECT_EQ(Words("{\"instances\": [" + row + R"(, {"dense": [1], "id": 1, "tag": ""}]})"),
            "instances[1]: input 'dense': a list of 1, expected 2");
  EXPECT_EQ(Decode(R"({"signature_name": "none", "inputs": 1})").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TfServingJsonTest, RowFormatRequiresOutputsWithEqualRows) {
  ASSERT_TRUE(Decode(R"({"instances": [{"dense": [1, 2], "id": 1, "tag": ""}]})").ok());
  EXPECT_EQ(Encode({Make<float>({1}, TensorShape({1})), Make<tstring>({"", ""}, TensorShape({2}))}).status(),
            absl::InvalidArgumentError(
                "output 'raw_bytes': shape [2], expected as many rows as all outputs; ask with 'inputs'"));
  EXPECT_FALSE(Encode({Make<float>({1}, TensorShape()), Make<tstring>({""}, TensorShape())}).ok());
  const auto empty = Encode({Make<float>({}, TensorShape({0})), Make<tstring>({}, TensorShape({0, 3}))});
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(*empty, R"({"predictions":[]})");
  EXPECT_EQ(Encode({Make<float>({}, TensorShape({1})), Tensor(tensorflow::DT_COMPLEX64, TensorShape({1}))}).status(),
            absl::UnimplementedError(
                "output 'raw_bytes': dtype DT_COMPLEX64, expected one that protocol 'tfserving_json' has"));
}

TEST_F(TfServingJsonTest, EmptyTensorsDoNotCauseHugeResponses) {
  ASSERT_TRUE(Decode(R"({"signature_name": "one", "inputs": 1})").ok());
  const auto json = Encode({Tensor(tensorflow::DT_FLOAT, TensorShape({int64_t{1} << 40, 0}))});
  EXPECT_EQ(json.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*Encode({Tensor(tensorflow::DT_FLOAT, TensorShape({0, int64_t{1} << 40}))}), R"({"outputs":[]})");
}

TEST_F(TfServingJsonTest, SmallBodiesDoNotCauseLargeTensors) {
  SetOne(tensorflow::DT_FLOAT);
  // A first row of many values and many rows of few.
  std::string body = R"({"instances": [{"x": [1)";
  for (int i = 1; i < 100000; ++i) body += ",1";
  body += "]}";
  for (int i = 0; i < 100000; ++i) body += R"(,{"x":[]})";
  EXPECT_NE(Words(body + "]}").find("fewer values than 10000100000, expected all for shape"), std::string::npos);
}

}  // namespace
}  // namespace processor
