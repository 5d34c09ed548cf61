package inputs_test

import (
	"context"
	"regexp"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Everything that servers-tenancy and servers-quota read is broken here, one and two places at a time, every place and every replacement: what
// was denied must not come to be allowed, but by a change that makes it another request or another rule.

const serverKind, namespaceKind = "VSphereServer", "Namespace"

// estate answers with a VSphereServer, a namespace and what other machine there is, which are broken.
type estate struct {
	server, namespace any
	machine           any // nil for none
	changes           []change
}

func (e estate) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return e }

func (e estate) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	answer := changed(q.Kind, map[string]any{serverKind: e.server, namespaceKind: e.namespace, machineKind: e.machine}[q.Kind], e.changes)
	switch {
	case q.Name == "" && q.Kind == machineKind && e.machine == nil:
		answer = []any{}
	case q.Name == "":
		answer = []any{answer}
	}
	v, err := engine.ValueOf(answer)
	return engine.Answer{Value: v, Live: q.Live}, err
}

func estateOf(tenants ...any) estate {
	return estate{
		server: object{"metadata": object{"name": "vc"}, "spec": object{"tenants": tenants}},
		namespace: object{"metadata": object{
			"name": namespace, "labels": object{"team": "a", "tier": "gold"},
		}},
	}
}

func adoption(path string) object { return creation(object{"inventoryPath": path}) }

// cloning is a request for a machine in the folder, which is all right otherwise.
func cloning(folder string) object {
	return creation(object{"clone": object{
		"folder": folder, "resourcePool": "/dc/host/c", "datastore": "/dc/datastore/d",
		"networks": []any{"/dc/network/n"}, "template": object{"inventoryPath": "/dc/vm/t"},
	}})
}

// leftOpen leaves the datastore of a machine to its storage policy.
func leftOpen(request object) object {
	clone := request["object"].(object)["spec"].(object)["runtime"].(object)["vsphere"].(object)["clone"].(object)
	delete(clone, "datastore")
	clone["storagePolicy"] = "gold"
	return request
}

func creation(machine object) object {
	vm := machineOf("Manual", "Running", nil)
	machine["serverRef"] = object{"name": "vc"}
	vm["spec"].(object)["runtime"] = object{"vsphere": machine}
	kind := object{"group": group, "version": "v1alpha1", "kind": machineKind}
	resource := object{"group": group, "version": "v1alpha1", "resource": "virtualmachines"}
	return object{
		"uid": "r-1", "operation": "CREATE", "kind": kind, "resource": resource,
		"namespace": namespace, "name": machineName, "object": vm, "oldObject": nil,
		"userInfo": object{"username": "alice"},
	}
}

// pooled is the request for a pool of such machines.
func pooled(request object) object {
	template := object{"spec": request["object"].(object)["spec"]}
	request["object"] = object{
		"apiVersion": apiVersion, "kind": "VirtualMachinePool", "metadata": object{"name": "ci", "namespace": namespace, "uid": "uid-ci"},
		"spec": object{"replicas": 3, "scaleDownPolicy": "Explicit", "virtualMachineTemplate": template},
	}
	request["name"], request["kind"] = "ci", object{"group": group, "version": "v1alpha1", "kind": "VirtualMachinePool"}
	request["resource"] = object{"group": group, "version": "v1alpha1", "resource": "virtualmachinepools"}
	return request
}

func tenantOf(namespaces object, adopt bool) object {
	return object{"name": "t", "namespaces": namespaces, "folders": []any{"/dc/vm/a"}, "adopt": adopt}
}

// makerOf allows a machine in a folder to be made.
func makerOf(namespaces object) object {
	tenant := tenantOf(namespaces, false)
	tenant["resourcePools"], tenant["datastores"] = []any{"/dc/host/c"}, []any{"/dc/datastore"}
	tenant["networks"], tenant["templates"] = []any{"/dc/network"}, []any{"/dc/vm/t"}
	tenant["storagePolicies"] = []any{"gold"}
	return tenant
}

