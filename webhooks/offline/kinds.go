package offline

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
)

// kind is what the API server knows of one kind in one version.
type kind struct {
	schema.GroupVersionKind
	resource   schema.GroupVersionResource
	namespaced bool
	// guessed is set if resource and scope are unknown, and derived from the kind by convention.
	guessed bool
	// schema is nil for kinds that are not ours.
	schema *kindSchema
	scale  scalePaths
}

// kindSchema is what objects of a kind have to be like.
type kindSchema struct {
	*catalog.Schema
	status bool // it has the status subresource
}

// Kinds are all that are known: ours by their definitions, Kubernetes' own by convention, others by definitions in the state.
type Kinds struct {
	known map[schema.GroupVersionKind]*kind
}

// NewKinds reads the definitions of our kinds.
func NewKinds(crds []*apiextensionsv1.CustomResourceDefinition) (*Kinds, error) {
	k := &Kinds{known: map[schema.GroupVersionKind]*kind{}}
	for _, crd := range crds {
		if err := k.define(crd); err != nil {
			return nil, fmt.Errorf("definition %s: %w", crd.Name, err)
		}
	}
	return k, nil
}

func (k *Kinds) define(crd *apiextensionsv1.CustomResourceDefinition) error {
	for i := range crd.Spec.Versions {
		version := &crd.Spec.Versions[i]
		defined := named(crd, version)
		schema, err := newKindSchema(version)
		if err != nil {
			return err
		}
		defined.schema = schema
		k.known[defined.GroupVersionKind] = defined
	}
	return nil
}

// learn takes names and scope from a definition in the state. Its schema is not ours to apply.
func (k *Kinds) learn(crd *apiextensionsv1.CustomResourceDefinition) {
	for i := range crd.Spec.Versions {
		learned := named(crd, &crd.Spec.Versions[i])
		if _, ours := k.known[learned.GroupVersionKind]; !ours {
			k.known[learned.GroupVersionKind] = learned
		}
	}
}

// ServedKind is a kind as a cluster serves it.
type ServedKind struct {
	schema.GroupVersionKind
	Resource   schema.GroupVersionResource
	Namespaced bool
}

// Served are the kinds that have a definition.
func (k *Kinds) Served() (all []ServedKind) {
	for gvk, is := range k.known {
		all = append(all, ServedKind{gvk, is.resource, is.namespaced})
	}
	return all
}

// serve takes names and scope from a cluster.
func (k *Kinds) serve(s ServedKind) {
	if _, known := k.known[s.GroupVersionKind]; !known {
		k.known[s.GroupVersionKind] = &kind{GroupVersionKind: s.GroupVersionKind, resource: s.Resource, namespaced: s.Namespaced, scale: replicasPaths}
	}
}

func named(crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion) *kind {
	gv := schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}
	named := &kind{
		GroupVersionKind: gv.WithKind(crd.Spec.Names.Kind), resource: gv.WithResource(crd.Spec.Names.Plural),
		namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	if version.Subresources != nil && version.Subresources.Scale != nil {
		named.scale = pathsOf(version.Subresources.Scale)
	}
	return named
}

func newKindSchema(version *apiextensionsv1.CustomResourceDefinitionVersion) (*kindSchema, error) {
	schema, err := catalog.NewSchema(version.Schema.OpenAPIV3Schema, nil)
	return &kindSchema{schema, version.Subresources != nil && version.Subresources.Status != nil}, err
}

// of returns the kind of a document.
func (k *Kinds) of(d *Document) (*kind, error) {
	apiVersion, err := d.text("apiVersion")
	if err != nil {
		return nil, err
	}
	name, err := d.text("kind")
	if err != nil {
		return nil, err
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, d.errorf("apiVersion: %w", err)
	}
	gvk := gv.WithKind(name)
	if found := k.known[gvk]; found != nil {
		return found, nil
	}
	if gv.Group == v1alpha1.GroupName {
		return nil, d.errorf("unknown kind %s in %s; known are %s", name, apiVersion, k.ours())
	}
	found, err := foreign(gvk, metadataText(d.Object, "namespace") != "")
	if err != nil {
		return nil, d.errorf("%w", err)
	}
	return found, nil
}

// ours lists our kinds for a message.
func (k *Kinds) ours() string {
	var names []string
	for gvk := range maps.Keys(k.known) {
		if gvk.Group == v1alpha1.GroupName {
			names = append(names, gvk.Version+" "+gvk.Kind)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// ClusterScoped are the kinds of Kubernetes that have no namespace.
var ClusterScoped = []string{
	"Namespace", "Node", "PersistentVolume", "ComponentStatus", "ClusterRole", "ClusterRoleBinding", "StorageClass", "CSIDriver", "CSINode",
	"VolumeAttachment", "VolumeAttributesClass", "PriorityClass", "RuntimeClass", "IngressClass", "APIService", "CustomResourceDefinition",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "CertificateSigningRequest", "ClusterTrustBundle", "FlowSchema",
	"PriorityLevelConfiguration", "DeviceClass", "ResourceSlice", "ServiceCIDR", "IPAddress", "StorageVersion", "StorageVersionMigration",
	"SubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "TokenReview", "SelfSubjectReview",
}

// foreign is a kind without a definition. Its resource has the usual plural; one that is not Kubernetes' own is taken to be
// namespaced if the object has a namespace.
func foreign(gvk schema.GroupVersionKind, hasNamespace bool) (*kind, error) {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	f := &kind{GroupVersionKind: gvk, resource: plural}
	switch {
	case gvk.Group == apiextensionsv1.GroupName || gvk.Group == "apiregistration.k8s.io" || clientgoscheme.Scheme.Recognizes(gvk):
		f.namespaced = !slices.Contains(ClusterScoped, gvk.Kind)
	case clientgoscheme.Scheme.IsGroupRegistered(gvk.Group) && (gvk.Group == "" || !strings.Contains(gvk.Group, ".")):
		return nil, fmt.Errorf("unknown kind %s in %s", gvk.Kind, gvk.GroupVersion())
	default:
		f.namespaced, f.guessed = hasNamespace, true
	}
	f.scale = replicasPaths
	return f, nil
}

// definitionOf reads a definition out of the state.
func definitionOf(d *Document) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, crd); err != nil {
		return nil, d.errorf("reading the definition: %w", err)
	}
	if crd.Spec.Group == "" || crd.Spec.Names.Kind == "" || crd.Spec.Names.Plural == "" {
		return nil, d.errorf("%w", errors.New("the definition needs spec.group, spec.names.kind and spec.names.plural"))
	}
	return crd, nil
}
