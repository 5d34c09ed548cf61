package manager

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// A replica that ends closes idle connections only after a second without requests, since a request may be on its way over each. It
// waits for that second 5 seconds at most.
func TestTheEndWaitsForAQuietMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		delay, asks, want time.Duration // all after the signal: the last request comes at asks, connections are closed at want
	}{
		"no requests":                             {10 * time.Second, 0, 10 * time.Second},
		"requests until shortly before":           {10 * time.Second, 8 * time.Second, 10 * time.Second},
		"requests a little longer than the delay": {10 * time.Second, 11500 * time.Millisecond, 13 * time.Second},
		"requests without end":                    {10 * time.Second, time.Hour, 15 * time.Second},
		"a short delay":                           {500 * time.Millisecond, 2 * time.Second, 3 * time.Second},
		"no delay":                                {0, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEnding(tc.delay)
				server := endingServer{webhook.NewServer(webhook.Options{}), e}
				server.Register("/ask", http.NotFoundHandler())
				ask := func() bool {
					w := httptest.NewRecorder()
					server.WebhookMux().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/ask", nil))
					return w.Header().Get("Connection") == "close"
				}
				if ask() {
					t.Error("a connection is ended before the end has begun")
				}
				ctx, signal := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() {
					ended <- e.run(ctx, func(managed context.Context) error { <-managed.Done(); return nil })
				}()
				began := time.Now()
				signal()
				go func() {
					for time.Since(began) < tc.asks {
						select {
						case <-time.After(300 * time.Millisecond):
						case <-e.stop:
							return
						}
						if !ask() {
							t.Error("a connection is kept")
						}
					}
				}()
				<-e.stop
				if took := time.Since(began); took < tc.want-500*time.Millisecond || took > tc.want {
					t.Errorf("closed after %v, want %v", took, tc.want)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
