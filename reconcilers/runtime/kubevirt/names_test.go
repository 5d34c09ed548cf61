package kubevirt_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// KubeVirt writes the names of machines and migrations into labels, which have at most 63 characters.
const longest = 63

// A machine that is made beside an earlier one has a longer name than its VirtualMachine.
func TestNameOfOneMadeAnew(t *testing.T) {
	for name, want := range map[string]string{
		"web":                                "web-0e4d1b36",
		strings.Repeat("a", longest):         strings.Repeat("a", 54) + "-0e4d1b36",
		strings.Repeat("a", 53) + "-b.cdefg": strings.Repeat("a", 53) + "-0e4d1b36",
	} {
		r, _ := newRuntime(t)
		m := templated("{}")
		m.Name, m.UID, m.Earlier = name, "0e4d1b36-9f2c-4b53-9d0b-0f9a45f0c001", runtime.MakeAnew
		if id, err := r.Ensure(t.Context(), m); err != nil || id != want {
			t.Errorf("%s: got %q, %v", name, id, err)
		}
	}
}

func TestNameOfAMigration(t *testing.T) {
	for name, kept := range map[string]string{
		"web":                          "web",
		strings.Repeat("a", 26):        strings.Repeat("a", 26),
		strings.Repeat("a", 27):        strings.Repeat("a", 26),
		strings.Repeat("a", 25) + "-b": strings.Repeat("a", 25),
		strings.Repeat("a", longest):   strings.Repeat("a", 26),
	} {
		vmi := instance()
		vmi.Name = name
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{virtv1.NodeSchedulable: "true"}}}
		other.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		r, _ := newRuntime(t, vmi, other, newVM(func(vm *virtv1.VirtualMachine) { vm.Name = name }))
		m := adopted()
		m.Spec.Runtime.KubeVirt.Name = name
		if _, err := r.Ensure(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the request is repeated if its reply is lost
			if err := r.Migrate(t.Context(), m, runtime.Target{}); err != nil {
				t.Fatal(err)
			}
		}
		var moves virtv1.VirtualMachineInstanceMigrationList
		if err := r.Live.List(t.Context(), &moves); err != nil {
			t.Fatal(err)
		}
		if len(moves.Items) != 1 {
			t.Fatalf("%s: got %d migrations", name, len(moves.Items))
		}
		move := moves.Items[0].Name
		if id, is := strings.CutPrefix(move, kept+"-"); len(move) > longest || !is || len(id) != len("0e4d1b36-9f2c-4b53-9d0b-0f9a45f0c001") {
			t.Errorf("%s: got %s", name, move)
		}
	}
}

// Neither the machine nor its instances have labels by which a tool would prune them.
func TestLabelsThatAreNotCopied(t *testing.T) {
	r, _ := newRuntime(t)
	r.Uncopied = runtime.DefaultUncopied()
	m := templated("{}")
	m.Labels = map[string]string{"app": "web", "app.kubernetes.io/instance": "fleet", "kapp.k14s.io/app": "1"}
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	vm := &virtv1.VirtualMachine{}
	if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "web"}, vm); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"app": "web"}, vm.Spec.Template.ObjectMeta.Labels); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	delete(vm.Labels, "sallyport.dev/virtual-machine-uid")
	if diff := cmp.Diff(map[string]string{"app": "web"}, vm.Labels); diff != "" {
		t.Errorf("the machine (-want +got):\n%s", diff)
	}
}
