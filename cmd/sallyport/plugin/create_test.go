package plugin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// least is the shortest command line that makes a machine.
const least = "create vm web-1 --vsphere-server vc --template /dc/vm/templates/ubuntu --folder /dc/vm/team --resource-pool /dc/host/c" +
	" --datastore /dc/datastore/fast --network /dc/network/a"

// nowhere runs the plugin with a kubeconfig that leads nowhere, and gives what the user reads.
func nowhere(t *testing.T, line string) (stdout, stderr string, code int) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config")
	err := os.WriteFile(config, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"contexts": [{"name": "x", "context": {"cluster": "x", "namespace": "team"}}],
		"clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	streams, _, out, errs := genericiooptions.NewTestIOStreams()
	code = run(t.Context(), cli.New(streams), append(strings.Fields(line), "--kubeconfig", config))
	return out.String(), errs.String(), code
}

const shortest = `apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata:
  name: web-1
  namespace: team
spec:
  runtime:
    vsphere:
      clone:
        datastore: /dc/datastore/fast
        folder: /dc/vm/team
        networks:
        - /dc/network/a
        resourcePool: /dc/host/c
        template:
          inventoryPath: /dc/vm/templates/ubuntu
      serverRef:
        name: vc
`

// A manifest says what the flags say, and nothing else.
func TestManifestOfAMachine(t *testing.T) {
	out, errs, code := nowhere(t, least+" --dry-run=client -o yaml")
	if diff := cmp.Diff(shortest, out); diff != "" || code != 0 || errs != "" {
		t.Errorf("exit %d, %s (-want +got):\n%s", code, errs, diff)
	}
	out, errs, code = nowhere(t, least+" --network /dc/network/b,c --cpu 4 --memory 8Gi --disk 40Gi --disk 1Ti --user-data-secret data"+
		" --hostname web.example --run-policy AlwaysOn --node esx-1 --node-selector zone=b,disk=nvme --node-selector rack="+
		" --storage-policy encrypted --dry-run=client -o json")
	var got v1alpha1.VirtualMachine
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || errs != "" {
		t.Fatalf("exit %d, %s: %v", code, errs, err)
	}
	want := v1alpha1.VirtualMachineSpec{
		RunPolicy: v1alpha1.RunPolicyAlwaysOn, NodeName: "esx-1", CPU: new(int32(4)), Memory: new(resource.MustParse("8Gi")),
		NodeSelector: map[string]v1alpha1.LabelValue{"zone": "b", "disk": "nvme", "rack": ""},
		Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
			ServerRef: v1alpha1.VSphereServerReference{Name: "vc"},
			Clone: &v1alpha1.VSphereClone{
				Template: v1alpha1.VSphereCloneSource{InventoryPath: "/dc/vm/templates/ubuntu"},
				Folder:   "/dc/vm/team", ResourcePool: "/dc/host/c", Datastore: "/dc/datastore/fast", StoragePolicy: "encrypted",
				Networks:  []v1alpha1.InventoryPath{"/dc/network/a", "/dc/network/b,c"},
				Disks:     []v1alpha1.VSphereCloneDisk{{Size: resource.MustParse("40Gi")}, {Size: resource.MustParse("1Ti")}},
				Hostname:  "web.example",
				CloudInit: &v1alpha1.CloudInit{SecretRef: v1alpha1.CloudInitSecretReference{Name: "data"}},
			},
		}},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	chosen := strings.Replace(least, "--datastore /dc/datastore/fast", "--storage-policy gold", 1)
	if out, errs, code := nowhere(t, chosen+" --dry-run=client -o yaml"); code != 0 || strings.Contains(out, "datastore") || !strings.Contains(out, "storagePolicy: gold\n") {
		t.Errorf("exit %d, %s: %s", code, errs, out)
	}
	for flags, want := range map[string]string{
		"ubuntu":                    "template:\n          templateRef:\n            name: ubuntu\n",
		"ubuntu --failure-domain a": "template:\n          templateRef:\n            failureDomain: a\n            name: ubuntu\n",
	} {
		line := strings.Replace(least, "/dc/vm/templates/ubuntu", flags, 1)
		if out, errs, code := nowhere(t, line+" --dry-run=client -o yaml"); code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, %s: %s", code, errs, out)
		}
	}
	if out, _, code := nowhere(t, least+" --dry-run=client"); code != 0 || out != "virtualmachine.sallyport.dev/web-1 created (dry run)\n" {
		t.Errorf("exit %d: %q", code, out)
	}
}

