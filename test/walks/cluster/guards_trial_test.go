package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// trial is one way to scale down or to delete, tried on something in a namespace of its own.
type trial struct {
	*guardSite
	space   string
	guarded bool
	before  types.UID // of what was made last
}

// kubectl runs it as a member of the team, in the namespace of the trial.
func (t *trial) kubectl(line string, more ...string) (said string, ok bool) {
	t.Helper()
	return t.try(member, "", "--namespace "+t.space+" "+line, more...)
}

// fed runs it so with a manifest, with -f -.
func (t *trial) fed(manifest, line string) (said string, ok bool) {
	t.Helper()
	return t.try(member, manifest, "--namespace "+t.space+" "+line+" -f -")
}

// mustKubectl is part of what is made before a trial.
func (t *trial) mustKubectl(said string, ok bool) {
	t.Helper()
	if !ok {
		t.Fatal(said)
	}
}

// make makes an object, as the administrator.
func (t *trial) make(manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	t.Must(yaml.Unmarshal([]byte(manifest), &o.Object))
	o.SetNamespace(t.space)
	t.Must(t.Client.Create(t.Context(), o))
	t.before = o.GetUID()
	return o
}

// get gives an object of the trial's namespace, nil if there is none.
func (t *trial) get(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	switch err := t.Client.Get(t.Context(), client.ObjectKey{Namespace: t.space, Name: name}, o); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil
	default:
		t.Must(err)
	}
	return o
}

// patch changes an object as the administrator.
func (t *trial) patch(o *unstructured.Unstructured, merge string) {
	t.Helper()
	t.Must(t.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(merge))))
}

var (
	deployments  = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	statefulSets = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	replicaSets  = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}
	clusterRoles = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}
	jobs         = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	configMaps   = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	secrets      = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	autoscalers  = schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}
	machines     = schema.GroupVersionKind{Group: "sallyport.dev", Version: "v1alpha1", Kind: "VirtualMachine"}
	leases       = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	pods         = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	namespaces   = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
)

// annotations of a workload; of one that is guarded, that it has at least two replicas.
func (t *trial) annotations(guard string) string {
	if !t.guarded {
		return "{}"
	}
	return "{" + guard + "}"
}

// atLeastTwo is the usual guard.
const atLeastTwo = v1alpha1.AnnotationMinReplicas + `: "2"`

// workload is the manifest of one of a kind. It is paused, so that no Pods come of it.
func (t *trial) workload(kind, guard, replicas string) string {
	paused := ""
	if kind == "Deployment" {
		paused = "paused: true, "
	}
	if replicas != "" {
		replicas = "replicas: " + replicas + ", "
	}
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: %s
metadata: {name: web, annotations: %s}
spec: {%s%sselector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: x}]}}}
`, kind, t.annotations(guard), paused, replicas)
}

// two is the Deployment that most ways are tried on.
func (t *trial) two() { t.make(t.workload("Deployment", atLeastTwo, "2")) }

// replicas tells how many a workload is to have.
func (t *trial) replicas(kind schema.GroupVersionKind) int64 {
	t.Helper()
	o := t.get(kind, "web")
	if o == nil {
		return -1
	}
	n, _, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
	t.Must(err)
	return n
}

func has(n int64) func(*trial) bool {
	return func(t *trial) bool { return t.replicas(deployments) == n }
}

// labels of an object; of one that is guarded, that it is protected.
func (t *trial) labels() string {
	if !t.guarded {
		return "{app: kept}"
	}
	return "{app: kept, " + v1alpha1.LabelDeletionProtection + ": " + v1alpha1.DeletionProtectionEnabled + "}"
}

// object is the manifest of what is to be deleted.
func (t *trial) object(kind, more string) string {
	spec := ""
	if kind == "Pod" {
		spec = "spec: {containers: [{name: c, image: x}]}\n"
	}
	return fmt.Sprintf("---\napiVersion: v1\nkind: %s\nmetadata: {name: kept, labels: %s%s}\n%s", kind, t.labels(), more, spec)
}

// kept is the ConfigMap that most ways are tried on.
func (t *trial) kept() { t.make(t.object("ConfigMap", "")) }

func (t *trial) keptPod() { t.make(t.object("Pod", "")) }

func gone(kind schema.GroupVersionKind, name string) func(*trial) bool {
	return func(t *trial) bool { return t.get(kind, name) == nil }
}

// dependent makes what goes with its owner, which nobody protects.
func (t *trial) dependent() {
	owner := t.make("{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}")
	t.make(t.object("ConfigMap", fmt.Sprintf(", ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s, blockOwnerDeletion: true}]", owner.GetUID())))
}

// ending makes an object whose deletion has begun.
func (t *trial) ending() {
	guarded := t.guarded
	t.guarded = false
	o := t.make(t.object("ConfigMap", ", finalizers: [example.com/hold]"))
	t.guarded = guarded
	t.Must(t.Client.Delete(t.Context(), o))
	if guarded {
		t.patch(o, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelDeletionProtection, v1alpha1.DeletionProtectionEnabled))
	}
}

// overridden has somebody write an override on an object, for themselves.
func (t *trial) overridden(user, policy, resource string) {
	t.planted(user, cmp.Or(user, admin), policy, resource)
}

// planted has somebody write an override on an object that somebody may use.
func (t *trial) planted(user, by, policy, resource string) {
	t.Helper()
	text := v1alpha1.AnnotationOverride + "=" + overrideOf(policy, by, t.before)
	t.mustKubectl(t.try(user, "", "--namespace "+t.space+" annotate "+resource, text))
}

// autoscaled has the autoscaler want one replica, and gives what it says of that.
func (t *trial) autoscaled() (said string, ok bool) {
	t.make(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {minReplicas: 1, maxReplicas: 1,
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}`)
	t.Until("the autoscaler has tried", func() (string, bool) {
		o := t.get(autoscalers, "web")
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		t.Must(err)
		for _, c := range conditions {
			c := c.(map[string]any)
			if c["type"] == "AbleToScale" && c["reason"] == "FailedUpdateScale" {
				said = fmt.Sprint(c["message"])
				return said, true
			}
		}
		ok = t.replicas(deployments) == 1
		return fmt.Sprint(conditions), ok
	})
	return said, ok
}

