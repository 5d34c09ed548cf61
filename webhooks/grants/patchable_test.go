package grants_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/grants"
)

func TestWhatPoliciesMayPatch(t *testing.T) {
	const object = `{"apiVersion":"v1","kind":"X","metadata":{"name":"x","labels":{"a":"b","kubernetes.io/x":"y"},"annotations":{"sallyport.dev/override":"o"}},"spec":{"n":1,"large":9007199254740993}}`
	with := func(from, to string) string {
		if !strings.Contains(object, from) {
			t.Fatalf("there is no %s", from)
		}
		return strings.Replace(object, from, to, 1)
	}
	more := grants.Patchable{
		Kinds: grants.Kinds{"configmaps": grants.All, "secrets": grants.All, "deployments.apps/scale": grants.All},
		By:    grants.Release{Name: "gate", Namespace: "sys", Within: "sallyport."},
	}
	all := grants.Patchable{Kinds: grants.Kinds{"virtualmachines.sallyport.dev": grants.All}}
	for name, tc := range map[string]struct {
		granted         grants.Patchable
		group, resource string
		after           string
		refused         string // a part of the error, "" for none
	}{
		"a label of a workload":              {grants.Patchable{}, "apps", "deployments", with(`"a":"b"`, `"a":"c","new":"1"`), ""},
		"a label goes":                       {grants.Patchable{}, "apps", "deployments", with(`"a":"b",`, ``), ""},
		"a recommended label":                {grants.Patchable{}, "", "pods", with(`"a":"b"`, `"a":"b","app.kubernetes.io/name":"x"`), ""},
		"nothing":                            {grants.Patchable{}, "", "pods", object, ""},
		"a label of Kubernetes":              {grants.Patchable{}, "", "pods", with(`"kubernetes.io/x":"y"`, `"kubernetes.io/x":"z"`), "it patches metadata.labels[kubernetes.io/x] of pods"},
		"one of Kubernetes goes":             {grants.Patchable{}, "", "pods", with(`,"kubernetes.io/x":"y"`, ``), "metadata.labels[kubernetes.io/x]"},
		"one with a domain below":            {grants.Patchable{}, "", "pods", with(`"a":"b"`, `"a":"b","pod-security.kubernetes.io/enforce":"privileged"`), "metadata.labels[pod-security.kubernetes.io/enforce]"},
		"all labels are replaced":            {grants.Patchable{}, "", "pods", with(`{"a":"b","kubernetes.io/x":"y"}`, `{}`), "metadata.labels[kubernetes.io/x]"},
		"labels become a list":               {grants.Patchable{}, "", "pods", with(`{"a":"b","kubernetes.io/x":"y"}`, `[]`), "it patches metadata.labels of pods: only labels and annotations are granted"},
		"metadata goes":                      {grants.Patchable{}, "", "pods", `{"apiVersion":"v1","kind":"X","spec":{"n":1}}`, "it patches annotation sallyport.dev/override of pods"},
		"the spec":                           {grants.Patchable{}, "apps", "deployments", with(`"n":1`, `"n":2`), `it patches spec.n of deployments.apps: only labels and annotations are granted; to grant all of it, run: helm upgrade RELEASE CHART --namespace NAMESPACE --reuse-values --set-json 'patchable={"deployments.apps":"All"}'`},
		"a number that is no float":          {grants.Patchable{}, "apps", "deployments", with("740993", "740992"), "it patches spec"},
		"an owner":                           {grants.Patchable{}, "", "pods", with(`"name":"x"`, `"name":"x","ownerReferences":[]`), "it patches metadata.ownerReferences of pods"},
		"finalizers":                         {grants.Patchable{}, "", "pods", with(`"name":"x"`, `"name":"x","finalizers":["a.b/c"]`), "it patches metadata.finalizers of pods"},
		"an override":                        {grants.Patchable{}, "", "pods", with(`"o"`, `"p"`), "no policy may patch an annotation that Sallyport acts on"},
		"an override where all is granted":   {more, "", "configmaps", with(`"o"`, `"p"`), "it patches annotation sallyport.dev/override of configmaps"},
		"an override goes":                   {more, "", "configmaps", with(`"sallyport.dev/override":"o"`, ``), "annotation sallyport.dev/override"},
		"the spec where all is granted":      {more, "", "configmaps", with(`"n":1`, `"n":2`), ""},
		"the spec of a machine":              {more, "sallyport.dev", "virtualmachines", with(`"n":1`, `"n":2`), `it patches spec.n of virtualmachines.sallyport.dev: only labels and annotations are granted`},
		"the spec of a machine, granted":     {all, "sallyport.dev", "virtualmachines", with(`"n":1`, `"n":2`), ""},
		"a label of a machine":               {more, "sallyport.dev", "virtualmachines", with(`"a":"b"`, `"a":"c"`), ""},
		"the finalizer of a machine":         {more, "sallyport.dev", "virtualmachines", with(`"name":"x"`, `"name":"x","finalizers":["sallyport.dev/virtual-machine"]`), ""},
		"the requester of an operation":      {more, "sallyport.dev", "virtualmachineoperations", with(`"n":1`, `"n":1,"requestedBy":{}`), ""},
		"the type of an operation":           {more, "sallyport.dev", "virtualmachineoperations", with(`"n":1`, `"n":1,"type":"Stop"`), "it patches spec.type of"},
		"what is not granted":                {more, "apps", "deployments", with(`"a":"b"`, `"a":"c"`), `it patches deployments.apps: policies may not patch it; to grant its labels and annotations, run: helm upgrade gate CHART --namespace sys --reuse-values --set-json 'sallyport.patchable={"deployments.apps":"Metadata"}'`},
		"a subresource that is granted":      {more, "apps", "deployments/scale", with(`"n":1`, `"n":2`), ""},
		"a subresource that is not":          {grants.Patchable{}, "", "pods/ephemeralcontainers", with(`"a":"b"`, `"a":"c"`), "it patches pods/ephemeralcontainers: policies may not"},
		"Secrets, whatever is granted":       {more, "", "secrets", with(`"a":"b"`, `"a":"c"`), "it patches secrets: no policy may patch it: it holds credentials"},
		"a token":                            {more, "", "serviceaccounts/token", with(`"n":1`, `"n":2`), "no policy may patch it"},
		"bindings of roles":                  {more, "rbac.authorization.k8s.io", "clusterrolebindings", with(`"n":1`, `"n":2`), "it patches clusterrolebindings.rbac.authorization.k8s.io: no policy may patch it: it controls access"},
		"what nobody could read":             {more, "", "configmaps", `null`, "its result is not an object: null"},
		"a kind becomes another":             {grants.Patchable{}, "", "pods", with(`"kind":"X"`, `"kind":"Y"`), "it patches kind of pods"},
		"an override of an own kind":         {more, "sallyport.dev", "virtualmachineoperations", with(`"o"`, `"p"`), "annotation sallyport.dev/override"},
		"a label of ours where it is all":    {more, "", "configmaps", with(`"a":"b"`, `"sallyport.dev/deletion-protection":"enabled"`), ""},
		"a label of ours where it is a part": {grants.Patchable{}, "", "pods", with(`"a":"b"`, `"sallyport.dev/deletion-protection":"no"`), "sallyport.dev/deletion-protection"},
	} {
		err := tc.granted.Check(tc.group, tc.resource, []byte(object), []byte(tc.after))
		switch {
		case tc.refused == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
			t.Errorf("%s: got %v, want %s", name, err, tc.refused)
		}
	}
}