// Nothing is on a vCenter then, or nothing is adopted, or a rule is for more namespaces: an empty selector is all of them.
var tenancyOpeners = []*regexp.Regexp{
	regexp.MustCompile(`^request\[object spec( virtualMachineTemplate spec)? runtime vsphere( inventoryPath| clone)?\] deleted$`),
	regexp.MustCompile(`^request\[object spec( virtualMachineTemplate spec)? runtime\] = \{`),
	regexp.MustCompile(`^VSphereServer\[spec tenants \d+ namespaces selector\] = \{`),
	regexp.MustCompile(`^VSphereServer\[spec tenants \d+ namespaces selector matchLabels( team)?\] deleted$`),
	regexp.MustCompile(`^VSphereServer\[spec tenants \d+ namespaces selector (matchLabels\] = \{\}|matchExpressions\] (deleted|= \[\]))$`),
	// There is no limit, or the other machine is elsewhere: it counts where it is.
	regexp.MustCompile(`^VSphereServer\[spec tenants \d+ quota( machines)?\] (deleted|= \{\})$`),
	regexp.MustCompile(`^VirtualMachine\[metadata namespace\] = ".+"$`),
	regexp.MustCompile(`^VirtualMachine\[spec runtime vsphere clone\] deleted$`),
	regexp.MustCompile(`^VirtualMachine\[spec runtime vsphere\] = \{\}$`),
	// What the vCenter has is not known, or not for this spec.
	regexp.MustCompile(`^VSphereServer\[status( conditions( 0( (type|status|observedGeneration))?)?| inventory)?\]`),
	regexp.MustCompile(`^VSphereServer\[status inventory folders complete\] = false$`),
	regexp.MustCompile(`^VSphereServer\[metadata generation\]`),
	// The selector asks for a label to be absent, or not to have a value.
	regexp.MustCompile(`^Namespace\[metadata labels\] (deleted|= \{\})$`),
	regexp.MustCompile(`^Namespace\[metadata labels tier\] (deleted|= ".*")$`),
	regexp.MustCompile(`^VSphereServer\[spec tenants \d+ namespaces selector matchExpressions 0 (key\] = ".+"|values 0\] = ".*")$`),
}

// crowded is full: there is a machine, and the quota is for one.
func crowded(namespaces object) estate {
	tenant := makerOf(namespaces)
	tenant["quota"] = object{"machines": 1, "memory": "64Gi"}
	e := estateOf(tenant)
	machine := cloning("/dc/vm/a")["object"].(object)
	machine["metadata"].(object)["uid"] = "uid-other"
	e.machine = machine
	return e
}

// adoptions are requests that are denied, each for another reason or by another rule.
func adoptions() map[string]*adoptionTrial {
	ours := object{"names": []any{namespace}}
	chosen := func(selector object) estate { return estateOf(tenantOf(object{"selector": selector}, true)) }
	notGold := []any{object{"key": "tier", "operator": "NotIn", "values": []any{"gold"}}}
	nobody := estate{namespace: object{"metadata": object{"name": namespace}}}
	return map[string]*adoptionTrial{
		"another folder":   {estateOf(tenantOf(ours, true)), adoption("/dc/vm/b/x"), "FolderNotAllowed"},
		"no adoption":      {estateOf(tenantOf(ours, false)), adoption("/dc/vm/a/x"), "AdoptionNotAllowed"},
		"another name":     {estateOf(tenantOf(object{"names": []any{"team-b"}}, true)), adoption("/dc/vm/a/x"), "NamespaceNotAllowed"},
		"another label":    {chosen(object{"matchLabels": object{"team": "b"}}), adoption("/dc/vm/a/x"), "NamespaceNotAllowed"},
		"a label too many": {chosen(object{"matchExpressions": notGold}), adoption("/dc/vm/a/x"), "NamespaceNotAllowed"},
		"upwards":          {estateOf(tenantOf(ours, true)), adoption("/dc/vm/a/../b/x"), "InventoryPathMalformed"},
		"no server":        {nobody, adoption("/dc/vm/a/x"), "VSphereServerNotFound"},
		"made elsewhere":   {estateOf(makerOf(ours)), cloning("/dc/vm/b"), "FolderNotAllowed"},
		"made by others":   {estateOf(makerOf(object{"names": []any{"team-b"}})), cloning("/dc/vm/a"), "NamespaceNotAllowed"},
		"one too many":     {crowded(ours), cloning("/dc/vm/a"), "QuotaExceeded"},
		"made upwards":     {estateOf(makerOf(ours)), cloning("/dc/vm/a/../b"), "InventoryPathMalformed"},
		"made nowhere":     {stocked(ours), cloning("/dc/vm/a/x"), "PlaceNotFound"},
		"made on none":     {withoutDatastores(ours), leftOpen(cloning("/dc/vm/a")), "DatastoreNotAllowed"},
		"made on some":     {estateOf(makerOf(ours)), leftOpen(cloning("/dc/vm/b")), "FolderNotAllowed"},
		"a pool elsewhere": {estateOf(makerOf(ours)), pooled(cloning("/dc/vm/b")), "FolderNotAllowed"},
		"a pool of others": {estateOf(makerOf(object{"names": []any{"team-b"}})), pooled(cloning("/dc/vm/a")), "NamespaceNotAllowed"},
		"a pool nowhere":   {stocked(ours), pooled(cloning("/dc/vm/a/x")), "PlaceNotFound"},
	}
}

