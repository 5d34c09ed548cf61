package offline

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// scalePaths are the paths of the fields in the subresource scale. Without replicas the kind has no such subresource.
type scalePaths struct{ replicas, status, selector []string }

func (s scalePaths) exist() bool { return len(s.replicas) > 0 }

// replicasPaths are the paths of built-in kinds.
var replicasPaths = scalePaths{replicas: []string{"spec", "replicas"}, status: []string{"status", "replicas"}}

func pathsOf(scale *apiextensionsv1.CustomResourceSubresourceScale) scalePaths {
	split := func(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }
	s := scalePaths{replicas: split(scale.SpecReplicasPath), status: split(scale.StatusReplicasPath)}
	if scale.LabelSelectorPath != nil {
		s.selector = split(*scale.LabelSelectorPath)
	}
	return s
}

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// Scale is the name of the subresource.
const Scale = "scale"

// parseScale makes of a Scale, or of an object that has one, the request that kubectl scale would send.
func (r *Reviewer) parseScale(p *pending) error {
	d := &p.request.Document
	if p.request.Operation == "" {
		p.request.Operation = admissionv1.Update
	}
	switch {
	case p.request.Subresource != Scale:
		return d.errorf("subresource %q is not %s", p.request.Subresource, Scale)
	case p.request.Operation != admissionv1.Update:
		return d.errorf("a Scale can only be updated; the operation is %s", p.request.Operation)
	case p.id.name == "":
		return d.errorf("metadata.name is missing")
	}
	parent, err := r.parentOf(p)
	if err != nil {
		return err
	}
	old, err := scaleOf(parent, p.kind.scale)
	if err != nil {
		return d.errorf("%s: %w", p.id, err)
	}
	if p.request.Object["kind"] != scaleKind.Kind {
		replicas, found, err := unstructured.NestedFieldNoCopy(p.sent, p.kind.scale.replicas...)
		if err != nil || !found {
			return d.errorf("%s is missing", strings.Join(p.kind.scale.replicas, "."))
		}
		p.object = old.DeepCopy()
		if err := unstructured.SetNestedField(p.object.Object, replicas, "spec", "replicas"); err != nil {
			return d.errorf("%w", err)
		}
		p.sent = p.object.DeepCopy().Object
	}
	p.scaled, p.old = parent, old
	r.world.kinds.known[p.kind.GroupVersionKind] = p.kind // maps its resource to it
	p.result = p.newResult()
	return nil
}

// parentOf finds the object to scale, and makes the request one about it.
func (r *Reviewer) parentOf(p *pending) (*unstructured.Unstructured, error) {
	d := &p.request.Document
	parent := r.world.get(p.id)
	if p.request.Old != nil {
		old, err := r.world.stored(p.request.Old)
		if err != nil {
			return nil, err
		}
		parent = old
	} else if p.kind.GroupVersionKind == scaleKind {
		candidates := r.world.all(func(t *storedObject) bool {
			_, scales, _ := unstructured.NestedFieldNoCopy(t.Object, "spec", "replicas")
			return scales && t.GetNamespace() == p.id.namespace && t.GetName() == p.id.name
		})
		if len(candidates) > 1 {
			return nil, d.errorf("the Scale could be that of %s or of %s; give that object with another number of replicas in place of the Scale",
				identityOf(candidates[0].Unstructured), identityOf(candidates[1].Unstructured))
		}
		if len(candidates) == 1 {
			parent = candidates[0].Unstructured
		}
	}
	if parent == nil {
		return nil, d.errorf("the state has no object for %s", p.id)
	}
	k, err := r.world.kinds.of(&Document{Object: parent.Object, File: d.File, Line: d.Line})
	if err != nil {
		return nil, err
	}
	id := identityOf(parent)
	switch {
	case !k.scale.exist():
		return nil, d.errorf("%s has no subresource %s", k.Kind, Scale)
	case p.kind.GroupVersionKind != scaleKind && id != p.id, id.name != p.id.name, id.namespace != p.id.namespace:
		return nil, d.errorf("the old object is %s, but the request is about %s", id, p.id)
	}
	p.kind, p.id = k, id
	return parent, nil
}

