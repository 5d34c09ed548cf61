package facts_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// parentOf asks which object the parent is, and then for it, as policies do.
func (f *fixture) parentOf(t *testing.T, request *admissionv1.AdmissionRequest, subject facts.Subject) (which, found string) {
	t.Helper()
	r := f.For(request, subject)
	is, err := r.Read(t.Context(), engine.Query{Parent: true})
	if err != nil {
		t.Fatal(err)
	}
	metadata := is.Value.Get("metadata")
	q := engine.Query{
		Parent: true, Live: true, APIVersion: is.Value.Get("apiVersion").Text(), Kind: is.Value.Get("kind").Text(),
		Namespace: metadata.Get("namespace").Text(), Name: metadata.Get("name").Text(),
	}
	answer, err := r.Read(t.Context(), q)
	if err != nil {
		return q.Kind + " " + q.Name, err.Error()
	}
	return q.Kind + " " + q.Name, names(t, answer.Value)
}

func TestParentOfASubresource(t *testing.T) {
	f := newFixture(t, nil)
	pod := f.pod(t, "a", "n1", corev1.PodRunning)
	request := admissionv1.AdmissionRequest{
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, SubResource: "eviction",
		Namespace: f.namespace, Name: "a",
	}
	old := func(uid types.UID) facts.Subject {
		v, err := engine.ParseValue([]byte(fmt.Sprintf(`{"metadata": {"name": "a", "uid": %q}}`, uid)))
		if err != nil {
			t.Fatal(err)
		}
		return facts.Subject{Kind: schema.GroupKind{Kind: "Pod"}, Namespace: f.namespace, Name: "a", UID: uid, Old: v}
	}
	for name, tc := range map[string]struct {
		change  func(*admissionv1.AdmissionRequest)
		subject facts.Subject
		want    string
	}{
		"of an eviction": {func(r *admissionv1.AdmissionRequest) { r.Operation = "CREATE" },
			facts.Subject{Kind: schema.GroupKind{Group: "policy", Kind: "Eviction"}, Namespace: f.namespace, Name: "a"}, "Pod a: a"},
		"of an update":      {func(r *admissionv1.AdmissionRequest) { r.Operation = "UPDATE" }, old(pod.UID), "Pod a: a"},
		"that is not there": {func(r *admissionv1.AdmissionRequest) { r.Operation, r.Name = "UPDATE", "b" }, old(pod.UID), "Pod b: null"},
		"that the request does not know": {func(r *admissionv1.AdmissionRequest) { r.Operation = "UPDATE" }, old(""),
			"Pod a: the request does not identify its object: oldObject.metadata.uid is missing"},
		"of that name, but another object": {func(r *admissionv1.AdmissionRequest) { r.Operation = "DELETE" }, old("u-1"), "Pod a: null"},
		"that is a Secret": {func(r *admissionv1.AdmissionRequest) { r.Operation, r.Resource.Resource = "CREATE", "secrets" }, facts.Subject{},
			"Secret a: unreadable: core Secrets are never read for a policy"},
	} {
		t.Run(name, func(t *testing.T) {
			r := request
			tc.change(&r)
			if which, found := f.parentOf(t, &r, tc.subject); which+": "+found != tc.want {
				t.Errorf("got %s: %s, want %s", which, found, tc.want)
			}
		})
	}
}

