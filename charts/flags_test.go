package charts_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"sallyport.dev/sallyport/cmd/sallyport/manager"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/webhooks/grants"
)

// A flag that the manager does not know would have it end at once.
func TestFlagsAreTheManagers(t *testing.T) {
	known := manager.NewCommand(nil).Flags()
	for _, values := range []string{"", everything} {
		name := map[bool]string{true: "sallyport", false: "sallyport-gate"}[values == ""]
		container := rendered[appsv1.Deployment](t, render(t, values), "Deployment", name).Spec.Template.Spec.Containers[0]
		if container.Name != "manager" || container.Args[0] != "manager" || !slices.Equal(container.Command, []string{"/usr/local/bin/sallyport"}) {
			t.Errorf("container %s runs %v %s", container.Name, container.Command, container.Args[0])
		}
		for _, arg := range container.Args[1:] {
			flag, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			value = strings.NewReplacer("$(POD_NAME)", "a", "$(POD_UID)", "b").Replace(value)
			if known.Lookup(flag) == nil {
				t.Errorf("%s: the manager has no such flag", arg)
			} else if err := known.Set(flag, value); err != nil {
				t.Errorf("%s: %v", arg, err)
			}
		}
	}
}

// The commands that messages suggest set the values of the chart where it is a part of another one.
func TestSubchart(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "platform")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(parent, "charts"), 0o700),
		os.WriteFile(filepath.Join(parent, "Chart.yaml"), []byte("{apiVersion: v2, name: platform, version: 0.1.0}"), 0o600),
		os.Rename(chart(t), filepath.Join(parent, "charts", "sallyport")),
	); err != nil {
		t.Fatal(err)
	}
	out, err := template(t, release, parent, "sallyport: {pools: {enabled: false}}")
	if err != nil || !strings.Contains(out, "- --helm-values=sallyport.\n") || !strings.Contains(out, "with the chart value sallyport.pools.enabled=true") {
		t.Errorf("in a subchart: %v\n%s", err, out)
	}
	if args := managerArgs(t, render(t, "")); slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--helm-values") }) {
		t.Errorf("in a chart of its own, %v", args)
	}
}

// The labels that are not copied are one list, too. Without the value, as in an upgrade that reuses those of an earlier chart, the program's
// applies.
func TestUncopiedLabelsAreTheDefault(t *testing.T) {
	for values, want := range map[string]string{
		"":                                     "--uncopied-labels=" + strings.Join(runtime.DefaultUncopied(), ","),
		"runtimes: {uncopiedLabels: []}":       "--uncopied-labels=",
		"runtimes: {uncopiedLabels: [a, b/*]}": "--uncopied-labels=a,b/*",
		"runtimes: {uncopiedLabels: null}":     "",
	} {
		args := managerArgs(t, render(t, values))
		i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--uncopied-labels") })
		if i < 0 && want != "" || i >= 0 && args[i] != want {
			t.Errorf("%s: want %q in %v", values, want, args)
		}
	}
}

// What policies may patch is one list, in the chart's values and in the program, which is asked without a cluster, too.
func TestPatchableIsTheDefault(t *testing.T) {
	defaults := grants.DefaultKinds()
	for values, want := range map[string]string{
		"": defaults.String(),
		"patchable: {pods: null, replicationcontrollers: null, configmaps: All, daemonsets.apps: null, replicasets.apps: null, " +
			"statefulsets.apps: null, cronjobs.batch: null, jobs.batch: null}": "configmaps=All,deployments.apps=Metadata",
	} {
		args := managerArgs(t, render(t, values))
		for _, arg := range []string{"--patchable=" + want, "--helm-release=sallyport"} {
			if !slices.Contains(args, arg) {
				t.Errorf("there is no %s in %v", arg, args)
			}
		}
	}
}