// scaleOf returns an object's Scale.
func scaleOf(parent *unstructured.Unstructured, paths scalePaths) (*unstructured.Unstructured, error) {
	replicas, _, err := unstructured.NestedInt64(parent.Object, paths.replicas...)
	if err != nil {
		return nil, err
	}
	current, _, err := unstructured.NestedInt64(parent.Object, paths.status...)
	if err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: scaleKind.GroupVersion().String(), Kind: scaleKind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: parent.GetName(), Namespace: parent.GetNamespace(), UID: parent.GetUID(),
			ResourceVersion: parent.GetResourceVersion(), CreationTimestamp: parent.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(replicas)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(current), Selector: selectorOf(parent, paths)},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(scale)
	return &unstructured.Unstructured{Object: object}, err
}

// selectorOf returns the selector as text: from the kind's path, or that of a workload.
func selectorOf(parent *unstructured.Unstructured, paths scalePaths) string {
	if len(paths.selector) > 0 {
		text, _, _ := unstructured.NestedString(parent.Object, paths.selector...)
		return text
	}
	spec, _, _ := unstructured.NestedMap(parent.Object, "spec", "selector")
	var selector metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &selector); err != nil {
		return ""
	}
	return metav1.FormatLabelSelector(&selector)
}

// scale handles PUT of a Scale.
func (r *Reviewer) scale(ctx context.Context, p *pending) error {
	if problem := r.readScale(p); problem != nil {
		return problem
	}
	if err := r.mutate(ctx, p); err != nil {
		return err
	}
	if p.object.GetResourceVersion() != p.old.GetResourceVersion() {
		return apierrors.NewConflict(p.resource(), p.id.name, fmt.Errorf(
			"the object has been modified; please apply your changes to the latest version and try again"))
	}
	parent, err := r.scaledParent(ctx, p)
	if err != nil {
		return err
	}
	if err := r.validate(ctx, p); err != nil {
		return err
	}
	parent.SetResourceVersion(r.world.newVersion())
	p.object.SetResourceVersion(parent.GetResourceVersion())
	if !p.undecided && p.request.Old == nil {
		r.world.store(parent, p.request.Place())
	}
	return nil
}

// readScale decodes the Scale and fills in what kubectl scale would have read before.
func (r *Reviewer) readScale(p *pending) error {
	sent := &autoscalingv1.Scale{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(p.object.Object, sent, p.request.Validation == Strict); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("Scale in version %q cannot be handled as a Scale: %v", scaleKind.Version, err))
	}
	if err := p.checkUID(); err != nil {
		return err
	}
	if sent.ResourceVersion == "" {
		sent.ResourceVersion = p.old.GetResourceVersion()
	}
	if sent.Spec.Replicas < 0 {
		return apierrors.NewInvalid(scaleKind.GroupKind(), p.id.name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), sent.Spec.Replicas, "must be greater than or equal to 0"),
		})
	}
	version, replicas := sent.ResourceVersion, int64(sent.Spec.Replicas)
	p.object = p.old.DeepCopy()
	p.object.SetResourceVersion(version)
	return unstructured.SetNestedField(p.object.Object, replicas, "spec", "replicas")
}

// scaledParent returns the parent with the new number of replicas, if its own schema allows it.
func (r *Reviewer) scaledParent(ctx context.Context, p *pending) (*unstructured.Unstructured, error) {
	replicas, _, err := unstructured.NestedInt64(p.object.Object, "spec", "replicas")
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	parent := p.scaled.DeepCopy()
	if err := unstructured.SetNestedField(parent.Object, replicas, p.kind.scale.replicas...); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if sameButMetadata(parent.Object, p.scaled.Object) {
		return parent, nil
	}
	parent.SetGeneration(p.scaled.GetGeneration() + 1)
	if s := p.kind.schema; s != nil {
		if errs := s.validateChange(ctx, p.kind, parent, p.scaled); len(errs) > 0 {
			return nil, apierrors.NewInvalid(p.kind.GroupKind(), p.id.name, errs)
		}
	}
	return parent, nil
}
