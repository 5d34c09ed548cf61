package tools

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/support/pages"
	"sallyport.dev/sallyport/webhooks/offline"
)

var update = flag.Bool("update", false, "write golden files anew")

// requested is the time of all requests in these tests.
var requested = time.Date(2026, 5, 4, 3, 2, 1, 987654321, time.UTC)

func stopClock(t *testing.T) {
	t.Helper()
	clock = func() time.Time { return requested }
	t.Cleanup(func() { clock = time.Now })
}

// What a person and a machine read, whole.
func TestReviewGolden(t *testing.T) {
	stopClock(t)
	for name, args := range map[string][]string{
		"text":    nil,
		"verbose": {"-v"},
		"json":    {"-o", "json"},
		"xml":     {"-o", "junit"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{
				"review", "-f", "testdata/review/requests.yaml", "--state", "testdata/review/state.yaml", "--as", "alice", "--as-group", "team-a",
			}, args...)
			out, errs, code := execute(t, args...)
			if code != 1 || errs != "5 of 8 requests denied\n" {
				t.Errorf("exit %d: %s", code, errs)
			}
			pages.Golden(t, *update, "testdata/review/golden."+name, out)
		})
	}
}

// controller-runtime#1032, argo-workflows#3677: a quantity that Go does not decode is refused in whatever kind and field it stands. One that
// was taken kept every replica, and every client, from listing the kind.
func TestReviewOfQuantitiesThatGoDoesNotDecode(t *testing.T) {
	for kind, field := range map[string]string{
		"vm": "spec.runtime.vsphere.clone.disks[0].size", "pool": "spec.virtualMachineTemplate.spec.runtime.vsphere.clone.disks[0].size",
		"server": "spec.tenants[0].quota.memory",
	} {
		out, errs, code := execute(t, "review", "-f", "testdata/review/quantities/"+kind+".yaml", "--state", "testdata/review/quantities/state.yaml")
		if code != 1 || !strings.Contains(out, "DENIED") || !strings.Contains(out, field) {
			t.Errorf("%s: exit %d, want one that names %s:\n%s%s", kind, code, field, out, errs)
		}
	}
}

// folder writes files into a folder of the test's own, and goes there.
func folder(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func manifest(kind, metadata, rest string) string {
	return fmt.Sprintf("apiVersion: sallyport.dev/v1alpha1\nkind: %s\nmetadata: {%s}\n%s\n", kind, metadata, rest)
}

func machineYAML(name string) string {
	return manifest("VirtualMachine", "name: "+name, "spec: {runPolicy: Manual, runtime: {pod: {}}}\nstatus: {phase: Running}")
}

func operationYAML(name, kind string) string {
	return manifest("VirtualMachineOperation", "name: "+name, "spec: {virtualMachineName: web-1, type: "+kind+"}")
}

const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: %d}\n"

