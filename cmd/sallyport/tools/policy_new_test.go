package tools

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/format"
)

const ownerless = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, labels: {%s: team-a}}\nspec: {}\n"

// What a policy begins as is in order, formatted and fully tested, whatever it is about.
func TestPolicyNew(t *testing.T) {
	for name, tc := range map[string]struct{ args, folder, texts string }{
		"as it is":              {"owner", "policies/owner", "name: owner|package: policies.owner|apiGroups: [apps]|operations: [CREATE, UPDATE]|excludeNamespaces"},
		"with a hyphen":         {"no-owner", "policies/no_owner", "name: no-owner|package: policies.no_owner"},
		"in a folder":           {"team-a/owner", "policies/team_a/owner", "name: team-a-owner|package: policies.team_a.owner"},
		"in another place":      {"owner --dir a/b", "a/b/owner", "package: policies.owner"},
		"creations only":        {"owner --operation create", "policies/owner", "operations: [CREATE]"},
		"changes only":          {"owner --operation UPDATE,UPDATE", "policies/owner", "operations: [UPDATE]"},
		"the core group":        {"owner --resource configmaps", "policies/owner", `apiGroups: [""]|resources: [configmaps]`},
		"no namespace":          {"owner --resource clusterroles.rbac.authorization.k8s.io", "policies/owner", "resources: [clusterroles]"},
		"a kind of ours":        {"owner --resource virtualmachines.sallyport.dev", "policies/owner", "apiGroups: [sallyport.dev]|Every VirtualMachine has an owner"},
		"a kind of somebody's":  {"owner --resource foxes.example.com", "policies/owner", "apiGroups: [example.com]"},
		"the name of a builtin": {"count", "policies/count", "package: policies.count"},
		"the name of a root":    {"input", "policies/input", "package: policies.input"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			out, errs, code := execute(t, append([]string{"policy", "new"}, strings.Fields(tc.args)...)...)
			if code != 0 || !strings.HasPrefix(out, tc.folder+" created.") {
				t.Fatalf("exit %d\n%s%s", code, out, errs)
			}
			written := ""
			stem := filepath.Base(tc.folder)
			for _, file := range []string{"policy.yaml", stem + ".rego", stem + "_test.rego"} {
				text, err := os.ReadFile(filepath.Join(tc.folder, file))
				if err != nil {
					t.Fatal(err)
				}
				written += string(text)
				if filepath.Ext(file) != ".rego" {
					continue
				}
				if formatted, err := format.Source(file, text); err != nil || string(formatted) != string(text) {
					t.Errorf("%s is not as opa fmt writes it: error %v", file, err)
				}
			}
			for _, text := range strings.Split(tc.texts, "|") {
				if !strings.Contains(written, text) {
					t.Errorf("%q is not in\n%s", text, written)
				}
			}
			if name == "no namespace" && strings.Contains(written, "excludeNamespaces") {
				t.Error("it has namespaces")
			}
			root := "policies"
			if _, dir, is := strings.Cut(tc.args, "--dir "); is {
				root = dir
			}
			for _, folder := range []string{tc.folder, root} {
				for _, command := range []string{"policy check", "policy test --coverage 100", "policy manifest"} {
					if out, errs, code := execute(t, append(strings.Fields(command), folder)...); code != 0 {
						t.Errorf("%s: exit %d\n%s%s", command, code, out, errs)
					}
				}
			}
		})
	}
}

// It does what its title says: first warns, then, in another mode, refuses.
func TestPolicyNewRefuses(t *testing.T) {
	folder(t, map[string]string{
		"bad.yaml": fmt.Sprintf(ownerless, "app"), "good.yaml": fmt.Sprintf(ownerless, "owner"),
		"dying.yaml": strings.Replace(fmt.Sprintf(ownerless, "app"), "name:", "deletionTimestamp: 2026-01-02T03:04:05Z, finalizers: [a.example/b], name:", 1),
	})
	if out, errs, code := execute(t, "policy", "new", "owner"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	packed, _, _ := execute(t, "policy", "manifest", "policies")
	if out, errs, code := executeWith(t, packed, "review", "-f", "-"); code != 0 || !strings.Contains(out, "regopolicy.sallyport.dev/owner created") {
		t.Errorf("a cluster does not take it: exit %d\n%s%s", code, out, errs)
	}
	review := func(file string, code int, text string, more ...string) {
		t.Helper()
		out, errs, got := execute(t, append([]string{"review", "-f", file, "--add-policies", "policies"}, more...)...)
		if got != code || !strings.Contains(out, text) || strings.Contains(out, "Warning") && code == 0 && text == "deployment.apps/web" {
			t.Errorf("%s: exit %d, want %d with %q\n%s%s", file, got, code, text, out, errs)
		}
	}
	review("bad.yaml", 0, "Warning: [owner/OwnerMissing] would be denied: Deployment web is not allowed because label owner is missing; set it to the name of your team")
	review("good.yaml", 0, "deployment.apps/web")
	edit(t, "policies/owner/policy.yaml", "mode: Warn", "mode: Enforce")
	review("bad.yaml", 1, "Error from server (OwnerMissing): ")
	review("good.yaml", 0, "deployment.apps/web")
	review("dying.yaml", 0, "deployment.apps/web", "--old", "dying.yaml")
}

// Nothing is overwritten, and nothing is left behind by what is refused.
func TestPolicyNewRefusesBadInput(t *testing.T) {
	folder(t, map[string]string{"policies/mine/notes.txt": "mine", "file": ""})
	for name, tc := range map[string]struct{ args, text string }{
		"a folder that is there":   {"mine", "policies/mine already exists"},
		"a file for a folder":      {"owner --dir file", "file"},
		"no name":                  {"", "accepts 1 arg"},
		"capitals":                 {"Owner", `invalid policy name "Owner"`},
		"a dot":                    {"../owner", "invalid policy name"},
		"an absolute path":         {"/owner", "invalid policy name"},
		"a hyphen at the end":      {"owner-", "invalid policy name"},
		"a word of Rego":           {"default", "default is a Rego keyword"},
		"a folder of such a name":  {"import/owner", "import is a Rego keyword"},
		"the name of a test":       {"owner-test", "the suffix _test is reserved for tests"},
		"a long name":              {strings.Repeat("a", 250), "too long"},
		"a subresource":            {"owner --resource deployments.apps/scale", "without a subresource"},
		"all resources":            {"owner --resource *", "invalid --resource"},
		"a kind":                   {"owner --resource Deployment", "invalid --resource"},
		"the singular":             {"owner --resource pod", "did you mean pods?"},
		"no group":                 {"owner --resource deployments", "did you mean deployments.apps?"},
		"one of ours that is none": {"owner --resource machines.sallyport.dev", "no such resource"},
		"a deletion":               {"owner --operation CREATE,DELETE", "input.request.oldObject"},
		"another operation":        {"owner --operation PATCH", `invalid --operation "PATCH": must be CREATE or UPDATE`},
		"no operation":             {"owner --operation=", "--operation is required: CREATE or UPDATE"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := execute(t, append([]string{"policy", "new"}, strings.Fields(tc.args)...)...)
			if code != 2 || out != "" || !strings.Contains(errs, tc.text) {
				t.Errorf("exit %d, want 2 with %q\n%s%s", code, tc.text, out, errs)
			}
		})
	}
	if entries, err := os.ReadDir("policies"); err != nil || len(entries) != 1 {
		t.Errorf("there is %v in policies, %v", entries, err)
	}
	if text, err := os.ReadFile("policies/mine/notes.txt"); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
}
