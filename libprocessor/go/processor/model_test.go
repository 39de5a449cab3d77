// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
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

// slow is a request that runs for about a second on one core.
var slow = Request{Signature: "slow", Inputs: map[string]Tensor{"size": {DType: Int32, Values: []int32{2000}}}}

// inFlight waits until the library has so many requests.
func waitInFlight(t *testing.T, model *Model, count int64) {
	t.Helper()
	var stats *Stats
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var err error
		if stats, err = model.Stats(); err != nil {
			t.Fatal(err)
		}
		if stats.InFlight+stats.Queued >= count {
			return
		}
	}
	t.Fatalf("there were never %d requests in flight: %s", count, stats.JSON)
}

func TestRequestsLeaveWithTheirContext(t *testing.T) {
	dispatches(t, func(t *testing.T, dispatch Option) {
		model := load(t, Config{"session_num": 1}, dispatch)
		done := make(chan error, 1)
		go func() {
			_, err := model.Predict(context.Background(), slow)
			done <- err
		}()
		waitInFlight(t, model, 1)

		inputs, _, _ := scoreInputs(1)
		late, cancelLate := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancelLate()
		_, err := model.Run(late, inputs)
		expectCode(t, err, DeadlineExceeded)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v is not context.DeadlineExceeded", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err = model.Run(ctx, inputs)
		expectCode(t, err, Canceled)
		if _, err = model.Run(ctx, inputs); CodeOf(err) != Canceled {
			t.Errorf("got %v for a context that had ended before", err)
		}
		if err := <-done; err != nil {
			t.Errorf("the slow request ended with %v", err)
		}
	})
}

func TestAsyncReturnsWhileItsRequestRuns(t *testing.T) {
	model := load(t, Config{"session_num": 1}, WithDispatch(Async))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := model.Predict(ctx, slow)
	expectCode(t, err, DeadlineExceeded)
	if took := time.Since(begin); took > 300*time.Millisecond {
		t.Errorf("it took %v to return", took)
	}
	model.Close() // waits for the request that nobody waits for any more
}

func TestDrainAnswersWhatWasAdmitted(t *testing.T) {
	dispatches(t, func(t *testing.T, dispatch Option) {
		model := load(t, Config{"session_num": 1}, dispatch)
		done := make(chan error, 1)
		go func() {
			_, err := model.Predict(context.Background(), slow)
			done <- err
		}()
		waitInFlight(t, model, 1)
		short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		expectCode(t, model.Drain(short), DeadlineExceeded)
		inputs, _, _ := scoreInputs(1)
		_, err := model.Run(context.Background(), inputs)
		expectCode(t, err, Unavailable)
		if err := model.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Errorf("the request that was running ended with %v", err)
		}
	})
}

func TestCloseUnderLoad(t *testing.T) {
	dispatches(t, func(t *testing.T, dispatch Option) {
		model := load(t, twoSessions, dispatch)
		inputs, y, echo := scoreInputs(4)
		var clients sync.WaitGroup
		for range 16 {
			clients.Add(1)
			go func() {
				defer clients.Done()
				for {
					outputs, err := model.Run(context.Background(), inputs)
					if err == nil {
						err = checkScores(outputs, y, echo)
					}
					switch CodeOf(err) {
					case OK:
						continue
					case FailedPrecondition, Canceled:
					default:
						t.Errorf("got %v, expected FAILED_PRECONDITION or CANCELLED", err)
					}
					return
				}
			}()
		}
		time.Sleep(100 * time.Millisecond)
		model.Close()
		clients.Wait()
		model.Close()
		_, err := model.Run(context.Background(), inputs)
		expectCode(t, err, FailedPrecondition)
		_, err = model.Info()
		expectCode(t, err, FailedPrecondition)
		expectCode(t, model.SetCPUSet(""), FailedPrecondition)
	})
}

func TestManyGoroutinesHoldFewThreads(t *testing.T) {
	model := load(t, twoSessions, WithDispatch(Direct))
	inputs, y, echo := scoreInputs(4)
	if _, err := model.Run(context.Background(), inputs); err != nil {
		t.Fatal(err)
	}
	before := threads(t)
	var clients sync.WaitGroup
	for range 500 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			for range 20 {
				outputs, err := model.Run(context.Background(), inputs)
				if err == nil {
					err = checkScores(outputs, y, echo)
				}
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	clients.Wait()
	if grown := threads(t) - before; grown > 2+2*runtime.GOMAXPROCS(0) {
		t.Errorf("500 goroutines made %d threads, expected about as many as the sessions", grown)
	}
}

func TestLoadAndCloseLeaveNothingBehind(t *testing.T) {
	cycle := func() {
		model, err := Load(testModel(t), Config{"session_num": 1, "warmup_runs": 1}, WithDispatch(Async))
		if err != nil {
			t.Fatal(err)
		}
		inputs, _, _ := scoreInputs(1)
		if _, err := model.Run(context.Background(), inputs); err != nil {
			t.Error(err)
		}
		model.Close()
	}
	for range 3 {
		cycle()
	}
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	for range 10 {
		cycle()
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines after %d", now, goroutines)
	}
	if now := descriptors(t); now > files {
		t.Errorf("%d file descriptors after %d", now, files)
	}
}

func threads(t *testing.T) int { return entries(t, "/proc/self/task") }

func descriptors(t *testing.T) int { return entries(t, "/proc/self/fd") }

func entries(t *testing.T, folder string) int {
	t.Helper()
	found, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func benchmark(b *testing.B, dispatch Dispatch) {
	model := load(b, twoSessions, WithDispatch(dispatch))
	request := tfservingRequest()
	b.SetParallelism(4)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := model.Process(context.Background(), "tfserving", request); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkDirect(b *testing.B) { benchmark(b, Direct) }

func BenchmarkAsync(b *testing.B) { benchmark(b, Async) }
