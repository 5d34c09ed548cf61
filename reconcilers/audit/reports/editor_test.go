package reports

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Who wrote last is named, beside us, in whatever order the API server has them; an entry without a time is the oldest.
func TestEditorIsWhoWroteLast(t *testing.T) {
	at := func(manager string, minute int) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Time: new(metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)))}
	}
	never := metav1.ManagedFieldsEntry{Manager: "never"}
	for name, tc := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   string
	}{
		"nobody":           {nil, ""},
		"only us":          {[]metav1.ManagedFieldsEntry{at(fieldOwner, 5)}, ""},
		"before us":        {[]metav1.ManagedFieldsEntry{at("ann", 1), at(fieldOwner, 5)}, "ann"},
		"the last":         {[]metav1.ManagedFieldsEntry{at("ann", 1), at("bob", 2)}, "bob"},
		"the first":        {[]metav1.ManagedFieldsEntry{at("bob", 2), at("ann", 1)}, "bob"},
		"one without time": {[]metav1.ManagedFieldsEntry{never}, "never"},
		"after none":       {[]metav1.ManagedFieldsEntry{never, at("ann", 1)}, "ann"},
		"before none":      {[]metav1.ManagedFieldsEntry{at("ann", 1), never}, "ann"},
	} {
		live := &unstructured.Unstructured{}
		live.SetManagedFields(tc.fields)
		if got := editor(live); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
