// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"container/heap"
	"context"
	"sync"
)

// gate admits as many calls into C at the same time as the model has sessions, because each occupies an OS thread. At most
// maxWaiting others wait here, where waiting costs only a goroutine, ordered by priority and then by arrival, until their
// context ends.
type gate struct {
	mu         sync.Mutex
	slots      int
	inside     int
	maxWaiting int
	waiting    waiters
	arrivals   uint64
	refusal    *Error // not nil: no request is let in any more
	closed     bool
	idle       chan struct{} // not nil: closed when nobody is inside or waits
}

type waiter struct {
	priority int32
	arrival  uint64
	position int           // in the heap, -1 when it has left it
	admitted chan struct{} // closed when the waiter has left the heap on the gate's decision
	refusal  *Error        // set before admitted is closed, nil if the waiter may go in
}

func newGate(slots, maxWaiting int) *gate { return &gate{slots: slots, maxWaiting: maxWaiting} }

// enter waits for a slot. The caller must call leave after each success.
func (g *gate) enter(ctx context.Context, priority int32) error {
	if ctx.Err() != nil {
		return contextError(ctx, "before it began")
	}
	g.mu.Lock()
	if g.refusal != nil {
		defer g.mu.Unlock()
		return g.refusal
	}
	if g.inside < g.slots {
		g.inside++
		g.mu.Unlock()
		return nil
	}
	if len(g.waiting) >= g.maxWaiting {
		defer g.mu.Unlock()
		return failf(ResourceExhausted, "queue: %d requests are waiting, expected at most %d (max_queue_size)",
			len(g.waiting)+1, g.maxWaiting)
	}
	w := &waiter{priority: priority, arrival: g.arrivals, admitted: make(chan struct{})}
	g.arrivals++
	heap.Push(&g.waiting, w)
	g.mu.Unlock()

	select {
	case <-w.admitted:
	case <-ctx.Done():
		g.mu.Lock()
		if w.position >= 0 {
			heap.Remove(&g.waiting, w.position)
			g.signalIdle()
			g.mu.Unlock()
			return contextError(ctx, "while it waited for a session")
		}
		g.mu.Unlock() // admitted in the same moment: the slot is ours, and whoever runs the request sees the context
		<-w.admitted
	}
	if w.refusal != nil {
		return w.refusal
	}
	return nil
}

// leave passes the slot to the most urgent waiter.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 {
		close(heap.Pop(&g.waiting).(*waiter).admitted)
		return
	}
	g.inside--
	g.signalIdle()
}

// drain refuses new requests with the error, unless the gate is already closed; waiting ones are still admitted.
func (g *gate) drain(refusal *Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.refusal = refusal
	}
}

// close refuses new requests with one error, and fails the waiting ones with another.
func (g *gate) close(refusal, ejection *Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.refusal = true, refusal
	for len(g.waiting) > 0 {
		w := heap.Pop(&g.waiting).(*waiter)
		w.refusal = ejection
		close(w.admitted)
	}
	g.signalIdle()
}

// wait returns when no request is inside or waits.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.idle == nil {
		g.idle = make(chan struct{})
		g.signalIdle()
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return contextError(ctx, "while requests were running")
	}
}

// signalIdle must be called with mu held. It has an effect only if a caller waits for it, which happens after drain or
// close, so that the gate stays idle.
func (g *gate) signalIdle() {
	if g.idle == nil || g.inside > 0 || len(g.waiting) > 0 {
		return
	}
	select {
	case <-g.idle:
	default:
		close(g.idle)
	}
}

// waiters is a heap, ordered by urgency and then by arrival.
type waiters []*waiter

func (h waiters) Len() int { return len(h) }

func (h waiters) Less(i, j int) bool {
	if h[i].priority != h[j].priority {
		return h[i].priority > h[j].priority
	}
	return h[i].arrival < h[j].arrival
}

func (h waiters) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

func (h *waiters) Push(x any) {
	w := x.(*waiter)
	w.position = len(*h)
	*h = append(*h, w)
}

func (h *waiters) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	w.position = -1
	return w
}
