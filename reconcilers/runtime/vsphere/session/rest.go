package session

import (
	"context"
	"net/http"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"golang.org/x/sync/semaphore"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// restSession is a session of vCenter's REST API, for tags. It is separate from the SDK session
// and opened on demand.
type restSession struct {
	turn    *semaphore.Weighted // guards the other fields
	client  *rest.Client        // nil if not logged in
	refused rejection
}

// REST makes requests of the REST API; about describes them in errors. If the session has ended, they are repeated
// once with a new session.
func (s *Server) REST(ctx context.Context, about string, requests func(*rest.Client) error) (err error) {
	if s.hang.rejects() {
		return s.unansweredError(errHung)
	}
	began := time.Now()
	defer func() { s.hang.record(ctx, began, err) }()
	for again := false; ; again = true {
		c, err := s.restClient(ctx, about)
		if err != nil {
			return s.Translate(ctx, err)
		}
		err = requests(c)
		if again || !rest.IsStatusError(err, http.StatusUnauthorized) {
			return s.translateREST(ctx, about, err)
		}
		s.dropREST(ctx, c)
	}
}

// translateREST converts the error of a request of the REST API.
func (s *Server) translateREST(ctx context.Context, about string, err error) error {
	switch name := s.Config.Name; {
	case rest.IsStatusError(err, http.StatusUnauthorized):
		return runtime.NewPermission(err, "the REST API of vCenter %s does not keep a session", name)
	case rest.IsStatusError(err, http.StatusForbidden):
		return runtime.NewPermission(err, "vCenter %s does not let the account read %s", name, about)
	case rest.IsStatusError(err, http.StatusNotFound):
		return runtime.NewInvalidState(err, "vCenter %s has no REST API that knows %s", name, about)
	}
	return s.Translate(ctx, err)
}

// restClient returns the session, or logs in, one login at a time. An aborted login may leave a session behind, which
// expires when idle.
func (s *Server) restClient(ctx context.Context, about string) (*rest.Client, error) {
	c, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	r := &s.restSession
	if err := r.turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer r.turn.Release(1)
	if r.client != nil {
		return r.client, nil
	}
	user, err := s.Config.Credentials(ctx)
	if err != nil || user == nil {
		return nil, runtime.NewUnavailable(err, "the credentials of vCenter %s cannot be read", s.Config.Name)
	}
	if r.refused.isRecent(user) {
		return nil, r.refused.err
	}
	client := rest.NewClient(c.Client) // on the same verified connections
	client.UserAgent, client.CheckRedirect = c.UserAgent, c.CheckRedirect
	if s.Config.WrapREST != nil {
		client.Transport = s.Config.WrapREST(client.Transport)
	}
	err = client.Login(ctx, user)
	r.refused = rejection{}
	if rest.IsStatusError(err, http.StatusUnauthorized) {
		err = runtime.NewPermission(err, "the REST API of vCenter %s refused the login, which is needed for %s", s.Config.Name, about)
		r.refused = rejection{credentials: user.String(), at: time.Now(), err: err}
	}
	if err != nil {
		return nil, s.translateREST(ctx, about, err)
	}
	r.client = client
	return client, nil
}

// dropREST drops a session that has ended.
func (s *Server) dropREST(ctx context.Context, ended *rest.Client) {
	if s.restSession.turn.Acquire(ctx, 1) != nil {
		return
	}
	defer s.restSession.turn.Release(1)
	if s.restSession.client == ended {
		s.restSession.client = nil
	}
}

func (s *Server) closeREST(ctx context.Context) {
	if s.restSession.turn.Acquire(ctx, 1) != nil {
		return
	}
	defer s.restSession.turn.Release(1)
	if client := s.restSession.client; client != nil {
		s.restSession.client = nil
		_ = client.Logout(ctx) // a session that cannot be ended expires when idle
	}
}
