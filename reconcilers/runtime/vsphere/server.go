package vsphere

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
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
	// loginTimeout bounds a login, which does not end with the call that needs it: a login that is given up half-way
	// may leave a session behind that nobody can end.
	loginTimeout = 30 * time.Second
	// refusalPause is how long credentials that were refused are not tried again: a few wrong passwords in a row lock
	// the account.
	refusalPause = time.Minute
	// idleConnections is how many connections are kept for calls that go on at the same time.
	idleConnections = 16
	// idleTimeout is how long a connection is kept unused. It is shorter than vCenter's own, which closes connections
	// that a request may already be on its way on.
	idleTimeout = 30 * time.Second
)

// errClosed is why a Server that was closed does not answer.
var errClosed = errors.New("the connection was closed")

// Server is one vCenter. It logs in when it is first needed, keeps the session for everybody, and logs in anew when
// vCenter has ended it. It is safe for concurrent use and must be closed, which logs out.
type Server struct {
	config  Config
	address *url.URL

	// dying ends with Close and takes a login with it that has not ended.
	dying context.Context
	die   context.CancelFunc

	mu      sync.Mutex
	current *connection // Nil if nobody is logged in.
	logins  singleflight.Group
	refused refusal
	closed  bool
	account string // Who was logged in last.

	restSession restSession
	hang        hang

	looks singleflight.Group // At the marks of all machines.

	machines markedMachines
}

// connection is a session and what it is held on.
type connection struct {
	*vim25.Client
	manager *session.Manager
	user    string // As vCenter calls it, which need not be as it was typed.
}

// refusal is when which credentials were refused.
type refusal struct {
	credentials string
	at          time.Time
	err         error
}

// stands reports whether those credentials were refused a moment ago.
func (r refusal) stands(user *url.Userinfo) bool {
	return r.credentials == user.String() && time.Since(r.at) < refusalPause
}

// NewServer returns the vCenter of that configuration, without asking it anything.
func NewServer(config Config) (*Server, error) {
	address, err := config.address()
	if err != nil {
		return nil, err
	}
	if _, err := config.trust(); err != nil {
		return nil, err
	}
	s := &Server{config: config, address: address, restSession: restSession{turn: semaphore.NewWeighted(1)}, hang: hang{after: cmp.Or(config.HungAfter, hungAfter), first: firstProbe}}
	s.dying, s.die = context.WithCancel(context.Background())
	return s, nil
}

// Close logs out, before ctx ends. Calls that are under way, or come later, get Unavailable errors.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	current := s.current
	s.current = nil
	s.mu.Unlock()
	defer s.die()
	s.closeREST(ctx)
	// A login in flight sees that the Server is closed and logs out itself.
	select {
	case <-s.logins.DoChan("", func() (any, error) { return nil, errClosed }):
	case <-ctx.Done():
		return s.translate(ctx, ctx.Err())
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
	return s.translate(ctx, err)
}

// call makes one request, with a session, unless the vCenter is hung.
func (s *Server) call(ctx context.Context, request func(c *vim25.Client) error) error {
	if s.hang.refuses() {
		return s.unanswered(errHung)
	}
	return s.ask(ctx, request)
}

// ask makes one request, also of a vCenter that is hung. A request that vCenter refuses because the session has ended was not carried
// out and is made again, once, with a new session; nothing else is ever sent twice.
func (s *Server) ask(ctx context.Context, request func(c *vim25.Client) error) (err error) {
	if err := ctx.Err(); err != nil {
		return s.translate(ctx, err)
	}
	began := time.Now()
	defer func() { s.hang.note(ctx, began, err) }()
	for again := false; ; again = true {
		c, err := s.connected(ctx)
		if err != nil {
			return s.translate(ctx, err)
		}
		err = request(c.Client)
		if again || err == nil || !fault.Is(err, &types.NotAuthenticated{}) {
			return s.translate(ctx, err)
		}
		s.forget(c)
	}
}

// tidyPatience is how long vCenter has to drop what was made for a look, which it does by itself when the session ends.
const tidyPatience = 5 * time.Second

// tidy drops something that was made for a look, whose context may have ended. It waits for that no longer than the context lasts.
func tidy(ctx context.Context, drop func(context.Context) error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyPatience)
		defer cancel()
		_ = drop(ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// forget leaves a connection whose session vCenter has ended.
func (s *Server) forget(c *connection) {
	s.mu.Lock()
	if s.current == c {
		s.current = nil
	}
	s.mu.Unlock()
	c.CloseIdleConnections()
}

// connected gives the session that there is, or the one of a login that all who need it wait for.
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

// logIn carries a login out, and gives its connection.
func (s *Server) logIn() (any, error) {
	ctx, cancel := context.WithTimeout(s.dying, loginTimeout)
	defer cancel()
	c, err := s.connect(ctx)
	if err != nil {
		return nil, s.translate(ctx, err) // whoever waits has a context of its own, which says nothing about how this one ended
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.current, s.account = c, c.user
	}
	s.mu.Unlock()
	if closed {
		// Nobody is left to hear of it; a session that cannot be ended ends by itself when it has been idle.
		_ = s.logOut(ctx, c)
		return nil, errClosed
	}
	return c, nil
}

// connect logs in with the credentials of the moment.
func (s *Server) connect(ctx context.Context) (*connection, error) {
	user, err := s.config.Credentials(ctx)
	if err != nil || user == nil {
		return nil, runtime.NewUnavailable(err, "the credentials of vCenter %s cannot be read", s.config.Name)
	}
	if s.refused.stands(user) {
		return nil, s.refused.err
	}
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	var sender soap.RoundTripper = client
	if s.config.Wrap != nil {
		sender = s.config.Wrap(client)
	}
	// NewClient knows a namespace only from a soap.Client, and asks it for the content.
	vc, err := vim25.NewClient(ctx, client)
	if err != nil {
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
		s.refused = refusal{}
		if fault.Is(err, &types.InvalidLogin{}) {
			s.refused = refusal{credentials: user.String(), at: time.Now(), err: s.translate(ctx, err)}
		}
		return nil, err
	}
	c.user = in.Returnval.UserName
	return c, nil
}

// user is who is logged in, or was last, as vCenter calls them.
func (s *Server) user() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.account
}

// client gives a client that sends a request once, on a connection that ends with the request's context.
func (s *Server) client() (*soap.Client, error) {
	trust, err := s.config.trust()
	if err != nil {
		return nil, err
	}
	client := soap.NewClient(s.address, false)
	client.UserAgent = "sallyport"
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	transport := client.DefaultTransport()
	// govmomi's own dialler does not end with the context, and with HTTP/2 ending a request does not end its connection.
	transport.DialTLSContext = nil
	transport.ForceAttemptHTTP2 = false
	transport.TLSClientConfig = trust
	transport.DialContext = dial
	transport.MaxIdleConnsPerHost = idleConnections
	transport.IdleConnTimeout = idleTimeout
	return client, nil
}

// dial connects so that closing throws away what has not been sent: net/http closes the connection of a request whose
// context has ended, and what is still in a buffer then must not reach vCenter later.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialler net.Dialer
	conn, err := dialler.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Without it a connection is as good, but for that.
		_ = tcp.SetLinger(0)
	}
	return conn, nil
}
