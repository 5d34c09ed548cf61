package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/toys"
	"sallyport.dev/sallyport/test/support/step"
)

// ownSpecs are valid specs of Sallyport's kinds, for the space of a trial. In it are a machine and, in no namespace, a VSphereServer.
var ownSpecs = map[string]string{
	"VirtualMachine":          `{runPolicy: Manual, runtime: {pod: {}}}`,
	"VirtualMachineOperation": `{type: Stop, force: true, virtualMachineName: SPACE}`,
	"VirtualMachinePool":      `{replicas: 0, scaleDownPolicy: NewestFirst, virtualMachineTemplate: {spec: {runtime: {pod: {}}}}}`,
	"VirtualDisk":             `{size: 1Gi, runtime: {pod: {}}}`,
	"VMDiskImage":             `{sourceType: http, url: "https://images.invalid/ubuntu.img", diskSize: 10Gi, storageClass: fast, snapshotClass: fast}`,
	"VSphereServer": `{url: "https://vc.invalid", credentialsSecretRef: {name: none}, trust: {thumbprint: "` + strings.Repeat("00:", 31) + `00"},
  tenants: [{name: all, namespaces: {names: [SPACE]}, folders: [/a], resourcePools: [/a], datastores: [/a], networks: [/a]}]}`,
	"VSphereTemplate": `{serverRef: {name: SPACE}, name: ubuntu, release: "1", source: {url: "https://images.invalid/ubuntu.ova", sha256: "` + strings.Repeat("0", 64) + `"},
  failureDomains: [{name: a, folder: /a, resourcePool: /a, datastore: /a, network: /a}]}`,
	"RegoPolicy": policySpec(),
}

// policySpec is that of a policy that nobody else meets.
func policySpec() string {
	p := toys.PolicyOf("kept", toys.Denies("red", "TooRed", 403), func(spec *v1alpha1.RegoPolicySpec) {
		spec.Mode, spec.Reads = v1alpha1.ModeAudit, nil
		spec.Tests = []v1alpha1.PolicyTest{{Name: "kept_test.rego", Source: "package toy.kept_test\n\ntest_nothing if true\n"}}
		spec.Match.Resources = []v1alpha1.PolicyResources{{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"podtemplates"}, Operations: []v1alpha1.MatchOperation{"CREATE"},
		}}
	})
	text, _ := json.Marshal(p.Spec) // it is a struct of plain fields
	return string(text)
}

// ownKind is a kind of Sallyport whose object, in the space of a trial, has the name of the space.
type ownKind struct {
	*trial
	v1alpha1.Kind
}

func (k *ownKind) resource() string { return k.Resource() + "." + v1alpha1.GroupName }

func (k *ownKind) manifest(labels string) string {
	space := "namespace: " + k.space + ", "
	if k.Cluster {
		space = ""
	}
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {%sname: %s, labels: %s}\nspec: %s\n",
		v1alpha1.GroupVersion, k.Name, space, k.space, labels, strings.ReplaceAll(ownSpecs[k.Name], "SPACE", k.space))
}

func (k *ownKind) object() *unstructured.Unstructured {
	return k.get(v1alpha1.GroupVersion.WithKind(k.Name), k.space)
}

// dry runs it as a member of the team, without an effect.
func (k *ownKind) dry(line string, more ...string) (said string, ok bool) {
	verb, rest, _ := strings.Cut(line, " ")
	return k.kubectl(verb+" --dry-run=server "+rest, more...)
}

// ownWay is a way to delete an object, and what is to come of it for a protected object of a kind in a namespace, and of one in none.
type ownWay struct {
	way                  string
	try                  func(*ownKind) (said string, ok bool)
	inNamespace, outside string
	// unguarded is what is to come of it for an object without the label.
	unguarded string
}

const noNamespace = "it is in none"

