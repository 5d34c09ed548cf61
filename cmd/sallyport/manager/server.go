package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// headerPatience limits the time of a handshake and of a request's header; idlePatience is longer
	// than the 90 seconds for which API servers keep idle connections (client-go's transport): the sender of requests can close a
	// connection without losing one.
	headerPatience, idlePatience = 5 * time.Second, 2 * time.Minute
	// maxHeader is how many bytes a request may have before its body; an API server sends some hundred.
	maxHeader = 16 << 10
	// mostConnections is the maximum number of connections. Each one takes about 50 kB before a request arrives.
	mostConnections = 1024
)

// server serves the webhooks over HTTP/1.1, which API servers use, with one request at a time on each connection. The server of
// controller-runtime limits neither connections nor requests.
type server struct {
	webhook.Server // for its endpoints, with their metrics
	options        *Options
	configure      []func(*tls.Config)
	listens        atomic.Pointer[listening]
}

// listening is the address and the TLS configuration of a server.
type listening struct {
	address string
	config  *tls.Config

	mu     sync.Mutex
	probes []string // the local addresses of the latest probes

	second rate.Sometimes // limits the log
}

// latestProbes is the number of latest probes whose errors are not logged.
const latestProbes = 16

// newServer prepares a server, whose certificate is configured by the arguments.
func (o *Options) newServer(configure ...func(*tls.Config)) (*server, error) {
	if o.ClientCAFile != "" {
		clients, err := newClients(o.ClientCAFile, o.ClientNames)
		if err != nil {
			return nil, fmt.Errorf("reading --client-ca-file: %w", err)
		}
		configure = append(configure, clients.TLS)
	}
	return &server{Server: webhook.NewServer(webhook.Options{}), options: o, configure: configure}, nil
}

// Start serves until the context ends, and then finishes requests in progress.
func (s *server) Start(ctx context.Context) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	for _, configure := range s.configure {
		configure(config)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(s.options.WebhookHost, strconv.Itoa(s.options.WebhookPort)))
	if err != nil {
		return err
	}
	listens := &listening{address: listener.Addr().String(), config: config, second: rate.Sometimes{Interval: time.Second}}
	serving := &http.Server{
		Handler: s.WebhookMux(), BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ReadHeaderTimeout: headerPatience, IdleTimeout: idlePatience, MaxHeaderBytes: maxHeader, ErrorLog: log.New(listens, log.Prefix(), log.Flags()),
	}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		ended <- serving.Shutdown(draining)
	}()
	s.listens.Store(listens)
	if err := serving.Serve(tls.NewListener(&door{Listener: listener, most: mostConnections}, config)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("stopping the webhook server: %w", err)
	}
	return nil
}

// StartedChecker returns a probe that connects to the server: it succeeds while the server completes handshakes with the certificate that
// it serves. That callers trust this certificate is the probe of package certs.
func (s *server) StartedChecker() healthz.Checker {
	return func(r *http.Request) error {
		listens := s.listens.Load()
		if listens == nil {
			return errors.New("the webhook server has not started")
		}
		ctx := context.Background()
		if r != nil {
			ctx = r.Context()
		}
		return listens.dial(ctx)
	}
}

// dial makes a connection and closes it after the handshake. TLS 1.3 ends the handshake of the client before the server has asked for
// the certificate of --client-ca-file, which a probe does not have.
func (l *listening) dial(ctx context.Context) error {
	config := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} //nolint:gosec // VerifyConnection compares the certificate
	config.VerifyConnection = func(state tls.ConnectionState) error {
		served, err := l.config.GetCertificate(&tls.ClientHelloInfo{})
		if err == nil && !slices.Equal(state.PeerCertificates[0].Raw, served.Certificate[0]) {
			err = errors.New("another certificate answers than this replica serves")
		}
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, headerPatience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.address) // an unspecified address is the local system
	if err != nil {
		return fmt.Errorf("connecting to the webhook server: %w", err)
	}
	defer conn.Close()
	l.mu.Lock()
	l.probes = append(l.probes[max(0, len(l.probes)+1-latestProbes):], conn.LocalAddr().String())
	l.mu.Unlock()
	if err := tls.Client(conn, config).HandshakeContext(ctx); err != nil {
		return fmt.Errorf("connecting to the webhook server: %w", err)
	}
	return nil
}

// Write logs an error of the server, except that a probe has no client certificate, and at most one in a second: any client can cause them.
func (l *listening) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.probes, func(probe string) bool { return strings.Contains(string(line), " from "+probe+":") }) {
		return len(line), nil
	}
	l.second.Do(func() { _, _ = log.Writer().Write(line) })
	return len(line), nil
}
