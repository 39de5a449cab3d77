// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestFindRoute(t *testing.T) {
	for path, want := range map[string]route{
		"/v1/models/m:predict":             {what: operation{"tfserving_json", "predict"}, allowed: "POST", model: "m"},
		"/v1/models/m/versions/7:classify": {what: operation{"tfserving_json", "classify"}, allowed: "POST", model: "m", version: 7},
		"/v1/models/m/labels/l:regress":    {what: operation{"tfserving_json", "regress"}, allowed: "POST", model: "m", label: "l"},
		"/v1/models/a%2Fb/metadata":        {what: operation{"tfserving_json", "metadata"}, allowed: "GET", model: "a/b"},
		"/v1/models/m/versions/7":          {what: operation{"tfserving_json", "status"}, allowed: "GET", model: "m", version: 7},
		"/v1/models/m:eas":                 {what: easPredict, allowed: "POST", model: "m"},
		"/v2":                              {what: operation{"kserve_json", "server_metadata"}, allowed: "GET"},
		"/v2/":                             {what: operation{"kserve_json", "server_metadata"}, allowed: "GET"},
		"/v2/models/m:n/infer":             {what: operation{"kserve_json", "infer"}, allowed: "POST", model: "m:n"},
		"/v2/models/m/versions/3/ready":    {what: operation{"kserve_json", "ready"}, allowed: "GET", model: "m", version: 3},
		"/v2/models/m":                     {what: operation{"kserve_json", "metadata"}, allowed: "GET", model: "m"},
		"/api/predict/m":                   {what: easPredict, allowed: "POST", model: "m"},
		"/api/predict/m/more":              {what: easPredict, allowed: "POST", model: "m"},
		"/":                                {what: easPredict, allowed: "POST"},
		"/metrics":                         {page: metricsPage, allowed: "GET"},
		"/monitoring/prometheus/metrics":   {page: metricsPage, allowed: "GET"},
		"/readyz/":                         {page: readyPage, allowed: "GET"},
	} {
		if got, err := findRoute(path); err != nil || got != want {
			t.Errorf("%s: got %+v (%v), expected %+v", path, got, err, want)
		}
	}
}

func TestFindRouteRefuses(t *testing.T) {
	for path, status := range map[string]int{
		"":                                         http.StatusNotFound,
		"/v1":                                      http.StatusNotFound,
		"/v1/models/":                              http.StatusNotFound,
		"/v1/models/:predict":                      http.StatusNotFound,
		"/v1/models/m:absent":                      http.StatusNotFound,
		"/v1/models/m/versions/:predict":           http.StatusNotFound,
		"/v1/models/m/labels/:predict":             http.StatusNotFound,
		"/v1/models/m/versions/1/labels/l":         http.StatusNotFound,
		"/v1/models/m/versions/0:predict":          http.StatusNotFound,
		"/v1/models/m/versions/-1:predict":         http.StatusBadRequest,
		"/v1/models/m/versions/x:predict":          http.StatusBadRequest,
		"/v1/models/m/versions/" + digits + ":eas": http.StatusBadRequest,
		"/v1/models/%00:predict":                   http.StatusBadRequest,
		"/v1/models/%ff:predict":                   http.StatusBadRequest,
		"/v2/models/m/labels//infer":               http.StatusNotFound,
		"/v2/models/m/infer/":                      http.StatusNotFound,
		"/api/predict/":                            http.StatusNotFound,
		"/absent":                                  http.StatusNotFound,
	} {
		_, err := findRoute(path)
		var where *routeError
		if !errors.As(err, &where) || where.status != status {
			t.Errorf("%s: got %v, expected HTTP status %d", path, err, status)
		}
	}
}

const digits = "9223372036854775808" // 2^63

func FuzzFindRoute(f *testing.F) {
	for _, path := range []string{"/v1/models/m/versions/7:predict", "/v2/models/m/infer", "/api/predict/m", "/%"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		found, err := findRoute(path)
		if err == nil && (found.page == noPage && found.what.protocol == "" || found.version < 0 ||
			strings.IndexByte(found.model+found.label, 0) >= 0) {
			t.Errorf("%q: got %+v", path, found)
		}
	})
}
