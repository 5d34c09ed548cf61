package facts

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/webhooks/engine"
)

// paced is an API server that answers each request in 10 ms, once the client's rate limit lets it through.
type paced struct {
	client.Client
	pace *rate.Limiter
}

func (p *paced) answer(ctx context.Context) error {
	if err := p.pace.Wait(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(10 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *paced) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return p.answer(ctx)
}

func (p *paced) Create(ctx context.Context, _ client.Object, _ ...client.CreateOption) error {
	return p.answer(ctx)
}

// 250 requests of one namespace at a time slowed the live facts of others from 36 ms to 1.9 s, and had some denied, because all waited
// in one line for the slots and for the rate limit of the client.
func TestNamespacesTakeTurnsAtLiveReads(t *testing.T) {
	access := engine.Query{Access: &engine.Access{Verb: "get", Resource: "pods"}}
	for name, ask := range map[string]engine.Query{"a read": question("same"), "a question about rights": access} {
		for whose, request := range map[string]*admissionv1.AdmissionRequest{
			"another namespace":          {Namespace: "honest"},
			"a user without a namespace": {UserInfo: authenticationv1.UserInfo{Username: "ann"}},
		} {
			t.Run(name+" of "+whose, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := NewStore(nil, &paced{pace: rate.NewLimiter(100, 200)})
					ctx, leave := context.WithCancel(t.Context())
					for i := range 250 {
						go func() {
							hostile := s.For(&admissionv1.AdmissionRequest{Namespace: "hostile"}, Subject{})
							for ctx.Err() == nil {
								_, _ = hostile.Read(ctx, question(fmt.Sprint("own-", i)))
								_, _ = hostile.Read(ctx, ask) // which waits in the line of the namespace that has many
							}
						}()
					}
					time.Sleep(10 * time.Second)
					began := time.Now()
					if _, err := s.For(request, Subject{}).Read(t.Context(), ask); err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took > 300*time.Millisecond {
						t.Errorf("it took %v beside 250 requests of one namespace", took)
					}
					leave()
				})
			})
		}
	}
}