// files for the tests of flags and of bad input.
func reviewFiles(t *testing.T) map[string]string {
	t.Helper()
	rego, err := os.ReadFile("testdata/review/access.rego")
	if err != nil {
		t.Fatal(err)
	}
	access := func(onError string) string {
		return manifest("RegoPolicy", "name: access", "spec:\n  package: sallyport.example.access\n  onError: "+onError+`
  match: {resources: [{apiGroups: [sallyport.dev], apiVersions: ["*"], resources: [virtualmachineoperations], operations: [CREATE]}]}
  modules:
  - name: access.rego
    source: |
      `+strings.ReplaceAll(string(rego), "\n", "\n      "))
	}
	return map[string]string{
		"vm.yaml":            machineYAML("web-1"),
		"stop.yaml":          operationYAML("stop-1", "Stop"),
		"start.yaml":         operationYAML("start-1", "Start"),
		"two.yaml":           operationYAML("a", "Stop") + "---\n" + operationYAML("b", "Stop"),
		"stop.json":          `{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachineOperation", "metadata": {"name": "stop-1"}, "spec": {"virtualMachineName": "web-1", "type": "Stop"}}`,
		"broken.json":        "{\n\"apiVersion\": \"v1\",\n\"kind\" \"Pod\"}\n",
		"typo.yaml":          manifest("VirtualMachineOperation", "name: typo", "spec: {virtualMachineName: web-1, type: Stop, forse: true}"),
		"dir/1-vm.yaml":      machineYAML("web-1"),
		"dir/2-stop.yml":     operationYAML("stop-1", "Stop"),
		"dir/README.md":      "no object",
		"dir/sub/3.json":     `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}`,
		"empty/README.md":    "",
		"nothing.yaml":       "# nothing\n---\n",
		"text.yaml":          "# a list\n\n- a\n- b\n",
		"broken.yaml":        machineYAML("a") + "---\nkind: [\n",
		"twice.yaml":         "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nkind: Service\n",
		"nameless.yaml":      manifest("VirtualMachineOperation", "labels: {}", "spec: {virtualMachineName: web-1, type: Stop}"),
		"nokind.yaml":        "\n\napiVersion: v1\nmetadata: {name: a}\n",
		"kindnumber.yaml":    "apiVersion: v1\nkind: 7\n",
		"unknown.yaml":       strings.Replace(machineYAML("a"), "VirtualMachine", "VirtualMaschine", 1),
		"version.yaml":       strings.Replace(machineYAML("a"), "v1alpha1", "v1", 1),
		"group.yaml":         "apiVersion: a/b/c\nkind: Pod\nmetadata: {name: a}\n",
		"pot.yaml":           "apiVersion: v1\nkind: Pot\nmetadata: {name: a}\n",
		"doubled.yaml":       machineYAML("web-1") + "---\n" + machineYAML("web-1"),
		"badstate.yaml":      manifest("VirtualMachine", "name: [a]", "spec: {}"),
		"namelessstate.yaml": manifest("VirtualMachine", "labels: {}", "spec: {}"),
		"unknownfield.yaml":  machineYAML("web-1") + "colour: blue\n",
		"other.yaml":         machineYAML("web-2"),
		"vm-new.yaml":        strings.Replace(machineYAML("web-1"), "pod: {}", "kubevirt: {}", 1),
		"vm-uid.yaml":        strings.Replace(machineYAML("web-1"), "name: web-1", "name: web-1, uid: abc, resourceVersion: '7', labels: {a: b}", 1),
		"vm-uid2.yaml":       strings.Replace(machineYAML("web-1"), "name: web-1", "name: web-1, uid: xyz", 1),
		"vm-rv2.yaml":        strings.Replace(machineYAML("web-1"), "name: web-1", "name: web-1, resourceVersion: '8', labels: {a: b}", 1),
		"web-5.yaml":         fmt.Sprintf(deployment, 5),
		"web-2.yaml":         fmt.Sprintf(deployment, 2),
		"web-minus.yaml":     fmt.Sprintf(deployment, -1),
		"web-none.yaml":      strings.Replace(fmt.Sprintf(deployment, 1), "replicas: 1", "paused: true", 1),
		"twoscale.yaml":      fmt.Sprintf(deployment, 5) + "---\n" + strings.Replace(fmt.Sprintf(deployment, 5), "Deployment", "StatefulSet", 1),
		"scale.yaml":         "apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: web}\nspec: {replicas: 2}\n",
		"applicability.yaml": strings.Replace(access("Deny"), "name: access}", "name: operations-applicability}", 1),
		"oddpolicy.yaml":     strings.Replace(access("Deny"), "onError:", "mode: Enforced\n  onError:", 1),
		"access.yaml":        access("Deny"),
		"access-allow.yaml":  access("Allow"),
		"brokenpolicy.yaml":  manifest("RegoPolicy", "name: a", "spec: {package: a, modules: [{name: a.rego, source: 'package'}]}"),
		"badpolicy.yaml":     manifest("RegoPolicy", "name: a", "spec: {modus: Warn}"),
		"may.yaml":           accessReview(true), "maynot.yaml": accessReview(false),
		"mayboth.yaml":   accessReview(true) + "---\n" + accessReview(false),
		"noanswer.yaml":  strings.Replace(accessReview(true), "status: {allowed: true}", "", 1),
		"nouser.yaml":    strings.Replace(accessReview(true), "user: alice, ", "", 1),
		"noverb.yaml":    strings.Replace(accessReview(true), "verb: use, ", "", 1),
		"oddanswer.yaml": strings.Replace(accessReview(true), "user: alice, ", "usr: alice, ", 1),
		"crd.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: foxes.example.com}\n" +
			"spec: {group: example.com, scope: Cluster, names: {kind: Fox, plural: foxen}, versions: [{name: v1, served: true, storage: true}]}\n",
		"badcrd.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n",
		"fox.yaml":    "apiVersion: example.com/v1\nkind: Fox\nmetadata: {name: a}\n",
	}
}

