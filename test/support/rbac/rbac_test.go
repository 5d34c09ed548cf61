package rbac

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

const home = "sallyport-system"

// A role that is exactly what is used, to be spoiled by the cases below.
func exact() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"sallyport.dev"}, Resources: []string{"virtualmachines", "virtualmachines/status"}, Verbs: []string{"list", "update"}},
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"}, Verbs: []string{"patch"},
			ResourceNames: []string{"sallyport"}},
	}
}

func used() []Use {
	machines := func(verb, resource string) Use {
		return Use{Right: Right{Namespace: "team", Group: "sallyport.dev", Resource: resource, Verb: verb}, Times: 2}
	}
	return []Use{
		machines("list", "virtualmachines"), machines("update", "virtualmachines"),
		machines("list", "virtualmachines/status"), machines("update", "virtualmachines/status"),
		{Right: Right{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verb: "patch", Name: "sallyport"}, Times: 1},
	}
}

func TestCompareFindsSurplusAndMissing(t *testing.T) {
	for name, test := range map[string]struct {
		rules func([]rbacv1.PolicyRule) []rbacv1.PolicyRule
		uses  func([]Use) []Use
		want  []string // a part of each finding
	}{
		"exact": {},
		"a verb too many": {
			rules: func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule { r[1].Verbs = append(r[1].Verbs, "delete"); return r },
			want:  []string{"surplus: rule 2 of ClusterRole wide grants delete validatingwebhookconfigurations.admissionregistration.k8s.io sallyport"},
		},
		"get beside list": {
			rules: func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule { r[0].Verbs = append(r[0].Verbs, "get"); return r },
		},
		"list beside get": {
			rules: func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule {
				r[0].Verbs = []string{"get", "list", "update"}
				return r
			},
			uses: func(u []Use) []Use {
				u[0].Verb, u[2].Verb = "get", "get"
				return u
			},
			want: []string{"grants list virtualmachines.sallyport.dev", "grants list virtualmachines/status.sallyport.dev"},
		},
		"a rule too many": {
			rules: func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule {
				return append(r, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
			},
			want: []string{"surplus: rule 3 of ClusterRole wide grants get secrets in all namespaces or in none, which was not used"},
		},
		"a rule twice": {
			rules: func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule { return append(r, r[1]) },
			want:  []string{"which rule 2 of ClusterRole wide grants already"},
		},
		"a name that any name covers": {
			rules: func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule {
				more := r[1]
				more.ResourceNames = nil
				return append(r, more)
			},
			want: []string{"surplus: rule 2 of ClusterRole wide"},
		},
		"a wildcard": {
			rules: func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule { r[0].Verbs = []string{"*"}; return r },
			want:  []string{"which nobody can count", "which nobody can count"},
		},
		"a URL": {
			rules: func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule {
				return append(r, rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}})
			},
			want: []string{"grants get /metrics"},
		},
		"a subresource missing": {
			rules: func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule { r[0].Resources = r[0].Resources[:1]; return r },
			want: []string{"missing: list virtualmachines/status.sallyport.dev in namespace team was asked for 2 times",
				"missing: update virtualmachines/status.sallyport.dev in namespace team"},
		},
		"another name": {
			uses: func(u []Use) []Use { u[4].Name = "other"; return u },
			want: []string{"missing: patch validatingwebhookconfigurations.admissionregistration.k8s.io other", "which was not used"},
		},
		"forbidden at first": {
			uses: func(u []Use) []Use { u[0].Forbidden = 1; return u },
			want: []string{"was forbidden 1 times before"},
		},
		"at home only by one verb": {
			uses: func(u []Use) []Use { u[0].Namespace = home; return u },
		},
		"at home only": {
			uses: func(u []Use) []Use {
				for i := range u[:4] {
					u[i].Namespace = home
				}
				return u
			},
			want: []string{"a Role would do", "a Role would do", "a Role would do", "a Role would do"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules, uses := exact(), used()
			if test.rules != nil {
				rules = test.rules(rules)
			}
			if test.uses != nil {
				uses = test.uses(uses)
			}
			findings := Compare(expand("ClusterRole wide", "", rules), uses, home)
			if len(findings) != len(test.want) {
				t.Fatalf("got %d findings, want %d:\n%s", len(findings), len(test.want), strings.Join(findings, "\n"))
			}
			for i, want := range test.want {
				if !strings.Contains(findings[i], want) {
					t.Errorf("got %q, want %q in it", findings[i], want)
				}
			}
		})
	}
}

