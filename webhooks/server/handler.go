package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/webhooks/decision"
)

// Paths in the webhook configurations. A path that ends in a slash is followed by the name of the only policy to evaluate.
const (
	ValidatePath       = "/validate"
	MutatePath         = "/mutate"
	ValidatePolicyPath = "/validate/policies/"
	MutatePolicyPath   = "/mutate/policies/"
)

// Register adds the endpoints of the gate to a server's mux, and their metric to the registry.
func Register(gate *decision.Decider, registry prometheus.Registerer, handle func(path string, handler http.Handler), log logr.Logger) {
	in, rejected, logged := newIntake(), newRejected(registry), newLogged()
	for path, endpoint := range map[string]string{
		ValidatePath: decision.Validating, MutatePath: decision.Mutating,
		ValidatePolicyPath: decision.Validating, MutatePolicyPath: decision.Mutating,
	} {
		handle(path, &handler{path: path, endpoint: endpoint, answer: gate.Answer, intake: in, rejected: rejected, logged: logged, log: log})
	}
}

// Causes for which requests are rejected, as labels.
const (
	notAReview = "not_a_review"
	tooLarge   = "too_large"
	slow       = "slow"
	unreadable = "unreadable"
	busy       = "busy"
	noPolicies = "no_policies"
	panicked   = "panic"
)

var causes = []string{notAReview, tooLarge, slow, unreadable, busy, noPolicies, panicked}

// logged limits the log to a line of each cause in a second, because any client can send what is rejected. The metric counts all.
type logged map[string]*rate.Sometimes

func newLogged() logged {
	l := logged{oversizedObject: {Interval: time.Second}}
	for _, cause := range causes {
		l[cause] = &rate.Sometimes{Interval: time.Second}
	}
	return l
}

// oversizedObject is the cause of a denial.
const oversizedObject = "oversized_object"

func newRejected(registry prometheus.Registerer) *prometheus.CounterVec {
	rejected := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sallyport_rejected_reviews_total",
		Help: "HTTP requests answered with an HTTP error instead of a decision, by cause.",
	}, []string{"webhook", "cause"})
	for _, cause := range causes {
		for _, webhook := range []string{decision.Validating, decision.Mutating} { // a counter that appears with 1 has not increased for Prometheus
			rejected.WithLabelValues(webhook, cause)
		}
	}
	registry.MustRegister(rejected)
	return rejected
}

// handler serves one endpoint. It answers HTTP 400 to a body that is no review, HTTP 408 to a slow one, and HTTP 503 if no policies
// are loaded or too many requests are waiting, but never a decision in these cases: the API server then applies the webhook's
// failurePolicy.
type handler struct {
	path     string
	endpoint string
	answer   func(context.Context, *decision.Question) *admissionv1.AdmissionResponse
	intake   *intake
	rejected *prometheus.CounterVec
	logged   logged
	log      logr.Logger
}

// ServeHTTP answers one review.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.recoverPanic(w)
	waiting, cancel := context.WithTimeout(r.Context(), patienceFor(r))
	defer cancel()
	text, release, err := h.intake.read(waiting, w, r)
	if err != nil {
		h.rejectUnread(w, err)
		return
	}
	defer release()
	review, leave, err := h.intake.decode(waiting, text)
	if err != nil {
		h.rejectUnread(w, err)
		return
	}
	defer leave()
	review.Verified = r.TLS != nil && len(r.TLS.VerifiedChains) > 0
	answer := admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}}
	if h.endpoint == decision.Validating {
		answer.Response = oversized(review)
	}
	if answer.Response != nil {
		h.logged[oversizedObject].Do(func() {
			h.log.Info("denied an object that is too large", "endpoint", h.endpoint, "error", answer.Response.Result.Message)
		})
	} else {
		answer.Response = h.answer(r.Context(), &decision.Question{Endpoint: h.endpoint, Only: h.only(r), Review: review})
	}
	if answer.Response == nil {
		h.reject(w, http.StatusServiceUnavailable, noPolicies, decision.ErrNoPolicies)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		h.log.V(1).Info("the API server did not wait for the answer", "endpoint", h.endpoint, "error", err.Error())
	}
}

// only returns the name of the only policy to evaluate if the handler's path ends in a slash, and "" (all policies) otherwise.
func (h *handler) only(r *http.Request) string {
	if !strings.HasSuffix(h.path, "/") {
		return ""
	}
	return cmp.Or(strings.TrimPrefix(r.URL.Path, h.path), "/") // "/" is not a policy's name; "" would select all
}

// rejectUnread maps an error of reading or decoding to its status code and cause.
func (h *handler) rejectUnread(w http.ResponseWriter, err error) {
	code, cause := http.StatusBadRequest, notAReview
	var exceeded *http.MaxBytesError
	switch {
	case errors.Is(err, errBusy):
		code, cause = http.StatusServiceUnavailable, busy
	case errors.As(err, &exceeded):
		cause = tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		code, cause = http.StatusRequestTimeout, slow
	case errors.Is(err, errUnread):
		cause = unreadable
	}
	h.reject(w, code, cause, err)
}

func (h *handler) reject(w http.ResponseWriter, code int, cause string, err error) {
	h.rejected.WithLabelValues(h.endpoint, cause).Inc()
	h.logged[cause].Do(func() {
		h.log.Info("rejected a request without evaluating it", "endpoint", h.endpoint, "cause", cause, "error", err.Error())
	})
	http.Error(w, err.Error(), code)
}

// recoverPanic answers HTTP 500 after a panic outside any policy, instead of closing the connection.
func (h *handler) recoverPanic(w http.ResponseWriter) {
	if p := recover(); p != nil {
		h.rejected.WithLabelValues(h.endpoint, panicked).Inc()
		h.logged[panicked].Do(func() {
			h.log.Error(fmt.Errorf("panic: %v", p), "answering a review", "endpoint", h.endpoint, "stack", string(debug.Stack()))
		})
		http.Error(w, "internal error; the log has the stack", http.StatusInternalServerError)
	}
}
