package shipping

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// The API server tells the fields of a policy from each other as policyType says.
func TestFieldsAreTheServers(t *testing.T) {
	f := newFixture(t)
	shipped := f.release("1.0.0", func(spec *v1alpha1.RegoPolicySpec) {
		some := metav1.LabelSelector{MatchLabels: map[string]string{"stage": "test"}}
		spec.NamespaceModes = []v1alpha1.NamespaceMode{{NamespaceSelector: some, Mode: v1alpha1.ModeWarn}}
		spec.ParametersSchema = &runtime.RawExtension{Raw: []byte(`{"type": "object", "required": ["supersededBy"]}`)}
	})
	f.ship(shipped)
	live := f.live()
	o, err := ownersOf(live.GetManagedFields())
	f.Must(err)
	of, _, err := recorded(shipped)
	f.Must(err)
	if !o.ours.Equals(of.set) {
		t.Errorf("the server says\n%s\nwe say\n%s", o.ours, of.set)
	}
	f.edited(shipped)
}
