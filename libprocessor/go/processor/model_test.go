// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"reflect"
	"testing"
)

func TestRunAnswersTensors(t *testing.T) {
	dispatches(t, func(t *testing.T, dispatch Option) {
		model := load(t, twoSessions, dispatch)
		for _, rows := range []int{1, 2, 128} {
			inputs, y, echo := scoreInputs(rows)
			outputs, err := model.Run(context.Background(), inputs)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkScores(outputs, y, echo); err != nil {
				t.Error(err)
			}
		}
		inputs, y, _ := scoreInputs(3)
		outputs, err := model.Run(context.Background(), inputs, "y")
		if err != nil || len(outputs) != 1 || !reflect.DeepEqual(outputs["y"].Values, y) {
			t.Errorf("got %v (%v), expected y only", outputs, err)
		}
	})
}

func TestRunHandsEveryDTypeBack(t *testing.T) {
	model := load(t, nil)
	inputs := map[string]Tensor{
		"float32":    NewTensor([]float32{1.5, -2}, 1, 2),
		"float64":    NewTensor([]float64{1.5, math.Inf(1)}, 1, 2),
		"int32":      NewTensor([]int32{math.MinInt32, 7}, 1, 2),
		"uint8":      NewTensor([]uint8{0, 255}, 1, 2),
		"int16":      NewTensor([]int16{-32768, 7}, 1, 2),
		"int8":       NewTensor([]int8{-128, 7}, 1, 2),
		"string":     NewTensor([]string{"", "a\x00\xff"}, 1, 2),
		"complex64":  NewTensor([]complex64{1 + 2i, -1i}, 1, 2),
		"int64":      NewTensor([]int64{math.MinInt64, 7}, 1, 2),
		"bool":       NewTensor([]bool{true, false}, 1, 2),
		"bfloat16":   {DType: BFloat16, Shape: []int64{1, 2}, Values: []uint16{0x3f80, 0xc000}},
		"uint16":     NewTensor([]uint16{0, 65535}, 1, 2),
		"complex128": NewTensor([]complex128{1 + 2i, -1i}, 1, 2),
		"half":       {DType: Half, Shape: []int64{1, 2}, Values: []uint16{0x3c00, 0xc000}},
		"uint32":     NewTensor([]uint32{0, math.MaxUint32}, 1, 2),
		"uint64":     NewTensor([]uint64{0, math.MaxUint64}, 1, 2),
	}
	response, err := model.Predict(context.Background(), Request{Inputs: inputs, Signature: "types"})
	if err != nil {
		t.Fatal(err)
	}
	if len(response.Outputs) != len(inputs) {
		t.Errorf("%d outputs, expected %d", len(response.Outputs), len(inputs))
	}
	for name, input := range inputs {
		if output := response.Outputs[name+"_out"]; !reflect.DeepEqual(output, input) {
			t.Errorf("%s: got %v, expected %v", name, output, input)
		}
	}
	if response.Run.Session != 0 || response.Run.ModelVersion != 7 || response.Run.Generation != 1 ||
		response.Run.Execute <= 0 {
		t.Errorf("got %+v, expected session 0, version 7, generation 1 and a duration", response.Run)
	}
	for name, tensor := range inputs {
		empty := reflect.MakeSlice(reflect.TypeOf(tensor.Values), 0, 0).Interface()
		inputs[name] = Tensor{DType: tensor.DType, Shape: []int64{0, 2}, Values: empty}
	}
	response, err = model.Predict(context.Background(), Request{Inputs: inputs, Signature: "types"})
	if err != nil {
		t.Fatal(err)
	}
	for name, input := range inputs {
		if output := response.Outputs[name+"_out"]; !reflect.DeepEqual(output, input) {
			t.Errorf("%s without rows: got %v, expected %v", name, output, input)
		}
	}
}

func TestProcessAnswersBytes(t *testing.T) {
	dispatches(t, func(t *testing.T, dispatch Option) {
		model := load(t, twoSessions, dispatch)
		response, err := model.Process(context.Background(), "tfserving", tfservingRequest())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(response, []byte("item 0!")) {
			t.Errorf("the response %q does not hold what the model makes of \"item 0\"", response)
		}
		signature, err := model.Process(context.Background(), "eas", nil)
		if err != nil || !json.Valid(signature) || !bytes.Contains(signature, []byte("serving_default")) {
			t.Errorf("got %q (%v), expected the signature as JSON", signature, err)
		}
	})
}

