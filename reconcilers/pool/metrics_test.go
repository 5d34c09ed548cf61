package pool

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// measured is a pool with a status.
func (s *server) measured(t *testing.T, name string, wanted *int32, status v1alpha1.VirtualMachinePoolStatus) *v1alpha1.VirtualMachinePool {
	t.Helper()
	p := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.Replicas = wanted
	if err := s.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p.Status = status
	if err := s.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s, elected, registry := newServer(), make(chan struct{}), prometheus.NewRegistry()
	registry.MustRegister(collector(s, elected))
	told := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	blocked := []metav1.Condition{v1alpha1.ConditionScaleDownBlocked.Condition(metav1.ConditionTrue, v1alpha1.ReasonMembersBusy, 1, "ci-1 is busy")}
	s.measured(t, "ci", new(int32(3)), v1alpha1.VirtualMachinePoolStatus{Replicas: 5, ReadyReplicas: 4, StoppedReplicas: 1, UpdatedReplicas: 2, Conditions: blocked})
	free := []metav1.Condition{v1alpha1.ConditionScaleDownBlocked.Condition(metav1.ConditionFalse, v1alpha1.ReasonNotBlocked, 1, "")}
	gone := s.measured(t, "gone", nil, v1alpha1.VirtualMachinePoolStatus{Replicas: 1, Conditions: free})
	told("") // by another replica, which leads
	close(elected)
	const help = `# HELP sallyport_pool_replicas Number of members of a VirtualMachinePool, by state: wanted, present, ready, stopped as they should be, and updated to the current template and, if the pool follows one, release.
# TYPE sallyport_pool_replicas gauge
sallyport_pool_replicas{pool="ci",pool_namespace="team-a",state="present"} 5
sallyport_pool_replicas{pool="ci",pool_namespace="team-a",state="ready"} 4
sallyport_pool_replicas{pool="ci",pool_namespace="team-a",state="stopped"} 1
sallyport_pool_replicas{pool="ci",pool_namespace="team-a",state="updated"} 2
sallyport_pool_replicas{pool="ci",pool_namespace="team-a",state="wanted"} 3
%s# HELP sallyport_pool_scale_down_blocked 1 while members of a VirtualMachinePool cannot be removed as they should, by reason: MembersBusy, DeletionRefused or NobodyNamed.
# TYPE sallyport_pool_scale_down_blocked gauge
sallyport_pool_scale_down_blocked{pool="ci",pool_namespace="team-a",reason="MembersBusy"} 1
# HELP sallyport_pools Number of VirtualMachinePools. At most 500 have metrics of their own; namespaces take turns, by name.
# TYPE sallyport_pools gauge
sallyport_pools %d
`
	told(fmt.Sprintf(help, `sallyport_pool_replicas{pool="gone",pool_namespace="team-a",state="present"} 1
sallyport_pool_replicas{pool="gone",pool_namespace="team-a",state="ready"} 0
sallyport_pool_replicas{pool="gone",pool_namespace="team-a",state="stopped"} 0
sallyport_pool_replicas{pool="gone",pool_namespace="team-a",state="updated"} 0
sallyport_pool_replicas{pool="gone",pool_namespace="team-a",state="wanted"} 0
`, 2))
	if err := s.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	told(fmt.Sprintf(help, "", 1))
}

// However many pools somebody makes, no more than so many have metrics, and those of others are among them.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	s, elected := newServer(), make(chan struct{})
	close(elected)
	for i := range maxMeasured + 2 {
		p := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("pool-%04d", i)}}
		if err := s.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	others := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: "z-" + namespace, Name: "others"}}
	if err := s.Create(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	all := collector(s, elected)
	if got := testutil.CollectAndCount(all, "sallyport_pool_replicas"); got != 5*maxMeasured {
		t.Errorf("%d metrics of %d pools, want those of %d", got, maxMeasured+3, maxMeasured)
	}
	text, err := testutil.CollectAndFormat(all, expfmt.TypeTextPlain, "sallyport_pool_replicas")
	if err != nil || !strings.Contains(string(text), `pool="others"`) {
		t.Errorf("the pool of others has no metrics (error %v)", err)
	}
}

// stuck never answers.
type stuck struct{ client.Reader }

func (stuck) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// A cache that does not answer keeps nothing else from being told.
func TestMetricsOfACacheThatIsAway(t *testing.T) {
	t.Parallel()
	elected := make(chan struct{})
	close(elected)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector(stuck{Reader: newServer()}, elected))
	if families, err := registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("%v, %v", families, err)
	}
}