func ownWays() []ownWay {
	refused := func(way, want string, try func(*ownKind) (string, bool)) ownWay {
		return ownWay{way, try, want, want, passes}
	}
	return []ownWay{
		refused("`kubectl delete`", deletionDenied, func(k *ownKind) (string, bool) { return k.dry("delete " + k.resource() + " " + k.space) }),
		refused("a deletion of the collection", deletionDenied, func(k *ownKind) (string, bool) {
			within := "namespaces/" + k.space + "/"
			if k.Cluster {
				within = ""
			}
			return k.try(member, "", fmt.Sprintf("delete --raw /apis/%s/%s%s?labelSelector=space%%3D%s&dryRun=All", v1alpha1.GroupVersion, within, k.Resource(), k.space))
		}),
		refused("`kubectl apply --prune`", deletionDenied, func(k *ownKind) (string, bool) {
			other := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: %s, labels: {app: kept, space: %[1]s}}}", k.space)
			return k.fed(other, fmt.Sprintf("apply --prune -l app=kept,space=%s --prune-allowlist=%s/%s --dry-run=server", k.space, v1alpha1.GroupVersion, k.Name))
		}),
		refused("the label taken off", labelRemoved, func(k *ownKind) (string, bool) {
			return k.dry("label " + k.resource() + " " + k.space + " " + v1alpha1.LabelDeletionProtection + "-")
		}),
		refused("`kubectl replace` without the label", labelRemoved, func(k *ownKind) (string, bool) {
			return k.fed(k.manifest("{app: kept}"), "replace --dry-run=server")
		}),
		refused("a patch that adds an owner", ownerAdded, func(k *ownKind) (string, bool) {
			owner := k.get(namespaces, k.space)
			return k.dry("patch "+k.resource()+" "+k.space+" --type=merge -p", fmt.Sprintf(
				`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":%q,"uid":%q}]}}`, k.space, owner.GetUID()))
		}),
		{"its namespace", func(k *ownKind) (string, bool) {
			return k.try(member, "", "delete namespace "+k.space+" --dry-run=server")
		}, holdsProtected, noNamespace, passes},
		{"its definition", func(k *ownKind) (string, bool) {
			return k.try(member, "", "delete crd "+k.resource()+" --dry-run=server")
		}, hasObjects, hasObjects, hasObjects},
		{"the label taken off by the subresource `status`, without an effect", func(k *ownKind) (string, bool) {
			said, ok := k.kubectl("patch "+k.resource()+" "+k.space+" --subresource=status --type=merge -p",
				`{"metadata":{"labels":{"app":null,"`+v1alpha1.LabelDeletionProtection+`":null}}}`)
			if k.object().GetLabels()["app"] == "" {
				return "the label is off", ok
			}
			return said, ok
		}, passes, passes, passes},
	}
}

func (w *ownWay) want(k *ownKind) string {
	switch {
	case !k.guarded:
		return w.unguarded
	case k.Cluster:
		return w.outside
	}
	return w.inNamespace
}

// ownKinds tries the ways on a protected object of each of Sallyport's kinds, and on one that is not. With -short, on a protected one of a kind
// in namespaces and of one in none.
func (s *guardSite) ownKinds() {
	for _, guarded := range []bool{true, false} {
		if !guarded && testing.Short() {
			continue
		}
		t := &trial{guardSite: s, guarded: guarded, space: s.namespace()}
		var all []*ownKind
		for _, cluster := range []bool{true, false} { // templates need a server
			for _, kind := range v1alpha1.Kinds {
				if kind.Cluster == cluster && (!testing.Short() || kind.Name == "VirtualMachine" || kind.Name == "RegoPolicy") {
					all = append(all, &ownKind{t, kind})
				}
			}
		}
		for _, k := range all {
			labels := strings.TrimSuffix(t.labels(), "}") + ", space: " + t.space + "}"
			k.mustKubectl(k.try("", k.manifest(labels), "apply -f -"))
		}
		for _, k := range all {
			for _, w := range ownWays() {
				s.T.Run(fmt.Sprintf("%s %s, guarded: %t", k.Name, w.way, guarded), func(test *testing.T) { k.tries(test, &w) })
			}
		}
		for _, k := range slices.Backward(all) {
			k.Until(k.Name+" is gone", func() (string, bool) { // finalizers come back until the deletion has begun
				o := k.object()
				if o != nil {
					k.dismantle(o)
				}
				return fmt.Sprint(o), o == nil
			})
		}
	}
	s.cleared()
}

// ownTable is what is to come of every way, in Markdown.
func ownTable() string {
	var b strings.Builder
	b.WriteString("| A protected object of Sallyport: way | of a kind in namespaces | VSphereServer, RegoPolicy | not protected |\n| --- | --- | --- | --- |\n")
	for _, w := range ownWays() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", w.way, told(w.inNamespace), told(w.outside), told(w.unguarded))
	}
	b.WriteString("\n")
	return b.String()
}

func (k *ownKind) tries(test *testing.T, w *ownWay) {
	inner := *k.guardSite
	inner.T = step.T{T: test}
	t := *k.trial
	t.guardSite = &inner
	of := &ownKind{&t, k.Kind}
	want := w.want(of)
	if want == noNamespace {
		return
	}
	said, ok := w.try(of)
	switch {
	case want == passes && !ok:
		t.Errorf("it does not pass: %s", said)
	case want != passes && (ok || !refuses(said, want)):
		t.Errorf("it is not refused with [%s]: %s", want, said)
	}
	if of.object() == nil {
		t.Errorf("the object is gone")
	}
}
