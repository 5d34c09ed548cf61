package registration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	install.Main(m)
}

// home is where Sallyport is installed, as far as these tests go.
const home = "sallyport-system"

// chartRules are those of the chart's webhooks.
var chartRules = []rule{
	ruleOn(v1alpha1.GroupName, []string{"virtualmachines", "virtualmachineoperations"}, "CREATE", "UPDATE"),
	ruleOn(v1alpha1.GroupName, []string{"regopolicies"}, "CREATE", "UPDATE", "DELETE"),
}

func ruleOn(group string, resources []string, operations ...operation) rule {
	return rule{Operations: operations, Rule: admissionregistrationv1.Rule{
		APIGroups: []string{group}, APIVersions: []string{"v1alpha1"}, Resources: resources, Scope: ptr.To(admissionregistrationv1.AllScopes),
	}}
}

// on is a match of resources, each as kubectl names it, with the operations of which these are the first letters; X is CONNECT.
func on(operations string, resources ...string) v1alpha1.PolicyMatch {
	m := v1alpha1.PolicyMatch{}
	for _, r := range resources {
		m.Resources = append(m.Resources, someOf(operations, r))
	}
	return m
}

func someOf(operations, called string) v1alpha1.PolicyResources {
	resource, sub, is := strings.Cut(called, "/")
	name, group, _ := strings.Cut(resource, ".")
	if is {
		name += "/" + sub
	}
	r := v1alpha1.PolicyResources{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{name}}
	for _, o := range []v1alpha1.MatchOperation{v1alpha1.MatchCreate, v1alpha1.MatchUpdate, v1alpha1.MatchDelete, v1alpha1.MatchConnect} {
		letter := string(o)[:1]
		if o == v1alpha1.MatchConnect {
			letter = "X"
		}
		if strings.Contains(operations, letter) {
			r.Operations = append(r.Operations, o)
		}
	}
	return r
}

// policy is one that validates and refuses.
func policy(name string, match v1alpha1.PolicyMatch, change ...func(*Policy)) Policy {
	p := Policy{
		Name: name, Generation: 1, Match: match, Validates: true, DeniesUnasked: true, Timeout: 500 * time.Millisecond,
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func broken(p *Policy)  { p.Broken = true }
func mutates(p *Policy) { p.Mutates = true }
func lenient(p *Policy) { p.DeniesUnasked = false }

// fixture is an API server with configurations of its own, and a leader that is driven by hand.
type fixture struct {
	step.T
	*Reconciler
	api      client.WithWatch
	name     string
	replicas map[string]string
	unasked  error // why replicas cannot be asked
	decides  []Policy
	hash     string
	found    []string
	now      time.Time

	mu     sync.Mutex
	writes int
	// crash is asked before and after each write, by its number from 1; an error is as if the process had died.
	crash func(n int, after bool) error
}

var fixtures int

func newFixture(t *testing.T) *fixture {
	t.Helper()
	api, err := install.Client(env.Shared(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	fixtures++
	f := &fixture{T: step.T{T: t}, api: api, name: fmt.Sprintf("chart-%d", fixtures), replicas: map[string]string{}, now: time.Now()}
	f.configure()
	f.lead()
	f.Cleanup(func() { f.Must(api.DeleteAllOf(context.Background(), &v1alpha1.RegoPolicy{})) })
	return f
}

// configure makes what the chart makes.
func (f *fixture) configure() {
	f.Helper()
	endpoint := admissionregistrationv1.WebhookClientConfig{CABundle: []byte("authority"), Service: &admissionregistrationv1.ServiceReference{
		Namespace: home, Name: "sallyport-webhook", Port: ptr.To(int32(8443)), Path: ptr.To("/validate"),
	}}
	none := ptr.To(admissionregistrationv1.SideEffectClassNone)
	for _, c := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: f.named(""), Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate.registration.test", ClientConfig: endpoint, Rules: chartRules[:1], SideEffects: none, AdmissionReviewVersions: []string{"v1"},
			// Nothing is asked about: nobody answers here.
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}},
		}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: f.named(""), Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "validate.registration.test", ClientConfig: endpoint, Rules: chartRules, SideEffects: none, AdmissionReviewVersions: []string{"v1"},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}},
		}}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: f.named("-policies")},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: f.named("-policies")},
	} {
		f.Must(f.api.Create(f.Context(), c))
		f.Cleanup(func() { f.Must(client.IgnoreNotFound(f.api.Delete(context.Background(), c))) })
	}
}

func (f *fixture) named(suffix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: f.name + suffix}
}

// lead has a new process lead.
func (f *fixture) lead() { f.Reconciler = f.leader() }

