package cluster

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

// The guards.
const (
	scaling          = "scaling-guard"
	protection       = "deletion-protected"
	cascade          = "deletion-cascade"
	definitionsGuard = "deletion-definitions"
	eviction         = "machines-eviction"
)

// Who makes requests. A member of the team may do everything with objects and override nothing.
const (
	admin  = "admin" // whom kubectl runs as if nobody else is said
	member = "alice"
	team   = "team"
	// robot is excluded from the guards.
	robot = "robot"
	// capped is held to two replicas by a limit of the policy.
	capped = "capped"
)

// guardSite is a local control plane with an installed Sallyport.
type guardSite struct {
	step.T
	*site.Site
	spaces *spaces
}

func newGuardSite(t *testing.T) *guardSite {
	t.Helper()
	s := &guardSite{T: step.T{T: t}, spaces: &spaces{}}
	definitions, err := charts.CRDs()
	s.Must(err)
	for _, kind := range kubevirt {
		definitions = append(definitions, definition(kind))
	}
	var enabled []string
	for _, name := range policiesOfKubeVirt {
		enabled = append(enabled, "policies."+name+".enabled=true")
	}
	s.Site = site.Start(t, site.Options{
		Plane: env.Options{ControllerManager: true, CRDs: definitions}, Flags: site.SoonFollowed(),
		Values: append([]string{
			"runtimes.kubevirt.enabled=false",
			"exclusions.users={" + robot + "}",
			"policies.scaling-guard.parameters.limits[0].name=capped",
			"policies.scaling-guard.parameters.limits[0].minReplicas=2",
			"policies.scaling-guard.parameters.limits[0].users={" + capped + "}",
		}, enabled...),
	})
	s.members()
	s.registered(admissionregistrationv1.Fail)
	return s
}

// members gives the team its rights.
func (s *guardSite) members() {
	s.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: team}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"*"}, Resources: []string{"*"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: team}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: team},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: team}},
	}
	s.Must(s.Client.Create(s.Context(), role))
	s.Must(s.Client.Create(s.Context(), binding))
	s.Until("the team has its rights", func() (string, bool) {
		return s.try(member, "", "auth can-i delete pods --namespace default")
	})
}

// registered waits until the API server asks every policy about kinds that are not ours, and does with requests that nobody judges what it is told.
func (s *guardSite) registered(failure admissionregistrationv1.FailurePolicyType) {
	s.Helper()
	all := append([]string{scaling, protection, cascade, definitionsGuard, eviction}, policiesOfKubeVirt...)
	for _, name := range all {
		s.Until("policy "+name+" is registered", func() (string, bool) {
			p := &v1alpha1.RegoPolicy{}
			if err := s.Client.Get(s.Context(), client.ObjectKey{Name: name}, p); err != nil {
				return err.Error(), false
			}
			return fmt.Sprintf("%+v", p.Status.Conditions), meta.IsStatusConditionTrue(p.Status.Conditions, string(v1alpha1.ConditionRegistered))
		})
	}
	s.Until("they are asked", func() (string, bool) {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		s.Must(s.Client.Get(s.Context(), client.ObjectKey{Name: "sallyport-policies"}, c))
		seen, found := "", 0
		for _, w := range c.Webhooks {
			seen += fmt.Sprintf("%s: %s; ", w.Name, *w.FailurePolicy)
			want := failure
			if policy, _ := registration.PolicyOf(w.Name); policy == scaling || policy == cascade {
				want = admissionregistrationv1.Ignore // nobody's workload or namespace depends on Sallyport
			}
			if *w.FailurePolicy == want {
				found++
			}
		}
		return seen, found == len(all)+1 // that of deletion-protected on Sallyport's kinds
	})
}

// step is a part of the whole, after which the next makes sense only if it went well.
func (s *guardSite) step(name string, do func(*guardSite)) {
	s.Helper()
	s.Step(name, func(t step.T) {
		inner := *s
		inner.T = t
		do(&inner)
	})
}

// try runs kubectl as somebody of the team, with a standard input, and gives what the user reads. Nobody is the administrator.
func (s *guardSite) try(user, stdin, line string, more ...string) (said string, ok bool) {
	s.Helper()
	args := append(strings.Fields(line), more...)
	if user != "" {
		args = append(args, "--as="+user, "--as-group="+team, "--as-group=system:authenticated")
	}
	stdout, stderr, code := s.Plane.KubectlAs(s.Context(), s.Plane.Kubeconfig(), strings.NewReader(stdin), args...)
	return stdout + stderr, code == 0
}

// namespace gives one that is empty and that nobody else uses.
func (s *guardSite) namespace() string {
	s.Helper()
	if free := s.spaces.take(); free != "" {
		return free
	}
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "guards-", Labels: map[string]string{"guards": "test"}}}
	s.Must(s.Client.Create(s.Context(), n))
	return n.Name
}