// Fields of our kinds lead to URLs, Secrets, servers and paths: an editor of a policy changes none of them without a grant, in no kind. The
// exceptions are those that the shipped policy defaults sets.
func TestFieldsOfOwnKindsNeedAGrant(t *testing.T) {
	set := map[string]bool{"requestedBy": true, "requestedAt": true, "virtualMachineUID": true, "override": true}
	for _, kind := range v1alpha1.Kinds {
		fields := reflect.TypeOf(kind.Object).Elem()
		spec, _ := fields.FieldByName("Spec")
		for i := range spec.Type.NumField() {
			name, _, _ := strings.Cut(spec.Type.Field(i).Tag.Get("json"), ",")
			if kind.Name == "VirtualMachineOperation" && set[name] || kind.Name == "VirtualMachine" && name == "runPolicy" {
				continue // policy defaults sets it
			}
			after := fmt.Sprintf(`{"metadata":{"name":"x"},"spec":{%q:"y"}}`, name)
			err := grants.Patchable{}.Check("sallyport.dev", kind.Resource(), []byte(`{"metadata":{"name":"x"},"spec":{}}`), []byte(after))
			if err == nil {
				t.Errorf("%s: policies may patch spec.%s without a grant", kind.Name, name)
			}
		}
	}
}

// Nobody can grant what would be the rights of whoever writes it.
func TestWhatNobodyCanGrant(t *testing.T) {
	for _, name := range []string{
		"roles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io", "rolebindings.authorization.openshift.io",
		"mutatingwebhookconfigurations.admissionregistration.k8s.io", "validatingadmissionpolicies.admissionregistration.k8s.io",
		"customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io",
		"certificatesigningrequests.certificates.k8s.io", "certificatesigningrequests.certificates.k8s.io/approval", "clustertrustbundles.certificates.k8s.io",
		"tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io", "secrets", "serviceaccounts", "serviceaccounts/token",
		"namespaces", "namespaces/finalize", "nodes", "regopolicies.sallyport.dev", "*", "*.apps", "deployments.*", "pods/*", "*/*",
	} {
		if err := new(grants.Kinds).Set(name + "=All"); err == nil {
			t.Errorf("%s was granted", name)
		}
	}
	for _, wrong := range []string{"pods=Spec", "pods", "=All"} {
		if err := new(grants.Kinds).Set(wrong); err == nil {
			t.Errorf("%s was taken", wrong)
		}
	}
	for _, text := range []string{"", "deployments.apps/scale=All,pods=Metadata"} {
		var kinds grants.Kinds
		if err := kinds.Set(text); err != nil || kinds == nil || kinds.String() != text {
			t.Errorf("got %v, %v", kinds, err)
		}
	}
}
