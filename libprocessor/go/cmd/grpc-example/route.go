// SPDX-License-Identifier: Apache-2.0

package main

import "google.golang.org/protobuf/encoding/protowire"

// Fields of tensorflow.serving.PredictRequest and ModelSpec.
const (
	fieldModelSpec protowire.Number = 1
	fieldName      protowire.Number = 1
)

// modelName reads model_spec.name out of a serialized PredictRequest, and nothing else of it.
func modelName(request []byte) (string, error) {
	name := ""
	err := eachBytesField(request, fieldModelSpec, func(spec []byte) error {
		return eachBytesField(spec, fieldName, func(value []byte) error {
			name = string(value)
			return nil
		})
	})
	return name, err
}

// eachBytesField calls a function with every length-delimited field of that number.
func eachBytesField(message []byte, wanted protowire.Number, found func([]byte) error) error {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		size = protowire.ConsumeFieldValue(number, kind, message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if number == wanted && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			if err := found(value); err != nil {
				return err
			}
		}
		message = message[size:]
	}
	return nil
}
