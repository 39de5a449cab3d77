// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/float_products.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace processor {
namespace {

// A product with constant weights, in both forms.
struct Both {
  Both(int64_t k, int64_t n) : weights(static_cast<size_t>(k * n), 0.5f) {
    product.shape.k = k;
    product.shape.n = n;
    panels = HugeMemory(static_cast<size_t>(product.shape.bytes()));
    PackPanels(weights.data(), false, product.shape, panels.data());
    EXPECT_TRUE(OnednnMatmul::Create(weights.data(), false, product.shape, panels.data(), Activation(), &onednn).ok());
    product.panels = panels.data();
    product.onednn = onednn.get();
  }

  std::vector<float> weights;
  HugeMemory panels;
  std::unique_ptr<OnednnMatmul> onednn;
  FloatProduct product;
};

TEST(FloatProducts, EveryChoiceIsOneOfThreeAndStays) {
  const Both wide(429, 256), narrow(256, 1), small(7, 33);
  const std::vector<FloatProduct> all = {wide.product, narrow.product, small.product};
  const int64_t first = FewestRowsForOnednn(ThisCpu().isa, all);
  EXPECT_TRUE(first == kFewestOnednnRows || first == 4 * kFewestOnednnRows || first == kNoOnednnRows) << first;
  EXPECT_EQ(FewestRowsForOnednn(ThisCpu().isa, all), first);
}

TEST(FloatProducts, OnednnWinsAgainstProductsWithoutVectors) {
  if (ThisCpu().isa == Isa::kPlain) GTEST_SKIP() << "oneDNN has no vectors either";
  const Both wide(1024, 512), narrow(256, 1);
  const std::vector<FloatProduct> all = {wide.product, narrow.product};
  EXPECT_EQ(FewestRowsForOnednn(Isa::kPlain, all), kFewestOnednnRows);
}

TEST(FloatProducts, ATowerWithoutProductsNeedsNoOnednn) {
  EXPECT_EQ(FewestRowsForOnednn(ThisCpu().isa, {}), kNoOnednnRows);
}

}  // namespace
}  // namespace processor
