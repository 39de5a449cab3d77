// SPDX-License-Identifier: Apache-2.0
// Protocol "tfserving_json", method predict: bodies of TensorFlow Serving's REST API, in rows ("instances") or in
// columns ("inputs").
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "src/codec/input_places.h"
#include "src/codec/json_values.h"
#include "src/codec/json_writer.h"
#include "src/codec/message_text.h"
#include "src/codec/protocols.h"
#include "src/codec/tfserving_json.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr const char* kTfservingJson = "tfserving_json";

/// Lists that an answer may have: a tensor of no elements can have more than memory.
constexpr int64_t kMaxLists = int64_t{16} << 20;

struct PredictDetails : RequestDetails {
  bool rows = false;
};

/// The parts of a body. Keys that the server does not know mean nothing to it.
struct PredictBody {
  std::string_view signature;
  JsonElement instances, inputs;
  bool has_instances = false, has_inputs = false;
};

absl::Status ScanPredict(const JsonObject& root, PredictBody* dst) {
  bool has_signature = false;
  for (const auto [key, value] : root) {
    bool* seen = nullptr;
    if (key == "instances") {
      seen = &dst->has_instances;
      dst->instances = value;
    } else if (key == "inputs") {
      seen = &dst->has_inputs;
      dst->inputs = value;
    } else if (key == "signature_name") {
      seen = &has_signature;
      if (absl::Status status = ReadSignatureName(value, &dst->signature); !status.ok()) return status;
    }
    if (seen == nullptr) continue;
    if (*seen) return absl::InvalidArgumentError(absl::StrCat(key, ": given twice, expected once"));
    *seen = true;
  }
  if (dst->has_instances == dst->has_inputs) {
    return absl::InvalidArgumentError(absl::StrCat("request: ", dst->has_inputs ? "both" : "neither", " of ",
                                                   "'instances' and 'inputs', expected one of them"));
  }
  return absl::OkStatus();
}

/// Whether values have names: an object does, but for one that is a string in base64.
bool HasNames(JsonElement element, JsonObject* object) {
  std::string_view text;
  return element.get(*object) == simdjson::SUCCESS && !IsBase64(*object, &text);
}

/// Puts the values of a body into the feeds.
class Reader {
 public:
  /// \param most  number of values that the body can have.
  Reader(const JsonDocument& document, size_t most, DecodedRequest* dst)
      : document_(document), signature_(*dst->signature), most_(most), places_(signature_), feeds_(&dst->feeds) {
    feeds_->resize(signature_.inputs().size());
  }

  const SeenInputs& seen() const { return places_.seen(); }

