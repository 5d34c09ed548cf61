package bundled

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/webhooks/offline"
)

// KindOf returns the kind of a resource: Sallyport's and built-in kinds are known, for others it derives the usual name. It fails if a
// known group has no such resource; the error suggests a similar one.
func KindOf(resource schema.GroupResource) (offline.ServedKind, error) {
	known, err := Kinds()
	if err != nil {
		return offline.ServedKind{}, err
	}
	for _, k := range known.Served() {
		if k.Resource.GroupResource() == resource {
			return k, nil
		}
	}
	kind := offline.ServedKind{Namespaced: true}
	if gvk := kubernetesKind(resource); !gvk.Empty() {
		kind.GroupVersionKind, kind.Namespaced = gvk, !slices.Contains(offline.ClusterScoped, gvk.Kind)
		return kind, nil
	}
	if resource.Group == v1alpha1.GroupName || clientgoscheme.Scheme.IsGroupRegistered(resource.Group) {
		known, err := builtIn()
		if err != nil {
			return kind, err
		}
		guess := ""
		if found := known.Meant(resource.Group, resource.Resource); len(found) > 0 {
			guess = "; did you mean " + strings.Join(found, " or ") + "?"
		}
		return kind, fmt.Errorf("no such resource%s", guess)
	}
	singular := strings.TrimSuffix(resource.Resource, "s")
	kind.Version, kind.Kind = "v1", strings.ToUpper(singular[:1])+singular[1:]
	return kind, nil
}

// kubernetesKind returns the built-in kind of a resource, in its preferred version; empty if there is none.
func kubernetesKind(resource schema.GroupResource) schema.GroupVersionKind {
	for _, version := range clientgoscheme.Scheme.PrioritizedVersionsForGroup(resource.Group) {
		for name := range clientgoscheme.Scheme.KnownTypes(version) {
			gvk := version.WithKind(name)
			if plural, _ := meta.UnsafeGuessKindToResource(gvk); plural.GroupResource() == resource {
				return gvk
			}
		}
	}
	return schema.GroupVersionKind{}
}

// builtIn are the resources that are known without a cluster: Sallyport's and built-in ones, without subresources. Other groups are
// unknown.
var builtIn = sync.OnceValues(func() (*registration.Served, error) {
	ours, err := Kinds()
	if err != nil {
		return nil, err
	}
	var all []registration.Resource
	for _, k := range ours.Served() {
		all = append(all, registration.Resource{GroupVersion: k.GroupVersion(), Plural: k.Resource.Resource, Names: []string{k.Kind}})
	}
	for gvk, kind := range clientgoscheme.Scheme.AllKnownTypes() {
		_, object := reflect.New(kind).Interface().(metav1.Object)
		if gvk.Group == "extensions" || !object { // what was in it has long moved to other groups
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		all = append(all, registration.Resource{GroupVersion: gvk.GroupVersion(), Plural: plural.Resource, Names: []string{gvk.Kind, shortNames[gvk.Kind]}})
	}
	return registration.NewServed(all, func(group string) bool {
		return group != v1alpha1.GroupName && !clientgoscheme.Scheme.IsGroupRegistered(group) && strings.Contains(group, ".")
	}), nil
})

// shortNames are those that kubectl knows from the cluster.
var shortNames = map[string]string{
	"ConfigMap": "cm", "CronJob": "cj", "DaemonSet": "ds", "Deployment": "deploy", "Endpoints": "ep", "HorizontalPodAutoscaler": "hpa",
	"Ingress": "ing", "Namespace": "ns", "NetworkPolicy": "netpol", "Node": "no", "PersistentVolume": "pv", "PersistentVolumeClaim": "pvc",
	"Pod": "po", "PodDisruptionBudget": "pdb", "ReplicaSet": "rs", "ReplicationController": "rc", "ResourceQuota": "quota", "Service": "svc",
	"ServiceAccount": "sa", "StatefulSet": "sts", "StorageClass": "sc",
}

// Unserved returns what spec.match of a policy names and no cluster serves, as far as known without a cluster: one line each, which
// begins with the field.
func Unserved(object *v1alpha1.RegoPolicy) []string {
	known, err := builtIn()
	if err != nil || object.Spec.Match == nil {
		return nil
	}
	match := object.Spec.Match.DeepCopy()
	for i := range match.Resources {
		for j, resource := range match.Resources[i].Resources {
			match.Resources[i].Resources[j], _, _ = strings.Cut(resource, "/") // whether there is a subresource is not known
		}
	}
	return known.Lacking(match)
}
