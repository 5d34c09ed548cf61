package chart

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/rbac"
	"sallyport.dev/sallyport/test/support/sim"
)

// rights compares what the roles grant with what the manager did during the walk. Pods on machines that are real can only be
// simulated on the local control plane, and only its audit log can be read.
func (w *walk) rights() {
	local := w.site.local()
	if local == nil {
		w.Log("left out: there is no audit log")
		return
	}
	w.lifecycle(local)
	w.confuses()
	w.insists()
	w.mends()
	w.changesOthers()
	clientset, err := kubernetes.NewForConfig(w.site.config())
	w.Must(err)
	user := local.sallyport.User()
	account := strings.Split(user, ":")
	grants, err := rbac.Granted(w.Context(), clientset, account[2], account[3])
	w.Must(err)
	uses, err := rbac.UsedBy(local.audit, user)
	w.Must(err)
	// The admission plugin for owners asks for this one before a member of a pool is made, past the audit log.
	uses = append(uses, rbac.Use{Times: 1, Right: rbac.Right{
		Verb: "update", Group: v1alpha1.GroupName, Resource: "virtualmachinepools/finalizers", Namespace: team,
	}})
	// What policies read live they may get and list, and Nodes are only read by name.
	uses = append(uses, rbac.Use{Times: 1, Right: rbac.Right{Verb: "list", Resource: "nodes"}})
	uses = append(uses, ofCertManager()...)
	if len(uses) == 2+len(ofCertManager()) {
		w.Fatalf("the audit log says nothing of %s", user)
	}
	for _, finding := range rbac.Compare(grants, uses, namespace) {
		w.Error(finding)
	}
	w.Logf("%d rights are granted, and used in %d ways", len(grants), len(uses))
}

// changesOthers has a policy come and go that changes objects of another kind, for which Sallyport registers a mutating webhook.
func (w *walk) changesOthers() {
	w.Helper()
	w.create(marks)
	w.kubectl("wait rego/marks --for=condition=" + string(v1alpha1.ConditionRegistered) + " --timeout=3m")
	w.kubectl("delete rego marks")
}

// mends breaks the certificate, which the leader then replaces in its Secret.
func (w *walk) mends() {
	w.Helper()
	secret := "secret " + release + "-certificate --namespace " + namespace
	w.kubectl("patch "+secret+" --type=merge -p", `{"data": {"tls.crt": "", "tls.key": ""}}`)
	w.Until("there is another certificate", func() (string, bool) {
		certificate := w.kubectl("get " + secret + " -o jsonpath={.data['tls\\.crt']}")
		return certificate, certificate != ""
	})
}

// ofCertManager are the rights to use cert-manager, which is not in this cluster. Package certs uses exactly these, by a test of its own.
func ofCertManager() (all []rbac.Use) {
	for resource, names := range map[string][]string{
		"certificates": {release + "-webhook-tls", release + "-webhook-tls-ca"}, "issuers": {release + "-webhook-tls-root", release + "-webhook-tls-ca"},
	} {
		right := rbac.Right{Namespace: namespace, Group: "cert-manager.io", Resource: resource, Verb: "create"}
		all = append(all, rbac.Use{Times: 1, Right: right})
		for _, right.Name = range names {
			right.Verb = "patch"
			all = append(all, rbac.Use{Times: 1, Right: right})
		}
	}
	return all
}

// lifecycle has machines come, do what is asked of them, and go. They are simulated, for which replicas are run that know how.
func (w *walk) lifecycle(local *localSite) {
	w.Helper()
	world := fake.New()
	world.SetAuto(true)
	simulator, err := sim.Serve(world)
	w.Must(err)
	w.Cleanup(func() { w.Must(simulator.Close()) })
	o := local.options
	// What the API server of a release from before 1.35 has its clients do: lists, and watches from there on.
	o.Env = append(simulator.Environment("manager"), "KUBE_FEATURE_WatchListClient=false")
	o.Binary, err = install.Build(w.Context(), w.bin, "sallyport.dev/sallyport/test/support/sim/manager")
	w.Must(err)
	local.kubelet.Options(o)
	w.kubectl("rollout restart deployment/" + release + " --namespace " + namespace)
	w.rolledOut()

	w.kubectl("create namespace " + team)
	w.create(document + `{apiVersion: sallyport.dev/v1alpha1, kind: VirtualMachine, metadata: {name: sim-1, namespace: ` + team + `},
		spec: {runPolicy: Manual, runtime: {pod: {}}}}`)
	w.kubectl("wait svm/sim-1 --for=condition=Ready --timeout=3m --namespace " + team)
	w.kubectl("sallyport start sim-1 --wait --namespace " + team)
	w.refused("sallyport migrate sim-1 --to nowhere --namespace "+team, "[placement-migration/NodeUnknown]")
	w.create(document + `{apiVersion: sallyport.dev/v1alpha1, kind: VirtualMachineOperation, metadata: {name: short, namespace: ` + team + `},
		spec: {type: Stop, virtualMachineName: sim-1, ttlSecondsAfterFinished: 1}}`)
	w.kubectl("wait svmop/short --for=delete --timeout=3m --namespace " + team)
	w.kubectl("delete svm sim-1 --timeout=3m --namespace " + team)
	w.pools()
	w.templates()
	w.image()
	w.kubectl("delete namespace " + team + " --timeout=2m")
}

