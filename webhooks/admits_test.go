package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// vCenters answers, live only, for a VSphereServer with one tenant, which are namespaces with the label.
type vCenters struct {
	t       *testing.T
	folders []any
	quota   map[string]any
	other   func(*v1alpha1.VirtualMachine) // changes another machine in the folder
	created int64                          // when another machine in the folder was created, in seconds since 1970
	err     error
}

func (v vCenters) For(request *admissionv1.AdmissionRequest, subject facts.Subject) engine.Reader {
	if request.UserInfo.Username != sallyportUser || subject.UID != "uid-vm" && subject.UID != "uid-data" {
		v.t.Errorf("asked by %+v for %+v", request.UserInfo, subject)
	}
	return v
}

func (v vCenters) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	if !q.Live {
		v.t.Errorf("asked a cache: %+v", q)
	}
	var answer any
	switch q.Kind + " " + q.Name {
	case "Namespace ":
		answer = []any{map[string]any{"metadata": map[string]any{"name": "ns", "labels": map[string]any{"team": "a"}}}}
	case "VirtualMachine ":
		other := cloned("/dc/vm/a", "/dc/datastore/d")
		other.UID, other.CreationTimestamp = "uid-other", metav1.Unix(v.created, 0)
		other.Status = v1alpha1.VirtualMachineStatus{}
		if v.other != nil {
			v.other(other)
		}
		u, err := unstructuredOf(other)
		if err != nil {
			return engine.Answer{}, err
		}
		answer = []any{u.Object}
	case "Namespace ns":
		answer = map[string]any{"metadata": map[string]any{"name": "ns", "labels": map[string]any{"team": "a"}}}
	case "VSphereServer vc":
		answer = map[string]any{"metadata": map[string]any{"name": "vc"}, "spec": map[string]any{"tenants": []any{map[string]any{
			"name": "a", "adopt": true, "folders": v.folders, "resourcePools": []any{"/dc/host/c"},
			"datastores": []any{"/dc/datastore/d"}, "networks": []any{"/dc/network/n"}, "templates": []any{"/dc/vm/t"}, "storagePolicies": []any{"gold"},
			"quota": v.quota, "namespaces": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"team": "a"}}},
		}}}}
	}
	value, err := engine.ValueOf(answer)
	return engine.Answer{Value: value, Live: true}, errors.Join(err, v.err)
}

// adopted is a machine that the spec names by UUID and that was found at the path.
func adopted(server, path string) *v1alpha1.VirtualMachine {
	vm := svm("Running", holds("RunPolicy", "Start"))
	vm.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{
		ServerRef:     v1alpha1.VSphereServerReference{Name: server},
		InventoryPath: path, InstanceUUID: "50120a8b-7a3c-4bde-9f00-0123456789ab",
	}
	return vm
}

// cloned is a machine that was made, and was found in the folder.
func cloned(folder, datastore v1alpha1.InventoryPath) *v1alpha1.VirtualMachine {
	vm := adopted("vc", "")
	vm.CreationTimestamp = metav1.Unix(1000, 0)
	vm.Spec.Runtime.VSphere.InstanceUUID = ""
	vm.Spec.Runtime.VSphere.Clone = &v1alpha1.VSphereClone{
		Folder: folder, ResourcePool: "/dc/host/c/Resources/a", Datastore: datastore, StoragePolicy: "gold",
		Networks: []v1alpha1.InventoryPath{"/dc/network/n"}, Template: v1alpha1.VSphereCloneSource{InventoryPath: "/dc/vm/t"},
	}
	return vm
}

