// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// waitForWaiters returns when so many wait at the gate.
func waitForWaiters(t *testing.T, g *gate, count int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		g.mu.Lock()
		waiting := len(g.waiting)
		g.mu.Unlock()
		if waiting == count {
			return
		}
	}
	t.Fatalf("there were never %d waiters", count)
}

func mustEnter(t *testing.T, g *gate) {
	t.Helper()
	if err := g.enter(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
}

func TestGateLetsNoMoreInThanItHasSlots(t *testing.T) {
	g := newGate(3, 1000)
	var mu sync.Mutex
	inside, most := 0, 0
	var all sync.WaitGroup
	for range 200 {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := g.enter(context.Background(), 0); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			time.Sleep(100 * time.Microsecond)
			mu.Lock()
			inside--
			mu.Unlock()
			g.leave()
		}()
	}
	all.Wait()
	if most != 3 || g.inside != 0 {
		t.Errorf("at most %d were inside, %d still are; expected 3 and 0", most, g.inside)
	}
}

func TestGateGoesByPriorityThenArrival(t *testing.T) {
	g := newGate(1, 10)
	mustEnter(t, g)
	order := make(chan int, 5)
	for i, priority := range []int32{0, 5, 0, -1, 5} {
		go func() {
			if g.enter(context.Background(), priority) == nil {
				order <- i
				g.leave()
			}
		}()
		waitForWaiters(t, g, i+1)
	}
	g.leave()
	var got []int
	for range 5 {
		got = append(got, <-order)
	}
	if want := []int{1, 4, 0, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("order %v, expected %v", got, want)
	}
}

func TestGateRefusesMoreWaitersThanItMay(t *testing.T) {
	g := newGate(1, 1)
	mustEnter(t, g)
	done := make(chan error)
	go func() { done <- g.enter(context.Background(), 0) }()
	waitForWaiters(t, g, 1)
	if err := g.enter(context.Background(), 9); CodeOf(err) != ResourceExhausted {
		t.Errorf("got %v, expected RESOURCE_EXHAUSTED", err)
	}
	g.leave()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestGateLetsGoOfWaitersWhoseContextEnds(t *testing.T) {
	g := newGate(1, 10)
	mustEnter(t, g)
	late, cancelLate := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancelLate()
	if err := g.enter(late, 0); CodeOf(err) != DeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, expected DEADLINE_EXCEEDED", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(5*time.Millisecond, cancel)
	if err := g.enter(ctx, 0); CodeOf(err) != Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, expected CANCELLED", err)
	}
	waitForWaiters(t, g, 0)
	g.leave()
	if g.inside != 0 {
		t.Errorf("%d are inside, expected none", g.inside)
	}
}

func TestGateSurvivesCancellationInTheMomentOfAdmission(t *testing.T) {
	g := newGate(1, 10)
	for range 2000 {
		mustEnter(t, g)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- g.enter(ctx, 0) }()
		go cancel()
		g.leave()
		if <-done == nil {
			g.leave()
		}
	}
	if g.inside != 0 || len(g.waiting) != 0 {
		t.Errorf("%d inside and %d waiting at the end, expected none", g.inside, len(g.waiting))
	}
}

func TestGateDrainsWhatItHasAdmitted(t *testing.T) {
	g := newGate(1, 10)
	mustEnter(t, g)
	done := make(chan error)
	go func() { done <- g.enter(context.Background(), 0) }()
	waitForWaiters(t, g, 1)
	g.drain(failf(Unavailable, "draining"))
	if err := g.enter(context.Background(), 0); CodeOf(err) != Unavailable {
		t.Errorf("got %v, expected UNAVAILABLE", err)
	}
	short, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if err := g.wait(short); CodeOf(err) != DeadlineExceeded {
		t.Errorf("got %v, expected DEADLINE_EXCEEDED", err)
	}
	g.leave()
	if err := <-done; err != nil {
		t.Errorf("the waiter got %v, expected to be let in", err)
	}
	g.leave()
	if err := g.wait(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestGateEjectsWaitersWhenItCloses(t *testing.T) {
	g := newGate(1, 10)
	mustEnter(t, g)
	done := make(chan error)
	go func() { done <- g.enter(context.Background(), 0) }()
	waitForWaiters(t, g, 1)
	g.close(failf(FailedPrecondition, "closed"), failf(Canceled, "closing"))
	if err := <-done; CodeOf(err) != Canceled {
		t.Errorf("the waiter got %v, expected CANCELLED", err)
	}
	g.drain(failf(Unavailable, "draining"))
	if err := g.enter(context.Background(), 0); CodeOf(err) != FailedPrecondition {
		t.Errorf("got %v, expected FAILED_PRECONDITION", err)
	}
	g.leave()
	if err := g.wait(context.Background()); err != nil {
		t.Error(err)
	}
}
