package reports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	openreports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/definitions"
	"sallyport.dev/sallyport/test/support/env"
)

func TestWhatAReportSays(t *testing.T) {
	s := newSite(t)
	warns := func(p *Page) { p.Fails(object(s.namespace, "c"), v1alpha1.ModeAudit, "TooMany", "too many") }
	written := s.write(fine(s.namespace, "a"), fine(s.namespace, "z"), bad(s.namespace, "b"), warns, odd(s.namespace, "d"), bad("", "wide"), fine("other", "a"))
	if diff := cmp.Diff(&Written{Reports: 2, Results: 4}, written); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	got := s.report(s.namespace)
	at := metav1.Timestamp{Seconds: s.now.Unix()}
	about := func(name string) []corev1.ObjectReference {
		return []corev1.ObjectReference{{APIVersion: "apps/v1", Kind: "Deployment", Namespace: s.namespace, Name: name, UID: types.UID("uid-" + name)}}
	}
	result := func(name, rule, message, mode string, r openreports.Result, scored bool) openreports.ReportResult {
		return openreports.ReportResult{
			Source: "sallyport", Policy: s.policy.Name, Rule: rule, Description: message, Result: r, Scored: scored, Timestamp: at,
			Subjects: about(name), Properties: map[string]string{"mode": mode},
		}
	}
	want := []openreports.ReportResult{
		result("b", "OwnerMissing", "no owner", "Enforce", "fail", true),
		result("c", "TooMany", "too many", "Audit", "warn", false),
		result("d", "", "cannot tell", "Warn", "error", false),
	}
	if diff := cmp.Diff(want, got.Results); diff != "" {
		t.Errorf("results (-want +got)\n%s", diff)
	}
	if want := (openreports.ReportSummary{Pass: 2, Fail: 1, Warn: 1, Error: 1}); got.Summary != want || got.Source != "sallyport" {
		t.Errorf("summary %+v, source %q", got.Summary, got.Source)
	}
	if got.Labels["app.kubernetes.io/managed-by"] != "sallyport" || got.Labels["sallyport.dev/policy"] != s.policy.Name || len(got.Annotations) > 0 {
		t.Errorf("labels %v, annotations %v", got.Labels, got.Annotations)
	}
	owner := metav1.OwnerReference{APIVersion: "sallyport.dev/v1alpha1", Kind: "RegoPolicy", Name: s.policy.Name, UID: s.policy.UID}
	if !slices.Equal(got.OwnerReferences, []metav1.OwnerReference{owner}) {
		t.Errorf("owners %+v", got.OwnerReferences)
	}
	for _, f := range got.ManagedFields {
		if f.Manager != "sallyport" || f.Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("written by %s with %s", f.Manager, f.Operation)
		}
	}
	wide := &openreports.ClusterReport{}
	s.Must(s.client.Get(t.Context(), client.ObjectKey{Name: got.Name}, wide))
	if len(wide.Results) != 1 || wide.Results[0].Subjects[0].Name != "wide" || wide.Summary.Fail != 1 {
		t.Errorf("the ClusterReport has %+v", wide.Results)
	}
	s.write()
	s.has(s.namespace)
	s.noClusterReport()
}

func (s *site) noClusterReport() {
	s.Helper()
	if err := s.client.Get(s.Context(), client.ObjectKey{Name: nameOf(s.policy.Name)}, &openreports.ClusterReport{}); !apierrors.IsNotFound(err) {
		s.Errorf("there is a ClusterReport, or it cannot be read: %v", err)
	}
}

