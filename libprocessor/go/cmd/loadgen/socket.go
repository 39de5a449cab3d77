// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a connection whose calls block the thread, which costs less than Go's poller if the thread does nothing else.
type socket int

// unixPrefix marks the address of a Unix domain socket, as in unix:/run/host.
const unixPrefix = "unix:"

// authority returns the name of a server, of which a Unix domain socket has none.
func authority(address string) string {
	if strings.HasPrefix(address, unixPrefix) {
		return "localhost"
	}
	return address
}

func resolve(address string) (int, unix.Sockaddr, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return unix.AF_UNIX, &unix.SockaddrUnix{Name: path}, nil
	}
	where, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return 0, nil, err
	}
	if four := where.IP.To4(); four != nil {
		return unix.AF_INET, &unix.SockaddrInet4{Port: where.Port, Addr: [4]byte(four)}, nil
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: where.Port, Addr: [16]byte(where.IP.To16())}, nil
}

func dial(address string, timeout time.Duration) (socket, error) {
	family, to, err := resolve(address)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err == nil {
			err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit)
		}
	}
	if err == nil && family != unix.AF_UNIX {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		err = connect(fd, to)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%s: %w", address, err)
	}
	return socket(fd), nil
}

// connect waits for the connection despite signals: the kernel continues an interrupted connect.
func connect(fd int, to unix.Sockaddr) error {
	for {
		switch err := unix.Connect(fd, to); err {
		case unix.EINTR:
		case unix.EISCONN:
			return nil
		default:
			return err
		}
	}
}

// Read implements io.Reader.
func (s socket) Read(data []byte) (int, error) {
	for {
		n, err := unix.Read(int(s), data)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, os.ErrDeadlineExceeded
		case err != nil:
			return 0, err
		case n == 0 && len(data) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write implements io.Writer.
func (s socket) Write(data []byte) (int, error) {
	total := 0
	for total < len(data) {
		n, err := unix.Write(int(s), data[total:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			if err == unix.EAGAIN {
				err = os.ErrDeadlineExceeded
			}
			return total, err
		}
		total += n
	}
	return total, nil
}

// closed returns whether the other side has closed an idle connection.
func (s socket) closed() bool {
	n, _, err := unix.Recvfrom(int(s), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n == 0
}

func (s socket) close() { unix.Close(int(s)) }
