package cluster

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// row is a way to scale down or to delete, and what is to come of it: a refusal, by policy and reason, or passes.
type row struct {
	way string
	// make makes what it is tried on, guarded or not.
	make func(*trial)
	try  func(*trial) (said string, ok bool)
	// guarded and unguarded are what is to come of it; floor is what comes of it on what is guarded when no replica is asked and the
	// floor is there.
	guarded, unguarded, floor string
	// happened tells of one that passed whether it has had its effect, which it has not as long as it is refused. Nil if it is to
	// have none.
	happened func(*trial) bool
}

const (
	passes = "passes"

	belowMinimum   = scaling + "/BelowMinReplicas"
	scaleDenied    = scaling + "/ScaleDownDenied"
	tooMany        = scaling + "/ScaleDownTooLarge"
	badAnnotation  = scaling + "/AnnotationInvalid"
	notNamed       = "pools-scale-down/ScaleDownNotNamed"
	deletionDenied = protection + "/DeletionProtected"
	labelRemoved   = protection + "/ProtectionRemoved"
	labelUnknown   = protection + "/UnknownProtection"
	ownerAdded     = protection + "/OwnerAdded"
	holdsProtected = cascade + "/NamespaceHoldsProtected"
	hasObjects     = definitionsGuard + "/DefinitionHasObjects"
	// relabelled is refused by a ValidatingAdmissionPolicy of the chart, whatever the label.
	relabelled = "chart/sallyport-subresources"
	// notTheAuthor is refused by another.
	notTheAuthor = "chart/sallyport-override-authors"
)

// written is a way by which the object itself is written, so that the floor sees it.
func written(way string, try func(*trial) (string, bool)) row {
	return row{way, (*trial).two, try, belowMinimum, passes, belowMinimum, has(1)}
}

// scaled is a way by the subresource scale, which tells the floor nothing of the object.
func scaled(way string, try func(*trial) (string, bool)) row {
	return row{way, (*trial).two, try, belowMinimum, passes, passes, has(1)}
}

// let is a way that no guard has anything against.
func let(way string, make func(*trial), try func(*trial) (string, bool), happened func(*trial) bool) row {
	return row{way, make, try, passes, passes, passes, happened}
}

// deleted is a way to delete that the floor sees, too.
func deleted(way string, make func(*trial), try func(*trial) (string, bool), happened func(*trial) bool) row {
	return row{way, make, try, deletionDenied, passes, deletionDenied, happened}
}

// runs is a way that is one command.
func runs(line string, more ...string) func(*trial) (string, bool) {
	return func(t *trial) (string, bool) { return t.kubectl(line, more...) }
}

// feeds is one that has a manifest with one replica.
func feeds(line, replicas string) func(*trial) (string, bool) {
	return func(t *trial) (string, bool) { return t.fed(t.workload("Deployment", atLeastTwo, replicas), line) }
}

// first makes the Deployment as another command does.
func first(line string) func(*trial) {
	return func(t *trial) { t.mustKubectl(t.fed(t.workload("Deployment", atLeastTwo, "2"), line)) }
}

const one = `{"spec":{"replicas":1}}`

func (r row) made(make func(*trial)) row { r.make = make; return r }

