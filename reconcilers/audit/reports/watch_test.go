package reports

import (
	"context"
	"testing"
	"time"

	openreports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What somebody else makes of a report is told, and what is written here or changes nothing is not.
func TestEditsAreTold(t *testing.T) {
	s := newSite(t)
	going := s.newNamespace()
	notes := []func(*Page){bad(s.namespace, "a"), bad(going, "b"), bad("", s.namespace)}
	s.write(notes...)
	early := s.report(s.namespace)
	s.Must(s.client.Delete(t.Context(), early))
	told := make(chan Edit, 100)
	s.Must(s.writer.Watch(t.Context(), func(e Edit) {
		if e.Policy == s.policy.Name {
			told <- e
		}
	}))
	name := "sallyport-" + s.policy.Name
	expect := func(want Edit) {
		t.Helper()
		want.Policy = s.policy.Name
		select {
		case got := <-told:
			if got != want {
				t.Fatalf("told is %+v, want %+v", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nothing is told of %+v", want)
		}
		for range 3 {
			s.write(notes...) // which takes it for granted that nobody else is at it
		}
	}
	editor := client.FieldOwner("somebody")
	expect(Edit{Report: "Report " + s.namespace + "/" + name}) // before the watch began

	changed := s.report(s.namespace)
	changed.Summary.Fail = 0
	s.Must(s.client.Update(t.Context(), changed, editor))
	expect(Edit{Report: "Report " + s.namespace + "/" + name, By: "somebody"})
	s.has(s.namespace, "a")

	wide := &openreports.ClusterReport{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Must(s.client.Delete(t.Context(), wide))
	expect(Edit{Report: "ClusterReport " + name})

	annotated := s.report(s.namespace) // as dashboards and backups do
	annotated.Annotations = map[string]string{"example.com/seen": "yes"}
	s.Must(s.client.Update(t.Context(), annotated, editor))
	s.Must(s.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: going}})) // its objects go with it
	gone := s.report(going)
	s.Must(client.IgnoreNotFound(s.client.Delete(t.Context(), gone)))

	// A report that looks like ours where there is to be none comes last: what was told by then was told before.
	notes = notes[:1]
	forged := &openreports.Report{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.newNamespace(), Name: name, Labels: map[string]string{managedByLabel: source, policyLabel: s.policy.Name},
	}, Source: "sallyport"}
	s.Must(s.client.Create(t.Context(), forged, editor))
	expect(Edit{Report: "Report " + forged.Namespace + "/" + name, By: "somebody"})
	s.has(forged.Namespace)

	stolen := s.report(s.namespace)
	delete(stolen.Labels, managedByLabel)
	s.Must(s.client.Update(t.Context(), stolen, editor))
	expect(Edit{Report: "Report " + s.namespace + "/" + name, By: "somebody"})
	if len(told) > 0 {
		t.Errorf("more is told: %+v", <-told)
	}
}

// A replica that does not lead has written nothing and tells nothing: what the one that leads writes is no edit to it.
func TestOnlyWhatWasWrittenHereIsWatched(t *testing.T) {
	s := newSite(t)
	other := &Writer{Client: s.client, Live: s.client, Metadata: s.writer.Metadata, Now: s.writer.Now}
	s.Must(other.Watch(t.Context(), func(e Edit) {
		if e.Policy == s.policy.Name {
			t.Errorf("told is %+v", e)
		}
	}))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan Edit, 10)
	s.Must(s.writer.Watch(ctx, func(e Edit) { done <- e }))
	s.write(bad(s.namespace, "a"))
	s.Must(s.client.Delete(t.Context(), s.report(s.namespace)))
	<-done
}