// An error of the command line names the flag.
func TestMachineThatCannotBeCreated(t *testing.T) {
	for line, want := range map[string]string{
		"create":                      "specify what to create: vm",
		"create vm":                   "specify exactly one NAME, got 0",
		"create vm a b":               "specify exactly one NAME, got 2",
		least + " --failure-domain a": "--failure-domain requires a VSphereTemplate, but --template /dc/vm/templates/ubuntu is an inventory path",
		"create vm a --template /t":   "required: --vsphere-server, --folder, --resource-pool, --network, --datastore or --storage-policy",
		least + " --cpu 0":            "invalid --cpu 0: must be at least 1",
		least + " --cpu many":         "invalid argument \"many\" for \"--cpu\" flag",
		least + " --memory much":      "invalid --memory \"much\": must be a size, such as 8Gi",
		least + " --memory 0":         "invalid --memory \"0\": must be a size",
		least + " --disk 40GiB":       "invalid --disk \"40GiB\": must be a size",
		least + " --disk -1Gi":        "invalid --disk \"-1Gi\": must be a size",
		least + " --run-policy Off":   `invalid argument "Off" for "--run-policy" flag: must be AlwaysOn, AlwaysOnUnlessStoppedManually, Manual or AlwaysOff`,
		least + " --node-selector b":  `invalid argument "b" for "--node-selector" flag: b must be formatted as key=value`,
		least + " --dry-run=maybe":    `invalid argument "maybe" for "--dry-run" flag: must be none, server or client`,
		least + " -o table":           "unable to match a printer suitable for the output format \"table\"",
		least + " --nothing-of-this":  "unknown flag: --nothing-of-this",
	} {
		if out, errs, code := nowhere(t, line); code != 1 || out != "" || !strings.Contains(errs, want) || !strings.Contains(errs, "--help' for usage") {
			t.Errorf("%s: exit %d, %q, %q, want %q", line, code, out, errs, want)
		}
	}
}

// What is created is what the API server makes of it; what it refuses is told as it says it.
func TestCreateMachine(t *testing.T) {
	tm := newTeam(t)
	tm.sallyport(least, 1, "Error from server (VSphereServerNotFound): ", "VSphereServer vc does not exist")
	tm.must(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VSphereServer", "metadata": {"name": "`+tm.namespace+`"}, "spec": {
		"url": "https://vc.example.org", "trust": {"thumbprint": "`+strings.Repeat("00:", 31)+`00"}, "credentialsSecretRef": {"name": "vc"},
		"tenants": [{"name": "all", "namespaces": {"names": ["`+tm.namespace+`"]}, "folders": ["/dc/vm/team"], "resourcePools": ["/dc/host/c"],
			"datastores": ["/dc/datastore/fast"], "networks": ["/dc/network"], "templates": ["/dc/vm/templates"]}]}}`, "create", "-f", "-")
	line := strings.Replace(least, "-server vc ", "-server "+tm.namespace+" ", 1)
	tm.sallyport(line+" --dry-run=server", 0, "virtualmachine.sallyport.dev/web-1 created (server dry run)\n")
	tm.sallyport(line+" --cpu 1000", 1, "spec.cpu")
	tm.sallyport(line+" --cpu 2 -o yaml", 0, "uid: ", "cpu: 2\n", "runPolicy: AlwaysOnUnlessStoppedManually")
	tm.sallyport(line, 1, "Error from server (AlreadyExists): ")
	tm.status("svm/web-1", `{"phase": "Provisioning", "conditions": [{"type": "Ready", "status": "False", "reason": "Provisioning",
		"message": "the machine is being created", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}`)
	tm.sallyport("why svm web-1", 0, "Phase:       Provisioning\n", "Provisioning: the machine is being created\n")
	tm.status("svm/web-1", `{"phase": "Running", "nodeName": "esx-1", "addresses": ["10.0.0.7", "2001:db8::7"],
		"guest": {"hostname": "web", "toolsState": "Running"}}`)
	tm.sallyport("why svm web-1", 0, "Guest:       web, tools Running, 10.0.0.7, 2001:db8::7\n")
	if wide := tm.must("", "get", "svm", "web-1", "-o", "wide"); !strings.Contains(wide, "esx-1") || !strings.Contains(wide, "10.0.0.7") {
		t.Errorf("kubectl get -o wide shows\n%s", wide)
	}
}
