// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
)

const mib = 1 << 20

// noPort means that no port was given.
const noPort = -1

// hostOptions are the options of the host; parseOptions describes each.
type hostOptions struct {
	stateDir, hostID, address          string
	grpcPort, restPort, healthPort     int
	grpcSocket, restSocket             string
	socketMode                         os.FileMode
	tlsCert, tlsKey, clientCA          string
	cpus, maintenanceCPUs              string
	allowReload, allowControl          bool
	admin, tokenFile                   string
	corsOrigins                        []string
	maxMessageMB, maxConnections       int
	maxInFlightMB                      int
	readTime, idleTime, drainTime      time.Duration
	pingAfter, pingTimeout, pingLeast  time.Duration // of gRPC connections
	mostAge, mostIdle                  time.Duration
	logFormat, logLevel, profileListen string
}

func (o *hostOptions) maxMessage() int { return o.maxMessageMB * mib }

// parseOptions reads the command line, which is that of the Python host.
func parseOptions(arguments []string) (hostOptions, error) {
	o := hostOptions{}
	flags := flag.NewFlagSet("recprocessor-host", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned
	flags.Usage = func() {}
	help := func() {
		flags.SetOutput(os.Stdout)
		fmt.Println("usage: recprocessor-host --state-dir DIR [flags]: serve the models of a state directory over gRPC and HTTP")
		flags.PrintDefaults()
	}
	flags.StringVar(&o.stateDir, "state-dir", "", "`folder` with desired.json")
	flags.StringVar(&o.hostID, "host-id", "host-0", "`name` of this host, which only one process at a time may have")
	flags.StringVar(&o.address, "address", "127.0.0.1", "address to listen on")
	number(flags, &o.grpcPort, "grpc-port", 8500, 0, 65535, "gRPC port; 0: any free port")
	number(flags, &o.restPort, "rest-port", 8501, 0, 65535, "REST port; 0: any free port")
	number(flags, &o.healthPort, "health-port", noPort, 0, 65535,
		"HTTP port without TLS for health and metrics, open from the start; 0: any free port")
	flags.StringVar(&o.grpcSocket, "grpc-socket", "",
		"`path` of a Unix domain socket for gRPC, without TLS, beside the port; {id} stands for the host's id")
	flags.StringVar(&o.restSocket, "rest-socket", "", "`path` of the same for HTTP")
	o.socketMode = 0o600
	flags.Func("socket-mode", "permissions of these sockets in `octal` (default 600)", func(text string) error {
		mode, err := strconv.ParseUint(text, 8, 32)
		if err != nil || mode > 0o777 || len(text) < 3 || len(text) > 4 {
			return fmt.Errorf("expected permissions in octal, as in 660")
		}
		o.socketMode = os.FileMode(mode)
		return nil
	})
	flags.StringVar(&o.tlsCert, "tls-cert", "", "certificate chain (PEM `file`); enables TLS on both ports")
	flags.StringVar(&o.tlsKey, "tls-key", "", "key of the certificate (PEM `file`)")
	flags.StringVar(&o.clientCA, "client-ca", "", "clients need a certificate that these authorities have signed (PEM `file`)")
	flags.StringVar(&o.cpus, "cpus", "", "CPUs that the process may use, for example 0-3,8")
	flags.StringVar(&o.maintenanceCPUs, "maintenance-cpus", "", "CPUs on which versions are loaded; default: those in desired.json")
	flags.BoolVar(&o.allowReload, "allow-reload-rpc", false, "forward HandleReloadConfigRequest to the proxy")
	flags.BoolVar(&o.allowControl, "allow-model-control", false, "forward loading and unloading of models to the proxy")
	flags.StringVar(&o.admin, "admin", "", "`URL` of the proxy's admin API, for example http://127.0.0.1:8502")
	flags.StringVar(&o.tokenFile, "token-file", "", "`file` with the token of the admin API")
	flags.Func("cors-origin", "`origin` whose pages may send HTTP requests, for example https://shop.example, or *; repeatable",
		func(text string) error {
			o.corsOrigins = append(o.corsOrigins, text)
			return checkOrigin(text)
		})
	number(flags, &o.maxMessageMB, "max-message-mb", 64, 1, 2047, "size of the largest request in MiB")
	number(flags, &o.maxInFlightMB, "max-request-mb-in-flight", 0, 0, 1<<30, "memory of all requests in flight in MiB; 0: a tenth of the memory of the machine or the cgroup")
	number(flags, &o.maxConnections, "max-connections", 4096, 1, 1000000, "maximum number of HTTP connections")
	seconds(flags, &o.readTime, "read-seconds", 20, "timeout for the head of an HTTP request, and again for its body")
	seconds(flags, &o.idleTime, "idle-seconds", 300, "time after which an idle HTTP connection is closed")
	seconds(flags, &o.drainTime, "drain-seconds", 30, "time for requests in flight to complete at the end")
	seconds(flags, &o.pingAfter, "grpc-keepalive-seconds", 120,
		"ping a connection over which nothing has come for this time; 0: never")
	seconds(flags, &o.pingTimeout, "grpc-keepalive-timeout-seconds", 20, "close a connection if a ping is not answered within this time; 0: never")
	seconds(flags, &o.pingLeast, "grpc-min-ping-seconds", 10, "close connections of clients that ping at shorter intervals")
	seconds(flags, &o.mostAge, "grpc-max-connection-age-seconds", 0,
		"ask clients to reconnect after this time, so that a load balancer spreads them; 0: never")
	seconds(flags, &o.mostIdle, "grpc-max-connection-idle-seconds", 0, "ask clients to reconnect after this time without a call; 0: never")
	oneOf(flags, &o.logFormat, "log-format", []string{"json", "text"}, "format of the log: lines of JSON or text")
	o.logLevel = "info"
	oneOf(flags, &o.logLevel, "log-level", []string{"debug", "info", "warning", "error"}, "lowest level that is logged")
	flags.StringVar(&o.profileListen, "profile-listen", "", "`address` of Go's profiler, for example 127.0.0.1:6060; default: off")
	flags.VisitAll(func(f *flag.Flag) {
		if f.Name != "cors-origin" {
			f.Value = &onceValue{Value: f.Value}
		}
	})
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			help()
		}
		return o, err
	}
	if err := o.readSockets(); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("argument %q: expected flags only", flags.Arg(0))
	case o.stateDir == "":
		return o, fmt.Errorf("--state-dir: none given, expected a folder")
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return o, fmt.Errorf("--tls-cert and --tls-key: one of them, expected both or none")
	case o.clientCA != "" && o.tlsCert == "":
		return o, fmt.Errorf("--client-ca: no --tls-cert, expected one")
	case tooShort(o.pingAfter):
		return o, fmt.Errorf("--grpc-keepalive-seconds: expected 0, or 1 to 86400")
	case tooShort(o.pingTimeout):
		return o, fmt.Errorf("--grpc-keepalive-timeout-seconds: expected 0, or 1 to 86400")
	case o.allowReload && o.admin == "":
		return o, fmt.Errorf("--allow-reload-rpc: no --admin, expected the URL of the proxy")
	case o.allowControl && o.admin == "":
		return o, fmt.Errorf("--allow-model-control: no --admin, expected the URL of the proxy")
	}
	return o, nil
}

