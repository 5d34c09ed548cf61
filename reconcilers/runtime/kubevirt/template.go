package kubevirt

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

const templateField = "spec.runtime.kubevirt.create.template"

// templated returns what is to be created: vm over the template of the spec. It is not decoded into the types of KubeVirt, which a newer
// KubeVirt can have more fields than; those that the API server does not know are errors.
func templated(vm *virtv1.VirtualMachine, m runtime.Machine) (client.Object, []client.CreateOption, error) {
	given := m.Spec.Runtime.KubeVirt.Create.Template
	if given == nil {
		return vm, nil, nil
	}
	under := map[string]any{}
	if err := json.Unmarshal(given.Raw, &under); err != nil {
		return nil, nil, runtime.NewInvalidSpec(err, "%s: %s", templateField, err)
	}
	nodes, err := placementOf(m)
	if err != nil {
		return nil, nil, err
	}
	for _, at := range []struct {
		path  []string
		known []string
	}{{nil, []string{"metadata", "spec"}}, {[]string{"metadata"}, []string{"labels", "annotations"}}} {
		fields, _, err := unstructured.NestedMap(under, at.path...)
		if err != nil {
			return nil, nil, runtime.NewInvalidSpec(err, "%s: %s", templateField, err)
		}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if !slices.Contains(at.known, key) {
				return nil, nil, runtime.NewInvalidSpec(nil, "%s: only metadata.labels, metadata.annotations and spec can be set, not %s", templateField, key)
			}
		}
	}
	content, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(vm)
	known, failed := kruntime.DefaultUnstructuredConverter.ToUnstructured(&nodes)
	if err := errors.Join(err, failed); err != nil {
		return nil, nil, fmt.Errorf("encoding KubeVirt VirtualMachine %s: %w", vm.Name, err)
	}
	delete(content, "status")
	o := &unstructured.Unstructured{Object: content}
	o.SetGroupVersionKind(virtv1.VirtualMachineGroupVersionKind)
	spec := content["spec"].(map[string]any)
	if given, is := under["spec"].(map[string]any); is {
		over := spec["template"].(map[string]any)["spec"].(map[string]any)
		for _, field := range []string{"nodeSelector", "affinity"} { // configure has added to what is known of them
			if value := carry(given[field], known[field], over[field]); value != nil {
				over[field] = value
			}
			delete(given, field)
		}
	}
	if spec["template"], err = overlay(templateField, under, spec["template"]); err != nil {
		return nil, nil, err
	}
	return o, []client.CreateOption{client.FieldValidation(metav1.FieldValidationStrict)}, nil
}

// overlay returns under with what over sets. It is an error if under sets the same to another value.
func overlay(path string, under, over any) (any, error) {
	switch over := over.(type) {
	case nil:
		return under, nil
	case map[string]any:
		if under, is := under.(map[string]any); is {
			return overlayFields(path, under, over)
		}
	case []any:
		if under, is := under.([]any); is {
			return overlayEntries(path, under, over)
		}
	}
	if under != nil && !equality.Semantic.DeepEqual(under, over) {
		return nil, runtime.NewInvalidSpec(nil, "%s: Sallyport sets this field to %v: remove it from the template", path, over)
	}
	return over, nil
}

func overlayFields(path string, under, over map[string]any) (all map[string]any, err error) {
	all = maps.Clone(under)
	for _, key := range slices.Sorted(maps.Keys(over)) {
		if all[key], err = overlay(path+"."+key, under[key], over[key]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// overlayEntries merges entries of the same name. Those of over come first.
func overlayEntries(path string, under, over []any) (all []any, err error) {
	rest := slices.Clone(under)
	for _, entry := range over {
		name := nameIn(entry)
		if i := slices.IndexFunc(rest, func(e any) bool { return name != "" && nameIn(e) == name }); i >= 0 {
			if entry, err = overlay(path+"["+name+"]", rest[i], entry); err != nil {
				return nil, err
			}
			rest = slices.Delete(rest, i, i+1)
		}
		all = append(all, entry)
	}
	return append(all, rest...), nil
}

// nameIn returns the name of an entry of a list, such as a disk.
func nameIn(entry any) string {
	fields, _ := entry.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}

// placement is what a template says about nodes.
type placement struct {
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Affinity     *corev1.Affinity  `json:"affinity,omitempty"`
}

func placementOf(m runtime.Machine) (placement, error) {
	var of struct {
		Spec placement `json:"spec"`
	}
	if given := m.Spec.Runtime.KubeVirt.Create.Template; given != nil {
		if err := json.Unmarshal(given.Raw, &of); err != nil {
			return placement{}, runtime.NewInvalidSpec(err, "%s: %s", templateField, err)
		}
	}
	return of.Spec, nil
}

// setNodes sets the nodes of the template and of the spec. The node is only preferred: a required one would keep the instance from being moved.
func setNodes(spec *virtv1.VirtualMachineInstanceSpec, m runtime.Machine) {
	of, _ := placementOf(m) // Ensure reports the error, and creates nothing
	spec.NodeSelector, spec.Affinity = of.NodeSelector, of.Affinity
	for key, value := range m.Spec.NodeSelector {
		if spec.NodeSelector == nil {
			spec.NodeSelector = map[string]string{}
		}
		spec.NodeSelector[key] = string(value)
	}
	if m.Spec.NodeName == "" {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	preferred := &spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	*preferred = append(*preferred, corev1.PreferredSchedulingTerm{Weight: 100, Preference: corev1.NodeSelectorTerm{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{m.Spec.NodeName}}},
	}})
}