func scalingRows() []row {
	sets := row{"a StatefulSet: `kubectl scale`", func(t *trial) { t.make(t.workload("StatefulSet", atLeastTwo, "2")) },
		runs("scale statefulset/web --replicas=1"), belowMinimum, passes, passes, func(t *trial) bool { return t.replicas(statefulSets) == 1 }}
	denied := written("`sallyport.dev/scale-down: Deny`, and a patch", runs("patch deployment web --type=merge -p", one)).
		made(func(t *trial) { t.make(t.workload("Deployment", v1alpha1.AnnotationScaleDown+": Deny", "2")) })
	denied.guarded, denied.floor = scaleDenied, scaleDenied
	most := scaled("`sallyport.dev/max-scale-down: 25%` of eight, and two fewer than that allows", runs("scale deployment/web --replicas=4")).
		made(func(t *trial) { t.make(t.workload("Deployment", v1alpha1.AnnotationMaxScaleDown+": 25%", "8")) })
	most.guarded, most.happened = tooMany, has(4)
	zero := scaled("`kubectl scale` to zero", runs("scale deployment/web --replicas=0"))
	zero.happened = has(0)
	dry := scaled("`kubectl scale --dry-run=server`", runs("scale deployment/web --replicas=1 --dry-run=server"))
	dry.happened = nil
	return []row{
		scaled("`kubectl scale`", runs("scale deployment/web --replicas=1")),
		zero,
		dry,
		scaled("`kubectl patch --subresource=scale`", runs("patch deployment web --subresource=scale --type=merge -p", one)),
		scaled("a HorizontalPodAutoscaler with fewer `maxReplicas`", (*trial).autoscaled),
		written("`kubectl edit`", runs("edit deployment web")),
		written("`kubectl patch --type=merge`", runs("patch deployment web --type=merge -p", one)),
		written("`kubectl patch --type=json`", runs("patch deployment web --type=json -p", `[{"op":"replace","path":"/spec/replicas","value":1}]`)),
		written("`kubectl patch --type=strategic`", runs("patch deployment web --type=strategic -p", one)),
		written("`kubectl apply`", feeds("apply", "1")).made(first("apply")),
		written("`kubectl apply` that drops `replicas`", feeds("apply", "")).made(first("apply")),
		written("`kubectl apply --server-side`", feeds("apply --server-side", "1")).made(first("apply --server-side")),
		written("`kubectl apply --server-side` that drops `replicas`", feeds("apply --server-side", "")).made(first("apply --server-side")),
		written("`kubectl replace`", feeds("replace", "1")),
		written("a patch that takes the limit off, too", runs("patch deployment web --type=merge -p",
			`{"metadata":{"annotations":{"`+v1alpha1.AnnotationMinReplicas+`":null}},"spec":{"replicas":1}}`)),
		sets, denied, most,
		let("`kubectl replace --force`, which deletes and creates", (*trial).two, feeds("replace --force", "1"), has(1)),
		let("more replicas", (*trial).two, runs("scale deployment/web --replicas=3"), has(3)),
		let("the limit taken off, and nothing else", (*trial).two, runs("annotate deployment web "+v1alpha1.AnnotationMinReplicas+"-"),
			func(t *trial) bool { return len(t.get(deployments, "web").GetAnnotations()) == 0 }),
		let("a rollout, with its ReplicaSets", (*trial).rollout, runs("set image deployment/web c=y"), rolled),
		let("`kubectl scale` of a ReplicaSet", func(t *trial) { t.make(t.workload("ReplicaSet", atLeastTwo, "2")) },
			runs("scale replicaset/web --replicas=1"), func(t *trial) bool { return t.replicas(replicaSets) == 1 }),
		let("the subresource `status`", (*trial).two, runs("patch deployment web --subresource=status --type=merge -p",
			`{"spec":{"replicas":1},"status":{"observedGeneration":77}}`), nil),
		let("a Deployment that is being deleted", (*trial).endingDeployment, runs("patch deployment web --type=merge -p", one), has(1)),
		let("a Deployment that belongs to a controller", (*trial).ownedDeployment, runs("patch deployment web --type=merge -p", one), has(1)),
		{"a Deployment that belongs to a made-up controller, against a limit of the policy", (*trial).ownedDeployment, func(t *trial) (string, bool) {
			return t.try(capped, "", "--namespace "+t.space+" patch deployment web --type=merge -p", one)
		}, belowMinimum, belowMinimum, passes, has(1)},
		let("a user whom `exclusions.users` has", (*trial).two, func(t *trial) (string, bool) {
			return t.try(robot, "", "--namespace "+t.space+" patch deployment web --type=merge -p", one)
		}, has(1)),
		written("an override by a user without the verb", func(t *trial) (string, bool) {
			t.overridden(member, scaling, "deployment/web")
			return t.kubectl("patch deployment web --type=merge -p", one)
		}),
		written("an override of another user, found by a user with the verb", func(t *trial) (string, bool) {
			t.planted(member, member, scaling, "deployment/web")
			return t.try("", "", "--namespace "+t.space+" patch deployment web --type=merge -p", one)
		}),
		let("an override by a user with the verb", (*trial).two, func(t *trial) (string, bool) {
			t.overridden("", scaling, "deployment/web")
			return t.try("", "", "scale deployment/web --replicas=1 --namespace "+t.space)
		}, has(1)),
		{"an annotation that is no number is written", (*trial).two, runs("annotate deployment web --overwrite " + v1alpha1.AnnotationMinReplicas + "=many"),
			badAnnotation, badAnnotation, passes, func(t *trial) bool {
				return t.get(deployments, "web").GetAnnotations()[v1alpha1.AnnotationMinReplicas] == "many"
			}},
	}
}