func TestErrorsNameWhatIsWrong(t *testing.T) {
	dispatches(t, func(t *testing.T, dispatch Option) {
		model := load(t, twoSessions, dispatch)
		inputs, y, echo := scoreInputs(2)
		with := func(name string, tensor Tensor) map[string]Tensor {
			changed := map[string]Tensor{}
			for key, value := range inputs {
				changed[key] = value
			}
			changed[name] = tensor
			return changed
		}
		for _, c := range []struct {
			request Request
			code    Code
			word    string
		}{
			{Request{Protocol: "tfserving", Data: []byte{0xff, 0xff}}, InvalidArgument, ""},
			{Request{Protocol: "morse", Data: []byte{1}}, Unimplemented, "morse"},
			{Request{Protocol: "a\x00b"}, InvalidArgument, "zero byte"},
			{Request{Inputs: inputs, Signature: "nowhere"}, NotFound, "nowhere"},
			{Request{Inputs: inputs, Outputs: []string{"absent"}}, NotFound, "absent"},
			{Request{Inputs: map[string]Tensor{"x": inputs["x"]}}, InvalidArgument, "s"},
			{Request{Inputs: with("z", inputs["x"])}, InvalidArgument, "z"},
			{Request{Inputs: with("x", NewTensor([]int32{1, 2, 3}, 1, 3))}, InvalidArgument, "x"},
			{Request{Inputs: with("x", NewTensor([]float32{1, 2}, 1, 2))}, InvalidArgument, "x"},
			{Request{Inputs: with("x", NewTensor([]float32{1, 2}, 1, 3))}, InvalidArgument, "x"},
			{Request{Inputs: with("x", NewTensor([]float32{1}, -1, -1))}, InvalidArgument, "x"},
			{Request{Inputs: with("x", NewTensor([]float32{1}, 1<<62, 4))}, InvalidArgument, "x"},
			{Request{Inputs: with("x", Tensor{DType: Double, Values: []float32{1}})}, InvalidArgument, "x"},
			{Request{Inputs: with("x", Tensor{DType: Float, Values: "1"})}, InvalidArgument, "x"},
		} {
			_, err := model.Predict(context.Background(), c.request)
			expectCode(t, err, c.code, c.word)
		}
		outputs, err := model.Run(context.Background(), inputs)
		if err != nil {
			t.Fatalf("after the errors: %v", err)
		}
		if err := checkScores(outputs, y, echo); err != nil {
			t.Error(err)
		}
	})
}

func TestLoadFailsWithTheReason(t *testing.T) {
	_, err := Load("/nowhere/at/all", nil)
	expectCode(t, err, NotFound, "/nowhere/at/all")
	_, err = Load(testModel(t), Config{"no_such_key": 1})
	expectCode(t, err, InvalidArgument, "no_such_key")
	_, err = Load(testModel(t), Config{"session_num": -1})
	expectCode(t, err, InvalidArgument, "session_num")
	_, err = Load(testModel(t), Config{"f": func() {}})
	expectCode(t, err, InvalidArgument, "config")
	_, err = Load("a\x00b", nil)
	expectCode(t, err, InvalidArgument, "path")
}

func TestModelDescribesItself(t *testing.T) {
	model := load(t, twoSessions)
	info, err := model.Info()
	if err != nil {
		t.Fatal(err)
	}
	if info.Path != testModel(t) || info.Execution != "inline" || info.slots() != 2 || !json.Valid(info.JSON) {
		t.Errorf("got %+v", info)
	}
	signatures, err := model.Signatures()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]Signature{}
	for _, signature := range signatures {
		names[signature.Name] = signature
	}
	for _, input := range names["serving_default"].Inputs {
		if input.Name == "x" && (input.DType != "DT_FLOAT" || !reflect.DeepEqual(input.Shape, []int64{-1, 3})) {
			t.Errorf("got %+v, expected DT_FLOAT [-1, 3]", input)
		}
	}
	if len(names["serving_default"].Inputs) != 2 || len(names["types"].Outputs) != 16 || len(names) < 3 {
		t.Errorf("got %+v", names)
	}

	before, err := model.Stats()
	if err != nil {
		t.Fatal(err)
	}
	inputs, _, _ := scoreInputs(1)
	for range 10 {
		if _, err := model.Run(context.Background(), inputs); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := model.Run(context.Background(), nil); CodeOf(err) != InvalidArgument {
		t.Errorf("got %v, expected INVALID_ARGUMENT for no inputs", err)
	}
	after, err := model.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if after.Requests-before.Requests != 11 || after.Responses["OK"]-before.Responses["OK"] != 10 {
		t.Errorf("got %s after %s, expected 11 requests more, 10 of them OK", after.JSON, before.JSON)
	}
	if after.Latency.P99 < after.Latency.P50 || after.Latency.P50 <= 0 {
		t.Errorf("got %+v, expected rising percentiles", after.Latency)
	}
	if Version() == "" || !json.Valid([]byte(BuildInfo())) {
		t.Error("the library does not describe itself")
	}
}

func TestSetCPUSet(t *testing.T) {
	model := load(t, Config{"session_num": 1})
	expectCode(t, model.SetCPUSet("99999"), InvalidArgument, "99999")
	if err := model.SetCPUSet(""); err != nil {
		t.Error(err)
	}
}