func TestAdmitsAsksTheShippedPolicies(t *testing.T) {
	pod := svm("Running")
	pod.Spec.Runtime.Pod = &v1alpha1.PodRuntime{}
	const below = "; allowed folders: /dc/vm/a"
	for name, tc := range map[string]struct {
		machine *v1alpha1.VirtualMachine
		want    decision.Admission
	}{
		"below the folder":   {adopted("vc", "/dc/vm/a/web"), decision.Admission{}},
		"no vSphere machine": {pod, decision.Admission{}},
		"moved away": {adopted("vc", "/dc/vm/b/web"), decision.Admission{Denied: true, Reason: "FolderNotAllowed",
			Message: "[servers-tenancy/FolderNotAllowed] namespace ns may not adopt the machine because it is not below a folder that VSphereServer vc allows" + below}},
		"made where it may be": {cloned("/dc/vm/a/web", "/dc/datastore/d"), decision.Admission{}},
		"made, and moved away": {cloned("/dc/vm/b", "/dc/datastore/d"), decision.Admission{Denied: true, Reason: "FolderNotAllowed",
			Message: "[servers-tenancy/FolderNotAllowed] spec.runtime.vsphere.clone.folder: namespace ns may not use the machine's folder on VSphereServer vc; " +
				"allowed: /dc/vm/a"}},
		"to be made on some datastore": {cloned("/dc/vm/a", ""), decision.Admission{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newShippedFixture(t, world{})
			f.facts = vCenters{t: t, folders: []any{"/dc/vm/a"}}
			before := tc.machine.DeepCopy()
			got, err := f.Admits(t.Context(), tc.machine)
			if err != nil {
				t.Fatal(err)
			}
			want := decision.Placement{Admission: tc.want}
			if name == "to be made on some datastore" {
				want.Datastores = []string{"/dc/datastore/d"}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.machine); diff != "" {
				t.Errorf("the machine was changed:\n%s", diff)
			}
			record := f.only(t)
			if record.Endpoint != decision.Arbitrating || record.Allowed == tc.want.Denied || strings.Contains(f.records.String(), "activeOperation") {
				t.Errorf("got record %s", f.records.String())
			}
		})
	}
}

// onTheirWay answers, live only, for a cluster with one node and the vCenters vc and vc-2 with a host each. The other machine, if there
// is one, is being moved.
type onTheirWay struct {
	t     *testing.T
	user  string
	other *v1alpha1.VirtualMachine
}

func (o onTheirWay) For(request *admissionv1.AdmissionRequest, _ facts.Subject) engine.Reader {
	if request.UserInfo.Username != o.user || (request.Operation == admissionv1.Update) != (o.user == sallyportUser) {
		o.t.Errorf("asked by %+v about a %s", request.UserInfo, request.Operation)
	}
	return o
}

// vCenterOf has host esx-2.
func vCenterOf(name string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": name, "generation": int64(1)},
		"status": map[string]any{
			"conditions": []any{map[string]any{"type": "Ready", "status": "True", "observedGeneration": int64(1)}},
			"hosts":      []any{map[string]any{"name": "esx-2", "connected": true, "inMaintenance": false}},
		},
	}
}

func (o onTheirWay) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	if !q.Live {
		o.t.Errorf("asked a cache: %+v", q)
	}
	var answer any
	switch {
	case q.Kind == "Node" && q.Name == "node-2":
		answer = map[string]any{
			"metadata": map[string]any{"name": q.Name},
			"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
		}
	case q.Kind == "VSphereServer" && q.Name == "":
		answer = []any{vCenterOf("vc-2"), vCenterOf("vc")}
	case q.Kind == "VSphereServer":
		answer = vCenterOf(q.Name)
	case q.Kind == "VirtualMachine" && q.Fields["status.phase"] == "Migrating":
		answer = []any{}
		if o.other != nil {
			u, err := unstructuredOf(o.other)
			if err != nil {
				return engine.Answer{}, err
			}
			answer = []any{u.Object}
		}
	}
	value, err := engine.ValueOf(answer)
	return engine.Answer{Value: value, Live: true}, err
}

