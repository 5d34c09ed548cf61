package facts_test

import (
	"io"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// A kind of which one object can be read, and all cannot, breaks what reads it, and is told as what it is: not as one that is about to be
// read, for ever. It is the same for one that was read before, because what was seen of it grows old.
func TestListsThatFailForGood(t *testing.T) {
	const trouble = "conversion webhook for v1 failed"
	var failing atomic.Bool
	failing.Store(true)
	w := watching(env.Shared(t).Config)
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			query := r.URL.Query()
			if path.Base(r.URL.Path) != "configmaps" || query.Get("limit") == "1" || !failing.Load() {
				return next.RoundTrip(r)
			}
			return &http.Response{
				StatusCode: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
				Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"` + trouble + `"}`)),
			}, nil
		})
	})
	f := newRunning(t, config)
	f.Notify(func() {})
	configMaps := engine.Read{APIVersion: "v1", Kind: "ConfigMap"}
	fails := func() bool {
		w.cut()
		return strings.HasSuffix(f.lacking(t, append(podReads, configMaps)...), trouble)
	}
	f.await(t, "the failure to be told", fails)
	f.awaitLack(t, "", podReads...) // which costs others nothing

	failing.Store(false)
	f.awaitLack(t, "", configMaps)
	failing.Store(true)
	f.await(t, "the failure of what was read before to be told", fails)
	if _, err := f.For(nil, facts.Subject{}).Read(t.Context(), engine.Query{APIVersion: "v1", Kind: "ConfigMap"}); err == nil {
		t.Error("it answers from what it saw before")
	}
	failing.Store(false)
	f.awaitLack(t, "", configMaps)
}
