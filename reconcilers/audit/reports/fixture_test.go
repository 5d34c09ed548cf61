package reports

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	openreports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/definitions"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

func TestMain(m *testing.M) { install.Main(m) }

// site is an API server with the kinds of reports, and a namespace of the test's own.
type site struct {
	step.T
	client    client.WithWatch
	writer    *Writer
	namespace string
	policy    *v1alpha1.RegoPolicy
	now       time.Time
}

func newSite(t *testing.T) *site {
	t.Helper()
	plane := env.Shared(t)
	s := &site{T: step.T{T: t}, now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	s.Must(plane.InstallCRDs(t.Context(), definitions.Reports(t)...))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, apiextensionsv1.AddToScheme, openreports.Install, v1alpha1.AddToScheme} {
		s.Must(add(scheme))
	}
	var err error
	s.client, err = client.NewWithWatch(plane.Config, client.Options{Scheme: scheme})
	s.Must(err)
	s.writer = &Writer{Client: s.client, Live: s.client, Now: func() time.Time { return s.now }}
	s.namespace = s.newNamespace()
	s.policy = &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "of-" + s.namespace, UID: "8a2d8e1e-0000-4000-8000-000000000001"}}
	return s
}

func (s *site) newNamespace() string {
	s.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "reports-"}}
	s.Must(s.client.Create(s.Context(), n))
	return n.Name
}

func (s *site) open() *Book {
	s.Helper()
	b, err := s.writer.Open(s.Context(), s.policy.Name)
	s.Must(err)
	return b
}

// write opens a book, notes and writes it.
func (s *site) write(note ...func(*Page)) *Written {
	s.Helper()
	written, err := s.open().Write(s.Context(), s.policy, page(note...), "")
	s.Must(err)
	return written
}

func page(note ...func(*Page)) *Page {
	p := &Page{}
	for _, n := range note {
		n(p)
	}
	return p
}

// bad notes that the policy would refuse an object, fine that it would not, odd that it cannot tell.
func bad(namespace, name string) func(*Page) {
	return func(p *Page) { p.Fails(object(namespace, name), v1alpha1.ModeEnforce, "OwnerMissing", "no owner") }
}

func fine(namespace, _ string) func(*Page) {
	return func(p *Page) { p.Passes(namespace, 1) }
}

func odd(namespace, name string) func(*Page) {
	return func(p *Page) { p.Undecided(object(namespace, name), v1alpha1.ModeWarn, "cannot tell") }
}

func object(namespace, name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}
}

// report is that of the test's policy in a namespace, nil if there is none.
func (s *site) report(namespace string) *openreports.Report {
	s.Helper()
	r := &openreports.Report{}
	err := s.client.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: "sallyport-" + s.policy.Name}, r)
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.Must(err)
	return r
}

// results are the names of the objects in a report.
func (s *site) results(namespace string) (names []string) {
	s.Helper()
	if r := s.report(namespace); r != nil {
		for i := range r.Results {
			names = append(names, r.Results[i].Subjects[0].Name)
		}
	}
	return names
}

func (s *site) has(namespace string, names ...string) {
	s.Helper()
	if got := s.results(namespace); !slices.Equal(got, names) {
		s.Errorf("the report in %s is about %v, want %v", namespace, got, names)
	}
}

// unserved removes the kinds of reports.
func (s *site) unserved() {
	s.Helper()
	for _, crd := range definitions.Reports(s) {
		s.Must(client.IgnoreNotFound(s.client.Delete(s.Context(), crd)))
		err := step.Await(s.Context(), func(ctx context.Context) (bool, error) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(openreports.SchemeGroupVersion.WithKind(crd.Spec.Names.Kind))
			return s.client.List(ctx, list) != nil, nil
		})
		if err != nil {
			s.Fatal(fmt.Errorf("waiting until %s is gone: %w", crd.Name, err))
		}
	}
}