// rolled tells whether the Pods are all of the new template.
func rolled(t *trial) bool {
	counts := map[string]int64{}
	for _, rs := range t.list(replicaSets) {
		n, _, _ := unstructured.NestedInt64(rs.Object, "spec", "replicas")
		containers, _, _ := unstructured.NestedSlice(rs.Object, "spec", "template", "spec", "containers")
		counts[containers[0].(map[string]any)["image"].(string)] += n
	}
	return counts["y"] == 2 && counts["x"] == 0 && len(counts) == 2
}

// evicted asks for the eviction of a Pod, as `kubectl drain` does.
func (t *trial) evicted() (said string, ok bool) {
	return t.try(member, fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"kept","namespace":%q}}`, t.space),
		fmt.Sprintf("create --raw /api/v1/namespaces/%s/pods/kept/eviction -f -", t.space))
}

// leftovers are the kinds of which trials leave something.
var leftovers = []schema.GroupVersionKind{autoscalers, pools, machines, leases, deployments, statefulSets, replicaSets, pods, secrets, configMaps}

// release takes off what keeps the objects of the trial, as their administrators would, and deletes them: nothing is left that cannot
// be deleted.
func (t *trial) release() {
	t.Helper()
	t.unprotect(t.get(namespaces, t.space))
	if role := t.get(clusterRoles, t.space); role != nil {
		t.dismantle(role)
	}
	t.Until("nothing is left of the trial", func() (string, bool) {
		var left []string
		for _, kind := range append(kubevirt, leftovers...) {
			for _, o := range t.list(kind) {
				if strings.HasPrefix(o.GetName(), "kube-root-ca") {
					continue
				}
				left = append(left, kind.Kind+" "+o.GetName())
				t.dismantle(&o)
			}
		}
		return strings.Join(left, ", "), len(left) == 0
	})
}

func (t *trial) list(kind schema.GroupVersionKind) []unstructured.Unstructured {
	t.Helper()
	objects := &unstructured.UnstructuredList{}
	objects.SetGroupVersionKind(kind)
	t.Must(t.Client.List(t.Context(), objects, client.InNamespace(t.space)))
	return objects.Items
}

// dismantle deletes an object, whatever keeps it.
func (t *trial) dismantle(o *unstructured.Unstructured) {
	t.Helper()
	t.unprotect(o)
	t.forgotten(o)
	if err := t.Client.Delete(t.Context(), o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Errorf("deleting %s: %v", o.GetName(), err)
	}
}

// unprotect takes finalizers off, and the label with an override.
func (t *trial) unprotect(o *unstructured.Unstructured) {
	t.Helper()
	metadata := map[string]any{}
	if len(o.GetFinalizers()) > 0 {
		metadata["finalizers"] = nil
	}
	if o.GetLabels()[v1alpha1.LabelDeletionProtection] != "" {
		metadata["labels"] = map[string]any{v1alpha1.LabelDeletionProtection: nil}
		metadata["annotations"] = map[string]any{v1alpha1.AnnotationOverride: overrideOf(protection, admin, o.GetUID())}
	}
	if len(metadata) == 0 {
		return
	}
	merge, err := json.Marshal(map[string]any{"metadata": metadata})
	t.Must(err)
	if err := t.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, merge)); client.IgnoreNotFound(err) != nil {
		t.Errorf("releasing %s: %v", o.GetName(), err)
	}
}

func overrideOf(policy, by string, uid types.UID) string {
	return fmt.Sprintf("%s; uid=%s; by=%s; until=%s; a trial", policy, uid, by, time.Now().Add(20*time.Minute).UTC().Format(time.RFC3339))
}

// spaces are namespaces that trials have left empty.
type spaces struct {
	mu   sync.Mutex
	free []string
}

func (s *spaces) take() (name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		name, s.free = s.free[n-1], s.free[:n-1]
	}
	return name
}

func (s *spaces) give(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, name)
}

// cleared deletes all namespaces of the tests.
func (s *guardSite) cleared() {
	s.Helper()
	s.spaces.free = nil
	list := &corev1.NamespaceList{}
	s.Must(s.Client.List(s.Context(), list, client.MatchingLabels{"guards": "test"}))
	for i := range list.Items {
		if err := s.Client.Delete(s.Context(), &list.Items[i]); client.IgnoreNotFound(err) != nil {
			s.Errorf("deleting namespace %s: %v", list.Items[i].Name, err)
		}
	}
	s.Until("nothing is left", func() (string, bool) {
		s.Must(s.Client.List(s.Context(), list, client.MatchingLabels{"guards": "test"}))
		var left []string
		for i := range list.Items {
			left = append(left, fmt.Sprintf("%s %+v", list.Items[i].Name, list.Items[i].Status.Conditions))
		}
		return strings.Join(left, "\n"), len(left) == 0
	})
}
