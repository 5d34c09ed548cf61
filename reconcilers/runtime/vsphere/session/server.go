// Package session has the connection to a vCenter: logins, requests of its two APIs, their errors, and what happens while it does not answer.
package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// loginTimeout limits a login. It does not end with the call that needs it: an aborted login may leave a session
	// behind that cannot be ended.
	loginTimeout = 30 * time.Second
	// refusalPause is how long rejected credentials are not tried again: a few wrong passwords in a row lock the
	// account.
	refusalPause = time.Minute
	// idleConnections is the number of idle connections kept for concurrent calls.
	idleConnections = 16
	// idleTimeout is how long an idle connection is kept. It is shorter than vCenter's own timeout: vCenter could
	// close a connection while a request is on its way.
	idleTimeout = 30 * time.Second
)

var errClosed = errors.New("the connection was closed")

// Server is one vCenter. It logs in on demand, shares the session, and logs in again when vCenter has ended it. It is
// safe for concurrent use and must be closed, which logs out.
type Server struct {
	// Config is the configuration, which must not be changed.
	Config  Config
	address *url.URL

	// dying ends with Close and cancels a login in progress.
	dying context.Context
	die   context.CancelFunc

	mu      sync.Mutex
	current *connection // nil if not logged in
	logins  singleflight.Group
	refused rejection
	closed  bool
	account string // the user of the last login
	known   string // the ID of the vCenter, once it is known

	restSession restSession
	hang        hang
}

type connection struct {
	*vim25.Client
	manager *session.Manager
	user    string // as vCenter names it, which may differ from the input
	catalog catalog
}

// rejection is when which credentials were rejected.
type rejection struct {
	credentials string
	at          time.Time
	err         error
}

func (r rejection) isRecent(user *url.Userinfo) bool {
	return r.credentials == user.String() && time.Since(r.at) < refusalPause
}

// NewServer returns the vCenter of that configuration, without any request.
func NewServer(config Config) (*Server, error) {
	address, err := config.address()
	if err != nil {
		return nil, err
	}
	if _, err := config.Trust(); err != nil {
		return nil, err
	}
	s := &Server{Config: config, address: address, known: config.InstanceUUID, restSession: restSession{turn: semaphore.NewWeighted(1)}, hang: hang{after: cmp.Or(config.HungAfter, hungAfter), first: cmp.Or(config.ProbeAfter, firstProbe)}}
	s.dying, s.die = context.WithCancel(context.Background())
	return s, nil
}

// Close logs out before ctx ends. Calls in progress and later ones return Unavailable errors.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	current := s.current
	s.current = nil
	s.mu.Unlock()
	defer s.die()
	s.closeREST(ctx)
	// A login in progress notices that the Server is closed and logs out itself.
	select {
	case <-s.logins.DoChan("", func() (any, error) { return nil, errClosed }):
	case <-ctx.Done():
		return s.Translate(ctx, ctx.Err())
	}
	if current == nil {
		return nil
	}
	return s.logOut(ctx, current)
}

func (s *Server) logOut(ctx context.Context, c *connection) error {
	defer c.CloseIdleConnections()
	err := c.manager.Logout(ctx)
	if fault.Is(err, &types.NotAuthenticated{}) {
		return nil
	}
	return s.Translate(ctx, err)
}

// Call makes one request with a session, unless vCenter is hung.
func (s *Server) Call(ctx context.Context, request func(c *vim25.Client) error) error {
	return s.unlessHung(ctx, func(c *connection) error { return request(c.Client) })
}

func (s *Server) unlessHung(ctx context.Context, request func(*connection) error) error {
	if s.hang.rejects() {
		return s.unansweredError(errHung)
	}
	return s.ask(ctx, request)
}

// Ask makes one request, even if vCenter is hung.
func (s *Server) Ask(ctx context.Context, request func(c *vim25.Client) error) error {
	return s.ask(ctx, func(c *connection) error { return request(c.Client) })
}

// ask makes one request. One that fails because the session has ended was not carried out and is repeated once with a new session; nothing
// else is ever sent twice.
func (s *Server) ask(ctx context.Context, request func(*connection) error) (err error) {
	if err := ctx.Err(); err != nil {
		return s.Translate(ctx, err)
	}
	began := time.Now()
	defer func() { s.hang.record(ctx, began, err) }()
	for again := false; ; again = true {
		c, err := s.connected(ctx)
		if err != nil {
			return s.Translate(ctx, err)
		}
		err = request(c)
		if again || err == nil || !fault.Is(err, &types.NotAuthenticated{}) {
			return s.Translate(ctx, err)
		}
		s.forget(c)
	}
}