// A report is written when it has changed, keeps the time at which something was found, and is put right when somebody edits it.
func TestReportsChangeWithWhatIsFound(t *testing.T) {
	s := newSite(t)
	s.write(bad(s.namespace, "a"))
	first := s.report(s.namespace)
	s.now = s.now.Add(time.Hour)
	s.write(bad(s.namespace, "a"))
	if now := s.report(s.namespace); now.ResourceVersion != first.ResourceVersion {
		t.Error("nothing has changed, and it was written")
	}
	s.write(bad(s.namespace, "a"), bad(s.namespace, "b"))
	s.has(s.namespace, "a", "b")
	if r := s.report(s.namespace).Results; r[0].Timestamp.Seconds != first.Results[0].Timestamp.Seconds || r[1].Timestamp.Seconds != s.now.Unix() {
		t.Errorf("found at %v and %v", r[0].Timestamp, r[1].Timestamp)
	}
	edited := s.report(s.namespace)
	before := edited.DeepCopy()
	edited.Results, edited.Labels["theirs"] = nil, "x"
	s.Must(s.client.Patch(t.Context(), edited, client.MergeFrom(before), client.FieldOwner("somebody")))
	s.write(bad(s.namespace, "a"), bad(s.namespace, "b"))
	s.has(s.namespace, "a", "b")
	if s.report(s.namespace).Labels["theirs"] != "x" {
		t.Error("somebody's label is gone")
	}
	s.Must(s.client.Delete(t.Context(), edited))
	forged := &openreports.Report{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.newNamespace(), Name: edited.Name, Labels: map[string]string{managedByLabel: source, policyLabel: s.policy.Name},
	}, Source: source}
	s.Must(s.client.Create(t.Context(), forged))
	s.write(bad(s.namespace, "a"), bad(s.namespace, "b"))
	s.has(s.namespace, "a", "b")
	if s.report(forged.Namespace) != nil {
		t.Error("a forged report remains")
	}

	again := s.policy.DeepCopy() // deleted and made anew
	again.UID = "8a2d8e1e-0000-4000-8000-000000000002"
	s.policy = again
	s.write(bad(s.namespace, "a"), bad(s.namespace, "b"))
	if owners := s.report(s.namespace).OwnerReferences; len(owners) != 1 || owners[0].UID != again.UID {
		t.Errorf("owners %+v", owners)
	}
	other := s.newNamespace()
	s.write(bad(other, "c"))
	s.has(s.namespace)
	s.has(other, "c")
	s.Must(s.writer.Remove(t.Context(), "of-others"))
	s.has(other, "c")
	s.Must(s.writer.Remove(t.Context(), s.policy.Name))
	s.has(other)
}

// A report says that objects were not looked at only while that is so, even if the findings stay the same.
func TestReportsThatAreIncomplete(t *testing.T) {
	s := newSite(t)
	for _, incomplete := range []string{"", "listing Deployments: forbidden", "listing Deployments: timeout", ""} {
		_, err := s.open().Write(t.Context(), s.policy, page(bad(s.namespace, "a")), incomplete)
		s.Must(err)
		if got := s.report(s.namespace).Annotations[incompleteAnnotation]; got != incomplete {
			t.Errorf("got %q, want %q", got, incomplete)
		}
	}
}

func TestWhatIsSomebodyElsesIsLeftAlone(t *testing.T) {
	s := newSite(t)
	theirs := &openreports.Report{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: nameOf(s.policy.Name)}, Source: "theirs"}
	s.Must(s.client.Create(t.Context(), theirs))
	other := s.newNamespace()
	written := s.write(bad(s.namespace, "a"), bad(other, "b"))
	if want := []string{"Report " + s.namespace + "/" + theirs.Name}; !slices.Equal(written.Taken, want) || written.Reports != 1 {
		t.Errorf("written %+v, want %v taken", written, want)
	}
	s.write()
	if now := s.report(s.namespace); now == nil || now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("theirs is now %+v", now)
	}
	s.has(other)
}

// What was found before somebody else wrote is not written over it: the next leader may have taken over.
func TestTheOlderOfTwoGivesWay(t *testing.T) {
	for name, c := range map[string]struct{ before, newer, older []string }{
		"both make it":                  {nil, []string{"newer"}, []string{"older"}},
		"both change it":                {[]string{"a"}, []string{"newer"}, []string{"older"}},
		"the older one would delete it": {[]string{"a"}, []string{"newer"}, nil},
		"the newer one has deleted it":  {[]string{"a"}, nil, []string{"older"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			notes := func(names []string) (all []func(*Page)) {
				for _, n := range names {
					all = append(all, bad(s.namespace, n))
				}
				return all
			}
			s.write(notes(c.before)...)
			older := s.open()
			s.write(notes(c.newer)...)
			if _, err := older.Write(t.Context(), s.policy, page(notes(c.older)...), ""); !errors.Is(err, ErrChanged) {
				t.Errorf("the older one gets %v", err)
			}
			s.has(s.namespace, c.newer...)
		})
	}
}

