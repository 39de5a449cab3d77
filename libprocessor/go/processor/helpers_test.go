// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// testModel is the folder of the model that tests/hosts/conftest.py exports.
func testModel(t testing.TB) string {
	t.Helper()
	path := os.Getenv("PROCESSOR_TEST_MODEL")
	if path == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("PROCESSOR_TEST_MODEL: not set")
		}
		t.Skip("PROCESSOR_TEST_MODEL: not set; tests/hosts/test_go.py makes the model and sets it")
	}
	return path
}

func load(t testing.TB, config Config, options ...Option) *Model {
	t.Helper()
	model, err := Load(testModel(t), config, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	return model
}

var twoSessions = Config{
	"session_num": 2, "select_session_policy": "LEAST_LOADED",
	"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1,
}

// dispatches runs a test both ways.
func dispatches(t *testing.T, test func(t *testing.T, dispatch Option)) {
	for name, dispatch := range map[string]Dispatch{"Direct": Direct, "Async": Async} {
		t.Run(name, func(t *testing.T) { test(t, WithDispatch(dispatch)) })
	}
}

func scoreInputs(rows int) (map[string]Tensor, []float32, []string) {
	x := make([]float32, 3*rows)
	s, y, echo := make([]string, rows), make([]float32, rows), make([]string, rows)
	for i := range rows {
		x[3*i], x[3*i+1], x[3*i+2] = float32(i), 0.5, -1
		y[i] = float32(i) + 1 - 4
		s[i] = fmt.Sprint("item ", i)
		echo[i] = s[i] + "!"
	}
	return map[string]Tensor{"x": NewTensor(x, int64(rows), 3), "s": NewTensor(s)}, y, echo
}

func checkScores(outputs map[string]Tensor, y []float32, echo []string) error {
	scores, err := Values[float32](outputs["y"])
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(scores, y) || !reflect.DeepEqual(outputs["echo"].Values, echo) {
		return fmt.Errorf("got %v, expected %v and %v", outputs, y, echo)
	}
	return nil
}

// whileBusy calls attempt while a request runs, and tries again beside a longer request if that one has ended meanwhile,
// since the machine may be busy. start sends a request to "slow", whose time grows with the cube of the size.
func whileBusy(t *testing.T, start func(size int32) <-chan error, attempt func() error) {
	t.Helper()
	for size := int32(1500); ; size += size / 2 {
		ended := start(size)
		failed := attempt()
		isBusy := true
		var err error
		select {
		case err = <-ended:
			isBusy = false
		default:
			err = <-ended
		}
		if err != nil {
			t.Fatalf("the slow request ended with %v", err)
		}
		if failed == nil {
			return
		}
		if isBusy || size > 6000 {
			t.Fatal(failed)
		}
	}
}

// checkCode is expectCode for an attempt that may be repeated.
func checkCode(err error, code Code) error {
	if CodeOf(err) != code {
		return fmt.Errorf("got %v, expected %v", err, code)
	}
	return nil
}

func expectCode(t *testing.T, err error, code Code, words ...string) {
	t.Helper()
	if CodeOf(err) != code {
		t.Errorf("got %v, expected %v", err, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not name %q", err, word)
		}
	}
}

// tfservingRequest serializes a PredictRequest with x = [[0, 0.5, -1]] and s = ["item 0"].
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