// forget drops a connection whose session has ended.
func (s *Server) forget(c *connection) {
	s.mu.Lock()
	if s.current == c {
		s.current = nil
	}
	s.mu.Unlock()
	c.CloseIdleConnections()
}

// connected returns the current session, or that of a login that all concurrent callers share.
func (s *Server) connected(ctx context.Context) (*connection, error) {
	s.mu.Lock()
	if s.closed || s.current != nil {
		defer s.mu.Unlock()
		if s.closed {
			return nil, errClosed
		}
		return s.current, nil
	}
	result := s.logins.DoChan("", s.logIn)
	s.mu.Unlock()
	select {
	case r := <-result:
		c, _ := r.Val.(*connection)
		return c, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Server) logIn() (any, error) {
	ctx, cancel := context.WithTimeout(s.dying, loginTimeout)
	defer cancel()
	c, err := s.connect(ctx)
	if err != nil {
		return nil, s.Translate(ctx, err) // callers have contexts of their own, which do not explain how this one ended
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.current, s.account = c, c.user
	}
	s.mu.Unlock()
	if closed {
		// The error cannot be reported; the session expires when idle.
		_ = s.logOut(ctx, c)
		return nil, errClosed
	}
	return c, nil
}

// connect logs in with the current credentials.
func (s *Server) connect(ctx context.Context) (*connection, error) {
	user, err := s.Config.Credentials(ctx)
	if err != nil || user == nil {
		return nil, runtime.NewUnavailable(err, "the credentials of vCenter %s cannot be read", s.Config.Name)
	}
	if s.refused.isRecent(user) {
		return nil, s.refused.err
	}
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	var sender soap.RoundTripper = client
	if s.Config.Wrap != nil {
		sender = s.Config.Wrap(client)
	}
	// NewClient takes the namespace only from a soap.Client, and requests the content.
	vc, err := vim25.NewClient(ctx, client)
	if err != nil {
		return nil, err
	}
	if err := s.recognize(vc.ServiceContent.About.InstanceUuid); err != nil {
		client.CloseIdleConnections()
		return nil, err
	}
	vc.RoundTripper = listening{sender, &s.hang}
	c := &connection{Client: vc, manager: session.NewManager(vc)}
	password, _ := user.Password()
	in, err := methods.Login(ctx, vc, &types.Login{
		This: c.manager.Reference(), UserName: user.Username(), Password: password, Locale: session.Locale,
	})
	if err != nil {
		c.CloseIdleConnections()
		s.refused = rejection{}
		if fault.Is(err, &types.InvalidLogin{}) {
			s.refused = rejection{credentials: user.String(), at: time.Now(), err: s.Translate(ctx, err)}
		}
		return nil, err
	}
	c.user = in.Returnval.UserName
	return c, nil
}

// recognize returns an error if the vCenter is another one.
func (s *Server) recognize(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known != "" && !strings.EqualFold(s.known, id) {
		return runtime.NewUnavailable(&runtime.Other{Is: id, Was: s.known}, "vCenter %s is another one than before", s.Config.Name)
	}
	s.known = id
	return nil
}

// InstanceUUID returns the ID of the vCenter: that of the configuration, or else that of the first login, empty before.
func (s *Server) InstanceUUID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// User returns the user of the current or last login, as vCenter names it.
func (s *Server) User() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.account
}

func (s *Server) client() (*soap.Client, error) {
	trust, err := s.Config.Trust()
	if err != nil {
		return nil, err
	}
	return NewClient(s.address, trust), nil
}

// NewClient returns a client that trusts what it is told to, follows no redirect, and sends a request once, on a connection that is closed with
// the request's context.
func NewClient(address *url.URL, trust *tls.Config) *soap.Client {
	client := soap.NewClient(address, false)
	client.UserAgent = "sallyport"
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	transport := client.DefaultTransport()
	// govmomi's dialer ignores the context, and with HTTP/2 the end of a request does not close its connection.
	transport.DialTLSContext = nil
	transport.ForceAttemptHTTP2 = false
	transport.TLSClientConfig = trust
	transport.DialContext = dial
	transport.MaxIdleConnsPerHost = idleConnections
	transport.IdleConnTimeout = idleTimeout
	return client
}

// dial returns a connection that discards unsent data when it is closed: net/http closes the connection of a request
// whose context has ended, and buffered data must not reach vCenter later.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialler net.Dialer
	conn, err := dialler.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Without this option the connection still works.
		_ = tcp.SetLinger(0)
	}
	return conn, nil
}