// readSockets checks the paths of the sockets.
func (o *hostOptions) readSockets() error {
	for _, socket := range []struct {
		flag string
		path *string
	}{{"grpc-socket", &o.grpcSocket}, {"rest-socket", &o.restSocket}} {
		if *socket.path == "" {
			continue
		}
		path, err := socketPath(*socket.path, o.hostID)
		if err != nil {
			return fmt.Errorf("--%s: %w", socket.flag, err)
		}
		*socket.path = path
	}
	if o.grpcSocket != "" && o.grpcSocket == o.restSocket {
		return fmt.Errorf("--grpc-socket and --rest-socket: both '%s', expected two paths", o.grpcSocket)
	}
	return nil
}

// onceValue refuses a second value, because the flag package would keep only the last one.
type onceValue struct {
	flag.Value
	taken *string
}

func (v *onceValue) Set(text string) error {
	if v.taken != nil && !v.IsBoolFlag() {
		return fmt.Errorf("%q and %q given, expected one value", *v.taken, text)
	}
	v.taken = &text
	return v.Value.Set(text)
}

// String is also called on an empty value.
func (v *onceValue) String() string {
	if v.Value == nil {
		return ""
	}
	return v.Value.String()
}

// IsBoolFlag returns whether the flag has no value on the command line.
func (v *onceValue) IsBoolFlag() bool {
	flag, ok := v.Value.(interface{ IsBoolFlag() bool })
	return ok && flag.IsBoolFlag()
}

