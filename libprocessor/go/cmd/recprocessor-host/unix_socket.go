// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mostPathBytes is the kernel's limit for the path of a socket, without the final NUL.
const mostPathBytes = 107

// answerTime is how long a process may take to accept a connection to its socket.
const answerTime = time.Second

// unixSocket is a Unix domain socket whose path belongs to this process. It is bound at the start and listens once the
// models are ready. Its lock file remains, and decides whether a socket is stale: a host that still loads its models refuses
// connections as a socket without a process does.
type unixSocket struct {
	port
	path string
	lock *os.File
}

// socketPath reads the path of a socket, also in the form of an address. {id} stands for the id of the host.
func socketPath(text, hostID string) (string, error) {
	path := strings.ReplaceAll(strings.TrimPrefix(text, "unix:"), "{id}", hostID)
	absolute, err := filepath.Abs(path)
	if err != nil || path == "" || len(absolute) > mostPathBytes {
		return "", fmt.Errorf("'%s', expected a path of at most %d bytes", text, mostPathBytes)
	}
	return absolute, nil
}

// ownSocket binds a socket to a path, after it has removed a stale one. Processes that may write to it may connect.
func ownSocket(path string, mode os.FileMode) (*unixSocket, error) {
	s := &unixSocket{port: port{fd: -1, address: "unix:" + path}, path: path}
	var err error
	s.lock, err = os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		if err = s.claim(); err == nil {
			err = s.bind(mode)
		}
		if err != nil {
			s.lock.Close()
		}
	}
	return s, err
}

// claim makes sure that nothing has the path.
func (s *unixSocket) claim() error {
	inUse := fmt.Errorf("%s: in use by another process, expected a socket of its own", s.address)
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return inUse
	} else if err != nil {
		return fmt.Errorf("%s.lock: %w", s.path, err)
	}
	found, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case found.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s: found a file of another kind, expected a socket or nothing", s.address)
	}
	client, err := net.DialTimeout("unix", s.path, answerTime)
	if err == nil {
		client.Close()
		return inUse
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		return os.Remove(s.path)
	}
	return fmt.Errorf("%s: %w, expected a socket of this host", s.address, err)
}

// bind binds the socket, which does not listen yet, so that nobody connects before it has its permissions.
func (s *unixSocket) bind(mode os.FileMode) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: s.path}); err == nil {
		err = os.Chmod(s.path, mode)
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("bind %s: %w", s.address, err)
	}
	s.fd = fd
	return nil
}

// release removes the socket and lets other processes have the path.
func (s *unixSocket) release() {
	os.Remove(s.path)
	s.lock.Close()
}

// socketFront serves requests at a Unix domain socket.
type socketFront struct {
	socket   *unixSocket
	share    func(net.Listener) net.Listener // with limits
	serveOn  func(net.Listener) error
	listener net.Listener // once it is opened
}

func (f *socketFront) open() error {
	listener, err := f.socket.listen()
	if err == nil {
		f.listener = f.share(listener)
	}
	return err
}

func (f *socketFront) serve() error { return f.serveOn(f.listener) }

func (f *socketFront) address() string { return f.socket.address }
