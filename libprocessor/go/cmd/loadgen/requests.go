// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"os"
)

// readRequests reads a file of requests that load_tests/request_files.py has written.
func readRequests(path string) ([][]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var requests [][]byte
	for len(data) > 0 {
		if len(data) < 4 || uint64(len(data)-4) < uint64(binary.LittleEndian.Uint32(data)) {
			return nil, fmt.Errorf("%s: cut short", path)
		}
		size := 4 + int(binary.LittleEndian.Uint32(data))
		requests, data = append(requests, data[4:size]), data[size:]
	}
	if len(requests) == 0 {
		return nil, fmt.Errorf("%s: no request, expected at least one", path)
	}
	return requests, nil
}
