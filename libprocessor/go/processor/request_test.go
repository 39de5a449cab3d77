// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// tfservingRequest serialises a PredictRequest with x = [[0, 0.5, -1]] and s = ["item 0"].
func tfservingRequest() []byte {
	var values []byte
	for _, value := range []float32{0, 0.5, -1} {
		values = protowire.AppendFixed32(values, math.Float32bits(value))
	}
	x := tensorProto(Float, 1, 3)
	x = protowire.AppendTag(x, 5, protowire.BytesType) // float_val
	x = protowire.AppendBytes(x, values)
	s := tensorProto(String, 1)
	s = protowire.AppendTag(s, 8, protowire.BytesType) // string_val
	s = protowire.AppendString(s, "item 0")
	return append(inputEntry("x", x), inputEntry("s", s)...)
}

// tensorProto begins a TensorProto.
func tensorProto(dtype DType, dims ...uint64) []byte {
	var shape []byte
	for _, dim := range dims {
		size := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), dim)
		shape = protowire.AppendTag(shape, 2, protowire.BytesType) // dim
		shape = protowire.AppendBytes(shape, size)
	}
	proto := protowire.AppendTag(nil, 1, protowire.VarintType) // dtype
	proto = protowire.AppendVarint(proto, uint64(dtype))
	proto = protowire.AppendTag(proto, 2, protowire.BytesType) // tensor_shape
	return protowire.AppendBytes(proto, shape)
}

// inputEntry is an entry of PredictRequest.inputs.
func inputEntry(name string, tensor []byte) []byte {
	entry := protowire.AppendTag(nil, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, name)
	entry = protowire.AppendTag(entry, 2, protowire.BytesType)
	entry = protowire.AppendBytes(entry, tensor)
	return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), entry)
}