// oneAtATime are the shipped policies with limits of one move for each node and host.
func oneAtATime(t *testing.T) []v1alpha1.RegoPolicy {
	t.Helper()
	shipped := shipped.Policies(t)
	i := slices.IndexFunc(shipped, func(p v1alpha1.RegoPolicy) bool { return p.Name == "placement-migration" })
	shipped[i].Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"maxPerNode": 1, "maxPerHost": 1}`)}
	return shipped
}

// runningOn is a machine that runs on that node, in the vCenter or, without one, in the cluster.
func runningOn(server, node string) *v1alpha1.VirtualMachine {
	vm := svm("Running")
	vm.Status.NodeName = node
	if server == "" {
		vm.Spec.Runtime.Pod = &v1alpha1.PodRuntime{}
		return vm
	}
	vm.Spec.Runtime.VSphere = adopted(server, "/dc/vm/a/web").Spec.Runtime.VSphere
	return vm
}

// movedTo is where a machine is moved, the reason why not, and a machine that is being moved meanwhile.
type movedTo struct {
	server, node, want string
	other              *v1alpha1.VirtualMachine
}

// movesOfMachines are moves from node-1. What the policy makes of nodes, hosts and limits is tested beside it.
func movesOfMachines() map[string]movedTo {
	other := runningOn("", "node-2")
	other.Name, other.UID, other.Status.Phase = "other", "uid-other", "Migrating"
	return map[string]movedTo{
		"to a node with room":        {"", "node-2", "", nil},
		"to a node that is gone":     {"", "node-3", "NodeUnknown", nil},
		"while another one is moved": {"", "node-2", "TooManyMigrations", other},
		"to a host with room":        {"vc", "esx-2", "", nil},
		"to a host that is gone":     {"vc", "esx-4", "NodeUnknown", nil},
	}
}

// A move is judged by what there is when it would begin, and not by policies that judge only who asks for what.
func TestAdmitsMove(t *testing.T) {
	nobodyElse := policyOf("nobody", "# METADATA\n# title: T\n# custom:\n#   reason: NotYours\n#   remedy: Ask ann.\n"+`deny contains {"reason": "NotYours", "message": "only ann moves machines"} if input.request.userInfo.username != "ann"`,
		func(s *v1alpha1.RegoPolicySpec) {
			s.Match.Resources[0].APIGroups, s.Match.Resources[0].APIVersions = []string{"sallyport.dev"}, []string{"v1alpha1"}
			s.Match.Resources[0].Resources, s.Reads = []string{"virtualmachines"}, nil
		})
	asked := append(oneAtATime(t), nobodyElse)
	for name, tc := range movesOfMachines() {
		t.Run(name, func(t *testing.T) {
			f := newShippedFixture(t, world{}, asked...)
			f.facts = onTheirWay{t, sallyportUser, tc.other}
			vm := runningOn(tc.server, "node-1")
			vm.Spec.NodeName = tc.node
			before := vm.DeepCopy()
			got, err := f.AdmitsMove(t.Context(), vm, tc.node)
			if err != nil || got.Reason != tc.want || got.Denied != (tc.want != "") {
				t.Errorf("got %+v, %v, want %q", got, err, tc.want)
			}
			if diff := cmp.Diff(before, vm); diff != "" {
				t.Errorf("the machine was changed:\n%s", diff)
			}
			if record := f.only(t); record.Endpoint != decision.Arbitrating || record.Allowed == got.Denied {
				t.Errorf("got record %s", f.records.String())
			}
		})
	}
}

// An operation that moves a machine is judged by the same rules before it takes the claim.
func TestArbitrateMoves(t *testing.T) {
	asked := oneAtATime(t)
	for name, tc := range movesOfMachines() {
		t.Run(name, func(t *testing.T) {
			f := newShippedFixture(t, world{}, asked...)
			f.facts = onTheirWay{t, "ann", tc.other}
			migrate := svmop("move", v1alpha1.OperationMigrate, false)
			migrate.Spec.Migrate = &v1alpha1.MigrateTarget{NodeName: tc.node}
			got, err := f.Arbitrate(t.Context(), &migrate, runningOn(tc.server, "node-1"), nil)
			if err != nil || got.Reason != tc.want || got.Denied != (tc.want != "") {
				t.Errorf("got %+v, %v, want %q", got, err, tc.want)
			}
		})
	}
}

// A quota is asked about with the age of the machine and with the instance that it has: one that is there is not taken away.
func TestAdmitsWithinAQuota(t *testing.T) {
	f := newShippedFixture(t, world{})
	f.facts = vCenters{t: t, folders: []any{"/dc/vm/a"}, quota: map[string]any{"machines": int64(1)}, created: 999}
	vm := cloned("/dc/vm/a", "/dc/datastore/d")
	for instance, want := range map[string]string{"": "QuotaExceeded", "50120a8b-7a3c-4bde-9f00-0123456789ab": ""} {
		vm.Status.InstanceID = instance
		if got, err := f.Admits(t.Context(), vm); err != nil || got.Reason != want {
			t.Errorf("with instance %q: got %+v, %v, want %q", instance, got, err, want)
		}
	}
}

// Policies that judge the creation of machines, and those in mode Audit, do not keep a machine away that exists; a fact that
// cannot be read decides nothing.
func TestAdmitsAsksOnlyAboutServers(t *testing.T) {
	shipped := shipped.Policies(t)
	never := policyOf("never", fmt.Sprintf(denyMetadata, "Never")+`deny contains {"reason": "Never", "message": "not today"} if true`+"\n",
		func(s *v1alpha1.RegoPolicySpec) {
			s.Match.Resources[0].APIGroups, s.Match.Resources[0].APIVersions = []string{"*"}, []string{"*"}
			s.Match.Resources[0].Resources = []string{"virtualmachines", "virtualdisks"}
		})
	f := newShippedFixture(t, world{}, append(shipped, never)...)
	f.facts = vCenters{t: t, folders: []any{"/dc/vm/a"}}
	if got, err := f.Admits(t.Context(), adopted("vc", "/dc/vm/a/web")); err != nil || got.Denied {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := f.AdmitsDisk(t.Context(), disk("/dc/datastore/d")); err != nil || got.Denied {
		t.Errorf("got %+v, %v", got, err)
	}
	f.facts = vCenters{t: t, folders: []any{"not a path"}}
	if got, err := f.Admits(t.Context(), adopted("vc", "/dc/vm/a/web")); err == nil || got.Denied || !strings.Contains(err.Error(), "servers-tenancy") {
		t.Errorf("a server that cannot be read gave %+v, %v", got, err)
	}
	f.facts = vCenters{t: t, err: errors.New("away")}
	if got, err := f.Admits(t.Context(), adopted("vc", "/dc/vm/a/web")); err == nil || got.Denied {
		t.Errorf("a fact that cannot be read gave %+v, %v", got, err)
	}
	i := slices.IndexFunc(shipped, func(p v1alpha1.RegoPolicy) bool { return p.Name == "servers-tenancy" })
	shipped[i].Spec.OnError = v1alpha1.OnErrorAllow
	f = newShippedFixture(t, world{}, shipped...)
	f.facts = vCenters{t: t, folders: []any{"not a path"}}
	if got, err := f.Admits(t.Context(), adopted("vc", "/dc/vm/a/web")); err != nil || got.Denied || len(got.Datastores) > 0 {
		t.Errorf("a policy that allows what it cannot judge gave %+v, %v", got, err)
	}
	shipped[i].Spec.Mode = v1alpha1.ModeAudit
	f = newShippedFixture(t, world{}, shipped...)
	f.facts = vCenters{t: t, folders: []any{"/dc/vm/a"}}
	if got, err := f.Admits(t.Context(), adopted("vc", "/dc/vm/b/web")); err != nil || got.Denied {
		t.Errorf("mode Audit gave %+v, %v", got, err)
	}
}

func disk(datastore v1alpha1.InventoryPath) *v1alpha1.VirtualDisk {
	return &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "uid-data"},
		Spec: v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{VSphere: &v1alpha1.VSphereDisk{
			ServerRef: v1alpha1.VSphereServerReference{Name: "vc"}, Datastore: datastore,
		}}},
	}
}

// A disk is judged by its datastore, before it is made and each time that it is attached.
func TestAdmitsDisk(t *testing.T) {
	f := newShippedFixture(t, world{})
	f.facts = vCenters{t: t, folders: []any{"/dc/vm/a"}}
	if got, err := f.AdmitsDisk(t.Context(), disk("/dc/datastore/d")); err != nil || got.Denied {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err := f.AdmitsDisk(t.Context(), disk("/dc/datastore/e"))
	want := decision.Admission{Denied: true, Reason: "DatastoreNotAllowed", Message: "[servers-tenancy/DatastoreNotAllowed] spec.runtime.vsphere.datastore: " +
		"namespace ns may not use /dc/datastore/e on VSphereServer vc; allowed: /dc/datastore/d"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("(-want +got):\n%s %v", diff, err)
	}
}
