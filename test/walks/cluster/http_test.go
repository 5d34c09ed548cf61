package cluster

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/env/install"
)

// What is no admission review gets HTTP 400 from the real endpoint, and is counted.
func TestGarbageGetsHTTP400(t *testing.T) {
	stack.Up(t)
	roots, err := stack.Sallyport.Roots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: fmt.Sprintf("%s.%s.svc", install.Service, install.Namespace), MinVersion: tls.VersionTLS12,
	}}}
	defer client.CloseIdleConnections()
	url := "https://" + net.JoinHostPort(stack.Sallyport.Address, strconv.Itoa(install.Port))
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
	metrics, err := stack.Sallyport.Metrics(t.Context())
	if err != nil || !strings.Contains(metrics, `sallyport_rejected_reviews_total{cause="too_large",webhook="mutate"}`) {
		t.Errorf("rejected reviews are not counted: %v", err)
	}
}
