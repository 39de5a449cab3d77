// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"context"
	"fmt"
	"maps"
	"testing"
)

// BenchmarkProcess answers one-row requests from four goroutines per CPU: Auto chooses by what it shows.
func BenchmarkProcess(b *testing.B) {
	for _, execution := range []string{"inline", "pinned"} {
		for name, dispatch := range map[string]Dispatch{"Direct": Direct, "Async": Async} {
			b.Run(fmt.Sprintf("%s/%s", execution, name), func(b *testing.B) {
				config := maps.Clone(twoSessions)
				config["execution"] = execution
				model := load(b, config, WithDispatch(dispatch))
				request := tfservingRequest()
				b.SetParallelism(4)
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := model.Process(context.Background(), "tfserving", request); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
