package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// headerPatience is how long a connection may take to be made, and a request to tell what it is; idlePatience is longer
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
	started        atomic.Bool
}

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
	serving := &http.Server{
		Handler: s.WebhookMux(), BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ReadHeaderTimeout: headerPatience, IdleTimeout: idlePatience, MaxHeaderBytes: maxHeader,
	}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		ended <- serving.Shutdown(draining)
	}()
	s.started.Store(true)
	if err := serving.Serve(tls.NewListener(&door{Listener: listener, most: mostConnections}, config)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("stopping the webhook server: %w", err)
	}
	return nil
}

// StartedChecker returns a probe that succeeds when the server accepts connections.
func (s *server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.started.Load() {
			return errors.New("the webhook server has not started")
		}
		return nil
	}
}