// "A policy editor reads any object": whatever spec.reads lists, no way to ask leads to a Secret, or into Sallyport's own namespace.
func TestWhatNoPolicyIsTold(t *testing.T) {
	f, elsewhere := newFixture(t, nil, podReads...), newFixture(t, nil)
	f.awaitSync(t)
	f.pod(t, "own", "n1", corev1.PodRunning)
	elsewhere.pod(t, "other", "n1", corev1.PodRunning)
	everywhere := engine.Query{Fact: "pods", APIVersion: "v1", Kind: "Pod"}
	for _, everywhere.Live = range []bool{false, true} {
		for _, everywhere.Fields = range []map[string]string{nil, {"spec.nodeName": "n1"}} {
			f.await(t, fmt.Sprintf("both Pods to be found, fields %v", everywhere.Fields), func() bool {
				found, _ := f.read(t, facts.Subject{}, everywhere)
				return strings.Contains(found, "own") && strings.Contains(found, "other")
			})
		}
	}
	f.Home(f.namespace)
	for _, live := range []bool{false, true} {
		everywhere.Live = live
		if found, _ := f.read(t, facts.Subject{}, everywhere); strings.Contains(found, "own") || !strings.Contains(found, "other") {
			t.Errorf("live %v: found %s", live, found)
		}
		for name, q := range map[string]engine.Query{
			"a Secret":                {APIVersion: "v1", Kind: "Secret", Namespace: elsewhere.namespace, Name: "x"},
			"Secrets":                 {APIVersion: "v1", Kind: "Secret"},
			"Secrets of no version":   {APIVersion: "v0", Kind: "Secret", Namespace: elsewhere.namespace},
			"a Secret as a parent":    {APIVersion: "v1", Kind: "Secret", Namespace: elsewhere.namespace, Name: "x", Parent: true},
			"metadata of a Secret":    {APIVersion: "v1", Kind: "Secret", Namespace: elsewhere.namespace, Name: "x", Metadata: true},
			"a Pod of its own":        f.pods(func(q *engine.Query) { q.Name = "own" }),
			"Pods of its own":         f.pods(nil),
			"a parent of its own":     f.pods(func(q *engine.Query) { q.Name, q.Parent = "own", true }),
			"metadata of its own Pod": f.pods(func(q *engine.Query) { q.Name, q.Metadata = "own", true }),
		} {
			q.Live = live
			answer, err := f.For(&admissionv1.AdmissionRequest{}, facts.Subject{}).Read(t.Context(), q)
			if !errors.Is(err, facts.ErrUnreadable) {
				t.Errorf("%s, live %v: got %+v, %v", name, live, answer, err)
			}
		}
		if found, _ := f.read(t, facts.Subject{}, engine.Query{APIVersion: "v1", Kind: "Namespace", Name: f.namespace, Live: true}); found != f.namespace {
			t.Errorf("the namespace itself, which is in none: %s", found)
		}
	}
}

// Of metadata no more is read than what tells whether an override counts, and whether a request has become true.
func TestMetadata(t *testing.T) {
	f := newFixture(t, nil)
	pod := f.pod(t, "a", "n1", corev1.PodRunning)
	pod.Annotations = map[string]string{v1alpha1.AnnotationOverride: "an override", "other": "s3cret"}
	pod.Finalizers = []string{"example.org/stays"}
	if err := f.client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := f.client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	_, answer := f.read(t, facts.Subject{}, f.pods(func(q *engine.Query) { q.Name, q.Metadata = "a", true }))
	text, err := answer.Value.MarshalJSON()
	want := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"sallyport.dev/override":"an override"},"deletionTimestamp":%q,"generation":%d,"name":"a","namespace":%q,"resourceVersion":%q,"uid":%q}}`,
		pod.DeletionTimestamp.UTC().Format(time.RFC3339), pod.Generation, f.namespace, pod.ResourceVersion, pod.UID)
	if err != nil || string(text) != want || !answer.Live {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
	if found, _ := f.read(t, facts.Subject{}, f.pods(func(q *engine.Query) { q.Name, q.Metadata = "b", true })); found != "null" {
		t.Errorf("got %s", found)
	}
	stranger, err := env.Shared(t).UserConfig("stranger")
	if err != nil {
		t.Fatal(err)
	}
	q := f.pods(func(q *engine.Query) { q.Name, q.Metadata = "a", true })
	if _, err := newFixture(t, stranger).For(&admissionv1.AdmissionRequest{}, facts.Subject{}).Read(t.Context(), q); !errors.Is(err, facts.ErrUnreadable) {
		t.Errorf("without the right: %v", err)
	}
}
