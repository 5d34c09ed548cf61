package registration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// users has a policy exclude users whose names take that many bytes in a webhook configuration, if they are emoji.
func users(bytes int) func(*Policy) {
	return func(p *Policy) {
		const each = 640 // of 64 emoji, which CEL's quoting expands to ten bytes, and JSON's to eleven
		for i := range bytes / each {
			p.Match.ExcludeUsers = append(p.Match.ExcludeUsers, fmt.Sprintf("%04d", i)+strings.Repeat("\U0001F600", 58))
		}
	}
}

// share is what a policy may need, and of which 17 fit.
const share = 61_600

// There is room for the oldest policies first, and for what is there already, whatever others grow to.
func TestRoomInAConfiguration(t *testing.T) {
	r := &Reconciler{Namespace: home, Configuration: "sallyport-policies"}
	since := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		have, next map[string]int // bytes by the policy's name, which begins with the hour of its creation
		want       map[string]int // those that are written
		left       map[string]string
	}{
		"all fit": {next: map[string]int{"1": 1000, "2": 2000}, want: map[string]int{"1": 1000, "2": 2000}},
		"one is too large for any": {
			next: map[string]int{"1": 2 * mostBytes, "2": 1000}, want: map[string]int{"2": 1000},
			left: map[string]string{"1": "spec.match: its webhook in the ValidatingWebhookConfiguration needs"},
		},
		"one becomes too large": {
			have: map[string]int{"1": 1000}, next: map[string]int{"1": 2 * mostBytes, "2": 1000}, want: map[string]int{"1": 1000, "2": 1000},
			left: map[string]string{"1": "but the limit for one policy is 64 KiB"},
		},
		"one was too large before there was a limit": {
			have: map[string]int{"1": 2 * mostBytes}, next: map[string]int{"1": 2 * mostBytes, "2": 1000}, want: map[string]int{"2": 1000},
			left: map[string]string{"1": "spec.match: "},
		},
		"the newest are too many": {
			next: many(0, 20), want: many(0, 17), left: map[string]string{"17": "the others need", "18": "1024 KiB", "19": "make their spec.match smaller"},
		},
		"a small one after those finds room": {
			next: join(many(0, 18), map[string]int{"19": 1000}), want: join(many(0, 17), map[string]int{"19": 1000}),
			left: map[string]string{"17": "the policy needs"},
		},
		"an old one that grows takes no room from others": {
			have: many(0, 17), next: join(many(1, 17), map[string]int{"0": mostBytes - 500}), want: many(0, 17),
			left: map[string]string{"0": "the limit for all policies"},
		},
		"those that are there come before an older one": {
			have: many(1, 18), next: many(0, 18), want: many(1, 18), left: map[string]string{"0": "the limit for all policies"},
		},
		"one that shrinks makes room at once": {
			have: many(1, 18), next: join(many(1, 17), map[string]int{"17": 1000, "18": share / 2}),
			want: join(many(1, 17), map[string]int{"17": 1000, "18": share / 2}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &pass{Reconciler: r, there: map[string]time.Time{}}
			s := r.newSides()[0]
			made := func(sizes map[string]int) map[string]*entry {
				all := map[string]*entry{}
				for policy, size := range sizes {
					age, err := strconv.Atoi(policy)
					if err != nil {
						t.Fatal(err)
					}
					l.there[policy] = since.Add(time.Duration(age) * time.Hour)
					e := &entry{policy: policy, ValidatingWebhook: admissionregistrationv1.ValidatingWebhook{Name: policy + suffix}}
					e.Rules = []rule{ruleOn("", []string{strings.Repeat("x", size-s.bytes([]*entry{e})-100)}, "CREATE")}
					e.ClientConfig.CABundle = []byte(strings.Repeat("authority", 10_000)) // which is not the policy's
					all[e.Name] = e
				}
				return all
			}
			s.have = made(tc.have)
			next, want := made(tc.next), made(tc.want)
			left := l.fit(s, next)
			for name := range join(next, want) {
				if is, wanted := next[name], want[name]; (is == nil) != (wanted == nil) || is != nil && !is.same(wanted) {
					t.Errorf("%s is there: %t, want %t", name, is != nil, wanted != nil)
				}
			}
			if len(left) != len(tc.left) {
				t.Errorf("left out are %v", left)
			}
			for policy, why := range tc.left {
				if !strings.Contains(left[policy], why) {
					t.Errorf("of %s is said %q, without %q", policy, left[policy], why)
				}
			}
		})
	}
}

// many are policies that need a share each.
func many(from, to int) map[string]int {
	all := map[string]int{}
	for i := from; i < to; i++ {
		all[fmt.Sprint(i)] = share
	}
	return all
}

func join[T any](maps ...map[string]T) map[string]T {
	all := map[string]T{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// A spec.match that fills the whole webhook configuration costs its own policy the registration, and no other. It is refused when it is
// written, and quickly.
func TestOnePolicyThatIsTooLarge(t *testing.T) {
	f := newFixture(t)
	greedy := policy("a-greedy", on("C", "pods"), users(600<<10), mutates)
	f.decide("1", greedy, policy("good", on("C", "pods"), mutates))
	f.settles()
	f.has("good Fail: CREATE of pods", "mutating good Fail: CREATE of pods")
	f.finds("a-greedy", v1alpha1.ReasonRegistrationFailed, "spec.match: its webhook in the MutatingWebhookConfiguration needs", "but the limit for one policy is 64 KiB")
	f.finds("good", v1alpha1.ReasonRegistered)

	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: f.named("")}
	f.Must(f.api.Get(t.Context(), client.ObjectKeyFromObject(mutating), mutating))
	lines := f.Check(mutating, f.validating(""), &greedy)
	if len(lines) != 2 || !strings.Contains(lines[0], "needs") || !strings.HasPrefix(lines[1], "spec.match: its webhook in the MutatingWebhookConfiguration needs") {
		t.Errorf("Check says %q", lines)
	}
}

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
