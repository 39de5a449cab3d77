// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"time"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// provenance returns which version responded and the times of the request, in the order in which they are sent as trailing
// metadata of gRPC or headers of HTTP.
func provenance(answer *processor.Answer, tell func(name, value string)) {
	if answer == nil {
		return
	}
	if answer.Model != "" {
		tell("x-model-name", answer.Model)
		if answer.Version >= 0 {
			tell("x-model-version", strconv.FormatInt(answer.Version, 10))
		}
	}
	if answer.Epoch >= 0 {
		tell("x-model-epoch", strconv.FormatInt(answer.Epoch, 10))
		if answer.Age >= 0 {
			tell("x-model-age-ms", strconv.FormatInt(answer.Age.Milliseconds(), 10))
		}
	}
	if answer.Arm != "" {
		tell("x-arm", answer.Arm)
	}
	if answer.Session >= 0 {
		tell("x-session", strconv.Itoa(answer.Session))
		tell("x-cpuset", answer.CPUSet)
		tell("x-queue-us", strconv.FormatInt(answer.Queue.Microseconds(), 10))
		tell("x-run-us", strconv.FormatInt(answer.Run.Microseconds(), 10))
	}
}

// roundUp returns a duration in units, rounded up.
func roundUp(duration, unit time.Duration) int64 { return int64((duration + unit - 1) / unit) }