  absl::Status ReadColumns(JsonElement inputs) {
    JsonObject object;
    if (!HasNames(inputs, &object)) {
      if (absl::Status status = OneInput("inputs"); !status.ok()) return status;
      return ReadColumn(signature_.inputs()[0].alias, inputs);
    }
    for (const auto [key, value] : object) {
      if (absl::Status status = ReadColumn(key, value); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ReadRows(JsonElement instances) {
    JsonArray rows;
    if (instances.get(rows) != simdjson::SUCCESS || SizeOf(rows) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("instances: ", Describe(instances), ", expected a list of at least one"));
    }
    JsonObject first;
    if (!HasNames(*rows.begin(), &first)) {
      if (absl::Status status = OneInput("instances"); !status.ok()) return status;
      return ReadColumn(signature_.inputs()[0].alias, instances);
    }
    return ReadNamedRows(rows);
  }

 private:
  /// What the first row says of an input, and where its values go.
  struct Column {
    std::string_view key;
    Dims dims;         // of one row
    int64_t elements;  // of one row
    JsonFiller filler;
    int64_t rows = 0;  // read so far; what is filled tells nothing where a row has no elements
  };

  absl::Status OneInput(std::string_view where) const {
    if (signature_.inputs().size() == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(where, ": values without names, expected names, as signature '",
                                                   signature_.name(), "' has ", signature_.inputs().size(), " inputs"));
  }

  absl::Status ReadColumn(std::string_view key, JsonElement value) {
    std::vector<Column> columns;
    if (absl::Status s = Begin(key, value, std::nullopt, &columns); !s.ok()) return s;
    const Dims& dims = columns[0].dims;
    return columns[0].filler.FillNested(value, dims.data(), static_cast<int>(dims.size()));
  }

  /// Makes the tensor of an input in the shape of its value; with `rows`, of so many of them.
  absl::Status Begin(std::string_view key, JsonElement value, std::optional<int64_t> rows,
                     std::vector<Column>* columns) {
    int position;
    if (absl::Status status = places_.Take(key, &position); !status.ok()) return status;
    const TensorSpec& spec = signature_.inputs()[position];
    Dims dims;
    if (rows) dims.push_back(*rows);
    if (absl::Status status = AppendDims(spec, value, &dims); !status.ok()) return status;
    TensorShape shape;
    Tensor* const feed = &(*feeds_)[position];
    absl::Status status = MakeTensor(spec, kTfservingJson, dims, most_, &arena_, &shape, feed);
    if (!status.ok()) return status;
    if (rows) dims.erase(dims.begin());
    columns->push_back({key, std::move(dims), feed->NumElements() / rows.value_or(1),
                        JsonFiller(spec, document_, /*base64=*/true, feed)});
    return absl::OkStatus();
  }

  absl::Status ReadNamedRows(JsonArray rows) {
    const auto count = static_cast<int64_t>(SizeOf(rows));
    std::vector<Column> columns;
    int64_t row = 0;
    for (const JsonElement instance : rows) {
      JsonObject object;
      if (!HasNames(instance, &object)) {
        return absl::InvalidArgumentError(
            absl::StrCat("instances[", row, "]: ", Describe(instance), ", expected an object as the first"));
      }
      if (row == 0) {
        for (const auto [key, value] : object) {
          if (absl::Status status = Begin(key, value, count, &columns); !status.ok()) return status;
        }
      }
      if (absl::Status status = ReadRow(object, row, &columns); !status.ok()) {
        return absl::Status(status.code(), absl::StrCat("instances[", row, "]: ", status.message()));
      }
      ++row;
    }
    return absl::OkStatus();
  }

  absl::Status ReadRow(const JsonObject& object, int64_t row, std::vector<Column>* columns) const {
    size_t k = 0;
    for (const auto [key, value] : object) {
      Column* column = k < columns->size() ? &(*columns)[k] : nullptr;
      if (column == nullptr || column->key != key) column = Find(key, columns);  // another order than in the first row
      if (column == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("input '", Printable(key), "': not in the first instance, expected the same inputs"));
      }
      JsonFiller& filler = column->filler;
      if (column->rows != row) {
        return absl::InvalidArgumentError(absl::StrCat("input '", Printable(key), "': given twice, expected once"));
      }
      ++column->rows;
      absl::Status s = filler.FillNested(value, column->dims.data(), static_cast<int>(column->dims.size()));
      if (!s.ok()) return s;
      ++k;
    }
    if (k == columns->size()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(k, " inputs, expected ", columns->size(), " as in the first"));
  }

  static Column* Find(std::string_view key, std::vector<Column>* columns) {
    for (Column& column : *columns) {
      if (column.key == key) return &column;
    }
    return nullptr;
  }

  const JsonDocument& document_;
  const Signature& signature_;
  const size_t most_;
  InputPlaces places_;
  FeedArena arena_;
  std::vector<Tensor>* feeds_;
};

class PredictJson final : public Codec {
 public:
  absl::Status Decode(std::string_view bytes, const SignatureSet& signatures, const RequestOptions& options,
                      DecodedRequest* dst) const override {
    JsonDocument document;
    if (absl::Status status = document.Parse(bytes); !status.ok()) return status;
    PredictBody body;
    if (absl::Status status = ScanPredict(document.root(), &body); !status.ok()) return status;
    dst->Clear();
    const std::string_view name = options.signature.empty() ? body.signature : options.signature;
    absl::Status found = SelectSignature(signatures, name, dst, absl::StatusCode::kInvalidArgument);
    if (!found.ok()) return found;
    Reader reader(document, bytes.size(), dst);
    absl::Status status = body.has_instances ? reader.ReadRows(body.instances) : reader.ReadColumns(body.inputs);
    if (!status.ok()) return status;
    static const auto* const rows = new std::shared_ptr<const RequestDetails>(MakeDetails(true));
    static const auto* const columns = new std::shared_ptr<const RequestDetails>(MakeDetails(false));
    dst->details = body.has_instances ? *rows : *columns;
    return FinishRequest(reader.seen(), {}, dst);
  }

