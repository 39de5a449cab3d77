// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A client that takes nothing of its answer for so long is cut off.
const unreadMillis = 60_000

// listen opens a port that several processes can share.
func listen(address string, port int) (net.Listener, error) {
	how := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failure error
		err := raw.Control(func(fd uintptr) {
			failure = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			if failure == nil {
				failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, unreadMillis)
			}
		})
		if err != nil {
			return err
		}
		return failure
	}}
	return how.Listen(context.Background(), "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
}

// limited closes connections beyond a number at once, so that those that are served stay so.
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
