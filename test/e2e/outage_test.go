package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/double/fake"
	"sallyport.dev/sallyport/test/env/install"
)

// While nothing serves the webhooks, what reconcilers and deletion need goes on; what a policy must judge is refused.
func TestAnOutageWedgesNothing(t *testing.T) {
	depth.Only(t)
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.machine("old-1", "Stopped")
	stack.world.SetGuest(tm.uid("web-1"), fake.Guest{Ignores: true}) // so that the Stop is in progress
	tm.must(operation("stop-1", "web-1", "Stop"), create...)
	tm.await("svmop/stop-1", ".status.phase", "InProgress")
	if err := stack.sallyport.Stop(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stack.sallyport.Resume(t.Context(), stack.options); err != nil {
			t.Fatal(err)
		}
		tm.must(operation("stop-2", "web-1", "Stop", `, "force": true`), create...)
	}()
	tm.status("svmop/stop-1", `{"phase": "InProgress"}`)
	tm.status("svm/web-1", `{"phase": "Stopping"}`)
	tm.must("", "annotate", "svm", "web-1", "example.com/note=x")
	tm.refused(operation("start-1", "web-1", "Start"), create, "failed calling webhook")
	tm.refused("", []string{"label", "svm", "web-1", "team=blue"}, "failed calling webhook")
	tm.refused("", []string{"annotate", "svm", "web-1", "sallyport.dev/note=x"}, "failed calling webhook")
	tm.must("", "delete", "svm", "old-1", "--wait=false")
	tm.refused("", []string{"annotate", "svm", "old-1", "sallyport.dev/abandon-instance=x"}, "failed calling webhook")
	tm.must("", "patch", "svm", "old-1", "--type=merge", "-p", `{"metadata": {"finalizers": null}}`) // as its reconciler does last
	tm.refused("", []string{"get", "svm", "old-1"}, "not found")
}

// What is no admission review gets HTTP 400 from the real endpoint, and is counted.
func TestGarbageGetsHTTP400(t *testing.T) {
	roots, err := stack.sallyport.Roots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: fmt.Sprintf("%s.%s.svc", install.Service, install.Namespace), MinVersion: tls.VersionTLS12,
	}}}
	defer client.CloseIdleConnections()
	url := "https://" + net.JoinHostPort(stack.sallyport.Address, strconv.Itoa(install.Port))
	for _, path := range []string{"/validate", "/mutate"} {
		for _, body := range []string{"", "hello", "{}", `{"a": 1, "a": 2}`, strings.Repeat(" ", 8<<20)} {
			response, err := client.Post(url+path, "application/json", bytes.NewReader([]byte(body)))
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusBadRequest {
				t.Errorf("%s answered %.20q with %s", path, body, response.Status)
			}
		}
	}
	metrics, err := stack.sallyport.Metrics(t.Context())
	if err != nil || !strings.Contains(metrics, `sallyport_rejected_reviews_total{cause="too_large",endpoint="mutate"}`) {
		t.Errorf("rejected reviews are not counted: %v", err)
	}
}
