package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

// What is denied to users who write policies, and what passes however much is broken. In the scripts bob may write policies, and nothing more.
func TestPolicies(t *testing.T) {
	policyEditor(t)
	stack.Run(t, site.Scripts{Dir: "testdata/policies", Alone: true})
}

func TestPoliciesInDepth(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	policyEditor(t)
	stack.Run(t, site.Scripts{Dir: "testdata/policies-deep", Alone: true})
}

// policyEditor lets bob write policies.
func policyEditor(t *testing.T) {
	t.Helper()
	_, stderr, ok := kubectl(t, "", "create", "clusterrolebinding", "bob-edits", "--clusterrole=sallyport-policy-editor", "--user=bob")
	if !ok && !strings.Contains(stderr, "already exists") {
		t.Fatal(stderr)
	}
	step.T{T: t}.Eventually("bob may write policies", func() bool {
		_, _, ok := kubectl(t, "", "auth", "can-i", "create", "regopolicies.sallyport.dev", "--as=bob")
		return ok
	})
}

// tested waits until the tests of a policy have passed, and returns it.
func tested(t *testing.T, name string) (policy *v1alpha1.RegoPolicy, message string) {
	t.Helper()
	c, err := install.Client(stack.Plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	policy = &v1alpha1.RegoPolicy{}
	step.T{T: t}.Until("the tests of "+name+" have passed", func() (string, bool) {
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, policy); err != nil {
			return err.Error(), false
		}
		c := meta.FindStatusCondition(policy.Status.Conditions, string(v1alpha1.ConditionTestsPassed))
		if c == nil {
			return "no condition", false
		}
		message = c.Message
		return message, c.ObservedGeneration == policy.Generation && c.Reason == string(v1alpha1.ReasonTestsPassed)
	})
	return policy, message
}

func TestShippedPoliciesPassTheirOwnTests(t *testing.T) {
	all := shipped.Default(t)
	for i := range all {
		policy, message := tested(t, all[i].Name)
		result := policy.Status.Tests
		if result == nil || result.Passed == 0 || result.Failed > 0 || !strings.Contains(message, "when this release was built") {
			t.Errorf("%s: %s, %+v", policy.Name, message, result)
		}
	}
}

// A shipped policy that is edited is tested in a child process with limits, which counts as many tests. The three with the longest tests are
// tried.
func TestEditedShippedPoliciesPassTheirOwnTests(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	all := shipped.Default(t)
	length := func(p v1alpha1.RegoPolicy) (n int) {
		for _, test := range p.Spec.Tests {
			n += len(test.Source)
		}
		return n
	}
	slices.SortFunc(all, func(a, b v1alpha1.RegoPolicy) int { return length(b) - length(a) })
	for _, p := range all[:3] {
		before, _ := tested(t, p.Name)
		write := func(text string) {
			patch, err := json.Marshal([]map[string]string{{"op": "replace", "path": "/spec/tests/0/source", "value": text}})
			if err != nil {
				t.Fatal(err)
			}
			step.T{T: t}.Until("the edit is not refused for lack of time", func() (string, bool) {
				_, stderr, ok := kubectl(t, "", "patch", "regopolicy", p.Name, "--type=json", "-p", string(patch))
				if !ok && !strings.Contains(stderr, "its test run did not finish within") {
					t.Fatal(stderr)
				}
				return stderr, ok
			})
		}
		write(before.Spec.Tests[0].Source + "\n# Edited.\n")
		want := fmt.Sprintf("%d tests passed.", before.Status.Tests.Passed)
		if _, message := tested(t, p.Name); message != want {
			t.Errorf("%s shows %q, not %q", p.Name, message, want)
		}
		write(before.Spec.Tests[0].Source)
	}
}

// All of several writes at a time are answered, whether there was room for their test runs or not.
func TestManyEditsAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	policyEditor(t)
	quota, err := os.ReadFile("testdata/files/quota.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const all = 6
	answers := make(chan string, all)
	for i := range all {
		name := fmt.Sprintf("many%d", i)
		manifest := strings.ReplaceAll(string(quota), "quota", name)
		t.Cleanup(func() { stack.Plane.Kubectl(context.Background(), "delete", "regopolicy", name, "--ignore-not-found") })
		go func() {
			_, stderr, ok := kubectl(t, manifest, "create", "--as=bob", "-f", "-")
			if ok {
				stderr = ""
			}
			answers <- stderr
		}()
	}
	written := 0
	for range all {
		switch stderr := <-answers; {
		case stderr == "":
			written++
		case !strings.Contains(stderr, "too many RegoPolicies are being tested at the same time; try again") &&
			!strings.Contains(stderr, "its test run did not finish within"):
			t.Errorf("kubectl says %s", stderr)
		}
	}
	t.Logf("%d of %d were written", written, all)
	if written == 0 {
		t.Error("nothing was written")
	}
}
