package offline

import (
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Connections are the subresources for connecting to an object.
var Connections = []string{"exec", "attach", "portforward", "proxy"}

// optionKinds maps connections of built-in kinds to the kind of their options.
var optionKinds = map[string]string{
	"pods/exec": "PodExecOptions", "pods/attach": "PodAttachOptions", "pods/portforward": "PodPortForwardOptions", "pods/proxy": "PodProxyOptions",
	"services/proxy": "ServiceProxyOptions", "nodes/proxy": "NodeProxyOptions",
}

// defaultContainer is the annotation with kubectl's default container.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// parseConnection makes of an object the request that kubectl exec, attach, port-forward or proxy would send.
func (r *Reviewer) parseConnection(p *pending) error {
	d := &p.request.Document
	if p.request.Operation == "" {
		p.request.Operation = admissionv1.Connect
	}
	kind := optionKinds[p.kind.resource.Resource+"/"+p.request.Subresource]
	switch {
	case kind == "" || p.kind.Group != "":
		return d.errorf("%s has no subresource %s", p.kind.Kind, p.request.Subresource)
	case p.request.Operation != admissionv1.Connect:
		return d.errorf("the API server sends %s as CONNECT only, not as %s", p.request.Subresource, p.request.Operation)
	case p.request.Old != nil:
		return d.errorf("CONNECT has no old object")
	case p.id.name == "":
		return d.errorf("metadata.name is missing")
	}
	if r.world.get(p.id) == nil {
		to, err := r.world.stored(d)
		if err != nil {
			return err
		}
		r.world.store(to, d.Place())
		p.assumed = true
	}
	p.connection = corev1.SchemeGroupVersion.WithKind(kind)
	p.object = &unstructured.Unstructured{Object: optionsOf(r.world.get(p.id), p.connection, p.request)}
	r.world.kinds.known[p.kind.GroupVersionKind] = p.kind // maps its resource to it
	p.result = p.newResult()
	return nil
}

// optionsOf returns the options that kubectl sends by default.
func optionsOf(to *unstructured.Unstructured, kind schema.GroupVersionKind, request *Request) map[string]any {
	options := map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind}
	if request.Subresource != "exec" && request.Subresource != "attach" {
		return options
	}
	options["stdout"], options["stderr"] = true, true
	if name := to.GetAnnotations()[defaultContainer]; name != "" {
		options["container"] = name
	} else if all, _, _ := unstructured.NestedSlice(to.Object, "spec", "containers"); len(all) > 0 {
		if first, is := all[0].(map[string]any); is {
			options["container"] = first["name"]
		}
	}
	if len(request.Command) > 0 {
		command := make([]any, len(request.Command))
		for i, word := range request.Command {
			command[i] = word
		}
		options["command"] = command
	}
	return options
}
