// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// A client that reads nothing of its response for this time is disconnected.
const unreadMillis = 60_000

// The maximum number of connections that wait to be accepted; the kernel has its own limit.
const backlog = 4096

// port is bound, and claimed for the state directory, before the host listens on it. The kernel passes no connection to a
// socket that does not listen. So a host that still loads its models finds out at once if a port is not available, and
// leaves clients to the hosts that are ready.
type port struct {
	fd      int
	address string // as in "127.0.0.1:8500"
}

// reserve binds a port that hosts of one state directory can share.
func reserve(host *processor.Host, address string, number int) (*port, error) {
	where := net.JoinHostPort(address, strconv.Itoa(number))
	resolved, err := net.ResolveTCPAddr("tcp", where)
	if err != nil {
		return nil, err
	}
	fd, err := bind(resolved)
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", where, err)
	}
	if bound, err := unix.Getsockname(fd); err == nil {
		number = portOf(bound)
	}
	if err := host.ClaimPort(address, number); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &port{fd, net.JoinHostPort(address, strconv.Itoa(number))}, nil
}

func bind(address *net.TCPAddr) (int, error) {
	family, where := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: address.Port, Addr: [16]byte(address.IP.To16())})
	if short := address.IP.To4(); short != nil {
		family, where = unix.AF_INET, &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte(short)}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	for _, option := range [][3]int{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
		{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, unreadMillis},
	} {
		if err == nil {
			err = unix.SetsockoptInt(fd, option[0], option[1], option[2])
		}
	}
	if err == nil {
		err = unix.Bind(fd, where)
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

func portOf(address unix.Sockaddr) int {
	switch bound := address.(type) {
	case *unix.SockaddrInet4:
		return bound.Port
	case *unix.SockaddrInet6:
		return bound.Port
	}
	return 0
}

// listen starts to accept connections.
func (p *port) listen() (net.Listener, error) {
	if err := unix.Listen(p.fd, backlog); err != nil {
		return nil, fmt.Errorf("listen %s: %w", p.address, err)
	}
	file := os.NewFile(uintptr(p.fd), p.address)
	defer file.Close() // the listener has a copy
	return net.FileListener(file)
}

// The file descriptors that are reserved for models, tables and reports.
const reservedFiles = 96

// The maximum number of connections to the port for health and metrics.
const healthConnections = 64

// mostConnections returns the maximum number of connections to each port and socket, at most `wanted`, which leaves
// reservedFiles descriptors. It must be called before any port listens.
func mostConnections(wanted int, options hostOptions) int {
	var limit unix.Rlimit
	// Go has already raised the limit as far as possible.
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return wanted
	}
	used, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return wanted
	}
	left := int(limit.Cur) - len(used) - reservedFiles
	if options.healthPort != noPort {
		left -= healthConnections
	}
	servers := 2
	for _, path := range []string{options.grpcSocket, options.restSocket} {
		if path != "" {
			servers++
		}
	}
	return min(wanted, max(8, left/servers))
}

// limited closes connections beyond a number at once, so that the others are still served.
type limited struct {
	net.Listener
	most  int
	mu    sync.Mutex
	count int
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		full := l.count >= l.most
		if !full {
			l.count++
		}
		l.mu.Unlock()
		if !full {
			return &counted{Conn: connection, listener: l}, nil
		}
		connection.Close()
	}
}

type counted struct {
	net.Conn
	listener *limited
	once     sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() {
		c.listener.mu.Lock()
		c.listener.count--
		c.listener.mu.Unlock()
	})
	return c.Conn.Close()
}
