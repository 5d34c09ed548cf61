package explain

import (
	"context"
	"encoding/json"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// cachingSource answers a repeated query with its first answer, so that the explanation has the facts of the decision.
type cachingSource struct {
	source  decision.FactSource
	mu      sync.Mutex
	answers map[string]func() (engine.Answer, error)
}

func newCachingSource(source decision.FactSource) *cachingSource {
	return &cachingSource{source: source, answers: map[string]func() (engine.Answer, error){}}
}

// For returns the reader of a request. All readers share their answers.
func (r *cachingSource) For(request *admissionv1.AdmissionRequest, subject facts.Subject) engine.Reader {
	return &reader{cachingSource: r, Reader: r.source.For(request, subject)}
}

type reader struct {
	*cachingSource
	engine.Reader
}

// Read implements engine.Reader.
func (r *reader) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return engine.Answer{}, err
	}
	r.mu.Lock()
	answer := r.answers[string(text)]
	if answer == nil {
		answer = sync.OnceValues(func() (engine.Answer, error) { return r.Reader.Read(ctx, q) })
		r.answers[string(text)] = answer
	}
	r.mu.Unlock()
	return answer()
}
