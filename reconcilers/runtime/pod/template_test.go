package pod_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/pod"
)

// with returns a machine whose Pod has the template, in YAML.
func with(t *testing.T, template string) runtime.Machine {
	t.Helper()
	m := machine("web")
	raw, err := yaml.YAMLToJSON([]byte(template))
	if err != nil {
		t.Fatal(err)
	}
	m.Spec.Runtime.Pod.Template = &kruntime.RawExtension{Raw: raw}
	return m
}

// The Pod has what the template says, as a namespace with the Pod Security level restricted wants it, and everything that Sallyport sets.
func TestTemplate(t *testing.T) {
	m := with(t, `
metadata: {annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: "true"}}
spec:
  priorityClassName: runners
  nodeSelector: {zone: a, type: none, disk: slow}
  tolerations: [{key: dedicated, operator: Exists}]
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  affinity:
    podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: a}}}]}
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: Exists}]}, {matchExpressions: [{key: big, operator: Exists}]}]}
  containers:
  - name: machine
    resources: {limits: {cpu: 8}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`)
	m.Spec.NodeName, m.Spec.NodeSelector = "node-1", map[string]v1alpha1.LabelValue{"disk": "fast"}
	api := newAPI()
	r := &pod.Runtime{Client: api, Live: api, NodeSelector: map[string]string{"type": "virtual-kubelet"}}
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: pod.NameOf(m)}}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil {
		t.Fatal(err)
	}
	s, c := made.Spec, made.Spec.Containers[0]
	got, err := json.Marshal(map[string]any{
		"annotations": len(made.Annotations), "safe": made.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"], "class": s.PriorityClassName,
		"nodes": s.NodeSelector, "tolerations": len(s.Tolerations), "last": s.Tolerations[len(s.Tolerations)-1].Key, "pod": s.SecurityContext, "container": c.SecurityContext,
		"resources": c.Resources, "apart": s.Affinity.PodAntiAffinity != nil, "terms": s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"annotations": 3, "safe": "true", "class": "runners", "nodes": {"zone": "a", "type": "virtual-kubelet", "disk": "fast"}, "tolerations": 4, "last": "dedicated",
		"pod": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}, "container": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
		"resources": {"limits": {"cpu": "8"}, "requests": {"cpu": "1m"}}, "apart": true, "terms": [
			{"matchExpressions": [{"key": "gpu", "operator": "Exists"}], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
			{"matchExpressions": [{"key": "big", "operator": "Exists"}], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}`
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A template gives a Pod no more than it has without one, says which field it must not have, and creates nothing.
func TestTemplateRefused(t *testing.T) {
	for template, want := range map[string]string{
		`{spec: {hostNetwork: true}}`:         `unknown field "spec.hostNetwork"`,
		`{spec: {serviceAccountName: admin}}`: `unknown field "spec.serviceAccountName"`,
		`{spec: {volumes: []}}`:               `unknown field "spec.volumes"`,
		`{spec: {containers: [{name: machine, securityContext: {privileged: true}}]}}`:           `unknown field "spec.containers[0].securityContext.privileged"`,
		`{spec: {containers: [{name: machine, securityContext: {capabilities: {add: [ALL]}}}]}}`: `unknown field "spec.containers[0].securityContext.capabilities.add"`,
		`{spec: {containers: [{name: machine, image: x}]}}`:                                      `unknown field "spec.containers[0].image"`,
		`{spec: {securityContext: {sysctls: []}}}`:                                               `unknown field "spec.securityContext.sysctls"`,
		`{spec: {containers: [{name: sidecar}]}}`:                                                "spec.containers: only one container can be set, with the name machine",
		`{spec: {tolerations: 5}}`:                                                               "cannot unmarshal number",
		`{metadata: {annotations: {agent.sallyport.dev/round: "7"}}}`:                            "metadata.annotations: agent.sallyport.dev/round cannot be set",
		`{spec: {containers: [{name: machine, resources: {limits: {cpu: "1e-999999999"}}}]}}`:    "a limit must be a quantity such as",
		`{spec: {containers: [{name: machine, resources: {limits: {nvidia.com/gpu: 1}}}]}}`:      `unknown field "spec.containers[0].resources.limits.nvidia.com/gpu"`,
		`{metadata: {labels: {}}}`:                                                               `unknown field "metadata.labels"`,
	} {
		api := newAPI()
		r, m := &pod.Runtime{Client: api, Live: api}, with(t, template)
		_, err := r.Ensure(t.Context(), m)
		if !runtime.IsInvalidSpec(err) || !strings.HasPrefix(err.Error(), "spec.runtime.pod.template") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", template, err, want)
		}
		var pods corev1.PodList
		if err := api.List(t.Context(), &pods); err != nil || len(pods.Items) > 0 {
			t.Errorf("%s: there are %d Pods (error %v)", template, len(pods.Items), err)
		}
	}
}
