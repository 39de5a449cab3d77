// SPDX-License-Identifier: Apache-2.0

// Command drop-in-example runs one request with only the drop-in contract (deeprec.h), as a Go RPC framework embeds such a
// library. It uses neither the modern ABI nor the Go package.
//
//	drop-in-example CONFIG REQUEST [RESPONSE]
//
// CONFIG is the JSON configuration, or '@' and the file that contains it. REQUEST is a file with a serialized
// tensorflow.eas.PredictRequest. The PredictResponse is written to RESPONSE.
package main

// #cgo !pkgconfig LDFLAGS: -lprocessor
// #cgo pkgconfig pkg-config: recprocessor
// #include <stdlib.h>
// #include <processor/deeprec.h>
import "C"

import (
	"fmt"
	"math"
	"os"
	"strings"
	"unsafe"
)

// model is what initialize returns. It may be used from any number of goroutines.
type model struct{ handle unsafe.Pointer }

func initialize(entry, config string) (*model, error) {
	cEntry, cConfig := C.CString(entry), C.CString(config)
	defer C.free(unsafe.Pointer(cEntry))
	defer C.free(unsafe.Pointer(cConfig))
	var state C.int
	handle := C.initialize(cEntry, cConfig, &state)
	if handle == nil || state != 0 {
		return nil, fmt.Errorf("initialize: state %d; the library has logged why", int(state))
	}
	return &model{handle: handle}, nil
}

// process runs one request. An empty request returns the signature as JSON.
func (m *model) process(request []byte) ([]byte, error) {
	if len(request) > math.MaxInt32 {
		return nil, fmt.Errorf("process: a request of %d bytes, expected less than 2 GiB", len(request))
	}
	var output unsafe.Pointer
	var size C.int
	code := C.process(m.handle, unsafe.Pointer(unsafe.SliceData(request)), C.int(len(request)), &output, &size)
	// The buffer must be freed for every code, so it is copied into Go's memory first.
	response := C.GoBytes(output, size)
	C.free(output)
	if code != 200 {
		return nil, fmt.Errorf("process: %d: %s", int(code), response)
	}
	return response, nil
}

func run(arguments []string) error {
	if len(arguments) < 2 || len(arguments) > 3 {
		return fmt.Errorf("usage: drop-in-example CONFIG|@FILE REQUEST [RESPONSE]")
	}
	config := arguments[0]
	if file, ok := strings.CutPrefix(config, "@"); ok {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		config = string(text)
	}
	request, err := os.ReadFile(arguments[1])
	if err != nil {
		return err
	}
	model, err := initialize("", config)
	if err != nil {
		return err
	}
	signature, err := model.process(nil)
	if err != nil {
		return err
	}
	fmt.Printf("signature: %s\n", signature)
	response, err := model.process(request)
	if err != nil {
		return err
	}
	fmt.Printf("response: %d bytes\n", len(response))
	if len(arguments) == 3 {
		return os.WriteFile(arguments[2], response, 0o644)
	}
	return nil
	// The contract has no function that frees a model, so it lives as long as the process.
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "drop-in-example: %v\n", err)
		os.Exit(1)
	}
}
