// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"slices"
	"time"
)

type report struct {
	Address  string  `json:"address"`
	Over     string  `json:"over"`
	Path     string  `json:"path"`
	Clients  int     `json:"clients"`
	Asked    float64 `json:"rate_asked,omitempty"` // requests/s of an open loop
	Started  float64 `json:"started"`              // when the measurement began, Unix time
	Seconds  float64 `json:"seconds"`
	Requests int     `json:"requests"`
	Rate     float64 `json:"rate"` // answered requests/s
	// Failed requests by status. No other figure includes them.
	Failed map[string]int `json:"failed"`
	// Latency from the scheduled send time, in microseconds.
	Latency quantiles `json:"latency_us"`
	// The delay between scheduled and actual send time, which the generator itself or a lack of free clients causes.
	Late *quantiles `json:"late_us,omitempty"`
	// [upper bound in microseconds, requests], in steps of a twelfth.
	Histogram [][2]float64 `json:"histogram_us"`
	Intervals []interval   `json:"intervals,omitempty"`
}

type quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

type interval struct {
	At       float64   `json:"at"` // seconds
	Requests int       `json:"requests"`
	Failed   int       `json:"failed"`
	Latency  quantiles `json:"latency_us"`
}

func summarize(s settings, began time.Time, clients []*client) report {
	var samples []sample
	r := report{
		Address: s.address, Over: s.over, Path: s.path, Clients: s.clients, Asked: s.rate,
		Started: float64(began.UnixNano()) / 1e9, Seconds: s.seconds.Seconds(),
		Failed: map[string]int{},
	}
	var failed []failure
	for _, client := range clients {
		samples = append(samples, client.samples...)
		failed = append(failed, client.failed...)
	}
	for _, failure := range failed {
		r.Failed[failure.status]++
	}
	r.Requests = len(samples)
	r.Rate = float64(len(samples)) / s.seconds.Seconds()
	latencies := sorted(samples, func(s sample) time.Duration { return s.latency })
	r.Latency = quantilesOf(latencies)
	r.Histogram = histogram(latencies)
	if s.rate > 0 {
		late := quantilesOf(sorted(samples, func(s sample) time.Duration { return s.late }))
		r.Late = &late
	}
	if s.interval > 0 {
		r.Intervals = intervals(s, samples, failed)
	}
	return r
}

// writeSamples writes two int64 (little-endian, nanoseconds) for each answered request: its scheduled send time from the
// start of the measurement, and its latency.
func writeSamples(path string, clients []*client) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(file)
	for _, client := range clients {
		for _, sample := range client.samples {
			_ = binary.Write(buffer, binary.LittleEndian, [2]int64{int64(sample.at), int64(sample.latency)})
		}
	}
	return errors.Join(buffer.Flush(), file.Close())
}

func sorted(samples []sample, value func(sample) time.Duration) []float64 {
	values := make([]float64, len(samples))
	for i, sample := range samples {
		values[i] = float64(value(sample)) / 1e3
	}
	slices.Sort(values)
	return values
}

func quantilesOf(values []float64) quantiles {
	if len(values) == 0 {
		return quantiles{}
	}
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	at := func(share float64) float64 {
		place := int(math.Ceil(share*float64(len(values)))) - 1
		return round(values[max(0, min(place, len(values)-1))])
	}
	return quantiles{
		Mean: round(sum / float64(len(values))), P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99),
		P999: at(0.999), Max: at(1),
	}
}

func round(value float64) float64 { return math.Round(value*10) / 10 }

// histogram counts sorted values in buckets that grow by a twelfth.
func histogram(values []float64) [][2]float64 {
	buckets := [][2]float64{}
	upper, count := 1.0, 0
	for _, value := range values {
		for value > upper {
			if count > 0 {
				buckets = append(buckets, [2]float64{round(upper), float64(count)})
				count = 0
			}
			upper *= 13.0 / 12
		}
		count++
	}
	if count > 0 {
		buckets = append(buckets, [2]float64{round(upper), float64(count)})
	}
	return buckets
}

func intervals(s settings, samples []sample, failed []failure) []interval {
	count := int((s.seconds + s.interval - 1) / s.interval)
	parts, result := make([][]sample, count), make([]interval, count)
	for _, sample := range samples {
		if place := int(sample.at / s.interval); place < count {
			parts[place] = append(parts[place], sample)
		}
	}
	for _, failure := range failed {
		if place := int(failure.at / s.interval); place < count {
			result[place].Failed++
		}
	}
	for i := range result {
		result[i].At = (time.Duration(i) * s.interval).Seconds()
		result[i].Requests = len(parts[i])
		result[i].Latency = quantilesOf(sorted(parts[i], func(s sample) time.Duration { return s.latency }))
	}
	return result
}
