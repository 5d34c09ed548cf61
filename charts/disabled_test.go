package charts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// granted are the rights of Sallyport's own roles, as "verb resource name".
func granted(t *testing.T, values string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	objects := render(t, values)
	for _, kind := range []string{"ClusterRole", "Role"} {
		for _, rule := range rules(t, objects, kind, "sallyport") {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range append([]string{""}, rule.ResourceNames...) {
						if (name == "") == (len(rule.ResourceNames) == 0) {
							all[strings.TrimSpace(fmt.Sprintf("%s %s.%s %s", verb, resource, rule.APIGroups[0], name))] = true
						}
					}
				}
			}
		}
	}
	return all
}

// What is disabled needs no rights and is not started.
func TestRightsOfWhatIsDisabled(t *testing.T) {
	const ours, pods = ".sallyport.dev", "runtimes: {pod: {enabled: true"
	secrets := []string{"get secrets.", "list secrets.", "watch secrets."}
	vsphere := slices.Concat(secrets, []string{"update vsphereservers/status" + ours, "update vspheretemplates/status" + ours, "patch vspheretemplates" + ours})
	templates := []string{"update vspheretemplates/status" + ours, "patch vspheretemplates" + ours}
	pools := []string{
		"update virtualmachinepools/status" + ours, "update virtualmachinepools/finalizers" + ours,
		"create virtualmachines" + ours, "delete virtualmachines" + ours, "create virtualdisks" + ours, "delete virtualdisks" + ours,
	}
	named := func(names ...string) (rights []string) {
		for _, name := range names {
			for _, verb := range secrets {
				rights = append(rights, verb+" "+name)
			}
		}
		return append(rights, "create secrets.")
	}
	for _, tc := range []struct {
		enabled, disabled string
		lost, added       []string
		flag              string
	}{
		{"", "runtimes: {vsphere: {enabled: false}}", vsphere, named("sallyport-certificate", "sallyport-webhook-tls")[:6], "--vsphere-runtime=false"},
		{"", "templates: {enabled: false}", templates, nil, "--templates=false"},
		{"", "pools: {enabled: false}", pools, nil, "--pools=false"},
		{pods + "}}", pods + "}}\npools: {enabled: false}", slices.DeleteFunc(slices.Clone(pools), func(right string) bool { return right == "create virtualdisks"+ours }), nil, "--pools=false"},
		{pods + "}}", pods + ", drains: {enabled: false}}}", []string{"create virtualmachineoperations" + ours}, nil, "--pod-drains=false"},
	} {
		before, after := granted(t, tc.enabled), granted(t, tc.disabled)
		var lost, added []string
		for right := range before {
			if !after[right] {
				lost = append(lost, right)
			}
		}
		for right := range after {
			if !before[right] {
				added = append(added, right)
			}
		}
		for _, list := range [][]string{lost, added, tc.lost, tc.added} {
			slices.Sort(list)
		}
		if diff := cmp.Diff([][]string{tc.lost, tc.added}, [][]string{lost, added}); diff != "" {
			t.Errorf("with %q, lost and added (-want +got):\n%s", tc.disabled, diff)
		}
		if was, is := slices.Contains(managerArgs(t, render(t, tc.enabled)), tc.flag), slices.Contains(managerArgs(t, render(t, tc.disabled)), tc.flag); was || !is {
			t.Errorf("with %q the manager has %s: %v; with %q: %v", tc.enabled, tc.flag, was, tc.disabled, is)
		}
	}
}

// What is disabled is not created, and its author learns what enables it.
func TestWhatIsDisabledIsNotCreated(t *testing.T) {
	spec := runtimeOf("pod", map[string]any{})
	pod := newObject("VirtualMachine", "new", spec)
	pool := newObject("VirtualMachinePool", "new", map[string]any{"replicas": int64(1), "scaleDownPolicy": "NewestFirst", "virtualMachineTemplate": map[string]any{"spec": spec}})
	kubeVirt := newObject("VirtualMachine", "new", runtimeOf("kubevirt", map[string]any{}))
	disk := newObject("VirtualDisk", "new", map[string]any{"size": "1Gi", "runtime": map[string]any{"pod": map[string]any{}}})
	const vspheres, pods, kubeVirts, pools = "runtimes.vsphere.enabled=true", "runtimes.pod.enabled=true", "runtimes.kubevirt.enabled=true", "pools.enabled=true"
	cases := map[string]map[*unstructured.Unstructured]string{
		"crds.install=true": {newMachine("new"): "", pod: pods, kubeVirt: kubeVirts, disk: pods, pool: pods},
		pods + "," + kubeVirts + ",runtimes.vsphere.enabled=false,pools.enabled=false": {newMachine("new"): vspheres, pod: "", kubeVirt: "", disk: "", pool: pools},
		"runtimes.denyDisabled=false": {newMachine("new"): "", pod: "", kubeVirt: "", disk: ""},
	}
	if testing.Short() {
		delete(cases, "crds.install=true") // which are the defaults: the second case has more to deny
	}
	for values, tc := range cases {
		t.Run(values, func(t *testing.T) {
			c := newCluster(t)
			c.install(t, "--set", "webhook.failurePolicy=Ignore,"+values)
			create := func(ctx context.Context, o *unstructured.Unstructured) error {
				return c.Create(ctx, o.DeepCopy(), client.DryRunAll)
			}
			eventually(t, "the policy to be in force", func(ctx context.Context) error {
				for o, want := range tc {
					if err := create(ctx, o); want != "" && !apierrors.IsForbidden(err) {
						return fmt.Errorf("%s: %w", o.GetKind(), errors.Join(err, errors.New("not forbidden")))
					}
				}
				return nil
			})
			for o, want := range tc {
				err := create(t.Context(), o)
				if want == "" && err != nil || want != "" && !strings.Contains(fmt.Sprint(err), "an administrator can enable") || want != "" && !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%s %v: got %v, want %q", o.GetKind(), o.Object["spec"], err, want)
				}
			}
		})
	}
}
