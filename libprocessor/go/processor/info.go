// SPDX-License-Identifier: Apache-2.0

package processor

// #include "shim.h"
import "C"

import (
	"encoding/json"
)

// ModelInfo describes the loaded model; docs/observability.md explains the keys of JSON.
type ModelInfo struct {
	Path       string `json:"path"`
	State      string `json:"state"`
	Generation uint64 `json:"generation"`
	Executor   string `json:"executor"`
	Execution  string `json:"execution"`
	// Sessions is the number of requests that the model runs at the same time.
	Sessions int `json:"sessions"`
	// Config is the given configuration.
	Config Config `json:"config"`
	// JSON is the whole text.
	JSON json.RawMessage `json:"-"`
}

// slots returns the number of requests that the model runs at the same time.
func (i *ModelInfo) slots() int {
	if i.Execution != "pinned" {
		return i.Sessions
	}
	return i.Sessions * i.Config.number("worker_threads", 1)
}

// number returns a whole number of the configuration, or its default.
func (c Config) number(key string, otherwise int) int {
	if value, ok := c[key].(float64); ok {
		return int(value)
	}
	return otherwise
}

// Signature is one of the functions of a model.
type Signature struct {
	Name    string       `json:"signature_name"`
	Method  string       `json:"method_name"`
	Inputs  []TensorSpec `json:"inputs"`
	Outputs []TensorSpec `json:"outputs"`
}

// TensorSpec is an input or output of a signature.
type TensorSpec struct {
	Name string `json:"name"`
	// Tensor is the name in the graph.
	Tensor string `json:"tensor"`
	// DType is a name such as "DT_FLOAT".
	DType string `json:"dtype"`
	// Shape has -1 for an open dimension, and is nil if the rank is open.
	Shape []int64 `json:"shape"`
}

// Stats are counters and latencies since loading. They do not include requests that wait in this package (Direct).
type Stats struct {
	Requests uint64 `json:"requests"`
	// Responses by name of the status.
	Responses map[string]uint64 `json:"responses"`
	InFlight  int64             `json:"in_flight"`
	Queued    int64             `json:"queued"`
	Latency   Histogram         `json:"latency_us"`
	Queue     Histogram         `json:"queue_us"`
	Run       Histogram         `json:"run_us"`
	Overhead  Histogram         `json:"overhead_us"`
	// JSON is the whole text, with the figures of each session.
	JSON json.RawMessage `json:"-"`
}

// Histogram summarizes durations in microseconds.
type Histogram struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99.9"`
	Max   float64 `json:"max"`
}

// Info describes the loaded model.
func (m *Model) Info() (*ModelInfo, error) {
	info := &ModelInfo{}
	text, err := decode(C.shim_info(m.handle), info)
	info.JSON = text
	return info, err
}

// Signatures returns the signatures of the model.
func (m *Model) Signatures() ([]Signature, error) {
	var signatures []Signature
	_, err := decode(C.shim_signatures(m.handle), &signatures)
	return signatures, err
}

// Stats returns counters and latencies since loading.
func (m *Model) Stats() (*Stats, error) {
	stats := &Stats{}
	text, err := decode(C.shim_stats(m.handle), stats)
	stats.JSON = text
	return stats, err
}

// decode reads the JSON of an answer.
func decode(answer C.shim_answer, dst any) (json.RawMessage, error) {
	if err := answerError(answer); err != nil {
		return nil, err
	}
	defer C.processor_result_free(answer.result)
	contents := C.shim_look(answer.result)
	text := copyBytes(contents.data, contents.size)
	if err := json.Unmarshal(text, dst); err != nil {
		return nil, failf(Internal, "library: its answer is not the JSON expected: %v", err)
	}
	return text, nil
}
