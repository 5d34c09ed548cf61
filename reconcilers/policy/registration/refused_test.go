package registration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Whatever the API server, or its store, has against one entry concerns that entry: others are written.
func TestAnyErrorIsOfOneEntry(t *testing.T) {
	resource := admissionregistrationv1.Resource("validatingwebhookconfigurations")
	for name, tc := range map[string]struct {
		err   error
		again bool // it is tried again
	}{
		"the store says without a reason that it is too large": {&apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 500, Message: "etcdserver: request is too large",
		}}, true},
		"the request is too large": {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), false},
		"an internal error":        {apierrors.NewInternalError(errors.New("rpc error: code = ResourceExhausted")), true},
		"a forbidden field":        {apierrors.NewForbidden(resource, "x", errors.New("no")), true},
		"an invalid one":           {apierrors.NewInvalid(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration").GroupKind(), "x", nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Client = interceptor.NewClient(f.api, interceptor.Funcs{Patch: func(
				ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption,
			) error {
				for _, w := range webhooksOf(o) {
					if e, ours := entryOf(&w); ours && e.policy == "bad" && len(e.Rules) > 1 {
						return tc.err
					}
				}
				return c.Patch(ctx, o, p, options...)
			}})
			f.decide("1", policy("bad", on("C", "pods")), policy("gone", on("C", "pods")))
			f.reconcile()
			f.decide("2", policy("bad", on("C", "pods", "services")), policy("good", on("C", "pods")), policy("another", on("C", "pods")))
			f.Must(f.api.Delete(t.Context(), object("gone")))
			_, err := f.Reconcile(t.Context(), reconcile.Request{})
			if (err != nil) != tc.again {
				t.Errorf("it gives %v", err)
			}
			f.has("another Fail: CREATE of pods", "bad Fail: CREATE of pods", "good Fail: CREATE of pods")
			f.finds("bad", v1alpha1.ReasonRegistrationFailed, brief(tc.err))
			f.finds("good", v1alpha1.ReasonRegistered)
		})
	}
}

// 32 groups, resources and entries, each refused for its own reason, have taken 7 seconds: what is told once is looked up, not searched.
func TestReasonsAreToldOnceInLinearTime(t *testing.T) {
	lines := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("spec.match.resources[%d]: a status reports what has happened", i)
		}
		return all
	}
	took := func(texts []string) time.Duration {
		begin := time.Now()
		unique(texts)
		return time.Since(begin)
	}
	few, many := lines(1000), lines(32_000)
	var ratio float64
	for range 100 { // until no other process disturbs a measurement; a search always takes a thousand times as long
		if ratio = float64(took(many)) / float64(took(few)); ratio <= 200 {
			break
		}
	}
	if ratio > 200 {
		t.Errorf("32,000 lines take %.0f times as long as 1,000", ratio)
	}
	if got := unique([]string{"b", "a", "b"}); strings.Join(got, " ") != "b a" {
		t.Errorf("got %q", got)
	}
}