func accessReview(allowed bool) string {
	return fmt.Sprintf("apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nspec: {user: alice, resourceAttributes: {verb: use, "+
		"group: sallyport.dev, resource: virtualmachines, namespace: default, name: web-1}}\nstatus: {allowed: %v}\n", allowed)
}

// Every flag, by what it changes.
func TestReviewFlags(t *testing.T) {
	files := reviewFiles(t)
	folder(t, files)
	for name, tc := range map[string]struct {
		args  string
		stdin string
		code  int
		texts []string
	}{
		"admitted":                 {"-f stop.yaml --state vm.yaml", "", 0, []string{"ADMITTED", "virtualmachineoperation.sallyport.dev/stop-1 created"}},
		"denied":                   {"-f start.yaml --state vm.yaml", "", 1, []string{"DENIED", "Error from server (PhaseForbids)", "1 of 1 requests denied"}},
		"no state":                 {"-f stop.yaml", "", 1, []string{"Error from server (VirtualMachineNotFound)", "does not exist in namespace default", "No --state is given"}},
		"JSON":                     {"-f stop.json --state vm.yaml", "", 0, []string{"stop-1 created"}},
		"standard input":           {"-f - --state vm.yaml", files["stop.yaml"], 0, []string{"stop-1 created", "<stdin>:1"}},
		"state on standard input":  {"-f stop.yaml --state -", files["vm.yaml"], 0, []string{"stop-1 created"}},
		"several files, in order":  {"-f vm.yaml,stop.yaml -f start.yaml", "", 1, []string{"web-1 created", "stop-1 created", "Stop stop-1 is pending"}},
		"a folder":                 {"-f dir", "", 0, []string{"web-1 created", "stop-1 created", "configmap/c created", "3 requests admitted"}},
		"a folder without others":  {"-f dir --recursive=false", "", 0, []string{"web-1 created", "stop-1 created", "2 requests admitted"}},
		"state in a folder":        {"-f start.yaml --state dir", "", 1, []string{"OperationInProgress", "PhaseForbids"}},
		"who asks":                 {"-f stop.yaml --state vm.yaml --as alice --as-group dev --as-group ops", "", 0, []string{`"username":"alice"`, `["dev","ops","system:authenticated"]`}},
		"a service account asks":   {"-f stop.yaml --state vm.yaml --as system:serviceaccount:a:b", "", 0, []string{`["system:serviceaccounts","system:serviceaccounts:a","system:authenticated"]`}},
		"nobody asks":              {"-f stop.yaml --state vm.yaml", "", 0, []string{`"username":"kubernetes-admin"`}},
		"another namespace":        {"-f stop.yaml --state vm.yaml -n team", "", 0, []string{"namespace team"}},
		"update of what is there":  {"-f vm-new.yaml --state vm.yaml", "", 1, []string{"UPDATE", "cannot change to another runtime"}},
		"update of an old file":    {"-f vm-new.yaml --old vm.yaml", "", 1, []string{"UPDATE", "cannot change to another runtime"}},
		"old before state":         {"-f vm-new.yaml --old vm-new.yaml --state vm.yaml", "", 0, []string{"web-1 replaced"}},
		"update of nothing":        {"-f vm.yaml --operation UPDATE", "", 1, []string{`Error from server (NotFound): virtualmachines.sallyport.dev "web-1" not found`}},
		"creation of what exists":  {"-f vm.yaml --operation create --state vm.yaml", "", 1, []string{`(AlreadyExists): virtualmachines.sallyport.dev "web-1" already exists`}},
		"deletion":                 {"-f vm.yaml --operation DELETE --state vm.yaml", "", 0, []string{"web-1 deleted"}},
		"deletion of the file":     {"-f vm.yaml --operation DELETE", "", 0, []string{"web-1 deleted", "VirtualMachine default/web-1 is not in the state; the object in vm.yaml:1 is used"}},
		"UID of the wrong one":     {"-f vm-uid2.yaml --state vm-uid.yaml", "", 1, []string{"(Conflict)", "UID in precondition: xyz, UID in object meta: abc"}},
		"UID where none is known":  {"-f vm-uid2.yaml --state vm.yaml", "", 0, []string{"web-1 replaced"}},
		"version of an old one":    {"-f vm-rv2.yaml --state vm-uid.yaml", "", 1, []string{"(Conflict)", "the object has been modified"}},
		"unknown field, strictly":  {"-f typo.yaml --state vm.yaml", "", 1, []string{`strict decoding error: unknown field "spec.forse"`, "typo.yaml:4: spec.forse"}},
		"unknown field, a warning": {"-f typo.yaml --state vm.yaml --validate warn", "", 0, []string{`Warning: unknown field "spec.forse"`, "- spec.forse: true"}},
		"unknown field, ignored":   {"-f typo.yaml --state vm.yaml --validate ignore", "", 0, []string{"- spec.forse: true"}},
		"unknown field in state":   {"-f stop.yaml --state unknownfield.yaml", "", 0, []string{`Warning: unknownfield.yaml:1: VirtualMachine has no field "colour"`}},
		"scale by its parent":      {"-f web-2.yaml --subresource scale --state web-5.yaml", "", 0, []string{"deployment.apps/web scaled"}},
		"scale by a Scale":         {"-f scale.yaml --subresource scale --state web-5.yaml", "", 0, []string{"deployment.apps/web scaled"}},
		"scale of an old file":     {"-f scale.yaml --subresource scale --old web-5.yaml", "", 0, []string{"deployment.apps/web scaled"}},
		"scale below nothing":      {"-f web-minus.yaml --subresource scale --state web-5.yaml", "", 1, []string{`The Scale "web" is invalid: spec.replicas:`}},
		"policies of a folder":     {"-f start.yaml --state vm.yaml --policies POLICIES", "", 0, []string{"start-1 created"}},
		"none of the shipped":      {"-f start.yaml --state vm.yaml,may.yaml --policies access.yaml --as alice", "", 0, []string{"Note: no shipped policy was evaluated"}},
		"beside the shipped": {
			"-f start.yaml --state vm.yaml,may.yaml --add-policies access.yaml --as alice", "", 1, []string{"[operations-applicability/PhaseForbids]", "PhaseForbids"}},
		"what is beside the shipped denies": {
			"-f stop.yaml --state vm.yaml,maynot.yaml --add-policies access.yaml --as alice", "", 1, []string{"(NotYours)", "alice may not use it"}},
		"in place of one of the shipped": {
			"-f start.yaml --state vm.yaml,may.yaml --add-policies applicability.yaml --as alice -v", "", 0, []string{"policy operations-applicability (validate, Enforce): allowed", "policy defaults"}},
		"beside some of a folder": {
			"-f start.yaml --state vm.yaml,may.yaml --policies POLICIES --add-policies access.yaml --as alice -v", "", 0, []string{"policy access (validate, Enforce): allowed"}},
		"policies of several files": {
			"-f start.yaml --state vm.yaml,may.yaml --policies applicability.yaml,access.yaml --as alice -v", "", 0, []string{"policy access (", "policy operations-applicability ("}},
		"policies of a file":       {"-f start.yaml --state vm.yaml,may.yaml --policies access.yaml --as alice", "", 0, []string{"start-1 created"}},
		"access granted to others": {"-f start.yaml --state vm.yaml,may.yaml --policies access.yaml --as bob", "", 2, []string{"UNDECIDED", `"user": "bob"`, "1 of 1 requests undecided"}},
		"access denied":            {"-f start.yaml --state vm.yaml,maynot.yaml --policies access.yaml --as alice", "", 1, []string{"DENIED", "(NotYours)", "alice may not use it"}},
		"access not known": {"-f start.yaml --state vm.yaml --policies access.yaml", "", 2, []string{
			"UNDECIDED", "FactUnavailable", `"resourceAttributes": {"namespace":"default","verb":"use","group":"sallyport.dev","resource":"virtualmachines","name":"web-1"}`}},
		"JUnit of what is not known": {"-f start.yaml --state vm.yaml --policies access.yaml -o junit", "", 2, []string{
			`errors="1"`, `<error type="FactUnavailable" message="admission webhook`, `start.yaml:1: Error from server (FactUnavailable)`, `<system-err>no shipped policy`}},
		"JUnit of what a cluster may admit": {"-f start.yaml --state vm.yaml --policies access-allow.yaml -o junit", "", 2, []string{
			`errors="1"`, `<error type="Undecided" message="[access/FactUnavailable] policy evaluation failed: `, "<system-out>Warning: [access/FactUnavailable]"}},
		"JUnit of what is admitted":       {"-f stop.yaml --state vm.yaml -o junit", "", 0, []string{`<testsuite name="sallyport review" tests="1" failures="0" errors="0"`}},
		"JSON of other policies":          {"-f start.yaml --state vm.yaml --policies POLICIES -o json", "", 0, []string{"\"notes\": [\n        \"no shipped policy was evaluated"}},
		"access not known, error allowed": {"-f start.yaml --state vm.yaml --policies access-allow.yaml", "", 2, []string{"UNDECIDED", "Warning: [access/FactUnavailable]"}},
		"a kind that the state defines":   {"-f fox.yaml --state crd.yaml -o json", "", 0, []string{`"resource": "foxen.example.com"`}},
		"everything that is said": {"-f stop.yaml --state vm.yaml -v", "", 0, []string{
			"policy defaults (mutate, Enforce): allowed, 4 fields patched", "policy operations-supersede (validate, Enforce): allowed"}},
		"a policy": {"-f access.yaml", "", 1, []string{"[policies-self/TestsMissing] spec.tests: RegoPolicy access has no tests"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields(tc.args)
			for i := range args {
				if args[i] == "POLICIES" {
					args[i] = supersedeFolder(t)
				}
			}
			out, errs, code := executeWith(t, tc.stdin, append([]string{"review"}, args...)...)
			if code != tc.code {
				t.Errorf("exit %d, want %d", code, tc.code)
			}
			for _, text := range tc.texts {
				if !strings.Contains(out+errs, text) {
					t.Errorf("%q is not said", text)
				}
			}
			if t.Failed() {
				t.Logf("%s%s", out, errs)
			}
		})
	}
}

