package shipping

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	install.Main(m)
}

// fixture is an API server without policies, and one policy that is shipped.
type fixture struct {
	step.T
	plane *env.ControlPlane
	api   client.WithWatch
	name  string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: step.T{T: t}, plane: env.Shared(t), name: "operations-supersede"}
	scheme := runtime.NewScheme()
	f.Must(v1alpha1.AddToScheme(scheme))
	var err error
	f.api, err = client.NewWithWatch(f.plane.Config, client.Options{Scheme: scheme})
	f.Must(err)
	t.Cleanup(func() { f.Must(f.api.DeleteAllOf(context.Background(), &v1alpha1.RegoPolicy{})) })
	return f
}

// change is what one release has otherwise than another.
type change func(*v1alpha1.RegoPolicySpec)

// release gives the shipped policy with the table, as a release has it, with some more to edit.
func (f *fixture) release(version string, changes ...change) *v1alpha1.RegoPolicy {
	f.Helper()
	all, err := policies.Shipped()
	f.Must(err)
	for _, p := range all {
		if p.Name != f.name {
			continue
		}
		p.Spec.Match.ExcludeUsers = []string{"ann", "bob"}
		p.Spec.Modules = append(p.Spec.Modules, v1alpha1.PolicyModule{Name: "helper.rego", Source: "# helper"})
		for _, c := range changes {
			c(&p.Spec)
		}
		text, err := yaml.Marshal(p)
		f.Must(err)
		read, err := Read(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm", Annotations: map[string]string{ReleaseAnnotation: version}},
			Data:       map[string]string{p.Name + ".yaml": string(text)},
		}, nil)
		f.Must(err)
		return &read[0]
	}
	f.Fatal("it is not shipped")
	return nil
}

func (f *fixture) live() *unstructured.Unstructured {
	f.Helper()
	u := empty()
	f.Must(f.api.Get(f.Context(), types.NamespacedName{Name: f.name}, u))
	return u
}

func (f *fixture) policy() *v1alpha1.RegoPolicy {
	f.Helper()
	p := &v1alpha1.RegoPolicy{}
	f.Must(f.api.Get(f.Context(), types.NamespacedName{Name: f.name}, p))
	return p
}

// ship applies a release, and looks whether that is all there is to do.
func (f *fixture) ship(shipped *v1alpha1.RegoPolicy) {
	f.Helper()
	live := empty()
	if err := f.api.Get(f.Context(), types.NamespacedName{Name: f.name}, live); err != nil {
		f.Must(client.IgnoreNotFound(err))
		live = nil
	}
	step, err := Next(live, shipped)
	f.Must(err)
	if step == nil {
		return
	}
	tried, err := step.Try(f.Context(), f.api)
	f.Must(err)
	done, err := step.Do(f.Context(), f.api)
	f.Must(err)
	if a, b := spec(f, tried), spec(f, done); a != b {
		f.Errorf("tried\n%s\nand then did\n%s", a, b)
	}
	if step, err = Next(f.live(), shipped); step != nil || err != nil {
		f.Errorf("there is more to do: %+v, error %v", step, err)
	}
}

func spec(f *fixture, p *v1alpha1.RegoPolicy) string {
	f.Helper()
	text, err := yaml.Marshal(p.Spec)
	f.Must(err)
	return string(text)
}

// kubectl has somebody run kubectl with a file, whose path stands for FILE.
func (f *fixture) kubectl(file string, args ...string) {
	f.Helper()
	path := filepath.Join(f.TempDir(), "file.yaml")
	f.Must(os.WriteFile(path, []byte(file), 0o600))
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "FILE", path)
	}
	if out, errs, code := f.plane.Kubectl(f.Context(), args...); code != 0 {
		f.Fatalf("kubectl %s: %s%s", strings.Join(args, " "), out, errs)
	}
}

// edited holds what differs from what is shipped because of edits.
func (f *fixture) edited(shipped *v1alpha1.RegoPolicy, want ...string) {
	f.Helper()
	if got := strings.Join(Edited(f.policy(), shipped), ", "); got != strings.Join(want, ", ") {
		f.Errorf("edited is %q and not %q", got, strings.Join(want, ", "))
	}
}

// parameters changes the parameters of a policy.
func parameters(spec *v1alpha1.RegoPolicySpec, how func(map[string]any)) {
	all := map[string]any{}
	if err := json.Unmarshal(spec.Parameters.Raw, &all); err != nil {
		panic(err)
	}
	how(all)
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	spec.Parameters = &runtime.RawExtension{Raw: raw}
}

// rows changes the table in the parameters.
func rows(spec *v1alpha1.RegoPolicySpec, how func(map[string]any)) {
	parameters(spec, func(all map[string]any) { how(all["supersededBy"].(map[string]any)) })
}

func module(spec *v1alpha1.RegoPolicySpec, name string) *v1alpha1.PolicyModule {
	for i := range spec.Modules {
		if spec.Modules[i].Name == name {
			return &spec.Modules[i]
		}
	}
	panic(name)
}

func drop(list []string, entry string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(e string) bool { return e == entry })
}
