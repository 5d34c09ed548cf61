package cluster

import (
	"testing"
	"time"

	"sallyport.dev/sallyport/test/support/audit"
)

// A pool creates each member with one request, and writes its own status once a second while something changes. The status of a member that
// is started is written three times: it is about to be made, it is claimed, and it runs. Some of these writes may be repeated.
func TestPoolWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	const namespace, members = "pool-writes", 200
	began := time.Now()
	must(t, "", "create", "namespace", namespace)
	must(t, `{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "metadata": {"name": "web"}, "spec": {
		"replicas": 200, "scaleDownPolicy": "NewestFirst", "virtualMachineTemplate": {"spec": {"runtime": {"pod": {}}}}}}`, "create", "-n", namespace, "-f", "-")
	for _, is := range []string{"jsonpath={.status.replicas}=200", "condition=Ready"} {
		must(t, "", "wait", "-n", namespace, "svmpool/web", "--for="+is, "--timeout=10m")
	}
	made, took := writes(t, namespace), time.Since(began)
	t.Logf("%d members in %.1f s: %v", members, took.Seconds(), made)
	for what, most := range map[string]int{
		"create virtualmachines/": members, "update virtualmachines/status": 3*members + members/4,
		"update virtualmachinepools/status": 5 + 2*int(took.Seconds()),
		"patch virtualmachines/":            0, "delete virtualmachines/": 0,
	} {
		if made[what] > most {
			t.Errorf("%s: %d, want at most %d", what, made[what], most)
		}
	}
}

// writes counts the writes of the manager in a namespace, by verb and resource.
func writes(t *testing.T, namespace string) map[string]int {
	t.Helper()
	events, err := audit.Events(stack.Audit)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for i := range events {
		if e := &events[i]; e.User.Username == stack.Sallyport.User() && e.ObjectRef != nil && e.ObjectRef.Namespace == namespace {
			counts[e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource]++
		}
	}
	return counts
}