// supersedeFolder is a folder without the policy that has something against a Start now.
func supersedeFolder(t *testing.T) string {
	t.Helper()
	return filepath.Join(repository, "policies", "lib")
}

// repository is the folder of the module, whatever folder a test goes to.
var repository = func() string {
	dir, err := filepath.Abs("../../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

func executeWith(t *testing.T, stdin string, args ...string) (out, errs string, code int) {
	t.Helper()
	command := newCommand()
	var stdout, stderr bytes.Buffer
	command.SetIn(strings.NewReader(stdin))
	command.SetOut(&stdout)
	command.SetErr(&stderr)
	command.SetArgs(args)
	code = Run(t.Context(), command)
	return stdout.String(), stderr.String(), code
}

// What cannot be reviewed is said with file and line, and nothing else is.
func TestReviewRefusesBadInput(t *testing.T) {
	folder(t, reviewFiles(t))
	for name, tc := range map[string]struct{ args, text string }{
		"nothing":                       {"", "specify files with --filename"},
		"an argument":                   {"stop.yaml", "unknown command"},
		"a missing file":                {"-f no.yaml", "no.yaml: no such file"},
		"a missing state":               {"-f stop.yaml --state no.yaml", "no.yaml: no such file"},
		"a missing old":                 {"-f stop.yaml --old no.yaml", "no.yaml: no such file"},
		"missing policies":              {"-f stop.yaml --policies no", "reading policies:\nstat no: no such file"},
		"an empty folder":               {"-f empty", "empty: no file in it ends in .json, .yaml, .yml"},
		"an empty file":                 {"-f nothing.yaml", "no object in nothing.yaml"},
		"a list of texts":               {"-f text.yaml", "text.yaml:3: not an object"},
		"YAML that is none":             {"-f broken.yaml", "broken.yaml:7: "},
		"JSON that is none":             {"-f broken.json", "broken.json:3: "},
		"a key twice":                   {"-f twice.yaml", `twice.yaml:4: key "kind" already set in map`},
		"no kind":                       {"-f nokind.yaml", "nokind.yaml:3: kind is missing"},
		"a kind that is a number":       {"-f kindnumber.yaml", "kindnumber.yaml:1: kind is 7, not a string"},
		"an unknown kind of ours":       {"-f unknown.yaml", "unknown.yaml:1: unknown kind VirtualMaschine in sallyport.dev/v1alpha1; known are v1alpha1 RegoPolicy, v1alpha1 VMDiskImage, v1alpha1 VSphereServer"},
		"an unknown version of ours":    {"-f version.yaml", "version.yaml:1: unknown kind VirtualMachine in sallyport.dev/v1; "},
		"an unknown kind of core":       {"-f pot.yaml", "pot.yaml:1: unknown kind Pot in v1"},
		"no group":                      {"-f group.yaml", "group.yaml:1: apiVersion: unexpected GroupVersion string"},
		"standard input twice":          {"-f - --state -", "standard input can be read only once"},
		"an operation":                  {"-f stop.yaml --operation PATCH", `invalid argument "PATCH" for "--operation" flag: must be CREATE, UPDATE, DELETE or CONNECT`},
		"a subresource":                 {"-f stop.yaml --subresource status", `invalid argument "status" for "--subresource" flag: must be scale, `},
		"an output":                     {"-f stop.yaml -o yaml", `invalid argument "yaml" for "-o, --output" flag: must be text, json or junit`},
		"a validation":                  {"-f stop.yaml --validate true", `invalid argument "true" for "--validate" flag: must be strict, warn or ignore`},
		"no user":                       {"-f stop.yaml --as=", "--as must not be empty"},
		"no namespace":                  {"-f stop.yaml --namespace=", "--namespace must not be empty"},
		"old of two":                    {"-f two.yaml --old vm.yaml", "--old requires exactly one request; found 2: two.yaml:1 and two.yaml:6"},
		"two olds":                      {"-f stop.yaml --old two.yaml", "--old must contain exactly one object; found two.yaml:1 and two.yaml:6"},
		"no old":                        {"-f stop.yaml --old nothing.yaml", "--old: no object in nothing.yaml"},
		"old of another":                {"-f vm.yaml --old other.yaml", "other.yaml:1: the old object is VirtualMachine default/web-2, but the request in vm.yaml:1 is about VirtualMachine default/web-1"},
		"old at a creation":             {"-f vm.yaml --old vm.yaml --operation CREATE", "vm.yaml:1: CREATE has no old object"},
		"an update of no name":          {"-f nameless.yaml --operation UPDATE", "nameless.yaml:1: metadata.name is missing"},
		"state with duplicates":         {"-f stop.yaml --state doubled.yaml", "doubled.yaml:7: VirtualMachine default/web-1 is also in doubled.yaml:1"},
		"state in two files":            {"-f stop.yaml --state vm.yaml,dir", "dir/1-vm.yaml:1: VirtualMachine default/web-1 is also in vm.yaml:1"},
		"state of a wrong shape":        {"-f stop.yaml --state badstate.yaml", "badstate.yaml:1: json: cannot unmarshal array"},
		"state without a name":          {"-f stop.yaml --state namelessstate.yaml", "namelessstate.yaml:1: metadata.name is missing"},
		"access answered twice":         {"-f stop.yaml --state mayboth.yaml", "mayboth.yaml:6: the SubjectAccessReview has another answer than the one in mayboth.yaml:1"},
		"access not answered":           {"-f stop.yaml --state noanswer.yaml", "noanswer.yaml:1: the SubjectAccessReview needs status.allowed"},
		"access of nobody":              {"-f stop.yaml --state nouser.yaml", "nouser.yaml:1: the SubjectAccessReview needs spec.user"},
		"access to nothing":             {"-f stop.yaml --state noverb.yaml", "noverb.yaml:1: the SubjectAccessReview needs spec.resourceAttributes with verb and resource"},
		"access misspelled":             {"-f stop.yaml --state oddanswer.yaml", "oddanswer.yaml:1: reading the SubjectAccessReview: "},
		"a definition of nothing":       {"-f stop.yaml --state badcrd.yaml", "badcrd.yaml:1: the definition needs spec.group"},
		"a policy that is none":         {"-f stop.yaml --policies vm.yaml", "vm.yaml:1: VirtualMachine of sallyport.dev/v1alpha1 is not a RegoPolicy"},
		"a policy of another shape":     {"-f stop.yaml --policies badpolicy.yaml", `badpolicy.yaml:4: unknown field "spec.modus"`},
		"a policy that is broken":       {"-f stop.yaml --policies brokenpolicy.yaml", "\nbrokenpolicy.yaml:1: a/a.rego:1:7: unexpected eof"},
		"a policy that no cluster has":  {"-f stop.yaml --policies oddpolicy.yaml", "oddpolicy.yaml:6: spec.mode: Unsupported value: \"Enforced\""},
		"policies that are there twice": {"-f stop.yaml --policies access.yaml,access-allow.yaml", "access-allow.yaml:1: RegoPolicy access is also in access.yaml:1"},
		"no policies on standard input": {"-f stop.yaml --policies -", "<stdin>: no RegoPolicy found"},
		"a folder without policies":     {"-f stop.yaml --policies dir", "dir/1-vm.yaml:1: VirtualMachine of sallyport.dev/v1alpha1 is not a RegoPolicy"},
		"a folder without anything":     {"-f stop.yaml --policies empty", "empty: no file in it ends in .json, .yaml, .yml"},
		"a scale by itself":             {"-f scale.yaml --state web-5.yaml", "scale.yaml:1: a Scale is a subresource; review it with subresource scale"},
		"a scale of nothing":            {"-f scale.yaml --subresource scale", "scale.yaml:1: the state has no object for Scale default/web"},
		"a scale of two":                {"-f scale.yaml --subresource scale --state twoscale.yaml", "scale.yaml:1: the Scale could be that of Deployment default/web or of StatefulSet default/web"},
		"a scale of no number":          {"-f web-none.yaml --subresource scale --state web-5.yaml", "web-none.yaml:1: spec.replicas is missing"},
		"a scale of a machine":          {"-f vm.yaml --subresource scale --state vm.yaml", "vm.yaml:1: VirtualMachine has no subresource scale"},
		"a scale of another":            {"-f web-2.yaml --subresource scale --old vm.yaml", "web-2.yaml:1: VirtualMachine has no subresource scale"},
		"a scale that is deleted":       {"-f scale.yaml --subresource scale --operation DELETE --state web-5.yaml", "scale.yaml:1: a Scale can only be updated; the operation is DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := executeWith(t, "", append([]string{"review"}, strings.Fields(tc.args)...)...)
			if code != 2 || out != "" || !strings.Contains(errs, tc.text) {
				t.Errorf("exit %d, want 2 with %q\n%s%s", code, tc.text, out, errs)
			}
		})
	}
}

// A report counts what it lists, and its objects are whole.
func TestReviewReportAddsUp(t *testing.T) {
	out, _, _ := execute(t, "review", "-f", "testdata/review/requests.yaml", "--state", "testdata/review/state.yaml", "-o", "json")
	var report offline.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	counted := map[offline.Verdict]int{}
	for _, r := range report.Results {
		counted[r.Verdict]++
		if r.Object["kind"] != r.Kind || (r.Status == nil) != (r.Verdict == offline.Admitted) {
			t.Errorf("%s:%d: status %v, object %v", r.File, r.Line, r.Status, r.Object)
		}
	}
	want := map[offline.Verdict]int{offline.Admitted: report.Admitted, offline.Denied: report.Denied}
	if !maps.Equal(counted, want) {
		t.Errorf("counted are %v, said %v", counted, want)
	}
}

// What is asked of a suspended machine is admitted if it can work (machine-controller#299): its guest hears nothing.
func TestReviewOfASuspendedMachine(t *testing.T) {
	folder(t, map[string]string{
		"state.yaml":   strings.Replace(machineYAML("web-1"), "Running", "Paused", 1),
		"Start.yaml":   operationYAML("o", "Start"),
		"Stop.yaml":    operationYAML("o", "Stop"),
		"Restart.yaml": operationYAML("o", "Restart"),
		"Forced.yaml":  operationYAML("o", "Stop, force: true"),
		"Anew.yaml":    operationYAML("o", "Restart, force: true"),
		"Migrate.yaml": operationYAML("o", "Migrate"),
	})
	const refused = "is not allowed because its phase is Paused; allowed in phase Paused: start, stop --force, restart --force"
	for file, denied := range map[string]bool{"Start": false, "Stop": true, "Restart": true, "Forced": false, "Anew": false, "Migrate": true} {
		out, errs, code := execute(t, "review", "-f", file+".yaml", "--state", "state.yaml")
		if (code == 1) != denied || code > 1 || strings.Contains(out, refused) != denied {
			t.Errorf("%s: exit %d: %s%s", file, code, out, errs)
		}
	}
}
