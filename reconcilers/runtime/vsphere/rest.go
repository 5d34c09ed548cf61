package vsphere

import (
	"context"
	"net/http"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"golang.org/x/sync/semaphore"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// restSession is the session of vCenter's REST API, which knows the tags and the content libraries. It is of its own, and made when it is first needed.
type restSession struct {
	turn    *semaphore.Weighted // Whoever has it may use the rest, and nobody else.
	client  *rest.Client        // Nil if nobody is logged in.
	refused refusal
}

// rest makes requests of the REST API, about what is called so in errors. What is refused because the session has ended is asked again, once, with a new session.
func (s *Server) rest(ctx context.Context, about string, requests func(*rest.Client) error) (err error) {
	if s.hang.refuses() {
		return s.unanswered(errHung)
	}
	began := time.Now()
	defer func() { s.hang.note(ctx, began, err) }()
	for again := false; ; again = true {
		c, err := s.restClient(ctx, about)
		if err != nil {
			return s.translate(ctx, err)
		}
		err = requests(c)
		if again || !rest.IsStatusError(err, http.StatusUnauthorized) {
			return s.translateREST(ctx, about, err)
		}
		s.leaveREST(ctx, c)
	}
}

// translateREST gives the error of package runtime for what a request of the REST API ended with.
func (s *Server) translateREST(ctx context.Context, about string, err error) error {
	switch name := s.config.Name; {
	case rest.IsStatusError(err, http.StatusUnauthorized):
		return runtime.NewPermission(err, "the REST API of vCenter %s does not keep a session", name)
	case rest.IsStatusError(err, http.StatusForbidden):
		return runtime.NewPermission(err, "vCenter %s does not let the account read %s", name, about)
	case rest.IsStatusError(err, http.StatusNotFound):
		return runtime.NewInvalidState(err, "vCenter %s has no REST API that knows %s", name, about)
	}
	return s.translate(ctx, err)
}

// restClient gives the session that there is, or logs in, one at a time. A login that is given up half-way may leave a session behind,
// which ends by itself when it has been idle.
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
	user, err := s.config.Credentials(ctx)
	if err != nil || user == nil {
		return nil, runtime.NewUnavailable(err, "the credentials of vCenter %s cannot be read", s.config.Name)
	}
	if r.refused.stands(user) {
		return nil, r.refused.err
	}
	client := rest.NewClient(c.Client) // on the same connections, which have verified whom they lead to
	client.UserAgent, client.CheckRedirect = c.UserAgent, c.CheckRedirect
	if s.config.WrapREST != nil {
		client.Transport = s.config.WrapREST(client.Transport)
	}
	err = client.Login(ctx, user)
	r.refused = refusal{}
	if rest.IsStatusError(err, http.StatusUnauthorized) {
		err = runtime.NewPermission(err, "the REST API of vCenter %s refused the login, which is needed for %s", s.config.Name, about)
		r.refused = refusal{credentials: user.String(), at: time.Now(), err: err}
	}
	if err != nil {
		return nil, s.translateREST(ctx, about, err)
	}
	r.client = client
	return client, nil
}

// leaveREST forgets a session that has ended.
func (s *Server) leaveREST(ctx context.Context, ended *rest.Client) {
	if s.restSession.turn.Acquire(ctx, 1) != nil {
		return
	}
	defer s.restSession.turn.Release(1)
	if s.restSession.client == ended {
		s.restSession.client = nil
	}
}

// closeREST logs out.
func (s *Server) closeREST(ctx context.Context) {
	if s.restSession.turn.Acquire(ctx, 1) != nil {
		return
	}
	defer s.restSession.turn.Release(1)
	if client := s.restSession.client; client != nil {
		s.restSession.client = nil
		_ = client.Logout(ctx) // a session that cannot be ended ends by itself when it has been idle
	}
}