// Between the look and the write somebody else may be faster.
func TestWritesThatMeetAnother(t *testing.T) {
	for name, c := range map[string]struct {
		before []string
		meet   func(*site) error
		after  []string // what the report is about once it was written again
	}{
		"somebody makes an object of that name": {nil, func(s *site) error {
			return s.client.Create(s.Context(), &openreports.Report{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: nameOf(s.policy.Name)}, Source: "theirs",
			})
		}, nil},
		"somebody edits it": {[]string{"a"}, func(s *site) error {
			r := s.report(s.namespace)
			r.Summary.Fail = 77
			return s.client.Update(s.Context(), r)
		}, []string{"b"}},
		"somebody deletes it": {[]string{"a"}, func(s *site) error { return s.client.Delete(s.Context(), s.report(s.namespace)) }, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			for _, n := range c.before {
				s.write(bad(s.namespace, n))
			}
			met := false
			s.writer.Client = interceptor.NewClient(s.client, interceptor.Funcs{
				Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					if !met {
						met = true
						s.Must(c.meet(s))
					}
					return w.Apply(ctx, o, options...)
				},
			})
			if _, err := s.open().Write(t.Context(), s.policy, page(bad(s.namespace, "b")), ""); !errors.Is(err, ErrChanged) {
				t.Errorf("it gets %v", err)
			}
			s.write(bad(s.namespace, "b"))
			s.has(s.namespace, c.after...)
		})
	}
}

// The process may die after any of its writes, and the reply to one may be lost: who comes next finishes.
func TestWritesThatEndInBetween(t *testing.T) {
	for lost := range 2 { // of the writes before the last, the reply to one
		for writes := range 5 {
			t.Run(fmt.Sprintf("%d writes, lost %d", writes, lost), func(t *testing.T) {
				s := newSite(t)
				changed, made, gone := s.namespace, s.newNamespace(), s.newNamespace()
				s.write(bad(changed, "a"), bad(gone, "b"), bad("", s.namespace))
				left := writes
				failing := func(do func() error) error {
					if left == 0 {
						if lost == 1 {
							s.Must(do())
						}
						left = -1
					}
					if left < 0 {
						return errors.New("connection refused")
					}
					left--
					return do()
				}
				s.writer.Client = interceptor.NewClient(s.client, interceptor.Funcs{
					Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
						return failing(func() error { return w.Apply(ctx, o, options...) })
					},
					Delete: func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.DeleteOption) error {
						return failing(func() error { return w.Delete(ctx, o, options...) })
					},
				})
				notes := []func(*Page){bad(changed, "a2"), bad(made, "c")}
				_, err := s.open().Write(t.Context(), s.policy, page(notes...), "")
				if (err == nil) != (left >= 0) {
					t.Errorf("error %v, with %d writes left", err, left)
				}
				s.writer.Client = s.client
				s.write(notes...)
				s.has(changed, "a2")
				s.has(made, "c")
				s.has(gone)
				s.noClusterReport()
			})
		}
	}
}

// One namespace is not in the way of another.
func TestNamespacesThatTakeNothing(t *testing.T) {
	s := newSite(t)
	going, closed := s.newNamespace(), s.newNamespace()
	user := "writer-" + s.namespace
	config, err := env.Shared(t).UserConfig(user)
	s.Must(err)
	s.writer.Client, err = client.New(config, client.Options{Scheme: s.client.Scheme()})
	s.Must(err)
	grant(s, user, s.namespace, going)
	s.Must(s.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: going}})) // nobody finishes that here
	written := s.write(bad(s.namespace, "a"), bad(going, "b"), bad(closed, "c"))
	if written.Reports != 1 || len(written.Refused) != 1 || !strings.Contains(written.Refused[0], "Report "+closed+"/"+nameOf(s.policy.Name)+": ") ||
		!strings.Contains(written.Refused[0], "forbidden") {
		t.Errorf("written %+v", written)
	}
	s.has(s.namespace, "a")
	s.writer.Client = s.client
	if written := s.write(bad(s.namespace, "a"), bad("reports-gone", "b")); written.Reports != 1 || len(written.Refused) > 0 {
		t.Errorf("written %+v", written)
	}
}

