package reports

import (
	"encoding/json"
	"slices"
	"strconv"

	openreports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Annotations of reports.
const (
	// leftOutAnnotation has the number of results that exceed the limits: the summary counts them, and the report omits them.
	leftOutAnnotation = "sallyport.dev/results-left-out"
	// incompleteAnnotation says why not all objects were evaluated.
	incompleteAnnotation = "sallyport.dev/incomplete"
)

// report returns the report for a place. A ClusterReport has the same fields.
func (b *Book) report(policy *v1alpha1.RegoPolicy, at place, t *tally, incomplete string) *openreports.Report {
	now := b.writer.Now()
	r := &openreports.Report{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: at.namespace, Name: nameOf(b.policy),
			Labels: map[string]string{managedByLabel: source, policyLabel: b.policy},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "RegoPolicy", Name: policy.Name, UID: policy.UID,
			}},
		},
		Source:  source,
		Summary: t.summary, Results: t.results,
		Configuration: &openreports.ReportConfiguration{Limits: openreports.Limits{
			MaxResults: maxResults, StatusFilter: []openreports.StatusFilter{"fail", "warn", "error"},
		}},
	}
	r.SetGroupVersionKind(at.gvk())
	annotate := func(key, value string) { metav1.SetMetaDataAnnotation(&r.ObjectMeta, key, value) }
	if n := t.found() - len(t.results); n > 0 {
		annotate(leftOutAnnotation, strconv.Itoa(n))
	}
	if incomplete != "" {
		annotate(incompleteAnnotation, incomplete)
	}
	for i := range r.Results {
		r.Results[i].Policy = b.policy
		r.Results[i].Timestamp = metav1.Timestamp{Seconds: now.Unix()}
	}
	return r
}

// keepTimes copies the timestamps of results that the existing report has too, so that they say when a result was first found.
func keepTimes(is, want *openreports.Report) {
	times := make(map[string]metav1.Timestamp, len(is.Results))
	for i := range is.Results {
		times[withoutTime(is.Results[i])] = is.Results[i].Timestamp
	}
	for i := range want.Results {
		if at, was := times[withoutTime(want.Results[i])]; was {
			want.Results[i].Timestamp = at
		}
	}
}

func withoutTime(r openreports.ReportResult) string {
	r.Timestamp = metav1.Timestamp{}
	text, _ := json.Marshal(r) // strings and a number: this cannot fail
	return string(text)
}

// content returns everything that we write into a report, for comparison.
func content(r *openreports.Report) string {
	text, _ := json.Marshal([]any{ // strings and numbers: this cannot fail
		r.Source, r.Summary, r.Results, r.Configuration, r.Annotations[leftOutAnnotation], r.Annotations[incompleteAnnotation],
		r.Labels[managedByLabel], r.Labels[policyLabel],
	})
	return string(text)
}

// same reports whether a report has the wanted content. Fields of other clients are ignored.
func same(is, want *openreports.Report) bool {
	return slices.Contains(is.OwnerReferences, want.OwnerReferences[0]) && content(is) == content(want)
}

func decode(u *unstructured.Unstructured) (*openreports.Report, error) {
	r := &openreports.Report{}
	return r, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, r)
}

func encode(r *openreports.Report) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u, nil
}