// withoutDatastores allows everything of a machine but where its files are.
func withoutDatastores(namespaces object) estate {
	tenant := makerOf(namespaces)
	delete(tenant, "datastores")
	return estateOf(tenant)
}

// stocked has all places but the folder.
func stocked(namespaces object) estate {
	e := estateOf(makerOf(namespaces))
	server, of := e.server.(object), func(paths ...any) object { return object{"complete": true, "paths": paths} }
	server["metadata"].(object)["generation"] = 2
	server["status"] = object{
		"conditions": []any{object{"type": "Ready", "status": "True", "observedGeneration": 2}},
		"inventory": object{
			"folders": of("/dc/vm/a"), "resourcePools": of("/dc/host/c"), "datastores": of("/dc/datastore/d"),
			"networks": of("/dc/network/n"), "templates": of("/dc/vm/t"),
		},
	}
	return e
}

type adoptionTrial struct {
	estate  estate
	request object
	reason  string
}

// ask gives the answer to the broken request, and nil for what is no AdmissionReview any more.
func (a *adoptionTrial) ask(t *testing.T, set *catalog.Set, changes ...change) *admissionv1.AdmissionResponse {
	t.Helper()
	review, err := decode(changed("request", a.request, changes))
	if err != nil {
		return nil
	}
	return gateOver(set, estate{a.estate.server, a.estate.namespace, a.estate.machine, changes}).Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Review: review})
}

// holes are the changes that turn the denial into an allow and must not.
func (a *adoptionTrial) holes(t *testing.T, set *catalog.Set) (holes [][]change) {
	t.Helper()
	singles := everyChange(a.request, a.estate)
	every := 3
	if testing.Short() {
		every = 40
	}
	for i := 0; i < len(singles); i += every {
		c := singles[i]
		for _, changes := range [][]change{{c}, {c, singles[(i*7919+13)%len(singles)]}} {
			if r := a.ask(t, set, changes...); r != nil && r.Allowed && !slices.ContainsFunc(changes, opensTenancy) {
				holes = append(holes, changes)
			}
		}
	}
	t.Logf("%d changes, alone and in pairs", len(singles))
	return holes
}

func TestBrokenTenanciesAreNeverAllowed(t *testing.T) {
	set := compile(t, asShipped)
	for name, a := range adoptions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := a.ask(t, set); r.Allowed || string(r.Result.Reason) != a.reason {
				t.Fatalf("unbroken: %+v", r)
			}
			for _, changes := range a.holes(t, set) {
				t.Errorf("allowed by %v", changes)
			}
		})
	}
}

func opensTenancy(c change) bool {
	return slices.ContainsFunc(tenancyOpeners, func(o *regexp.Regexp) bool { return o.MatchString(c.String()) })
}

// everyChange breaks each place that a decision may rest on in each way.
func everyChange(request object, e estate) []change {
	var sites []site
	for _, key := range []string{"namespace", "object"} {
		sites = append(sites, sitesOf("request", request[key], []any{key})...)
	}
	sites = append(sites, sitesOf(serverKind, e.server, nil)...)
	sites = append(sites, sitesOf(namespaceKind, e.namespace, nil)...)
	if e.machine != nil {
		sites = append(sites, sitesOf(machineKind, e.machine, nil)...)
	}
	return changesAt(sites)
}

// changesAt breaks each of the places in each way.
func changesAt(sites []site) (all []change) {
	for _, s := range sites {
		if n := len(s.path); n > 0 {
			if _, key := s.path[n-1].(string); key {
				all = append(all, change{root: s.root, path: s.path, remove: true})
			}
		}
		for _, r := range replacements {
			all = append(all, change{root: s.root, path: s.path, value: r})
		}
	}
	return all
}
