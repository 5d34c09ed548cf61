package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
)

// burns is a policy whose evaluation ends at the deadline only if a list is long.
const burns = `warn contains "w" if {
	every a in input.request.object.spec.list {
		every b in input.request.object.spec.list {
			every c in input.request.object.spec.list {
				every d in input.request.object.spec.list { lower(concat("", [a, b, c, d])) != "X" }
			}
		}
	}
}
`

func requestedBy(user, namespace string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) {
		r.Namespace, r.UserInfo = namespace, authenticationv1.UserInfo{Username: user}
	}
}

// One user whose inputs have a policy run until its deadline, many at once, delays nobody else: not another user of the same policy in the
// same namespace, nor the same user elsewhere, nor users of another policy.
func TestInputsThatBurnCostTheirUserOnly(t *testing.T) {
	if testing.Short() { // it burns
		t.Skip("left to make test-all")
	}
	for _, atOnce := range []int{20, 120, 400} {
		t.Run(fmt.Sprint(atOnce, " at once"), func(t *testing.T) {
			burning := policyOf("burning", burns, func(s *v1alpha1.RegoPolicySpec) { s.TimeoutMilliseconds = 2000 })
			f := newFixture(t, world{}, burning, policyOf("size", denies("big", "TooBig", 403)))
			list, err := json.Marshal(strings.Split(strings.Repeat("a ", 400), " "))
			if err != nil {
				t.Fatal(err)
			}
			hostile := fmt.Sprintf(`{"name": "x", "list": %s}`, list)
			verdictOf := func(only, spec, user, namespace string) *decision.Verdict {
				d, err := f.Decide(context.Background(), &decision.Question{Endpoint: decision.Validating, Review: reviewOf(t, admissionv1.Update, spec, requestedBy(user, namespace)), Only: only})
				if err != nil {
					t.Error(err)
					return &decision.Verdict{}
				}
				return &d.Verdicts()[0]
			}
			var all sync.WaitGroup
			causes := make(chan engine.Cause, atOnce)
			for range atOnce {
				all.Go(func() {
					if v := verdictOf("burning", hostile, "mallory", "ns"); v.Err != nil {
						causes <- v.Err.Cause
					}
				})
			}
			for began := time.Now(); time.Since(began) < 3*time.Second; { // the first ones are over by then
				for _, who := range [][2]string{{"alice", "ns"}, {"mallory", "elsewhere"}, {"system:serviceaccount:ns:default", "ns"}} {
					for _, policy := range []string{"burning", "size"} {
						if v := verdictOf(policy, `{"name": "x", "list": ["a"]}`, who[0], who[1]); v.Err != nil {
							t.Errorf("%s in %s, by policy %s: %s: %v", who[0], who[1], policy, v.Err.Cause, v.Err)
						}
					}
				}
			}
			all.Wait()
			close(causes)
			waited := 0
			for cause := range causes {
				if cause == engine.StillRunning {
					waited++
				}
			}
			// How many is a matter of the machine's speed: one that waits gets a place when another ends, perhaps shortly before its own deadline.
			if waited == 0 {
				t.Errorf("none of %d evaluations of one user waited for another", atOnce)
			}
		})
	}
}

// A user who makes service accounts gets no more places by them.
func TestServiceAccountsOfANamespaceAreOneUser(t *testing.T) {
	share := func(user, namespace string) string {
		r := &admissionv1.AdmissionRequest{}
		requestedBy(user, namespace)(r)
		return (&decision.Review{Request: r}).User()
	}
	if a, b := share("system:serviceaccount:ns:a", "ns"), share("system:serviceaccount:ns:b", "ns"); a != b {
		t.Errorf("%s and %s", a, b)
	}
	if a, b := share("system:serviceaccount:ns:a", "ns"), share("system:serviceaccount:kube-system:a", "ns"); a == b {
		t.Errorf("both are %s", a)
	}
}
