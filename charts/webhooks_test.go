package charts_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newObject makes an object of a kind of ours, in namespace default if it belongs to one.
func newObject(kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "sallyport.dev/v1alpha1", "kind": kind, "spec": spec}}
	o.SetName(name)
	if kind != "RegoPolicy" && kind != "VSphereServer" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return o
}

// runtimeOf is the spec of a machine or a disk.
func runtimeOf(kind string, spec map[string]any) map[string]any {
	return map[string]any{"runtime": map[string]any{kind: spec}}
}

func newMachine(name string) *unstructured.Unstructured {
	return newObject("VirtualMachine", name, runtimeOf("vsphere", map[string]any{"serverRef": map[string]any{"name": "vc"}, "inventoryPath": "/dc/vm/" + name}))
}

func newPolicy(name string) *unstructured.Unstructured {
	return newObject("RegoPolicy", name, map[string]any{
		"package": "sallyport.lib", "library": true, "modules": []any{map[string]any{"name": "a.rego", "source": "package sallyport.lib"}},
	})
}

// asked tells whether the API server wanted a webhook's word, which nobody can give here.
func asked(t *testing.T, err error) bool {
	t.Helper()
	if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
		t.Fatal(err)
	}
	return err != nil
}

// numbered are names in a list.
func numbered(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"example.com/%d"`, i)
	}
	return strings.Join(members, ",")
}

// Nobody answers for the webhooks, so what they are asked about is refused, and the rest passes.
func TestWhatWebhooksAreAskedAbout(t *testing.T) {
	c := newCluster(t)
	// Made before the webhooks are there. The finalizer keeps the second of each, whose deletion has begun.
	c.helm(t, "install", release, chart(t), "-n", namespace, "--create-namespace", "--set", "webhook.failurePolicy=Ignore")
	for _, newOf := range []func(string) *unstructured.Unstructured{newMachine, newPolicy} {
		for _, name := range []string{"present", "terminating"} {
			o := newOf(name)
			o.SetFinalizers([]string{"example.com/test", "sallyport.dev/virtual-machine"})
			o.SetLabels(map[string]string{"a": "b"})
			o.SetAnnotations(map[string]string{"sallyport.dev/a": "b", "example.com/a": "b"})
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if name == "terminating" {
				if err := c.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() {
				patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
				if err := c.Patch(context.Background(), o, patch); err != nil {
					t.Error(err)
				}
			})
		}
	}
	c.upgrade(t, "--set", "webhook.failurePolicy=Fail")
	eventually(t, "the webhooks to be called", func(ctx context.Context) error {
		if err := c.Create(ctx, newMachine("probe"), client.DryRunAll); err == nil {
			return fmt.Errorf("nobody was asked about a new machine")
		}
		return nil
	})

	for _, test := range []struct {
		what, merge string
		asked       bool
	}{
		{"spec", `{"spec":{"%s":%s}}`, true},
		{"a label", `{"metadata":{"labels":{"a":"c"}}}`, true},
		{"a label less", `{"metadata":{"labels":null}}`, true},
		{"an annotation of ours", `{"metadata":{"annotations":{"sallyport.dev/override":"x"}}}`, true},
		{"an annotation of ours changed", `{"metadata":{"annotations":{"sallyport.dev/a":"c"}}}`, true},
		{"an annotation of ours less", `{"metadata":{"annotations":{"sallyport.dev/a":null}}}`, true},
		{"all annotations less", `{"metadata":{"annotations":null}}`, true},
		{"another annotation", `{"metadata":{"annotations":{"example.com/a":"c"}}}`, true},
		{"another annotation less", `{"metadata":{"annotations":{"example.com/a":null}}}`, true},
		{"a finalizer more", `{"metadata":{"finalizers":["example.com/test","sallyport.dev/virtual-machine","example.com/more"]}}`, false},
		{"an owner", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]}}`, true},
	} {
		for kind, field := range map[string][]any{"VirtualMachine": {"runPolicy", `"Manual"`}, "RegoPolicy": {"modules", `[{"name":"b.rego","source":"package sallyport.lib"}]`}} {
			merge := test.merge
			if strings.Contains(merge, "%s") {
				merge = fmt.Sprintf(merge, field...)
			}
			err := c.Patch(t.Context(), newObject(kind, "present", nil), client.RawPatch("application/merge-patch+json", []byte(merge)), client.DryRunAll)
			if got := asked(t, err); got != test.asked {
				t.Errorf("%s of a %s: asked %t, want %t", test.what, kind, got, test.asked)
			}
			if strings.Contains(merge, "finalizers") { // no new one on what is terminating
				continue
			}
			err = c.Patch(t.Context(), newObject(kind, "terminating", nil), client.RawPatch("application/merge-patch+json", []byte(merge)), client.DryRunAll)
			if got := asked(t, err); got != strings.Contains(merge, "spec") { // which may count for others until it is gone
				t.Errorf("%s of a terminating %s: asked %t", test.what, kind, got)
			}
		}
	}

	for _, test := range []struct {
		what, merge string
		asked       bool
	}{
		{"many finalizers", `{"metadata":{"finalizers":["sallyport.dev/virtual-machine",` + numbered(17) + `]}}`, true},
		{"some finalizers", `{"metadata":{"finalizers":["sallyport.dev/virtual-machine",` + numbered(13) + `]}}`, false},
	} {
		err := c.Patch(t.Context(), newMachine("present"), client.RawPatch("application/merge-patch+json", []byte(test.merge)), client.DryRunAll)
		if got := asked(t, err); got != test.asked {
			t.Errorf("%s: asked %t, want %t", test.what, got, test.asked)
		}
	}

	status := []byte(`{"status":{"observedGeneration":1}}`)
	for _, test := range []struct {
		what  string
		do    func(client.Client) error
		asked bool
	}{
		{"a new machine", func(c client.Client) error { return c.Create(t.Context(), newMachine("new"), client.DryRunAll) }, true},
		{"a new operation", func(c client.Client) error {
			return c.Create(t.Context(), newObject("VirtualMachineOperation", "new", map[string]any{"type": "Start", "virtualMachineName": "a"}), client.DryRunAll)
		}, true},
		{"a new policy", func(c client.Client) error { return c.Create(t.Context(), newPolicy("new"), client.DryRunAll) }, true},
		{"a new server", func(c client.Client) error {
			return c.Create(t.Context(), newObject("VSphereServer", "new", map[string]any{
				"url": "https://a", "credentialsSecretRef": map[string]any{"name": "a"}, "trust": map[string]any{"caBundle": certificate(t)},
			}), client.DryRunAll)
		}, false},
		{"a machine's status", func(c client.Client) error {
			return c.Status().Patch(t.Context(), newMachine("present"), client.RawPatch("application/merge-patch+json", status))
		}, false},
		{"a policy's status", func(c client.Client) error {
			return c.Status().Patch(t.Context(), newPolicy("present"), client.RawPatch("application/merge-patch+json", status))
		}, false},
		{"a machine's deletion", func(c client.Client) error { return c.Delete(t.Context(), newMachine("present"), client.DryRunAll) }, false},
		{"a policy's deletion", func(c client.Client) error { return c.Delete(t.Context(), newPolicy("present"), client.DryRunAll) }, true},
		{"a policy's deletion, again", func(c client.Client) error { return c.Delete(t.Context(), newPolicy("terminating"), client.DryRunAll) }, false},
	} {
		if got := asked(t, test.do(c)); got != test.asked {
			t.Errorf("%s: asked %t, want %t", test.what, got, test.asked)
		}
	}

	// The removal of a finalizer of ours is asked about, of a terminating object, too; but not if Sallyport or an administrator removes it.
	c.finalizersOfOurs(t)

	// Sallyport's own writes of policies pass, and only of those.
	sallyport := c.sallyport(t)
	if err := sallyport.Create(t.Context(), newPolicy("own"), client.DryRunAll); err != nil {
		t.Errorf("Sallyport ships a policy: %v", err)
	}
	machine := newObject("VirtualMachine", "present", nil)
	merge := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":"Manual"}}`))
	if err := sallyport.Patch(t.Context(), machine, merge, client.DryRunAll); !asked(t, err) {
		t.Error("Sallyport changes the spec of a machine, and nobody is asked")
	}
	// An account of the same name elsewhere is somebody else, whatever it may do.
	other := c.as(t, "system:serviceaccount:default:sallyport", "system:masters")
	if err := other.Create(t.Context(), newPolicy("own"), client.DryRunAll); !asked(t, err) {
		t.Error("another account of that name writes a policy, and nobody is asked")
	}
	c.uncheckedWrites(t)
}

