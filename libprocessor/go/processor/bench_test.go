// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"context"
	"testing"
)

// benchmark answers one-row requests from four goroutines per CPU.
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
