// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func bytesField(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func TestModelNameIsReadFromTheSpec(t *testing.T) {
	spec := append(bytesField(3, []byte("serving_default")), bytesField(1, []byte("ranking"))...)
	inputs := bytesField(2, []byte("not looked at"))
	for _, c := range []struct {
		name    string
		request []byte
		want    string
	}{
		{"empty", nil, ""},
		{"no spec", inputs, ""},
		{"spec first", append(bytesField(1, spec), inputs...), "ranking"},
		{"spec last", append(inputs[:len(inputs):len(inputs)], bytesField(1, spec)...), "ranking"},
		{"later spec wins", append(bytesField(1, spec), bytesField(1, bytesField(1, []byte("other")))...), "other"},
	} {
		if got, err := modelName(c.request); err != nil || got != c.want {
			t.Errorf("%s: got %q (%v), expected %q", c.name, got, err, c.want)
		}
	}
}

func FuzzModelName(f *testing.F) {
	f.Add(bytesField(1, bytesField(1, []byte("ranking"))))
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, request []byte) {
		name, err := modelName(append(request, bytesField(1, bytesField(1, []byte("ranking")))...))
		if err == nil && name != "ranking" {
			t.Errorf("got %q, expected the last name", name)
		}
	})
}

func TestModelNameRefusesCutMessages(t *testing.T) {
	whole := bytesField(1, bytesField(1, []byte("ranking")))
	for size := 1; size < len(whole); size++ {
		if _, err := modelName(whole[:size]); err == nil {
			t.Errorf("%d of %d bytes were accepted", size, len(whole))
		}
	}
}
