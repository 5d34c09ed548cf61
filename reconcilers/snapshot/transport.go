package snapshot

import "net/http"

// maxAnswer is how many bytes an answer may have: what registries take as a manifest.
const maxAnswer = 4 << 20

// bounded sends nothing without TLS, follows no registry elsewhere, and reads no more than maxAnswer.
type bounded struct{ inner http.RoundTripper }

// RoundTrip makes the request.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, wrong("can only be used with TLS")
	}
	answer, err := b.inner.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		_ = answer.Body.Close() // nothing of it is read
		return nil, wrong("redirects to another host, which is not followed")
	}
	answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	return answer, nil
}