// finalizersOfOurs: who removes one is asked about, unless they may override machines-abandon, or are Sallyport.
func (c *cluster) finalizersOfOurs(t *testing.T) {
	t.Helper()
	c.make(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "machine-editors"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"sallyport.dev"}, Resources: []string{"virtualmachines"}, Verbs: []string{"get", "patch", "update"},
	}}})
	c.bind(t, "machine-editors", "machine-editor", true)
	editor, sallyport := c.as(t, "machine-editor"), c.sallyport(t)
	keep := func(finalizers string) client.Patch {
		return client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))
	}
	eventually(t, "the editor to be known", func(ctx context.Context) error {
		return editor.Patch(ctx, newMachine("present"), keep(`["sallyport.dev/virtual-machine"]`), client.DryRunAll)
	})
	for _, name := range []string{"present", "terminating"} {
		for _, step := range []struct {
			what       string
			by         client.Client
			finalizers string
			asked      bool
		}{
			{"an editor removes ours", editor, `["example.com/test"]`, true},
			{"an editor removes all", editor, `null`, true},
			{"an editor removes another", editor, `["sallyport.dev/virtual-machine"]`, false},
			{"an administrator removes ours", c, `["example.com/test"]`, false},
			{"Sallyport removes ours", sallyport, `["example.com/test"]`, false},
		} {
			err := step.by.Patch(t.Context(), newMachine(name), keep(step.finalizers), client.DryRunAll)
			if got := asked(t, err); got != step.asked {
				t.Errorf("%s from the %s machine: asked %t, want %t", step.what, name, got, step.asked)
			}
		}
	}
}