  absl::Status Encode(const DecodedRequest& request, const std::vector<Tensor>& outputs, const ResponseContext&,
                      Response* dst) const override {
    const bool rows = static_cast<const PredictDetails&>(*request.details).rows;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (absl::Status status = Check(Alias(request, i), outputs[i], rows ? &outputs[0] : nullptr); !status.ok()) {
        return status;
      }
    }
    JsonWriter json;
    constexpr size_t kQuotes = 8;
    size_t keys = 0;
    for (size_t i = 0; rows && outputs.size() > 1 && i < outputs.size(); ++i) {
      keys = std::max(keys, Alias(request, i).size() + kQuotes);
    }
    if (absl::Status status = json.Reserve(outputs, keys); !status.ok()) return status;
    json.Text(rows ? "{\"predictions\":" : "{\"outputs\":");
    if (outputs.size() == 1) {
      json.Nested(outputs[0], 0, 0, IsBinary(Alias(request, 0)));
    } else if (rows) {
      WriteRows(request, outputs, &json);
    } else {
      for (size_t i = 0; i < outputs.size(); ++i) {
        const std::string& alias = Alias(request, i);
        json.Text(i == 0 ? "{" : ",").Key(alias).Nested(outputs[i], 0, 0, IsBinary(alias));
      }
      json.Text("}");
    }
    json.Text("}");
    return Finish(json, dst);
  }

 private:
  static std::shared_ptr<const RequestDetails> MakeDetails(bool rows) {
    auto details = std::make_shared<PredictDetails>();
    details->rows = rows;
    return details;
  }

  static const std::string& Alias(const DecodedRequest& request, size_t i) {
    return request.signature->outputs()[request.fetches[i]].alias;
  }

  static bool IsBinary(std::string_view alias) {
    constexpr std::string_view kSuffix = "_bytes";
    return alias.size() >= kSuffix.size() && alias.substr(alias.size() - kSuffix.size()) == kSuffix;
  }

  /// \param first  the output whose rows all must have; null if the answer has no rows.
  static absl::Status Check(const std::string& alias, const Tensor& tensor, const Tensor* first) {
    if (!InJson(tensor.dtype())) return NotInProtocol("output", alias, tensor.dtype(), kTfservingJson);
    int64_t lists = 1;
    for (int d = 0; d + 1 < tensor.dims() && lists > 0; ++d) {
      lists = tensor.dim_size(d) > kMaxLists / lists ? kMaxLists + 1 : lists * tensor.dim_size(d);
    }
    if (lists > kMaxLists) {
      return absl::ResourceExhaustedError(absl::StrCat("output '", alias, "': shape ", tensor.shape().DebugString(),
                                                       ", expected at most ", kMaxLists, " lists"));
    }
    if (first == nullptr) return absl::OkStatus();
    if (tensor.dims() > 0 && first->dims() > 0 && tensor.dim_size(0) == first->dim_size(0)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("output '", alias, "': shape ", tensor.shape().DebugString(),
                                                   ", expected as many rows as all outputs; ask with 'inputs'"));
  }

  static void WriteRows(const DecodedRequest& request, const std::vector<Tensor>& outputs, JsonWriter* json) {
    const int64_t rows = outputs[0].dim_size(0);
    json->Text("[");
    for (int64_t row = 0; row < rows; ++row) {
      json->Text(row == 0 ? "{" : ",{");
      for (size_t i = 0; i < outputs.size(); ++i) {
        const std::string& alias = Alias(request, i);
        if (i > 0) json->Text(",");
        json->Key(alias).Nested(outputs[i], 1, row * (outputs[i].NumElements() / rows), IsBinary(alias));
      }
      json->Text("}");
    }
    json->Text("]");
  }
};

}  // namespace

absl::Status ReadSignatureName(JsonElement element, std::string_view* name) {
  if (element.get(*name) == simdjson::SUCCESS) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("signature_name: ", Describe(element), ", expected text"));
}

const Codec* PredictJsonCodec() {
  static const PredictJson codec;
  return &codec;
}

}  // namespace processor