// checkOrigin checks that an origin has the form that browsers send, without a path.
func checkOrigin(text string) error {
	scheme, host, ok := strings.Cut(text, "://")
	if text != "*" && (!ok || scheme == "" || host == "" || strings.Contains(host, "/")) {
		return fmt.Errorf("expected an origin as in https://shop.example, or *")
	}
	return nil
}

// tooShort returns whether an interval is shorter than a second, which gRPC does not support.
func tooShort(interval time.Duration) bool { return interval > 0 && interval < time.Second }

func number(flags *flag.FlagSet, target *int, name string, value, low, high int, usage string) {
	*target = value
	flags.Func(name, fmt.Sprintf("`n`: %s (default %d)", usage, value), func(text string) error {
		read, err := strconv.Atoi(text)
		if err != nil || read < low || read > high {
			return fmt.Errorf("expected %d to %d", low, high)
		}
		*target = read
		return nil
	})
}

func seconds(flags *flag.FlagSet, target *time.Duration, name string, value float64, usage string) {
	*target = time.Duration(value * float64(time.Second))
	flags.Func(name, fmt.Sprintf("`s`: %s (default %g)", usage, value), func(text string) error {
		read, err := strconv.ParseFloat(text, 64)
		if err != nil || !(read >= 0 && read <= 86400) { // written so that NaN is refused too
			return fmt.Errorf("expected 0 to 86400")
		}
		*target = time.Duration(read * float64(time.Second))
		return nil
	})
}

func oneOf(flags *flag.FlagSet, target *string, name string, values []string, usage string) {
	if *target == "" {
		*target = values[0]
	}
	flags.Func(name, fmt.Sprintf("%s: one of %q (default %q)", usage, values, *target), func(text string) error {
		for _, value := range values {
			if text == value {
				*target = text
				return nil
			}
		}
		return fmt.Errorf("expected one of %q", values)
	})
}

// setUpLog sends the log to stderr, one line per record, with the same keys as the other programs.
func setUpLog(options hostOptions) {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "error": slog.LevelError,
	}
	how := &slog.HandlerOptions{Level: levels[options.logLevel], ReplaceAttr: replaceAttr}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, how)
	if options.logFormat == "json" {
		handler = slog.NewJSONHandler(os.Stderr, how).WithAttrs([]slog.Attr{slog.String("logger", "recprocessor-host")})
	}
	slog.SetDefault(slog.New(handler))
}

func replaceAttr(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return attr
	}
	switch attr.Key {
	case slog.MessageKey:
		attr.Key = "message"
	case slog.TimeKey:
		attr.Value = slog.StringValue(attr.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
	case slog.LevelKey:
		for name, level := range map[string]slog.Level{
			"debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "error": slog.LevelError,
		} {
			if attr.Value.Any() == level {
				attr.Value = slog.StringValue(name)
			}
		}
	}
	return attr
}
