// SPDX-License-Identifier: Apache-2.0

// Command recprocessor-host puts gRPC and HTTP in front of a host of libprocessor, bytes in and bytes out.
//
//	recprocessor-host --state-dir DIR --host-id host-0 --grpc-port 8500 --rest-port 8501
//
// It takes the command line of `python -m serving_proxy.host` and behaves as that does. No tensor is decoded here, nor
// any message: a table says which protocol and method of the library a gRPC method or a URL is.
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
