// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// connection sends one request at a time and returns the name of its status, such as "OK". After an error, the connection
// must not be used any more.
type connection interface {
	ask(request []byte) (string, error)
	close()
}

var statusNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
	"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

const (
	frameHeader  = 9
	ownWindow    = 1 << 30
	maxFrameSize = 16384
	protocolSize = 65535 // windows before anybody has said anything
)

// grpcConnection implements the part of gRPC over HTTP/2 that one unary request at a time needs.
type grpcConnection struct {
	socket  socket
	framer  *http2.Framer
	fields  []hpack.HeaderField
	encoder *hpack.Encoder
	block   bytes.Buffer // of the headers
	decoder *hpack.Decoder
	out     bytes.Buffer

	stream       uint32
	ended        bool
	status       string
	window       int64 // what the server takes on the connection,
	streamWindow int64 // on the stream,
	firstWindow  int64 // and on a new one
	unread       int64 // what it has sent since we last let it send more

	goesAway bool   // the server takes no more streams
	lastOne  uint32 // than up to this one
}

func dialGRPC(s settings) (connection, error) {
	plain, err := dial(s.address, s.timeout)
	if err != nil {
		return nil, err
	}
	c := &grpcConnection{
		socket: plain, window: protocolSize, firstWindow: protocolSize,
		fields: []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: s.path},
			{Name: ":authority", Value: authority(s.address)}, {Name: "content-type", Value: "application/grpc"},
			{Name: "te", Value: "trailers"}, {Name: "user-agent", Value: "loadgen"},
			{Name: "grpc-timeout", Value: strconv.FormatInt(s.timeout.Milliseconds(), 10) + "m"},
		},
	}
	for _, more := range s.headers {
		c.fields = append(c.fields, hpack.HeaderField{Name: more.name, Value: more.value})
	}
	c.encoder = hpack.NewEncoder(&c.block)
	c.decoder = hpack.NewDecoder(4096, c.read)
	c.framer = http2.NewFramer(&c.out, bufio.NewReaderSize(plain, 65536))
	c.framer.SetReuseFrames()
	c.out.WriteString(http2.ClientPreface)
	_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: ownWindow},
		http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	_ = c.framer.WriteWindowUpdate(0, ownWindow-protocolSize)
	if err := c.flush(); err != nil {
		plain.close()
		return nil, err
	}
	return c, nil
}

func (c *grpcConnection) close() { c.socket.close() }

func (c *grpcConnection) flush() error {
	if c.out.Len() == 0 {
		return nil
	}
	_, err := c.socket.Write(c.out.Bytes())
	c.out.Reset()
	return err
}

func (c *grpcConnection) read(field hpack.HeaderField) {
	switch field.Name {
	case "grpc-status":
		c.status = "CODE " + field.Value
		if number, err := strconv.Atoi(field.Value); err == nil && number >= 0 && number < len(statusNames) {
			c.status = statusNames[number]
		}
	case ":status":
		if field.Value != "200" {
			c.status = "HTTP " + field.Value
		}
	}
}

func (c *grpcConnection) ask(request []byte) (string, error) {
	if c.goesAway {
		return "", errGoAway
	}
	if c.stream == 0 {
		c.stream = 1
	} else {
		c.stream += 2
	}
	c.ended, c.status, c.streamWindow = false, "no status", c.firstWindow
	err := c.exchange(request)
	if err == nil {
		return c.status, nil
	}
	for c.receive() == nil { // it may have said why
	}
	if c.goesAway && c.lastOne < c.stream {
		return "", errGoAway
	}
	return "", err
}

func (c *grpcConnection) exchange(request []byte) error {
	c.block.Reset()
	for _, field := range c.fields {
		if err := c.encoder.WriteField(field); err != nil {
			return err
		}
	}
	err := c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: c.stream, BlockFragment: c.block.Bytes(), EndHeaders: true,
	})
	if err == nil {
		err = c.send(request)
	}
	for err == nil && !c.ended {
		err = c.receive()
	}
	return err
}

// send writes a message in frames, within the windows of the server.
func (c *grpcConnection) send(request []byte) error {
	prefix := [5]byte{}
	binary.BigEndian.PutUint32(prefix[1:], uint32(len(request)))
	left := 5 + len(request)
	for left > 0 && !c.ended {
		size := min(int64(left), maxFrameSize, c.window, c.streamWindow)
		if size < min(int64(left), 5) { // the prefix goes whole
			if err := c.flush(); err != nil {
				return err
			}
			if err := c.receive(); err != nil {
				return err
			}
			continue
		}
		var head [frameHeader]byte
		head[0], head[1], head[2] = byte(size>>16), byte(size>>8), byte(size)
		head[3] = byte(http2.FrameData)
		if size == int64(left) {
			head[4] = byte(http2.FlagDataEndStream)
		}
		binary.BigEndian.PutUint32(head[5:], c.stream)
		c.out.Write(head[:])
		payload := size
		if left == 5+len(request) {
			c.out.Write(prefix[:])
			payload -= 5
		}
		c.out.Write(request[:payload])
		request = request[payload:]
		left -= int(size)
		c.window -= size
		c.streamWindow -= size
	}
	return c.flush()
}

// receive reads one frame.
func (c *grpcConnection) receive() error {
	frame, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	own := frame.Header().StreamID == c.stream
	switch frame := frame.(type) {
	case *http2.DataFrame:
		c.unread += int64(frame.Length)
		c.ended = c.ended || own && frame.StreamEnded()
		if c.unread > ownWindow/2 {
			_ = c.framer.WriteWindowUpdate(0, uint32(c.unread))
			c.unread = 0
			return c.flush()
		}
	case *http2.HeadersFrame:
		if _, err := c.decoder.Write(frame.HeaderBlockFragment()); err != nil {
			return err
		}
		if !frame.HeadersEnded() {
			return errors.New("headers in several frames, expected one")
		}
		c.ended = c.ended || own && frame.StreamEnded()
	case *http2.RSTStreamFrame:
		if own {
			c.ended, c.status = true, "RESET "+strings.ToUpper(frame.ErrCode.String())
		}
	case *http2.SettingsFrame:
		return c.settings(frame)
	case *http2.WindowUpdateFrame:
		if frame.StreamID == 0 {
			c.window += int64(frame.Increment)
		} else if own {
			c.streamWindow += int64(frame.Increment)
		}
	case *http2.PingFrame:
		if !frame.IsAck() {
			_ = c.framer.WritePing(true, frame.Data)
			return c.flush()
		}
	case *http2.GoAwayFrame:
		c.goesAway, c.lastOne = true, frame.LastStreamID
		if c.lastOne < c.stream {
			return errGoAway
		}
	}
	return nil
}

func (c *grpcConnection) settings(frame *http2.SettingsFrame) error {
	if frame.IsAck() {
		return nil
	}
	if size, ok := frame.Value(http2.SettingInitialWindowSize); ok {
		c.streamWindow += int64(size) - c.firstWindow
		c.firstWindow = int64(size)
	}
	_ = c.framer.WriteSettingsAck()
	return c.flush()
}

// errGoAway means that the server has not processed the request, and accepts no more on this connection.
var errGoAway = fmt.Errorf("the server goes away")

// waitABit keeps a client from reconnecting in a tight loop.
func waitABit() { time.Sleep(5 * time.Millisecond) }