// grant lets a user write reports in some namespaces.
func grant(s *site, user string, namespaces ...string) {
	s.Helper()
	s.Must(rbacv1.AddToScheme(s.client.Scheme()))
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"openreports.io"}, Resources: []string{"reports"}, Verbs: []string{"create", "patch", "list"}},
	}}
	s.Must(s.client.Create(s.Context(), role))
	for _, n := range namespaces {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: n, Name: user}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		}
		s.Must(s.client.Create(s.Context(), binding))
	}
}

func TestReportsAreBounded(t *testing.T) {
	s := newSite(t)
	longest := func(i int) func(*Page) {
		o := object(s.namespace, fmt.Sprintf("%0253d", i))
		o.APIVersion = strings.Repeat("g", 253) + "/" + strings.Repeat("v", 63)
		o.Kind = strings.Repeat("K", 63)
		return func(p *Page) { p.Fails(o, v1alpha1.ModeEnforce, strings.Repeat("R", 64), strings.Repeat("\x01", 512)) }
	}
	var notes []func(*Page)
	for i := range maxResults + 3 {
		notes = append(notes, longest(i))
	}
	written := s.write(notes...)
	if diff := cmp.Diff(&Written{Reports: 1, Results: maxResults, ResultsLeftOut: 3}, written); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	r := s.report(s.namespace)
	if len(r.Results) != maxResults || r.Summary.Fail != maxResults+3 || r.Annotations[leftOutAnnotation] != "3" || r.Configuration.Limits.MaxResults != maxResults {
		t.Errorf("%d results, summary %+v, annotations %v, %+v", len(r.Results), r.Summary, r.Annotations, r.Configuration)
	}
	s.write(notes[:maxResults]...)
	if r := s.report(s.namespace); len(r.Annotations) > 0 || r.Summary.Fail != maxResults {
		t.Errorf("all are in it, and it has %v, %+v", r.Annotations, r.Summary)
	}
}

func TestReportsOfAPolicyAreBounded(t *testing.T) {
	const each = 11 // results, of which not all are kept
	p, written := &Page{}, &Written{}
	for n := range maxReports + 2 {
		for i := range each {
			bad(fmt.Sprintf("n-%03d", n), fmt.Sprint(i))(p)
		}
	}
	namespaces := p.chosen(written)
	if p.kept != maxOfAll || len(namespaces) != maxReports || written.ReportsLeftOut != 2 || written.ResultsLeftOut != each*(maxReports+2)-maxOfAll {
		t.Errorf("%d results are kept, there are %d reports, %+v", p.kept, len(namespaces), written)
	}
}

// Kinds come and go while the process runs.
func TestKindsThatComeLater(t *testing.T) {
	s := newSite(t)
	s.write(bad(s.namespace, "a"))
	s.unserved()
	for range 2 {
		if _, err := s.writer.Open(t.Context(), s.policy.Name); !errors.Is(err, ErrNotServed) {
			t.Errorf("there are no such kinds, and Open gives %v", err)
		}
		if err := s.writer.Served(t.Context()); !errors.Is(err, ErrNotServed) {
			t.Errorf("there are no such kinds, and Served gives %v", err)
		}
		s.Must(s.writer.Remove(t.Context(), s.policy.Name))
		fresh, err := client.NewWithWatch(env.Shared(t).Config, client.Options{Scheme: s.client.Scheme()}) // which has never seen them
		s.Must(err)
		s.writer.Client, s.writer.Live = fresh, fresh
	}
	crds := definitions.Reports(t)
	s.Must(env.Shared(t).InstallCRDs(t.Context(), crds[0]))
	if err := s.writer.Served(t.Context()); !errors.Is(err, ErrNotServed) {
		t.Errorf("one of the kinds is missing, and Served gives %v", err)
	}
	s.Must(env.Shared(t).InstallCRDs(t.Context(), crds[1]))
	s.Must(s.writer.Served(t.Context()))
	s.write(bad(s.namespace, "b"), bad("", s.namespace))
	s.has(s.namespace, "b")
	s.write()
}
