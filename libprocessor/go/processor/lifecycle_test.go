// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// slow is a request that runs for half a second or more on one core.
var slow = Request{Signature: "slow", Inputs: map[string]Tensor{"size": {DType: Int32, Values: []int32{2000}}}}

// waitInFlight waits until the library has so many requests.
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
		model := load(t, Config{"session_num": 1, "worker_threads": 1}, dispatch)
		start := func(size int32) <-chan error {
			done := make(chan error, 1)
			request := Request{Signature: "slow", Inputs: map[string]Tensor{"size": {DType: Int32, Values: []int32{size}}}}
			go func() {
				_, err := model.Predict(context.Background(), request)
				done <- err
			}()
			waitInFlight(t, model, 1)
			return done
		}
		inputs, _, _ := scoreInputs(1)
		whileBusy(t, start, func() error {
			late, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			_, err := model.Run(late, inputs)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is not context.DeadlineExceeded", err)
			}
			return checkCode(err, DeadlineExceeded)
		})
		whileBusy(t, start, func() error {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(10*time.Millisecond, cancel)
			_, err := model.Run(ctx, inputs)
			return checkCode(err, Canceled)
		})
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := model.Run(ended, inputs)
		expectCode(t, err, Canceled)
	})
}

func TestAsyncReturnsWhileItsRequestRuns(t *testing.T) {
	model := load(t, Config{"session_num": 1}, WithDispatch(Async))
	var err error
	var stats *Stats
	// On a busy machine the request may end before it is cancelled, or before the statistics are read.
	for try := 0; try < 10 && (err == nil || stats.InFlight == 0); try++ {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := model.Predict(ctx, slow)
			done <- err
		}()
		waitInFlight(t, model, 1)
		time.Sleep(100 * time.Millisecond) // until it has been taken out of the queue
		cancel()
		err = <-done
		var failed error
		if stats, failed = model.Stats(); failed != nil {
			t.Fatal(failed)
		}
	}
	expectCode(t, err, Canceled)
	if stats.InFlight != 1 {
		t.Errorf("%d requests are in flight, expected the one that was left behind", stats.InFlight)
	}
	model.Close() // waits for the request that nobody waits for any more
}

func TestDrainAnswersWhatWasAdmitted(t *testing.T) {
	dispatches(t, func(t *testing.T, dispatch Option) {
		model := load(t, Config{"session_num": 1, "worker_threads": 1}, dispatch)
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
