// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// runOn restricts all threads of the process to CPUs. Threads that start later inherit this from the thread that starts them.
func runOn(cpus string) error {
	wanted, err := parseCPUs(cpus)
	if err != nil {
		return err
	}
	confined := map[int]bool{}
	for before := -1; len(confined) > before; {
		before = len(confined) // until no new ones have come
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil || confined[id] {
				continue
			}
			if err := unix.SchedSetaffinity(id, wanted); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("--cpus: '%s': %w, expected CPUs that this process may use", cpus, err)
			}
			confined[id] = true
		}
	}
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), wanted.Count()))
	return nil
}

// parseCPUs parses a list such as "0-3,8".
func parseCPUs(text string) (*unix.CPUSet, error) {
	set := &unix.CPUSet{}
	for _, part := range strings.Split(text, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 16)
		last, err2 := strconv.ParseUint(high, 10, 16)
		if err != nil || err2 != nil || last < first || int(last) >= len(set)*strconv.IntSize {
			return nil, fmt.Errorf("--cpus: '%s', expected CPUs as in 0-3,8", text)
		}
		for cpu := first; cpu <= last; cpu++ {
			set.Set(int(cpu))
		}
	}
	return set, nil
}

// A request needs little memory of Go for a short time, so a less frequent garbage collection costs little compared with a
// model.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(1000)
	}
}