// uncheckedWrites: who may override policies-self can write a policy that nobody judges, with a reason for each write. That the
// annotation is there is not enough for others, and not for the next write.
func (c *cluster) uncheckedWrites(t *testing.T) {
	t.Helper()
	c.bind(t, "sallyport-policy-editor", "editor", true)
	editor := c.as(t, "editor")
	edit := func(unchecked, source string) client.Patch {
		return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
			`{"metadata":{"annotations":{"sallyport.dev/unchecked":%s}},"spec":{"modules":[{"name":"%s.rego","source":"package sallyport.lib"}]}}`, unchecked, source))
	}
	eventually(t, "the editor to be known", func(ctx context.Context) error {
		err := editor.Patch(ctx, newPolicy("present"), edit("null", "x"), client.DryRunAll)
		if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
			return err
		}
		return nil
	})
	fresh := newPolicy("fresh")
	fresh.SetAnnotations(map[string]string{"sallyport.dev/unchecked": "INC-7"})
	for _, step := range []struct {
		what  string
		do    func() error
		asked bool
	}{
		{"an editor's edit with a reason", func() error { return editor.Patch(t.Context(), newPolicy("present"), edit(`"INC-7"`, "a")) }, true},
		{"an edit without a reason", func() error { return c.Patch(t.Context(), newPolicy("present"), edit(`""`, "a")) }, true},
		{"an edit with a reason", func() error { return c.Patch(t.Context(), newPolicy("present"), edit(`"INC-7"`, "a")) }, false},
		{"another edit with that reason", func() error { return c.Patch(t.Context(), newPolicy("present"), edit(`"INC-7"`, "b")) }, true},
		{"another edit with another reason", func() error { return c.Patch(t.Context(), newPolicy("present"), edit(`"INC-8"`, "b")) }, false},
		{"an edit that takes the reason off", func() error { return c.Patch(t.Context(), newPolicy("present"), edit(`null`, "b")) }, true},
		{"a new policy with a reason", func() error { return c.Create(t.Context(), fresh.DeepCopy(), client.DryRunAll) }, false},
		{"an editor's new policy", func() error { return editor.Create(t.Context(), fresh.DeepCopy(), client.DryRunAll) }, true},
		{"the deletion of one with a reason", func() error { return c.Delete(t.Context(), newPolicy("present"), client.DryRunAll) }, true},
	} {
		if got := asked(t, step.do()); got != step.asked {
			t.Errorf("%s: asked %t, want %t", step.what, got, step.asked)
		}
	}
}