func (f *fixture) leader() *Reconciler {
	return &Reconciler{
		Client: interceptor.NewClient(f.api, interceptor.Funcs{Patch: f.patch}), Live: f.api, Namespace: home,
		Configuration: f.name + "-policies", Chart: f.name, ValidatePath: "/validate/policies/", MutatePath: "/mutate/policies/",
		NeedsBundle: true, Catalog: f, Replicas: f, Now: func() time.Time { return f.now },
		Notify: func(name string) { f.found = append(f.found, name) },
	}
}

func (f *fixture) Active() (string, []Policy) { return f.hash, f.decides }

func (f *fixture) Policies(context.Context) (map[string]string, error) { return f.replicas, f.unasked }

func (f *fixture) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
	if f.crash == nil {
		return c.Patch(ctx, o, p, options...)
	}
	f.mu.Lock()
	f.writes++
	n := f.writes
	f.mu.Unlock()
	crash := f.crash
	if err := crash(n, false); err != nil {
		return err
	}
	if err := c.Patch(ctx, o, p, options...); err != nil {
		return err
	}
	return crash(n, true)
}

// decide has policies decide in the leader, and makes their RegoPolicies.
func (f *fixture) decide(hash string, policies ...Policy) {
	f.Helper()
	f.hash, f.decides = hash, policies
	f.replicas["leader_1"] = hash
	for i := range policies {
		f.Must(client.IgnoreAlreadyExists(f.api.Create(f.Context(), object(policies[i].Name))))
	}
}

func object(name string) *v1alpha1.RegoPolicy {
	return &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RegoPolicySpec{
		Package: "x", Match: ptr.To(on("C", "pods")), Modules: []v1alpha1.PolicyModule{{Name: "x.rego", Source: "package x"}},
	}}
}

// reconcile is a look that goes well, and gives when the next is to be.
func (f *fixture) reconcile() time.Duration {
	f.Helper()
	result, err := f.Reconcile(f.Context(), reconcile.Request{})
	f.Must(err)
	return result.RequeueAfter
}

// settles looks until nothing is waited for any more.
func (f *fixture) settles() {
	f.Helper()
	for range 5 {
		if f.reconcile() == 0 {
			return
		}
		f.now = f.now.Add(maxPeriod)
	}
	f.Error("it does not settle")
}

// has tells the entries of the validating and the mutating configuration, each as "policy Fail: CREATE of pods; ...".
func (f *fixture) has(want ...string) {
	f.Helper()
	var got []string
	for _, s := range f.newSides() {
		own, err := f.get(f.Context(), s.object(f.Configuration))
		f.Must(err)
		for _, w := range webhooksOf(own) {
			e, ours := entryOf(&w)
			if !ours {
				got = append(got, "stranger "+w.Name)
				continue
			}
			var asks []string
			for _, r := range e.Rules {
				t := target{r.APIGroups, r.APIVersions, r.Resources, r.Operations}
				asks = append(asks, t.String())
			}
			kind := ""
			if s.mutating {
				kind = "mutating "
			}
			name := e.policy
			switch e.Name {
			case e.policy + suffixOnNamespaces:
				name += " on namespaces"
			case e.policy + suffixOnOwn:
				name += " on own"
			}
			got = append(got, fmt.Sprintf("%s%s %s: %s", kind, name, *e.FailurePolicy, strings.Join(asks, "; ")))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		f.Errorf("the entries are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// finds checks the finding about a policy.
func (f *fixture) finds(name string, reason v1alpha1.ConditionReason, texts ...string) {
	f.Helper()
	is, known := f.Finding(name)
	if !known || is.Reason != reason {
		f.Errorf("of %s is found %+v (%t), want %s", name, is, known, reason)
	}
	for _, text := range texts {
		if !strings.Contains(is.Message, text) {
			f.Errorf("of %s is said %q, without %q", name, is.Message, text)
		}
	}
}

// validating gives the validating configuration with that suffix.
func (f *fixture) validating(suffix string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	f.Helper()
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: f.named(suffix)}
	f.Must(f.api.Get(f.Context(), client.ObjectKeyFromObject(c), c))
	return c
}

var errCrash = errors.New("the process died")

// versions are the resourceVersions of the configurations with entries.
func (f *fixture) versions() string {
	f.Helper()
	all := map[string]string{}
	for _, s := range f.newSides() {
		own, err := f.get(f.Context(), s.object(f.Configuration))
		f.Must(err)
		all[s.kind()] = own.GetResourceVersion()
	}
	var texts []string
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, kind+all[kind])
	}
	return strings.Join(texts, " ")
}
