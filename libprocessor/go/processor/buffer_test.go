// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestBufferKeepsWhatIsRead(t *testing.T) {
	for _, size := range []int{0, 1, 511, 4095, 4096, 4097, 65535, 65536, 65537, 1_000_000} {
		data := bytes.Repeat([]byte("0123456789abcdefg"), size/17+1)[:size]
		for name, reader := range map[string]io.Reader{
			"whole": bytes.NewReader(data), "halves": iotest.HalfReader(bytes.NewReader(data)),
			"end with data": iotest.DataErrReader(bytes.NewReader(data)),
		} {
			var buffer Buffer
			if err := buffer.ReadUpTo(reader, size); err != nil || !bytes.Equal(buffer.Bytes(), data) {
				t.Errorf("%d bytes, %s: got %d (%v)", size, name, buffer.Len(), err)
			}
			buffer.Free()
			buffer.Free()
		}
		var buffer Buffer
		if err := buffer.ReadUpTo(bytes.NewReader(append(data, "more"...)), size); err != nil || buffer.Len() != size+1 {
			t.Errorf("%d bytes and more: got %d (%v), expected one more", size, buffer.Len(), err)
		}
		buffer.Free()
	}
	var buffer Buffer
	defer buffer.Free()
	if err := buffer.ReadUpTo(iotest.ErrReader(io.ErrClosedPipe), 10); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

func TestBufferClaimsItsMemory(t *testing.T) {
	before := MaxRequestBytes()
	defer func() { _ = SetMaxRequestBytes(before) }()
	if err := SetMaxRequestBytes(1000); CodeOf(err) != InvalidArgument {
		t.Errorf("got %v, expected INVALID_ARGUMENT", err)
	}
	if err := SetMaxRequestBytes(8 << 20); err != nil || MaxRequestBytes() != 8<<20 {
		t.Fatalf("got %d (%v)", MaxRequestBytes(), err)
	}
	var large, other, small Buffer
	defer small.Free()
	if err := large.Reserve(3 << 20); err != nil {
		t.Fatal(err)
	}
	if err := other.ReadUpTo(bytes.NewReader(make([]byte, 2<<20)), 4<<20); CodeOf(err) != ResourceExhausted {
		t.Errorf("got %v, expected RESOURCE_EXHAUSTED", err)
	}
	other.Free()
	if err := small.Reserve(60_000); err != nil {
		t.Errorf("a small one: %v", err)
	}
	if err := large.Reserve(5 << 20); CodeOf(err) != InvalidArgument {
		t.Errorf("got %v, expected INVALID_ARGUMENT, as it never fits", err)
	}
	large.Free()
	if err := other.Reserve(3 << 20); err != nil {
		t.Errorf("after it was given back: %v", err)
	}
	other.Free()
}
