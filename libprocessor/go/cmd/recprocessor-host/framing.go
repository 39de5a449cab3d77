// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// halfCloseGrace is how long a request may take after its client has closed its sending side. A client that has disconnected
// looks the same, so work for it ends after this time.
const halfCloseGrace = 500 * time.Millisecond

// The errors of requests whose end another server on the way may see at a different place. net/http would accept them
// silently; it responds to an error of a connection with 400.
var (
	errTwoLengths = errors.New("request: Content-Length and Transfer-Encoding, expected one of them")
	errOldChunks  = errors.New("request: Transfer-Encoding in HTTP/1.0, expected a Content-Length")
	errFolded     = errors.New("request: a header that goes on in the next line, expected one line each")
)

// framedListener checks the framing of requests on its connections.
type framedListener struct {
	net.Listener
	halfClose bool // whether clients that close their sending side are answered: TLS knows no such thing
}

func (l framedListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &framedConn{Conn: connection, halfClose: l.halfClose}, nil
}

// framedConn refuses requests with two lengths, and tells net/http of a half-closed connection only after a grace.
type framedConn struct {
	net.Conn
	framing   framing
	failure   error
	halfClose bool

	mu     sync.Mutex
	past   bool // the deadline of reads
	closed bool
	wake   chan struct{} // closed when a lingering read is not to wait any more
}

// Read implements net.Conn. One goroutine at a time reads.
func (c *framedConn) Read(p []byte) (int, error) {
	if c.failure != nil {
		return 0, c.failure
	}
	n, err := c.Conn.Read(p)
	if good, failure := c.framing.take(p[:n]); failure != nil {
		c.failure = failure
		if good > 0 {
			return good, nil // of the requests before
		}
		return 0, failure
	}
	if n == 0 && err == io.EOF && c.halfClose && c.framing.between() {
		c.halfClose = false
		return 0, c.linger()
	}
	return n, err
}

// linger waits before it reports the end of a connection that may be half open. If it is interrupted, the next read reports
// the end.
func (c *framedConn) linger() error {
	c.mu.Lock()
	if c.closed || c.past {
		defer c.mu.Unlock()
		return c.broken()
	}
	wake := make(chan struct{})
	c.wake = wake
	c.mu.Unlock()
	timer := time.NewTimer(halfCloseGrace)
	defer timer.Stop()
	select {
	case <-timer.C:
		return io.EOF
	case <-wake:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.broken()
	}
}

func (c *framedConn) broken() error {
	if c.closed {
		return net.ErrClosed
	}
	return os.ErrDeadlineExceeded
}

// SetReadDeadline implements net.Conn. net/http interrupts a pending read with a deadline in the past.
func (c *framedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.past = !t.IsZero() && t.Before(time.Now())
	if c.past {
		c.stopWaiting()
	}
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

// Close implements net.Conn.
func (c *framedConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.stopWaiting()
	c.mu.Unlock()
	return c.Conn.Close()
}

func (c *framedConn) stopWaiting() {
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
}

// framing follows where requests of HTTP/1.1 begin and end.
type framing struct {
	state        framingState
	requests     int
	line         []byte // the beginning of the line that is being read
	end          []byte // and its end
	lines        int    // of this head
	length       int64  // of the body; noLength or badLength
	chunked      bool
	old          bool  // of HTTP/1.0
	left         int64 // bytes of a body or chunk
	lineIsLonger bool
}

type framingState int

const (
	inHead framingState = iota
	inBody
	inChunkSize
	inChunk
	inChunkEnd
	inTrailers
	opaque // what net/http refuses
)

const (
	longestLine = 64 // enough for the names that matter, and for any length
	longestEnd  = 10 // and for the version and CR

	noLength  = -1
	badLength = -2 // which net/http may understand, or leave unread
)

// between returns whether a request is complete and no byte of another one has arrived.
func (f *framing) between() bool {
	return f.state == inHead && f.requests > 0 && f.lines == 0 && len(f.line) == 0
}

// take processes some bytes. If it fails, it returns how many of them belong to earlier requests.
func (f *framing) take(p []byte) (int, error) {
	begin := 0 // of the head
	for at := 0; at < len(p) && f.state != opaque; {
		if f.state == inBody || f.state == inChunk {
			skipped := min(f.left, int64(len(p)-at))
			f.left -= skipped
			at += int(skipped)
			if f.left == 0 {
				f.endBody()
				begin = at
			}
			continue
		}
		end := bytes.IndexByte(p[at:], '\n')
		if end < 0 {
			f.keep(p[at:])
			return 0, nil
		}
		f.keep(p[at : at+end])
		at += end + 1
		if err := f.endLine(); err != nil {
			return begin, err
		}
		if f.state == inHead && f.lines == 0 {
			begin = at
		}
	}
	return 0, nil
}

func (f *framing) keep(part []byte) {
	f.keepEnd(part)
	room := longestLine - len(f.line)
	if len(part) > room {
		f.lineIsLonger = true
		part = part[:room]
	}
	f.line = append(f.line, part...)
}

func (f *framing) keepEnd(part []byte) {
	f.end = append(f.end, part[max(0, len(part)-longestEnd):]...)
	f.end = f.end[max(0, len(f.end)-longestEnd):]
}

// endLine processes a complete line.
func (f *framing) endLine() error {
	line := bytes.TrimSuffix(f.line, []byte{'\r'})
	longer, old := f.lineIsLonger, bytes.HasSuffix(bytes.TrimSuffix(f.end, []byte{'\r'}), []byte(" HTTP/1.0"))
	f.line, f.end, f.lineIsLonger = f.line[:0], f.end[:0], false
	switch f.state {
	case inHead:
		return f.headLine(line, old)
	case inChunkSize:
		size, _, _ := strings.Cut(string(line), ";")
		left, err := strconv.ParseUint(strings.TrimSpace(size), 16, 62)
		switch {
		case err != nil || longer && !bytes.ContainsRune(line, ';'):
			f.state = opaque
		case left == 0:
			f.state = inTrailers
		default:
			f.state, f.left = inChunk, int64(left)
		}
	case inChunkEnd:
		f.state = inChunkSize
	case inTrailers:
		if len(line) == 0 {
			f.endRequest()
		}
	}
	return nil
}

func (f *framing) headLine(line []byte, old bool) error {
	if f.lines == 0 {
		// net/http skips empty lines after a POST, and refuses others.
		if len(line) > 0 {
			f.length, f.chunked, f.old, f.lines = noLength, false, old, 1
		}
		return nil
	}
	f.lines++
	if len(line) > 0 {
		if line[0] == ' ' || line[0] == '\t' {
			return errFolded
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			length, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 62)
			f.length = int64(length)
			if err != nil {
				f.length = badLength
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			f.chunked = true
		}
		return nil
	}
	switch {
	case f.chunked && f.length != noLength:
		return errTwoLengths
	case f.chunked && f.old:
		return errOldChunks
	case f.length == badLength:
		f.state = opaque
	case f.chunked:
		f.state = inChunkSize
	case f.length > 0:
		f.state, f.left = inBody, f.length
	default:
		f.endRequest()
	}
	return nil
}

func (f *framing) endBody() {
	if f.state == inChunk {
		f.state = inChunkEnd
		return
	}
	f.endRequest()
}

func (f *framing) endRequest() {
	f.state, f.lines = inHead, 0
	f.requests++
}