// rollout makes a Deployment that rolls out at once, though no Pod is ever ready.
func (t *trial) rollout() {
	t.make(strings.Replace(t.workload("Deployment", atLeastTwo, "2"), "paused: true", "strategy: {type: Recreate}", 1))
	t.Until("it has its ReplicaSet", func() (string, bool) {
		text, ok := t.kubectl("get replicaset -l app=web -o jsonpath={.items[0].spec.replicas}")
		return text, ok && text == "2"
	})
}

func (t *trial) endingDeployment() {
	o := t.make(strings.Replace(t.workload("Deployment", atLeastTwo, "2"), "metadata: {", "metadata: {finalizers: [example.com/hold], ", 1))
	t.Must(t.Client.Delete(t.Context(), o))
}

func (t *trial) ownedDeployment() {
	owner := t.make("{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}")
	t.make(strings.Replace(t.workload("Deployment", atLeastTwo, "2"), "metadata: {", fmt.Sprintf(
		"metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s, controller: true}], ", owner.GetUID()), 1))
}

func deletionRows() []row {
	kept := gone(configMaps, "kept")
	dry := deleted("`kubectl delete --dry-run=server`", (*trial).kept, runs("delete configmap kept --dry-run=server"), nil)
	replaced := deleted("`kubectl replace --force`", (*trial).kept, func(t *trial) (string, bool) {
		return t.fed(t.object("ConfigMap", ""), "replace --force")
	}, func(t *trial) bool { o := t.get(configMaps, "kept"); return o != nil && o.GetUID() != t.before })
	return append([]row{
		deleted("`kubectl delete`", (*trial).kept, runs("delete configmap kept --wait=false"), kept),
		dry,
		deleted("`kubectl delete --all`", (*trial).kept, runs("delete configmap --all --wait=false"), kept),
		deleted("`kubectl delete -l`", (*trial).kept, runs("delete configmap -l app=kept --wait=false"), kept),
		deleted("a deletion of the collection", (*trial).kept, func(t *trial) (string, bool) {
			return t.try(member, "", fmt.Sprintf("delete --raw /api/v1/namespaces/%s/configmaps?labelSelector=app%%3Dkept", t.space))
		}, kept),
		deleted("`kubectl delete --force --grace-period=0`", (*trial).keptPod, runs("delete pod kept --force --grace-period=0 --wait=false"), gone(pods, "kept")),
		deleted("`kubectl delete --cascade=foreground`", (*trial).kept, runs("delete configmap kept --cascade=foreground --wait=false"), kept),
		deleted("`kubectl delete --cascade=orphan`", (*trial).kept, runs("delete configmap kept --cascade=orphan --wait=false"), kept),
		replaced,
		deleted("a Deployment: `kubectl delete`", workload, runs("delete deployment web --wait=false"), gone(deployments, "web")),
		deleted("a ClusterRole, which is in no namespace: `kubectl delete`", (*trial).role, func(t *trial) (string, bool) {
			return t.try(member, "", "delete clusterrole "+t.space+" --wait=false")
		}, func(t *trial) bool { return t.get(clusterRoles, t.space) == nil }),
		deleted("an object of which there are two versions: by the other one", func(t *trial) {
			t.make(fmt.Sprintf("{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: kept, labels: %s}, spec: {minReplicas: 1, maxReplicas: 1,\n"+
				"  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}}}", t.labels()))
		}, runs("delete horizontalpodautoscalers.v1.autoscaling kept --wait=false"), gone(autoscalers, "kept")),
		deleted("an override by a user without the verb", (*trial).kept, func(t *trial) (string, bool) {
			t.overridden(member, protection, "configmap/kept")
			return t.kubectl("delete configmap kept --wait=false")
		}, kept),
		deleted("an override of another user, found by a user with the verb", (*trial).kept, func(t *trial) (string, bool) {
			t.planted(member, member, protection, "configmap/kept")
			return t.try("", "", "delete configmap --all --wait=false --namespace "+t.space)
		}, kept),
		let("an override by a user with the verb", (*trial).kept, func(t *trial) (string, bool) {
			t.overridden("", protection, "configmap/kept")
			return t.try("", "", "delete configmap kept --wait=false --namespace "+t.space)
		}, kept),
		let("a user whom `exclusions.users` has", (*trial).kept, func(t *trial) (string, bool) {
			return t.try(robot, "", "delete configmap kept --wait=false --namespace "+t.space)
		}, kept),
		let("a Pod: its node", (*trial).keptPod, func(t *trial) (string, bool) {
			return t.try("system:node:a", "", "delete pod kept --wait=false --as-group=system:nodes --namespace "+t.space)
		}, gone(pods, "kept")),
		deleted("a ConfigMap: a node", (*trial).kept, func(t *trial) (string, bool) {
			return t.try("system:node:a", "", "delete configmap kept --wait=false --as-group=system:nodes --namespace "+t.space)
		}, kept),
		let("a Pod: its eviction, as by `kubectl drain`", (*trial).keptPod, (*trial).evicted, gone(pods, "kept")),
		let("a second deletion", (*trial).ending, runs("delete configmap kept --wait=false"), nil),
		let("the last finalizer of what is being deleted", (*trial).ending,
			runs("patch configmap kept --type=merge -p", `{"metadata":{"finalizers":null}}`), kept),
		let("a finalizer of what is not", func(t *trial) { t.make(t.object("ConfigMap", ", finalizers: [example.com/hold]")) },
			runs("patch configmap kept --type=merge -p", `{"metadata":{"finalizers":null}}`),
			func(t *trial) bool { return len(t.get(configMaps, "kept").GetFinalizers()) == 0 }),
	}, append(ownerRows(), append(labelRows(), cascadeRows()...)...)...)
}

