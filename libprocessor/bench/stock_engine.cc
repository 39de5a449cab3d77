// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "engine.h"
#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/public/session.h"

namespace processor::bench {
namespace {

using Feeds = std::vector<std::pair<std::string, tensorflow::Tensor>>;

void Require(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error("stock: " + std::string(status.message()));
}

class StockEngine : public Engine {
 public:
  StockEngine(const EngineOptions& options, const std::vector<std::string>& requests) {
    Require(tensorflow::LoadSavedModel(tensorflow::SessionOptions(), tensorflow::RunOptions(), options.model, {"serve"},
                                       &bundle_));
    const auto signature = bundle_.GetSignatures().find(options.signature);
    if (signature == bundle_.GetSignatures().end()) {
      throw std::runtime_error("stock: no signature '" + options.signature + "' in " + options.model);
    }
    for (const auto& [alias, info] : signature->second.outputs()) {
      aliases_.push_back(alias);
      fetches_.push_back(info.name());
    }
    for (const std::string& request : requests) feeds_.push_back(MakeFeeds(signature->second, request, options));
  }

  void Run(size_t index) override {
    std::vector<tensorflow::Tensor> outputs;
    Require(bundle_.GetSession()->Run(feeds_[index], fetches_, {}, &outputs));
  }

  NamedTensors Answer(size_t index) override {
    std::vector<tensorflow::Tensor> outputs;
    Require(bundle_.GetSession()->Run(feeds_[index], fetches_, {}, &outputs));
    NamedTensors answer;
    for (size_t i = 0; i < outputs.size(); ++i) answer.emplace(aliases_[i], outputs[i]);
    return answer;
  }

 private:
  static Feeds MakeFeeds(const tensorflow::SignatureDef& signature, const std::string& request,
                         const EngineOptions& options) {
    Feeds feeds;
    for (auto& [alias, tensor] : ReadRequest(request, options.protocol)) {
      const auto input = signature.inputs().find(alias);
      if (input == signature.inputs().end()) throw std::runtime_error("stock: no input '" + alias + "'");
      feeds.emplace_back(input->second.name(), tensor);
    }
    return feeds;
  }

  tensorflow::SavedModelBundle bundle_;
  std::vector<std::string> aliases_;
  std::vector<std::string> fetches_;
  std::vector<Feeds> feeds_;
};

}  // namespace

std::unique_ptr<Engine> MakeStockEngine(const EngineOptions& options, const std::vector<std::string>& requests) {
  return std::make_unique<StockEngine>(options, requests);
}

}  // namespace processor::bench
