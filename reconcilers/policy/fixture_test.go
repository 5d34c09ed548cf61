package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

func TestMain(m *testing.M) { install.Main(m) }

// told keeps what people are told, as "type reason kind/name: note".
type told struct {
	mu  sync.Mutex
	all []string
}

func (e *told) Eventf(about, _ runtime.Object, kind, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	what := "RegoPolicy"
	switch about.(type) {
	case *corev1.ConfigMap:
		what = "ConfigMap"
	case *corev1.Pod:
		what = "Pod"
	}
	e.all = append(e.all, fmt.Sprintf("%s %s %s/%s: %s", kind, reason, what, about.(client.Object).GetName(), fmt.Sprintf(note, args...)))
}

// take gives what was told since the last time.
func (e *told) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

// compiler is a catalog and checker for modules of words: one with the word BROKEN does not compile, "has:x" in a library is
// what "needs:x" in a policy needs.
type compiler struct {
	api client.Client

	mu   sync.Mutex
	good map[string]string // the revision that last compiled, by the policy's name
	data map[string]json.RawMessage
}

var needs, has = regexp.MustCompile(`needs:\S+`), regexp.MustCompile(`has:\S+`)

func words(p *v1alpha1.RegoPolicy) string {
	var all []string
	for _, m := range p.Spec.Modules {
		all = append(all, m.Source)
	}
	return strings.Join(all, "\n")
}

func compile(p *v1alpha1.RegoPolicy, world []v1alpha1.RegoPolicy) error {
	if strings.Contains(words(p), "BROKEN") {
		return fmt.Errorf("%s/%s:1:1: BROKEN", p.Name, p.Spec.Modules[0].Name)
	}
	var there []string
	for i := range world {
		if world[i].Spec.Library {
			there = append(there, has.FindAllString(words(&world[i]), -1)...)
		}
	}
	for _, need := range needs.FindAllString(words(p), -1) {
		if !slices.Contains(there, "has:"+strings.TrimPrefix(need, "needs:")) {
			return fmt.Errorf("%s/%s:1:1: %s is not there", p.Name, p.Spec.Modules[0].Name, need)
		}
	}
	return nil
}

func (c *compiler) Check(_ context.Context, world []v1alpha1.RegoPolicy) map[string]error {
	errs := map[string]error{}
	for i := range world {
		if err := compile(&world[i], world); err != nil {
			errs[world[i].Name] = err
		}
	}
	return errs
}