// ownerRows are about what the garbage collector does.
func ownerRows() []row {
	owner := func(t *trial) { t.make("{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}"); t.kept() }
	added := func(t *trial) (string, bool) {
		return t.kubectl("patch configmap kept --type=merge -p", fmt.Sprintf(
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, t.get(configMaps, "owner").GetUID()))
	}
	kept := gone(configMaps, "kept")
	orphaned := func(t *trial) bool {
		o := t.get(configMaps, "kept")
		return o != nil && len(o.GetOwnerReferences()) == 0 && t.get(configMaps, "owner") == nil
	}
	return []row{
		let("its owner: `kubectl delete`, and the garbage collector", (*trial).dependent, runs("delete configmap owner --wait=false"), kept),
		let("its owner: `kubectl delete --cascade=foreground`", (*trial).dependent, runs("delete configmap owner --cascade=foreground --wait=false"), kept),
		let("its owner: `kubectl delete --cascade=orphan`", (*trial).dependent, runs("delete configmap owner --cascade=orphan --wait=false"), orphaned),
		{"a patch that adds an owner", owner, added, ownerAdded, passes, ownerAdded,
			func(t *trial) bool { return len(t.get(configMaps, "kept").GetOwnerReferences()) == 1 }},
		let("a patch that takes the owner off", (*trial).dependent, runs("patch configmap kept --type=merge -p", `{"metadata":{"ownerReferences":null}}`),
			func(t *trial) bool { return len(t.get(configMaps, "kept").GetOwnerReferences()) == 0 }),
	}
}

