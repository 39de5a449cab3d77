// SPDX-License-Identifier: Apache-2.0

// Command recprocessor-host serves a host of libprocessor over gRPC and HTTP.
//
//	recprocessor-host --state-dir DIR --host-id host-0 --grpc-port 8500 --rest-port 8501
//
// It has the command line and the behavior of `python -m serving_proxy.host`. It decodes neither tensors nor messages: a
// table maps each gRPC method and URL to a protocol and method of the library.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

func main() {
	options, err := parseOptions(os.Args[1:])
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintf(os.Stderr, "recprocessor-host: error: %v\n", err)
		os.Exit(2)
	}
	setUpLog(options)
	if err := run(options); err != nil {
		slog.Error(message(err))
		os.Exit(1)
	}
}

func run(options hostOptions) error {
	if options.cpus != "" {
		if err := runOn(options.cpus); err != nil {
			return err
		}
	}
	tuneCollector()
	if options.maxInFlightMB > 0 {
		if err := processor.SetMaxRequestBytes(uint64(options.maxInFlightMB) * mib); err != nil {
			return err
		}
	}
	host, err := processor.NewHost(processor.HostOptions{
		StateDir: options.stateDir, ID: options.hostID, MaintenanceCPUs: options.maintenanceCPUs,
		OwnsProcess: true,
	})
	if err != nil {
		return err
	}
	defer host.Close()
	server, err := newServer(host, options)
	if err != nil {
		return err
	}
	return server.run()
}