func (c *compiler) State(name string) (State, bool) {
	p := &v1alpha1.RegoPolicy{}
	if err := c.api.Get(context.Background(), types.NamespacedName{Name: name}, p); err != nil {
		return State{}, false
	}
	world := &v1alpha1.RegoPolicyList{}
	if err := c.api.List(context.Background(), world); err != nil {
		return State{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := State{
		UID: p.UID, Generation: p.Generation, Library: p.Spec.Library, Compiled: Finding{Reason: v1alpha1.ReasonCompiled},
		Text: fmt.Sprintf("%x", words(p)), Registered: &Finding{},
	}
	err := compile(p, world.Items)
	if err != nil {
		s.Compiled = Finding{v1alpha1.ReasonCompileFailed, err.Error()}
	}
	if p.Spec.Library {
		return s, true
	}
	s.Reads = Finding{Reason: v1alpha1.ReasonReadsGranted}
	if err != nil {
		s.Active, s.Data = c.good[name], c.data[name]
		s.LastGood = s.Active != ""
		return s, true
	}
	s.Active = fmt.Sprintf("%x", words(p))
	p.Spec.Tests = nil
	s.Data, err = json.Marshal(map[string]any{"policy": map[string]any{
		"metadata": map[string]any{"name": p.Name, "uid": p.UID, "generation": p.Generation}, "spec": p.Spec,
	}})
	if err != nil {
		panic(err)
	}
	if c.good == nil {
		c.good, c.data = map[string]string{}, map[string]json.RawMessage{}
	}
	c.good[name], c.data[name] = s.Active, s.Data
	return s, true
}

// fixture is an API server without policies, a namespace for the ConfigMap, and a reconciler that is driven by hand.
type fixture struct {
	step.T
	*Reconciler
	plane *env.ControlPlane
	api   client.WithWatch
	told  *told

	mu     sync.Mutex
	writes []string
	// crash is asked before a write and, if it says nothing then, after it.
	crash func(after bool) error
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	api, namespace := install.Shared(t, "release-")
	f := &fixture{T: step.T{T: t}, plane: env.Shared(t), api: api}
	t.Cleanup(func() { f.Must(f.api.DeleteAllOf(context.Background(), &v1alpha1.RegoPolicy{})) })
	f.lead(namespace)
	return f
}

// lead has a new process lead.
func (f *fixture) lead(namespace string) {
	f.told = &told{}
	f.Reconciler = f.leader(namespace)
}

func (f *fixture) leader(namespace string) *Reconciler {
	return &Reconciler{
		Client: f.watched(), Live: f.api, Namespace: namespace, ConfigMap: "sallyport-policies", Release: "1.0.0",
		Catalog: &compiler{api: f.api}, Checker: &compiler{}, Events: f.told, Now: time.Now,
	}
}

// watched is a client of which every write is taken down.
func (f *fixture) watched() client.Client {
	write := func(what string, dry bool, do func() error) error {
		if dry {
			return do()
		}
		f.mu.Lock()
		f.writes = append(f.writes, what)
		crash := f.crash
		f.mu.Unlock()
		if crash == nil {
			return do()
		}
		if err := crash(false); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		return crash(true)
	}
	return interceptor.NewClient(f.api, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			options := (&client.ApplyOptions{}).ApplyOptions(opts)
			return write("apply", len(options.DryRun) > 0, func() error { return c.Apply(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write("patch "+o.GetName(), false, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write("create "+o.GetName(), false, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write("update "+o.GetName(), false, func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write("delete "+o.GetName(), false, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write("update "+o.GetName()+"/"+sub, false, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
}

// toy is a policy of words.
func toy(name, source string, changes ...func(*v1alpha1.RegoPolicy)) v1alpha1.RegoPolicy {
	p := v1alpha1.RegoPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RegoPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.RegoPolicySpec{
			Package: "toy." + strings.ReplaceAll(name, "-", "_"),
			Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
				APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"pods"}, Operations: []v1alpha1.MatchOperation{"CREATE"},
			}}},
			Modules: []v1alpha1.PolicyModule{{Name: "main.rego", Source: source}},
		},
	}
	for _, c := range changes {
		c(&p)
	}
	return p
}

func library(p *v1alpha1.RegoPolicy) {
	p.Spec.Library, p.Spec.Match, p.Spec.Package = true, nil, "sallyport.lib."+strings.ReplaceAll(p.Name, "-", "_")
}

// ships makes the ConfigMap what a release ships.
func (f *fixture) ships(release string, policies ...v1alpha1.RegoPolicy) {
	f.Helper()
	data := map[string]string{}
	for i := range policies {
		text, err := yaml.Marshal(policies[i])
		f.Must(err)
		data[policies[i].Name+".yaml"] = string(text)
	}
	f.shipsTexts(release, data)
}

func (f *fixture) shipsTexts(release string, data map[string]string) {
	f.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: f.ConfigMap, Annotations: map[string]string{shipping.ReleaseAnnotation: release},
		},
		Data: data,
	}
	err := f.api.Create(f.Context(), cm)
	if apierrors.IsAlreadyExists(err) {
		err = f.api.Update(f.Context(), cm)
	}
	f.Must(err)
}

// pass looks at everything once, and gives what went wrong.
func (f *fixture) pass() error {
	f.Helper()
	return passOf(f.Context(), f.api, f.Reconciler)
}

func passOf(ctx context.Context, api client.Client, r *Reconciler) error {
	_, err := r.ship(ctx)
	all := &v1alpha1.RegoPolicyList{}
	if lerr := api.List(ctx, all); lerr != nil {
		return errors.Join(err, lerr)
	}
	for _, p := range all.Items {
		_, rerr := r.Reconcile(ctx, request(p.Name))
		err = errors.Join(err, rerr)
	}
	return err
}

// settles looks until there is nothing more to do.
func (f *fixture) settles() {
	f.Helper()
	for range 20 {
		f.mu.Lock()
		f.writes = nil
		f.mu.Unlock()
		f.Must(f.pass())
		if len(f.writes) == 0 {
			return
		}
	}
	f.Fatalf("there is always something more to do: %v", f.writes)
}

func (f *fixture) policy(name string) *v1alpha1.RegoPolicy {
	f.Helper()
	p := &v1alpha1.RegoPolicy{}
	err := f.api.Get(f.Context(), types.NamespacedName{Name: name}, p)
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.Must(err)
	return p
}

// patched has somebody patch a policy. What kubectl does is tested in package shipping.
func (f *fixture) patched(name, text string) {
	f.Helper()
	f.Must(f.api.Patch(f.Context(), f.policy(name), client.RawPatch(types.MergePatchType, []byte(text)), client.FieldOwner("ann")))
}

// word has somebody edit the module of a policy.
func (f *fixture) word(name, source string) {
	f.Helper()
	f.patched(name, fmt.Sprintf(`{"spec":{"modules":[{"name":"main.rego","source":%q}]}}`, source))
}

// shows holds a condition of a policy, as "status reason message".
func (f *fixture) shows(name string, t v1alpha1.ConditionType, want string) {
	f.Helper()
	p := f.policy(name)
	if p == nil {
		f.Errorf("RegoPolicy %s is not there", name)
		return
	}
	got := ""
	if c := t.In(p.Status.Conditions); c != nil {
		got = strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
	}
	if got = strings.ReplaceAll(got, f.Namespace, "NS"); got != want {
		f.Errorf("RegoPolicy %s: %s is\n%q and not\n%q", name, t, got, want)
	}
	fields := strings.Join(p.Status.EditedFields, ", ")
	if t == v1alpha1.ConditionEdited && (!strings.Contains(want, fields) || strings.HasPrefix(want, "True") != (fields != "")) {
		f.Errorf("RegoPolicy %s: the edited fields are %q, and the condition says %q", name, fields, want)
	}
}

// tells holds what people are told, each by its beginning.
func (f *fixture) tells(want ...string) {
	f.Helper()
	got := f.told.take()
	for i, g := range got {
		got[i] = strings.ReplaceAll(g, f.Namespace, "NS")
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		f.Errorf("people are told\n  %s\nand not\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// source gives the module of a policy, "" if there is no such policy.
func (f *fixture) source(name string) string {
	f.Helper()
	if p := f.policy(name); p != nil {
		return words(p)
	}
	return ""
}

func (f *fixture) is(name, source string) {
	f.Helper()
	if got := f.source(name); got != source {
		f.Errorf("RegoPolicy %s is %q and not %q", name, got, source)
	}
}

// stored gives the sources of the stored revisions of a policy, in the order of their numbers.
func (f *fixture) stored(name string) []string {
	f.Helper()
	all := &appsv1.ControllerRevisionList{}
	f.Must(f.api.List(f.Context(), all, client.InNamespace(f.Namespace), client.MatchingLabels{policyLabel: name}))
	slices.SortFunc(all.Items, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	var sources []string
	for _, s := range all.Items {
		var data struct{ Policy v1alpha1.RegoPolicy }
		f.Must(json.Unmarshal(s.Data.Raw, &data))
		sources = append(sources, words(&data.Policy))
	}
	return sources
}

func (f *fixture) stores(name string, want ...string) {
	f.Helper()
	if got := f.stored(name); !slices.Equal(got, want) {
		f.Errorf("stored of RegoPolicy %s is %q and not %q", name, got, want)
	}
}
