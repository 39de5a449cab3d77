// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"runtime"
	"testing"
	"time"
)

func TestPaceTellsShortKinds(t *testing.T) {
	p := pace{}
	spec := []byte{0x0a, 3, 'a', 'b', 'c', 0x12, 0}
	short := kindOf(&HostRequest{Protocol: "tfserving", Method: "Predict", Data: spec})
	if p.short(short) {
		t.Error("an unknown kind is short")
	}
	p.learn(short, &Answer{Session: 0, Work: 40 * time.Microsecond}, false)
	if !p.short(short) {
		t.Error("a kind of 40 us is not short")
	}
	for _, other := range []HostRequest{
		{Protocol: "tfserving", Method: "Classify", Data: spec},
		{Protocol: "tfserving", Method: "Predict", Model: "m", Data: spec},
		{Protocol: "tfserving", Method: "Predict", Data: []byte{0x0a, 3, 'a', 'b', 'd', 0x12, 0}},
		{Protocol: "tfserving", Method: "Predict", Data: append(spec, make([]byte, 9)...)},
		{},
	} {
		if kindOf(&other) == short {
			t.Errorf("%+v is of the same kind", other)
		}
	}
	for range 40 {
		p.learn(short, &Answer{Session: 0, Work: time.Second}, false)
	}
	if p.short(short) {
		t.Error("a kind that has become long is short")
	}
	p.learn(short, nil, false)
	p.learn(short, &Answer{Session: -1}, false) // says nothing of how long it takes
	if p.short(short) {
		t.Error("a failure made it short")
	}
}

func TestPaceLeavesWhatBlocks(t *testing.T) {
	p := pace{}
	for name, answer := range map[string]Answer{
		"blocked": {Work: 40 * time.Microsecond, Total: 10 * time.Millisecond},
		"batched": {Work: 40 * time.Microsecond, Total: 50 * time.Microsecond, BatchRows: 3},
	} {
		kind := kindOf(&HostRequest{Protocol: name})
		brief := Answer{Work: 40 * time.Microsecond, Total: 50 * time.Microsecond}
		p.learn(kind, &brief, true)
		p.learn(kind, &answer, true)
		if p.short(kind) {
			t.Errorf("%s: it goes on holding threads", name)
		}
		for range 200 {
			p.learn(kind, &brief, false)
		}
		if !p.short(kind) {
			t.Errorf("%s: it never becomes short again", name)
		}
	}
}

func TestSlotsAreBounded(t *testing.T) {
	s := slots{}
	s.most.Store(2)
	if !s.take() || !s.take() || s.take() {
		t.Error("expected two slots")
	}
	s.giveBack()
	if !s.take() || s.taken.Load() != 2 {
		t.Error("a slot given back cannot be taken")
	}
}

func TestDirectCalls(t *testing.T) {
	status := &HostStatus{}
	if got, cpus := directCalls(status), runtime.GOMAXPROCS(0); got != cpus {
		t.Errorf("got %d, expected one for each of %d CPUs", got, cpus)
	}
}