// Only what is bound to the ServiceAccount counts, and only where it is bound.
func TestGranted(t *testing.T) {
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: "sallyport"}}
	other := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: "default"}}
	get := func(resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}}}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	within := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: home, Name: name} }
	c := fake.NewClientset(
		&rbacv1.ClusterRole{ObjectMeta: named("wide"), Rules: get("pods")},
		&rbacv1.ClusterRole{ObjectMeta: named("view"), Rules: get("nodes")},
		&rbacv1.Role{ObjectMeta: within("narrow"), Rules: get("secrets")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("a"), Subjects: subject, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "wide"}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("b"), Subjects: other, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}},
		&rbacv1.RoleBinding{ObjectMeta: within("c"), Subjects: subject, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "narrow"}},
	)
	got, err := Granted(t.Context(), c, home, "sallyport")
	if err != nil {
		t.Fatal(err)
	}
	want := []Grant{
		{Right{Resource: "pods", Verb: "get"}, "rule 1 of ClusterRole wide"},
		{Right{Namespace: home, Resource: "secrets", Verb: "get"}, "rule 1 of Role narrow"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("granted (-want +got):\n%s", diff)
	}
}

func TestUsedBy(t *testing.T) {
	const log = `{"verb":"create","user":{"username":"me"},"objectRef":{"resource":"leases","apiGroup":"coordination.k8s.io","namespace":"a","name":"x"},"responseStatus":{"code":201}}
{"verb":"create","user":{"username":"me"},"objectRef":{"resource":"leases","apiGroup":"coordination.k8s.io","namespace":"a","name":"y"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"verb":"patch","user":{"username":"me"},"objectRef":{"resource":"regopolicies","apiGroup":"sallyport.dev","name":"p"},"responseStatus":{"code":201}}
{"verb":"update","user":{"username":"me"},"objectRef":{"resource":"virtualmachines","apiGroup":"sallyport.dev","namespace":"a","name":"v","subresource":"status"},"responseStatus":{"code":403}}
{"verb":"get","user":{"username":"me"},"objectRef":{"resource":"namespaces","namespace":"a","name":"a"},"responseStatus":{"code":200}}
{"verb":"get","user":{"username":"me"},"requestURI":"/apis"}
{"verb":"create","user":{"username":"me"},"objectRef":{"resource":"selfsubjectaccessreviews","apiGroup":"authorization.k8s.io"}}
{"verb":"get","user":{"username":"you"},"objectRef":{"resource":"pods","namespace":"a","name":"b"}}
`
	file := filepath.Join(t.TempDir(), "audit.log")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(log + `{"verb":"get","us`) // and a line that is being written
	got, err := UsedBy(file, "me")
	if err != nil {
		t.Fatal(err)
	}
	want := []Use{
		{Right{"a", "coordination.k8s.io", "leases", "create", ""}, 2, 1},
		{Right{"", "sallyport.dev", "regopolicies", "create", "p"}, 1, 0},
		{Right{"", "", "namespaces", "get", "a"}, 1, 0},
		{Right{"", "sallyport.dev", "regopolicies", "patch", "p"}, 1, 0},
		{Right{"a", "sallyport.dev", "virtualmachines/status", "update", "v"}, 1, 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("used (-want +got):\n%s", diff)
	}
	write("no JSON\n")
	if _, err := UsedBy(file, "me"); err == nil {
		t.Error("a log that cannot be read is taken for one without requests")
	}
}