// labelRows are about the label itself.
func labelRows() []row {
	const label = v1alpha1.LabelDeletionProtection
	off := `{"metadata":{"labels":{"app":null,"` + label + `":null}}}`
	value := func(is string) func(*trial) bool {
		return func(t *trial) bool { return t.get(configMaps, "kept").GetLabels()[label] == is }
	}
	unlabelled := func(kind string) func(*trial) bool {
		return func(t *trial) bool {
			o := t.get(configMaps, "kept")
			if kind == "Pod" {
				o = t.get(pods, "kept")
			}
			return len(o.GetLabels()) == 0
		}
	}
	return []row{
		{"all labels taken off", (*trial).kept, runs("patch configmap kept --type=merge -p", off), labelRemoved, passes, labelRemoved, unlabelled("ConfigMap")},
		{"a Pod: so, by the subresource `status`", (*trial).keptPod, runs("patch pod kept --subresource=status --type=merge -p", off),
			relabelled, relabelled, relabelled, unlabelled("Pod")},
		let("a Pod: so, by its node", (*trial).keptPod, func(t *trial) (string, bool) {
			return t.try("system:node:a", "", "--as-group=system:nodes --namespace "+t.space+" patch pod kept --type=merge -p", off)
		}, unlabelled("Pod")),
		{"a Pod: another value of the label, by its Binding", (*trial).keptPod, bound(`"labels":{"` + label + `":"off"}`), relabelled, relabelled, relabelled,
			func(t *trial) bool { return t.get(pods, "kept").GetLabels()[label] == "off" }},
		{"a Pod: an override of another user, by its Binding", (*trial).keptPod, func(t *trial) (string, bool) {
			return bound(`"annotations":{"` + v1alpha1.AnnotationOverride + `":"` + overrideOf(protection, admin, t.before) + `"}`)(t)
		}, notTheAuthor, notTheAuthor, notTheAuthor, func(t *trial) bool { return len(t.get(pods, "kept").GetAnnotations()) == 1 }},
		let("a Pod: its Binding, with labels and annotations of others", (*trial).keptPod, bound(`"labels":{"topology.kubernetes.io/zone":"a"},"annotations":{"example.com/a":"b"}`),
			func(t *trial) bool { return t.get(pods, "kept").GetAnnotations()["example.com/a"] == "b" }),
		{"the label with another value", (*trial).kept, runs("label configmap kept --overwrite " + label + "=true"),
			labelRemoved, labelUnknown, labelRemoved, value("true")},
		let("the label with `enabled`", (*trial).kept, runs("label configmap kept --overwrite "+label+"=enabled"), value("enabled")),
		{"something new, with another value of the label", func(*trial) {}, func(t *trial) (string, bool) {
			return t.fed("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, labels: {"+label+": 'TRUE'}}}", "create")
		}, labelUnknown, labelUnknown, labelUnknown, func(t *trial) bool { return t.get(configMaps, "kept") != nil }},
	}
}

// bound has a scheduler bind a Pod to a node, with metadata.
func bound(metadata string) func(*trial) (string, bool) {
	return func(t *trial) (string, bool) {
		return t.try(member, fmt.Sprintf(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"kept","namespace":%q,%s},"target":{"apiVersion":"v1","kind":"Node","name":"a"}}`,
			t.space, metadata), fmt.Sprintf("create --raw /api/v1/namespaces/%s/pods/kept/binding -f -", t.space))
	}
}

// role makes what is in no namespace.
func (t *trial) role() {
	o := &unstructured.Unstructured{}
	t.Must(yaml.Unmarshal([]byte(t.object("ClusterRole", "")), &o.Object))
	o.SetAPIVersion("rbac.authorization.k8s.io/v1")
	o.SetName(t.space)
	t.Must(t.Client.Create(t.Context(), o))
}

// workload makes a Deployment that is not to be deleted.
func workload(t *trial) {
	t.make(strings.Replace(t.workload("Deployment", "", "2"), "metadata: {", "metadata: {labels: "+t.labels()+", ", 1))
}

// cascadeRows are about what takes others with it.
func cascadeRows() []row {
	namespace := func(t *trial) (string, bool) {
		return t.try(member, "", "delete namespace "+t.space+" --wait=false")
	}
	ended := func(t *trial) bool { return t.get(namespaces, t.space) == nil }
	return []row{
		{"its namespace: `kubectl delete`", workload, namespace, holdsProtected, passes, passes, ended},
		{"its namespace, `--dry-run=server`", workload, func(t *trial) (string, bool) {
			return t.try(member, "", "delete namespace "+t.space+" --dry-run=server")
		}, holdsProtected, passes, passes, nil},
		deleted("a namespace that is protected itself: `kubectl delete`", func(t *trial) {
			labels, err := yaml.YAMLToJSON([]byte(t.labels()))
			t.Must(err)
			t.patch(t.get(namespaces, t.space), `{"metadata":{"labels":`+string(labels)+`}}`)
		}, namespace, ended),
		let("a kind that `deletion-cascade` does not read: its namespace", func(t *trial) { t.make(t.object("Secret", "")) }, namespace, ended),
		{"a definition of Sallyport's that has objects, `--dry-run=server`", func(*trial) {}, func(t *trial) (string, bool) {
			kind := "vsphereservers" // of which there is none
			if t.guarded {
				kind = "regopolicies"
			}
			return t.try(member, "", "delete crd "+kind+".sallyport.dev --dry-run=server")
		}, hasObjects, passes, passes, nil},
	}
}
