// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"slices"
	"strings"
)

const (
	corsMethods = "GET, HEAD, POST"
	corsMaxAge  = "3600" // seconds
)

var corsExposed = strings.Join(append(slices.Clone(provenanceNames), "inference-header-content-length", "retry-after"), ", ")

// withCORS lets pages of some origins ("*": of all) use a handler: it responds to the preflight requests of browsers, and
// marks responses that pages may read. Without origins, it returns the handler itself.
func withCORS(handler http.Handler, origins []string) http.Handler {
	if len(origins) == 0 {
		return handler
	}
	all := slices.Contains(origins, "*")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin == "" {
			handler.ServeHTTP(w, r)
			return
		}
		header := w.Header()
		allowed := all || slices.Contains(origins, origin)
		if allowed {
			header.Set("Access-Control-Allow-Origin", "*")
			if !all {
				header.Set("Access-Control-Allow-Origin", origin)
				header.Set("Vary", "Origin")
			}
		}
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			if allowed {
				header.Set("Access-Control-Expose-Headers", corsExposed)
			}
			handler.ServeHTTP(w, r)
			return
		}
		if !allowed {
			refuse(w, http.StatusForbidden, "origin '"+cut(origin, 200)+"': not allowed, expected one of --cors-origin", "")
			return
		}
		header.Set("Access-Control-Allow-Methods", corsMethods)
		header.Set("Access-Control-Max-Age", corsMaxAge)
		if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
			header.Set("Access-Control-Allow-Headers", asked)
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
