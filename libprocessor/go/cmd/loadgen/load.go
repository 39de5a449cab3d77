// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// sample is one answered request.
type sample struct {
	at      time.Duration // when it was to be sent, from the beginning of the measurement
	latency time.Duration // from then to its answer
	late    time.Duration // from then to when it was sent
}

// client is one thread and its measured requests.
type client struct {
	samples []sample
	failed  []failure
}

type failure struct {
	at     time.Duration
	status string
}

// schedule provides start times, from the beginning of the warm-up.
type schedule struct {
	mu     sync.Mutex
	next   time.Duration
	period float64 // nanoseconds
	random *rand.Rand
}

func newSchedule(s settings) *schedule {
	result := &schedule{period: 1e9 / s.rate}
	if s.arrivals == "poisson" {
		result.random = rand.New(rand.NewPCG(s.seed, s.seed))
	}
	return result
}

func (s *schedule) take() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.next
	step := s.period
	if s.random != nil {
		step *= s.random.ExpFloat64()
	}
	s.next += time.Duration(step)
	return at
}

// measure sends requests for warm-up and measurement, and returns the start of the measurement and the clients. It ends early
// when stop is closed.
func measure(s settings, requests [][]byte, stop <-chan struct{}) (time.Time, []*client, error) {
	dialOne := dialGRPC
	if s.over == "rest" {
		dialOne = dialREST
	}
	first, err := dialOne(s) // who cannot connect at all says so at once
	if err != nil {
		return time.Time{}, nil, err
	}
	first.close()
	var plan *schedule
	if s.rate > 0 {
		plan = newSchedule(s)
	}
	clients := make([]*client, s.clients)
	var turn atomic.Uint64
	var all sync.WaitGroup
	begin := time.Now().Add(20 * time.Millisecond)
	for i := range clients {
		clients[i] = &client{}
		all.Add(1)
		go func() {
			defer all.Done()
			clients[i].run(s, dialOne, plan, begin, stop, func() []byte {
				return requests[turn.Add(1)%uint64(len(requests))]
			})
		}()
	}
	all.Wait()
	return begin.Add(s.warmup), clients, nil
}

func (c *client) run(s settings, dialOne func(settings) (connection, error), plan *schedule, begin time.Time, stop <-chan struct{}, next func() []byte) {
	runtime.LockOSThread()
	// Sleep as precisely as the machine can.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	sleepUntil(begin)
	end := begin.Add(s.warmup + s.seconds)
	var open connection
	defer func() {
		if open != nil {
			open.close()
		}
	}()
	for {
		select {
		case <-stop:
			return
		default:
		}
		wanted := time.Now()
		if plan != nil {
			wanted = begin.Add(plan.take())
		}
		if !wanted.Before(end) {
			return
		}
		if plan != nil {
			sleepUntil(wanted)
		}
		sent := time.Now()
		request := next()
		status := ""
		for status == "" {
			var err error
			if open == nil {
				open, err = dialOne(s)
			}
			if err == nil {
				status, err = open.ask(request)
			}
			if err != nil {
				if open != nil {
					open.close()
					open = nil
				}
				if !errors.Is(err, errGoAway) { // that one was not sent, and is sent again
					status = describe(err)
					waitABit()
				}
			}
		}
		at := wanted.Sub(begin) - s.warmup
		switch {
		case at < 0:
		case status == "OK":
			c.samples = append(c.samples, sample{at, time.Since(wanted), sent.Sub(wanted)})
		default:
			c.failed = append(c.failed, failure{at, status})
		}
	}
}

// describe returns a short name of a connection error, so that equal errors can be counted.
func describe(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	}
	return err.Error()
}

// sleepUntil blocks the thread, because the timers of Go are a millisecond late in an idle program.
func sleepUntil(then time.Time) {
	for {
		left := time.Until(then)
		if left <= 0 {
			return
		}
		duration := unix.NsecToTimespec(left.Nanoseconds())
		_ = unix.Nanosleep(&duration, nil)
	}
}
