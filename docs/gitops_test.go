package docs_test

import (
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/test/support/pages"
)

// The script for Argo CD says of an object what its status says.
func TestHealthForArgoCD(t *testing.T) {
	script := healthScript(t)
	for name, tc := range map[string]struct{ metadata, status, health, message string }{
		"no status":          {"generation = 1", "nil", "Progressing", "Sallyport has not seen this generation yet"},
		"no conditions":      {"generation = 1", "{observedGeneration = 1}", "Progressing", "Sallyport has not seen this generation yet"},
		"another generation": {"generation = 2", conditions("1", "Running", "Ready", "True"), "Progressing", "Sallyport has not seen this generation yet"},
		"not ready":          {"generation = 2", conditions("2", "Starting", "Ready", "False"), "Progressing", "why"},
		"ready":              {"generation = 2", conditions("2", "Stopped", "Ready", "True"), "Healthy", "why"},
		"failed":             {"generation = 2", conditions("2", "Failed", "Ready", "False"), "Degraded", "why"},
		"a failed operation": {"generation = 1", conditions("1", "Failed", "Completed", "True"), "Degraded", "why"},
		"an ended operation": {"generation = 1", conditions("1", "Completed", "Completed", "True"), "Healthy", "why"},
	} {
		t.Run(name, func(t *testing.T) {
			state := lua.NewState()
			defer state.Close()
			if err := state.DoString("obj = {metadata = {" + tc.metadata + "}, status = " + tc.status + "}\n" + script); err != nil {
				t.Fatal(err)
			}
			got, ok := state.Get(-1).(*lua.LTable)
			if !ok {
				t.Fatalf("the script returns %v", state.Get(-1))
			}
			if health, message := got.RawGetString("status").String(), got.RawGetString("message").String(); health != tc.health || message != tc.message {
				t.Errorf("%s: %s, want %s: %s", health, message, tc.health, tc.message)
			}
		})
	}
}

func conditions(observed, phase, condition, is string) string {
	return `{observedGeneration = ` + observed + `, phase = "` + phase + `", conditions = {{type = "Other", status = "True", message = "other"},
		{type = "` + condition + `", status = "` + is + `", message = "why"}, {type = "Later", status = "False", message = "later"}}}`
}

// healthScript is the one of the page, read as Argo CD reads its settings.
func healthScript(t *testing.T) string {
	t.Helper()
	for _, p := range pages.All(t, root) {
		for _, b := range p.Blocks {
			if !strings.Contains(b.Text, "name: argocd-cm") {
				continue
			}
			settings, customizations := corev1.ConfigMap{}, map[string]map[string]string{}
			if err := yaml.UnmarshalStrict([]byte(b.Text), &settings); err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict([]byte(settings.Data["resource.customizations"]), &customizations); err != nil {
				t.Fatal(err)
			}
			return customizations["sallyport.dev/*"]["health.lua"]
		}
	}
	t.Fatal("no page has the settings of Argo CD")
	return ""
}