// pools has a pool with disks grow, change and shrink.
func (w *walk) pools() {
	w.Helper()
	steady := func() { w.kubectl("wait svmpool/sims --for=condition=Ready --timeout=3m --namespace " + team) }
	w.create(document + `{apiVersion: sallyport.dev/v1alpha1, kind: VirtualMachinePool, metadata: {name: sims, namespace: ` + team + `},
		spec: {replicas: 2, scaleDownPolicy: NewestFirst,
			virtualDiskTemplates: [{name: data, reclaim: {onScaleDown: Delete}, spec: {size: 1Gi, runtime: {pod: {}}}}],
			virtualMachineTemplate: {spec: {runtime: {pod: {}}, blockDeviceRefs: [{kind: VirtualDisk, name: data}]}}}}`)
	steady()
	w.kubectl("patch svmpool sims --type=merge --namespace "+team+" -p", `{"spec": {"virtualMachineTemplate": {"metadata": {"labels": {"ring": "1"}}}}}`)
	w.kubectl("wait svm -l ring=1 --for=create --timeout=3m --namespace " + team)
	w.kubectl("scale svmpool sims --replicas=1 --namespace " + team)
	w.kubectl("wait svm/sims-1 --for=delete --timeout=3m --namespace " + team)
	w.kubectl("wait svd/sims-data-1 --for=delete --timeout=3m --namespace " + team)
	steady()
}

// image has an image come and go that is not imported, because that is not enabled.
func (w *walk) image() {
	w.Helper()
	w.create(document + `{apiVersion: sallyport.dev/v1alpha1, kind: VMDiskImage, metadata: {name: image, namespace: ` + team + `},
		spec: {url: "https://images.invalid/1.qcow2", diskSize: 1Gi}}`)
	w.kubectl("wait vmdi/image --for=jsonpath={.status.conditions[0].reason}=ImportsDisabled --timeout=3m --namespace " + team)
	w.kubectl("delete vmdi image --timeout=3m --namespace " + team)
}

// templates has a template come and go that is never made.
func (w *walk) templates() {
	w.Helper()
	w.create(document + `{apiVersion: sallyport.dev/v1alpha1, kind: VSphereServer, metadata: {name: nowhere}, spec: {url: "https://vc.invalid",
		credentialsSecretRef: {name: none}, trust: {thumbprint: "` + strings.TrimSuffix(strings.Repeat("00:", 32), ":") + `"}, tenants: [{name: all, namespaces: {names: [` + team + `]},
			folders: [/dc], resourcePools: [/dc], datastores: [/dc], networks: [/dc]}]}}`)
	w.create(document + `{apiVersion: sallyport.dev/v1alpha1, kind: VSphereTemplate, metadata: {name: image, namespace: ` + team + `}, spec: {
		serverRef: {name: nowhere}, name: image, release: "1", paused: true, source: {url: "https://images.invalid/1.ova", sha256: ` + strings.Repeat("a", 64) + `},
		failureDomains: [{name: a, folder: /dc/vm/a, resourcePool: /dc/host/a, datastore: /dc/datastore/a, network: /dc/network/a}]}}`)
	w.kubectl("wait svst/image --for=jsonpath={.status.conditions[0].reason}=Paused --timeout=3m --namespace " + team)
	w.kubectl("delete svst image --timeout=3m --namespace " + team)
	w.kubectl("delete vsphereserver nowhere")
}

// confuses has a stored revision of a policy be in the way of itself: it has lost the label that it is found by.
func (w *walk) confuses() {
	w.Helper()
	timeout := func(milliseconds int) {
		w.kubectl("patch rego "+policy+" --type=merge -p", fmt.Sprintf(`{"spec": {"timeoutMilliseconds": %d}}`, milliseconds))
		w.shows(v1alpha1.ConditionActive, metav1.ConditionTrue, v1alpha1.ReasonCurrentRevision)
	}
	revisions := func() []string {
		return strings.Fields(w.kubectl("get controllerrevisions -o name -l sallyport.dev/policy=" + policy + " --namespace " + namespace))
	}
	before := w.rego().Spec.TimeoutMilliseconds
	stored := revisions()
	if len(stored) != 1 {
		w.Fatalf("there are the revisions %v, want the shipped one", stored)
	}
	timeout(int(before) + 1)
	w.Until("another revision is stored", func() (string, bool) { return fmt.Sprint(revisions()), len(revisions()) == 2 })
	w.kubectl("label " + stored[0] + " sallyport.dev/policy- --namespace " + namespace)
	timeout(int(before))
	w.Until("the log says what is in the way", func() (string, bool) {
		return "", strings.Contains(w.site.local().logs.String(), "is not a stored revision of RegoPolicy "+policy)
	})
	w.kubectl("delete " + stored[0] + " --namespace " + namespace)
	w.Until("it is stored again", func() (string, bool) { return fmt.Sprint(revisions()), slices.Contains(revisions(), stored[0]) })
}

// insists asks for what is refused until a replica has refused it twice, which is one event that has happened twice.
func (w *walk) insists() {
	w.Helper()
	w.Until("an event of a refusal has happened twice", func() (string, bool) {
		broken := `{"spec": {"modules": [{"name": "walk.rego", "source": "package"}]}}`
		if r := w.try("", "patch", "rego", policy, "--type=merge", "-p", broken); r.code == 0 {
			w.Fatal("a policy that does not compile was stored")
		}
		counts := w.kubectl("get events.events.k8s.io --all-namespaces -o jsonpath={.items[*].series.count}")
		return counts, counts != ""
	})
}
