// SPDX-License-Identifier: Apache-2.0

package processor

import "fmt"

// DType is an element type; the numbers are those of tensorflow.DataType.
type DType int32

// The element types that a dense tensor can have.
const (
	Float      DType = 1
	Double     DType = 2
	Int32      DType = 3
	Uint8      DType = 4
	Int16      DType = 5
	Int8       DType = 6
	String     DType = 7
	Complex64  DType = 8
	Int64      DType = 9
	Bool       DType = 10
	BFloat16   DType = 14
	Uint16     DType = 17
	Complex128 DType = 18
	Half       DType = 19
	Uint32     DType = 22
	Uint64     DType = 23
)

// Element is a Go type of the elements of tensors.
type Element interface {
	float32 | float64 | int32 | uint8 | int16 | int8 | string | complex64 | int64 | bool | uint16 | complex128 |
		uint32 | uint64
}

// Tensor is a dense tensor in row-major order.
type Tensor struct {
	DType DType
	// Shape is empty for a scalar.
	Shape []int64
	// Values is a slice of the Go type of DType: []float32, []string and so on; []uint16 holds the bits of Half and
	// BFloat16.
	Values any
}

// NewTensor makes a tensor of values, which it does not copy. Without a shape, it has one dimension; the literal
// Tensor{DType: Float, Values: []float32{1}} makes a scalar.
func NewTensor[T Element](values []T, shape ...int64) Tensor {
	if len(shape) == 0 {
		shape = []int64{int64(len(values))}
	}
	return Tensor{DType: dtypeOf[T](), Shape: shape, Values: values}
}

// Values returns a tensor's elements.
func Values[T Element](tensor Tensor) ([]T, error) {
	values, ok := tensor.Values.([]T)
	if !ok {
		return nil, failf(InvalidArgument, "tensor: its values are %T, expected %T", tensor.Values, values)
	}
	return values, nil
}

func dtypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return Float
	case float64:
		return Double
	case int32:
		return Int32
	case uint8:
		return Uint8
	case int16:
		return Int16
	case int8:
		return Int8
	case string:
		return String
	case complex64:
		return Complex64
	case int64:
		return Int64
	case bool:
		return Bool
	case uint16:
		return Uint16
	case complex128:
		return Complex128
	case uint32:
		return Uint32
	}
	return Uint64
}

// count returns the number of elements of the shape.
func (t Tensor) count() (int, error) {
	count := int64(1)
	for _, dim := range t.Shape {
		if dim < 0 || (dim > 0 && count > maxElements/dim) {
			return 0, fmt.Errorf("shape %v", t.Shape)
		}
		count *= dim
	}
	return int(count), nil
}

const maxElements = 1 << 40
